//! Prose of a file: comments in sources and scripts, and Markdown text outside code blocks.

use std::sync::LazyLock;

use regex::Regex;

use super::files::{File, Kind};

/// Line of prose.
pub(super) struct Line<'a> {
    pub(super) number: usize,
    /// Complete line, whose width is checked.
    pub(super) whole: &'a str,
    /// Line without its comment marker.
    pub(super) text: &'a str,
}

static SOURCE_COMMENT: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^\s*(?://[/!]?|/\*\*?|\*(?:[\s/]|$))\s?(.*)$").unwrap());
static SCRIPT_COMMENT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^\s*#!?\s?(.*)$").unwrap());

/// Returns the prose lines of `file`.
pub(super) fn lines(file: &File) -> Vec<Line<'_>> {
    let mut in_fence = false;
    let mut found = Vec::new();
    for (index, whole) in file.text.lines().enumerate() {
        let text = match file.kind {
            Kind::Source => comment(&SOURCE_COMMENT, whole),
            Kind::Script => comment(&SCRIPT_COMMENT, whole),
            Kind::Markdown if whole.trim_start().starts_with("```") => {
                in_fence = !in_fence;
                None
            }
            Kind::Markdown => (!in_fence).then_some(whole),
        };
        if let Some(text) = text {
            found.push(Line { number: index + 1, whole, text });
        }
    }
    found
}

fn comment<'a>(form: &Regex, line: &'a str) -> Option<&'a str> {
    form.captures(line).and_then(|captures| captures.get(1)).map(|text| text.as_str())
}

/// Removes code spans from `text`, so that rules about words do not see identifiers.
pub(super) fn without_code(text: &str) -> String {
    let is_prose = |(index, part): (usize, &'_ str)| if index % 2 == 0 { part.to_owned() } else { String::new() };
    text.split('`').enumerate().map(is_prose).collect()
}

/// Returns the code spans of `text`.
pub(super) fn code_spans(text: &str) -> impl Iterator<Item = &str> {
    let parts: Vec<_> = text.split('`').collect();
    let closed = parts.len() - usize::from(parts.len().is_multiple_of(2));
    parts.into_iter().take(closed).skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::super::files::Tree;
    use super::*;

    #[test]
    fn finds_comments_and_text_outside_of_code_blocks() {
        let tree = Tree::of(&[
            ("a.rs", "/// One.\nlet x = 1;\n*x = 2;\n  // Two."),
            ("b.md", "One.\n```\ncode\n```\nTwo `code`."),
        ]);
        let texts =
            |index: usize| lines(&tree.files()[index]).iter().map(|line| line.text.to_owned()).collect::<Vec<_>>();
        assert_eq!(texts(0), ["One.", "Two."]);
        assert_eq!(texts(1), ["One.", "Two `code`."]);
        assert_eq!(without_code("Two `code`."), "Two .");
        assert_eq!(code_spans("`a` and `b`, `open").collect::<Vec<_>>(), ["a", "b"]);
    }
}
