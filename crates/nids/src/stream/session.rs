//! The states of a TCP connection.
//!
//! The names are those of RFC 9293, with one difference that Suricata's rules rely on: after the
//! first FIN, the connection is in `CloseWait` if the client sent it, and in `FinWait1` if the
//! server did.

use super::assembler::Inserted;
use super::policy::OverlapPolicy;
use super::side::{Side, before};
use crate::app::Direction;
use crate::packet::{Micros, Tcp, tcp as flag};

/// State of a connection, in the order of its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum State {
    /// No packet yet.
    #[default]
    None,
    /// A SYN was seen.
    SynSent,
    /// A SYN with ACK was seen.
    SynReceived,
    /// The handshake is complete.
    Established,
    /// The server sent a FIN.
    FinWait1,
    /// The client acknowledged it.
    FinWait2,
    /// Both sides sent a FIN.
    TimeWait,
    /// The server sent its FIN after the client.
    LastAck,
    /// The client sent a FIN.
    CloseWait,
    /// Both sides sent a FIN at the same time.
    Closing,
    /// Reset, or closed in both directions.
    Closed,
}

impl State {
    /// Returns the name in EVE records.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::SynSent => "syn_sent",
            Self::SynReceived => "syn_recv",
            Self::Established => "established",
            Self::FinWait1 => "fin_wait1",
            Self::FinWait2 => "fin_wait2",
            Self::TimeWait => "time_wait",
            Self::LastAck => "last_ack",
            Self::CloseWait => "close_wait",
            Self::Closing => "closing",
            Self::Closed => "closed",
        }
    }
}

/// Options of all connections.
#[derive(Debug, Clone)]
pub struct Options {
    /// Packets wait for their verdict, so data is processed before it is acknowledged.
    pub inline: bool,
    /// Connections without a handshake are accepted.
    pub midstream: bool,
    /// Connections with packets in one direction only are accepted.
    pub async_oneside: bool,
    /// Policy for overlaps. Inline, the first bytes always win.
    pub policy: OverlapPolicy,
    /// Number of bytes that are stored in each direction; 0 for no limit.
    pub depth: u64,
    /// Treatment of urgent bytes.
    pub urgent: Urgent,
    /// Number of bytes out of order that one direction may hold.
    pub window_max: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            inline: false,
            midstream: false,
            async_oneside: false,
            policy: OverlapPolicy::default(),
            depth: 1 << 20,
            urgent: Urgent::default(),
            window_max: 1 << 20,
        }
    }
}

/// Treatment of urgent bytes: what an application reads depends on its socket options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Urgent {
    /// The byte is part of the stream.
    #[default]
    Inline,
    /// The byte is not part of the stream.
    OutOfBand,
}

/// Directions whose data the protocol parser receives after a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Update {
    /// The direction of the packet.
    pub packet: bool,
    /// The opposite direction, whose data the packet acknowledges.
    pub opposite: bool,
}

/// Result of a packet.
#[derive(Debug, Default)]
pub struct Handled {
    /// The packet belongs to the connection.
    pub valid: bool,
    /// The payload was added to the stream.
    pub added: bool,
    /// The payload overlaps with different bytes.
    pub differs: bool,
    /// Directions to process.
    pub update: Update,
    /// The packet begins a new connection with the same addresses and ports.
    pub reuse: bool,
    /// The packet shows that the first packet came from the server.
    pub swap: bool,
    /// Events, for rules.
    pub events: Vec<&'static str>,
}

impl Handled {
    fn invalid(event: &'static str) -> Self {
        Self { events: vec![event], ..Self::default() }
    }
}

/// A TCP connection.
#[derive(Debug, Default)]
pub struct Session {
    /// Client and server.
    pub sides: [Side; 2],
    /// State.
    pub state: State,
    /// Picked up without a handshake.
    pub midstream: bool,
    /// Only one direction is visible.
    pub oneside: bool,
    /// Both sides use timestamps.
    timestamps: bool,
    /// The SYN has the fast open option.
    fast_open: bool,
    /// Segments that overlap with different bytes.
    pub overlaps_different: u32,
}

/// Event of segments that overlap with different bytes.
const OVERLAP_DIFFERS: &str = "reassembly_overlap_different_data";
/// Age of a timestamp after which it is not compared, microseconds (RFC 7323, section 5.5).
const PAWS_MICROS: u64 = 24 * 86_400 * 1_000_000;

impl Session {
    fn pair(&mut self, direction: Direction) -> (&mut Side, &mut Side) {
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

    /// Returns a copy without bytes.
    pub fn numbers(&self) -> Self {
        let copy = |side: &Side| side.numbers();
        Self { sides: [copy(&self.sides[0]), copy(&self.sides[1])], state: self.state, ..Self::default() }
    }

    /// Exchanges client and server.
    pub fn swap(&mut self) {
        self.sides.swap(0, 1);
    }

    /// Returns whether data is processed as it arrives.
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
        if handled.valid {
            self.pair(direction).0.flags_seen |= header.flags;
        }
        handled.differs = handled.events.contains(&OVERLAP_DIFFERS);
        handled
    }

    fn first(&mut self, direction: Direction, header: &Tcp, payload: &[u8], now: Micros, options: &Options) -> Handled {
        let flags = header.flags;
        if flags & flag::RST != 0 {
            return Handled::invalid("rst_but_no_session");
        }
        if flags & flag::FIN != 0 && !options.midstream {
            return Handled::default();
        }
        if flags & (flag::SYN | flag::ACK) == flag::SYN {
            self.state = State::SynSent;
            self.fast_open = header.fast_open;
            let (sender, receiver) = self.pair(direction);
            sender.start(header.seq);
            sender.scale = header.scale.unwrap_or(0);
            sender.window = u32::from(header.window);
            sender.timestamp = header.timestamp.map(|(value, _)| (value, now));
            receiver.scale = 0;
            let mut handled = Handled { valid: true, ..Handled::default() };
            if header.fast_open && !payload.is_empty() {
                sender.next_seq = sender.next_seq.wrapping_add(payload.len() as u32);
                let seq = header.seq.wrapping_add(1);
                handled.added = self.store(direction, seq, payload, options, &mut handled.events);
                handled.update.packet = options.inline;
            }
            return handled;
        }
        if flags & (flag::SYN | flag::ACK) == flag::SYN | flag::ACK {
            if !(options.midstream || options.async_oneside) {
                return Handled::default();
            }
            // The sender of a SYN with ACK is the server.
            let swap = direction == Direction::ToServer;
            self.state = State::SynReceived;
            self.midstream = true;
            let [client, server] = &mut self.sides;
            server.start(header.seq);
            server.window = u32::from(header.window);
            server.scale = header.scale.unwrap_or(0);
            server.flags_seen |= flags;
            server.timestamp = header.timestamp.map(|(value, _)| (value, now));
            client.start(header.ack.wrapping_sub(1));
            client.next_win = client.last_ack.wrapping_add(server.window);
            self.timestamps = header.timestamp.is_some();
            if swap {
                // The caller exchanges the directions of the flow, not of the session.
                return Handled { valid: true, swap, ..Handled::default() };
            }
            return Handled { valid: true, ..Handled::default() };
        }
        if !options.midstream || flags & flag::ACK == 0 && payload.is_empty() {
            return Handled::default();
        }
        self.pick_up(direction, header, now);
        if options.async_oneside {
            self.oneside = true;
        }
        self.open(direction, header, payload, now, options)
    }

    /// Starts in the middle of a connection.
    fn pick_up(&mut self, direction: Direction, header: &Tcp, now: Micros) {
        self.state = State::Established;
        self.midstream = true;
        let (sender, receiver) = self.pair(direction);
        sender.start(header.seq.wrapping_sub(1));
        // The scale is not known, so the largest is assumed.
        sender.scale = 14;
        sender.window = u32::from(header.window) << 14;
        sender.timestamp = header.timestamp.map(|(value, _)| (value, now));
        receiver.start(header.ack.wrapping_sub(1));
        receiver.scale = 14;
        sender.next_win = sender.next_seq.wrapping_add(1 << 30);
        receiver.next_win = receiver.next_seq.wrapping_add(1 << 30);
    }

    fn syn_sent(
        &mut self,
        direction: Direction,
        header: &Tcp,
        payload: &[u8],
        now: Micros,
        options: &Options,
    ) -> Handled {
        let flags = header.flags;
        let syn = flags & (flag::SYN | flag::ACK);
        // The sender of the SYN is the client, unless this SYN came from the other side.
        let from_client = direction == Direction::ToServer;
        if !from_client && flags & (flag::RST | flag::FIN) != 0 && !self.echo_ok(header) {
            return Handled::invalid("pkt_invalid_timestamp");
        }
        if flags & flag::RST != 0 {
            if from_client && header.seq != self.sides[0].isn {
                // The answer to the SYN may still arrive.
                return Handled { valid: true, ..Handled::default() };
            }
            let (sender, receiver) = self.pair(direction);
            let valid = if from_client {
                header.seq == sender.isn || header.seq == sender.next_seq
            } else {
                flags & flag::ACK == 0 || header.ack == receiver.next_seq || header.ack == receiver.isn.wrapping_add(1)
            };
            if !valid {
                return Handled::invalid("rst_invalid_ack");
            }
            self.state = State::Closed;
            let mut handled = Handled { valid: true, ..Handled::default() };
            handled.update.packet = true;
            return handled;
        }
        if syn == flag::SYN | flag::ACK {
            if from_client {
                return Handled::invalid("3whs_ack_in_wrong_dir");
            }
            let fast_open = self.fast_open;
            let [client, server] = &mut self.sides;
            let first = client.isn.wrapping_add(1);
            let acks_data = fast_open && !before(client.next_seq, header.ack) && !before(header.ack, first);
            if header.ack != first && !acks_data {
                return Handled::invalid("3whs_synack_with_wrong_ack");
            }
            server.start(header.seq);
            server.window = u32::from(header.window);
            server.scale = header.scale.unwrap_or(0);
            if header.scale.is_none() {
                client.scale = 0;
            }
            server.timestamp = header.timestamp.map(|(value, _)| (value, now));
            self.timestamps = client.timestamp.is_some() && header.timestamp.is_some();
            client.last_ack = header.ack;
            client.next_win = client.last_ack.wrapping_add(server.window);
            server.next_win = server.last_ack.wrapping_add(client.window);
            self.state = State::SynReceived;
            let mut handled = Handled { valid: true, ..Handled::default() };
            handled.update.opposite = fast_open && header.ack != first;
            if fast_open && !payload.is_empty() {
                server.next_seq = server.next_seq.wrapping_add(payload.len() as u32);
                handled.added =
                    self.store(direction, header.seq.wrapping_add(1), payload, options, &mut handled.events);
                handled.update.packet = options.inline;
            }
            return handled;
        }
        if syn == flag::SYN {
            if from_client {
                let client = &mut self.sides[0];
                if header.seq != client.isn && !before(client.isn, header.seq) {
                    return Handled::invalid("3whs_syn_resend_diff_seq_on_syn_recv");
                }
                if header.seq != client.isn {
                    client.start(header.seq);
                }
                client.timestamp = header.timestamp.map(|(value, _)| (value, now));
            }
            return Handled { valid: true, ..Handled::default() };
        }
        if flags & flag::ACK != 0 && from_client && options.async_oneside {
            let (client, server) = self.pair(Direction::ToServer);
            if header.seq != client.next_seq {
                return Handled::invalid("3whs_async_wrong_seq");
            }
            server.start(header.ack.wrapping_sub(1));
            client.next_win = client.next_seq.wrapping_add(1 << 30);
            server.next_win = server.next_seq.wrapping_add(1 << 30);
            self.state = State::Established;
            self.oneside = true;
            return self.open(direction, header, payload, now, options);
        }
        if from_client && self.fast_open && !payload.is_empty() {
            // Data after a SYN with data, before the answer.
            return Handled { valid: true, ..Handled::default() };
        }
        Handled::default()
    }

    fn syn_received(
        &mut self,
        direction: Direction,
        header: &Tcp,
        payload: &[u8],
        now: Micros,
        options: &Options,
    ) -> Handled {
        let flags = header.flags;
        let from_client = direction == Direction::ToServer;
        if flags & flag::RST != 0 {
            return self.reset(direction, header, options);
        }
        match (flags & (flag::SYN | flag::ACK), from_client) {
            (s, false) if s == flag::SYN | flag::ACK => {
                let [client, server] = &mut self.sides;
                if header.ack != client.last_ack && header.ack != client.isn.wrapping_add(1) {
                    return Handled::invalid("3whs_synack_resend_with_different_ack");
                }
                if header.seq != server.isn {
                    return Handled::invalid("3whs_synack_resend_with_diff_seq");
                }
                return Handled { valid: true, ..Handled::default() };
            }
            (s, true) if s == flag::SYN => {
                if header.seq != self.sides[0].isn {
                    return Handled::invalid("3whs_syn_resend_diff_seq_on_syn_recv");
                }
                return Handled { valid: true, ..Handled::default() };
            }
            (s, _) if s & flag::SYN != 0 => return Handled::invalid("3whs_syn_toclient_on_syn_recv"),
            _ => {}
        }
        if flags & flag::ACK == 0 && flags & flag::FIN == 0 {
            return Handled::default();
        }
        if from_client {
            let [client, server] = &mut self.sides;
            let first = server.isn.wrapping_add(1);
            if header.ack != server.next_seq && header.ack != first && !options.async_oneside {
                let event = if header.seq == client.next_seq {
                    "3whs_right_seq_wrong_ack_evasion"
                } else {
                    "3whs_wrong_seq_wrong_ack"
                };
                return Handled::invalid(event);
            }
            if before(header.seq, client.isn) {
                return Handled::invalid("3whs_wrong_seq_wrong_ack");
            }
            server.next_win = server.last_ack.wrapping_add(u32::from(header.window) << client.scale);
            self.state = State::Established;
            return self.open(direction, header, payload, now, options);
        }
        // Data of the server before the client's ACK arrives: the ACK may be lost, or only this
        // direction is visible.
        if options.async_oneside || options.midstream || options.inline || !payload.is_empty() {
            let server = &self.sides[1];
            if header.seq == server.next_seq || before(server.isn, header.seq) {
                self.oneside |= options.async_oneside && self.midstream;
                self.state = State::Established;
                return self.open(direction, header, payload, now, options);
            }
        }
        Handled::default()
    }

    /// Processes a packet of a connection after its handshake.
    fn open(&mut self, direction: Direction, header: &Tcp, payload: &[u8], now: Micros, options: &Options) -> Handled {
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
                // The data of a reset is not part of the stream.
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
                // Everything is acknowledged already.
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

    /// Chooses the directions whose data is processed.
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

    fn reset(&mut self, direction: Direction, header: &Tcp, options: &Options) -> Handled {
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

    /// Returns whether the timestamp is not older than the last one (RFC 7323, section 5).
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

    /// Returns whether the answer to a SYN echoes its timestamp (RFC 7323, section 3.2).
    fn echo_ok(&self, header: &Tcp) -> bool {
        match (header.timestamp, self.sides[0].timestamp) {
            (Some((_, echo)), Some((sent, _))) => echo == sent,
            _ => true,
        }
    }

    /// Adds the payload of a packet to the stream, without an urgent byte that the application does
    /// not read. Returns whether it is stored.
    fn store_payload(
        &mut self,
        direction: Direction,
        header: &Tcp,
        payload: &[u8],
        options: &Options,
        events: &mut Vec<&'static str>,
    ) -> bool {
        let at = usize::from(header.urgent).wrapping_sub(1);
        let urgent = header.flags & flag::URG != 0 && at < payload.len() && options.urgent == Urgent::OutOfBand;
        if !urgent {
            return self.store(direction, header.seq, payload, options, events);
        }
        let before = self.store(direction, header.seq, &payload[..at], options, events);
        let seq = header.seq.wrapping_add(at as u32);
        self.pair(direction).0.skip(seq);
        let after = self.store(direction, seq.wrapping_add(1), &payload[at + 1..], options, events);
        before || after
    }

    /// Adds payload to the stream. Returns whether it is stored.
    fn store(
        &mut self,
        direction: Direction,
        seq: u32,
        payload: &[u8],
        options: &Options,
        events: &mut Vec<&'static str>,
    ) -> bool {
        let side = self.pair(direction).0;
        if side.closed || payload.is_empty() {
            return false;
        }
        let Some(start) = side.offset(seq).or_else(|| side.offset(seq.wrapping_add(payload.len() as u32)).map(|_| 0))
        else {
            events.push("reassembly_segment_before_base_seq");
            return false;
        };
        let skipped = if side.offset(seq).is_none() { side.isn.wrapping_add(1).wrapping_sub(seq) as usize } else { 0 };
        let mut payload = payload.get(skipped..).unwrap_or(&[]);
        if options.depth > 0 {
            if start >= options.depth {
                side.depth_reached = true;
                return false;
            }
            let room = (options.depth - start) as usize;
            if payload.len() > room {
                payload = &payload[..room];
                side.depth_reached = true;
            }
        }
        if start + payload.len() as u64 > side.data.base() + options.window_max + (1 << 18) {
            events.push("reassembly_no_segment");
            return false;
        }
        side.move_anchor(seq);
        let policy = if options.inline { OverlapPolicy::First } else { options.policy };
        let Inserted { differs, .. } = side.data.insert(start, payload, policy);
        side.ranges_max = side.ranges_max.max(side.data.range_count() as u16);
        if differs {
            self.overlaps_different += 1;
            events.push(OVERLAP_DIFFERS);
        }
        true
    }
}
