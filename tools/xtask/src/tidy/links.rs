//! Rule for relative Markdown links: the file and the heading exist.

use super::Problem;
use super::files::{File, Tree};
use super::named::resolve;
use super::prose::lines;

pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    tree.markdown().flat_map(|file| check_file(tree, file)).collect()
}

fn check_file(tree: &Tree, file: &File) -> Vec<Problem> {
    let mut problems = Vec::new();
    for line in lines(file) {
        let targets = line.text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
        for target in targets.filter(|target| !target.contains("://")) {
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let resolved = if path.is_empty() { Some(file.path.clone()) } else { resolve(&file.path, path) };
            let Some(resolved) = resolved.filter(|resolved| tree.exists(resolved)) else {
                problems.push(Problem::at(&file.path, line.number, format!("the link target {path} does not exist")));
                continue;
            };
            let has_anchor = |text: &str| text.lines().any(|line| heading_anchor(line).as_deref() == Some(anchor));
            if !anchor.is_empty() && tree.text(&resolved).is_some_and(|text| !has_anchor(text)) {
                problems.push(Problem::at(&file.path, line.number, format!("{resolved} has no heading #{anchor}")));
            }
        }
    }
    problems
}

/// Returns the anchor that GitHub gives a Markdown heading.
fn heading_anchor(line: &str) -> Option<String> {
    let title = line.strip_prefix('#')?.trim_start_matches('#').trim();
    let keep = |character: char| match character {
        ' ' => Some('-'),
        '-' | '_' => Some(character),
        character if character.is_alphanumeric() => Some(character.to_ascii_lowercase()),
        _ => None,
    };
    Some(title.chars().filter_map(keep).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_and_a_missing_heading_are_found() {
        let page = "[a](b.md) [b](b.md#two-words) [c](../docs/b.md) [d](https://x.y/z) [e](#top)\n# Top\n";
        let files = [("docs/a.md", page), ("docs/b.md", "# Two `words`\n")];
        assert!(check(&Tree::of(&files)).is_empty());
        let broken = [("docs/a.md", "[a](c.md) [b](b.md#three)"), ("docs/b.md", "# Two words\n")];
        assert_eq!(check(&Tree::of(&broken)).len(), 2);
    }
}
