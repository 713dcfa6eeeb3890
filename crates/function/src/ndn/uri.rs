//! Converts names from and to NDN URIs (NDN Packet Format 0.3, section "NDN URI Scheme", and the
//! NDN naming conventions).

use std::fmt::Write as _;

use crate::Error;

/// Component types that have a name in NDN URIs, each with its type number and value format.
const NAMED: [(&str, u16, Form); 7] = [
    ("sha256digest", 1, Form::Hex),
    ("params-sha256", 2, Form::Hex),
    ("seg", 50, Form::Number),
    ("off", 52, Form::Number),
    ("v", 54, Form::Number),
    ("t", 56, Form::Number),
    ("seq", 58, Form::Number),
];
const GENERIC: u16 = 8;
const DIGEST_BYTES: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Hex,
    Number,
}

/// Parses a URI and appends its components to `out`, in the encoding of a Name element. Returns the
/// number of components.
///
/// # Errors
/// Returns an error if the URI is invalid.
pub fn parse(text: &[u8], out: &mut Vec<u8>) -> Result<u32, Error> {
    let path = text.strip_prefix(b"ndn:").unwrap_or(text);
    let Some(path) = path.strip_prefix(b"/") else {
        return Err(Error::value(format!(
            "\"{}\" is not a name such as /example/site: it does not begin with /",
            quote(text)
        )));
    };
    if path.is_empty() {
        return Ok(0);
    }
    let mut components = 0;
    for component in path.split(|&byte| byte == b'/') {
        append(component, out).map_err(|error| Error::value(format!("\"{}\": {error}", quote(text))))?;
        components += 1;
    }
    Ok(components)
}

fn append(text: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    if text.is_empty() {
        return Err(Error::value("nothing between two /: write an empty component as ..."));
    }
    let (kind, text) = match text.iter().position(|&byte| byte == b'=') {
        None => (GENERIC, text),
        Some(at) => {
            let (kind, value) = (&text[..at], &text[at + 1..]);
            if let Some((_, kind, form)) = NAMED.iter().find(|(name, ..)| name.as_bytes() == kind) {
                emit(*kind, &formed(*form, value)?, out);
                return Ok(());
            }
            let number = std::str::from_utf8(kind).ok().filter(|text| !text.starts_with(['0', '+']));
            let Some(kind) = number.and_then(|text| text.parse::<u16>().ok()) else {
                return Err(Error::value(format!(
                    "\"{}\" is not a component type, which is 1 to 65535: write a literal = as %3D",
                    quote(kind)
                )));
            };
            (kind, value)
        }
    };
    let mut value = Vec::with_capacity(text.len());
    if text.iter().all(|&byte| byte == b'.') {
        let Some(periods) = text.len().checked_sub(3) else {
            return Err(Error::value("a component that consists of periods must be written with three more periods"));
        };
        value.resize(periods, b'.');
    } else {
        unescape(text, &mut value)?;
    }
    if matches!(kind, 1 | 2) && value.len() != DIGEST_BYTES {
        return Err(Error::value(format!("a digest has 32 bytes, but this value has {}", value.len())));
    }
    emit(kind, &value, out);
    Ok(())
}

fn formed(form: Form, text: &[u8]) -> Result<Vec<u8>, Error> {
    match form {
        Form::Hex => {
            let digits = text.as_chunks::<2>();
            let bytes: Option<Vec<u8>> =
                digits.0.iter().map(|&[high, low]| Some(hex(high)? << 4 | hex(low)?)).collect();
            bytes
                .filter(|bytes| bytes.len() == DIGEST_BYTES && digits.1.is_empty())
                .ok_or_else(|| Error::value("a digest must be written as 64 hexadecimal digits"))
        }
        Form::Number => {
            let number = std::str::from_utf8(text).ok().filter(|text| !text.starts_with('+'));
            let number: u64 = number.and_then(|text| text.parse().ok()).ok_or_else(|| {
                Error::value(format!("\"{}\" is not a number up to 18446744073709551615", quote(text)))
            })?;
            // The number is encoded in 1, 2, 4 or 8 bytes, whichever is the shortest that fits.
            let bytes = number.to_be_bytes();
            Ok(match number {
                0..=0xff => bytes[7..].to_vec(),
                0x100..=0xffff => bytes[6..].to_vec(),
                0x1_0000..=0xffff_ffff => bytes[4..].to_vec(),
                _ => bytes.to_vec(),
            })
        }
    }
}

fn unescape(text: &[u8], value: &mut Vec<u8>) -> Result<(), Error> {
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        if byte != b'%' {
            value.push(byte);
            at += 1;
            continue;
        }
        let digits = (text.get(at + 1).and_then(|&high| hex(high))).zip(text.get(at + 2).and_then(|&low| hex(low)));
        let Some((high, low)) = digits else {
            return Err(Error::value("% must be followed by two hexadecimal digits"));
        };
        value.push(high << 4 | low);
        at += 3;
    }
    Ok(())
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// Appends one component.
fn emit(kind: u16, value: &[u8], out: &mut Vec<u8>) {
    number(u32::from(kind), out);
    number(value.len() as u32, out);
    out.extend(value);
}

/// Appends a number in its shortest form.
fn number(value: u32, out: &mut Vec<u8>) {
    match value {
        0..=252 => out.push(value as u8),
        253..=0xffff => {
            out.push(253);
            out.extend((value as u16).to_be_bytes());
        }
        _ => {
            out.push(254);
            out.extend(value.to_be_bytes());
        }
    }
}

/// Returns the URI of an NDN name. `name` must be the valid value of a Name element, without the
/// type and length.
pub fn show(mut name: &[u8]) -> String {
    let mut text = String::new();
    while !name.is_empty() {
        let (Some(kind), Some(length)) = (take_number(&mut name), take_number(&mut name)) else { break };
        let (value, rest) = name.split_at(name.len().min(length));
        name = rest;
        text.push('/');
        match NAMED.iter().find(|(_, named, _)| usize::from(*named) == kind) {
            Some((word, _, Form::Hex)) => {
                let _ = write!(text, "{word}=");
                value.iter().for_each(|byte| text.push_str(&format!("{byte:02x}")));
                continue;
            }
            Some((word, _, Form::Number)) if is_shortest(value) => {
                let number = value.iter().fold(0u64, |number, &byte| number << 8 | u64::from(byte));
                let _ = write!(text, "{word}={number}");
                continue;
            }
            _ if kind != usize::from(GENERIC) => {
                let _ = write!(text, "{kind}=");
            }
            _ => {}
        }
        if value.iter().all(|&byte| byte == b'.') {
            text.push_str("...");
        }
        for &byte in value {
            match byte {
                b'-' | b'.' | b'_' | b'~' => text.push(char::from(byte)),
                _ if byte.is_ascii_alphanumeric() => text.push(char::from(byte)),
                _ => {
                    let _ = write!(text, "%{byte:02X}");
                }
            }
        }
    }
    if text.is_empty() { "/".to_owned() } else { text }
}

fn is_shortest(value: &[u8]) -> bool {
    match value.len() {
        1 => true,
        2 => value[0] != 0,
        4 => value[..2] != [0; 2],
        8 => value[..4] != [0; 4],
        _ => false,
    }
}

fn take_number(bytes: &mut &[u8]) -> Option<usize> {
    let (&first, rest) = bytes.split_first()?;
    let length = match first {
        253 => 2,
        254 => 4,
        _ => 0,
    };
    let (number, rest) = rest.split_at_checked(length)?;
    *bytes = rest;
    Some(if length == 0 {
        usize::from(first)
    } else {
        number.iter().fold(0, |sum, &byte| sum << 8 | usize::from(byte))
    })
}

/// Returns the first 80 bytes of a text in printable form, for an error message.
pub(super) fn quote(text: &[u8]) -> String {
    String::from_utf8_lossy(&text[..text.len().min(80)]).escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        parse(text.as_bytes(), &mut out).map(|_| out).map_err(|error| error.to_string())
    }

    #[test]
    fn names_are_parsed_as_specified() {
        let digest = "28bad4b5275bd392dbb670c75cf0b66f13f7942021e80f55c0e86b374753a548";
        for (text, bytes) in [
            ("/", vec![]),
            ("ndn:/", vec![]),
            ("/A", vec![8, 1, b'A']),
            ("ndn:/A/b%2fc", vec![8, 1, b'A', 8, 3, b'b', b'/', b'c']),
            ("/...", vec![8, 0]),
            ("/....", vec![8, 1, b'.']),
            ("/a..", vec![8, 3, b'a', b'.', b'.']),
            ("/32=key", vec![32, 3, b'k', b'e', b'y']),
            ("/253=x", vec![253, 0, 253, 1, b'x']),
            ("/65535=...", vec![253, 255, 255, 0]),
            ("/seg=256", vec![50, 2, 1, 0]),
            ("/v=4294967296", vec![54, 8, 0, 0, 0, 1, 0, 0, 0, 0]),
        ] {
            assert_eq!(parsed(text).as_deref(), Ok(&bytes[..]), "{text}");
        }
        let with_digest = parsed(&format!("/a/sha256digest={digest}")).unwrap();
        assert_eq!((with_digest.len(), &with_digest[..6]), (37, &[8, 1, b'a', 1, 32, 0x28][..]));
        assert_eq!(show(&with_digest), format!("/a/sha256digest={digest}"));
        for (text, part) in [
            ("A", "does not begin with /"),
            ("", "does not begin with /"),
            ("//a", "nothing between two /"),
            ("/a/", "nothing between two /"),
            ("/.", "three more"),
            ("/..", "three more"),
            ("/a%2", "two hexadecimal"),
            ("/a%zz", "two hexadecimal"),
            ("/0=a", "1 to 65535"),
            ("/65536=a", "1 to 65535"),
            ("/x=a", "%3D"),
            ("/1=abc", "32 bytes"),
            ("/sha256digest=00", "64 hexadecimal"),
            ("/seg=x", "not a number"),
            ("/seg=18446744073709551616", "not a number"),
        ] {
            let message = parsed(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    proptest! {
        #[test]
        fn shown_names_can_be_parsed(components in prop::collection::vec((1u16.., prop::collection::vec(any::<u8>(), 0..300)), 0..6)) {
            let mut name = Vec::new();
            for (kind, value) in &components {
                let digest = [7; 32];
                emit(*kind, if *kind <= 2 { &digest } else { value }, &mut name);
            }
            let text = show(&name);
            prop_assert_eq!(parsed(&text), Ok(name), "{}", text);
        }

        #[test]
        fn no_bytes_panic(text: Vec<u8>) {
            let mut out = Vec::new();
            let _ = parse(&text, &mut out);
            let _ = show(&text);
        }
    }
}
