//! Rule for `docs/words.md`: each word is defined once, and the number of words is limited.

use std::collections::BTreeSet;

use super::Problem;
use super::files::Tree;

const PAGE: &str = "docs/words.md";
/// Maximum number of words.
const WORDS_MAX: usize = 40;

pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    let Some(text) = tree.text(PAGE) else {
        return vec![Problem::at(PAGE, 1, "the page does not exist")];
    };
    let mut problems = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, line) in
        text.lines().enumerate().filter(|(_, line)| line.starts_with("| ") && !line.starts_with("| word"))
    {
        let word = line.split('|').nth(1).unwrap_or_default().trim().to_owned();
        if !seen.insert(word.clone()) {
            problems.push(Problem::at(PAGE, index + 1, format!("\"{word}\" is defined twice")));
        }
        if line.matches('|').count() < 4 {
            problems.push(Problem::at(
                PAGE,
                index + 1,
                "a row needs three cells: the word, its meaning, and the word used elsewhere",
            ));
        }
    }
    if seen.len() > WORDS_MAX {
        problems.push(Problem::at(PAGE, 1, format!("{} words; keep at most {WORDS_MAX}", seen.len())));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_defined_twice_is_found() {
        let once = "| word | meaning | elsewhere |\n|---|---|---|\n| bin | packets | work-group |\n";
        assert!(check(&Tree::of(&[(PAGE, once)])).is_empty());
        assert_eq!(check(&Tree::of(&[(PAGE, &format!("{once}| bin | a box | none |\n"))])).len(), 1);
        let many: String = (0..41).map(|number| format!("| w{number} | m | e |\n")).collect();
        assert_eq!(check(&Tree::of(&[(PAGE, &many)])).len(), 1);
    }
}
