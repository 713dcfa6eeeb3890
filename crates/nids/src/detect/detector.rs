//! Evaluates the rules for one packet.

use super::alert::{self, Alert, Result};
use super::chain::{self, Scratch, Subject};
use super::compile::{Compiled, Engine, protocol_class};
use super::header;
use super::input::Input;
use super::thresholds::Thresholds;
use crate::flow::{Flow, FlowAction};
use crate::packet::Transport;
use crate::rules::Field;
use crate::rules::rule::Chain;
use std::sync::Arc;

/// Counters of the detection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Number of inspected packets.
    pub packets: u64,
    /// Number of rule evaluations after the prefilter.
    pub candidates: u64,
    /// Number of reported alerts.
    pub alerts: u64,
    /// Number of alerts that a threshold suppressed.
    pub suppressed: u64,
    /// Number of alerts that were discarded because a packet had too many.
    pub overflow: u64,
}

/// State of the detection in one worker.
pub struct Detector {
    pub(super) engine: Arc<Engine>,
    pub(super) scratch: Scratch,
    pub(super) thresholds: Thresholds,
    pub(super) matches: Vec<Alert>,
    /// Rules whose prefilter pattern occurs in the packet or its stream.
    pub(super) candidates: Vec<u32>,
    /// For each rule, the number of the last candidate list that contains it. This prevents
    /// duplicate entries.
    stamps: Vec<u32>,
    stamp: u32,
    counters: Counters,
}

/// Traffic in which the payload tests of a rule matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PayloadMatch {
    No,
    Packet,
    Stream,
}

impl Detector {
    /// Creates a detector for compiled rules.
    pub fn new(engine: Arc<Engine>) -> Self {
        let stamps = vec![0; engine.rules.len()];
        Self {
            engine,
            scratch: Scratch::default(),
            thresholds: Thresholds::default(),
            matches: Vec::new(),
            candidates: Vec::new(),
            stamps,
            stamp: 0,
            counters: Counters::default(),
        }
    }

    /// Returns the compiled rules.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Replaces the rules. Thresholds and host bits are kept.
    pub fn replace(&mut self, engine: Arc<Engine>) {
        self.stamps = vec![0; engine.rules.len()];
        self.stamp = 0;
        self.candidates.clear();
        self.engine = engine;
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the number of regular expression searches that exceeded a limit. They count as
    /// mismatches.
    pub fn pcre_limits(&self) -> u64 {
        self.scratch.regex.limits
    }

    pub(super) fn next_stamp(&mut self) {
        self.stamp = self.stamp.wrapping_add(1);
        if self.stamp == 0 {
            self.stamps.fill(0);
            self.stamp = 1;
        }
    }

    /// Adds the rule to the current list. Returns false if the list already contains it.
    pub(super) fn is_new(&mut self, rule: u32) -> bool {
        std::mem::replace(&mut self.stamps[rule as usize], self.stamp) != self.stamp
    }

    /// Evaluates the rules for a packet.
    pub fn inspect(&mut self, input: &mut Input<'_, '_>) -> Result {
        if let Some(flow) = input.flow.as_deref() {
            match flow.action {
                FlowAction::Drop => return Result { verdict: alert::Verdict::DropFlow, ..Result::default() },
                FlowAction::Pass => return Result::default(),
                FlowAction::None if flow.bypass => return Result::default(),
                FlowAction::None => {}
            }
        }
        self.counters.packets += 1;
        self.matches.clear();
        let engine = self.engine.clone();
        if let Some(flow) = input.flow.as_deref_mut() {
            follow(&engine, flow);
        }
        self.once_per_flow(&engine, input);
        self.collect(&engine, input);
        self.packet_rules(&engine, input);
        self.transaction_rules(&engine, input);
        let mut matches = std::mem::take(&mut self.matches);
        let result = alert::finish(&mut matches, &engine, input, &mut self.thresholds);
        self.matches = matches;
        self.counters.alerts += result.alerts.len() as u64;
        self.counters.suppressed += u64::from(result.suppressed);
        self.counters.overflow += u64::from(result.overflow);
        result
    }

    /// Evaluates rules that test only addresses or only the application protocol, once per flow
    /// direction.
    fn once_per_flow(&mut self, engine: &Engine, input: &mut Input<'_, '_>) {
        let mut addresses = true;
        let mut protocol = false;
        if let (Some(flow), Some(direction)) = (input.flow.as_deref_mut(), input.direction) {
            let side = direction as usize;
            addresses = !std::mem::replace(&mut flow.addresses_tested[side], true);
            if flow.app.app.is_some() && flow.app.fresh[side] && !flow.protocol_tested[side] {
                flow.protocol_tested[side] = true;
                protocol = true;
            }
        }
        if addresses {
            for rule in &engine.addresses {
                self.evaluate_packet(engine, *rule, input);
            }
        }
        if protocol {
            for rule in &engine.protocols {
                self.evaluate_packet(engine, *rule, input);
            }
        }
    }

    fn collect(&mut self, engine: &Engine, input: &Input<'_, '_>) {
        self.candidates.clear();
        if engine.payload.is_empty() {
            return;
        }
        self.next_stamp();
        let mut candidates = std::mem::take(&mut self.candidates);
        for stream in input.streams {
            engine.payload.scan(stream, &mut |rule| {
                if self.is_new(rule) {
                    candidates.push(rule);
                }
            });
        }
        let payload = input.packet.payload();
        let is_in_streams = input.inline && input.same_bytes;
        if !payload.is_empty() && !is_in_streams {
            engine.payload.scan(payload, &mut |rule| {
                if self.is_new(rule) {
                    candidates.push(rule);
                }
            });
        }
        self.candidates = candidates;
    }

    /// Evaluates candidate rules and rules without a prefilter pattern, in the order of their
    /// numbers.
    fn packet_rules(&mut self, engine: &Engine, input: &mut Input<'_, '_>) {
        let mut rules: Vec<u32> = self.candidates.clone();
        rules.extend_from_slice(&engine.packets[protocol_class(input.packet.protocol)]);
        rules.sort_unstable();
        for rule in rules {
            if engine.rules[rule as usize].kind == super::Kind::Packet {
                self.evaluate_packet(engine, rule, input);
            }
        }
    }

    /// Evaluates a rule that tests no transactions.
    fn evaluate_packet(&mut self, engine: &Engine, rule: u32, input: &mut Input<'_, '_>) {
        let compiled = &engine.rules[rule as usize];
        if !self.head_matches(compiled, input, &Vec::new()) {
            return;
        }
        if !compiled.packet_chains.iter().all(|chain| self.packet_chain(&compiled.rule.chains[*chain], input)) {
            return;
        }
        let matched = match compiled.payload {
            Some(chain) => self.payload(compiled, &compiled.rule.chains[chain], input),
            None if compiled.needs_stream && input.streams.is_empty() => PayloadMatch::No,
            None => PayloadMatch::Packet,
        };
        if matched == PayloadMatch::No {
            return;
        }
        self.apply_state(rule, input, &mut Vec::new());
        if !compiled.rule.noalert {
            let stream = matched == PayloadMatch::Stream;
            let whole_flow = stream || compiled.kind != super::Kind::Packet;
            self.matches.push(Alert { rule, transaction: None, stream, whole_flow });
        }
    }

    /// Evaluates the parts of a rule that test no field: protocol, headers, flow, named bits and
    /// integer variables.
    pub(super) fn head_matches(
        &mut self,
        compiled: &Compiled,
        input: &Input<'_, '_>,
        bits: &super::state::TransactionBits,
    ) -> bool {
        self.counters.candidates += 1;
        let app = input.flow.as_deref().and_then(|flow| flow.app.app);
        if !compiled.apps.is_empty() && !app.is_some_and(|app| compiled.apps.contains(app)) {
            return false;
        }
        header::matches(compiled, input.packet)
            && header::flow_matches(compiled, input)
            && compiled.rule.packet.iter().all(|test| header::test(test, input))
            && self.state_matches(compiled, input, bits)
    }

    /// Tests the reassembled data first, and then the packet payload.
    pub(super) fn payload(&mut self, compiled: &Compiled, chain: &Chain, input: &Input<'_, '_>) -> PayloadMatch {
        self.scratch.captures.clear();
        let tcp = input.packet.protocol == 6;
        if compiled.needs_stream && tcp {
            for stream in input.streams {
                if chain::matches(&chain.tests, Subject::new(stream), &mut self.scratch) {
                    return PayloadMatch::Stream;
                }
            }
            if !compiled.needs_packet && input.in_stream || compiled.rule.flow.stream == Some(true) {
                return PayloadMatch::No;
            }
        }
        if compiled.rule.protocol.stream_only && tcp && input.in_stream {
            return PayloadMatch::No;
        }
        let payload = input.packet.payload();
        if payload.is_empty() || input.is_end {
            return PayloadMatch::No;
        }
        match chain::matches(&chain.tests, Subject::new(payload), &mut self.scratch) {
            true => PayloadMatch::Packet,
            false => PayloadMatch::No,
        }
    }

    /// Tests a field of the packet other than the payload.
    pub(super) fn packet_chain(&mut self, chain: &Chain, input: &Input<'_, '_>) -> bool {
        let packet = input.packet;
        let whole = |range: std::ops::Range<usize>| packet.data.get(range).filter(|bytes| !bytes.is_empty());
        let kind = |wanted: u8| matches!(packet.transport, Transport::Icmp(_)) && packet.version == wanted;
        let bytes = match chain.field {
            Field::Ipv4Header if packet.version == 4 => whole(packet.network.clone()),
            Field::Ipv6Header if packet.version == 6 => whole(packet.network.clone()),
            Field::TcpHeader if packet.tcp().is_some() => whole(packet.transport_at.clone()),
            Field::UdpHeader if matches!(packet.transport, Transport::Udp) => whole(packet.transport_at.clone()),
            Field::Icmpv4Header if kind(4) => whole(packet.transport_at.clone()),
            Field::Icmpv6Header if kind(6) => whole(packet.transport_at.clone()),
            Field::EtherHeader => whole(packet.ethernet.clone()),
            Field::SctpHeader if matches!(packet.transport, Transport::Sctp(_)) => whole(packet.transport_at.clone()),
            Field::SctpChunkData if matches!(packet.transport, Transport::Sctp(_)) => {
                return header::sctp_chunks(packet.payload()).into_iter().any(|(_, range)| {
                    let data = &packet.payload()[range];
                    let data = data.get(4..).unwrap_or(&[]);
                    chain::matches(&chain.tests, Subject::new(data), &mut self.scratch)
                });
            }
            _ => None,
        };
        let Some(bytes) = bytes else { return false };
        if chain.transforms.is_empty() {
            return chain::matches(&chain.tests, Subject::new(bytes), &mut self.scratch);
        }
        let bytes = super::transform::apply(&chain.transforms, bytes, &mut self.scratch.regex);
        chain::matches(&chain.tests, Subject::new(&bytes), &mut self.scratch)
    }
}

/// Restarts a flow's inspection after a rule change, because rule numbers differ between rule sets.
fn follow(engine: &Engine, flow: &mut Flow) {
    if flow.rule_set != engine.number {
        flow.rule_set = engine.number;
        flow.app.restart_inspections();
    }
}
