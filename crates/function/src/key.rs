//! Cryptographic keys in the configuration. Keys are written as hex digits, and no message or log
//! shows them.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Visitor};
use zeroize::Zeroizing;

/// Cryptographic key from the configuration. Its memory is wiped when it is dropped. `Debug` and
/// errors never show its bytes.
pub(crate) struct Key(Value);

enum Value {
    Bytes(Zeroizing<Vec<u8>>),
    NotText,
    NotHex,
}

/// Problem with a cryptographic key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    #[error("must have {bytes} bytes ({digits} hex digits), but has {found}")]
    Length { bytes: String, digits: String, found: usize },
    #[error("must be a string of {0} hex digits")]
    NotText(String),
    #[error("must consist of {0} hex digits")]
    NotHex(String),
}

impl Key {
    /// Returns the bytes of the key if its length is in `lengths`.
    pub(crate) fn with_length(&self, lengths: &[usize]) -> Result<Zeroizing<Vec<u8>>, KeyError> {
        let join = |numbers: Vec<usize>| numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(" or ");
        let digits = join(lengths.iter().map(|bytes| 2 * bytes).collect());
        match &self.0 {
            Value::Bytes(bytes) if lengths.contains(&bytes.len()) => Ok(bytes.clone()),
            Value::Bytes(bytes) => Err(KeyError::Length { bytes: join(lengths.to_vec()), digits, found: bytes.len() }),
            Value::NotText => Err(KeyError::NotText(digits)),
            Value::NotHex => Err(KeyError::NotHex(digits)),
        }
    }
}

/// Returns whether a key is obviously not random, because it repeats one byte or a short sequence
/// of bytes.
pub(crate) fn is_weak(key: &[u8]) -> bool {
    (1..=key.len() / 2).any(|period| key.iter().zip(&key[period..]).all(|(byte, later)| byte == later))
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(not shown)")
    }
}

/// Accepts values of any type. For a wrong type, an error of serde would quote the key.
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
        f.write_str("a string of hex digits")
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(decode(text).map_or(Value::NotHex, Value::Bytes))
    }

    not_text!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_i128: i128, visit_u128: u128, visit_f64: f64);
}

/// Decodes pairs of hex digits to bytes. The prefix `0x` is optional.
fn decode(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let digits = text.strip_prefix("0x").unwrap_or(text).as_bytes();
    let (pairs, []) = digits.as_chunks::<2>() else {
        return None;
    };
    let nibble = |digit: u8| char::from(digit).to_digit(16);
    let mut bytes = Zeroizing::new(Vec::with_capacity(pairs.len()));
    for [high, low] in pairs {
        // Both digits are below 16, so the result fits into a byte.
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
    fn accepts_hex_of_the_right_length() {
        assert_eq!(**key("\"00ff7f\"").with_length(&[3]).unwrap(), [0, 255, 127]);
        assert_eq!(**key("\"0xAb0C\"").with_length(&[4, 2]).unwrap(), [0xab, 0x0c]);
    }

    #[test]
    fn debug_output_and_errors_hide_the_key() {
        for value in ["\"deadbeef\"", "\"deadbeefx\"", "\"deadbee\"", "3735928559", "0xdeadbeef", "1.5", "true"] {
            let key = key(value);
            let shown = format!("{key:?} {}", key.with_length(&[16]).unwrap_err()).to_lowercase();
            assert!(!shown.contains("dead") && !shown.contains("3735928559"), "{shown}");
            assert!(shown.contains("32 hex digits"), "{shown}");
        }
    }

    #[test]
    fn repeated_bytes_are_weak() {
        for weak in [&[0; 16][..], &[7; 20], &[1, 2, 1, 2, 1, 2, 1], &[1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8]]
        {
            assert!(is_weak(weak), "{weak:?}");
        }
        for strong in [&[0, 1, 2, 3, 4, 5, 6, 7][..], &[1, 1, 1, 1, 1, 1, 1, 2], &[]] {
            assert!(!is_weak(strong), "{strong:?}");
        }
    }
}
