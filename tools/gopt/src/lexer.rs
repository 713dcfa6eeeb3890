//! Tokens of C, for text whose macros are not yet known.

/// Kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Identifier,
    Number,
    /// String or character constant.
    Literal,
    Punctuation,
    /// Complete preprocessor directive, including continuation lines.
    Directive,
}

/// Token and its byte offset. Comments and white space are not tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind,
    pub(crate) text: &'a str,
    pub(crate) start: usize,
}

impl Token<'_> {
    pub(crate) fn end(&self) -> usize {
        self.start + self.text.len()
    }
}

/// Returns all tokens of a text, in order.
pub(crate) fn tokens(text: &str) -> Vec<Token<'_>> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    let mut line_start = true;
    while at < bytes.len() {
        let start = at;
        let next = bytes.get(at + 1).copied();
        let kind = match bytes[at] {
            b'\n' => {
                line_start = true;
                at += 1;
                continue;
            }
            byte if byte.is_ascii_whitespace() || byte == b'\\' => {
                at += 1;
                continue;
            }
            b'/' if next == Some(b'/') => {
                at = line_end(bytes, at);
                continue;
            }
            b'/' if next == Some(b'*') => {
                at = comment_end(bytes, at);
                continue;
            }
            b'#' if line_start => {
                at = directive_end(bytes, at);
                Kind::Directive
            }
            b'"' | b'\'' => {
                at = literal_end(bytes, at);
                Kind::Literal
            }
            byte if byte == b'_' || byte.is_ascii_alphabetic() || byte >= 0x80 => {
                at = word_end(bytes, at);
                Kind::Identifier
            }
            byte if byte.is_ascii_digit() => {
                at = word_end(bytes, at);
                Kind::Number
            }
            _ => {
                at += 1;
                Kind::Punctuation
            }
        };
        line_start = false;
        found.push(Token { kind, text: &text[start..at], start });
    }
    found
}

fn word_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() && (bytes[at] == b'_' || bytes[at].is_ascii_alphanumeric() || bytes[at] >= 0x80) {
        at += 1;
    }
    at
}

/// Returns the end of the line, after any continuation lines.
fn line_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() && bytes[at] != b'\n' {
        let continued = bytes[at] == b'\\' && bytes.get(at + 1) == Some(&b'\n');
        at += if continued { 2 } else { 1 };
    }
    at
}

fn comment_end(bytes: &[u8], at: usize) -> usize {
    let body = &bytes[at + 2..];
    body.windows(2).position(|pair| pair == b"*/").map_or(bytes.len(), |length| at + 2 + length + 2)
}

fn literal_end(bytes: &[u8], at: usize) -> usize {
    let quote = bytes[at];
    let mut end = at + 1;
    while end < bytes.len() && bytes[end] != quote && bytes[end] != b'\n' {
        end += if bytes[end] == b'\\' { 2 } else { 1 };
    }
    (end + 1).min(bytes.len())
}

/// Returns the end of a directive. It ends with its line, but a comment in it may span several
/// lines.
fn directive_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() && bytes[at] != b'\n' {
        at = match (bytes[at], bytes.get(at + 1)) {
            (b'\\', Some(b'\n')) => at + 2,
            (b'/', Some(b'*')) => comment_end(bytes, at),
            (b'/', Some(b'/')) => line_end(bytes, at),
            (b'"', _) => literal_end(bytes, at),
            _ => at + 1,
        };
    }
    at
}

#[cfg(test)]
mod tests {
    use super::{Kind, tokens};

    #[test]
    fn comments_strings_and_directives_are_distinguished() {
        let text = "#define A(x) \\\n  x /* \n */ 1\nint a = \"b/*\"; // c\n/* d */ e # f";
        let found: Vec<_> = tokens(text).iter().map(|token| (token.kind, token.text)).collect();
        assert_eq!(found[0], (Kind::Directive, "#define A(x) \\\n  x /* \n */ 1"));
        let rest: Vec<_> = found[1..].iter().map(|(_, text)| *text).collect();
        assert_eq!(rest, ["int", "a", "=", "\"b/*\"", ";", "e", "#", "f"]);
    }
}
