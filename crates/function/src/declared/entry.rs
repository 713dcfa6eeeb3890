//! Entries of declared tables, parsed from the lines of a file or from a command.

use crate::dpi::patterns::{self, parse_pattern};
use godwit_declare::generate::page::columns;
use godwit_declare::value::{self, Words};
use godwit_declare::words::KeyWords;
use godwit_declare::{Field, FieldType, RecordLayout, Scalar, Shape, Table, ValueError};

use crate::Error;

/// Lookup key of an entry, in a format that depends on the shape of the table.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Key {
    /// Key of an `exact` table or a meter, as words.
    Words(Vec<u64>),
    /// IPv4 prefix with its length.
    Prefix4(u32, u8),
    /// IPv6 prefix with its length.
    Prefix6(u128, u8),
    /// Number of an entry in an `array` table.
    Index(u32),
    /// Entry of an `acl` table: its priority, and the pattern of each field as text.
    Pattern(u32, Vec<String>),
    /// Name of a row in a `maglev` table.
    Name(String),
    /// Byte string of variable length.
    Bytes(Vec<u8>),
}

/// Bytes of a row.
pub(super) type Row = Box<[u8]>;

/// Values and bit mask of a simple pattern, as words.
pub(super) type Masked = (Vec<u64>, Vec<u64>);

/// Change of a table entry: its lookup key and its new row. `None` removes the entry.
pub(super) type Change = (Key, Option<Row>);

/// Converts entries of one table from and to text.
#[derive(Clone, Debug)]
pub(super) struct Format {
    shape: Shape,
    key: Vec<Field>,
    row: Vec<Field>,
    layout: RecordLayout,
    words: KeyWords,
    columns: Vec<String>,
    ports: Vec<String>,
}

impl Format {
    pub(super) fn new(table: &Table, ports: &[String]) -> Self {
        Self {
            shape: table.shape,
            key: table.key.clone(),
            row: table.row.clone(),
            layout: RecordLayout::padded(&table.row),
            words: KeyWords::of(&table.key),
            columns: columns(table.shape, &table.key, &table.row),
            ports: ports.to_vec(),
        }
    }

    /// Returns the size of a row in bytes.
    pub(super) fn row_bytes(&self) -> usize {
        self.layout.bytes
    }

    /// Returns the names of the columns.
    pub(super) fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Returns the names of the columns of the key.
    pub(super) fn key_names(&self) -> &[String] {
        &self.columns[..self.key_columns()]
    }

    /// Returns the number of columns that belong to the key.
    fn key_columns(&self) -> usize {
        self.columns.len() - self.row.len()
    }

    /// Parses the texts of all columns.
    pub(super) fn entry(&self, texts: &[&str]) -> Result<(Key, Row), Error> {
        let (key, row) = texts.split_at(self.key_columns().min(texts.len()));
        let key = self.parse_key(key)?;
        let mut bytes = vec![0; self.layout.bytes];
        for ((field, offset), text) in self.row.iter().zip(&self.layout.offsets).zip(row) {
            let scalar = scalar(field);
            let words = value::parse(scalar, text, Some(&self.ports)).map_err(|error| in_column(&field.name, error))?;
            store(&mut bytes[*offset..], scalar, words);
        }
        Ok((key, bytes.into_boxed_slice()))
    }

    /// Parses the texts of the columns of a key.
    pub(super) fn parse_key(&self, texts: &[&str]) -> Result<Key, Error> {
        let text = |index: usize| texts.get(index).copied().unwrap_or("");
        Ok(match self.shape {
            Shape::Lpm4 => {
                let (prefix, length) = value::prefix4(text(0)).map_err(|error| in_column("prefix", error))?;
                Key::Prefix4(prefix, length as u8)
            }
            Shape::Lpm6 => {
                let (prefix, length) = value::prefix6(text(0)).map_err(|error| in_column("prefix", error))?;
                Key::Prefix6(prefix, length as u8)
            }
            Shape::Array => {
                let [index, _] =
                    value::parse(Scalar::Unsigned(32), text(0), None).map_err(|error| in_column("index", error))?;
                Key::Index(index as u32)
            }
            Shape::Maglev if text(0).is_empty() => return Err(in_column("name", "must not be empty")),
            Shape::Maglev => Key::Name(text(0).to_owned()),
            Shape::Exact | Shape::Meter => {
                let values = self.key.iter().zip(texts).map(|(field, text)| {
                    value::parse(scalar(field), text, Some(&self.ports)).map_err(|error| in_column(&field.name, error))
                });
                Key::Words(self.words.pack(&values.collect::<Result<Vec<_>, _>>()?))
            }
            Shape::Acl => {
                let [priority, _] =
                    value::parse(Scalar::Unsigned(32), text(0), None).map_err(|error| in_column("priority", error))?;
                let patterns: Vec<String> = texts[1..].iter().map(|text| text.trim().to_owned()).collect();
                for (field, pattern) in self.key.iter().zip(&patterns) {
                    pattern_of(scalar(field), pattern, &self.ports).map_err(|error| in_column(&field.name, error))?;
                }
                Key::Pattern(priority as u32, patterns)
            }
            Shape::Strings => {
                let pattern = parse_pattern(text(0).as_bytes());
                Key::Bytes(pattern.map_err(|error| in_column("pattern", error))?)
            }
        })
    }

    /// Divides a pattern with ranges into simple patterns. Returns the values and the bit mask of
    /// each simple pattern, as words.
    pub(super) fn masked(&self, patterns: &[String]) -> Result<Vec<Masked>, Error> {
        let mut all: Vec<Vec<(Words, Words)>> = vec![Vec::new()];
        for (field, pattern) in self.key.iter().zip(patterns) {
            let parts = pattern_of(scalar(field), pattern, &self.ports)?;
            all = all
                .iter()
                .flat_map(|before| parts.iter().map(|part| before.iter().copied().chain([*part]).collect()))
                .collect();
        }
        let pack = |parts: &[(Words, Words)], masks: bool| {
            let values: Vec<Words> = parts.iter().map(|(value, mask)| if masks { *mask } else { *value }).collect();
            self.words.pack(&values)
        };
        Ok(all.iter().map(|parts| (pack(parts, false), pack(parts, true))).collect())
    }

    /// Returns the text of each column of an entry.
    pub(super) fn texts(&self, key: &Key, row: &[u8]) -> Vec<String> {
        let mut texts = match key {
            Key::Words(words) => {
                let values = self.words.unpack(words);
                self.key
                    .iter()
                    .zip(values)
                    .map(|(field, words)| value::format(scalar(field), words, &self.ports))
                    .collect()
            }
            Key::Prefix4(prefix, length) => vec![format!("{}/{length}", std::net::Ipv4Addr::from(*prefix))],
            Key::Prefix6(prefix, length) => vec![format!("{}/{length}", std::net::Ipv6Addr::from(*prefix))],
            Key::Index(index) => vec![index.to_string()],
            Key::Pattern(priority, patterns) => {
                std::iter::once(priority.to_string()).chain(patterns.iter().cloned()).collect()
            }
            Key::Name(name) => vec![name.clone()],
            Key::Bytes(bytes) => vec![patterns::text(bytes)],
        };
        texts.extend(self.row.iter().zip(&self.layout.offsets).map(|(field, offset)| {
            let scalar = scalar(field);
            value::format(scalar, load(&row[*offset..], scalar), &self.ports)
        }));
        texts
    }
}

/// Returns the error of a value in the column `column`.
fn in_column(column: &str, error: impl std::fmt::Display) -> Error {
    Error::value(format!("{column}: {error}"))
}

fn invalid(error: ValueError) -> Error {
    Error::value(error.to_string())
}

/// Returns the scalar type of a field, which holds a single value.
pub(super) fn scalar(field: &Field) -> Scalar {
    match field.kind {
        FieldType::Scalar(scalar) => scalar,
        _ => unreachable!("keys and rows have no arrays"),
    }
}

pub(super) fn store(bytes: &mut [u8], scalar: Scalar, words: Words) {
    let size = scalar.word_bytes();
    for (word, bytes) in words.iter().zip(bytes.chunks_mut(size)).take(scalar.words()) {
        bytes[..size].copy_from_slice(&word.to_le_bytes()[..size]);
    }
}

fn load(bytes: &[u8], scalar: Scalar) -> Words {
    let size = scalar.word_bytes();
    let mut words = [0; 2];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks(size)).take(scalar.words()) {
        *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    }
    words
}

/// Parses the pattern of a field: `*`, a value, a prefix `value/length`, or a range `first-last`.
/// Returns a value and a bit mask for each part of the pattern.
fn pattern_of(scalar: Scalar, text: &str, ports: &[String]) -> Result<Vec<(Words, Words)>, Error> {
    let bits = scalar.bits();
    let full = match scalar {
        Scalar::Ipv6 => [u64::MAX, u64::MAX],
        _ => [u64::MAX >> (64 - bits.min(64)), 0],
    };
    if text == "*" {
        return Ok(vec![([0; 2], [0; 2])]);
    }
    if let Some((value, length)) = text.split_once('/') {
        let length: u32 = length
            .parse()
            .ok()
            .filter(|length| *length <= bits)
            .ok_or_else(|| Error::value(format!("`{text}`: the length of a prefix is 0 to {bits}")))?;
        let words = value::parse(scalar, value, Some(ports)).map_err(invalid)?;
        let number = combine(words, scalar);
        let mask = if length == 0 { 0 } else { (u128::MAX << (bits - length)) & combine(full, scalar) };
        if number & !mask != 0 {
            return Err(invalid(ValueError::BeyondLength(text.to_owned())));
        }
        return Ok(vec![(words, split(mask, scalar))]);
    }
    match text.split_once('-') {
        Some((first, last)) if bits <= 64 && !matches!(scalar, Scalar::Mac | Scalar::Port) => {
            let [first, _] = value::parse(scalar, first, Some(ports)).map_err(invalid)?;
            let [last, _] = value::parse(scalar, last, Some(ports)).map_err(invalid)?;
            if first > last {
                return Err(Error::value(format!("`{text}`: the first value exceeds the last")));
            }
            Ok(range(first, last, bits).into_iter().map(|(value, mask)| ([value, 0], [mask, 0])).collect())
        }
        _ => Ok(vec![(value::parse(scalar, text, Some(ports)).map_err(invalid)?, full)]),
    }
}

fn combine(words: Words, scalar: Scalar) -> u128 {
    if scalar == Scalar::Ipv6 { u128::from(words[0]) << 64 | u128::from(words[1]) } else { words[0].into() }
}

fn split(number: u128, scalar: Scalar) -> Words {
    if scalar == Scalar::Ipv6 { [(number >> 64) as u64, number as u64] } else { [number as u64, 0] }
}

/// Divides a range of numbers into prefixes, each as a value and a bit mask.
fn range(first: u64, last: u64, bits: u32) -> Vec<(u64, u64)> {
    let full = u64::MAX >> (64 - bits);
    let mut parts = Vec::new();
    let mut at = first;
    loop {
        // Each part is the largest aligned block that begins here and ends within the range.
        let mut size = at.trailing_zeros().min(bits);
        while size > 0 && (u64::MAX >> (64 - size)) > last - at {
            size -= 1;
        }
        let block = if size == 0 { 0 } else { u64::MAX >> (64 - size) };
        parts.push((at, full & !block));
        match at.checked_add(block).and_then(|end| end.checked_add(1)) {
            Some(next) if next <= last => at = next,
            _ => return parts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_divided_into_the_fewest_prefixes() {
        assert_eq!(range(0, 65_535, 16), [(0, 0)]);
        assert_eq!(range(80, 80, 16), [(80, 0xffff)]);
        assert_eq!(range(1024, 65_535, 16).len(), 6);
        for (first, last) in [(1, 6), (0, 0), (3, 200), (250, 255)] {
            let parts = range(first, last, 8);
            for number in 0..256 {
                let inside = parts.iter().filter(|(value, mask)| number & mask == *value).count();
                assert_eq!(inside, usize::from((first..=last).contains(&number)), "{first}-{last}: {number}");
            }
        }
    }
}
