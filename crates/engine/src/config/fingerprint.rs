//! Whether a configuration says the same as another of everything but classes and edges. Its values are not kept, for some of
//! them are keys: a hash of each is.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Range;
use std::sync::OnceLock;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What may change: all other stanzas are looked at.
const FREE: [&str; 2] = ["class", "chain"];

/// A hash of each value of each stanza, in order.
#[derive(Debug)]
pub(super) struct Fingerprint(Vec<Mark>);

#[derive(Debug)]
struct Mark {
    /// As a message names it: "function `vpn`", "[engine]".
    stanza: String,
    /// `None`: that the stanza is there.
    key: Option<String>,
    hash: u64,
    at: Range<usize>,
}

impl Fingerprint {
    /// Of the whole document.
    pub(super) fn new(root: &DeTable<'_>) -> Self {
        let mut marks = Vec::new();
        let mut kinds: Vec<(&str, &Spanned<DeValue<'_>>)> =
            root.iter().map(|(key, value)| (key.get_ref().as_ref(), value)).collect();
        // In which order the kinds of stanzas stand does not matter.
        kinds.sort_by_key(|(key, _)| *key);
        for (key, value) in kinds.into_iter().filter(|(key, _)| !FREE.contains(key)) {
            match value.get_ref() {
                DeValue::Table(table) => mark(&mut marks, format!("[{key}]"), value.span(), table),
                DeValue::Array(stanzas) => {
                    for (number, stanza) in (1..).zip(stanzas.iter()) {
                        let Some(table) = stanza.get_ref().as_table() else { continue };
                        let name = table.get("name").and_then(|name| name.get_ref().as_str());
                        let name = name.map_or(format!("{key} {number}"), |name| format!("{key} `{name}`"));
                        mark(&mut marks, name, stanza.span(), table);
                    }
                }
                _ => {}
            }
        }
        Self(marks)
    }

    /// Where `other` differs first, and how; the place is one of `other`'s, where it has it.
    pub(super) fn difference(&self, other: &Self) -> Option<(Option<Range<usize>>, String)> {
        let stanzas = |marks: &Self| -> Vec<(String, Range<usize>)> {
            let heads = marks.0.iter().filter(|mark| mark.key.is_none());
            heads.map(|mark| (mark.stanza.clone(), mark.at.clone())).collect()
        };
        let (before, now) = (stanzas(self), stanzas(other));
        let lacks = |all: &[(String, Range<usize>)], name: &str| !all.iter().any(|(known, _)| known == name);
        if let Some((name, at)) = now.iter().find(|(name, _)| lacks(&before, name)) {
            return Some((Some(at.clone()), format!("{name} was not there when Godwit was started")));
        }
        if let Some((name, _)) = before.iter().find(|(name, _)| lacks(&now, name)) {
            return Some((None, format!("{name} is gone, which was there when Godwit was started")));
        }
        let stands_elsewhere = |(place, (name, _)): &(usize, &(String, Range<usize>))| {
            before.get(*place).is_none_or(|(before, _)| before != name)
        };
        if let Some((_, (name, at))) = now.iter().enumerate().find(stands_elsewhere) {
            return Some((Some(at.clone()), format!("{name} stands in another place than when Godwit was started")));
        }
        let of = |marks: &'_ Self, wanted: &Mark| -> Option<u64> {
            let found = marks.0.iter().find(|mark| mark.stanza == wanted.stanza && mark.key == wanted.key);
            found.map(|mark| mark.hash)
        };
        let differs = |mark: &&Mark, others: &Self| mark.key.is_some() && of(others, mark) != Some(mark.hash);
        let say = |mark: &Mark| {
            let key = mark.key.as_deref().unwrap_or_default();
            format!("`{key}` of {} is not what it was when Godwit was started", mark.stanza)
        };
        if let Some(mark) = other.0.iter().find(|mark| differs(mark, self)) {
            return Some((Some(mark.at.clone()), say(mark)));
        }
        let gone = self.0.iter().find(|mark| differs(mark, other))?;
        let stanza = other.0.iter().find(|mark| mark.stanza == gone.stanza).map(|mark| mark.at.clone());
        Some((stanza, say(gone)))
    }
}

fn mark(marks: &mut Vec<Mark>, stanza: String, at: Range<usize>, table: &DeTable<'_>) {
    marks.push(Mark { stanza: stanza.clone(), key: None, hash: 0, at });
    for (key, value) in table {
        let name = Some(key.get_ref().to_string());
        marks.push(Mark { stanza: stanza.clone(), key: name, hash: hash(value), at: key.span() });
    }
}

/// The same for the same value, in this process; spaces, comments and places do not count.
fn hash(value: &Spanned<DeValue<'_>>) -> u64 {
    static KEYS: OnceLock<RandomState> = OnceLock::new();
    let mut hasher = KEYS.get_or_init(RandomState::new).build_hasher();
    feed(value.get_ref(), &mut hasher);
    hasher.finish()
}

fn feed(value: &DeValue<'_>, hasher: &mut impl Hasher) {
    let mut text = |kind: u8, text: &str| {
        hasher.write_u8(kind);
        hasher.write_usize(text.len());
        hasher.write(text.as_bytes());
    };
    match value {
        DeValue::String(value) => text(0, value),
        DeValue::Integer(value) => text(1, &value.to_string()),
        DeValue::Float(value) => text(2, value.as_str()),
        DeValue::Boolean(value) => hasher.write_u8(3 + u8::from(*value)),
        DeValue::Datetime(value) => text(5, &value.to_string()),
        DeValue::Array(values) => {
            hasher.write_u8(6);
            hasher.write_usize(values.len());
            values.iter().for_each(|value| feed(value.get_ref(), hasher));
        }
        DeValue::Table(table) => {
            hasher.write_u8(7);
            hasher.write_usize(table.len());
            // In the order of keys, not of the text.
            let mut keys: Vec<_> = table.iter().map(|(key, value)| (key.get_ref(), value.get_ref())).collect();
            keys.sort_by_key(|(key, _)| *key);
            for (key, value) in keys {
                hasher.write_usize(key.len());
                hasher.write(key.as_bytes());
                feed(value, hasher);
            }
        }
    }
}
