//! JSON values whose strings are overwritten with zeros when they are dropped.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use zeroize::Zeroize;

/// Overwrites all strings of a request or a reply with zeros, because they may contain keys.
pub fn wipe_texts(value: &mut Value) {
    match value {
        Value::String(text) => text.zeroize(),
        Value::Array(values) => values.iter_mut().for_each(wipe_texts),
        Value::Object(values) => values.values_mut().for_each(wipe_texts),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// JSON value whose strings are overwritten with zeros when it is dropped. If the text has a syntax
/// error, the strings before the error are overwritten too. The JSON parser's copy of a string with
/// escape sequences is not overwritten.
pub(crate) struct WipedValue(pub(crate) Value);

impl WipedValue {
    fn take(mut self) -> Value {
        std::mem::take(&mut self.0)
    }
}

impl Drop for WipedValue {
    fn drop(&mut self) {
        wipe_texts(&mut self.0);
    }
}

impl<'de> Deserialize<'de> for WipedValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = WipedValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<WipedValue, E> {
        Ok(WipedValue(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<WipedValue, E> {
        Ok(WipedValue(Value::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<WipedValue, E> {
        Ok(WipedValue(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<WipedValue, E> {
        Ok(WipedValue(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<WipedValue, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("this number is not finite"))?;
        Ok(WipedValue(Value::Number(number)))
    }

    fn visit_str<E>(self, text: &str) -> Result<WipedValue, E> {
        Ok(WipedValue(Value::String(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<WipedValue, A::Error> {
        let mut values: Vec<WipedValue> = Vec::new();
        while let Some(value) = elements.next_element()? {
            values.push(value);
        }
        Ok(WipedValue(values.into_iter().map(WipedValue::take).collect()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<WipedValue, A::Error> {
        let mut object = WipedValue(Value::Object(Map::new()));
        while let Some((key, value)) = entries.next_entry::<String, WipedValue>()? {
            if let Value::Object(map) = &mut object.0 {
                drop(map.insert(key, value.take()).map(WipedValue));
            }
        }
        Ok(object)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_is_read_as_by_serde_json() {
        for text in [
            "null",
            "true",
            "-7",
            "18446744073709551615",
            "1.5e300",
            "\"a\\n\"",
            "[]",
            "{}",
            "[1,[2,{\"a\":[3]}]]",
            "{\"a\":1,\"b\":{\"c\":\"d\"},\"a\":2}",
            "1e999",
            "[1,]",
            "{\"a\":}",
            "nul",
            "",
            "[[[[",
        ] {
            let wiped = serde_json::from_str::<WipedValue>(text).map(WipedValue::take).ok();
            assert_eq!(wiped, serde_json::from_str::<Value>(text).ok(), "{text}");
        }
        let deep = "[".repeat(200) + &"]".repeat(200);
        assert!(serde_json::from_str::<WipedValue>(&deep).is_err(), "the depth is limited");
    }

    proptest! {
        #[test]
        fn any_text_is_read_as_by_serde_json(text in "[\\[\\]{}\",:a1.e -]{0,40}") {
            let wiped = serde_json::from_str::<WipedValue>(&text).map(WipedValue::take).ok();
            prop_assert_eq!(wiped, serde_json::from_str::<Value>(&text).ok());
        }
    }
}
