//! Parses the rule option `pcre`, a delimited regular expression with flags. A flag can select the
//! field.

use super::field::Field;
use super::rule::{Capture, Pcre};
use crate::regex::{Flags, Regex, RegexError};

/// Parses the value of a `pcre` option. Returns the regular expression test, and the field if a
/// flag selects one.
pub(super) fn parse(value: &str) -> Result<(Pcre, Option<Field>), &'static str> {
    let (negated, text) = super::text::unquote(value);
    let text = text.trim();
    let rest = text.strip_prefix('m').filter(|rest| !rest.starts_with('/')).unwrap_or(text);
    let delimiter = rest.chars().next().ok_or("the expression is empty")?;
    let body = &rest[delimiter.len_utf8()..];
    let end = body.rfind(delimiter).ok_or("the closing delimiter is missing")?;
    let (pattern, after) = (&body[..end], &body[end + delimiter.len_utf8()..]);
    let (letters, names) = match after.split_once(',') {
        Some((letters, names)) => (letters.trim(), names),
        None => (after.trim(), ""),
    };
    let (mut flags, mut relative, mut field) = (Flags::default(), false, None);
    for letter in letters.chars() {
        let selected = match letter {
            'i' => {
                flags.nocase = true;
                None
            }
            'm' => {
                flags.multi_line = true;
                None
            }
            's' => {
                flags.dot_all = true;
                None
            }
            'x' => {
                flags.extended = true;
                None
            }
            'A' => {
                flags.anchored = true;
                None
            }
            'E' => {
                flags.dollar_end_only = true;
                None
            }
            'G' => {
                flags.swap_greed = true;
                None
            }
            'R' => {
                relative = true;
                None
            }
            'O' | 'B' | ' ' => None,
            'U' => Some(Field::HttpUri),
            'I' => Some(Field::HttpUriRaw),
            'P' => Some(Field::HttpRequestBody),
            'Q' => Some(Field::HttpResponseBody),
            'H' => Some(Field::HttpHeader),
            'D' => Some(Field::HttpHeaderRaw),
            'M' => Some(Field::HttpMethod),
            'C' | 'K' => Some(Field::HttpCookie),
            'S' => Some(Field::HttpStatCode),
            'Y' => Some(Field::HttpStatMsg),
            'V' => Some(Field::HttpUserAgent),
            'W' => Some(Field::HttpHost),
            'Z' => Some(Field::HttpHostRaw),
            _ => return Err("a flag of the expression is not supported"),
        };
        if selected.is_some() {
            if field.is_some() && field != selected {
                return Err("two flags select different fields");
            }
            field = selected;
        }
    }
    let regex = Regex::new(pattern, flags).map_err(|error| match error {
        RegexError::Syntax => "the expression has a syntax error",
        RegexError::TooLarge => "the compiled expression exceeds the memory limit",
    })?;
    let captures = captures(&regex, names)?;
    Ok((Pcre { regex, negated, relative, captures }, field))
}

/// Returns the variables that store the capture groups of a regular expression. `names` lists
/// variables in group order. Groups whose own names begin with `flow_` or `pkt_` are also stored.
fn captures(regex: &Regex, names: &str) -> Result<Vec<(u8, Capture)>, &'static str> {
    let mut captures = Vec::new();
    for (group, name) in regex.names().iter().enumerate().skip(1).take(14) {
        let Some(name) = name else { continue };
        if let Some(name) = name.strip_prefix("flow_") {
            captures.push((group as u8, Capture::Flow(name.to_owned())));
        } else if let Some(name) = name.strip_prefix("pkt_") {
            captures.push((group as u8, Capture::Packet(name.to_owned())));
        }
    }
    for (index, word) in names.split(',').map(str::trim).filter(|word| !word.is_empty()).enumerate() {
        let group = index as u8 + 1;
        if usize::from(group) >= regex.names().len() || group > 14 {
            return Err("the expression has fewer groups than names");
        }
        match word.split_once(':') {
            Some(("flow", name)) => captures.push((group, Capture::Flow(name.to_owned()))),
            Some(("pkt", name)) => captures.push((group, Capture::Packet(name.to_owned()))),
            Some(("alert", _)) => {}
            _ => return Err("the target of a group is not supported"),
        }
    }
    Ok(captures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_flags_fields_and_names() {
        let (pcre, field) = parse(r#""/^\/one(self)?$/Ui""#).unwrap();
        assert_eq!((field, pcre.negated, pcre.relative), (Some(Field::HttpUri), false, false));
        let (pcre, field) = parse(r#"!"/a/R""#).unwrap();
        assert_eq!((field, pcre.negated, pcre.relative), (None, true, true));
        let (pcre, _) = parse(r#""/uid=(\d+)\(([^)]+)\)/, pkt:uid, pkt:username""#).unwrap();
        assert_eq!(pcre.captures.len(), 2);
        let (pcre, _) = parse(r#""/(?P<flow_ua>.*)\r\n/HR""#).unwrap();
        assert_eq!(pcre.captures, [(1, Capture::Flow("ua".to_owned()))]);
        assert!(parse("/a/q").is_err() && parse("/a").is_err() && parse("/(/").is_err() && parse("/a/UH").is_err());
    }
}
