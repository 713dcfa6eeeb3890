//! Parses a configuration into stanzas, and rewords the errors of the TOML parser. It keeps the
//! position of each key for error messages.

use std::ops::Range;

use godwit_chain::names;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::ConfigError;

const NAME_BYTES_MAX: usize = 32;
/// Names with a special meaning in function chains. No port, function or class may have them.
const RESERVED: [&str; 3] = [godwit_chain::DROP, godwit_chain::EGRESS, godwit_chain::DEFAULT_CLASS];

pub(super) struct Document<'a> {
    text: &'a str,
    origin: &'a str,
}

/// A stanza, which is one table of the TOML document.
pub(super) struct Stanza<'a> {
    /// Header of the stanza, such as `[engine]` or `[[port]]`.
    pub(super) header: String,
    span: Range<usize>,
    /// All keys of the stanza with their positions, including keys that were read.
    keys: Vec<(String, Range<usize>)>,
    texts: Vec<(String, Range<usize>)>,
    table: DeTable<'a>,
}

impl<'a> Document<'a> {
    pub(super) fn new(text: &'a str, origin: &'a str) -> Self {
        Self { text, origin }
    }

    /// Returns the whole document as one stanza.
    pub(super) fn root(&self) -> Result<Stanza<'a>, ConfigError> {
        match DeTable::parse(self.text) {
            Ok(table) => Ok(Stanza::new("the configuration".to_owned(), 0..0, table.into_inner())),
            Err(error) => Err(self.refuse(error.span().unwrap_or(0..0), error.message())),
        }
    }

    /// Returns an error for the line at byte offset `at`.
    pub(super) fn refuse(&self, at: Range<usize>, message: impl ToString) -> ConfigError {
        ConfigError::at(self.origin, self.line(at.start), message)
    }

    pub(super) fn refuse_line(&self, line: usize, message: impl ToString) -> ConfigError {
        ConfigError::at(self.origin, line, message)
    }

    /// Returns a warning for the line at byte offset `at`.
    pub(super) fn warn(&self, at: Range<usize>, message: impl std::fmt::Display) -> String {
        format!("{}:{}: {message}", self.origin, self.line(at.start))
    }

    /// Returns the line number at a byte offset. Lines are counted from 1. An offset after the end
    /// of the text belongs to the last line.
    pub(super) fn line(&self, at: usize) -> usize {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
        line.min(self.text.lines().count().max(1))
    }

    /// Deserializes the remaining keys of a stanza. `known` lists further valid keys, which an
    /// error message may suggest.
    pub(super) fn read<T: Deserialize<'a>>(&self, stanza: &mut Stanza<'a>, known: &[&str]) -> Result<T, ConfigError> {
        let table = stanza.take_table();
        T::deserialize(table.into_deserializer()).map_err(|error| self.refuse_toml(&error, stanza, known))
    }

    /// Checks the key `name` of a port, function or class, removes it from the stanza, and returns
    /// its value.
    pub(super) fn name(&self, stanza: &mut Stanza<'a>) -> Result<String, ConfigError> {
        let name = stanza.require_text(self, "name")?;
        let text = name.get_ref();
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if text.is_empty() || text.len() > NAME_BYTES_MAX || !text.chars().all(allowed) {
            let message = format!(
                "`{}` is not a valid name: use 1 to {NAME_BYTES_MAX} letters, digits, `_`, `-` and `.`",
                text.escape_debug()
            );
            return Err(self.refuse(name.span(), message));
        }
        if RESERVED.contains(&text.as_str()) {
            return Err(self.refuse(name.span(), format!("`{text}` is reserved in chains and cannot be a name")));
        }
        Ok(name.into_inner())
    }

    /// Converts a TOML parser error into a readable message. `known` lists further valid keys,
    /// which the message may suggest.
    pub(super) fn refuse_toml(&self, error: &toml::de::Error, stanza: &Stanza<'_>, known: &[&str]) -> ConfigError {
        let message = error.message();
        let text = error.to_string();
        // The last line of the error text contains the key's path.
        let path = text.trim_end().rsplit_once("\nin `").map(|(_, path)| path.trim_end_matches('`'));
        let mut at = error.span().unwrap_or(stanza.span());
        if let Some(key) = quoted_after(message, "unknown field ") {
            let mut candidates = quoted_list(message);
            if path.is_none() {
                candidates.extend(known);
            }
            return self.refuse(at, names::unknown("key", key, &candidates));
        }
        if let Some(key) = quoted_after(message, "missing field ") {
            at = if at == (0..0) { stanza.span() } else { at };
            let owner = path.map_or(stanza.header.clone(), |path| format!("`{path}`"));
            return self.refuse(at, format!("{owner} lacks the key `{key}`"));
        }
        let key = path.map_or(String::new(), |path| format!("`{path}`: "));
        if let Some(value) = quoted_after(message, "unknown variant ") {
            return self.refuse(at, format!("{key}{}", names::unknown("value", value, &quoted_list(message))));
        }
        let wrong = ["invalid type: ", "invalid value: "].iter().find_map(|start| message.strip_prefix(start));
        if let (Some(path), Some((found, expected))) = (path, wrong.and_then(|wrong| wrong.rsplit_once(", expected ")))
        {
            let expected = in_words(expected);
            // A value whose name ends with "key" may be secret, so the message does not quote it.
            return self.refuse(
                at,
                match path.ends_with("key") {
                    true => format!("`{path}` must be {expected}"),
                    false => format!("`{path}` must be {expected}, not {}", found.trim_end_matches(" as i128")),
                },
            );
        }
        if message == "wanted string or table" {
            return self.refuse(at, format!("{key}must be a string in quotes"));
        }
        self.refuse(at, format!("{key}{message}"))
    }
}

impl<'a> Stanza<'a> {
    fn new(header: String, span: Range<usize>, table: DeTable<'a>) -> Self {
        let keys = table.iter().map(|(key, _)| (key.get_ref().to_string(), key.span())).collect();
        let texts = table.iter().filter_map(|(key, value)| Some((value.get_ref().as_str()?.to_owned(), key.span())));
        Self { header, span, keys, texts: texts.collect(), table }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the keys of the stanza that have not been read.
    pub(super) fn rest(&self) -> &DeTable<'a> {
        &self.table
    }

    /// Returns the position of the stanza in the text.
    pub(super) fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// Returns the position of the first key that satisfies `matches`.
    pub(super) fn first_of(&self, matches: impl Fn(&str) -> bool) -> Option<Range<usize>> {
        let found = self.keys.iter().filter(|(key, _)| matches(key));
        found.map(|(_, span)| span.clone()).min_by_key(|span| span.start)
    }

    /// Returns the position of a key, or the position of the stanza if the key is absent.
    pub(super) fn span_of(&self, key: &str) -> Range<usize> {
        self.keys.iter().find(|(name, _)| name == key).map_or(self.span(), |(_, span)| span.clone())
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.keys.iter().any(|(name, _)| name == key)
    }

    /// Returns the position of a key whose string value satisfies `fits`, or else the position of
    /// the stanza.
    pub(super) fn span_of_text(&self, fits: impl Fn(&str) -> bool) -> Range<usize> {
        self.texts.iter().find(|(text, _)| fits(text)).map_or(self.span(), |(_, span)| span.clone())
    }

    /// Removes and returns the remaining keys with their values.
    pub(super) fn take_table(&mut self) -> Spanned<DeTable<'a>> {
        Spanned::new(self.span.clone(), std::mem::take(&mut self.table))
    }

    /// Returns an error that names the first key outside `known`, if there is any.
    pub(super) fn refuse_unknown(&self, document: &Document<'_>, known: &[&str]) -> Result<(), ConfigError> {
        let unknown = self.keys.iter().filter(|(key, _)| !known.contains(&key.as_str()));
        match unknown.min_by_key(|(_, span)| span.start) {
            Some((key, span)) => Err(document.refuse(span.clone(), names::unknown("key", key, known))),
            None => Ok(()),
        }
    }

    /// Removes a key with a string value, and returns the value. Returns `None` if the key is
    /// absent.
    pub(super) fn take_text(
        &mut self,
        document: &Document<'_>,
        key: &str,
    ) -> Result<Option<Spanned<String>>, ConfigError> {
        let Some(value) = self.table.remove(key) else { return Ok(None) };
        let span = value.span();
        match value.get_ref().as_str() {
            Some(text) => Ok(Some(Spanned::new(span, text.to_owned()))),
            None => {
                let found = a_or_an(value.get_ref().type_str());
                Err(document.refuse(span, format!("`{key}` must be a string in quotes, not {found}")))
            }
        }
    }

    /// Removes a key whose value is a string or a list of strings, and returns the strings. Returns
    /// an empty list if the key is absent.
    pub(super) fn take_texts(
        &mut self,
        document: &Document<'_>,
        key: &str,
    ) -> Result<Vec<Spanned<String>>, ConfigError> {
        let Some(values) = self.table.get(key).and_then(|value| value.get_ref().as_array()) else {
            return Ok(self.take_text(document, key)?.into_iter().collect());
        };
        let text = |value: &Spanned<DeValue<'_>>| match value.get_ref().as_str() {
            Some(text) => Ok(Spanned::new(value.span(), text.to_owned())),
            None => {
                let found = a_or_an(value.get_ref().type_str());
                Err(document.refuse(value.span(), format!("`{key}` must contain strings in quotes, not {found}")))
            }
        };
        let texts: Vec<_> = values.iter().map(text).collect::<Result<_, _>>()?;
        if texts.is_empty() {
            return Err(
                document.refuse(self.span_of(key), format!("`{key}` is empty: remove it, or list at least one value"))
            );
        }
        self.table.remove(key);
        Ok(texts)
    }

    /// Removes a required key with a string value, and returns the value.
    pub(super) fn require_text(
        &mut self,
        document: &Document<'_>,
        key: &'static str,
    ) -> Result<Spanned<String>, ConfigError> {
        if let Some(text) = self.take_text(document, key)? {
            return Ok(text);
        }
        // The operator may have misspelled the key.
        for (written, span) in &self.keys {
            if names::nearest(written, [key]).is_some() {
                return Err(document.refuse(span.clone(), names::unknown("key", written, &[key])));
            }
        }
        Err(document.refuse(self.span(), format!("{} lacks the key `{key}`", self.header)))
    }

    /// Removes the table `[key]` from this stanza, and returns it. Returns an empty stanza if the
    /// table is absent.
    pub(super) fn table(&mut self, document: &Document<'_>, key: &str) -> Result<Stanza<'a>, ConfigError> {
        let header = format!("[{key}]");
        let Some(value) = self.table.remove(key) else { return Ok(Stanza::new(header, 0..0, DeTable::new())) };
        let span = value.span();
        match value.into_inner() {
            DeValue::Table(table) => Ok(Stanza::new(header, span, table)),
            _ => Err(document.refuse(self.span_of(key), format!("`{key}` must be a single table, written {header}"))),
        }
    }

    /// Removes all tables `[[key]]` from this stanza, and returns them in the order of the text.
    pub(super) fn tables(&mut self, document: &Document<'_>, key: &str) -> Result<Vec<Stanza<'a>>, ConfigError> {
        let Some(value) = self.table.remove(key) else { return Ok(Vec::new()) };
        let header = format!("[[{key}]]");
        let message = format!("`{key}` must be a list of tables, each written {header}");
        let wrong = |span| document.refuse(span, &message);
        let DeValue::Array(values) = value.into_inner() else { return Err(wrong(self.span_of(key))) };
        let stanza = |value: Spanned<DeValue<'a>>| {
            let span = value.span();
            match value.into_inner() {
                DeValue::Table(table) => Ok(Stanza::new(header.clone(), span, table)),
                _ => Err(wrong(span)),
            }
        };
        values.into_iter().map(stanza).collect()
    }
}

/// Returns the quoted name after `start` in a TOML parser error. Returns `None` if the message does
/// not begin with `start`.
fn quoted_after<'m>(message: &'m str, start: &str) -> Option<&'m str> {
    let rest = message.strip_prefix(start)?.strip_prefix('`')?;
    // The quoted name may contain backquotes, so the search looks for the text after the name.
    let end = rest.rfind("`, expected ").or_else(|| rest.rfind("`, there are no ")).or_else(|| rest.rfind('`'))?;
    Some(&rest[..end])
}

fn quoted_list(message: &str) -> Vec<&str> {
    let Some((_, expected)) = message.rsplit_once("`, expected ") else { return Vec::new() };
    expected.split('`').skip(1).step_by(2).collect()
}

fn in_words(expected: &str) -> &str {
    match expected {
        "u8" => "an integer from 0 to 255",
        "u16" => "an integer from 0 to 65535",
        "u32" => "an integer from 0 to 4294967295",
        "u64" | "usize" => "an integer, 0 or more",
        "i8" | "i16" | "i32" | "i64" => "an integer",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a string" | "string or table" | "path string" => "a string in quotes",
        "a sequence" => "a list",
        other if other.starts_with("struct ") || other == "a map" => "a table",
        other => other,
    }
}

fn a_or_an(kind: &str) -> String {
    let article = if kind.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {kind}")
}
