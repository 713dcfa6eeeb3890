//! The pattern file: one pattern a line, in the spelling of a rule's `content`.
//!
//! ```text
//! # comment
//! GET /etc/passwd
//! |4d 5a|\|not hexadecimal\|
//! ```
//!
//! Every byte of the line counts, spaces at its ends too. Between two `|` stand bytes in hexadecimal, with or without
//! spaces between them. `\` takes the next of `| \ # " : ;` as it is. Lines end in LF or CRLF; empty lines
//! and lines that begin with `#` are skipped.

/// The patterns of `text`, in their order.
///
/// # Errors
/// The line, counted from 1, and what is wrong with it.
pub fn parse(text: &[u8]) -> Result<Vec<Vec<u8>>, (usize, String)> {
    let mut patterns = Vec::new();
    for (line, spelled) in (1..).zip(text.split(|&byte| byte == b'\n')) {
        let spelled = spelled.strip_suffix(b"\r").unwrap_or(spelled);
        if spelled.is_empty() || spelled[0] == b'#' {
            continue;
        }
        patterns.push(parse_pattern(spelled).map_err(|message| (line, message))?);
    }
    Ok(patterns)
}

/// One pattern.
///
/// # Errors
/// What is wrong with its spelling.
pub fn parse_pattern(spelled: &[u8]) -> Result<Vec<u8>, String> {
    let mut pattern = Vec::with_capacity(spelled.len());
    let mut rest = spelled;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            b'|' => rest = parse_hex(rest, &mut pattern)?,
            b'\\' => match rest.split_first() {
                Some((&escaped @ (b'|' | b'\\' | b'#' | b'"' | b':' | b';'), tail)) => {
                    pattern.push(escaped);
                    rest = tail;
                }
                _ => return Err("a \\ must stand before one of | \\ # \" : ; (write \\\\ for itself)".to_owned()),
            },
            _ => pattern.push(byte),
        }
    }
    if pattern.is_empty() {
        return Err("the pattern has no bytes".to_owned());
    }
    Ok(pattern)
}

/// Appends the bytes up to the closing `|`; returns what is behind it.
fn parse_hex<'a>(mut rest: &'a [u8], pattern: &mut Vec<u8>) -> Result<&'a [u8], String> {
    loop {
        match *rest {
            [b' ', ref tail @ ..] => rest = tail,
            [b'|', ref tail @ ..] => return Ok(tail),
            [high, low, ref tail @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                pattern.push(digit(high) << 4 | digit(low));
                rest = tail;
            }
            [] => return Err("a | is not closed (write \\| for itself)".to_owned()),
            _ => return Err("between two | stand pairs of hexadecimal digits, as in |0d 0a|".to_owned()),
        }
    }
}

/// The value of a hexadecimal digit.
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
    fn all_spellings() {
        let text = b"# comment\n\nGET /\r\n a \n|41 42|c|4344|\n\\#\\|\\\\\\;\\:\\\"#\n|00|\xff";
        let expected: [&[u8]; 5] = [b"GET /", b" a ", b"ABcCD", b"#|\\;:\"#", b"\x00\xff"];
        assert_eq!(parse(text).unwrap(), expected);
        assert_eq!(parse(b"").unwrap(), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn wrong_lines_are_named() {
        for (text, line, part) in [
            (&b"a\nb|41"[..], 2, "not closed"),
            (b"|4|", 1, "hexadecimal"),
            (b"|4g|", 1, "hexadecimal"),
            (b"|4 1|", 1, "hexadecimal"),
            (b"#\n#\n||", 3, "no bytes"),
            (b"\\n", 1, "must stand before"),
            (b"a\\", 1, "must stand before"),
        ] {
            let (at, message) = parse(text).unwrap_err();
            assert!(at == line && message.contains(part), "{at}: {message}");
        }
    }

    proptest! {
        #[test]
        fn any_pattern_can_be_spelled(pattern in prop::collection::vec(any::<u8>(), 1..40), hex: bool) {
            let mut spelled = Vec::new();
            for &byte in &pattern {
                match byte {
                    b'|' | b'\\' | b'#' if !hex => spelled.extend([b'\\', byte]),
                    b'\r' | b'\n' => spelled.extend(format!("|{byte:02x}|").bytes()),
                    _ if hex => spelled.extend(format!("|{byte:02X} |").bytes()),
                    _ => spelled.push(byte),
                }
            }
            spelled.push(b'\n');
            prop_assert_eq!(parse(&spelled), Ok(vec![pattern]));
        }

        #[test]
        fn no_bytes_panic(text: Vec<u8>) {
            let _ = parse(&text);
        }
    }
}
