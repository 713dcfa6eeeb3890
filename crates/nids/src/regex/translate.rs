//! Translates regular expressions from PCRE syntax to the syntax of `regex-syntax`.
//!
//! Both syntaxes have the same core. Rules use the following differences:
//!
//! | PCRE | here |
//! |---|---|
//! | `$` also matches before a final newline | `(?:\n?\z)` |
//! | `[`, `&&`, `--` and `~~` have no meaning in a class | escaped |
//! | a brace that starts no quantifier is a literal | escaped |
//! | bytes above 127 | `\xNN`, without Unicode |
//! | `\Z`, `\e`, `\h`, `\R`, `\Q...\E`, octal escapes | their expansion |
//! | possessive quantifiers and atomic groups | not regular: [`Unsuitable`] |

use crate::rules::content::byte_of;

/// The expression contains a construct that has no linear-time matcher, such as a back-reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsuitable;

/// Options of an expression that change its translation.
#[derive(Debug, Clone, Copy, Default)]
pub struct Syntax {
    /// Flag `m`: `^` and `$` also match at line boundaries.
    pub multi_line: bool,
    /// Flag `E`: `$` matches only at the very end.
    pub dollar_end_only: bool,
    /// Flag `x`: white space and comments are ignored.
    pub extended: bool,
}

/// Translates `pattern`. Each of its characters is one byte.
pub fn translate(pattern: &str, syntax: Syntax) -> Result<String, Unsuitable> {
    let bytes: Vec<u8> = pattern.chars().map(byte_of).collect();
    let mut translator = Translator {
        input: &bytes,
        at: 0,
        output: String::with_capacity(bytes.len() + 16),
        syntax,
        extended: syntax.extended,
    };
    translator.run()?;
    Ok(translator.output)
}

struct Translator<'a> {
    input: &'a [u8],
    at: usize,
    output: String,
    syntax: Syntax,
    extended: bool,
}

impl Translator<'_> {
    fn run(&mut self) -> Result<(), Unsuitable> {
        let mut after_quantifier = false;
        while let Some(byte) = self.peek(0) {
            let mut quantifier = false;
            match byte {
                b'\\' => self.escape()?,
                b'[' => self.class()?,
                b'(' => self.group()?,
                b'$' => {
                    self.at += 1;
                    self.output.push_str(if self.syntax.multi_line || self.syntax.dollar_end_only {
                        "$"
                    } else {
                        r"(?:\n?\z)"
                    });
                }
                b'{' => match self.counted() {
                    Some(text) => {
                        self.output.push_str(&text);
                        quantifier = true;
                    }
                    None => {
                        self.at += 1;
                        self.output.push_str(r"\{");
                    }
                },
                b'}' => {
                    self.at += 1;
                    self.output.push_str(r"\}");
                }
                b'+' if after_quantifier => return Err(Unsuitable),
                b'?' if after_quantifier => self.copy(1),
                b'*' | b'+' | b'?' => {
                    self.copy(1);
                    quantifier = true;
                }
                b'#' if self.extended => self.copy_comment(),
                _ => {
                    self.at += 1;
                    self.literal(byte);
                }
            }
            after_quantifier = quantifier;
        }
        Ok(())
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.input.get(self.at + ahead).copied()
    }

    fn copy(&mut self, count: usize) {
        let end = (self.at + count).min(self.input.len());
        self.output.extend(self.input[self.at..end].iter().map(|byte| char::from(*byte)));
        self.at = end;
    }

    fn copy_comment(&mut self) {
        while self.peek(0).is_some_and(|byte| byte != b'\n') {
            self.at += 1;
        }
    }

    /// Writes a literal byte. Unprintable bytes are written in hexadecimal.
    fn literal(&mut self, byte: u8) {
        if byte.is_ascii_graphic() || byte == b' ' || byte == b'\t' || byte == b'\n' {
            self.output.push(char::from(byte));
        } else {
            self.output.push_str(&format!(r"\x{byte:02x}"));
        }
    }

    fn exact(&mut self, byte: u8) {
        self.output.push_str(&format!(r"\x{byte:02x}"));
    }

    /// Translates an escape outside a class.
    fn escape(&mut self) -> Result<(), Unsuitable> {
        let Some(next) = self.peek(1) else {
            self.at += 1;
            self.output.push_str(r"\\");
            return Ok(());
        };
        match next {
            b'1'..=b'9' => return self.numbered(),
            b'g' | b'k' | b'K' | b'G' | b'X' | b'C' | b'p' | b'P' => return Err(Unsuitable),
            b'Z' => self.replace(2, r"(?:\n?\z)"),
            b'R' => self.replace(2, r"(?:\r\n|[\n-\r])"),
            b'h' => self.replace(2, r"[ \t]"),
            b'H' => self.replace(2, r"[^ \t]"),
            b'N' => self.replace(2, r"[^\n]"),
            b'A' | b'z' | b'b' | b'B' | b'd' | b'D' | b's' | b'S' | b'w' | b'W' => self.copy(2),
            b'Q' => self.quoted(),
            b'E' => self.at += 2,
            _ => {
                let byte = self.single_escape()?;
                self.exact(byte);
            }
        }
        Ok(())
    }

    fn replace(&mut self, count: usize, text: &str) {
        self.at += count;
        self.output.push_str(text);
    }

    /// Translates a backslash with digits. Two or three octal digits form a byte. Other numbers are
    /// back-references, which cannot be translated.
    fn numbered(&mut self) -> Result<(), Unsuitable> {
        let digits: Vec<u8> =
            self.input[self.at + 1..].iter().copied().take(3).take_while(|d| (b'0'..=b'7').contains(d)).collect();
        if digits.len() < 2 {
            return Err(Unsuitable);
        }
        let value = digits.iter().fold(0u32, |value, digit| value * 8 + u32::from(digit - b'0'));
        self.at += 1 + digits.len();
        self.exact(value as u8);
        Ok(())
    }

    fn quoted(&mut self) {
        self.at += 2;
        while let Some(byte) = self.peek(0) {
            if byte == b'\\' && self.peek(1) == Some(b'E') {
                self.at += 2;
                return;
            }
            self.exact(byte);
            self.at += 1;
        }
    }

    /// Consumes an escape sequence for one byte, and returns this byte.
    fn single_escape(&mut self) -> Result<u8, Unsuitable> {
        let kind = self.peek(1).ok_or(Unsuitable)?;
        self.at += 2;
        Ok(match kind {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'f' => 0x0c,
            b'a' => 0x07,
            b'e' => 0x1b,
            b'v' => 0x0b,
            b'0'..=b'7' => {
                let mut value = u32::from(kind - b'0');
                for _ in 0..2 {
                    let Some(digit @ b'0'..=b'7') = self.peek(0) else { break };
                    value = value * 8 + u32::from(digit - b'0');
                    self.at += 1;
                }
                value as u8
            }
            b'c' => {
                let letter = self.peek(0).ok_or(Unsuitable)?;
                self.at += 1;
                letter.to_ascii_uppercase() ^ 0x40
            }
            b'x' => self.hex_escape()?,
            b'o' | b'u' | b'U' | b'L' | b'l' => return Err(Unsuitable),
            byte => byte,
        })
    }

    fn hex_escape(&mut self) -> Result<u8, Unsuitable> {
        let braced = self.peek(0) == Some(b'{');
        if braced {
            self.at += 1;
        }
        let mut value = 0u32;
        let mut count = 0;
        while let Some(digit) = self.peek(0).and_then(|byte| char::from(byte).to_digit(16)) {
            if count == 2 && !braced {
                break;
            }
            value = value * 16 + digit;
            count += 1;
            self.at += 1;
            if value > 255 {
                return Err(Unsuitable);
            }
        }
        if braced {
            if self.peek(0) != Some(b'}') {
                return Err(Unsuitable);
            }
            self.at += 1;
        }
        Ok(value as u8)
    }

    /// Translates a character class.
    fn class(&mut self) -> Result<(), Unsuitable> {
        self.at += 1;
        self.output.push('[');
        if self.peek(0) == Some(b'^') {
            self.copy(1);
        }
        let mut first = true;
        loop {
            let byte = self.peek(0).ok_or(Unsuitable)?;
            match byte {
                b']' if !first => {
                    self.copy(1);
                    return Ok(());
                }
                b'[' if matches!(self.peek(1), Some(b':')) => self.posix()?,
                b'\\' => match self.peek(1) {
                    Some(b'd' | b'D' | b's' | b'S' | b'w' | b'W') => self.copy(2),
                    Some(b'b') => self.replace(2, r"\x08"),
                    Some(b'h') => self.replace(2, r" \t"),
                    Some(b'p' | b'P' | b'H' | b'R' | b'X' | b'N') => return Err(Unsuitable),
                    Some(b'Q' | b'E') => self.at += 2,
                    _ => {
                        let byte = self.single_escape()?;
                        self.exact(byte);
                    }
                },
                b'-' if self.is_range() => self.copy(1),
                _ => {
                    self.at += 1;
                    if byte.is_ascii_alphanumeric() { self.output.push(char::from(byte)) } else { self.exact(byte) }
                }
            }
            first = false;
        }
    }

    /// Returns whether the hyphen at the current position forms a range such as `a-z`.
    fn is_range(&self) -> bool {
        let before = self.output.as_bytes();
        let opens = matches!(before.last(), Some(b'[' | b'^')) && !before.ends_with(br"\[");
        let after_set =
            before.len() >= 2 && before[before.len() - 2] == b'\\' && b"dDsSwW".contains(&before[before.len() - 1]);
        let ends = matches!(self.peek(1), Some(b']') | None);
        let before_set = self.peek(1) == Some(b'\\') && self.peek(2).is_some_and(|byte| b"dDsSwW".contains(&byte));
        !opens && !after_set && !ends && !before_set
    }

    fn posix(&mut self) -> Result<(), Unsuitable> {
        let rest = &self.input[self.at..];
        let end = rest.windows(2).position(|pair| pair == b":]").ok_or(Unsuitable)?;
        self.copy(end + 2);
        Ok(())
    }

    /// Translates the opening of a group.
    fn group(&mut self) -> Result<(), Unsuitable> {
        if self.peek(1) == Some(b'*') {
            return Err(Unsuitable);
        }
        if self.peek(1) != Some(b'?') {
            self.copy(1);
            return Ok(());
        }
        match (self.peek(2), self.peek(3)) {
            (Some(b':'), _) => self.copy(3),
            (Some(b'#'), _) => {
                while self.peek(0).is_some_and(|byte| byte != b')') {
                    self.at += 1;
                }
                self.at += 1;
            }
            (Some(b'P'), Some(b'<')) => self.copy(4),
            (Some(b'<'), Some(c)) if c.is_ascii_alphabetic() => self.copy(3),
            (Some(b'i' | b'm' | b's' | b'-' | b'x'), _) => {
                let rest = &self.input[self.at..];
                let end = rest.iter().position(|byte| matches!(byte, b')' | b':')).ok_or(Unsuitable)?;
                if rest[2..end].iter().any(|byte| !b"ims-x".contains(byte)) {
                    return Err(Unsuitable);
                }
                if rest[2..end].contains(&b'm') {
                    self.syntax.multi_line = true;
                }
                self.copy(end + 1);
            }
            _ => return Err(Unsuitable),
        }
        Ok(())
    }

    /// Consumes and returns a quantifier such as `{2,5}`, or returns `None` if the brace does not
    /// begin one.
    fn counted(&mut self) -> Option<String> {
        let rest = &self.input[self.at..];
        let end = rest.iter().position(|byte| *byte == b'}')?;
        let inside = &rest[1..end];
        let (low, high) = match inside.iter().position(|byte| *byte == b',') {
            Some(comma) => (&inside[..comma], Some(&inside[comma + 1..])),
            None => (inside, None),
        };
        let digits = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
        if !digits(low) || !high.is_none_or(|high| high.is_empty() || digits(high)) {
            return None;
        }
        let text = String::from_utf8_lossy(&rest[..=end]).into_owned();
        self.at += end + 1;
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(pattern: &str) -> Result<String, Unsuitable> {
        translate(pattern, Syntax::default())
    }

    #[test]
    fn translates_differences() {
        assert_eq!(plain("^a$").unwrap(), r"^a(?:\n?\z)");
        assert_eq!(plain("a{foo").unwrap(), r"a\{foo");
        assert_eq!(plain("a{2,}").unwrap(), "a{2,}");
        assert_eq!(plain(r"[^[&]]").unwrap(), r"[^\x5b\x26]]");
        assert_eq!(plain(r"[a-z\-]").unwrap(), r"[a-z\x2d]");
        assert_eq!(plain(r"[\w-.]").unwrap(), r"[\w\x2d\x2e]");
        assert_eq!(plain(r"\x{41}\/\<").unwrap(), r"\x41\x2f\x3c");
        assert_eq!(plain("[[:alnum:]_]").unwrap(), r"[[:alnum:]\x5f]");
        assert_eq!(plain("\u{e9}").unwrap(), r"\xe9");
        assert_eq!(plain(r"\012").unwrap(), r"\x0a");
        assert_eq!(plain(r"\Qa.b\E").unwrap(), r"\x61\x2e\x62");
    }

    #[test]
    fn refuses_what_is_not_regular() {
        for pattern in [r"(a)\1", "(?=a)", "(?!a)", "(?<=a)b", "a++", "(?>a)", r"\Ka", "(?R)"] {
            assert_eq!(plain(pattern), Err(Unsuitable), "{pattern}");
        }
    }

    #[test]
    fn translations_compile() {
        let mut config = regex_syntax::ParserBuilder::new();
        for pattern in [
            r"[^\r\n]*?\x0d$",
            r"[]a]",
            r"[^]a]",
            r"a{,3}",
            r"[-a]",
            r"[a-]",
            r"[\]-a]",
            r"(?i)x(?:y|)z",
            r"[\x00-\x1f]",
        ] {
            let text = plain(pattern).unwrap();
            config
                .unicode(false)
                .utf8(false)
                .build()
                .parse(&text)
                .unwrap_or_else(|e| panic!("{pattern} -> {text}: {e}"));
        }
    }
}
