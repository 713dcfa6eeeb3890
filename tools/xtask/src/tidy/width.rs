//! Rule for the width of comments and Markdown, and for the length of source files.

use super::Problem;
use super::files::{Kind, Tree};
use super::prose::lines;

/// Maximum width of a comment, in columns.
const COMMENT_COLUMNS: usize = 100;
/// Maximum width of Markdown, in columns. Table rows and images are exempt, because they cannot be
/// wrapped.
const MARKDOWN_COLUMNS: usize = 120;
/// Maximum length of a source file, in lines.
const SOURCE_LINES: usize = 600;

pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in tree.files() {
        for line in lines(file) {
            let columns = line.whole.chars().count();
            let limit = match file.kind {
                Kind::Markdown => MARKDOWN_COLUMNS,
                Kind::Source | Kind::Script => COMMENT_COLUMNS,
            };
            let text = line.text.trim();
            let is_exempt = text.starts_with('|') || text.starts_with("![") || !text.contains(' ');
            if columns > limit && !is_exempt {
                let message = format!("{columns} columns; wrap prose at {limit}");
                problems.push(Problem::at(&file.path, line.number, message));
            }
        }
        let count = file.text.lines().count();
        let is_product = file.kind == Kind::Source && !file.path.contains("tests");
        if is_product && count > SOURCE_LINES {
            problems.push(Problem::at(&file.path, count, format!("{count} lines; split files above {SOURCE_LINES}")));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_prose_is_found_and_tables_are_exempt() {
        let wide = format!("{} end", "word ".repeat(30));
        let text = format!("{wide}\n| {wide} |\n![{wide}](a.svg)\n");
        assert_eq!(check(&Tree::of(&[("a.md", &text)])).len(), 1);
        assert_eq!(check(&Tree::of(&[("a.rs", &format!("// {wide}\nlet x = \"{wide}\";"))])).len(), 1);
        assert_eq!(check(&Tree::of(&[("a.rs", &"x\n".repeat(601))])).len(), 1);
    }
}
