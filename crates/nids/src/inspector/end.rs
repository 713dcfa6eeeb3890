//! Ends flows: parses and inspects the remaining data, and writes the final records.

use super::core::{Core, Placed, stream_memory};
use crate::app::Direction;
use crate::eve::{Kind, record};
use crate::flow::{Flow, FlowId, FlowState};
use crate::packet::{Micros, Origin, Packet, Tcp, Transport, tcp};
use crate::stream::{Handled, State};

impl Core {
    /// Ends flows whose timeout has passed, a few at a time.
    pub(super) fn expire(&mut self, now: Micros) {
        for _ in 0..4 {
            match self.flows.expire(now) {
                Some(flow) => self.end(flow, "timeout"),
                None => return,
            }
        }
    }

    /// Ends a flow of the table.
    pub(super) fn end_flow(&mut self, id: FlowId) {
        if let Some(flow) = self.flows.remove(id) {
            self.end(flow, "tcp_reuse");
        }
    }

    /// Ends all flows.
    pub(super) fn finish_all(&mut self) {
        while let Some(flow) = self.flows.pop() {
            self.end(flow, "shutdown");
        }
    }

    /// Inspects the remaining data of a flow, and writes the flow record.
    pub(super) fn end(&mut self, mut flow: Flow, reason: &'static str) {
        self.stream_memory_bytes = self.stream_memory_bytes.saturating_sub(stream_memory(&flow));
        if self.needs_end(&mut flow) {
            for direction in Direction::BOTH {
                self.end_direction(&mut flow, direction);
            }
        }
        let packet = end_packet(&flow, Direction::ToServer);
        let kinds = self.settings.records;
        record::files(&packet, &mut flow, true, kinds, &mut self.records);
        record::transactions_at_end(&packet, &mut flow, kinds, &mut self.records);
        if !kinds.contains(Kind::Flow) {
            return;
        }
        let engine = self.detector.engine().clone();
        record::flow(&flow, reason, &engine, &mut self.records);
    }

    /// Returns whether a TCP connection has data or transactions that rules have not seen.
    fn needs_end(&self, flow: &mut Flow) -> bool {
        let open = flow.app.has_open_transactions();
        let Some(session) = flow.session.as_ref() else { return false };
        let unseen = session.sides.iter().any(|side| side.raw_progress < side.data.end());
        open || unseen || session.state >= State::Established && session.state != State::Closed
    }

    /// Inspects the remaining data of one direction. Rules need a packet, so an artificial one
    /// marks the end of the flow.
    fn end_direction(&mut self, flow: &mut Flow, direction: Direction) {
        let mut direction = direction;
        if self.feed(flow, direction, true) {
            direction = direction.opposite();
        }
        let packet = end_packet(flow, direction);
        let handled = Handled { valid: true, ..Handled::default() };
        let placed = Placed { direction, handled };
        let established = flow.state != FlowState::New;
        flow.app.ended[direction as usize] = true;
        let detection = self.detect(&packet, flow, &placed, established, &[], true);
        self.report(&packet, Some(flow), Some(direction), &detection);
    }
}

/// Returns a packet without payload that marks the end of one direction of a flow.
fn end_packet(flow: &Flow, direction: Direction) -> Packet<'static> {
    let mut packet = Packet::empty(&[], 0, flow.last);
    let key = &flow.key;
    let (source, destination) = ((key.client, key.client_port), (key.server, key.server_port));
    let (source, destination) = match direction {
        Direction::ToServer => (source, destination),
        Direction::ToClient => (destination, source),
    };
    packet.origin = Origin::FlowTimeout;
    packet.version = if key.client.is_ipv4() { 4 } else { 6 };
    (packet.source, packet.source_port) = source;
    (packet.destination, packet.destination_port) = destination;
    packet.protocol = key.protocol;
    packet.vlans = key.vlans;
    packet.ttl = 64;
    if let Some(session) = &flow.session {
        let (sender, receiver) = (session.side(direction), session.side(direction.opposite()));
        packet.transport =
            Transport::Tcp(Tcp { seq: sender.next_seq, ack: receiver.next_seq, flags: tcp::ACK, ..Tcp::default() });
    }
    packet
}
