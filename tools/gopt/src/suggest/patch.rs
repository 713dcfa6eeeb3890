//! Proposals as changes of the source.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Proposal, Site};
use crate::lexer;
use crate::syntax::Unit;

/// Definition of the marker, for files without one.
const DEFINITION: &str = "#ifndef g_expensive\n#define g_expensive(address) ((void)(address))\n#endif\n";
/// Unchanged lines around a change.
const CONTEXT: usize = 3;

/// Change of one line.
#[derive(Default)]
struct Change {
    /// Lines before the line.
    before: Vec<String>,
    /// New text of the line.
    replaced: Option<String>,
}

/// Source with markers.
pub(crate) struct Marked {
    pub(crate) text: String,
    /// Line in the source and address of each marker.
    pub(crate) places: Vec<(usize, String)>,
    changes: BTreeMap<usize, Change>,
}

/// Writes proposals into the source. Omits a proposal whose place is not visible in the source,
/// such as in a macro.
pub(crate) fn marked(unit: &Unit, proposals: &[Proposal]) -> Marked {
    let expanded = &unit.expanded;
    let lines: Vec<&str> = expanded.source.lines().collect();
    let mut changes: BTreeMap<usize, Change> = BTreeMap::new();
    let mut places = Vec::new();
    for one in proposals {
        let at = match one.site {
            Site::Before(at) | Site::Inside(at, _) => at,
        };
        let number = expanded.position(at).1 - 1;
        let Some(line) = lines.get(number) else { continue };
        let change = changes.entry(number).or_default();
        match one.site {
            Site::Before(at) => {
                let first = lexer::tokens(line).first().map(|token| token.text);
                if first != Some(expanded.word(at)) {
                    continue;
                }
                let indent = &line[..line.len() - line.trim_start().len()];
                change.before.push(format!("{indent}g_expensive({});", one.address));
            }
            Site::Inside(first, end) => {
                let known = change.replaced.clone().unwrap_or_else(|| (*line).to_owned());
                let wanted: Vec<&str> = (first..end).map(|at| expanded.word(at)).collect();
                let Some((from, to)) = only_place(&known, &wanted) else { continue };
                let replaced = format!("(g_expensive({}), {})", one.address, &known[from..to]);
                change.replaced = Some(format!("{}{replaced}{}", &known[..from], &known[to..]));
            }
        }
        places.push((number + 1, one.address.clone()));
    }
    changes.retain(|_, change| !change.before.is_empty() || change.replaced.is_some());
    if !changes.is_empty() && !expanded.macros.contains_key("g_expensive") {
        let first = after_includes(&lines);
        let change = changes.entry(first).or_default();
        change.before.splice(0..0, DEFINITION.lines().map(str::to_owned));
    }
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        for new in new_lines(&changes, number, line) {
            text += &new;
            text.push('\n');
        }
    }
    Marked { text, places, changes }
}

fn new_lines(changes: &BTreeMap<usize, Change>, number: usize, line: &str) -> Vec<String> {
    let Some(change) = changes.get(&number) else { return vec![line.to_owned()] };
    let mut all = change.before.clone();
    all.push(change.replaced.clone().unwrap_or_else(|| line.to_owned()));
    all
}

/// Returns the number of the line after the last `#include`.
fn after_includes(lines: &[&str]) -> usize {
    let is_include = |line: &&str| line.trim_start().trim_start_matches('#').trim_start().starts_with("include");
    lines.iter().rposition(is_include).map_or(0, |last| last + 1)
}

/// Returns the only occurrence of some words in a line, outside markers.
fn only_place(line: &str, wanted: &[&str]) -> Option<(usize, usize)> {
    let words = lexer::tokens(line);
    let at = |index: usize| {
        let matches = wanted.iter().zip(&words[index..]).all(|(one, other)| *one == other.text);
        let whole = index == 0 || !matches!(words[index - 1].text, "->" | "." | "&");
        let marked = index >= 2 && words[index - 2].text == "g_expensive";
        matches && whole && !marked
    };
    let last = words.len().checked_sub(wanted.len())?;
    let mut found = (0..=last).filter(|index| at(*index));
    let first = found.next()?;
    // In `p->next->key`, the access to `p` is the first place.
    found.next().is_none().then(|| (words[first].start, words[first + wanted.len() - 1].end()))
}

/// Returns a unified diff between the source and the marked text.
pub(crate) fn patch(name: &str, source: &str, marked: &Marked) -> String {
    let lines: Vec<&str> = source.lines().collect();
    let mut text = format!("--- a/{name}\n+++ b/{name}\n");
    let mut added = 0_usize;
    let changed: Vec<usize> = marked.changes.keys().copied().collect();
    let mut index = 0;
    while index < changed.len() {
        // Changes that are close belong to one hunk.
        let mut last = index;
        while last + 1 < changed.len() && changed[last + 1] - changed[last] <= 2 * CONTEXT {
            last += 1;
        }
        let begin = changed[index].saturating_sub(CONTEXT);
        let end = (changed[last] + CONTEXT + 1).min(lines.len());
        let mut hunk = String::new();
        let mut new_count = 0;
        for (number, line) in lines.iter().enumerate().take(end).skip(begin) {
            let new = new_lines(&marked.changes, number, line);
            new_count += new.len();
            for one in &new[..new.len() - 1] {
                writeln!(hunk, "+{one}").expect("writing to a String");
            }
            match new.last() {
                Some(one) if one != line => writeln!(hunk, "-{line}\n+{one}"),
                _ => writeln!(hunk, " {line}"),
            }
            .expect("writing to a String");
        }
        writeln!(text, "@@ -{},{} +{},{} @@", begin + 1, end - begin, begin + 1 + added, new_count)
            .expect("writing to a String");
        text += &hunk;
        added += new_count - (end - begin);
        index = last + 1;
    }
    text
}
