//! Tokens of C.

/// Kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Identifier,
    Number,
    /// String constant.
    String,
    /// Character constant.
    Character,
    Punctuation,
    /// Complete preprocessor directive, including continuation lines.
    Directive,
}

/// Token with its byte offset. Comments and white space are not tokens.
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

    pub(crate) fn is_identifier(&self) -> bool {
        self.kind == Kind::Identifier
    }
}

/// Operators with several characters, the longest first.
const OPERATORS: &[&str] = &[
    "<<=", ">>=", "...", "->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "*=", "/=", "%=", "+=",
    "-=", "&=", "^=", "|=", "##", "::",
];

/// Returns all tokens of a text, in order.
pub(crate) fn tokens(text: &str) -> Vec<Token<'_>> {
    let bytes = text.as_bytes();
    let mut found = Vec::with_capacity(text.len() / 6);
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
            b'"' => {
                at = literal_end(bytes, at);
                Kind::String
            }
            b'\'' => {
                at = literal_end(bytes, at);
                Kind::Character
            }
            byte if byte == b'_' || byte == b'$' || byte.is_ascii_alphabetic() || byte >= 0x80 => {
                at = word_end(bytes, at);
                prefixed(bytes, start, &mut at)
            }
            byte if byte.is_ascii_digit() || byte == b'.' && next.is_some_and(|next| next.is_ascii_digit()) => {
                at = number_end(bytes, at);
                Kind::Number
            }
            _ => {
                let operator = OPERATORS.iter().find(|operator| bytes[at..].starts_with(operator.as_bytes()));
                at += operator.map_or(1, |operator| operator.len());
                Kind::Punctuation
            }
        };
        line_start = false;
        found.push(Token { kind, text: &text[start..at], start });
    }
    found
}

/// Returns the kind of a word. A prefix such as `L` belongs to the literal after it.
fn prefixed(bytes: &[u8], start: usize, at: &mut usize) -> Kind {
    let prefix = matches!(&bytes[start..*at], b"L" | b"u" | b"U" | b"u8");
    match bytes.get(*at) {
        Some(b'"') if prefix => {
            *at = literal_end(bytes, *at);
            Kind::String
        }
        Some(b'\'') if prefix => {
            *at = literal_end(bytes, *at);
            Kind::Character
        }
        _ => Kind::Identifier,
    }
}

fn word_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() && (matches!(bytes[at], b'_' | b'$' | 0x80..) || bytes[at].is_ascii_alphanumeric()) {
        at += 1;
    }
    at
}

/// Returns the end of a preprocessing number, which may contain signs after an exponent.
fn number_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        let sign = matches!(bytes[at], b'+' | b'-') && matches!(bytes[at - 1], b'e' | b'E' | b'p' | b'P');
        let hexadecimal = sign && matches!(bytes[at - 1], b'e' | b'E') && is_hexadecimal(bytes, at);
        let part = bytes[at] == b'_' || bytes[at] == b'.' || bytes[at].is_ascii_alphanumeric();
        if !(part || sign && !hexadecimal) {
            break;
        }
        at += 1;
    }
    at
}

/// Returns whether the number before a sign is hexadecimal, where `e` is a digit.
fn is_hexadecimal(bytes: &[u8], at: usize) -> bool {
    let begin = bytes[..at].iter().rposition(|byte| !byte.is_ascii_alphanumeric()).map_or(0, |before| before + 1);
    bytes[begin..at].starts_with(b"0x") || bytes[begin..at].starts_with(b"0X")
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

/// Returns the end of a directive. A directive ends with its line, but a comment in it may span
/// several lines.
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

    fn words(text: &str) -> Vec<&str> {
        tokens(text).iter().map(|token| token.text).collect()
    }

    #[test]
    fn operators_are_as_long_as_possible() {
        assert_eq!(words("a+++b<<=c->d...e"), ["a", "++", "+", "b", "<<=", "c", "->", "d", "...", "e"]);
    }

    #[test]
    fn comments_are_skipped_and_directives_are_whole() {
        let found = tokens("a /* b\n */ c // d \\\n e\n#define X \\\n 1 /* x\n y */ 2\nf");
        let kinds: Vec<_> = found.iter().map(|token| token.kind).collect();
        assert_eq!(kinds, [Kind::Identifier, Kind::Identifier, Kind::Directive, Kind::Identifier]);
    }

    #[test]
    fn numbers_and_literals() {
        assert_eq!(
            words("1.5e-3f 0xep1 0x1e+2 .5 L\"a\\\"b\" 'x'"),
            ["1.5e-3f", "0xep1", "0x1e", "+", "2", ".5", "L\"a\\\"b\"", "'x'"]
        );
        assert_eq!(tokens("u8\"x\"")[0].kind, Kind::String);
    }
}
