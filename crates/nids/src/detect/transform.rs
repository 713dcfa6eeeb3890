//! Applies transformations, such as decoding, to fields before they are tested.

use crate::regex::Cache;
use crate::rules::transform::{Base64Mode, Transform};
use std::io::Read;

/// Returns the field after all transformations.
pub(super) fn apply(transforms: &[Transform], bytes: &[u8], cache: &mut Cache) -> Vec<u8> {
    transforms.iter().fold(bytes.to_vec(), |bytes, transform| one(transform, bytes, cache))
}

fn one(transform: &Transform, mut bytes: Vec<u8>, cache: &mut Cache) -> Vec<u8> {
    match transform {
        Transform::DotPrefix => {
            bytes.insert(0, b'.');
            bytes
        }
        Transform::StripWhitespace => {
            bytes.retain(|byte| !is_space(*byte));
            bytes
        }
        Transform::CompressWhitespace => {
            let mut previous = false;
            bytes.retain(|byte| {
                let space = is_space(*byte);
                !(std::mem::replace(&mut previous, space) && space)
            });
            bytes
        }
        Transform::ToMd5 => super::digest::md5(&bytes).to_vec(),
        Transform::ToSha1 => super::digest::sha1(&bytes).to_vec(),
        Transform::ToSha256 => super::digest::sha256(&bytes).to_vec(),
        Transform::Pcre(regex) => {
            let mut slots = [None; 4];
            match regex.find(&bytes, cache, &mut slots) {
                true => slots[2].zip(slots[3]).map(|(low, high)| bytes[low..high].to_vec()).unwrap_or_default(),
                false => bytes,
            }
        }
        Transform::UrlDecode => url_decode(&bytes),
        Transform::Xor { key, offset } => xor(bytes, key, *offset),
        Transform::XorExtract { offset, bytes: count, from } => match bytes.get(*from..from + count) {
            Some(key) => {
                let key = key.to_vec();
                xor(bytes, &key, *offset)
            }
            None => bytes,
        },
        Transform::FromBase64 { bytes: count, offset, mode } => {
            let encoded = bytes.get(*offset..).unwrap_or(&[]);
            let encoded = if *count > 0 { &encoded[..encoded.len().min(*count)] } else { encoded };
            let decoded = decode_base64(encoded, *mode);
            if decoded.is_empty() { bytes } else { decoded }
        }
        Transform::ToLowercase => {
            bytes.make_ascii_lowercase();
            bytes
        }
        Transform::ToUppercase => {
            bytes.make_ascii_uppercase();
            bytes
        }
        Transform::HeaderLowercase => {
            let mut in_name = true;
            for byte in &mut bytes {
                match byte {
                    b':' => in_name = false,
                    b'\n' => in_name = true,
                    _ if in_name => byte.make_ascii_lowercase(),
                    _ => {}
                }
            }
            bytes
        }
        Transform::StripPseudoHeaders => bytes
            .split_inclusive(|byte| *byte == b'\n')
            .filter(|line| !line.starts_with(b":"))
            .flatten()
            .copied()
            .collect(),
        Transform::ZlibDeflate { bytes_max } => inflate(flate2::read::ZlibDecoder::new(&bytes[..]), *bytes_max),
        Transform::Gunzip { bytes_max } => inflate(flate2::read::GzDecoder::new(&bytes[..]), *bytes_max),
    }
}

fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

fn xor(mut bytes: Vec<u8>, key: &[u8], offset: usize) -> Vec<u8> {
    for (byte, key) in bytes.iter_mut().skip(offset).zip(key.iter().cycle()) {
        *byte ^= key;
    }
    bytes
}

fn inflate(decoder: impl Read, bytes_max: usize) -> Vec<u8> {
    let mut decoded = Vec::new();
    // If the data has an error, the bytes before it are kept.
    let _ = decoder.take(bytes_max as u64).read_to_end(&mut decoded);
    decoded
}

fn url_decode(bytes: &[u8]) -> Vec<u8> {
    let digit = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match (bytes[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                decoded.push((high << 4 | low) as u8);
                at += 3;
            }
            (b'+', ..) => {
                decoded.push(b' ');
                at += 1;
            }
            (byte, ..) => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    decoded
}

/// Decodes Base64 as far as it is valid.
pub(super) fn decode_base64(encoded: &[u8], mode: Base64Mode) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(encoded.len() / 4 * 3);
    let (mut bits, mut count) = (0u32, 0);
    for byte in encoded {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' => break,
            b' ' if mode != Base64Mode::Strict => continue,
            _ if mode == Base64Mode::Rfc2045 => continue,
            _ => break,
        };
        bits = bits << 6 | u32::from(six);
        count += 1;
        if count == 4 {
            decoded.extend_from_slice(&bits.to_be_bytes()[1..]);
            (bits, count) = (0, 0);
        }
    }
    match count {
        2 => decoded.push((bits >> 4) as u8),
        3 => decoded.extend_from_slice(&[(bits >> 10) as u8, (bits >> 2) as u8]),
        _ => {}
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply_one(transform: Transform, bytes: &[u8]) -> Vec<u8> {
        apply(&[transform], bytes, &mut Cache::new())
    }

    #[test]
    fn transforms_bytes() {
        assert_eq!(apply_one(Transform::DotPrefix, b"a.b"), b".a.b");
        assert_eq!(apply_one(Transform::StripWhitespace, b" a\tb\n"), b"ab");
        assert_eq!(apply_one(Transform::CompressWhitespace, b"a  \tb"), b"a b");
        assert_eq!(apply_one(Transform::UrlDecode, b"%2fa+%zz"), b"/a %zz");
        assert_eq!(apply_one(Transform::Xor { key: vec![1, 2], offset: 1 }, b"abc"), [b'a', b'b' ^ 1, b'c' ^ 2]);
        assert_eq!(apply_one(Transform::HeaderLowercase, b"Ab: Cd\r\nEf: G"), b"ab: Cd\r\nef: G");
        assert_eq!(apply_one(Transform::ToMd5, b"")[..4], [0xd4, 0x1d, 0x8c, 0xd9]);
        assert_eq!(apply_one(Transform::ToSha1, b"")[..4], [0xda, 0x39, 0xa3, 0xee]);
        assert_eq!(apply_one(Transform::ToSha256, b"")[..4], [0xe3, 0xb0, 0xc4, 0x42]);
    }

    #[test]
    fn decodes_base64_as_far_as_valid() {
        assert_eq!(decode_base64(b"aGVsbG8=", Base64Mode::Rfc4648), b"hello");
        assert_eq!(decode_base64(b"aGVs!G8=", Base64Mode::Strict), b"hel");
        assert_eq!(decode_base64(b"aG Vs\nbG8=", Base64Mode::Rfc2045), b"hello");
        assert_eq!(decode_base64(b"aGVsbG8", Base64Mode::Rfc4648), b"hello");
    }
}
