//! Inspection of each packet, which a worker does on the CPU.

use std::sync::Arc;

use godwit_abi::Outcome;
use godwit_nids::packet::LinkType;
use godwit_nids::{DropReason, FrameResult, FrameVerdict, Inspector};
use godwit_packet::Descriptor;

use super::output::Sender;
use super::published::WorkerCounters;
use super::rules::Follower;
use super::{DROP_FLOW, DROP_MEMORY, DROP_RULE, DROP_STREAM, VERDICT_ALERT, VERDICT_CLEAN};
use crate::{Arrange, Arrangement, Complete, Step, Work};

/// Interval between two checks for expired flows while no packets arrive, in nanoseconds.
const EXPIRE_NS: u64 = 100_000_000;

/// Inspection state of one worker.
pub(super) struct NidsHost {
    pub(super) inspector: Inspector,
    pub(super) rules: Follower,
    pub(super) counters: WorkerCounters,
    pub(super) sender: Option<Sender>,
    /// Egress port for the packets of each ingress port.
    pub(super) peers: Arc<[u16]>,
    pub(super) inline: bool,
    /// Offset between the engine's clock and the timestamps of event records, in nanoseconds.
    pub(super) clock_offset_ns: u64,
}

impl NidsHost {
    fn publish(&mut self) {
        self.counters.publish(&self.inspector.stats());
        let records = self.inspector.records();
        if records.is_empty() {
            return;
        }
        let records = std::mem::take(records);
        if let Some(sender) = &self.sender {
            sender.send(records);
        }
    }
}

impl Complete for NidsHost {}

impl Arrange for NidsHost {
    fn arrange(&mut self, packets: &mut Arrangement<'_>) -> u64 {
        if let Some(rules) = self.rules.replacement() {
            self.inspector.replace_rules(rules);
        }
        for (packet, stamp) in packets.arrived.iter().zip(packets.stamps) {
            self.clock_offset_ns = stamp.time_ns.wrapping_sub(packets.now_ns);
            // As in Suricata, event records number the frames of a capture file. Live frames have
            // no number.
            let number = if packets.live { 0 } else { stamp.sequence + 1 };
            let frame = packets.region.frame(packet);
            let result = self.inspector.frame(LinkType::Ethernet, frame, number, stamp.time_ns / 1000);
            let work = Work::Done(outcome(result, self.inline, &self.peers, packet));
            packets.steps.push(Step::Keep { packet: *packet, work });
        }
        if packets.arrived.is_empty() {
            self.inspector.expire(packets.now_ns.wrapping_add(self.clock_offset_ns) / 1000);
        }
        if packets.ending {
            self.inspector.finish();
        }
        self.publish();
        packets.now_ns.saturating_add(EXPIRE_NS)
    }
}

pub(super) fn outcome(result: FrameResult, inline: bool, peers: &[u16], packet: &Descriptor) -> Outcome {
    let port = peers.get(usize::from(packet.port)).copied().unwrap_or(packet.port.into());
    match result.verdict {
        FrameVerdict::Drop(reason) if inline => Outcome::drop(match reason {
            DropReason::Rule => DROP_RULE,
            DropReason::Flow => DROP_FLOW,
            DropReason::Stream => DROP_STREAM,
            DropReason::Memory => DROP_MEMORY,
        }),
        _ => match result.alert {
            Some(sid) => Outcome { value: sid, port, ..Outcome::verdict(VERDICT_ALERT) },
            None => Outcome { port, ..Outcome::verdict(VERDICT_CLEAN) },
        },
    }
}
