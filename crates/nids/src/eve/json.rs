//! Writes JSON objects into a byte buffer. The output is valid JSON for any input bytes.

use std::fmt::Write as _;

/// JSON object that is being written.
#[derive(Debug, Default)]
pub struct Json {
    text: String,
    /// Whether the next member needs a comma before it.
    comma: bool,
}

impl Json {
    /// Returns an object that is open for members.
    pub fn object() -> Self {
        Self { text: "{".to_owned(), comma: false }
    }

    fn name(&mut self, name: &str) {
        if self.comma {
            self.text.push(',');
        }
        self.comma = true;
        self.quote(name.as_bytes());
        self.text.push(':');
    }

    fn item(&mut self) {
        if self.comma {
            self.text.push(',');
        }
        self.comma = true;
    }

    /// Writes bytes as a JSON string. Bytes that are not valid UTF-8 become Latin-1 characters.
    fn quote(&mut self, bytes: &[u8]) {
        self.text.push('"');
        match std::str::from_utf8(bytes) {
            Ok(text) => text.chars().for_each(|c| self.character(c)),
            Err(_) => bytes.iter().for_each(|byte| self.character(char::from(*byte))),
        }
        self.text.push('"');
    }

    fn character(&mut self, c: char) {
        match c {
            '"' => self.text.push_str("\\\""),
            '\\' => self.text.push_str("\\\\"),
            '\n' => self.text.push_str("\\n"),
            '\r' => self.text.push_str("\\r"),
            '\t' => self.text.push_str("\\t"),
            c if u32::from(c) < 0x20 || c == '\u{7f}' => {
                let _ = write!(self.text, "\\u{:04x}", u32::from(c));
            }
            c => self.text.push(c),
        }
    }

    /// Adds a string.
    pub fn string(&mut self, name: &str, value: &str) {
        self.name(name);
        self.quote(value.as_bytes());
    }

    /// Adds a string of any bytes.
    pub fn bytes(&mut self, name: &str, value: &[u8]) {
        self.name(name);
        self.quote(value);
    }

    /// Adds the text of a value.
    pub fn display(&mut self, name: &str, value: impl std::fmt::Display) {
        self.name(name);
        let text = value.to_string();
        self.quote(text.as_bytes());
    }

    /// Adds a number.
    pub fn number(&mut self, name: &str, value: u64) {
        self.name(name);
        let _ = write!(self.text, "{value}");
    }

    /// Adds a truth value.
    pub fn boolean(&mut self, name: &str, value: bool) {
        self.name(name);
        self.text.push_str(if value { "true" } else { "false" });
    }

    /// Adds an object.
    pub fn nested(&mut self, name: &str, fill: impl FnOnce(&mut Self)) {
        self.name(name);
        self.braces('{', '}', fill);
    }

    /// Adds an array.
    pub fn array(&mut self, name: &str, fill: impl FnOnce(&mut Self)) {
        self.name(name);
        self.braces('[', ']', fill);
    }

    /// Adds an object to an array.
    pub fn element(&mut self, fill: impl FnOnce(&mut Self)) {
        self.item();
        self.braces('{', '}', fill);
    }

    /// Adds a string of any bytes to an array.
    pub fn text_element(&mut self, value: &[u8]) {
        self.item();
        self.quote(value);
    }

    /// Adds a number to an array.
    pub fn number_element(&mut self, value: u64) {
        self.item();
        let _ = write!(self.text, "{value}");
    }

    fn braces(&mut self, open: char, close: char, fill: impl FnOnce(&mut Self)) {
        self.text.push(open);
        self.comma = false;
        fill(self);
        self.text.push(close);
        self.comma = true;
    }

    /// Closes the object and appends it as one line.
    pub fn finish(mut self, lines: &mut Vec<u8>) {
        self.text.push_str("}\n");
        lines.extend_from_slice(self.text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn writes_nested_members() {
        let mut json = Json::object();
        json.string("a", "x\"y");
        json.nested("b", |json| {
            json.number("c", 1);
            json.boolean("d", true);
        });
        json.array("e", |json| {
            json.text_element(b"f");
            json.element(|json| json.number("g", 2));
        });
        json.nested("h", |_| {});
        let mut lines = Vec::new();
        json.finish(&mut lines);
        assert_eq!(lines, b"{\"a\":\"x\\\"y\",\"b\":{\"c\":1,\"d\":true},\"e\":[\"f\",{\"g\":2}],\"h\":{}}\n");
    }

    proptest! {
        #[test]
        fn any_bytes_are_valid(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut json = Json::object();
            json.bytes("a", &bytes);
            let mut lines = Vec::new();
            json.finish(&mut lines);
            let value: serde_json::Value = serde_json::from_slice(&lines).unwrap();
            let text = value["a"].as_str().unwrap();
            match std::str::from_utf8(&bytes) {
                Ok(utf8) => prop_assert_eq!(text, utf8),
                Err(_) => prop_assert_eq!(text.chars().count(), bytes.len()),
            }
        }
    }
}
