//! Functions that contain markers or call such functions.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::error::{Fault, Pass};
use crate::lexer::Kind;
use crate::syntax::Unit;
use crate::syntax::ast::{DeclId, Expr, ExprKind, Span};
use crate::syntax::walk::{self, Node};

/// Markers and calls in a function.
#[derive(Default)]
pub(crate) struct Uses {
    /// First token of each call to a marker.
    pub(crate) markers: Vec<usize>,
    /// Called functions with visible bodies, and the first token of each call.
    pub(crate) calls: Vec<(DeclId, usize)>,
}

/// Functions that matter for lookups, and their uses.
pub(crate) struct Reach {
    pub(crate) uses: BTreeMap<DeclId, Uses>,
    /// Functions with markers, or with calls to such functions, outside all batch loops.
    pub(crate) expensive: BTreeSet<DeclId>,
    /// Functions without markers that must be inlined as well.
    pub(crate) inlined: BTreeSet<DeclId>,
}

/// Parses the bodies of all functions that contain markers, and of their callers and callees.
/// `named` are additional functions.
pub(crate) fn parse(unit: &mut Unit, named: &[String]) -> Pass<()> {
    let words = used_words(unit);
    let marked = |words: &HashSet<String>| words.iter().any(|word| unit.expanded.is_marker(word));
    let mut found: BTreeSet<DeclId> = words
        .iter()
        .filter(|(id, words)| marked(words) || named.contains(&unit.functions[id].name))
        .map(|(id, _)| *id)
        .collect();
    // Callers, outwards.
    let mut pending: Vec<DeclId> = found.iter().copied().collect();
    let mut callers: HashMap<&str, Vec<DeclId>> = HashMap::new();
    for (id, words) in &words {
        words.iter().for_each(|word| callers.entry(word).or_default().push(*id));
    }
    while let Some(id) = pending.pop() {
        let name = unit.functions[&id].name.as_str();
        for caller in callers.get(name).into_iter().flatten() {
            if found.insert(*caller) {
                pending.push(*caller);
            }
        }
    }
    for unparsed in &unit.unparsed {
        let mut words = (unparsed.span.first..unparsed.span.end).map(|at| unit.expanded.word(at));
        if words.any(|word| unit.expanded.is_marker(word)) {
            return Err(unparsed.fault.clone());
        }
    }
    // Called functions, inwards.
    let mut pending: Vec<DeclId> = found.iter().copied().collect();
    let mut seen = found.clone();
    while let Some(id) = pending.pop() {
        unit.parse_body(id);
        if let Some(Err(fault)) = &unit.functions[&id].body
            && found.contains(&id)
        {
            return Err(fault.clone());
        }
        let span = unit.functions[&id].body_span;
        for called in mentioned(unit, span) {
            if seen.insert(called) {
                pending.push(called);
            }
        }
    }
    Ok(())
}

/// Returns the functions with visible bodies that a token range mentions.
fn mentioned(unit: &Unit, span: Span) -> Vec<DeclId> {
    let ids = (span.first..span.end).filter_map(|at| unit.resolved.get(&at));
    let mut pending: Vec<DeclId> = ids.copied().collect();
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    while let Some(id) = pending.pop() {
        if !seen.insert(id) {
            continue;
        }
        if unit.functions.contains_key(&id) {
            found.push(id);
        } else if let Some(value) = &unit.declaration(id).initializer {
            // A table of functions, outside of any function.
            let span = value.span();
            pending.extend((span.first..span.end).filter_map(|at| unit.resolved.get(&at)));
        }
    }
    found
}

/// Returns the identifiers in the body of each function.
fn used_words(unit: &Unit) -> BTreeMap<DeclId, HashSet<String>> {
    let words = |span: Span| {
        let identifiers = (span.first..span.end).filter(|at| unit.expanded.tokens[*at].kind == Kind::Identifier);
        identifiers.map(|at| unit.expanded.word(at).to_owned()).collect()
    };
    unit.functions.iter().map(|(id, function)| (*id, words(function.body_span))).collect()
}

impl Reach {
    pub(crate) fn new(unit: &Unit) -> Self {
        let mut uses = BTreeMap::new();
        for id in unit.functions.keys() {
            if let Some((_, body)) = unit.function(*id) {
                let mut found = Uses::default();
                walk::statement(unit, body, &mut |node| {
                    if let Node::Expr(expression) = node {
                        if is_marker_call(unit, expression) {
                            found.markers.push(expression.span.first);
                        } else if let Some(called) = called(unit, expression) {
                            found.calls.push((called, expression.span.first));
                        }
                    }
                    true
                });
                uses.insert(*id, found);
            }
        }
        Self { uses, expensive: BTreeSet::new(), inlined: BTreeSet::new() }
    }

    /// Returns the first tokens of a function's switch points: markers, and calls to expensive
    /// functions.
    pub(crate) fn switches(&self, function: DeclId) -> Vec<usize> {
        let Some(uses) = self.uses.get(&function) else { return Vec::new() };
        let calls = uses.calls.iter().filter(|(called, _)| self.expensive.contains(called));
        let mut all: Vec<usize> = uses.markers.iter().copied().chain(calls.map(|(_, at)| *at)).collect();
        all.sort_unstable();
        all
    }

    /// Counts the switch points and inlined calls in a range of a function.
    pub(crate) fn count_in(&self, function: DeclId, span: Span) -> usize {
        let inside = |at: usize| (span.first..span.end).contains(&at);
        let Some(uses) = self.uses.get(&function) else { return 0 };
        let markers = uses.markers.iter().filter(|at| inside(**at)).count();
        let calls = uses.calls.iter().filter(|(called, at)| self.is_inlined(*called) && inside(*at));
        markers + calls.count()
    }

    /// Returns whether the function body replaces calls to a function.
    pub(crate) fn is_inlined(&self, function: DeclId) -> bool {
        self.expensive.contains(&function) || self.inlined.contains(&function)
    }
}

/// Returns whether an expression calls a marker.
pub(crate) fn is_marker_call(unit: &Unit, expression: &Expr) -> bool {
    let ExprKind::Call(function, _) = &expression.kind else { return false };
    match &function.bare().kind {
        ExprKind::Undeclared(name) => unit.expanded.is_marker(name),
        ExprKind::Name(id) => unit.expanded.is_marker(&unit.declaration(*id).name),
        _ => false,
    }
}

/// Returns the function with a visible body that an expression calls by its name.
pub(crate) fn called(unit: &Unit, expression: &Expr) -> Option<DeclId> {
    let ExprKind::Call(function, _) = &expression.kind else { return None };
    function.name().filter(|id| unit.functions.contains_key(id))
}

/// Returns the arguments of a call.
pub(crate) fn arguments(expression: &Expr) -> &[Expr] {
    match &expression.kind {
        ExprKind::Call(_, arguments) => arguments,
        _ => &[],
    }
}

/// Returns a fault for the file as a whole.
pub(crate) fn file_fault<T>(reason: impl Into<String>) -> Pass<T> {
    Err(Fault::new(reason))
}
