//! Parser of the pattern file. It has one pattern per line, in the syntax of the `content` option
//! of a Snort rule.
//!
//! ```text
//! # comment
//! GET /etc/passwd
//! |4d 5a|\|not hexadecimal\|
//! ```
//!
//! Every byte of a line belongs to the pattern, including spaces at its ends. Between two `|`,
//! bytes are hexadecimal, with or without spaces between them. `\` makes the next of `| \ # " : ;`
//! literal. Lines end in LF or CRLF. Empty lines and lines that begin with `#` are skipped.

use crate::Error;

/// Parses the text of a pattern file. Returns its patterns in order.
///
/// # Errors
/// Returns the line number, counted from 1, and the problem.
pub fn parse(text: &[u8]) -> Result<Vec<Vec<u8>>, (usize, String)> {
    let mut patterns = Vec::new();
    for (line, line_text) in (1..).zip(text.split(|&byte| byte == b'\n')) {
        let line_text = line_text.strip_suffix(b"\r").unwrap_or(line_text);
        if line_text.is_empty() || line_text[0] == b'#' {
            continue;
        }
        patterns.push(parse_pattern(line_text).map_err(|error| (line, error.to_string()))?);
    }
    Ok(patterns)
}

/// Parses one pattern.
///
/// # Errors
/// Returns the problem.
pub fn parse_pattern(line_text: &[u8]) -> Result<Vec<u8>, Error> {
    let mut pattern = Vec::with_capacity(line_text.len());
    let mut rest = line_text;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            b'|' => rest = parse_hex(rest, &mut pattern)?,
            b'\\' => match rest.split_first() {
                Some((&escaped @ (b'|' | b'\\' | b'#' | b'"' | b':' | b';'), tail)) => {
                    pattern.push(escaped);
                    rest = tail;
                }
                _ => {
                    return Err(Error::value(
                        "a \\ must be followed by one of | \\ # \" : ; (write \\\\ for a literal backslash)",
                    ));
                }
            },
            _ => pattern.push(byte),
        }
    }
    if pattern.is_empty() {
        return Err(Error::value("the pattern is empty"));
    }
    Ok(pattern)
}

/// Returns the text of a pattern, as the inverse of [`parse_pattern`].
pub(crate) fn text(pattern: &[u8]) -> String {
    let mut text = String::new();
    for &byte in pattern {
        match byte {
            b'|' | b'\\' | b'#' | b'"' | b':' | b';' => text.extend(['\\', char::from(byte)]),
            b'!'..=b'~' => text.push(char::from(byte)),
            _ => text += &format!("|{byte:02x}|"),
        }
    }
    text
}

/// Parses hexadecimal digits up to the closing `|` and appends their bytes to `pattern`. Returns
/// the text after the `|`.
fn parse_hex<'a>(mut rest: &'a [u8], pattern: &mut Vec<u8>) -> Result<&'a [u8], Error> {
    loop {
        match *rest {
            [b' ', ref tail @ ..] => rest = tail,
            [b'|', ref tail @ ..] => return Ok(tail),
            [high, low, ref tail @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                pattern.push(digit(high) << 4 | digit(low));
                rest = tail;
            }
            [] => return Err(Error::value("a | is not closed (write \\| for a literal bar)")),
            _ => return Err(Error::value("expected pairs of hexadecimal digits between two |, such as |0d 0a|")),
        }
    }
}

/// Returns the value of a hexadecimal digit.
fn digit(character: u8) -> u8 {
    match character {
        b'0'..=b'9' => character - b'0',
        letter => letter.to_ascii_lowercase() - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_syntax_is_parsed() {
        let text = b"# comment\n\nGET /\r\n a \n|41 42|c|4344|\n\\#\\|\\\\\\;\\:\\\"#\n|00|\xff";
        let expected: [&[u8]; 5] = [b"GET /", b" a ", b"ABcCD", b"#|\\;:\"#", b"\x00\xff"];
        assert_eq!(parse(text).unwrap(), expected);
        assert_eq!(parse(b"").unwrap(), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn errors_contain_the_line() {
        for (text, line, part) in [
            (&b"a\nb|41"[..], 2, "not closed"),
            (b"|4|", 1, "hexadecimal"),
            (b"|4g|", 1, "hexadecimal"),
            (b"|4 1|", 1, "hexadecimal"),
            (b"#\n#\n||", 3, "is empty"),
            (b"\\n", 1, "must be followed by"),
            (b"a\\", 1, "must be followed by"),
        ] {
            let (at, message) = parse(text).unwrap_err();
            assert!(at == line && message.contains(part), "{at}: {message}");
        }
    }

    proptest! {
        #[test]
        fn every_pattern_can_be_written(pattern in prop::collection::vec(any::<u8>(), 1..40), hex: bool) {
            let mut line_text = Vec::new();
            for &byte in &pattern {
                match byte {
                    b'|' | b'\\' | b'#' if !hex => line_text.extend([b'\\', byte]),
                    b'\r' | b'\n' => line_text.extend(format!("|{byte:02x}|").bytes()),
                    _ if hex => line_text.extend(format!("|{byte:02X} |").bytes()),
                    _ => line_text.push(byte),
                }
            }
            line_text.push(b'\n');
            prop_assert_eq!(parse(&line_text), Ok(vec![pattern]));
        }

        #[test]
        fn no_bytes_panic(text: Vec<u8>) {
            let _ = parse(&text);
        }
    }
}
