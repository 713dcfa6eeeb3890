//! Processes TCP handshakes. Also accepts connections whose first visible packet is not a SYN.

use super::options::Options;
use super::session::{Handled, Session};
use super::side::before;
use super::state::State;
use crate::app::Direction;
use crate::packet::{Micros, Tcp, tcp as flag};

impl Session {
    /// Processes the first packet of a connection.
    pub(super) fn first(
        &mut self,
        direction: Direction,
        header: &Tcp,
        payload: &[u8],
        now: Micros,
        options: &Options,
    ) -> Handled {
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
                // The session assigns client and server correctly. The caller must exchange them in
                // the flow.
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

    /// Starts to follow a connection that is already open.
    fn pick_up(&mut self, direction: Direction, header: &Tcp, now: Micros) {
        self.state = State::Established;
        self.midstream = true;
        let (sender, receiver) = self.pair(direction);
        sender.start(header.seq.wrapping_sub(1));
        // Assume the largest window scale, because the real one is unknown.
        sender.scale = 14;
        sender.window = u32::from(header.window) << 14;
        sender.timestamp = header.timestamp.map(|(value, _)| (value, now));
        receiver.start(header.ack.wrapping_sub(1));
        receiver.scale = 14;
        sender.next_win = sender.next_seq.wrapping_add(1 << 30);
        receiver.next_win = receiver.next_seq.wrapping_add(1 << 30);
    }

    /// Processes a packet in state `SynSent`.
    pub(super) fn syn_sent(
        &mut self,
        direction: Direction,
        header: &Tcp,
        payload: &[u8],
        now: Micros,
        options: &Options,
    ) -> Handled {
        let flags = header.flags;
        let syn = flags & (flag::SYN | flag::ACK);
        // The sender of the SYN is normally the client of the flow.
        let from_client = direction == Direction::ToServer;
        if !from_client && flags & (flag::RST | flag::FIN) != 0 && !self.echo_ok(header) {
            return Handled::invalid("pkt_invalid_timestamp");
        }
        if flags & flag::RST != 0 {
            return self.reset_of_syn(direction, header);
        }
        if syn == flag::SYN | flag::ACK {
            return self.answer_of_syn(direction, header, payload, now, options);
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
            // With TCP Fast Open, the client may send more data before the server answers.
            return Handled { valid: true, ..Handled::default() };
        }
        Handled::default()
    }

    /// Processes a RST in state `SynSent`.
    fn reset_of_syn(&mut self, direction: Direction, header: &Tcp) -> Handled {
        let flags = header.flags;
        let from_client = direction == Direction::ToServer;
        if from_client && header.seq != self.sides[0].isn {
            // The reply to the SYN may still arrive.
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
        handled
    }

    /// Processes a SYN with ACK in state `SynSent`.
    fn answer_of_syn(
        &mut self,
        direction: Direction,
        header: &Tcp,
        payload: &[u8],
        now: Micros,
        options: &Options,
    ) -> Handled {
        if direction == Direction::ToServer {
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
            handled.added = self.store(direction, header.seq.wrapping_add(1), payload, options, &mut handled.events);
            handled.update.packet = options.inline;
        }
        handled
    }

    /// Processes a packet in state `SynReceived`.
    pub(super) fn syn_received(
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
        // The server sends data before the client's ACK arrives. The ACK may be lost, or only this
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

    /// Returns whether the reply to a SYN echoes its timestamp (RFC 7323, section 3.2).
    fn echo_ok(&self, header: &Tcp) -> bool {
        match (header.timestamp, self.sides[0].timestamp) {
            (Some((_, echo)), Some((sent, _))) => echo == sent,
            _ => true,
        }
    }
}
