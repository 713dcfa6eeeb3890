//! Typed access to the values of a TOML table. Errors name the line of a value.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::Error;
use crate::error::suggest;
use crate::head::{Head, lines_before};

/// TOML table in a declaration. Each value is taken once, and [`Section::finish`] reports the
/// remaining values.
pub(super) struct Section<'a> {
    head: &'a Head<'a>,
    /// Path of the table in error messages, such as `tables.senders`. It is empty for the root
    /// table.
    name: String,
    line: usize,
    table: DeTable<'a>,
    /// Keys that were looked up. Errors about unknown keys suggest them.
    known: Vec<&'static str>,
}

/// A value with its name and its line.
pub(super) struct Entry<'a> {
    pub(super) name: String,
    pub(super) line: usize,
    value: Spanned<DeValue<'a>>,
}

impl<'a> Section<'a> {
    /// Parses the text of a declaration.
    pub(super) fn root(head: &'a Head<'a>) -> Result<Self, Error> {
        let table = DeTable::parse(head.toml).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            let message = error.message().lines().next().unwrap_or("invalid TOML").to_owned();
            Error { line: line_of(head, offset), message: format!("the declaration is not valid TOML: {message}") }
        })?;
        Ok(Self { head, name: String::new(), line: head.line, table: table.into_inner(), known: Vec::new() })
    }

    pub(super) fn line(&self) -> usize {
        self.line
    }

    /// Returns an error about the table as a whole.
    pub(super) fn refuse<T>(&self, message: impl Into<String>) -> Result<T, Error> {
        Err(Error { line: self.line, message: message.into() })
    }

    fn take(&mut self, key: &'static str) -> Option<Entry<'a>> {
        self.known.push(key);
        let value = self.table.remove(key)?;
        let line = line_of(self.head, value.span().start);
        Some(Entry { name: key.to_owned(), line, value })
    }

    /// Returns the path of a key for messages.
    fn path(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }

    pub(super) fn text(&mut self, key: &'static str) -> Result<Option<String>, Error> {
        self.take(key).map(|entry| entry.text(&self.path(key))).transpose()
    }

    pub(super) fn require_text(&mut self, key: &'static str) -> Result<String, Error> {
        match self.text(key)? {
            Some(text) => Ok(text),
            None => self.refuse(format!("`{}` is missing", self.path(key))),
        }
    }

    /// Returns a text value and its line in the C file.
    pub(super) fn text_at(&mut self, key: &'static str) -> Result<Option<(String, usize)>, Error> {
        let Some(entry) = self.take(key) else { return Ok(None) };
        let line = entry.line;
        Ok(Some((entry.text(&self.path(key))?, line)))
    }

    pub(super) fn texts(&mut self, key: &'static str) -> Result<Option<Vec<String>>, Error> {
        let path = self.path(key);
        let Some(entry) = self.take(key) else { return Ok(None) };
        let line = entry.line;
        let refuse = || Error { line, message: format!("`{path}` must be a list of texts") };
        let DeValue::Array(values) = entry.value.into_inner() else { return Err(refuse()) };
        let text = |value: Spanned<DeValue<'_>>| match value.into_inner() {
            DeValue::String(text) => Ok(text.into_owned()),
            _ => Err(refuse()),
        };
        values.into_iter().map(text).collect::<Result<_, _>>().map(Some)
    }

    pub(super) fn flag(&mut self, key: &'static str) -> Result<bool, Error> {
        let path = self.path(key);
        match self.take(key) {
            None => Ok(false),
            Some(Entry { value, line, .. }) => match value.into_inner() {
                DeValue::Boolean(flag) => Ok(flag),
                _ => Err(Error { line, message: format!("`{path}` must be true or false") }),
            },
        }
    }

    pub(super) fn number(&mut self, key: &'static str, max: u64) -> Result<Option<u64>, Error> {
        let path = self.path(key);
        self.take(key).map(|entry| entry.number(&path, max)).transpose()
    }

    /// Returns whether a key is present.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Takes a value of any type.
    pub(super) fn any(&mut self, key: &'static str) -> Option<Entry<'a>> {
        self.take(key)
    }

    pub(super) fn section(&mut self, key: &'static str) -> Result<Option<Section<'a>>, Error> {
        let path = self.path(key);
        self.take(key).map(|entry| entry.section(self.head, path)).transpose()
    }

    /// Takes all remaining values, in the order of the text.
    pub(super) fn entries(&mut self) -> Vec<Entry<'a>> {
        let mut entries: Vec<(usize, Entry<'a>)> = std::mem::take(&mut self.table)
            .into_iter()
            .map(|(key, value)| {
                let start = key.span().start;
                let line = line_of(self.head, start);
                (start, Entry { name: key.into_inner().into_owned(), line, value })
            })
            .collect();
        entries.sort_by_key(|(start, _)| *start);
        entries.into_iter().map(|(_, entry)| entry).collect()
    }

    /// Takes all subtables of the table `key`, in line order.
    pub(super) fn sections(&mut self, key: &'static str) -> Result<Vec<(String, Section<'a>)>, Error> {
        let Some(mut section) = self.section(key)? else { return Ok(Vec::new()) };
        let head = self.head;
        let read = |entry: Entry<'a>| {
            let (name, path) = (entry.name.clone(), format!("{key}.{}", entry.name));
            Ok((name, entry.section(head, path)?))
        };
        section.entries().into_iter().map(read).collect()
    }

    /// Reads an entry as a table of this declaration.
    pub(super) fn section_of(&self, entry: Entry<'a>, path: String) -> Result<Section<'a>, Error> {
        entry.section(self.head, path)
    }

    /// Returns an error if the table has keys that were not taken.
    pub(super) fn finish(mut self) -> Result<(), Error> {
        let Some((key, _)) = std::mem::take(&mut self.table).into_iter().next() else { return Ok(()) };
        let line = line_of(self.head, key.span().start);
        let hint = suggest(key.get_ref(), &self.known);
        Err(Error { line, message: format!("unknown key `{}`: {hint}", self.path(key.get_ref())) })
    }
}

impl<'a> Entry<'a> {
    /// Returns whether the value is a table.
    pub(super) fn is_table(&self) -> bool {
        self.value.get_ref().is_table()
    }

    pub(super) fn text(self, path: &str) -> Result<String, Error> {
        match self.value.into_inner() {
            DeValue::String(text) => Ok(text.into_owned()),
            _ => Err(Error { line: self.line, message: format!("`{path}` must be a text") }),
        }
    }

    pub(super) fn number(self, path: &str, max: u64) -> Result<u64, Error> {
        let refuse = || Error { line: self.line, message: format!("`{path}` must be a number from 0 to {max}") };
        let DeValue::Integer(number) = self.value.get_ref() else { return Err(refuse()) };
        let number = u64::from_str_radix(number.as_str(), number.radix()).map_err(|_| refuse())?;
        if number > max { Err(refuse()) } else { Ok(number) }
    }

    /// Returns a number, a string or a boolean as text. List elements are joined with commas.
    pub(super) fn literal(self, path: &str) -> Result<String, Error> {
        literal(self.value.get_ref())
            .ok_or_else(|| Error { line: self.line, message: format!("`{path}` must be a number, a text or a list") })
    }

    /// Returns the two numbers of a list.
    pub(super) fn pair(self, path: &str) -> Result<(u64, u64), Error> {
        let refuse = || Error { line: self.line, message: format!("`{path}` must be [smallest, largest]") };
        let DeValue::Array(values) = self.value.get_ref() else { return Err(refuse()) };
        let number = |value: &Spanned<DeValue<'_>>| match value.get_ref() {
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        match (values.len(), values.first().and_then(number), values.get(1).and_then(number)) {
            (2, Some(smallest), Some(largest)) if smallest <= largest => Ok((smallest, largest)),
            _ => Err(refuse()),
        }
    }

    fn section(self, head: &'a Head<'a>, path: String) -> Result<Section<'a>, Error> {
        match self.value.into_inner() {
            DeValue::Table(table) => Ok(Section { head, name: path, line: self.line, table, known: Vec::new() }),
            _ => Err(Error { line: self.line, message: format!("`{path}` must be a table") }),
        }
    }
}

fn literal(value: &DeValue<'_>) -> Option<String> {
    Some(match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok()?.to_string(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Array(values) => {
            values.iter().map(|value| literal(value.get_ref())).collect::<Option<Vec<_>>>()?.join(",")
        }
        _ => return None,
    })
}

/// Returns the C file's line for an offset in the TOML text.
fn line_of(head: &Head<'_>, offset: usize) -> usize {
    head.line + 1 + lines_before(head.toml, offset)
}
