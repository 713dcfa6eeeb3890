//! The text of a configuration: stanzas, places, and errors of the TOML reader as sentences.

use std::ops::Range;

use godwit_chain::names;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::ConfigError;

/// Longest name of a port, function or class.
const NAME_BYTES_MAX: usize = 32;
/// Names that chains use themselves.
const RESERVED: [&str; 3] = [godwit_chain::DROP, godwit_chain::EGRESS, godwit_chain::DEFAULT_CLASS];

/// The text, and its name in errors.
pub(super) struct Document<'a> {
    text: &'a str,
    origin: &'a str,
}

/// One table of the document.
pub(super) struct Stanza<'a> {
    /// As it is written: `[engine]`, `[[port]]`.
    pub(super) header: String,
    span: Range<usize>,
    /// All keys that were there at first, with their places.
    keys: Vec<(String, Range<usize>)>,
    /// Those of them whose value is a text.
    texts: Vec<(String, Range<usize>)>,
    table: DeTable<'a>,
}

impl<'a> Document<'a> {
    pub(super) fn new(text: &'a str, origin: &'a str) -> Self {
        Self { text, origin }
    }

    /// The whole document as a table.
    pub(super) fn root(&self) -> Result<Stanza<'a>, ConfigError> {
        match DeTable::parse(self.text) {
            Ok(table) => Ok(Stanza::new("the configuration".to_owned(), 0..0, table.into_inner())),
            Err(error) => Err(self.refuse(error.span().unwrap_or(0..0), error.message())),
        }
    }

    /// The error with this message at this place.
    pub(super) fn refuse(&self, at: Range<usize>, message: impl ToString) -> ConfigError {
        ConfigError::at(self.origin, self.line(at.start), message)
    }

    /// The error with this message in this line, counted from 1.
    pub(super) fn refuse_line(&self, line: usize, message: impl ToString) -> ConfigError {
        ConfigError::at(self.origin, line, message)
    }

    /// The warning with this message at this place.
    pub(super) fn warn(&self, at: Range<usize>, message: impl std::fmt::Display) -> String {
        format!("{}:{}: {message}", self.origin, self.line(at.start))
    }

    /// The line of a place, from 1; never behind the last line.
    pub(super) fn line(&self, at: usize) -> usize {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
        line.min(self.text.lines().count().max(1))
    }

    /// Reads what is left of a stanza, which goes on knowing the places of its keys. `taken`: keys that it may have besides, for suggestions.
    pub(super) fn read<T: Deserialize<'a>>(&self, stanza: &mut Stanza<'a>, taken: &[&str]) -> Result<T, ConfigError> {
        let table = stanza.take_table();
        T::deserialize(table.into_deserializer()).map_err(|error| self.refuse_toml(&error, stanza, taken))
    }

    /// The name of a port, function or class, taken out.
    pub(super) fn name(&self, stanza: &mut Stanza<'a>) -> Result<String, ConfigError> {
        let name = stanza.require_text(self, "name")?;
        let text = name.get_ref();
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if text.is_empty() || text.len() > NAME_BYTES_MAX || !text.chars().all(allowed) {
            let message = format!(
                "`{}` is no name: 1 to {NAME_BYTES_MAX} letters, digits, `_`, `-` and `.`",
                text.escape_debug()
            );
            return Err(self.refuse(name.span(), message));
        }
        if RESERVED.contains(&text.as_str()) {
            return Err(self.refuse(name.span(), format!("`{text}` has a meaning in chains and cannot be a name")));
        }
        Ok(name.into_inner())
    }

    /// An error of the TOML reader in a stanza as a sentence.
    pub(super) fn refuse_toml(&self, error: &toml::de::Error, stanza: &Stanza<'_>, taken: &[&str]) -> ConfigError {
        let message = error.message();
        let text = error.to_string();
        // The reader says the path of the key in a last line of its own.
        let path = text.trim_end().rsplit_once("\nin `").map(|(_, path)| path.trim_end_matches('`'));
        let mut at = error.span().unwrap_or(stanza.span());
        if let Some(key) = quoted_after(message, "unknown field ") {
            let mut candidates = quoted_list(message);
            if path.is_none() {
                candidates.extend(taken);
            }
            return self.refuse(at, names::unknown("key", key, &candidates));
        }
        if let Some(key) = quoted_after(message, "missing field ") {
            at = if at == (0..0) { stanza.span() } else { at };
            let of = path.map_or(stanza.header.clone(), |path| format!("`{path}`"));
            return self.refuse(at, format!("{of} lacks the key `{key}`"));
        }
        let key = path.map_or(String::new(), |path| format!("`{path}`: "));
        if let Some(value) = quoted_after(message, "unknown variant ") {
            return self.refuse(at, format!("{key}{}", names::unknown("value", value, &quoted_list(message))));
        }
        let wrong = ["invalid type: ", "invalid value: "].iter().find_map(|start| message.strip_prefix(start));
        if let (Some(path), Some((found, expected))) = (path, wrong.and_then(|wrong| wrong.rsplit_once(", expected ")))
        {
            let expected = in_words(expected);
            // What stands in the place of a key may be the key, which belongs into no terminal and no log.
            return self.refuse(
                at,
                match path.ends_with("key") {
                    true => format!("`{path}` must be {expected}"),
                    false => format!("`{path}` must be {expected}, not {}", found.trim_end_matches(" as i128")),
                },
            );
        }
        if message == "wanted string or table" {
            return self.refuse(at, format!("{key}must be a text in quotes"));
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

    /// What is left of it.
    pub(super) fn rest(&self) -> &DeTable<'a> {
        &self.table
    }

    /// The place of the stanza.
    pub(super) fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// The place of the first key, in the order of the text, that is one of these.
    pub(super) fn first_of(&self, is_one: impl Fn(&str) -> bool) -> Option<Range<usize>> {
        let found = self.keys.iter().filter(|(key, _)| is_one(key));
        found.map(|(_, span)| span.clone()).min_by_key(|span| span.start)
    }

    /// The place of a key; of the stanza where the key is not there.
    pub(super) fn span_of(&self, key: &str) -> Range<usize> {
        self.keys.iter().find(|(name, _)| name == key).map_or(self.span(), |(_, span)| span.clone())
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.keys.iter().any(|(name, _)| name == key)
    }

    /// The place of the first key whose value is a text that fits.
    pub(super) fn span_of_text(&self, fits: impl Fn(&str) -> bool) -> Range<usize> {
        self.texts.iter().find(|(text, _)| fits(text)).map_or(self.span(), |(_, span)| span.clone())
    }

    /// What is left of the stanza, with places; the stanza keeps knowing the places of its keys.
    pub(super) fn take_table(&mut self) -> Spanned<DeTable<'a>> {
        Spanned::new(self.span.clone(), std::mem::take(&mut self.table))
    }

    /// Refuses the first key, in the order of the text, that is none of `known`.
    pub(super) fn refuse_unknown(&self, document: &Document<'_>, known: &[&str]) -> Result<(), ConfigError> {
        let unknown = self.keys.iter().filter(|(key, _)| !known.contains(&key.as_str()));
        match unknown.min_by_key(|(_, span)| span.start) {
            Some((key, span)) => Err(document.refuse(span.clone(), names::unknown("key", key, known))),
            None => Ok(()),
        }
    }

    /// The value of `key`, taken out: a text.
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
                Err(document.refuse(span, format!("`{key}` must be a text in quotes, not {found}")))
            }
        }
    }

    /// The same for a text or a list of texts; none where the key is not there.
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
                Err(document.refuse(value.span(), format!("`{key}` must be texts in quotes, not {found}")))
            }
        };
        let texts: Vec<_> = values.iter().map(text).collect::<Result<_, _>>()?;
        if texts.is_empty() {
            return Err(
                document.refuse(self.span_of(key), format!("`{key}` names nothing: leave it out, or name some"))
            );
        }
        self.table.remove(key);
        Ok(texts)
    }

    /// The same as [`Stanza::take_text`] for a key that must be there.
    pub(super) fn require_text(
        &mut self,
        document: &Document<'_>,
        key: &'static str,
    ) -> Result<Spanned<String>, ConfigError> {
        if let Some(text) = self.take_text(document, key)? {
            return Ok(text);
        }
        // Perhaps it is there, misspelt.
        for (written, span) in &self.keys {
            if names::nearest(written, [key]).is_some() {
                return Err(document.refuse(span.clone(), names::unknown("key", written, &[key])));
            }
        }
        Err(document.refuse(self.span(), format!("{} lacks the key `{key}`", self.header)))
    }

    /// The table `[key]`, taken out; an empty one where there is none.
    pub(super) fn table(&mut self, document: &Document<'_>, key: &str) -> Result<Stanza<'a>, ConfigError> {
        let header = format!("[{key}]");
        let Some(value) = self.table.remove(key) else { return Ok(Stanza::new(header, 0..0, DeTable::new())) };
        let span = value.span();
        match value.into_inner() {
            DeValue::Table(table) => Ok(Stanza::new(header, span, table)),
            _ => Err(document.refuse(self.span_of(key), format!("`{key}` must be one table, written {header}"))),
        }
    }

    /// The tables `[[key]]`, taken out, in order.
    pub(super) fn tables(&mut self, document: &Document<'_>, key: &str) -> Result<Vec<Stanza<'a>>, ConfigError> {
        let Some(value) = self.table.remove(key) else { return Ok(Vec::new()) };
        let header = format!("[[{key}]]");
        let message = format!("`{key}` must be tables, each written {header}");
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

/// `x` of "… `x` …" behind `start`.
fn quoted_after<'m>(message: &'m str, start: &str) -> Option<&'m str> {
    let rest = message.strip_prefix(start)?.strip_prefix('`')?;
    // The name itself may hold anything; what follows it is the reader's.
    let end = rest.rfind("`, expected ").or_else(|| rest.rfind("`, there are no ")).or_else(|| rest.rfind('`'))?;
    Some(&rest[..end])
}

/// The quoted names behind "expected".
fn quoted_list(message: &str) -> Vec<&str> {
    let Some((_, expected)) = message.rsplit_once("`, expected ") else { return Vec::new() };
    expected.split('`').skip(1).step_by(2).collect()
}

/// What the reader expected, as the operator would say it.
fn in_words(expected: &str) -> &str {
    match expected {
        "u8" => "an integer from 0 to 255",
        "u16" => "an integer from 0 to 65535",
        "u32" => "an integer from 0 to 4294967295",
        "u64" | "usize" => "an integer, 0 or more",
        "i8" | "i16" | "i32" | "i64" => "an integer",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a string" | "string or table" | "path string" => "a text in quotes",
        "a sequence" => "a list",
        other if other.starts_with("struct ") || other == "a map" => "a table",
        other => other,
    }
}

fn a_or_an(kind: &str) -> String {
    let article = if kind.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {kind}")
}
