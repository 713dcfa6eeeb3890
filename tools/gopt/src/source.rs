//! First pass: reads the text and its macros, and prepares the copy that is parsed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::lexer::{Kind, tokens};
use crate::macros::Macros;
use crate::refusal::{Fault, Refusal};

/// Names of annotations.
pub(crate) const ANNOTATIONS: &[&str] = &["g_expensive", "GW_EXPENSIVE", "EXPENSIVE"];

/// Text of a file, with the information that the parse needs.
pub(crate) struct Source {
    name: String,
    pub(crate) text: String,
    /// Copy of `text` for the parser, of the same length. `foreach` is replaced by `while  `.
    /// Macros that expand to nothing or to specifiers are blanked.
    pub(crate) plain: String,
    pub(crate) macros: Macros,
    /// Byte offsets of each `foreach`.
    pub(crate) foreach: BTreeSet<usize>,
    /// Byte offsets of blanked macros that expand to specifiers.
    blanked: Vec<usize>,
}

impl Source {
    pub(crate) fn new(name: &str, text: &str, folder: Option<&Path>) -> Self {
        let mut macros = Macros::default();
        let mut seen = BTreeSet::new();
        collect(text, folder, &mut macros, &mut seen);
        let mut plain = text.as_bytes().to_vec();
        let mut foreach = BTreeSet::new();
        let mut blanked = Vec::new();
        for token in tokens(text).iter().filter(|token| token.kind == Kind::Identifier) {
            let range = token.start..token.end();
            if token.text == "foreach" {
                plain[range].copy_from_slice(b"while  ");
                foreach.insert(token.start);
            } else if let Some(empty) = macros.transparent(token.text) {
                plain[range].fill(b' ');
                if !empty {
                    blanked.push(token.start);
                }
            }
        }
        // The parser does not accept an attribute as a statement. A name of the same length
        // replaces it in the copy. The output takes its text from the original.
        for window in tokens(text).windows(6) {
            let words: Vec<&str> = window.iter().map(|token| token.text).collect();
            if words == ["__attribute__", "(", "(", "fallthrough", ")", ")"] {
                plain[window[0].start..window[5].end()].fill(b'F');
            }
        }
        // Only whole identifiers were replaced, by ASCII, so the copy is valid UTF-8.
        let plain = String::from_utf8(plain).unwrap_or_else(|_| text.to_owned());
        Self { name: name.to_owned(), text: text.to_owned(), plain, macros, foreach, blanked }
    }

    /// Returns the offset of a blanked macro for specifiers in a range.
    pub(crate) fn blanked_in(&self, start: usize, end: usize) -> Option<usize> {
        self.blanked.iter().copied().find(|at| (start..end).contains(at))
    }

    /// Converts a fault to a refusal. `#line` directives determine its file and line.
    pub(crate) fn refusal(&self, fault: Fault) -> Refusal {
        let mut file = self.name.clone();
        let mut line = 0;
        let mut at = 0;
        for text in self.text.split_inclusive('\n') {
            line += 1;
            at += text.len();
            if fault.at < at {
                break;
            }
            let Some(rest) = text.trim_start().strip_prefix('#') else { continue };
            let rest = rest.trim_start();
            let mut words = rest.strip_prefix("line").unwrap_or(rest).split_whitespace();
            if let Some(number) = words.next().and_then(|word| word.parse::<usize>().ok()) {
                line = number - 1;
                if let Some(named) = words.next() {
                    file = named.trim_matches('"').to_owned();
                }
            }
        }
        Refusal { file, line: line.max(1), reason: fault.reason }
    }
}

/// Collects the macros of a text and of the files in its `#include "..."`. Files that cannot be
/// read are ignored.
fn collect(text: &str, folder: Option<&Path>, macros: &mut Macros, seen: &mut BTreeSet<PathBuf>) {
    for token in tokens(text).iter().filter(|token| token.kind == Kind::Directive) {
        let words = token.text[1..].trim_start();
        if let Some(rest) = words.strip_prefix("include") {
            let named = rest.trim().strip_prefix('"').and_then(|rest| rest.split('"').next());
            let path = folder.zip(named).map(|(folder, name)| folder.join(name));
            if let Some(path) = path.filter(|path| seen.insert(path.clone()))
                && let Ok(included) = std::fs::read_to_string(&path)
            {
                collect(&included, path.parent(), macros, seen);
            }
        } else {
            macros.add(token.text);
        }
    }
}
