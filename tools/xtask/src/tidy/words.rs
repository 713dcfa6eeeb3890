//! Rule for words and constructions that prose avoids.

use std::sync::LazyLock;

use regex::Regex;

use super::Problem;
use super::files::Tree;
use super::prose::{lines, without_code};

/// Regular expression of each avoided construction, and its replacement.
const AVOIDED: &[(&str, &str)] = &[
    (r"\b(nobody|whoever|who ever)\b", "name the party: the caller, the reader, no worker"),
    (r"\bso (many|much|long|few)\b(?: [a-z]+)?", "name the quantity"),
    (r"\b(is|are|was) to be\b", "write `must be` or the plain verb"),
    (r"\bin the place of\b", "write `instead of`"),
    (r"\bas [\w'-]+ (has|have) (it|them)\b", "name the tool and its action"),
    (r"\bof (its|their|his) own\b", "write `its own` before the noun, or `separate`"),
    (r"\b(told|tells?|hears?|heard|asked|asks) (of|who|by)\b", "write `reports`, `requests` or `is notified of`"),
    (r"\banew\b", "write `again`"),
    (r"\bbeside\b", "write `next to` or `in addition to`"),
    (r"(?-i:(^|[.;:] )What [a-z]+ [^?]*$)", "begin with a noun instead of a `what` clause"),
    (r"(?-i:(^|[.;:] )(Of|By|Behind|Beside) [a-z])", "begin with the subject"),
    (r"\b(would else|lest|wherefore)\b", "write `otherwise`"),
    (r"\b(led|lead|leads) on\b", "write `continue`"),
    (r"\bin turn\b", "write `one after another`"),
    (r"\bstands? (in|behind|before|here|there|for)\b", "write `is`, `follows` or `means`"),
    (r"\b(got|gets|get) (any|none|one|nothing) back\b", "write `receives`"),
    (r"\b(has|have) none\b", "write `has no` with the noun"),
    (r"\bmend(s|ed)?\b", "write `fix`"),
    (r"\b(said|says)\b", "write `returns`, `reports` or `states`"),
];

static FORMS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let compile = |&(form, advice): &(&str, &'static str)| (Regex::new(&format!("(?i){form}")).unwrap(), advice);
    AVOIDED.iter().map(compile).collect()
});

pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in tree.files().iter().filter(|file| !file.path.starts_with("tools/xtask/src/tidy/")) {
        for line in lines(file) {
            let text = without_code(line.text);
            for (form, advice) in FORMS.iter() {
                let Some(found) = form.find(&text) else { continue };
                if found.as_str().to_lowercase().starts_with("so ") && found.as_str().ends_with(" that") {
                    continue;
                }
                let message = format!("\"{}\": {advice}", found.as_str().trim());
                problems.push(Problem::at(&file.path, line.number, message));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> usize {
        check(&Tree::of(&[("a.md", text)])).len()
    }

    #[test]
    fn finds_each_avoided_word() {
        for text in ["Nobody reads it.", "What copies cost.", "Of all bins.", "so many bytes", "The kernel says no."] {
            assert_eq!(problems(text), 1, "{text}");
        }
    }

    #[test]
    fn accepts_plain_prose_and_code() {
        for text in ["so long that it expires", "What is a bin?", "`said`", "Packets of a flow. The owner frees it."] {
            assert_eq!(problems(text), 0, "{text}");
        }
    }
}
