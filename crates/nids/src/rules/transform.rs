//! Transformations of a field before it is tested.

use crate::regex::Regex;

/// Transformation of a field before its tests.
#[derive(Debug, Clone, PartialEq)]
pub enum Transform {
    /// Writes a dot before the bytes.
    DotPrefix,
    /// Removes white space.
    StripWhitespace,
    /// Replaces runs of white space by one space.
    CompressWhitespace,
    /// Replaces the bytes by their MD5 digest.
    ToMd5,
    /// Replaces the bytes by their SHA-1 digest.
    ToSha1,
    /// Replaces the bytes by their SHA-256 digest.
    ToSha256,
    /// Keeps only the first capture group of a regular expression.
    Pcre(Regex),
    /// Decodes `%xx` and `+`.
    UrlDecode,
    /// Applies XOR with a repeated key, starting at `offset`.
    Xor {
        /// Key.
        key: Vec<u8>,
        /// Position of the first byte that changes.
        offset: usize,
    },
    /// Applies XOR with a key that is a part of the field.
    XorExtract {
        /// Position of the first byte that changes.
        offset: usize,
        /// Length of the key, in bytes.
        bytes: usize,
        /// Position of the key.
        from: usize,
    },
    /// Decodes Base64.
    FromBase64 {
        /// Maximum number of encoded bytes, or 0 for no limit.
        bytes: usize,
        /// Position of the first encoded byte.
        offset: usize,
        /// Treatment of characters outside the Base64 alphabet.
        mode: Base64Mode,
    },
    /// Converts ASCII letters to lower case.
    ToLowercase,
    /// Converts ASCII letters to upper case.
    ToUppercase,
    /// Converts the names of header lines to lower case.
    HeaderLowercase,
    /// Removes lines that begin with a colon.
    StripPseudoHeaders,
    /// Decompresses a zlib stream.
    ZlibDeflate {
        /// Maximum number of decompressed bytes.
        bytes_max: usize,
    },
    /// Decompresses a gzip stream.
    Gunzip {
        /// Maximum number of decompressed bytes.
        bytes_max: usize,
    },
}

/// Treatment of characters outside the Base64 alphabet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base64Mode {
    /// Such a character ends the decoding.
    Strict,
    /// Such characters are skipped (RFC 2045).
    Rfc2045,
    /// Only spaces are skipped (RFC 4648).
    Rfc4648,
}

/// Default limit of decompressed bytes.
const INFLATE_BYTES_MAX: usize = 1024;

/// Parses a keyword that transforms a field. Returns `None` for any other keyword.
pub fn parse(name: &str, value: Option<&str>) -> Option<Result<Transform, &'static str>> {
    let text = value.unwrap_or("");
    Some(Ok(match name {
        "dotprefix" => Transform::DotPrefix,
        "strip_whitespace" => Transform::StripWhitespace,
        "compress_whitespace" => Transform::CompressWhitespace,
        "to_md5" => Transform::ToMd5,
        "to_sha1" => Transform::ToSha1,
        "to_sha256" => Transform::ToSha256,
        "url_decode" => Transform::UrlDecode,
        "to_lowercase" => Transform::ToLowercase,
        "to_uppercase" => Transform::ToUppercase,
        "header_lowercase" => Transform::HeaderLowercase,
        "strip_pseudo_headers" => Transform::StripPseudoHeaders,
        "pcrexform" => {
            let pattern = super::text::unquote(text).1;
            match Regex::new(pattern, Default::default()) {
                Ok(regex) if regex.names().len() == 2 => Transform::Pcre(regex),
                Ok(_) => return Some(Err("the expression needs exactly one group")),
                Err(_) => return Some(Err("the expression is not supported")),
            }
        }
        "xor" => return Some(xor(text)),
        "from_base64" => return Some(from_base64(text)),
        "zlib_deflate" => return Some(bytes_max(text).map(|bytes_max| Transform::ZlibDeflate { bytes_max })),
        "gunzip" => return Some(bytes_max(text).map(|bytes_max| Transform::Gunzip { bytes_max })),
        _ => return None,
    }))
}

const BAD: &str = "the value of the transformation is not valid";

fn xor(text: &str) -> Result<Transform, &'static str> {
    let (mut offset, mut extract, mut key) = (0, None, None);
    for word in text.split(',').map(str::trim) {
        match word.split_whitespace().collect::<Vec<_>>()[..] {
            ["offset", number] => offset = number.parse().map_err(|_| BAD)?,
            ["extract", bytes, from] => {
                extract = Some((bytes.parse().map_err(|_| BAD)?, from.parse().map_err(|_| BAD)?));
            }
            [digits] => key = Some(hex(super::text::unquote(digits).1).ok_or(BAD)?),
            _ => return Err(BAD),
        }
    }
    match (key, extract) {
        (Some(key), None) if !key.is_empty() => Ok(Transform::Xor { key, offset }),
        (None, Some((bytes, from))) if bytes > 0 => Ok(Transform::XorExtract { offset, bytes, from }),
        _ => Err(BAD),
    }
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> =
        text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

fn from_base64(text: &str) -> Result<Transform, &'static str> {
    let (mut bytes, mut offset, mut mode) = (0, 0, Base64Mode::Rfc4648);
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        match word.split_whitespace().collect::<Vec<_>>()[..] {
            ["bytes", number] => bytes = number.parse().map_err(|_| BAD)?,
            ["offset", number] => offset = number.parse().map_err(|_| BAD)?,
            ["mode", "strict"] => mode = Base64Mode::Strict,
            ["mode", "rfc2045"] => mode = Base64Mode::Rfc2045,
            ["mode", "rfc4648"] => mode = Base64Mode::Rfc4648,
            _ => return Err(BAD),
        }
    }
    Ok(Transform::FromBase64 { bytes, offset, mode })
}

fn bytes_max(text: &str) -> Result<usize, &'static str> {
    match text.split_whitespace().collect::<Vec<_>>()[..] {
        [] => Ok(INFLATE_BYTES_MAX),
        ["max-size", number] => {
            super::number::parse_number(number).filter(|n| *n > 0 && *n <= 1 << 20).map(|n| n as usize).ok_or(BAD)
        }
        _ => Err(BAD),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_values() {
        let ok = |name, value| parse(name, value).unwrap().is_ok();
        assert!(ok("dotprefix", None) && ok("xor", Some("\"0d0ac8ff\"")) && ok("xor", Some("offset 1,extract 1 0")));
        assert!(ok("from_base64", Some(" offset 6 ")) && ok("zlib_deflate", Some(" max-size 8")));
        assert!(ok("pcrexform", Some(r#""[a-zA-Z]+\s+(.*)\s+HTTP""#)));
        assert!(!ok("xor", Some("0")) && !ok("pcrexform", Some("\"a\"")) && parse("content", None).is_none());
    }
}
