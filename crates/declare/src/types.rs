//! Types of fields, keys, rows and parameters.

use crate::error::{TypeError, suggest};

/// Type of a value of at most 16 bytes. It is stored as one number, or as two numbers for an IPv6
/// address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// Unsigned number of 1 to 64 bits, stored in 8, 16, 32 or 64 bits.
    Unsigned(u8),
    /// IPv4 address, stored as a number. Its first byte is the most significant byte.
    Ipv4,
    /// IPv6 address, stored as two 64-bit numbers. The first one holds the upper half.
    Ipv6,
    /// Ethernet address of 48 bits. Its first byte is the most significant byte.
    Mac,
    /// Port number. Files and commands use port names instead.
    Port,
    /// Boolean, stored as 0 or 1.
    Bool,
}

impl Scalar {
    /// Parses the name of a scalar type.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "be16" => Self::Unsigned(16),
            "be32" => Self::Unsigned(32),
            "be64" => Self::Unsigned(64),
            "ipv4" => Self::Ipv4,
            "ipv6" => Self::Ipv6,
            "mac" => Self::Mac,
            "port" => Self::Port,
            "bool" => Self::Bool,
            _ => {
                let bits: u8 = name.strip_prefix('u')?.parse().ok().filter(|bits| (1..=64).contains(bits))?;
                // A name such as `u08` is invalid, although its number is 8.
                (format!("u{bits}") == name).then_some(Self::Unsigned(bits))?
            }
        })
    }

    /// Returns the name of the type in declarations.
    pub fn name(self) -> String {
        match self {
            Self::Unsigned(bits) => format!("u{bits}"),
            Self::Ipv4 => "ipv4".to_owned(),
            Self::Ipv6 => "ipv6".to_owned(),
            Self::Mac => "mac".to_owned(),
            Self::Port => "port".to_owned(),
            Self::Bool => "bool".to_owned(),
        }
    }

    /// Returns the number of significant bits of a value.
    pub fn bits(self) -> u32 {
        match self {
            Self::Unsigned(bits) => bits.into(),
            Self::Ipv4 => 32,
            Self::Ipv6 => 128,
            Self::Mac => 48,
            Self::Port => 16,
            Self::Bool => 1,
        }
    }

    /// Returns the size of one stored number, in bytes.
    pub fn word_bytes(self) -> usize {
        match self.bits() {
            0..=8 => 1,
            9..=16 => 2,
            17..=32 => 4,
            _ => 8,
        }
    }

    /// Returns the number of integers that store a value.
    pub fn words(self) -> usize {
        if self == Self::Ipv6 { 2 } else { 1 }
    }

    /// Returns the type of one stored number in C.
    pub(crate) fn c_word(self) -> &'static str {
        c_unsigned(self.word_bytes())
    }
}

/// Returns the unsigned C type of `bytes` bytes.
pub(crate) fn c_unsigned(bytes: usize) -> &'static str {
    match bytes {
        1 => "gw_u8",
        2 => "gw_u16",
        4 => "gw_u32",
        _ => "gw_u64",
    }
}

/// Type of a struct field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldType {
    /// One value.
    Scalar(Scalar),
    /// An array of values.
    Array(Scalar, usize),
    /// Another struct of the function.
    Record(String),
    /// An array of another struct.
    Records(String, usize),
}

impl FieldType {
    /// Parses a type such as `u32`, `u64[4]`, or `slot[7]` for a struct called `slot`. `records`
    /// contains the names of all structs that are declared earlier.
    pub(crate) fn parse(text: &str, records: &[String]) -> Result<Self, TypeError> {
        let (name, count) = match text.split_once('[') {
            None => (text, None),
            Some((name, rest)) => {
                let count = rest.strip_suffix(']').and_then(|count| count.parse().ok()).filter(|&count| count > 0);
                (name, Some(count.ok_or_else(|| TypeError::Length(text.to_owned()))?))
            }
        };
        match (Scalar::parse(name), count) {
            (Some(scalar), None) => Ok(Self::Scalar(scalar)),
            (Some(scalar), Some(count)) => Ok(Self::Array(scalar, count)),
            (None, count) if records.iter().any(|record| record == name) => Ok(match count {
                None => Self::Record(name.to_owned()),
                Some(count) => Self::Records(name.to_owned(), count),
            }),
            (None, _) => {
                let known = ["u8", "u16", "u32", "u64", "be16", "be32", "be64", "ipv4", "ipv6", "mac", "port", "bool"];
                let known: Vec<&str> = known.into_iter().chain(records.iter().map(String::as_str)).collect();
                Err(TypeError::Unknown { name: name.to_owned(), remedy: suggest(name, &known) })
            }
        }
    }
}

/// Field of a struct, key or row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name of the field.
    pub name: String,
    /// Type of the field.
    pub kind: FieldType,
    /// Meaning of the field. It may be empty.
    pub text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_types_are_parsed() {
        for (text, expected) in [
            ("u8", FieldType::Scalar(Scalar::Unsigned(8))),
            ("u12", FieldType::Scalar(Scalar::Unsigned(12))),
            ("be32", FieldType::Scalar(Scalar::Unsigned(32))),
            ("mac", FieldType::Scalar(Scalar::Mac)),
            ("u64[4]", FieldType::Array(Scalar::Unsigned(64), 4)),
            ("slot", FieldType::Record("slot".to_owned())),
            ("slot[7]", FieldType::Records("slot".to_owned(), 7)),
        ] {
            assert_eq!(FieldType::parse(text, &["slot".to_owned()]), Ok(expected), "{text}");
        }
    }

    #[test]
    fn unknown_types_are_refused_with_a_suggestion() {
        for (text, part) in [("u65", "u64"), ("u08", "u8"), ("be23", "be32"), ("u8[0]", "above 0"), ("float", "known")]
        {
            let message = FieldType::parse(text, &[]).unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn numbers_use_the_smallest_word() {
        for (bits, bytes) in [(1, 1), (8, 1), (9, 2), (12, 2), (16, 2), (17, 4), (33, 8), (64, 8)] {
            assert_eq!(Scalar::Unsigned(bits).word_bytes(), bytes, "u{bits}");
        }
        assert_eq!((Scalar::Ipv6.word_bytes(), Scalar::Ipv6.words()), (8, 2));
    }
}
