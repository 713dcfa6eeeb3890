//! Identifiers that mark byte offsets in the source and survive the preprocessor.
//!
//! `gopt_from_N_` precedes a token that may begin a statement or a declaration. `gopt_to_N_`
//! follows a token that may end one. N is the byte offset in the source.

use crate::lexer::{Kind, Token, tokens};

const FROM: &str = "gopt_from_";
const TO: &str = "gopt_to_";

/// Byte offset in the source.
pub(super) enum Place {
    From(u32),
    To(u32),
}

/// Returns the source with its places.
pub(super) fn placed(source: &str) -> String {
    let mut text = String::with_capacity(source.len() * 3 / 2);
    let mut at = 0;
    let mut depth = 0_i32;
    let mut before: Option<Token<'_>> = None;
    for token in tokens(source) {
        let begins = before.is_none_or(|before| {
            before.kind == Kind::Directive || matches!(before.text, ";" | "{" | "}" | ")" | "else" | "do" | ":")
        });
        if depth == 0 && begins && token.is_identifier() {
            text.push_str(&source[at..token.start]);
            text.push_str(&format!(" {FROM}{}_ ", token.start));
            at = token.start;
        }
        match token.text {
            "(" | "[" => depth += 1,
            ")" | "]" => depth = (depth - 1).max(0),
            ";" | "}" if depth == 0 => {
                text.push_str(&source[at..token.end()]);
                text.push_str(&format!(" {TO}{}_ ", token.end()));
                at = token.end();
            }
            _ => {}
        }
        if token.kind == Kind::Directive {
            depth = 0;
        }
        before = Some(token);
    }
    text.push_str(&source[at..]);
    text
}

/// Returns the place that an identifier names.
pub(super) fn read(word: &str) -> Option<Place> {
    let number = |rest: &str| rest.strip_suffix('_')?.parse().ok();
    if let Some(rest) = word.strip_prefix(FROM) {
        return number(rest).map(Place::From);
    }
    word.strip_prefix(TO).and_then(number).map(Place::To)
}

#[cfg(test)]
mod tests {
    use super::placed;

    #[test]
    fn statements_have_places() {
        assert_eq!(
            placed("int f(int a) { for (;;) g(a, b); }"),
            " gopt_from_0_ int f(int a) {  gopt_from_15_ for (;;)  gopt_from_24_ g(a, b); gopt_to_32_  } gopt_to_34_ "
        );
    }
}
