//! Inspects one packet: finds its flow, reassembles its stream, parses its protocol, and runs the
//! rules.

use super::{DropReason, FrameVerdict};
use crate::app::{App, Direction};
use crate::detect::{Detector, Input, Result as Detection, Verdict};
use crate::eve::{Kind, record};
use crate::flow::{Flow, FlowId, FlowState, FlowTable, Key};
use crate::packet::{Micros, Packet, Transport};
use crate::proto::{HttpConfig, ParserOptions, identify_udp, new_parser};
use crate::settings::Settings;
use crate::stream::{Handled, Session, State};

/// Counters of an inspector.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// Number of packets, including tunnelled packets and reassembled datagrams.
    pub packets: u64,
    /// Packets that belong to no flow.
    pub without_flow: u64,
    /// Packets with a wrong checksum.
    pub checksum: u64,
    /// Packets that do not fit the state of their TCP connection.
    pub invalid: u64,
    /// Number of segments that contradict the bytes of earlier segments.
    pub overlaps: u64,
    /// Gaps in streams that were skipped.
    pub gaps: u64,
    /// Number of received frames.
    pub frames: u64,
    /// Number of bytes in received frames.
    pub bytes: u64,
    /// Number of frames with the verdict `drop`.
    pub blocked: u64,
    /// Packets dropped by a rule.
    pub dropped_rules: u64,
    /// Packets of flows that a rule dropped.
    pub dropped_flow: u64,
    /// Packets that were dropped as invalid in the state of their TCP connection.
    pub dropped_invalid: u64,
    /// Packets whose payload was not stored because stream memory was used up.
    pub refused: u64,
    /// Packets that were dropped because stream memory was used up.
    pub dropped_memory: u64,
}

/// Parts of an inspector except its packet decoder.
pub(super) struct Core {
    pub(super) flows: FlowTable,
    pub(super) detector: Detector,
    pub(super) settings: Settings,
    pub(super) parsers: ParserOptions,
    pub(super) records: Vec<u8>,
    pub(super) counters: Counters,
    /// Memory that the bytes of all streams use.
    pub(super) stream_memory_bytes: u64,
    /// Number of the first rule that alerted on the current frame.
    pub(super) alert: Option<u32>,
}

pub(super) struct Placed {
    pub(super) direction: Direction,
    pub(super) handled: Handled,
}

impl Core {
    pub(super) fn new(detector: Detector, settings: Settings) -> Self {
        Self {
            flows: FlowTable::new(settings.flows_max),
            parsers: ParserOptions { http: HttpConfig::new(&settings.http), hash_files: settings.hash_files },
            detector,
            settings,
            records: Vec::new(),
            counters: Counters::default(),
            stream_memory_bytes: 0,
            alert: None,
        }
    }

    /// Inspects a packet.
    pub(super) fn packet(&mut self, packet: &Packet<'_>) -> FrameVerdict {
        self.counters.packets += 1;
        let Some(key) = Key::of(packet) else {
            self.counters.without_flow += 1;
            return self.without_flow(packet);
        };
        let (id, mut flow) = self.flow_of(key, packet.time);
        let memory_before = stream_memory(&flow);
        let mut direction = flow.key.direction(&key);
        flow.app.fresh = [false; 2];
        let mut handled = Handled::default();
        if !packet.checksum_ok {
            self.counters.checksum += 1;
        } else if let Transport::Tcp(header) = packet.transport {
            let mut options = self.settings.stream.clone();
            options.full = self.stream_memory_bytes >= self.settings.stream_memory_bytes;
            let session = flow.session.get_or_insert_with(Box::<Session>::default);
            handled = session.packet(direction, &header, packet.payload(), packet.time, &options);
            if handled.reuse {
                self.account(memory_before, stream_memory(&flow));
                self.flows.put_back(id, flow);
                self.end_flow(id);
                return self.packet(packet);
            }
            if handled.swap {
                flow.swap();
                direction = direction.opposite();
            }
            self.counters.overlaps += u64::from(handled.events.contains(&"reassembly_overlap_different_data"));
            let known = flow.session.as_ref().is_some_and(|session| session.state != State::None);
            if known && !handled.valid {
                self.counters.invalid += 1;
            }
        }
        flow.count(packet, direction);
        let placed = Placed { direction, handled };
        let verdict = self.placed(packet, &mut flow, placed);
        self.account(memory_before, stream_memory(&flow));
        self.flows.put_back(id, flow);
        verdict
    }

    /// Counts the memory of a stream that changed.
    fn account(&mut self, before: u64, after: u64) {
        self.stream_memory_bytes = (self.stream_memory_bytes + after).saturating_sub(before);
    }

    /// Takes the flow with this key out of the table, or creates it.
    fn flow_of(&mut self, key: Key, now: Micros) -> (FlowId, Flow) {
        if let Some(id) = self.flows.find(&key)
            && let Some(flow) = self.flows.take(id)
        {
            return (id, flow);
        }
        let (id, evicted) = self.flows.insert(key, now);
        if let Some(evicted) = evicted {
            self.end(evicted, "evicted");
        }
        let flow = self.flows.take(id).unwrap_or_else(|| Flow::new(key, 0, now));
        (id, flow)
    }

    /// Inspects a packet that belongs to no flow.
    fn without_flow(&mut self, packet: &Packet<'_>) -> FrameVerdict {
        let mut input = Input {
            packet,
            flow: None,
            direction: None,
            established: false,
            streams: &[],
            in_stream: false,
            same_bytes: false,
            events: &[],
            is_end: false,
            inline: self.settings.stream.inline,
        };
        let detection = self.detector.inspect(&mut input);
        self.report(packet, None, None, &detection);
        self.verdict(packet, None, &detection)
    }

    /// Processes a packet in its flow.
    fn placed(&mut self, packet: &Packet<'_>, flow: &mut Flow, mut placed: Placed) -> FrameVerdict {
        match packet.transport {
            Transport::Tcp(_) => self.tcp(flow, &mut placed),
            Transport::Udp => self.udp(packet, flow, placed.direction),
            _ => {}
        }
        self.update_state(packet, flow);
        let established = flow.state != FlowState::New && (flow.session.is_none() || is_established(flow));
        let events = std::mem::take(&mut placed.handled.events);
        let detection = self.detect(packet, flow, &placed, established, &events, false);
        self.report(packet, Some(flow), Some(placed.direction), &detection);
        let verdict = self.verdict(packet, Some(flow), &detection);
        self.after(packet, flow);
        self.counters.refused += u64::from(placed.handled.refused);
        if verdict != FrameVerdict::Accept || !self.settings.stream.inline {
            return verdict;
        }
        let invalid = packet.tcp().is_some() && !placed.handled.valid && flow.session.is_some();
        let (reason, text) = if invalid && self.settings.drop_invalid {
            self.counters.dropped_invalid += 1;
            (DropReason::Stream, "stream error")
        } else if placed.handled.refused && !self.settings.fail_open {
            self.counters.dropped_memory += 1;
            (DropReason::Memory, "stream memcap")
        } else {
            return verdict;
        };
        if self.settings.records.contains(Kind::Drop) {
            record::drop(packet, Some(flow), text, None, &mut self.records);
        }
        FrameVerdict::Drop(reason)
    }

    /// Passes the data of a stream to the parser.
    fn tcp(&mut self, flow: &mut Flow, placed: &mut Placed) {
        let update = placed.handled.update;
        if !placed.handled.valid {
            return;
        }
        if update.opposite && self.feed(flow, placed.direction.opposite(), false) {
            placed.direction = placed.direction.opposite();
        }
        if update.packet && self.feed(flow, placed.direction, false) {
            placed.direction = placed.direction.opposite();
        }
    }

    fn udp(&mut self, packet: &Packet<'_>, flow: &mut Flow, direction: Direction) {
        let payload = packet.payload();
        if payload.is_empty() || flow.app.failed {
            return;
        }
        if flow.app.app.is_none() {
            match identify_udp(direction, payload, flow.key.client_port, flow.key.server_port) {
                Some(app) => {
                    self.set_app(flow, app);
                    flow.app.fresh[direction as usize] = true;
                }
                None => {
                    flow.app.failed = flow.packets[direction as usize] > 3;
                    return;
                }
            }
        } else if flow.packets[direction as usize] == 1 {
            flow.app.fresh[direction as usize] = true;
        }
        flow.app.data(direction, payload, false);
    }

    /// Sets the protocol of a flow and creates its parser.
    pub(super) fn set_app(&mut self, flow: &mut Flow, app: App) {
        flow.app.app = Some(app);
        flow.app.parser = new_parser(app, &flow.key, &self.parsers);
        flow.app.stopped = flow.app.parser.is_none();
    }

    fn update_state(&mut self, packet: &Packet<'_>, flow: &mut Flow) {
        flow.state = match &flow.session {
            Some(session) => match session.state {
                State::None | State::SynSent | State::SynReceived => FlowState::New,
                State::Closed | State::TimeWait | State::LastAck => FlowState::Closed,
                _ => FlowState::Established,
            },
            None if flow.is_bidirectional() => FlowState::Established,
            None => flow.state,
        };
        let _ = packet;
    }

    /// Runs the rules.
    pub(super) fn detect(
        &mut self,
        packet: &Packet<'_>,
        flow: &mut Flow,
        placed: &Placed,
        established: bool,
        events: &[&'static str],
        is_end: bool,
    ) -> Detection {
        let (ranges, progress) = self.raw_view(packet, flow, placed, is_end);
        // Move the session out of the flow, because rules read stream data while they change the
        // flow.
        let session = flow.session.take();
        let view = |range: &std::ops::Range<u64>| {
            let bytes = session.as_ref()?.side(placed.direction).data.from(range.start);
            Some(&bytes[..bytes.len().min((range.end - range.start) as usize)])
        };
        let streams: Vec<&[u8]> = ranges.iter().filter_map(view).collect();
        // Some rules test the stream size, so the flow gets a copy of the session without stream
        // bytes.
        let numbers = session.as_ref().map(|session| Box::new(session.numbers()));
        flow.session = numbers;
        let mut input = Input {
            packet,
            direction: Some(placed.direction),
            established,
            streams: &streams,
            in_stream: placed.handled.added,
            same_bytes: placed.handled.added && !placed.handled.differs && !streams.is_empty(),
            events,
            is_end,
            inline: self.settings.stream.inline,
            flow: Some(flow),
        };
        let detection = self.detector.inspect(&mut input);
        flow.session = session;
        if let (Some(session), Some(progress)) = (flow.session.as_mut(), progress) {
            let side = session.side_mut(placed.direction);
            side.raw_progress = side.raw_progress.max(progress);
            side.trigger_raw = false;
        }
        detection
    }

    /// Writes the records of a packet.
    pub(super) fn report(
        &mut self,
        packet: &Packet<'_>,
        flow: Option<&mut Flow>,
        direction: Option<Direction>,
        detection: &Detection,
    ) {
        let engine = self.detector.engine().clone();
        let mut flow = flow;
        if let Some(flow) = flow.as_deref_mut() {
            flow.alerted |= !detection.alerts.is_empty();
        }
        let first = detection.alerts.first().map(|alert| engine.rules[alert.rule as usize].rule.meta.sid);
        self.alert = self.alert.or(first);
        if !self.settings.records.contains(Kind::Alert) {
            return;
        }
        for alert in &detection.alerts {
            let context = record::AlertContext {
                packet,
                flow: flow.as_deref(),
                direction,
                engine: &engine,
                alert,
                verdict: detection.verdict,
                inline: self.settings.stream.inline,
                payload: self.settings.record_payload,
            };
            record::alert(&context, &mut self.records);
        }
    }

    /// Counts and records a dropped packet.
    fn verdict(&mut self, packet: &Packet<'_>, flow: Option<&Flow>, detection: &Detection) -> FrameVerdict {
        let engine = self.detector.engine().clone();
        let (reason, text, rule) = match detection.verdict {
            Verdict::Accept => return FrameVerdict::Accept,
            Verdict::Drop(rule) => (DropReason::Rule, "rules", Some(&engine.rules[rule as usize].rule)),
            Verdict::DropFlow => (DropReason::Flow, "flow drop", None),
        };
        if self.settings.stream.inline {
            match reason {
                DropReason::Flow => self.counters.dropped_flow += 1,
                _ => self.counters.dropped_rules += 1,
            }
            if self.settings.records.contains(Kind::Drop) {
                record::drop(packet, flow, text, rule, &mut self.records);
            }
        }
        FrameVerdict::Drop(reason)
    }

    /// Writes complete records, and releases data that the flow no longer needs.
    fn after(&mut self, packet: &Packet<'_>, flow: &mut Flow) {
        record::files(packet, flow, false, self.settings.records, &mut self.records);
        record::transactions(packet, flow, self.settings.records, &mut self.records);
        flow.app.release_done();
        let keep = if self.settings.stream.inline {
            u64::from(self.settings.chunk_bytes[0].max(self.settings.chunk_bytes[1]))
        } else {
            0
        };
        let Some(session) = flow.session.as_mut() else { return };
        let parsing = !flow.app.stopped && !flow.app.failed;
        for side in &mut session.sides {
            let needed = if parsing { side.app_progress.min(side.raw_progress) } else { side.raw_progress };
            side.data.discard(needed.saturating_sub(keep));
        }
    }
}

/// Returns the memory use of a flow's stream, in bytes.
pub(super) fn stream_memory(flow: &Flow) -> u64 {
    flow.session.as_ref().map_or(0, |session| session.memory_bytes())
}

fn is_established(flow: &Flow) -> bool {
    flow.session.as_ref().is_some_and(|session| session.state >= State::Established)
}
