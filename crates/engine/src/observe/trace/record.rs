//! Record of a traced packet, with all its steps.

use std::net::IpAddr;

use serde::{Serialize, Serializer};

/// Maximum number of recorded steps per packet. Further steps are only counted.
const STEPS_MAX: usize = 64;

/// A traced packet, from arrival to departure.
#[derive(Clone, Debug, Serialize)]
pub struct Packet {
    /// Number of the packet in the trace. The first packet has number 1.
    pub number: u64,
    /// Number of the worker that processed the packet.
    pub worker: usize,
    /// Name of the ingress port. A packet created from another packet has that packet's ingress
    /// port.
    pub port: String,
    /// Sequence number of the packet, as assigned by its source.
    pub sequence: u64,
    /// Arrival time in nanoseconds since 1970. It comes from the capture file, or else from the
    /// machine's clock.
    pub time_ns: u64,
    /// Length of the frame on arrival, in bytes without FCS.
    pub length: u16,
    /// EtherType of the payload, after any VLAN tags.
    pub ethertype: u16,
    /// Addresses, protocol and ports of an IP packet. They are absent in all other packets.
    #[serde(flatten)]
    pub flow: Option<Flow>,
    /// Steps of the packet, in order of time.
    pub steps: Vec<Step>,
    /// Number of steps that were not recorded, because the record was full.
    #[serde(skip_serializing_if = "is_zero")]
    pub steps_left_out: u64,
    /// Final outcome of the packet.
    pub fate: Fate,
    /// Frame at its arrival, in hexadecimal digits. It is present if the request asks for frames.
    #[serde(serialize_with = "hexadecimal", skip_serializing_if = "Vec::is_empty")]
    pub frame: Vec<u8>,
    /// Frames at their departure, one per egress port. They are present if the request asks for
    /// frames.
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
    /// Protocol number after the IPv4 header, or after the last IPv6 extension header.
    pub protocol: u8,
    /// Source port, or 0 if the packet contains none.
    pub source_port: u16,
    /// Destination port, or 0 if the packet contains none.
    pub destination_port: u16,
}

/// Frame that was given to an egress port.
#[derive(Clone, Debug, Serialize)]
pub struct SentFrame {
    /// Name of the port.
    pub port: String,
    /// Time since the arrival of the packet, in nanoseconds.
    pub at_ns: u64,
    /// Bytes of the frame, in hexadecimal digits.
    #[serde(serialize_with = "hexadecimal")]
    pub frame: Vec<u8>,
}

/// Final outcome of a traced packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// A port accepted the packet or one of its copies.
    Sent,
    /// The packet and all its copies were dropped.
    Dropped,
    /// A function holds the packet, or merged it with other packets. Further steps of a merged
    /// packet are in the record of the packet that arrived last.
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

/// Kind of a step, with the names of functions, devices, ports, classes and verdicts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "step", rename_all = "snake_case")]
#[allow(missing_docs, reason = "the comment of each step describes its fields")]
pub enum StepKind {
    /// The packet arrived at its ingress port. It goes to the function or port `next`.
    Received { class: String, next: Next },
    /// A function created the packet without another packet.
    Created { function: String, class: String },
    /// A function created this packet from the packet with number `packet`.
    MadeOf { function: String, packet: u64 },
    /// A function created the packet with number `packet` from this packet.
    Split { function: String, packet: u64 },
    /// A function holds the packet until further packets arrive.
    Held { function: String },
    /// A function joined the packet with `held` earlier packets. `length` is the length of the
    /// resulting frame in bytes.
    Joined { function: String, held: u32, length: u16 },
    /// A function has prepared the packet for its kernel. `variant` is the kind of processing that
    /// the packet needs. It is `None` if the packet does not need the kernel.
    Prepared { function: String, variant: Option<String> },
    /// The packet was put into a batch for the device.
    Binned { function: String, device: String, variant: String },
    /// The packet was submitted to the device. `chunk` counts the submissions of the worker. `bin`
    /// is the position of the packet's batch in the submission, counted from 1. The device starts
    /// batches in this order.
    Submitted { device: String, chunk: u64, bin: usize, bins: usize, bin_packets: u16, chunk_packets: u32 },
    /// The device rejected the submission. The packet moves to another device.
    NotTaken { device: String },
    /// The device has returned the packet.
    Returned { device: String },
    /// A function returned a verdict for the packet, which leads to the function or port `next`. If
    /// `on_device` is set, the packet stayed on the device. Such a step is recorded when the device
    /// returns the packet.
    Verdict { function: String, verdict: String, next: Next, on_device: bool },
    /// A copy of the packet leaves through the port.
    Copied { port: String },
    /// A copy of the packet for the port was dropped.
    CopyDropped { port: String, counter: String, reason: &'static str },
    /// The egress port accepted the packet for transmission.
    Sent { port: String, length: u16 },
    /// The packet was given to the sender thread of its worker.
    HandedOver { port: String, length: u16 },
    /// The worker passed `packets` packets to the ports, including this one. The ports refused
    /// `refused` of them, but it is unknown which ones.
    SentOrRefused { port: String, length: u16, refused: usize, packets: usize },
    /// The packet was dropped. `counter` is the name of the drop counter, and `reason` explains the
    /// drop.
    Dropped { counter: String, reason: &'static str },
}

/// Next function or port of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Next {
    /// The function with this name.
    Function(String),
    /// The port with this name.
    Port(String),
    /// All ports in this list, except the ingress port.
    Flood(Vec<String>),
    /// The function chain drops the packet.
    Drop,
    /// The function chain has no entry for the packet, so the packet is dropped.
    Nowhere,
}

impl Packet {
    /// Records a step of the packet. If the record is full, the step is only counted.
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
