//! Evaluates the rules for the transactions of a flow.

use super::alert::Alert;
use super::chain::{self, Subject};
use super::compile::{Compiled, Engine, FieldTest};
use super::detector::{Detector, PayloadMatch};
use super::input::Input;
use super::transform;
use crate::app::App;
use crate::proto::{Inspection, Parser, RuleState, View};
use crate::rules::field::{Field, Kind, Ready};
use crate::rules::rule::{Chain, Test};

/// Result of the test of one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldResult {
    Match,
    NoMatch,
}

/// Transaction that rules currently inspect.
struct Current<'a> {
    parser: &'a dyn Parser,
    id: u64,
    view: View,
    progress: u8,
}

impl Detector {
    /// Evaluates rules on the flow's transactions, such as HTTP requests, in the packet's
    /// direction.
    pub(super) fn transaction_rules(&mut self, engine: &Engine, input: &mut Input<'_, '_>) {
        let Some(direction) = input.direction else { return };
        let inline = input.inline;
        let Some(flow) = input.flow.as_deref_mut() else { return };
        let Some(app) = flow.app.app else { return };
        let Some(mut parser) = flow.app.parser.take() else { return };
        let view = View { direction, end: flow.app.ended[direction as usize] || input.is_end, inline };
        for id in parser.transactions() {
            let Some(flow) = input.flow.as_deref_mut() else { break };
            let mut inspection = flow.app.take_inspection(id, direction);
            if !parser.inspects(id, direction) {
                inspection.done = true;
            }
            if !inspection.done {
                let complete = parser.complete();
                let progress = if view.end { complete } else { parser.progress(id, direction) };
                let current = Current { parser: &*parser, id, view, progress };
                self.transaction(engine, app, &current, &mut inspection, input);
                inspection.done = progress >= complete;
                parser.inspected(id, direction);
            }
            if let Some(flow) = input.flow.as_deref_mut() {
                flow.app.put_inspection(id, direction, inspection);
            }
        }
        if let Some(flow) = input.flow.as_deref_mut() {
            flow.app.parser = Some(parser);
        }
    }

    fn transaction(
        &mut self,
        engine: &Engine,
        app: App,
        current: &Current<'_>,
        inspection: &mut Inspection,
        input: &mut Input<'_, '_>,
    ) {
        self.next_stamp();
        let mut rules = Vec::new();
        for state in &inspection.rules {
            // Skip rules that have already matched or can never match.
            if self.is_new(state.rule) && !state.done {
                rules.push(state.rule);
            }
        }
        self.search_fields(engine, app, current, inspection, &mut rules);
        for index in 0..self.candidates.len() {
            let rule = self.candidates[index];
            if engine.rules[rule as usize].kind == super::Kind::Transaction && self.is_new(rule) {
                rules.push(rule);
            }
        }
        for rule in &engine.transactions[app as usize] {
            let tests = &engine.rules[*rule as usize].engines[current.view.direction as usize];
            if tests.first().is_some_and(|test| test.ready <= current.progress) && self.is_new(*rule) {
                rules.push(*rule);
            }
        }
        rules.sort_unstable();
        for rule in rules {
            self.evaluate_transaction(engine, rule, app, current, inspection, input);
        }
    }

    /// Searches the available fields for prefilter patterns, and collects the rules whose patterns
    /// occur.
    fn search_fields(
        &mut self,
        engine: &Engine,
        app: App,
        current: &Current<'_>,
        inspection: &mut Inspection,
        rules: &mut Vec<u32>,
    ) {
        let direction = current.view.direction;
        let mut scratch = Vec::new();
        for number in &engine.app_sets[app as usize][direction as usize] {
            let set = &engine.sets[*number as usize];
            let Ready::At(ready) = set.field.ready(direction) else { continue };
            if current.progress < ready || inspection.searched(*number as usize, false) {
                continue;
            }
            let is_final = current.progress > ready || current.progress >= current.parser.complete();
            inspection.searched(*number as usize, is_final);
            for index in 0.. {
                let Some(bytes) = current.parser.field(current.id, set.field, current.view, index, &mut scratch) else {
                    break;
                };
                let transformed;
                let bytes = if set.transforms.is_empty() {
                    bytes
                } else {
                    transformed = transform::apply(&set.transforms, bytes, &mut self.scratch.regex);
                    &transformed
                };
                set.search.scan(bytes, &mut |rule| {
                    if self.is_new(rule) {
                        rules.push(rule);
                    }
                });
                if !matches!(set.field.info().kind, Kind::Repeated | Kind::Numbers) {
                    break;
                }
            }
        }
    }

    fn evaluate_transaction(
        &mut self,
        engine: &Engine,
        rule: u32,
        app: App,
        current: &Current<'_>,
        inspection: &mut Inspection,
        input: &mut Input<'_, '_>,
    ) {
        let compiled = &engine.rules[rule as usize];
        let direction = current.view.direction;
        let tests = &compiled.engines[direction as usize];
        if tests.is_empty() {
            return;
        }
        let known = inspection.rules.iter().position(|state| state.rule == rule);
        let mut state = match known {
            Some(at) => inspection.rules[at],
            None => {
                let all_apps = tests.iter().all(|test| compiled.rule.chains[test.chain].field.apps().contains(app));
                if !all_apps || !self.head_matches(compiled, input, &inspection.bits) {
                    return;
                }
                if !compiled.packet_chains.iter().all(|chain| self.packet_chain(&compiled.rule.chains[*chain], input)) {
                    return;
                }
                RuleState { rule, matched: 0, done: false }
            }
        };
        let mut payload = PayloadMatch::Packet;
        let mut pending = false;
        if let Some(chain) = compiled.payload {
            payload = self.payload(compiled, &compiled.rule.chains[chain], input);
            pending = payload == PayloadMatch::No;
        }
        if !pending {
            pending = !self.evaluate_fields(compiled, tests, current, &mut state);
        }
        if !pending && !state.done {
            state.done = true;
            self.matched_transaction(compiled, rule, payload, current, inspection, input);
        }
        match known {
            Some(at) => inspection.rules[at] = state,
            None if state.done || state.matched != 0 => inspection.rules.push(state),
            None => {}
        }
    }

    /// Tests the fields that are available now. Returns whether all field tests of the rule match.
    fn evaluate_fields(
        &mut self,
        compiled: &Compiled,
        tests: &[FieldTest],
        current: &Current<'_>,
        state: &mut RuleState,
    ) -> bool {
        let complete = current.parser.complete();
        for (index, test) in tests.iter().enumerate() {
            if state.matched >> index.min(31) & 1 == 1 {
                continue;
            }
            if current.progress < test.ready {
                return false;
            }
            let is_final = current.progress > test.ready || current.progress >= complete;
            match self.field(&compiled.rule.chains[test.chain], current, is_final) {
                FieldResult::Match => state.matched |= 1 << index.min(31),
                FieldResult::NoMatch => {
                    state.done = is_final && (state.matched != 0 || compiled.rule.prefilter.is_none());
                    return false;
                }
            }
        }
        true
    }

    fn field(&mut self, chain: &Chain, current: &Current<'_>, is_final: bool) -> FieldResult {
        let absent = chain.tests.iter().find_map(|test| match test {
            Test::Absent { or_else } => Some(*or_else),
            _ => None,
        });
        let repeated = matches!(chain.field.info().kind, Kind::Repeated | Kind::Numbers);
        let mut scratch = Vec::new();
        for index in 0.. {
            let bytes = current.parser.field(current.id, chain.field, current.view, index, &mut scratch);
            let Some(bytes) = bytes else {
                let missing = index == 0 && is_final && absent.is_some();
                return if missing { FieldResult::Match } else { FieldResult::NoMatch };
            };
            if absent == Some(false) {
                return FieldResult::NoMatch;
            }
            let transformed;
            let bytes = if chain.transforms.is_empty() {
                bytes
            } else {
                transformed = transform::apply(&chain.transforms, bytes, &mut self.scratch.regex);
                &transformed
            };
            let subject = Subject::new(bytes);
            if chain::matches(&chain.tests, subject, &mut self.scratch) {
                return FieldResult::Match;
            }
            if !repeated {
                return FieldResult::NoMatch;
            }
        }
        FieldResult::NoMatch
    }

    fn matched_transaction(
        &mut self,
        compiled: &Compiled,
        rule: u32,
        payload: PayloadMatch,
        current: &Current<'_>,
        inspection: &mut Inspection,
        input: &mut Input<'_, '_>,
    ) {
        if compiled.rule.filestore && !has_file(current) {
            return;
        }
        let mut bits = std::mem::take(&mut inspection.bits);
        self.apply_state(rule, input, &mut bits);
        inspection.bits = bits;
        if !compiled.rule.noalert {
            let stream = payload == PayloadMatch::Stream;
            self.matches.push(Alert { rule, transaction: Some(current.id), stream, whole_flow: true });
        }
    }
}

fn has_file(current: &Current<'_>) -> bool {
    let mut scratch = Vec::new();
    let view = View { end: true, ..current.view };
    current.parser.field(current.id, Field::FileName, view, 0, &mut scratch).is_some()
}
