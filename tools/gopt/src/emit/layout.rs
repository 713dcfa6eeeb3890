//! Indentation of generated text.

use crate::lexer::tokens;

/// Indents a text by one step per brace, and removes empty lines. `depth` is the indentation of the
/// first line.
pub(super) fn indented(text: &str, depth: usize) -> String {
    let mut result = String::new();
    let mut depth = depth;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words = tokens(line);
        let closing = words.iter().take_while(|word| word.text == "}").count();
        let label = words.len() >= 2 && words[0].is_identifier() && words[1].text == ":";
        let steps = depth.saturating_sub(closing).saturating_sub(usize::from(label));
        if !line.starts_with('#') {
            result.push_str(&"    ".repeat(steps));
        }
        result.push_str(line);
        result.push('\n');
        for word in words {
            match word.text {
                "{" => depth += 1,
                "}" => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
    }
    result
}
