//! Third pass: finds the functions that contain expensive accesses or call such functions.

use std::collections::{BTreeMap, BTreeSet};

use tree_sitter::Node;

use crate::refusal::{Pass, refuse};
use crate::source::ANNOTATIONS;
use crate::unit::{Function, Unit, walk};

/// Expensive functions, and the switch points of all functions.
pub(crate) struct Reach {
    /// Functions that reach an annotation that is not in one of their batch loops.
    pub(crate) expensive: BTreeSet<String>,
    /// Byte offsets of the switch points of each function: annotations, and calls of expensive
    /// functions.
    switches: BTreeMap<String, Vec<usize>>,
}

/// Annotations and calls of a function.
struct Uses<'t> {
    annotations: Vec<Node<'t>>,
    calls: Vec<(&'t str, Node<'t>)>,
}

impl Reach {
    /// Analyses all functions. `apart` contains the functions with their own batch loops. A call of
    /// one of them is not a switch point.
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

    /// Returns whether a range of a function contains a switch point.
    pub(crate) fn switch_in(&self, function: &str, start: usize, end: usize) -> bool {
        self.count_in(function, start, end) > 0
    }

    /// Returns the number of switch points in a range of a function.
    pub(crate) fn count_in(&self, function: &str, start: usize, end: usize) -> usize {
        let all = self.switches.get(function).map_or(&[][..], Vec::as_slice);
        all.iter().filter(|at| (start..end).contains(*at)).count()
    }

    /// Refuses expensive functions that call themselves, directly or indirectly.
    pub(crate) fn refuse_recursion(&self, unit: &Unit<'_>, from: Node<'_>, path: &mut Vec<String>) -> Pass<()> {
        let mut fault = Ok(());
        walk(from, &mut |node| {
            let called = unit.callee(node).filter(|name| self.expensive.contains(*name));
            if let (Some(name), true) = (called, fault.is_ok()) {
                if path.iter().any(|outer| outer == name) {
                    fault =
                        refuse(node.start_byte(), format!("recursion: {name} calls itself, and lookups have no stack"));
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

/// Returns the annotations and calls of a function.
fn gather<'t>(unit: &Unit<'t>, function: &Function<'t>) -> Pass<Uses<'t>> {
    let mut uses = Uses { annotations: Vec::new(), calls: Vec::new() };
    let mut fault = Ok(());
    walk(function.body, &mut |node| {
        if let Some(name) = unit.callee(node) {
            if ANNOTATIONS.contains(&name) {
                let statement = node.parent().filter(|parent| parent.kind() == "expression_statement");
                if statement.is_none() {
                    fault = refuse(node.start_byte(), format!("{name} must be a separate statement"));
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

/// Returns the byte offsets of the switch points of a function.
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
