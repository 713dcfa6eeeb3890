//! Which variables a look-up takes along where it waits: those that are used, as far as the text shows, before they are
//! set again.
//!
//! The text that `emit` writes has marks where variables begin, around loops, and where look-ups switch; here they become
//! C. Names of moved variables stand for one variable each, so a use is a word, and macros were seen to hide none.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::lexer::{Kind, Token, tokens};

use super::Moved;

const BEGIN: char = '\u{1}';
const END: char = '\u{2}';

/// The mark where a variable begins.
pub(super) fn declared(name: &str) -> String {
    format!("{BEGIN}d{name}{END}")
}

/// A loop between its marks.
pub(super) fn again(text: &str) -> String {
    format!("{BEGIN}l{END}{text}{BEGIN}e{END}")
}

/// The mark of a switch.
pub(super) fn switch(number: usize) -> String {
    format!("{BEGIN}s{number}{END}")
}

/// A body without marks.
pub(super) struct Resolved {
    pub(super) text: String,
    /// By switch: what is saved, as numbers of moved variables.
    pub(super) saved: Vec<Vec<usize>>,
}

/// The marks of a body, by place in the text without them.
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

/// Puts switches in the place of their marks. `members`: look-ups have a struct besides, named by `gopt_s`. `labels`: what
/// labels begin with.
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
    let mut taken = Vec::new();
    for &at in &marks.switches {
        let live = |one: &Moved| {
            let declared = marks.declared.get(one.name.as_str()).copied().unwrap_or(0);
            let uses = uses.get(one.name.as_str()).map_or(&[][..], Vec::as_slice);
            is_live(&words, uses, at, declared, &marks.loops)
        };
        let live: BTreeSet<usize> = (0..moved.len()).filter(|&index| live(&moved[index])).collect();
        taken.push(Taken::new(live, &from));
    }
    let mut written = String::new();
    let mut start = 0;
    for (index, (&at, taken)) in marks.switches.iter().zip(&taken).enumerate() {
        let number = index + 1;
        let names = taken.saved.iter().map(|&one| moved[one].name.as_str()).chain(members.then_some("gopt_s"));
        let (mut save, mut load) = (String::new(), String::new());
        for name in names {
            write!(save, "gopt_last_{number}->{name} = {name}; ").expect("writing to a String");
            write!(load, " {name} = gopt_now->{name};").expect("writing to a String");
        }
        for again in taken.again.iter().filter_map(|&one| moved[one].again.as_ref()) {
            write!(load, " {again};").expect("writing to a String");
        }
        written.push_str(&text[start..at]);
        write!(
            written,
            "{save}gopt_last_{number}++; GOPT_NEXT; {labels}at_{number}:; \
             {{ const struct gopt_saved_{number} *gopt_now = gopt_first; gopt_first = gopt_now + 1;{load} }}"
        )
        .expect("writing to a String");
        start = at;
    }
    written.push_str(&text[start..]);
    Resolved { text: written, saved: taken.into_iter().map(|taken| taken.saved).collect() }
}

/// Words behind which the text does not go straight on; half of `&&` and `||` will do.
const FORKS: &[&str] = &[
    "if", "else", "for", "while", "do", "switch", "case", "default", "goto", "break", "continue", "return", "?", ":",
    "&", "|",
];

/// What a look-up has where it goes on, as numbers of moved variables.
struct Taken {
    saved: Vec<usize>,
    /// What is computed again, in this order.
    again: Vec<usize>,
}

impl Taken {
    /// A struct is computed again from what it was made of, another variable only if that costs no room.
    fn new(mut live: BTreeSet<usize>, from: &[Option<Source>]) -> Self {
        let mut again = BTreeSet::new();
        // From the last to the first: what a variable is made of was declared before it.
        for one in (0..from.len()).rev() {
            let Some(source) = from[one].as_ref().filter(|_| live.contains(&one)) else { continue };
            if source.list || source.parts.iter().all(|part| available(*part, &live, from)) {
                live.remove(&one);
                live.extend(&source.parts);
                again.insert(one);
            }
        }
        Self { saved: live.into_iter().collect(), again: again.into_iter().collect() }
    }
}

/// Saved anyway, or made of what is.
fn available(one: usize, live: &BTreeSet<usize>, from: &[Option<Source>]) -> bool {
    let made = |source: &Source| source.parts.iter().all(|part| available(*part, live, from));
    live.contains(&one) || from[one].as_ref().is_some_and(made)
}

/// What a variable can be computed from.
struct Source {
    parts: Vec<usize>,
    /// It is a struct, from a list of its fields.
    list: bool,
}

/// By moved variable.
fn sources(moved: &[Moved]) -> Vec<Option<Source>> {
    let place = |name: &str| moved.iter().position(|one| one.name == name);
    let source = |(index, one): (usize, &Moved)| {
        let again = one.again.as_ref()?;
        let names: BTreeSet<usize> = tokens(again).iter().filter_map(|word| place(word.text)).collect();
        let list = again.contains('{');
        Some(Source { parts: names.into_iter().filter(|&part| part != index).collect(), list })
    };
    moved.iter().enumerate().map(source).collect()
}

/// From a label to a `goto` behind it: a loop.
fn jumps_back(words: &[Token<'_>]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for pair in words.windows(2).filter(|pair| pair[0].text == "goto") {
        let label = words.windows(2).find(|label| label[0].text == pair[1].text && label[1].text == ":");
        found.extend(label.map(|label| (label[0].start, pair[1].start)).filter(|(label, jump)| label < jump));
    }
    found
}

/// What a look-up that goes on behind `at` may still use. A variable that is declared behind it is another one in the next
/// round of a loop, and one that is declared in a loop is not there in the next round.
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
    // Set in a straight line from here: nothing is left of what it was.
    !(set && !itself && !between.clone().any(|word| FORKS.contains(&word.text)))
}
