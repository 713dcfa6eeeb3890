//! Front end. The user's compiler expands the text, and each token keeps its place in the source.
//!
//! 1. `places` puts identifiers into the source that name byte offsets.
//! 2. The compiler replaces includes with the included files.
//! 3. `macros` removes the definitions of markers, so that calls to markers remain.
//! 4. The compiler expands all other macros.
//! 5. This module reads the tokens of the result.

mod compiler;
mod macros;
mod places;

use std::path::Path;

pub use compiler::Compiler;
pub(crate) use macros::{DECLARES, FOREACH, Macros};

use crate::error::{Error, Fault, Refusal};
use crate::lexer::{self, Kind};

/// Names of markers that need no option.
pub(crate) const MARKERS: &[&str] = &["g_expensive", "GW_EXPENSIVE", "EXPENSIVE", "FPP_EXPENSIVE"];
/// Marker that macros with a value expand to.
pub(crate) const VALUE_MARKER: &str = "gopt_marker_";

/// Token of the expanded text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tok {
    pub(crate) kind: Kind,
    start: u32,
    end: u32,
    line: u32,
    pub(crate) file: u16,
    /// Whether the token is from a header of the system.
    pub(crate) system: bool,
    /// Whether a loop from a `foreach` macro begins here.
    pub(crate) promise: bool,
    /// Byte offset in the source, if a statement or declaration may begin here.
    pub(crate) from: Option<u32>,
    /// Byte offset after this token in the source, if a statement may end here.
    pub(crate) to: Option<u32>,
}

/// Expanded text of a file.
pub(crate) struct Expanded {
    /// Name of the file in messages.
    pub(crate) name: String,
    pub(crate) source: String,
    text: String,
    pub(crate) tokens: Vec<Tok>,
    files: Vec<String>,
    pub(crate) macros: Macros,
    /// Names of markers.
    pub(crate) markers: Vec<String>,
    pub(crate) cplusplus: bool,
}

impl Expanded {
    /// Expands a text. `folder` contains the files of `#include "..."`.
    pub(crate) fn new(
        name: &str,
        source: &str,
        folder: Option<&Path>,
        markers: &[String],
        compiler: &Compiler,
    ) -> Result<Self, Error> {
        let all: Vec<String> = MARKERS.iter().map(|name| (*name).to_owned()).chain(markers.iter().cloned()).collect();
        let placed = places::placed(source);
        let (text, macros) = if compiler.is_preprocessed() {
            (placed, Macros::new())
        } else {
            let (flat, style) = compiler.flattened(&placed, folder).map_err(|error| renamed(error, name))?;
            let (prepared, macros) = macros::prepared(&flat, &all);
            (compiler.expanded(&prepared, style).map_err(|error| renamed(error, name))?, macros)
        };
        let mut expanded = Self {
            name: name.to_owned(),
            source: source.to_owned(),
            text: String::new(),
            tokens: Vec::new(),
            files: vec![name.to_owned()],
            macros,
            markers: all,
            cplusplus: compiler.cplusplus,
        };
        expanded.read(text);
        Ok(expanded)
    }

    /// Reads a text without macros, such as generated C.
    pub(crate) fn raw(text: &str) -> Self {
        let mut expanded = Self {
            name: String::new(),
            source: String::new(),
            text: String::new(),
            tokens: Vec::new(),
            files: vec![String::new()],
            macros: Macros::new(),
            markers: Vec::new(),
            cplusplus: false,
        };
        expanded.read(text.to_owned());
        expanded
    }

    /// Reads the tokens of an expanded text.
    fn read(&mut self, text: String) {
        let (mut file, mut line, mut system) = (0_u16, 1_u32, false);
        let mut at = 0;
        let mut from = None;
        let mut promise = false;
        let mut found: Vec<Tok> = Vec::with_capacity(text.len() / 6);
        for token in lexer::tokens(&text) {
            let lines = text.as_bytes()[at..token.start].iter().filter(|byte| **byte == b'\n').count();
            line = line.wrapping_add(lines as u32);
            at = token.start;
            if token.kind == Kind::Directive {
                if let Some(marker) = LineMarker::read(token.text) {
                    file = self.file_index(marker.file);
                    system = marker.system;
                    // The marker names the line after it.
                    line = marker.line.wrapping_sub(1);
                    continue;
                }
                if !token.text[1..].trim_start().starts_with("pragma") {
                    continue;
                }
            }
            match places::read(token.text) {
                _ if token.kind != Kind::Identifier => {}
                Some(places::Place::From(offset)) => {
                    from = from.or(Some(offset));
                    continue;
                }
                Some(places::Place::To(offset)) => {
                    if let Some(last) = found.last_mut() {
                        last.to = Some(offset);
                    }
                    continue;
                }
                None if token.text == macros::PROMISE => {
                    promise = true;
                    continue;
                }
                None => {}
            }
            let (start, end) = (token.start as u32, token.end() as u32);
            let kind = token.kind;
            found.push(Tok { kind, start, end, line, file, system, promise, from: from.take(), to: None });
            promise = false;
        }
        self.tokens = found;
        self.text = text;
    }

    fn file_index(&mut self, name: &str) -> u16 {
        let name = if name == "<stdin>" { self.name.as_str() } else { name };
        let known = self.files.iter().position(|file| file == name);
        let index = known.unwrap_or_else(|| {
            self.files.push(name.to_owned());
            self.files.len() - 1
        });
        u16::try_from(index).unwrap_or(u16::MAX)
    }

    /// Returns the text of a token.
    pub(crate) fn word(&self, index: usize) -> &str {
        self.tokens.get(index).map_or("", |token| &self.text[token.start as usize..token.end as usize])
    }

    /// Replaces the text of a token.
    pub(crate) fn replace(&mut self, index: usize, word: &str) {
        let start = self.text.len() as u32;
        self.text.push_str(word);
        let token = &mut self.tokens[index];
        (token.start, token.end) = (start, start + word.len() as u32);
    }

    /// Returns the text from token `first` to the token before `end`, without comments.
    pub(crate) fn words(&self, first: usize, end: usize) -> String {
        let mut text = String::new();
        for index in first..end {
            if index > first && self.spaced(index) {
                text.push(' ');
            }
            text.push_str(self.word(index));
        }
        text
    }

    /// Returns whether white space precedes a token.
    pub(crate) fn spaced(&self, index: usize) -> bool {
        index > 0 && self.tokens[index - 1].end != self.tokens[index].start
    }

    /// Returns whether a line break precedes a token.
    pub(crate) fn on_new_line(&self, index: usize) -> bool {
        index > 0 && self.tokens[index - 1].line != self.tokens[index].line
    }

    /// Returns whether the source calls a macro as a statement.
    pub(crate) fn calls_as_statement(&self, name: &str) -> bool {
        let words = lexer::tokens(&self.source);
        let begins = |index: usize| index == 0 || matches!(words[index - 1].text, ";" | "{" | "}" | ")");
        (0..words.len()).any(|index| words[index].text == name && begins(index))
    }

    pub(crate) fn is_marker(&self, name: &str) -> bool {
        name == VALUE_MARKER || self.markers.iter().any(|marker| marker == name)
    }

    /// Returns file and line of a token.
    pub(crate) fn position(&self, index: usize) -> (&str, usize) {
        let token = self.tokens.get(index).or(self.tokens.last());
        token.map_or((self.name.as_str(), 1), |token| {
            (self.files.get(usize::from(token.file)).map_or("", String::as_str), token.line.max(1) as usize)
        })
    }

    /// Converts a fault to a refusal with file, line and macro.
    pub(crate) fn refusal(&self, fault: &Fault) -> Refusal {
        let Some(at) = fault.at else {
            return Refusal { file: self.name.clone(), line: 1, expansion: None, reason: fault.reason.clone() };
        };
        let (file, line) = self.position(at);
        Refusal { file: file.to_owned(), line, expansion: self.expansion(at), reason: fault.reason.clone() }
    }

    /// Returns the macro from which a token comes. If the source line contains the token itself,
    /// returns `None`.
    fn expansion(&self, at: usize) -> Option<String> {
        let token = self.tokens.get(at).filter(|token| token.file == 0)?;
        let line = self.source.lines().nth(token.line.max(1) as usize - 1)?;
        let word = self.word(at);
        let words = lexer::tokens(line);
        if words.iter().any(|other| other.text == word) {
            return None;
        }
        let used = words.iter().filter(|word| word.is_identifier()).map(|word| word.text);
        used.filter(|name| self.macros.contains_key(*name)).find(|name| self.mentions(name, word, 8)).map(str::to_owned)
    }

    /// Returns whether the expansion of a macro contains a word.
    fn mentions(&self, name: &str, word: &str, depth: u32) -> bool {
        let Some(body) = self.macros.get(name).map(|one| one.body.as_str()).filter(|_| depth > 0) else { return false };
        lexer::tokens(body).iter().any(|token| {
            token.text == word
                || token.is_identifier() && token.text != name && self.mentions(token.text, word, depth - 1)
        })
    }
}

/// Line marker of a preprocessor, such as `# 12 "file.h" 1 3`.
struct LineMarker<'a> {
    line: u32,
    file: &'a str,
    system: bool,
}

impl<'a> LineMarker<'a> {
    fn read(directive: &'a str) -> Option<Self> {
        let rest = directive.strip_prefix('#')?.trim_start();
        let rest = rest.strip_prefix("line").unwrap_or(rest).trim_start();
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let line = rest[..digits].parse().ok()?;
        let name = rest[digits..].trim_start().strip_prefix('"')?;
        let (file, flags) = name.rsplit_once('"')?;
        Some(Self { line, file, system: flags.split_whitespace().any(|flag| flag == "3") })
    }
}

/// Replaces the compiler's name for standard input in messages.
fn renamed(error: Error, name: &str) -> Error {
    match error {
        Error::Compiler(message) => Error::Compiler(message.replace("<stdin>", name)),
        error => error,
    }
}
