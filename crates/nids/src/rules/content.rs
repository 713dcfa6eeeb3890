//! Parses the rule option `content`, which searches for a byte string, and the modifiers that
//! restrict the search.

/// Value in a rule option: a constant, or a variable from `byte_extract` or `byte_math`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// Constant number in the rule.
    Number(i64),
    /// Index of a variable of the rule.
    Variable(u8),
}

/// Byte string that a field must contain, or must not contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// Bytes to search for. With `nocase`, they are in lower case.
    pub bytes: Box<[u8]>,
    /// Whether ASCII letters match in both cases.
    pub nocase: bool,
    /// Whether the test succeeds if the bytes do not occur.
    pub negated: bool,
    /// First position in the inspected field at which the match may start.
    pub offset: Option<Value>,
    /// Number of bytes after `offset` within which the match must lie.
    pub depth: Option<Value>,
    /// First position at which the match may start, counted from the end of the previous match.
    pub distance: Option<Value>,
    /// Maximum number of bytes from the first permitted start to the end of the match.
    pub within: Option<Value>,
    /// Whether the bytes match only at the start of the field.
    pub starts: bool,
    /// Whether the bytes match only at the end of the field.
    pub ends: bool,
    /// Whether a later test starts where this match ends.
    pub relative_next: bool,
    /// Whether the rule selects this byte string for the prefilter (`fast_pattern`).
    pub fast_pattern: bool,
    /// Offset and length of the part that the prefilter uses.
    pub fast_part: Option<(u16, u16)>,
}

impl Content {
    /// Parses a quoted byte string such as `"GET |20 2f|"`.
    pub fn parse(spelling: &str, negated: bool) -> Result<Self, &'static str> {
        let bytes = decode(spelling)?;
        if bytes.is_empty() {
            return Err("the byte string is empty");
        }
        if bytes.len() > 65535 {
            return Err("the byte string exceeds 65535 bytes");
        }
        Ok(Self {
            bytes: bytes.into(),
            nocase: false,
            negated,
            offset: None,
            depth: None,
            distance: None,
            within: None,
            starts: false,
            ends: false,
            relative_next: false,
            fast_pattern: false,
            fast_part: None,
        })
    }

    /// Makes the comparison of the bytes case-insensitive.
    pub fn set_nocase(&mut self) {
        self.nocase = true;
        self.bytes.make_ascii_lowercase();
    }

    /// Returns whether the search range depends on the previous match.
    pub fn is_relative(&self) -> bool {
        self.distance.is_some() || self.within.is_some()
    }
}

/// Decodes a quoted byte string. Bytes between bars are hexadecimal. A backslash precedes `"`, `;`,
/// `:`, `\` and `|`. Every other character is one Latin-1 byte.
pub fn decode(spelling: &str) -> Result<Vec<u8>, &'static str> {
    let mut bytes = Vec::with_capacity(spelling.len());
    let mut chars = spelling.chars().map(byte_of);
    let mut high: Option<u8> = None;
    let mut hex = false;
    while let Some(byte) = chars.next() {
        match byte {
            b'|' if hex && high.is_some() => return Err("a hexadecimal byte has one digit"),
            b'|' => hex = !hex,
            b' ' | b'\t' if hex => {}
            _ if hex => {
                let digit = (byte as char).to_digit(16).ok_or("a hexadecimal digit is not valid")? as u8;
                match high.take() {
                    Some(upper) => bytes.push(upper << 4 | digit),
                    None => high = Some(digit),
                }
            }
            b'\\' => bytes.push(chars.next().ok_or("a backslash ends the byte string")?),
            _ => bytes.push(byte),
        }
    }
    if hex { Err("a bar is not closed") } else { Ok(bytes) }
}

/// Returns the byte of a rule file character. Rule files are read as Latin-1, in which every byte
/// is one character.
pub fn byte_of(c: char) -> u8 {
    u8::try_from(u32::from(c)).unwrap_or(b'?')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_spellings() {
        assert_eq!(decode("GET|20 2f|x").unwrap(), b"GET /x");
        assert_eq!(decode(r#"a\"b\;c\\d\:\|"#).unwrap(), br#"a"b;c\d:|"#);
        assert_eq!(decode("|4142 43|").unwrap(), b"ABC");
        assert_eq!(decode("\u{e9}").unwrap(), [0xe9]);
    }

    #[test]
    fn rejects_bad_spellings() {
        for bad in ["|41", "|4|", "|4g|", "a\\"] {
            assert!(decode(bad).is_err(), "{bad}");
        }
        assert!(Content::parse("", false).is_err());
    }
}
