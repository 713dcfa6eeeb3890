//! Flow table, and the state of each flow.
//!
//! | file | contents |
//! |---|---|
//! | `table.rs` | table with a keyed hash and a fixed number of flows |
//! | `key.rs` | identity of a flow: addresses, ports, protocol and VLANs |

mod key;
mod table;

pub use key::Key;
pub use table::{FlowId, FlowTable, TableCounters};

use crate::app::Direction;
use crate::packet::{Micros, Packet};
use crate::proto::AppLayer;
use crate::stream::Session;

/// State of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FlowState {
    /// Packets were seen in one direction only, or the TCP handshake is not complete.
    #[default]
    New,
    /// Packets were seen in both directions, or the TCP handshake is complete.
    Established,
    /// A TCP connection that is closed.
    Closed,
}

/// Verdict for all later packets of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FlowAction {
    /// Later packets are inspected.
    #[default]
    None,
    /// Later packets are accepted without inspection.
    Pass,
    /// Later packets are dropped.
    Drop,
}

/// One flow.
#[derive(Debug)]
pub struct Flow {
    /// Addresses and ports, client first.
    pub key: Key,
    /// Number of the flow in this run, which log records contain.
    pub number: u64,
    /// Time of the first packet.
    pub first: Micros,
    /// Time of the last packet.
    pub last: Micros,
    /// State of the flow.
    pub state: FlowState,
    /// Number of packets in each direction.
    pub packets: [u64; 2],
    /// Number of bytes in each direction, including link-layer headers.
    pub bytes: [u64; 2],
    /// Action for later packets.
    pub action: FlowAction,
    /// Whether a rule with the option `bypass` matched. Later packets then skip the inspection.
    pub bypass: bool,
    /// Whether at least one alert was reported for the flow.
    pub alerted: bool,
    /// Whether rules that test only addresses have already run, for each direction.
    pub addresses_tested: [bool; 2],
    /// Whether rules that test only the application protocol have already run, for each direction.
    pub protocol_tested: [bool; 2],
    /// Named bits that are set.
    pub bits: Vec<u32>,
    /// Integer variables, as pairs of an index and a value.
    pub ints: Vec<(u32, u32)>,
    /// Names and contents of the variables that regular expressions captured.
    pub captures: Vec<(String, Vec<u8>)>,
    /// State of the TCP connection.
    pub session: Option<Box<Session>>,
    /// State of the application protocol.
    pub app: AppLayer,
    /// Threshold counters of this flow: a rule's `gid` and `sid`, and its number of matches.
    pub thresholds: Vec<((u32, u32), u32)>,
    /// Number of the rule set that inspected the flow last.
    pub rule_set: u32,
}

impl Flow {
    /// Returns a flow that begins with `packet`.
    pub fn new(key: Key, number: u64, now: Micros) -> Self {
        Self {
            key,
            number,
            first: now,
            last: now,
            state: FlowState::New,
            packets: [0; 2],
            bytes: [0; 2],
            action: FlowAction::None,
            bypass: false,
            alerted: false,
            addresses_tested: [false; 2],
            protocol_tested: [false; 2],
            bits: Vec::new(),
            ints: Vec::new(),
            captures: Vec::new(),
            session: None,
            app: AppLayer::default(),
            thresholds: Vec::new(),
            rule_set: 0,
        }
    }

    /// Counts a packet of the flow.
    pub fn count(&mut self, packet: &Packet<'_>, direction: Direction) {
        self.last = self.last.max(packet.time);
        self.packets[direction as usize] += 1;
        self.bytes[direction as usize] += packet.data.len() as u64;
    }

    /// Returns whether packets were seen in both directions.
    pub fn is_bidirectional(&self) -> bool {
        self.packets[0] > 0 && self.packets[1] > 0
    }

    /// Exchanges client and server.
    pub fn swap(&mut self) {
        self.key.swap();
        self.packets.swap(0, 1);
        self.bytes.swap(0, 1);
        self.addresses_tested.swap(0, 1);
        self.protocol_tested.swap(0, 1);
    }

    /// Returns whether a named bit is set.
    pub fn has_bit(&self, bit: u32) -> bool {
        self.bits.contains(&bit)
    }

    /// Sets or clears a named bit.
    pub fn set_bit(&mut self, bit: u32, on: bool) {
        match (self.bits.iter().position(|known| *known == bit), on) {
            (None, true) => self.bits.push(bit),
            (Some(at), false) => {
                self.bits.swap_remove(at);
            }
            _ => {}
        }
    }

    /// Stores a captured variable.
    pub fn capture(&mut self, name: &str, bytes: Vec<u8>) {
        if let Some(capture) = self.captures.iter_mut().find(|capture| capture.0 == name) {
            capture.1 = bytes;
        } else if self.captures.len() < 16 {
            self.captures.push((name.to_owned(), bytes));
        }
    }

    /// Returns the value of an integer variable.
    pub fn int(&self, name: u32) -> Option<u32> {
        self.ints.iter().find(|int| int.0 == name).map(|int| int.1)
    }

    /// Sets an integer variable.
    pub fn set_int(&mut self, name: u32, value: u32) {
        match self.ints.iter_mut().find(|int| int.0 == name) {
            Some(int) => int.1 = value,
            None => self.ints.push((name, value)),
        }
    }
}
