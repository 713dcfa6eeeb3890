//! Record of a traced packet.

use std::net::IpAddr;

use serde::{Serialize, Serializer};

/// Maximum number of recorded steps per packet. Further steps are only counted.
const STEPS_MAX: usize = 64;

/// A traced packet, from arrival to departure.
#[derive(Clone, Debug, Serialize)]
pub struct Packet {
    /// Number of the packet in the trace, from 1.
    pub number: u64,
    /// Number of the worker that processed the packet.
    pub worker: usize,
    /// Name of the ingress port. If a function created the packet from another, the port of the
    /// original.
    pub port: String,
    /// Sequence number of the packet in its source.
    pub sequence: u64,
    /// Time of arrival, in nanoseconds since 1970. It comes from the capture, or else from the
    /// machine's clock.
    pub time_ns: u64,
    /// Length of the frame on arrival, in bytes without FCS.
    pub length: u16,
    /// Innermost EtherType.
    pub ethertype: u16,
    /// Addresses, protocol and ports of the packet. Absent if it is not IP.
    #[serde(flatten)]
    pub flow: Option<Flow>,
    /// Steps of the packet, in order of time.
    pub steps: Vec<Step>,
    /// Number of steps that were not recorded, because the packet exceeded the maximum.
    #[serde(skip_serializing_if = "is_zero")]
    pub steps_left_out: u64,
    /// Outcome of the packet.
    pub fate: Fate,
    /// Frame on arrival, in hexadecimal digits, if the request asks for frames.
    #[serde(serialize_with = "hexadecimal", skip_serializing_if = "Vec::is_empty")]
    pub frame: Vec<u8>,
    /// Frame on departure for each port, if the request asks for frames.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<SentFrame>,
}

/// Addresses, protocol and ports of a packet.
#[derive(Clone, Debug, Serialize)]
pub struct Flow {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Protocol number after the IPv4 header or the IPv6 extension headers.
    pub protocol: u8,
    /// Source port, or 0 if the packet contains none.
    pub source_port: u16,
    /// Destination port, or 0 if the packet contains none.
    pub destination_port: u16,
}

/// Frame that was given to a port.
#[derive(Clone, Debug, Serialize)]
pub struct SentFrame {
    /// Name of the port.
    pub port: String,
    /// Time since the arrival of the packet, in nanoseconds.
    pub at_ns: u64,
    /// Frame, in hexadecimal digits.
    #[serde(serialize_with = "hexadecimal")]
    pub frame: Vec<u8>,
}

/// Outcome of a traced packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// A port accepted the packet or one of its copies.
    Sent,
    /// The packet and all its copies were dropped.
    Dropped,
    /// A function holds the packet or has joined it to others. The packet that completes the set
    /// shows the further steps.
    Held,
    /// The packet was in flight when the trace ended.
    InFlight,
}

/// A step of a packet through the engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Time since the arrival of the packet, in nanoseconds.
    pub at_ns: u64,
    /// Kind of the step.
    #[serde(flatten)]
    pub kind: StepKind,
}

/// Kind of a step. Functions, devices, ports, classes, verdicts and variants are given by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "step", rename_all = "snake_case")]
#[allow(missing_docs, reason = "the comment of each step describes its fields")]
pub enum StepKind {
    /// The packet arrived by its port. Its class determines its first stage, `next`.
    Received { class: String, next: Next },
    /// A function created the packet, but not from another packet.
    Created { function: String, class: String },
    /// A function created the packet from packet number `packet`.
    MadeOf { function: String, packet: u64 },
    /// A function created packet number `packet` from this one.
    Split { function: String, packet: u64 },
    /// A function holds the packet until others arrive.
    Held { function: String },
    /// A function joined the packet with `held` earlier packets that it held. `length` is the
    /// length of the result.
    Joined { function: String, held: u32, length: u16 },
    /// The host half has prepared the packet for a variant of the kernel. `None`: the packet does
    /// not need the kernel.
    Prepared { function: String, variant: Option<String> },
    /// The packet is in a bin of the device.
    Binned { function: String, device: String, variant: String },
    /// The packet was submitted to the device, in chunk number `chunk` of this worker. `bin` counts
    /// from 1, in the order in which the device starts the bins.
    Submitted { device: String, chunk: u64, bin: usize, bins: usize, bin_packets: u16, chunk_packets: u32 },
    /// The device rejected the chunk. The packet moves to a bin of another device.
    NotTaken { device: String },
    /// The device has returned the packet.
    Returned { device: String },
    /// A function returned a verdict, which leads to `next`. `on_device`: the packet continued on
    /// the device, and the step was recorded after its return.
    Verdict { function: String, verdict: String, next: Next, on_device: bool },
    /// A copy of the packet leaves by this port.
    Copied { port: String },
    /// A copy of the packet was dropped.
    CopyDropped { port: String, counter: String, reason: &'static str },
    /// The port accepted the packet.
    Sent { port: String, length: u16 },
    /// The packet was given to the sender thread of the worker.
    HandedOver { port: String, length: u16 },
    /// The ports refused `refused` of the `packets` packets that left together. Whether this packet
    /// is one of them is unknown.
    SentOrRefused { port: String, length: u16, refused: usize, packets: usize },
    /// The packet was dropped. `counter` counts the drop, and `reason` explains it.
    Dropped { counter: String, reason: &'static str },
}

/// Next stage of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Next {
    /// The function with this name.
    Function(String),
    /// The port with this name.
    Port(String),
    /// All of these ports except the ingress port.
    Flood(Vec<String>),
    /// The chain drops the packet.
    Drop,
    /// The chain has no entry for the packet, so it is dropped.
    Nowhere,
}

impl Packet {
    /// Records a step, or only counts it if the packet has the maximum number of steps.
    pub(super) fn record(&mut self, at_ns: u64, kind: StepKind) {
        if self.steps.len() < STEPS_MAX {
            self.steps.push(Step { at_ns, kind });
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
    fn steps_beyond_the_maximum_are_counted() {
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
        (0..STEPS_MAX as u64 + 3)
            .for_each(|at_ns| packet.record(at_ns, StepKind::Returned { device: "cpu".to_owned() }));
        assert_eq!((packet.steps.len(), packet.steps_left_out), (STEPS_MAX, 3));
        let value = serde_json::to_value(&packet).unwrap();
        assert_eq!((&value["steps_left_out"], &value["frame"]), (&serde_json::json!(3), &serde_json::json!("0aff")));
        assert_eq!(value["steps"][2], serde_json::json!({ "at_ns": 2, "step": "returned", "device": "cpu" }));
    }
}
