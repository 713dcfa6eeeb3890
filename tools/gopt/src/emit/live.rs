//! Liveness: the variables that a lookup saves at a switch. A variable is saved if the lookup may
//! use it after the switch before it is set again.
//!
//! The text of `emit` contains markers at declarations, around loops and at switches. This module
//! replaces them by C. Each name of a moved variable refers to a single variable, and macros do not
//! name moved variables. A use is therefore an occurrence of the name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::lexer::{Kind, Token, tokens};

use super::Moved;

/// First character of a marker.
const BEGIN: char = '\u{1}';
/// Last character of a marker.
const END: char = '\u{2}';

/// Returns the marker for the declaration of a variable.
pub(super) fn declared(name: &str) -> String {
    format!("{BEGIN}d{name}{END}")
}

/// Returns a loop between its markers.
pub(super) fn looped(text: &str) -> String {
    format!("{BEGIN}l{END}{text}{BEGIN}e{END}")
}

/// Returns the marker of a switch.
pub(super) fn switch(number: usize) -> String {
    format!("{BEGIN}s{number}{END}")
}

/// Body without markers.
pub(super) struct Resolved {
    pub(super) text: String,
    /// Saved variables of each switch, as indices of moved variables.
    pub(super) saved: Vec<Vec<usize>>,
}

/// Markers of a body. Offsets refer to the text without markers.
#[derive(Default)]
struct Marks<'a> {
    text: String,
    declared: BTreeMap<&'a str, usize>,
    loops: Vec<(usize, usize)>,
    switches: Vec<usize>,
}

impl<'a> Marks<'a> {
    fn read(body: &'a str) -> Self {
        let mut marks = Self::default();
        let mut open = Vec::new();
        for (index, part) in body.split(BEGIN).enumerate() {
            let (mark, text) = if index == 0 { ("", part) } else { part.split_once(END).unwrap_or(("", part)) };
            let at = marks.text.len();
            match mark.split_at_checked(1) {
                Some(("d", name)) => _ = marks.declared.insert(name, at),
                Some(("l", _)) => open.push(at),
                Some(("e", _)) => marks.loops.extend(open.pop().map(|start| (start, at))),
                Some(("s", _)) => marks.switches.push(at),
                _ => {}
            }
            marks.text.push_str(text);
        }
        marks
    }
}

/// Replaces the markers of a body by switches. `members`: whether lookups have a struct, to which
/// `gopt_s` points. `labels`: prefix of labels.
pub(super) fn resolved(body: &str, moved: &[Moved], members: bool, labels: &str) -> Resolved {
    let mut marks = Marks::read(body);
    let text = std::mem::take(&mut marks.text);
    let words = tokens(&text);
    marks.loops.extend(jumps_back(&words));
    let mut uses: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, word) in words.iter().enumerate().filter(|(_, word)| word.kind == Kind::Identifier) {
        uses.entry(word.text).or_default().push(index);
    }
    let from = sources(moved);
    let mut carried = Vec::new();
    for &at in &marks.switches {
        let live = |one: &Moved| {
            let declared = marks.declared.get(one.name.as_str()).copied().unwrap_or(0);
            let uses = uses.get(one.name.as_str()).map_or(&[][..], Vec::as_slice);
            is_live(&words, uses, at, declared, &marks.loops)
        };
        let live: BTreeSet<usize> = (0..moved.len()).filter(|&index| live(&moved[index])).collect();
        carried.push(Carried::new(live, &from));
    }
    let mut written = String::new();
    let mut start = 0;
    for (index, (&at, carried)) in marks.switches.iter().zip(&carried).enumerate() {
        let number = index + 1;
        let names = carried.saved.iter().map(|&one| moved[one].name.as_str()).chain(members.then_some("gopt_s"));
        let (mut save, mut load) = (String::new(), String::new());
        for name in names {
            write!(save, "gopt_last_{number}->{name} = {name}; ").expect("writing to a String");
            write!(load, " {name} = gopt_now->{name};").expect("writing to a String");
        }
        for assignment in carried.recomputed.iter().filter_map(|&one| moved[one].recompute.as_ref()) {
            write!(load, " {assignment};").expect("writing to a String");
        }
        written.push_str(&text[start..at]);
        write!(
            written,
            "{save}gopt_last_{number}++; GOPT_NEXT; {labels}at_{number}:; \
             {{ const struct gopt_saved_{number} *gopt_now = (const struct gopt_saved_{number} *)gopt_first; gopt_first = gopt_now + 1;{load} }}"
        )
        .expect("writing to a String");
        start = at;
    }
    written.push_str(&text[start..]);
    Resolved { text: written, saved: carried.into_iter().map(|carried| carried.saved).collect() }
}

/// Tokens after which the control flow may branch. Single `&` and `|` also cover `&&` and `||`.
const FORKS: &[&str] = &[
    "if", "else", "for", "while", "do", "switch", "case", "default", "goto", "break", "continue", "return", "?", ":",
    "&", "|",
];

/// Variables of a lookup at a switch, as indices of moved variables.
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
        // From the last to the first, because the parts of a variable are declared before it.
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

/// Returns the loops that backward `goto` statements form, from the label to the `goto`.
fn jumps_back(words: &[Token<'_>]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for pair in words.windows(2).filter(|pair| pair[0].text == "goto") {
        let label = words.windows(2).find(|label| label[0].text == pair[1].text && label[1].text == ":");
        found.extend(label.map(|label| (label[0].start, pair[1].start)).filter(|(label, jump)| label < jump));
    }
    found
}

/// Returns whether a lookup that continues after `at` may use a variable. A variable that is
/// declared after `at` is a new variable in the next iteration of a loop. A variable that is
/// declared in a loop does not exist in the next iteration.
fn is_live(words: &[Token<'_>], uses: &[usize], at: usize, declared: usize, loops: &[(usize, usize)]) -> bool {
    if declared > at {
        return false;
    }
    let used_in = |start: usize, end: usize| uses.iter().any(|&use_| (start..end).contains(&words[use_].start));
    let inside = loops.iter().filter(|(start, end)| *start >= declared && (*start..*end).contains(&at));
    if inside.clone().any(|&(start, end)| used_in(start, end)) {
        return true;
    }
    let Some(&next) = uses.iter().find(|&&use_| words[use_].start >= at) else { return false };
    let between = words[..next].iter().skip_while(|word| word.start < at);
    let set = words.get(next + 1).is_some_and(|word| word.text == "=")
        && words.get(next + 2).is_some_and(|word| word.text != "=")
        && words.get(next.wrapping_sub(1)).is_some_and(|word| matches!(word.text, ";" | "{" | "}"));
    let ends = words.iter().skip(next).position(|word| word.text == ";").map_or(next, |length| next + length);
    let itself = uses.iter().any(|&use_| use_ > next && use_ < ends);
    // If the next use is an assignment without a branch before it, the old value is not used.
    !(set && !itself && !between.clone().any(|word| FORKS.contains(&word.text)))
}
