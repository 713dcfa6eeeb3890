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
    /// The key, if it has `N` bytes; else what is wrong with it, to follow the name of the key.
    pub(super) fn bytes<const N: usize>(&self) -> Result<Zeroizing<[u8; N]>, String> {
        let digits = 2 * N;
        match &self.0 {
            Value::Bytes(bytes) => match <[u8; N]>::try_from(&bytes[..]) {
                Ok(bytes) => Ok(Zeroizing::new(bytes)),
                Err(_) => Err(format!("must have {N} bytes ({digits} hex digits), and has {}", bytes.len())),
            },
            Value::NotText => Err(format!("must be a text of {digits} hex digits in quotes")),
            Value::NotHex => Err(format!("must be {digits} hex digits and nothing else")),
        }
    }
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
        assert_eq!(*key("\"00ff7f\"").bytes::<3>().unwrap(), [0, 255, 127]);
        assert_eq!(*key("\"0xAb0C\"").bytes::<2>().unwrap(), [0xab, 0x0c]);
    }

    #[test]
    fn nothing_shows_a_key() {
        for value in ["\"deadbeef\"", "\"deadbeefx\"", "\"deadbee\"", "3735928559", "0xdeadbeef", "1.5", "true"] {
            let key = key(value);
            let shown = format!("{key:?} {}", key.bytes::<16>().unwrap_err()).to_lowercase();
            assert!(!shown.contains("dead") && !shown.contains("3735928559"), "{shown}");
            assert!(shown.contains("32 hex digits"), "{shown}");
        }
    }
}
