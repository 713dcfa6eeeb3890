//! Liveness: the variables that a lookup saves at a switch. A variable is saved if the lookup may
//! use it after the switch before it is set again.
//!
//! The text from `emit` contains marker calls for switches, and variables without a value. This
//! module parses the text, follows its control flow, and replaces the marker calls with C code.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;

use super::{Moved, serial};
use crate::error::{Fault, Pass};
use crate::flow::{Event, Graph, Variables};
use crate::front::Expanded;
use crate::lexer::tokens;
use crate::reach;
use crate::syntax::Unit;
use crate::syntax::ast::{Expr, ExprKind};

const SWITCH: &str = "gopt_switch_";
const UNSET: &str = "gopt_unset_";

/// Returns the mark of a switch.
pub(super) fn switch(number: usize) -> String {
    format!("{SWITCH}({number});")
}

/// Returns the mark of a variable without a value.
pub(super) fn unset(name: &str) -> String {
    format!("{UNSET}({name}); ")
}

/// Divides a text into marks at its beginning and the rest.
pub(super) fn split_marks(text: &str) -> (&str, &str) {
    let mut end = 0;
    while text[end..].trim_start().starts_with(UNSET) {
        match text[end..].find(';') {
            Some(length) => end += length + 1,
            None => break,
        }
    }
    (&text[..end], text[end..].trim_start())
}

/// Body without marks.
pub(super) struct Resolved {
    pub(super) text: String,
    /// Saved variables of each switch, as indices into the moved variables.
    pub(super) saved: Vec<Vec<usize>>,
    /// Saved variables at `#pragma gopt serial`.
    pub(super) serial: Option<Vec<usize>>,
}

/// Moved variables of a generated text, by name.
struct Names<'m> {
    indices: HashMap<&'m str, usize>,
}

impl<'u> Variables<'u> for Names<'_> {
    fn named(&self, expression: &Expr) -> Option<usize> {
        match &expression.kind {
            ExprKind::Undeclared(name) => self.indices.get(name.as_str()).copied(),
            ExprKind::Paren(inner) => self.named(inner),
            _ => None,
        }
    }

    fn call(&self, call: &'u Expr) -> Vec<(usize, Vec<Event>)> {
        let ExprKind::Call(function, _) = &call.kind else { return Vec::new() };
        let unset = matches!(&function.kind, ExprKind::Undeclared(name) if name == UNSET);
        let variable = reach::arguments(call).first().and_then(|argument| self.named(argument));
        match variable.filter(|_| unset) {
            Some(one) => vec![(0, vec![Event::Set(one)])],
            None => Vec::new(),
        }
    }
}

/// Replaces the marks of a body with switches. `members` tells whether each lookup has a struct, to
/// which `gopt_s` points. `labels` is the prefix of labels.
pub(super) fn resolved(
    unit: &Unit,
    body: &str,
    moved: &[Moved],
    members: bool,
    types: &[String],
    labels: &str,
) -> Pass<Resolved> {
    let names = [unit.type_names(), types.to_vec()].concat();
    let (parsed, tree) = Unit::fragment(Expanded::raw(body), &names).map_err(|fault| {
        Fault::new(format!("gopt wrote C that it cannot parse ({}): this is a bug of gopt", fault.reason))
    })?;
    let variables =
        Names { indices: moved.iter().enumerate().map(|(index, one)| (one.name.as_str(), index)).collect() };
    let alive = Graph::new(&parsed, &tree, &variables, SWITCH).alive_at_points();
    let from = sources(moved);
    let words = tokens(body);
    let mut written = String::new();
    let mut saved: Vec<(usize, Vec<usize>)> = Vec::new();
    let (mut start, mut index) = (0, 0);
    while index < words.len() {
        let word = &words[index];
        let marks = word.text == SWITCH || word.text == UNSET;
        if !marks {
            index += 1;
            continue;
        }
        written.push_str(&body[start..word.start]);
        // NAME ( ARGUMENT ) ;
        let end = words.get(index + 4).map_or(body.len(), |last| last.end());
        if word.text == SWITCH {
            let number: usize = words.get(index + 2).and_then(|word| word.text.parse().ok()).unwrap_or(0);
            let carried = Carried::new(alive.get(&index).cloned().unwrap_or_default(), &from);
            written.push_str(&carried.text(number, moved, members, labels));
            saved.push((number, carried.saved));
        }
        start = end;
        index += 5;
    }
    written.push_str(&body[start..]);
    saved.sort_by_key(|(number, _)| *number);
    let serial = saved.first().is_some_and(|(number, _)| *number == serial::SWITCH);
    let serial = serial.then(|| saved.remove(0).1);
    Ok(Resolved { text: written, saved: saved.into_iter().map(|(_, saved)| saved).collect(), serial })
}

/// Variables that a lookup carries across a switch, as indices into the moved variables.
struct Carried {
    saved: Vec<usize>,
    /// Recomputed variables, in this order.
    recomputed: Vec<usize>,
}

impl Carried {
    /// Selects the variables to save and to recompute. A struct is always recomputed from its
    /// parts. Another variable is recomputed only if its parts are saved anyway.
    fn new(mut live: BTreeSet<usize>, from: &[Option<Source>]) -> Self {
        let mut recomputed = BTreeSet::new();
        // The order is backwards, because the parts of a variable are declared before it.
        for one in (0..from.len()).rev() {
            let Some(source) = from[one].as_ref().filter(|_| live.contains(&one)) else { continue };
            if source.list || source.parts.iter().all(|part| available(*part, &live, from)) {
                live.remove(&one);
                live.extend(&source.parts);
                recomputed.insert(one);
            }
        }
        Self { saved: live.into_iter().collect(), recomputed: recomputed.into_iter().collect() }
    }

    /// Returns C code for a switch: save, continue with another lookup, load.
    fn text(&self, number: usize, moved: &[Moved], members: bool, labels: &str) -> String {
        let names = self.saved.iter().map(|&one| moved[one].name.as_str()).chain(members.then_some("gopt_s"));
        let (mut save, mut load) = (String::new(), String::new());
        let to = if number == serial::SWITCH { "gopt_slot".to_owned() } else { format!("gopt_last_{number}") };
        for name in names {
            write!(save, "{to}->{name} = {name}; ").expect("writing to a String");
            write!(load, " {name} = gopt_now->{name};").expect("writing to a String");
        }
        for assignment in self.recomputed.iter().filter_map(|&one| moved[one].recompute.as_ref()) {
            write!(load, " {assignment};").expect("writing to a String");
        }
        if number == serial::SWITCH {
            return serial::switch(&save, &load, labels);
        }
        format!(
            "{save}gopt_last_{number}++; GOPT_NEXT;\n{labels}at_{number}:;\n\
             {{ const struct gopt_saved_{number} *gopt_now = (const struct gopt_saved_{number} *)gopt_first; \
             gopt_first = gopt_now + 1;{load} }}"
        )
    }
}

/// Returns whether a variable is saved, or can be recomputed from saved variables.
fn available(one: usize, live: &BTreeSet<usize>, from: &[Option<Source>]) -> bool {
    let computable = |source: &Source| source.parts.iter().all(|part| available(*part, live, from));
    live.contains(&one) || from[one].as_ref().is_some_and(computable)
}

/// Variables from which a variable can be recomputed.
struct Source {
    parts: Vec<usize>,
    /// Whether the variable is a struct with an initialiser list.
    list: bool,
}

/// Returns the source of each moved variable.
fn sources(moved: &[Moved]) -> Vec<Option<Source>> {
    let position = |name: &str| moved.iter().position(|one| one.name == name);
    let source = |(index, one): (usize, &Moved)| {
        let assignment = one.recompute.as_ref()?;
        let names: BTreeSet<usize> = tokens(assignment).iter().filter_map(|word| position(word.text)).collect();
        let list = assignment.contains('{');
        Some(Source { parts: names.into_iter().filter(|&part| part != index).collect(), list })
    };
    moved.iter().enumerate().map(source).collect()
}
