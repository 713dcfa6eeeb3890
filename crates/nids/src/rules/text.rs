//! Splits rule files into logical lines, and each rule into seven header words and the options in
//! parentheses.

use std::borrow::Cow;

/// One rule as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleText<'a> {
    /// Number of the first line of the rule, from 1.
    pub line: u32,
    /// Words before the parenthesis, such as the action, protocol, addresses and ports.
    pub words: Vec<&'a str>,
    /// Options in the order of the rule.
    pub options: Vec<OptionText<'a>>,
}

/// One option of a rule: `name;` or `name:value;`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionText<'a> {
    /// Keyword.
    pub name: &'a str,
    /// Text after the colon, without surrounding white space.
    pub value: Option<&'a str>,
}

/// Syntax error of one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxError {
    /// Number of the first line of the rule, from 1.
    pub line: u32,
    /// Description for the user.
    pub message: &'static str,
}

/// Iterator over the logical lines of a rule file. A backslash joins a line with the next one.
/// Comments and empty lines are skipped.
pub struct Lines<'a> {
    rest: &'a str,
    line: u32,
    with_commented: bool,
}

impl<'a> Lines<'a> {
    /// Returns the logical lines of `text`. If `with_commented` is true, rules commented out with
    /// `#` are included.
    pub fn new(text: &'a str, with_commented: bool) -> Self {
        Self { rest: text, line: 0, with_commented }
    }

    fn physical(&mut self) -> Option<&'a str> {
        if self.rest.is_empty() {
            return None;
        }
        let (line, rest) = self.rest.split_once('\n').unwrap_or((self.rest, ""));
        self.rest = rest;
        self.line += 1;
        Some(line.strip_suffix('\r').unwrap_or(line))
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = (u32, Cow<'a, str>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let mut text = self.physical()?.trim_start();
            let number = self.line;
            if let Some(comment) = text.strip_prefix('#') {
                let inner = comment.trim_start_matches(['#', ' ', '\t']);
                if !(self.with_commented && is_commented_rule(inner)) {
                    continue;
                }
                text = inner;
            }
            let mut joined = Cow::Borrowed(text.trim_end());
            while joined.ends_with('\\') {
                joined.to_mut().pop();
                match self.physical() {
                    Some(more) => joined.to_mut().push_str(more.trim_end()),
                    None => break,
                }
            }
            if !joined.trim().is_empty() {
                return Some((number, joined));
            }
        }
    }
}

fn is_commented_rule(text: &str) -> bool {
    let first = text.split_whitespace().next().unwrap_or("");
    matches!(first, "alert" | "drop" | "pass" | "reject" | "log")
        && text.contains('(')
        && text.trim_end().ends_with(')')
}

/// Parses one logical line.
pub fn parse(line: u32, text: &str) -> Result<RuleText<'_>, SyntaxError> {
    let fail = |message| SyntaxError { line, message };
    let text = text.trim();
    let open = text.find('(').ok_or(fail("the options in parentheses are missing"))?;
    let body = text[open + 1..].trim_end().strip_suffix(')').ok_or(fail("the closing parenthesis is missing"))?;
    let words = header_words(&text[..open]).ok_or(fail("a bracket in the header is not closed"))?;
    let options = split_options(body).map_err(fail)?;
    Ok(RuleText { line, words, options })
}

/// Splits a header at white space outside brackets.
fn header_words(header: &str) -> Option<Vec<&str>> {
    let mut words = Vec::new();
    let (mut depth, mut start) = (0usize, None);
    for (at, byte) in header.bytes().enumerate() {
        match byte {
            b'[' => depth += 1,
            b']' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if byte.is_ascii_whitespace() && depth == 0 {
            if let Some(from) = start.take() {
                words.push(&header[from..at]);
            }
        } else if start.is_none() {
            start = Some(at);
        }
    }
    words.extend(start.map(|from| &header[from..]));
    (depth == 0).then_some(words)
}

/// Splits options at semicolons. A semicolon after a backslash or within a quoted value does not
/// end an option.
fn split_options(body: &str) -> Result<Vec<OptionText<'_>>, &'static str> {
    let bytes = body.as_bytes();
    let mut options = Vec::new();
    let (mut start, mut at, mut quoted) = (0, 0, false);
    let mut value_begins = false;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => {
                at += 2;
                value_begins = false;
                continue;
            }
            b'"' if quoted => quoted = !closes(&bytes[at + 1..]),
            b'"' if value_begins => quoted = true,
            b';' if !quoted => {
                push_option(&body[start..at], &mut options)?;
                start = at + 1;
            }
            _ => {}
        }
        let byte = bytes[at];
        value_begins = !quoted && (matches!(byte, b':' | b',' | b'!') || value_begins && byte.is_ascii_whitespace());
        at += 1;
    }
    if quoted {
        return Err("a quote is not closed");
    }
    let tail = body[start..].trim();
    if tail.is_empty() { Ok(options) } else { Err("the last option does not end with a semicolon") }
}

fn closes(after: &[u8]) -> bool {
    let next = after.iter().find(|byte| !byte.is_ascii_whitespace());
    matches!(next, None | Some(b';' | b','))
}

fn push_option<'a>(text: &'a str, options: &mut Vec<OptionText<'a>>) -> Result<(), &'static str> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(());
    }
    let (name, value) = match text.split_once(':') {
        Some((name, value)) => (name.trim(), Some(value.trim())),
        None => (text, None),
    };
    if name.is_empty() || name.len() > 64 || name.contains(char::is_whitespace) {
        return Err("an option has no valid name");
    }
    options.push(OptionText { name, value });
    Ok(())
}

/// Removes the quotes around a value, and returns whether `!` precedes it.
pub fn unquote(value: &str) -> (bool, &str) {
    let value = value.trim();
    let (negated, value) = match value.strip_prefix('!') {
        Some(rest) => (true, rest.trim_start()),
        None => (false, value),
    };
    let inner = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(value);
    (negated, inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(body: &str) -> Vec<(&str, Option<&str>)> {
        split_options(body).unwrap().iter().map(|o| (o.name, o.value)).collect()
    }

    #[test]
    fn joins_continued_lines_and_skips_comments() {
        let text = "# note\nalert tcp any any -> any any ( \\\n msg:\"a\"; \\\n sid:1;)\n\n#alert ip any any -> any any (sid:2;)\n";
        let lines: Vec<_> = Lines::new(text, false).collect();
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0].0, 2);
        assert!(lines[0].1.ends_with("sid:1;)"));
        assert_eq!(Lines::new(text, true).count(), 2);
    }

    #[test]
    fn splits_headers_outside_brackets() {
        let rule = parse(1, "alert tcp [1.2.3.4, !$X] any -> any [80,  443] (sid:1;)").unwrap();
        assert_eq!(rule.words, ["alert", "tcp", "[1.2.3.4, !$X]", "any", "->", "any", "[80,  443]"]);
    }

    #[test]
    fn keeps_semicolons_in_quotes_and_after_backslashes() {
        assert_eq!(
            options(r#"msg:"a;b"; content:!"x\;y"; pcre:"/a"b;c/"; nocase;"#),
            [
                ("msg", Some(r#""a;b""#)),
                ("content", Some(r#"!"x\;y""#)),
                ("pcre", Some(r#""/a"b;c/""#)),
                ("nocase", None)
            ]
        );
        assert_eq!(options(r"pcre:/one(self)?/U;sid:1;"), [("pcre", Some("/one(self)?/U")), ("sid", Some("1"))]);
        assert_eq!(options(r#"content:"a",nocase,depth 5;"#), [("content", Some(r#""a",nocase,depth 5"#))]);
    }

    #[test]
    fn names_what_is_not_closed() {
        assert_eq!(split_options("msg:\"a; sid:1;").unwrap_err(), "a quote is not closed");
        assert_eq!(split_options("sid:1").unwrap_err(), "the last option does not end with a semicolon");
        assert!(parse(1, "alert tcp any any -> any any sid:1;").is_err());
        assert!(parse(1, "alert tcp [any any -> any any (sid:1;)").is_err());
    }

    #[test]
    fn unquotes_values() {
        assert_eq!(unquote(r#"! "a b""#), (true, "a b"));
        assert_eq!(unquote("/x/U"), (false, "/x/U"));
    }
}
