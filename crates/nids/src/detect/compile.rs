//! Compiles rules into an engine. This sorts the rules, decides when each one is evaluated, and
//! builds the prefilter.

use super::names::Names;
use super::search::Search;
use crate::app::{App, AppSet, Direction};
use crate::literal::{Frequencies, Pattern};
use crate::rules::field::{Field, Ready};
use crate::rules::load::RuleSet;
use crate::rules::meta::Classes;
use crate::rules::packet_test::PacketTest;
use crate::rules::prefilter::searched_part;
use crate::rules::rule::{Action, Arrow, Chain, Rule, Test};
use crate::rules::state::{Bit, BitAction, FlowInt, IntAction, Operand, Scope};
use crate::rules::transform::Transform;

/// Time at which a rule is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The rule tests only addresses, and is evaluated once per flow direction.
    Addresses,
    /// The rule is evaluated once per flow direction, when the application protocol becomes known.
    Protocol,
    /// The rule is evaluated for each packet.
    Packet,
    /// The rule is evaluated for each transaction.
    Transaction,
}

/// Prefilter patterns for one field, each with the number of its rule.
type FieldPatterns = (Field, Vec<Transform>, Vec<(Pattern, u32)>);

/// Test of a field in one direction of a transaction.
#[derive(Debug, Clone, Copy)]
pub struct FieldTest {
    /// Index in [`Rule::chains`].
    pub chain: usize,
    /// Parser progress that makes the field available.
    pub ready: u8,
}

/// Compiled test or change of named bits, with numbers instead of names.
#[derive(Debug, Clone)]
pub struct BitOp {
    /// Object to which the bit belongs, such as the flow.
    pub scope: Scope,
    /// Operation on the bits.
    pub action: BitAction,
    /// Numbers of the named bits.
    pub names: Vec<u32>,
    /// Lifetime of the bit, in microseconds.
    pub expire_micros: Option<u64>,
}

/// Compiled test or change of an integer variable, with indices instead of names.
#[derive(Debug, Clone)]
pub struct IntOp {
    /// Index of the integer variable.
    pub name: u32,
    /// Operation on the variable.
    pub action: IntAction,
    /// Name of the other operand.
    pub other: Option<u32>,
}

/// Compiled rule.
#[derive(Debug)]
pub struct Compiled {
    /// The parsed rule.
    pub rule: Rule,
    /// Time at which the rule is evaluated.
    pub kind: Kind,
    /// Index in [`Rule::chains`] for tests of the payload.
    pub payload: Option<usize>,
    /// Indices in [`Rule::chains`] of the tests for packet parts other than the payload.
    pub packet_chains: Vec<usize>,
    /// Tests of transaction fields, such as HTTP headers, for each direction. They are sorted by
    /// the parser progress that makes their fields available.
    pub engines: [Vec<FieldTest>; 2],
    /// Application protocols of the rule. An empty set means all protocols.
    pub apps: AppSet,
    /// Whether the payload tests run on single packets.
    pub needs_packet: bool,
    /// Whether the payload tests run on reassembled data.
    pub needs_stream: bool,
    /// Tests of named bits.
    pub bit_tests: Vec<BitOp>,
    /// Changes of named bits after a match.
    pub bit_changes: Vec<BitOp>,
    /// Tests of integer variables.
    pub int_tests: Vec<IntOp>,
    /// Changes of integer variables after a match.
    pub int_changes: Vec<IntOp>,
}

/// Prefilter patterns for one transformed field.
#[derive(Debug)]
pub struct FieldSet {
    /// Field in which the prefilter searches for the patterns.
    pub field: Field,
    /// Transformations of the field before the search.
    pub transforms: Vec<Transform>,
    /// Patterns to search for, and the rules that contain them.
    pub search: Search,
}

/// Compiled rules.
#[derive(Debug)]
pub struct Engine {
    /// Rules in the order of their evaluation.
    pub rules: Vec<Compiled>,
    /// Rule classes.
    pub classes: Classes,
    /// Prefilter patterns for payloads.
    pub payload: Search,
    /// Prefilter patterns, with one set per transformed field.
    pub sets: Vec<FieldSet>,
    /// Pattern set indices for each application protocol and direction.
    pub app_sets: Vec<[Vec<u32>; 2]>,
    /// Rules of kind `Addresses`.
    pub addresses: Vec<u32>,
    /// Rules of kind `Protocol`.
    pub protocols: Vec<u32>,
    /// Rules of kind `Packet` without a prefilter pattern, in separate lists for TCP, UDP, ICMP and
    /// other protocols.
    pub packets: [Vec<u32>; 4],
    /// Rules of kind `Transaction` without a prefilter pattern, by application protocol.
    pub transactions: Vec<Vec<u32>>,
    /// Names of bits and integer variables.
    pub names: Names,
    /// Length of the longest prefilter pattern for payloads, in bytes.
    pub longest_bytes: usize,
    /// Number of rule sets that this process has loaded before.
    pub number: u32,
}

pub(super) fn protocol_class(number: u8) -> usize {
    match number {
        6 => 0,
        17 => 1,
        1 | 58 => 2,
        _ => 3,
    }
}

impl Engine {
    /// Compiles rules into an engine. `frequencies` states how common each byte is in traffic.
    /// `seed` randomizes the hash functions of the search.
    pub fn new(set: RuleSet, frequencies: &Frequencies, seed: u64) -> Self {
        Self::with_names(set, frequencies, seed, Names::default(), 0)
    }

    /// Compiles a new rule set to replace this engine. Named bits and counters keep their numbers,
    /// because existing flows contain them.
    pub fn replacement(&self, set: RuleSet, frequencies: &Frequencies, seed: u64) -> Self {
        Self::with_names(set, frequencies, seed, self.names.clone(), self.number + 1)
    }

    fn with_names(set: RuleSet, frequencies: &Frequencies, seed: u64, mut names: Names, number: u32) -> Self {
        let mut rules: Vec<Compiled> = set.rules.into_iter().map(|rule| compile(rule, &mut names)).collect();
        rules.sort_by_key(order);
        let mut engine = Self {
            rules,
            classes: set.classes,
            payload: Search::default(),
            sets: Vec::new(),
            app_sets: vec![Default::default(); App::ALL.len()],
            addresses: Vec::new(),
            protocols: Vec::new(),
            packets: Default::default(),
            transactions: vec![Vec::new(); App::ALL.len()],
            names,
            longest_bytes: 0,
            number,
        };
        engine.distribute(frequencies, seed);
        engine
    }

    /// Adds each rule's pattern to the prefilter. Rules without a pattern go to separate lists.
    fn distribute(&mut self, frequencies: &Frequencies, seed: u64) {
        let mut payload: Vec<(Pattern, u32)> = Vec::new();
        let mut fields: Vec<FieldPatterns> = Vec::new();
        for (index, compiled) in self.rules.iter().enumerate() {
            let index = index as u32;
            let searched = match compiled.kind {
                Kind::Packet | Kind::Transaction => compiled.rule.prefilter_content(),
                _ => None,
            };
            let Some((chain, content)) = searched else {
                match compiled.kind {
                    Kind::Addresses => self.addresses.push(index),
                    Kind::Protocol => self.protocols.push(index),
                    Kind::Packet => {
                        let numbers = &compiled.rule.protocol.numbers;
                        for (class, list) in self.packets.iter_mut().enumerate() {
                            if numbers.is_empty() || numbers.iter().any(|number| protocol_class(*number) == class) {
                                list.push(index);
                            }
                        }
                    }
                    Kind::Transaction => {
                        for app in apps_of(compiled).iter() {
                            self.transactions[app as usize].push(index);
                        }
                    }
                }
                continue;
            };
            let pattern = Pattern { bytes: searched_part(content).to_vec(), nocase: content.nocase };
            if chain.field == Field::Payload {
                payload.push((pattern, index));
                continue;
            }
            let known = fields.iter_mut().find(|known| known.0 == chain.field && known.1 == chain.transforms);
            match known {
                Some(known) => known.2.push((pattern, index)),
                None => fields.push((chain.field, chain.transforms.clone(), vec![(pattern, index)])),
            }
        }
        self.payload = Search::new(payload, frequencies, seed);
        self.longest_bytes = self.payload.longest_bytes();
        for (field, transforms, patterns) in fields {
            let number = self.sets.len() as u32;
            for app in field.apps().iter() {
                for direction in Direction::BOTH {
                    if field.ready(direction) != Ready::Never {
                        self.app_sets[app as usize][direction as usize].push(number);
                    }
                }
            }
            self.sets.push(FieldSet { field, transforms, search: Search::new(patterns, frequencies, seed) });
        }
    }

    /// Returns the total size of the search images, in bytes.
    pub fn image_bytes(&self) -> usize {
        self.payload.image_bytes() + self.sets.iter().map(|set| set.search.image_bytes()).sum::<usize>()
    }

    /// Returns the number of prefilter patterns.
    pub fn literals(&self) -> usize {
        self.payload.literals() + self.sets.iter().map(|set| set.search.literals()).sum::<usize>()
    }
}

/// Returns the protocols whose transactions a rule inspects.
fn apps_of(compiled: &Compiled) -> AppSet {
    let chains = compiled.rule.chains.iter().filter(|chain| chain.field.is_transaction());
    let mut apps = compiled.apps;
    for chain in chains {
        apps = if apps.is_empty() { chain.field.apps() } else { apps.intersection(chain.field.apps()) };
    }
    apps
}

/// Returns the sort key for the evaluation order. Rules are sorted by action first, and by priority
/// last. In between, rules that set bits precede rules that test bits.
fn order(compiled: &Compiled) -> (u8, u8, u8, u8) {
    let action = match compiled.rule.action {
        Action::Pass => 0,
        Action::Drop => 1,
        Action::Reject => 2,
        Action::Alert => 3,
    };
    let class = |changes: bool, tests: bool| match (changes, tests) {
        (true, false) => 0,
        (true, true) => 1,
        (false, true) => 2,
        (false, false) => 3,
    };
    let bits = class(!compiled.bit_changes.is_empty(), !compiled.bit_tests.is_empty());
    let ints = class(!compiled.int_changes.is_empty(), !compiled.int_tests.is_empty());
    (action, bits, ints, compiled.rule.meta.priority)
}

fn compile(rule: Rule, names: &mut Names) -> Compiled {
    let mut compiled = Compiled {
        kind: Kind::Packet,
        payload: None,
        packet_chains: Vec::new(),
        engines: Default::default(),
        apps: rule.protocol.apps,
        needs_packet: false,
        needs_stream: false,
        bit_tests: Vec::new(),
        bit_changes: Vec::new(),
        int_tests: Vec::new(),
        int_changes: Vec::new(),
        rule,
    };
    for (index, chain) in compiled.rule.chains.iter().enumerate() {
        if chain.field == Field::Payload {
            compiled.payload = Some(index);
        } else if !chain.field.is_transaction() {
            compiled.packet_chains.push(index);
        }
    }
    let engines = Direction::BOTH.map(|direction| engines(&compiled.rule, direction));
    compiled.engines = engines;
    choose_payload(&mut compiled);
    for bit in &compiled.rule.bits {
        let op = bit_op(bit, names);
        if bit.action.is_test() { compiled.bit_tests.push(op) } else { compiled.bit_changes.push(op) }
    }
    for int in &compiled.rule.ints {
        let op = int_op(int, names);
        if int.action.is_test() { compiled.int_tests.push(op) } else { compiled.int_changes.push(op) }
    }
    compiled.kind = kind(&compiled);
    compiled
}

/// Returns the transaction field tests for one direction. The list is empty if the rule cannot
/// match in this direction.
fn engines(rule: &Rule, direction: Direction) -> Vec<FieldTest> {
    if rule.flow.direction.is_some_and(|own| own != direction) && rule.arrow != Arrow::Transaction {
        return Vec::new();
    }
    let mut engines = Vec::new();
    for (index, chain) in rule.chains.iter().enumerate().filter(|(_, chain)| chain.field.is_transaction()) {
        match chain.field.ready(direction) {
            Ready::At(ready) => engines.push(FieldTest { chain: index, ready }),
            Ready::Never if rule.arrow == Arrow::Transaction => {}
            Ready::Never => return Vec::new(),
        }
    }
    engines.sort_by_key(|engine| engine.ready);
    engines
}

/// Decides whether payload tests run on single packets, on reassembled data, or on both.
fn choose_payload(compiled: &mut Compiled) {
    let rule = &compiled.rule;
    let tcp = rule.protocol.numbers.is_empty() || rule.protocol.numbers.contains(&6);
    let per_packet = rule.packet.iter().any(is_header_test) || !compiled.packet_chains.is_empty();
    if rule.protocol.packets_only || rule.flow.stream == Some(false) {
        compiled.needs_packet = true;
    } else if rule.protocol.stream_only || rule.flow.stream == Some(true) {
        compiled.needs_stream = true;
    } else if per_packet || !tcp {
        compiled.needs_packet = true;
    } else if let Some(payload) = compiled.payload {
        compiled.needs_stream = true;
        compiled.needs_packet = has_fixed_place(&rule.chains[payload]);
    }
}

/// Returns whether a test reads the header of one packet.
fn is_header_test(test: &PacketTest) -> bool {
    !matches!(
        test,
        PacketTest::AppProtocol { .. }
            | PacketTest::IpProtocol(_)
            | PacketTest::SameAddress
            | PacketTest::FlowAge(_)
            | PacketTest::FlowPackets(..)
            | PacketTest::FlowBytes(..)
            | PacketTest::StreamBytes(..)
            | PacketTest::VlanId(..)
            | PacketTest::Event(_)
    )
}

fn has_fixed_place(chain: &Chain) -> bool {
    chain.tests.iter().any(|test| match test {
        Test::Content(content) => content.offset.is_some() || content.depth.is_some() || content.starts,
        _ => false,
    })
}

fn kind(compiled: &Compiled) -> Kind {
    let rule = &compiled.rule;
    if rule.has_transaction() {
        return Kind::Transaction;
    }
    let no_payload = compiled.payload.is_none() && compiled.packet_chains.is_empty();
    let no_flow = rule.flow == Default::default();
    let only_names = rule.packet.iter().all(|test| matches!(test, PacketTest::AppProtocol { .. }));
    if no_payload && no_flow && only_names && !compiled.apps.is_empty() && compiled.bit_tests.is_empty() {
        return Kind::Protocol;
    }
    let compatible = rule.packet.iter().all(|test| matches!(test, PacketTest::IpProtocol(_) | PacketTest::SameAddress));
    let ports = rule.source.ports.is_any() && rule.destination.ports.is_any();
    let tests_bits = !compiled.bit_tests.is_empty() || !compiled.int_tests.is_empty();
    let limited = rule.flow.direction.is_some() || rule.flow.established.is_some() || rule.flow.stream.is_some();
    if no_payload
        && compatible
        && ports
        && !tests_bits
        && !limited
        && compiled.apps.is_empty()
        && rule.protocol.link.is_none()
    {
        return Kind::Addresses;
    }
    Kind::Packet
}

fn bit_op(bit: &Bit, names: &mut Names) -> BitOp {
    BitOp {
        scope: bit.scope,
        action: bit.action,
        names: bit.names.iter().map(|name| names.number(name)).collect(),
        expire_micros: bit.expire_seconds.map(|seconds| u64::from(seconds) * 1_000_000),
    }
}

fn int_op(int: &FlowInt, names: &mut Names) -> IntOp {
    let other = match &int.action {
        IntAction::Set(Operand::Name(name)) | IntAction::Add(Operand::Name(name)) => Some(names.number(name)),
        IntAction::Subtract(Operand::Name(name)) | IntAction::CompareWith(_, name) => Some(names.number(name)),
        _ => None,
    };
    IntOp { name: names.number(&int.name), action: int.action.clone(), other }
}
