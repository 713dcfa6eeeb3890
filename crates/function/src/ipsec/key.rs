//! Keys as the operator writes them: hex digits that never show up anywhere else.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Visitor};
use zeroize::Zeroizing;

/// A key, wiped from memory when dropped. Neither `Debug` nor any error shows its bytes.
pub(super) struct Key(Value);

enum Value {
    Bytes(Zeroizing<Vec<u8>>),
    NotText,
    NotHex,
}

impl Key {
    /// The key, if it has as many bytes as one of these says; else what is wrong with it, to follow the name of the key.
    pub(super) fn one_of(&self, wanted: &[usize]) -> Result<Zeroizing<Vec<u8>>, String> {
        let join = |numbers: Vec<usize>| numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(" or ");
        let digits = join(wanted.iter().map(|bytes| 2 * bytes).collect());
        match &self.0 {
            Value::Bytes(bytes) if wanted.contains(&bytes.len()) => Ok(bytes.clone()),
            Value::Bytes(bytes) => {
                let wanted = join(wanted.to_vec());
                Err(format!("must have {wanted} bytes ({digits} hex digits), and has {}", bytes.len()))
            }
            Value::NotText => Err(format!("must be a text of {digits} hex digits in quotes")),
            Value::NotHex => Err(format!("must be {digits} hex digits and nothing else")),
        }
    }
}

/// Whether a key is one that nobody draws: a few bytes again and again, one byte among them.
pub(super) fn is_weak(key: &[u8]) -> bool {
    (1..=key.len() / 2).any(|period| key.iter().zip(&key[period..]).all(|(byte, later)| byte == later))
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(not shown)")
    }
}

/// Takes whatever is there: an error of the deserializer would quote it.
impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KeyVisitor).map(Key)
    }
}

struct KeyVisitor;

macro_rules! not_text {
    ($($visit:ident: $type:ty),*) => {$(
        fn $visit<E>(self, _: $type) -> Result<Value, E> {
            Ok(Value::NotText)
        }
    )*};
}

impl Visitor<'_> for KeyVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text of hex digits")
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(decode(text).map_or(Value::NotHex, Value::Bytes))
    }

    not_text!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_i128: i128, visit_u128: u128, visit_f64: f64);
}

/// The bytes of pairs of hex digits, with or without `0x` in front.
fn decode(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let digits = text.strip_prefix("0x").unwrap_or(text).as_bytes();
    let (pairs, []) = digits.as_chunks::<2>() else {
        return None;
    };
    let nibble = |digit: u8| char::from(digit).to_digit(16);
    let mut bytes = Zeroizing::new(Vec::with_capacity(pairs.len()));
    for [high, low] in pairs {
        // Two digits below 16 make a number below 256.
        bytes.push((nibble(*high)? << 4 | nibble(*low)?) as u8);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(value: &str) -> Key {
        #[derive(Deserialize)]
        struct Document {
            key: Key,
        }
        toml::from_str::<Document>(&format!("key = {value}")).unwrap().key
    }

    #[test]
    fn hex_of_the_right_length_is_a_key() {
        assert_eq!(**key("\"00ff7f\"").one_of(&[3]).unwrap(), [0, 255, 127]);
        assert_eq!(**key("\"0xAb0C\"").one_of(&[4, 2]).unwrap(), [0xab, 0x0c]);
    }

    #[test]
    fn nothing_shows_a_key() {
        for value in ["\"deadbeef\"", "\"deadbeefx\"", "\"deadbee\"", "3735928559", "0xdeadbeef", "1.5", "true"] {
            let key = key(value);
            let shown = format!("{key:?} {}", key.one_of(&[16]).unwrap_err()).to_lowercase();
            assert!(!shown.contains("dead") && !shown.contains("3735928559"), "{shown}");
            assert!(shown.contains("32 hex digits"), "{shown}");
        }
    }

    #[test]
    fn what_repeats_is_weak() {
        for weak in [&[0; 16][..], &[7; 20], &[1, 2, 1, 2, 1, 2, 1], &[1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8]]
        {
            assert!(is_weak(weak), "{weak:?}");
        }
        for strong in [&[0, 1, 2, 3, 4, 5, 6, 7][..], &[1, 1, 1, 1, 1, 1, 1, 2], &[]] {
            assert!(!is_weak(strong), "{strong:?}");
        }
    }
}
