//! Checks the source text of a user function, and joins it with the C headers for kernels.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::Path;

use godwit_kernels::custom::{CpuText, CustomText};

use crate::Error;

/// Words that a kernel must not contain, each with the reason.
const REFUSED: &[(&str, &str)] = &[
    ("asm", "inline assembly runs on no other processor"),
    ("__asm__", "inline assembly runs on no other processor"),
    ("__asm", "inline assembly runs on no other processor"),
    ("goto", "the dialect has no `goto`"),
    ("__attribute__", "attributes are reserved for the dialect"),
    ("float", "the dialect has no floating point"),
    ("double", "the dialect has no floating point"),
    ("thread_local", "a kernel has no state of its own; use `[flows]` or `[counters]`"),
    ("__thread", "a kernel has no state of its own; use `[flows]` or `[counters]`"),
    ("__constructor__", "code runs only for packets"),
];

/// Checks that a source text contains nothing forbidden in a kernel. Returns the line number and
/// the description of the first problem.
pub(crate) fn check(text: &str) -> Result<(), (usize, String)> {
    let mut depth = 0usize;
    for (index, line) in code_lines(text).iter().enumerate() {
        let number = index + 1;
        let trimmed = line.trim_start();
        if let Some(included) =
            trimmed.strip_prefix('#').map(str::trim_start).and_then(|rest| rest.strip_prefix("include"))
        {
            let name = included.trim();
            return Err((
                number,
                format!("`#include {name}`: a function is one file, and the dialect is always included"),
            ));
        }
        for word in words(line) {
            if let Some((_, reason)) = REFUSED.iter().find(|(refused, _)| *refused == word) {
                return Err((number, format!("`{word}` is not possible in a kernel: {reason}")));
            }
        }
        if line.contains("&&") && computed_label(line) {
            return Err((number, "the address of a label is not possible in a kernel".to_owned()));
        }
        let is_static_data =
            depth == 0 && trimmed.starts_with("static ") && !line.contains('(') && !line.contains("const");
        if is_static_data {
            return Err((
                number,
                "a variable of the file would be shared by all packets: use `[flows]` or `[counters]`".to_owned(),
            ));
        }
        depth += line.matches('{').count();
        depth = depth.saturating_sub(line.matches('}').count());
    }
    Ok(())
}

/// Returns whether a line uses `&&name`, the address of a label in GNU C.
fn computed_label(line: &str) -> bool {
    line.match_indices("&&").any(|(at, _)| {
        let before = line[..at].trim_end().chars().last();
        matches!(before, Some('=' | '(' | ',' | '{'))
    })
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').filter(|word| !word.is_empty())
}

/// Returns the lines of a source text without comments and literals.
pub(crate) fn code_lines(text: &str) -> Vec<String> {
    #[derive(PartialEq)]
    enum State {
        Code,
        Line,
        Block,
        Literal(char),
    }
    let mut state = State::Code;
    let mut lines = vec![String::new()];
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let next = letters.peek().copied();
        if letter == '\n' {
            if state == State::Line {
                state = State::Code;
            }
            lines.push(String::new());
            continue;
        }
        let Some(line) = lines.last_mut() else { unreachable!("there is a first line") };
        match &state {
            State::Code => match (letter, next) {
                ('/', Some('/')) => state = State::Line,
                ('/', Some('*')) => {
                    letters.next();
                    state = State::Block;
                    line.push(' ');
                }
                ('"' | '\'', _) => {
                    state = State::Literal(letter);
                    line.push(letter);
                }
                _ => line.push(letter),
            },
            State::Block if letter == '*' && next == Some('/') => {
                letters.next();
                state = State::Code;
            }
            State::Literal(_) if letter == '\\' => {
                letters.next();
            }
            State::Literal(end) if *end == letter => {
                state = State::Code;
                line.push(letter);
            }
            State::Line | State::Block | State::Literal(_) => {}
        }
    }
    lines
}

/// Returns the source text of the reference library, which processes one packet after another.
pub(crate) fn reference(custom: &CustomText<'_>) -> String {
    let Ok(text) = custom.cpu(|_| Ok::<_, Infallible>(BTreeSet::new()));
    text.text
}

/// Returns the generated C code for the CPU, before optimization.
pub(crate) fn plain(path: &Path, custom: &CustomText<'_>, compiler: &gopt::Compiler) -> Result<CpuText, Error> {
    let options = gopt::Options { name: "custom.c", compiler: compiler.clone(), ..gopt::Options::default() };
    let expensive = |text: &str| match gopt::expensive(text, &options) {
        Err(gopt::Error::WithoutMarker(_)) => Ok(BTreeSet::new()),
        result => result,
    };
    custom.cpu(expensive).map_err(|error| explain(path, custom, error))
}

/// Returns C code with a packet loop that interleaves several packets. Code without such a loop is
/// returned unchanged.
pub(crate) fn interleaved(
    path: &Path,
    custom: &CustomText<'_>,
    plain: &CpuText,
    compiler: gopt::Compiler,
) -> Result<String, Error> {
    let Some(batch) = &plain.batch else { return Ok(plain.text.clone()) };
    let functions = std::slice::from_ref(batch);
    let options = gopt::Options { name: "custom.c", functions, compiler, ..gopt::Options::default() };
    let output = gopt::transform(&plain.text, &options).map_err(|error| explain(path, custom, error))?;
    Ok(output.text)
}

fn explain(path: &Path, custom: &CustomText<'_>, error: gopt::Error) -> Error {
    match error {
        gopt::Error::Refusal(refusal) if refusal.file == custom.file => {
            Error::Line { path: path.to_owned(), line: refusal.line, message: refusal.reason }
        }
        error => Error::Refused { path: path.to_owned(), message: error.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_no_code() {
        let text = "a /* goto\ngoto */ b // asm\nc \"asm\" '\\'' d\n";
        assert_eq!(code_lines(text), ["a  ", " b ", "c \"\" '' d", ""]);
        assert_eq!(check(text), Ok(()));
    }

    #[test]
    fn what_no_kernel_may_contain_is_refused_on_its_line() {
        for (line, part) in [
            ("    goto out;", "`goto`"),
            ("    __asm__ volatile(\"\");", "assembly"),
            ("#include \"other.h\"", "one file"),
            ("# include <stdio.h>", "one file"),
            ("    void *jumps[] = {&&first};", "label"),
            ("static gw_u32 seen;", "[flows]"),
            ("    double share;", "floating point"),
        ] {
            let text = format!("int a;\n{line}\n");
            let (number, message) = check(&text).unwrap_err();
            assert_eq!(number, 2, "{line}");
            assert!(message.contains(part), "{line}: {message}");
        }
        assert_eq!(check("int f(int a, int b)\n{\n    return a && b;\n}\n"), Ok(()));
    }
}
