//! Builds a [`Rule`] from its text. All options are parsed before the rule is checked as a whole.

use super::address::AddressSet;
use super::bytes::{self, Names};
use super::field::Field;
use super::packet_test::{self, PacketTest};
use super::port::PortSet;
use super::protocol;
use super::rule::{Action, Arrow, Chain, Endpoint, Meta, Place, Rule, Test};
use super::state::{self, FlowTest};
use super::text::{OptionText, RuleText, unquote};
use super::variables::Variables;
use super::{chains::Chains, meta, prefilter, transform};
use crate::proto::has_parser;
use std::collections::HashMap;
use std::sync::Arc;

/// Reason why a rule does not load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    /// Keyword that caused the problem, or `header` for a problem before the parenthesis.
    pub(super) option: String,
    /// Description for the user.
    pub(super) reason: &'static str,
}

/// Data that all rules of a rule set share during parsing.
pub(super) struct Context<'a> {
    /// Variables of headers.
    pub(super) variables: &'a Variables,
    /// Priorities of rule classes.
    pub(super) classes: &'a meta::Classes,
    addresses: HashMap<String, Result<Arc<AddressSet>, &'static str>>,
    ports: HashMap<String, Result<Arc<PortSet>, &'static str>>,
}

impl<'a> Context<'a> {
    /// Returns a context whose cache of parsed lists is empty.
    pub(super) fn new(variables: &'a Variables, classes: &'a meta::Classes) -> Self {
        Self { variables, classes, addresses: HashMap::new(), ports: HashMap::new() }
    }

    fn endpoint(&mut self, addresses: &str, ports: &str) -> Result<Endpoint, &'static str> {
        let variables = self.variables;
        let addresses = self
            .addresses
            .entry(addresses.to_owned())
            .or_insert_with(|| AddressSet::parse(addresses, variables).map(Arc::new))
            .clone()?;
        let ports = self
            .ports
            .entry(ports.to_owned())
            .or_insert_with(|| PortSet::parse(ports, variables).map(Arc::new))
            .clone()?;
        Ok(Endpoint { addresses, ports })
    }
}

/// Rule that is being built.
pub(super) struct Builder {
    pub(super) chains: Chains,
    pub(super) names: Names,
    flow: FlowTest,
    packet: Vec<PacketTest>,
    bits: Vec<state::Bit>,
    ints: Vec<state::FlowInt>,
    threshold: Option<state::Threshold>,
    meta: Meta,
    noalert: bool,
    alert: bool,
    bypass: bool,
    filestore: bool,
    service: Option<String>,
}

/// Builds a rule from its text.
pub(super) fn build(text: &RuleText<'_>, place: Place, context: &mut Context<'_>) -> Result<Rule, Problem> {
    let header = |reason| Problem { option: "header".to_owned(), reason };
    let words = Header::new(&text.words).map_err(header)?;
    let mut protocol = protocol::parse(words.protocol).map_err(header)?;
    let snort3 = words.short || text.options.iter().any(|option| option.name == "service");
    let mut builder = Builder {
        chains: Chains::new(snort3),
        names: Names::default(),
        flow: FlowTest::default(),
        packet: Vec::new(),
        bits: Vec::new(),
        ints: Vec::new(),
        threshold: None,
        meta: meta::empty(),
        noalert: false,
        alert: false,
        bypass: false,
        filestore: false,
        service: None,
    };
    for option in &text.options {
        builder.option(option).map_err(|reason| Problem { option: option.name.to_owned(), reason })?;
    }
    if builder.meta.sid == 0 {
        return Err(Problem { option: "sid".to_owned(), reason: "the rule has no number" });
    }
    if let Some(service) = builder.service.take() {
        protocol.apps = protocol::services(&service);
    }
    context.classes.apply(&mut builder.meta);
    let chains = builder.chains.finish().map_err(|(option, reason)| Problem { option, reason })?;
    check_apps(&chains, &protocol)?;
    let prefilter = prefilter::choose(&chains);
    let source = context.endpoint(words.source.0, words.source.1).map_err(header)?;
    let destination = context.endpoint(words.destination.0, words.destination.1).map_err(header)?;
    Ok(Rule {
        place,
        action: words.action,
        protocol,
        source,
        destination,
        arrow: words.arrow,
        meta: builder.meta,
        flow: builder.flow,
        packet: builder.packet,
        chains,
        bits: builder.bits,
        ints: builder.ints,
        threshold: builder.threshold,
        prefilter,
        noalert: builder.noalert,
        alert: builder.alert,
        bypass: builder.bypass,
        filestore: builder.filestore,
    })
}

/// Checks that all fields of the rule belong to one application protocol with a parser.
fn check_apps(chains: &[Chain], protocol: &super::rule::Protocol) -> Result<(), Problem> {
    let mut apps = protocol.apps;
    for chain in chains.iter().filter(|chain| chain.field.is_transaction()) {
        let field = chain.field.apps();
        apps = if apps.is_empty() { field } else { apps.intersection(field) };
        if apps.is_empty() {
            let reason = "the protocol of the rule, or of its other fields, does not have this field";
            return Err(Problem { option: chain.field.info().name.to_owned(), reason });
        }
        if !apps.iter().any(has_parser) {
            let reason = "the protocol of this field is not parsed, so the rule would never match";
            return Err(Problem { option: chain.field.info().name.to_owned(), reason });
        }
    }
    Ok(())
}

/// Words of a header.
struct Header<'a> {
    action: Action,
    protocol: &'a str,
    source: (&'a str, &'a str),
    destination: (&'a str, &'a str),
    arrow: Arrow,
    short: bool,
}

impl<'a> Header<'a> {
    fn new(words: &[&'a str]) -> Result<Self, &'static str> {
        let action = match words.first() {
            Some(&"alert" | &"log") => Action::Alert,
            Some(&"pass") => Action::Pass,
            Some(&"drop" | &"block" | &"sdrop") => Action::Drop,
            Some(&"reject" | &"rejectsrc" | &"rejectdst" | &"rejectboth") => Action::Reject,
            _ => return Err("the action is not supported"),
        };
        let any = ("any", "any");
        match *words {
            [_, protocol] => {
                Ok(Self { action, protocol, source: any, destination: any, arrow: Arrow::Both, short: true })
            }
            [_, protocol, source, source_port, arrow, destination, destination_port] => {
                let (source, destination) = ((source, source_port), (destination, destination_port));
                let arrow = match arrow {
                    "->" => Arrow::Forward,
                    "<>" => Arrow::Both,
                    "=>" => Arrow::Transaction,
                    _ => return Err("the arrow is neither ->, <> nor =>"),
                };
                Ok(Self { action, protocol, source, destination, arrow, short: false })
            }
            _ => Err("the header does not have seven words"),
        }
    }
}

const NO_VALUE: &str = "the option lacks a value";

impl Builder {
    /// Adds one option.
    fn option(&mut self, option: &OptionText<'_>) -> Result<(), &'static str> {
        let OptionText { name, value } = *option;
        if let Some(result) = meta::option(&mut self.meta, name, value) {
            return result;
        }
        if self.chains.option(name, value, &mut self.names)? {
            return Ok(());
        }
        if let Some(test) = packet_test::parse(name, value) {
            self.packet.push(test?);
            return Ok(());
        }
        if let Some(transform) = transform::parse(name, value) {
            return self.chains.transform(transform?);
        }
        self.state_option(name, value)
    }

    fn state_option(&mut self, name: &str, value: Option<&str>) -> Result<(), &'static str> {
        match (name, value) {
            ("flow", Some(value)) => {
                let flow = FlowTest::parse(value)?;
                self.flow = FlowTest {
                    direction: flow.direction.or(self.flow.direction),
                    established: flow.established.or(self.flow.established),
                    stream: flow.stream.or(self.flow.stream),
                    fragments: flow.fragments.or(self.flow.fragments),
                };
            }
            ("flowbits", Some(value)) => match state::flowbits(value)? {
                Some(bit) => self.bits.push(bit),
                None => self.noalert = true,
            },
            ("xbits" | "hostbits", Some(value)) => self.bits.push(state::xbits(value)?),
            ("flowint", Some(value)) => self.ints.push(state::flowint(value)?),
            ("threshold", Some(value)) => self.threshold = Some(state::threshold(value, false)?),
            ("detection_filter", Some(value)) => self.threshold = Some(state::threshold(value, true)?),
            ("byte_test", Some(value)) => self.chains.push(Test::ByteTest(bytes::byte_test(value, &self.names)?)),
            ("byte_jump", Some(value)) => self.chains.push(Test::ByteJump(bytes::byte_jump(value, &self.names)?)),
            ("byte_extract", Some(value)) => {
                let extract = bytes::byte_extract(value, &mut self.names)?;
                self.chains.push(Test::ByteExtract(extract));
            }
            ("byte_math", Some(value)) => {
                let math = bytes::byte_math(value, &mut self.names)?;
                self.chains.push(Test::ByteMath(math));
            }
            ("isdataat", Some(value)) => self.chains.push(Test::DataAt(bytes::isdataat(value, &self.names)?)),
            ("stream-event" | "decode-event", Some(value)) => {
                let event = crate::event::find(name, value).ok_or("the event is not supported")?;
                self.packet.push(PacketTest::Event(event));
            }
            ("app-layer-event", Some(value)) => {
                let (app, event) = value.split_once('.').ok_or("the event does not name its protocol")?;
                self.chains.event(app, event)?;
            }
            ("service", Some(value)) => self.service = Some(value.to_owned()),
            ("filestore", _) => self.filestore = true,
            ("noalert", None) => self.noalert = true,
            ("alert", None) => self.alert = true,
            ("bypass", None) => self.bypass = true,
            ("prefilter" | "tag" | "rem" | "sameip_done", _) => {}
            ("requires", Some(value)) => requires(value)?,
            ("flow" | "flowbits" | "content" | "pcre" | "byte_test" | "byte_jump" | "threshold", None) => {
                return Err(NO_VALUE);
            }
            _ => return Err("the option is not supported"),
        }
        Ok(())
    }
}

/// Checks the rule option `requires`, which lists features, keywords and a Suricata version.
/// Returns an error if a requirement is not met.
fn requires(value: &str) -> Result<(), &'static str> {
    for word in value.split(',').map(str::trim) {
        let known = match word.split_whitespace().collect::<Vec<_>>()[..] {
            ["feature", "ja3" | "ja4"] => true,
            ["keyword", keyword] => Field::sticky(keyword).is_some(),
            ["version", ..] => true,
            _ => false,
        };
        if !known {
            return Err("a requirement is not met");
        }
    }
    Ok(())
}

/// Returns an option value without quotes, or an error if there is no value.
pub(super) fn text_value(value: Option<&str>) -> Result<String, &'static str> {
    let value = value.ok_or(NO_VALUE)?;
    Ok(unquote(value).1.to_owned())
}
