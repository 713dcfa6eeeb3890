//! Computes a fingerprint of a configuration. If the fingerprint changes, the running engine cannot
//! apply the new configuration. The fingerprint contains hashes instead of values, because some
//! values are secret keys.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Range;
use std::sync::OnceLock;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Configuration stanzas that may change at run time. The hashes do not include them.
const FREE: [&str; 2] = ["class", "chain"];

/// Hashes of all values in a configuration, in order.
#[derive(Debug)]
pub(super) struct Fingerprint(Vec<Entry>);

#[derive(Debug)]
struct Entry {
    /// Name of the stanza in error messages, such as ``function `vpn` `` or `[engine]`.
    stanza: String,
    /// Name of the key, or `None` for the stanza itself.
    key: Option<String>,
    hash: u64,
    at: Range<usize>,
}

impl Fingerprint {
    /// Computes the fingerprint of a configuration document.
    pub(super) fn new(root: &DeTable<'_>) -> Self {
        let mut entries = Vec::new();
        let mut kinds: Vec<(&str, &Spanned<DeValue<'_>>)> =
            root.iter().map(|(key, value)| (key.get_ref().as_ref(), value)).collect();
        // The order of different stanzas in the file is irrelevant, so they are sorted.
        kinds.sort_by_key(|(key, _)| *key);
        for (key, value) in kinds.into_iter().filter(|(key, _)| !FREE.contains(key)) {
            match value.get_ref() {
                DeValue::Table(table) => append_entries(&mut entries, format!("[{key}]"), value.span(), table),
                DeValue::Array(stanzas) => {
                    for (number, stanza) in (1..).zip(stanzas.iter()) {
                        let Some(table) = stanza.get_ref().as_table() else { continue };
                        let name = table.get("name").and_then(|name| name.get_ref().as_str());
                        let name = name.map_or(format!("{key} {number}"), |name| format!("{key} `{name}`"));
                        append_entries(&mut entries, name, stanza.span(), table);
                    }
                }
                _ => {}
            }
        }
        Self(entries)
    }

    /// Returns the first difference between two fingerprints, as a message and its position in
    /// `other`. The position is `None` if `other` lacks a whole stanza. Returns `None` if the
    /// fingerprints agree.
    pub(super) fn difference(&self, other: &Self) -> Option<(Option<Range<usize>>, String)> {
        let stanzas = |entries: &Self| -> Vec<(String, Range<usize>)> {
            let heads = entries.0.iter().filter(|entry| entry.key.is_none());
            heads.map(|entry| (entry.stanza.clone(), entry.at.clone())).collect()
        };
        let (old, new) = (stanzas(self), stanzas(other));
        let lacks = |all: &[(String, Range<usize>)], name: &str| !all.iter().any(|(known, _)| known == name);
        if let Some((name, at)) = new.iter().find(|(name, _)| lacks(&old, name)) {
            return Some((Some(at.clone()), format!("{name} was added after the start of Godwit")));
        }
        if let Some((name, _)) = old.iter().find(|(name, _)| lacks(&new, name)) {
            return Some((None, format!("{name} was removed after the start of Godwit")));
        }
        let has_moved =
            |(index, (name, _)): &(usize, &(String, Range<usize>))| old.get(*index).is_none_or(|(old, _)| old != name);
        if let Some((_, (name, at))) = new.iter().enumerate().find(has_moved) {
            return Some((Some(at.clone()), format!("{name} was moved after the start of Godwit")));
        }
        let hash_of = |entries: &'_ Self, key_entry: &Entry| -> Option<u64> {
            let found = entries.0.iter().find(|entry| entry.stanza == key_entry.stanza && entry.key == key_entry.key);
            found.map(|entry| entry.hash)
        };
        let differs = |entry: &&Entry, others: &Self| entry.key.is_some() && hash_of(others, entry) != Some(entry.hash);
        let message_for = |entry: &Entry| {
            let key = entry.key.as_deref().unwrap_or_default();
            format!("`{key}` of {} was changed after the start of Godwit", entry.stanza)
        };
        if let Some(entry) = other.0.iter().find(|entry| differs(entry, self)) {
            return Some((Some(entry.at.clone()), message_for(entry)));
        }
        let gone = self.0.iter().find(|entry| differs(entry, other))?;
        let stanza = other.0.iter().find(|entry| entry.stanza == gone.stanza).map(|entry| entry.at.clone());
        Some((stanza, message_for(gone)))
    }
}

fn append_entries(entries: &mut Vec<Entry>, stanza: String, at: Range<usize>, table: &DeTable<'_>) {
    entries.push(Entry { stanza: stanza.clone(), key: None, hash: 0, at });
    for (key, value) in table {
        let name = Some(key.get_ref().to_string());
        entries.push(Entry { stanza: stanza.clone(), key: name, hash: hash(value), at: key.span() });
    }
}

/// Returns the hash of a TOML value. Spaces and comments do not affect the hash. The hash function
/// differs between processes.
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
