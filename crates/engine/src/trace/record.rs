//! What a trace says of a packet.

use std::net::IpAddr;

use serde::{Serialize, Serializer};

/// Most steps that are remembered of a packet; more are counted.
const STEPS_MAX: usize = 64;

/// A packet, from its arrival to where it went.
#[derive(Clone, Debug, Serialize)]
pub struct Packet {
    /// Its number in the trace, from 1: how many packets were chosen until then.
    pub number: u64,
    /// The worker that had it.
    pub worker: usize,
    /// The port that it came by; of a packet that a function made, that of the packet it was made of, if any.
    pub port: String,
    /// Its number in the port's sequence.
    pub sequence: u64,
    /// When it arrived, in nanoseconds since 1970: by the clock of the capture that it is from, else by the machine's.
    pub time_ns: u64,
    /// Bytes when it arrived, without FCS.
    pub length: u16,
    /// Its innermost EtherType.
    pub ethertype: u16,
    /// Who talks to whom; absent for what is not IP.
    #[serde(flatten)]
    pub flow: Option<Flow>,
    /// All that happened to it.
    pub steps: Vec<Step>,
    /// Steps that were too many to be remembered.
    #[serde(skip_serializing_if = "is_zero")]
    pub steps_left_out: u64,
    /// What became of it.
    pub fate: Fate,
    /// As it arrived, where frames are asked for; in hexadecimal digits.
    #[serde(serialize_with = "hexadecimal", skip_serializing_if = "Vec::is_empty")]
    pub frame: Vec<u8>,
    /// As it left, by each port; where frames are asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<Left>,
}

/// Addresses, protocol and ports.
#[derive(Clone, Debug, Serialize)]
pub struct Flow {
    /// Where it comes from.
    pub source: IpAddr,
    /// Where it goes.
    pub destination: IpAddr,
    /// Protocol number behind IPv4 or the IPv6 extension headers.
    pub protocol: u8,
    /// 0 where it shows no ports.
    pub source_port: u16,
    /// 0 where it shows no ports.
    pub destination_port: u16,
}

/// A frame on its way out.
#[derive(Clone, Debug, Serialize)]
pub struct Left {
    /// The port that it was given to.
    pub port: String,
    /// Nanoseconds since the packet arrived.
    pub at_ns: u64,
    /// The frame, in hexadecimal digits.
    #[serde(serialize_with = "hexadecimal")]
    pub frame: Vec<u8>,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// A port accepted it, or one of its copies.
    Sent,
    /// It was dropped, copies and all.
    Dropped,
    /// A function keeps it, or has joined it to others since: what becomes of that is told of the packet that completes them.
    Held,
    /// It was still in flight when the trace ended.
    InFlight,
}

/// Something that happened to a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Nanoseconds since it arrived.
    pub at_ns: u64,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// See [`Step`]. Functions, devices, ports, classes, verdicts and variants are told by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "step", rename_all = "snake_case")]
#[allow(missing_docs, reason = "the sentence of each step speaks of its fields")]
pub enum What {
    /// It came in by its port, is of this class, and goes there first.
    Received { class: String, next: Next },
    /// A function made it of nothing that came in.
    Created { function: String, class: String },
    /// A function made it of the packet with this number.
    MadeOf { function: String, packet: u64 },
    /// A function made the packet with this number of it.
    Split { function: String, packet: u64 },
    /// A function keeps it until others come.
    Held { function: String },
    /// A function joined it with others that it held; together they are so long.
    Joined { function: String, held: u32, length: u16 },
    /// The function's host half has looked at it: the kernel's variant that it is for, or none where that settled it.
    Prepared { function: String, variant: Option<String> },
    /// It waits in a bin of this device.
    Binned { function: String, device: String, variant: String },
    /// It was given to the device: in the worker's chunk with this number, in this bin of it (from 1, in the order in which the
    /// device starts them).
    Submitted { device: String, chunk: u64, bin: usize, bins: usize, bin_packets: u16, chunk_packets: u32 },
    /// The device did not take the chunk: it goes into bins of another.
    NotTaken { device: String },
    /// It is back from the device.
    Returned { device: String },
    /// What a function said of it, and where that leads. `on_device`: the device has led it on by itself, and this is told
    /// after it came back.
    Verdict { function: String, verdict: String, next: Next, on_device: bool },
    /// A copy of it leaves by this port.
    Copied { port: String },
    /// A copy of it was lost.
    CopyDropped { port: String, counter: String, reason: &'static str },
    /// The port accepted it.
    Sent { port: String, length: u16 },
    /// It was given to the thread that sends for this worker.
    HandedOver { port: String, length: u16 },
    /// Ports did not accept so many of the packets that left with it, and do not say which.
    SentOrRefused { port: String, length: u16, refused: usize, packets: usize },
    /// It was dropped: the counter that counts it, and what that means.
    Dropped { counter: String, reason: &'static str },
}

/// Where a packet goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Next {
    /// To this function.
    Function(String),
    /// Out by this port.
    Port(String),
    /// Out by these ports, but for the one that it came by.
    Flood(Vec<String>),
    /// The chain drops it.
    Drop,
    /// The chain says nothing: it is dropped.
    Nowhere,
}

impl Packet {
    /// Notes a step; beyond the bound it is only counted.
    pub(super) fn note(&mut self, at_ns: u64, what: What) {
        if self.steps.len() < STEPS_MAX {
            self.steps.push(Step { at_ns, what });
        } else {
            self.steps_left_out += 1;
        }
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn hexadecimal<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    const DIGITS: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let pair = |byte: &u8| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
    serializer.serialize_str(&bytes.iter().flat_map(pair).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_beyond_the_bound_are_counted() {
        let mut packet = Packet {
            number: 1,
            worker: 0,
            port: String::new(),
            sequence: 0,
            time_ns: 0,
            length: 60,
            ethertype: 0,
            flow: None,
            steps: Vec::new(),
            steps_left_out: 0,
            fate: Fate::InFlight,
            frame: vec![0x0a, 0xff],
            left: Vec::new(),
        };
        (0..STEPS_MAX as u64 + 3).for_each(|at_ns| packet.note(at_ns, What::Returned { device: "cpu".to_owned() }));
        assert_eq!((packet.steps.len(), packet.steps_left_out), (STEPS_MAX, 3));
        let value = serde_json::to_value(&packet).unwrap();
        assert_eq!((&value["steps_left_out"], &value["frame"]), (&serde_json::json!(3), &serde_json::json!("0aff")));
        assert_eq!(value["steps"][2], serde_json::json!({ "at_ns": 2, "step": "returned", "device": "cpu" }));
    }
}
