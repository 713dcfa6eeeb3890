//! Validates TCP packets and updates the state of their connection.

use super::options::Options;
use super::side::{Side, before};
use super::state::State;
use crate::app::Direction;
use crate::packet::{Micros, Tcp, tcp as flag};

/// Directions in which the protocol parser gets new data after a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Update {
    /// The direction of the packet has new data to process.
    pub packet: bool,
    /// The packet acknowledges new data of the opposite direction.
    pub opposite: bool,
}

/// Result of processing a packet.
#[derive(Debug, Default)]
pub struct Handled {
    /// Whether the packet fits the state of its connection.
    pub valid: bool,
    /// Whether the payload was added to the stream.
    pub added: bool,
    /// Whether the payload contradicts the bytes of earlier segments.
    pub differs: bool,
    /// Whether the payload was not stored because stream memory is used up.
    pub refused: bool,
    /// Directions in which the protocol parser receives new data.
    pub update: Update,
    /// Whether the packet opens a new connection with the addresses and ports of an earlier one.
    pub reuse: bool,
    /// Whether client and server must be exchanged, because the server sent the first packet.
    pub swap: bool,
    /// Names of events that rules can test.
    pub events: Vec<&'static str>,
}

impl Handled {
    pub(super) fn invalid(event: &'static str) -> Self {
        Self { events: vec![event], ..Self::default() }
    }
}

/// A TCP connection.
#[derive(Debug, Default)]
pub struct Session {
    /// State of the client and of the server, in this order.
    pub sides: [Side; 2],
    /// State of the connection.
    pub state: State,
    /// Whether the first visible packet was not part of a handshake.
    pub midstream: bool,
    /// Whether only one direction is visible.
    pub oneside: bool,
    /// Whether both sides use timestamps.
    pub(super) timestamps: bool,
    /// Whether the SYN has the fast open option.
    pub(super) fast_open: bool,
    /// Number of segments that contradict the bytes of earlier segments.
    pub overlaps_different: u32,
    /// Whether the current payload was not stored because stream memory is used up.
    pub(super) refused: bool,
}

/// Event for overlapping segments with different bytes.
pub(super) const OVERLAP_DIFFERS: &str = "reassembly_overlap_different_data";
/// Maximum age of comparable timestamps, in microseconds (RFC 7323, section 5.5).
const PAWS_MICROS: u64 = 24 * 86_400 * 1_000_000;

impl Session {
    pub(super) fn pair(&mut self, direction: Direction) -> (&mut Side, &mut Side) {
        let [client, server] = &mut self.sides;
        match direction {
            Direction::ToServer => (client, server),
            Direction::ToClient => (server, client),
        }
    }

    /// Returns one direction.
    pub fn side(&self, direction: Direction) -> &Side {
        &self.sides[direction as usize]
    }

    /// Returns one direction.
    pub fn side_mut(&mut self, direction: Direction) -> &mut Side {
        &mut self.sides[direction as usize]
    }

    /// Returns a copy of the connection state without stored bytes.
    pub fn numbers(&self) -> Self {
        let copy = |side: &Side| side.numbers();
        Self { sides: [copy(&self.sides[0]), copy(&self.sides[1])], state: self.state, ..Self::default() }
    }

    /// Returns the memory use of the stored bytes in both directions.
    pub fn memory_bytes(&self) -> u64 {
        self.sides.iter().map(|side| side.data.memory_bytes() as u64).sum()
    }

    /// Exchanges client and server.
    pub fn swap(&mut self) {
        self.sides.swap(0, 1);
    }

    /// Returns whether data is processed on arrival, before it is acknowledged.
    pub fn is_immediate(&self, options: &Options) -> bool {
        options.inline || self.oneside
    }

    /// Processes a packet.
    pub fn packet(
        &mut self,
        direction: Direction,
        header: &Tcp,
        payload: &[u8],
        now: Micros,
        options: &Options,
    ) -> Handled {
        let handled = match self.state {
            State::None => self.first(direction, header, payload, now, options),
            State::SynSent => self.syn_sent(direction, header, payload, now, options),
            State::SynReceived => self.syn_received(direction, header, payload, now, options),
            _ => self.open(direction, header, payload, now, options),
        };
        let mut handled = handled;
        handled.refused = std::mem::take(&mut self.refused);
        if handled.valid {
            self.pair(direction).0.flags_seen |= header.flags;
        }
        handled.differs = handled.events.contains(&OVERLAP_DIFFERS);
        handled
    }

    /// Processes a packet of a connection after its handshake.
    pub(super) fn open(
        &mut self,
        direction: Direction,
        header: &Tcp,
        payload: &[u8],
        now: Micros,
        options: &Options,
    ) -> Handled {
        let flags = header.flags;
        if flags & flag::SYN != 0 {
            return self.unexpected_syn(direction, header, options);
        }
        if flags & flag::RST != 0 && !self.oneside {
            if !self.timestamp_ok(direction, header, now) {
                return Handled::invalid("pkt_invalid_timestamp");
            }
            let mut handled = self.reset(direction, header, options);
            if handled.valid && !payload.is_empty() {
                // Data in a packet with a reset is not part of the stream.
                handled.added = false;
            }
            return handled;
        }
        if !self.timestamp_ok(direction, header, now) {
            return Handled::invalid("pkt_invalid_timestamp");
        }
        let acks = flags & flag::ACK != 0;
        let relaxed = self.oneside || self.midstream;
        let (sender, receiver) = self.pair(direction);
        let end = header.seq.wrapping_add(payload.len() as u32);
        if acks && !relaxed && before(receiver.next_win, header.ack) && before(receiver.next_seq, header.ack) {
            return Handled::invalid("est_invalid_ack");
        }
        if !relaxed {
            let fresh = !before(header.seq, sender.last_ack);
            if !fresh && !payload.is_empty() && !before(sender.last_ack, end) {
                // The packet only contains data that is already acknowledged.
                return Handled::invalid("est_pkt_before_last_ack");
            }
            let edge = sender.next_win.wrapping_add(1);
            if before(edge, end) && before(sender.next_seq.wrapping_add(1), header.seq) {
                return Handled::invalid("est_packet_out_of_window");
            }
        }
        let mut handled = Handled { valid: true, ..Handled::default() };
        sender.sent(end);
        sender.window = u32::from(header.window) << sender.scale;
        if let Some((value, _)) = header.timestamp {
            sender.timestamp = Some((value, now));
        }
        if acks {
            receiver.acknowledge(header.ack);
            receiver.next_win = receiver.last_ack.wrapping_add(sender.window);
            if before(receiver.next_seq, header.ack) {
                receiver.next_seq = header.ack;
            }
        }
        if self.oneside {
            let sender = self.pair(direction).0;
            sender.acknowledge(header.seq);
        }
        if flags & flag::FIN != 0 {
            let sender = self.pair(direction).0;
            sender.fin = true;
            sender.sent(end.wrapping_add(1));
        }
        self.advance(direction, header);
        self.choose_update(direction, header, options, &mut handled);
        if !payload.is_empty() {
            handled.added = self.store_payload(direction, header, payload, options, &mut handled.events);
        }
        handled
    }

    /// Moves to the next state after a valid packet.
    fn advance(&mut self, direction: Direction, header: &Tcp) {
        let fin = header.flags & flag::FIN != 0;
        let from_client = direction == Direction::ToServer;
        let acks_all = {
            let (_, receiver) = self.pair(direction);
            header.flags & flag::ACK != 0 && !before(header.ack, receiver.next_seq)
        };
        self.state = match (self.state, fin) {
            (State::Established, true) if from_client => State::CloseWait,
            (State::Established, true) => State::FinWait1,
            (State::FinWait1, true) if from_client => {
                if acks_all {
                    State::TimeWait
                } else {
                    State::Closing
                }
            }
            (State::FinWait1, false) if from_client && acks_all => State::FinWait2,
            (State::FinWait2, true) if from_client => State::TimeWait,
            (State::CloseWait, true) if !from_client => State::LastAck,
            (State::LastAck, false) if from_client && acks_all => State::Closed,
            (State::Closing, false) if acks_all => State::TimeWait,
            (State::TimeWait, false) if acks_all => State::Closed,
            (state, _) => state,
        };
    }

    /// Chooses the directions in which the protocol parser gets data after this packet.
    fn choose_update(&self, _direction: Direction, header: &Tcp, options: &Options, handled: &mut Handled) {
        let acks = header.flags & flag::ACK != 0;
        handled.update = if self.is_immediate(options) {
            Update { packet: true, opposite: false }
        } else if header.flags & flag::FIN != 0 && self.state > State::TimeWait {
            Update { packet: true, opposite: acks }
        } else if self.state == State::Closed {
            Update { packet: true, opposite: true }
        } else {
            Update { packet: false, opposite: acks }
        };
    }

    fn unexpected_syn(&mut self, direction: Direction, header: &Tcp, _options: &Options) -> Handled {
        let from_client = direction == Direction::ToServer;
        let synack = header.flags & flag::ACK != 0;
        if !synack && self.state >= State::FinWait1 && header.seq != self.sides[direction as usize].isn {
            return Handled { reuse: true, ..Handled::default() };
        }
        if !synack && self.state == State::Closed {
            return Handled { reuse: true, ..Handled::default() };
        }
        match (synack, from_client) {
            (true, true) => Handled::invalid("est_synack_toserver"),
            (true, false) if header.seq == self.sides[1].isn => Handled { valid: true, ..Handled::default() },
            (true, false) => Handled::invalid("est_synack_resend"),
            (false, true) if self.state == State::Established => Handled::invalid("est_syn_resend"),
            (false, false) if self.state == State::Established => Handled::invalid("est_syn_toclient"),
            (false, _) => Handled::invalid("shutdown_syn_resend"),
        }
    }

    pub(super) fn reset(&mut self, direction: Direction, header: &Tcp, options: &Options) -> Handled {
        let relaxed = self.oneside || self.midstream;
        let (sender, receiver) = self.pair(direction);
        let in_window = !before(header.seq, sender.last_ack) && !before(sender.next_win.wrapping_add(1), header.seq);
        if !relaxed && !in_window && header.seq != sender.next_seq {
            return Handled::invalid("rst_invalid_ack");
        }
        if header.flags & flag::ACK != 0 {
            if !relaxed && before(receiver.next_seq, header.ack) {
                return Handled::invalid("rst_invalid_ack");
            }
            receiver.acknowledge(header.ack);
        }
        self.state = State::Closed;
        let mut handled = Handled { valid: true, ..Handled::default() };
        handled.update = if options.inline {
            Update { packet: true, opposite: false }
        } else {
            Update { packet: true, opposite: header.flags & flag::ACK != 0 }
        };
        handled
    }

    /// Returns whether the packet's timestamp is at least as new as the sender's last timestamp
    /// (RFC 7323, section 5).
    fn timestamp_ok(&self, direction: Direction, header: &Tcp, now: Micros) -> bool {
        if !self.timestamps {
            return true;
        }
        let Some((value, _)) = header.timestamp else { return true };
        match self.sides[direction as usize].timestamp {
            Some((last, at)) => !before(value, last) || now.saturating_sub(at) > PAWS_MICROS,
            None => true,
        }
    }
}
