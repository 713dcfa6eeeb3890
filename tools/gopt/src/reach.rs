//! Third pass: which functions have expensive accesses, themselves or through those they call.

use std::collections::{BTreeMap, BTreeSet};

use tree_sitter::Node;

use crate::refusal::{Pass, refuse};
use crate::source::ANNOTATIONS;
use crate::unit::{Function, Unit, walk};

/// What calls and annotations there are.
pub(crate) struct Reach {
    /// Functions with an annotation that a call of them would run into, outside batch loops of their own.
    pub(crate) expensive: BTreeSet<String>,
    /// In each function, where look-ups switch: annotations, and calls of expensive functions.
    switches: BTreeMap<String, Vec<usize>>,
}

/// A use of a name in a function that matters here.
struct Uses<'t> {
    annotations: Vec<Node<'t>>,
    calls: Vec<(&'t str, Node<'t>)>,
}

impl Reach {
    /// `apart`: functions that have batch loops of their own, so that a call of them runs into nothing.
    pub(crate) fn new(unit: &Unit<'_>, apart: &BTreeSet<String>) -> Pass<Self> {
        let mut uses = BTreeMap::new();
        for function in unit.functions.values() {
            uses.insert(function.name.as_str(), gather(unit, function)?);
        }
        let mut expensive: BTreeSet<String> = BTreeSet::new();
        loop {
            let grown: Vec<_> = uses
                .iter()
                .filter(|(name, _)| !expensive.contains(**name) && !apart.contains(**name))
                .filter(|(_, uses)| {
                    !uses.annotations.is_empty() || uses.calls.iter().any(|(called, _)| expensive.contains(*called))
                })
                .map(|(name, _)| (*name).to_owned())
                .collect();
            if grown.is_empty() {
                break;
            }
            expensive.extend(grown);
        }
        let switches = unit
            .functions
            .values()
            .map(|function| (function.name.clone(), switches(unit, function, &expensive)))
            .collect();
        Ok(Self { expensive, switches })
    }

    /// A switch lies in a range of a function's text.
    pub(crate) fn switch_in(&self, function: &str, start: usize, end: usize) -> bool {
        self.count_in(function, start, end) > 0
    }

    pub(crate) fn count_in(&self, function: &str, start: usize, end: usize) -> usize {
        let all = self.switches.get(function).map_or(&[][..], Vec::as_slice);
        all.iter().filter(|at| (start..end).contains(*at)).count()
    }

    /// Refuses expensive functions that call themselves, however indirectly.
    pub(crate) fn refuse_recursion(&self, unit: &Unit<'_>, from: Node<'_>, path: &mut Vec<String>) -> Pass<()> {
        let mut fault = Ok(());
        walk(from, &mut |node| {
            let called = unit.callee(node).filter(|name| self.expensive.contains(*name));
            if let (Some(name), true) = (called, fault.is_ok()) {
                if path.iter().any(|outer| outer == name) {
                    fault = refuse(
                        node.start_byte(),
                        format!("recursion: {name} calls itself, and look-ups have no stack"),
                    );
                } else if let Some(function) = unit.functions.get(name) {
                    path.push(name.to_owned());
                    fault = self.refuse_recursion(unit, function.body, path);
                    path.pop();
                }
            }
            fault.is_ok()
        });
        fault
    }
}

fn gather<'t>(unit: &Unit<'t>, function: &Function<'t>) -> Pass<Uses<'t>> {
    let mut uses = Uses { annotations: Vec::new(), calls: Vec::new() };
    let mut fault = Ok(());
    walk(function.body, &mut |node| {
        if let Some(name) = unit.callee(node) {
            if ANNOTATIONS.contains(&name) {
                let statement = node.parent().filter(|parent| parent.kind() == "expression_statement");
                if statement.is_none() {
                    fault = refuse(node.start_byte(), format!("{name} must be a statement of its own"));
                }
                uses.annotations.push(node);
                return false;
            }
            uses.calls.push((name, node));
        }
        fault.is_ok()
    });
    fault.map(|()| uses)
}

fn switches(unit: &Unit<'_>, function: &Function<'_>, expensive: &BTreeSet<String>) -> Vec<usize> {
    let mut found = Vec::new();
    walk(function.body, &mut |node| {
        if let Some(name) = unit.callee(node)
            && (ANNOTATIONS.contains(&name) || expensive.contains(name))
        {
            found.push(node.start_byte());
        }
        true
    });
    found
}
