//! Parser of a file of digests, as `md5sum`, `sha1sum` and `sha256sum` write it.
//!
//! ```text
//! # comment
//! d41d8cd98f00b204e9800998ecf8427e  an empty packet
//! ```
//!
//! A line begins with a digest in hexadecimal. After a space or a tab, the rest of the line is a
//! comment. Lines end in LF or CRLF. Empty lines and lines that begin with `#` are skipped.

use super::Algorithm;

/// Digest of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Digest, followed by zeros.
    pub digest: [u8; 32],
    /// Line of the digest in its file, from 1.
    pub line: u32,
}

/// Parses the text of a file of digests, in the order of its lines.
///
/// # Errors
/// Returns the line number, counted from 1, and the problem.
pub fn parse(text: &[u8], algorithm: Algorithm) -> Result<Vec<Listed>, (usize, String)> {
    let mut listed = Vec::new();
    for (line, line_text) in (1..).zip(text.split(|&byte| byte == b'\n')) {
        let line_text = line_text.strip_suffix(b"\r").unwrap_or(line_text);
        if line_text.is_empty() || line_text[0] == b'#' {
            continue;
        }
        let digits = line_text.split(|byte| matches!(byte, b' ' | b'\t')).next().unwrap_or_default();
        let digest = decode(digits, algorithm.digest_bytes()).ok_or_else(|| {
            let (name, digits) = (algorithm.name(), 2 * algorithm.digest_bytes());
            (line, format!("the line must begin with a digest of {name}, which has {digits} hex digits"))
        })?;
        let number = u32::try_from(line).map_err(|_| (line, "the file has too many lines".to_owned()))?;
        listed.push(Listed { digest, line: number });
    }
    Ok(listed)
}

fn decode(digits: &[u8], bytes: usize) -> Option<[u8; 32]> {
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    if pairs.len() != bytes {
        return None;
    }
    let nibble = |digit: u8| char::from(digit).to_digit(16);
    let mut digest = [0; 32];
    for (byte, [high, low]) in digest.iter_mut().zip(pairs) {
        // Both digits are below 16, so the result fits into a byte.
        *byte = (nibble(*high)? << 4 | nibble(*low)?) as u8;
    }
    Some(digest)
}
