//! Rule for decision headers: number and title, date, status, against, instead of.

use super::Problem;
use super::files::Tree;

/// Fields of the header, one list item each, in this order.
const FIELDS: [&str; 4] = ["Date", "Status", "Against", "Instead of"];

pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    let decisions = tree.markdown().filter(|file| file.path.starts_with("docs/decisions/0"));
    decisions.flat_map(|file| header_problems(&file.path, &file.text)).collect()
}

fn header_problems(path: &str, text: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    let number = path.trim_start_matches("docs/decisions/").split('-').next().and_then(|number| number.parse().ok());
    let title = number.map(|number: u32| format!("# {number}. "));
    if !title.is_some_and(|title| text.starts_with(&title)) {
        problems.push(Problem::at(path, 1, "the title is `# NUMBER. Title`, with the number of the file name"));
    }
    let header = text.lines().enumerate().skip(1).take_while(|(_, line)| !line.starts_with('#'));
    let items: Vec<(usize, &str)> = header.filter(|(_, line)| line.starts_with("- ")).collect();
    for (index, field) in FIELDS.iter().enumerate() {
        let expected = format!("- {field}: ");
        if !items.get(index).is_some_and(|(_, line)| line.starts_with(&expected)) {
            let line = items.get(index).map_or(2, |(number, _)| number + 1);
            problems.push(Problem::at(path, line, format!("item {} of the header is `- {field}: …`", index + 1)));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complete_header_is_accepted_and_a_missing_field_is_found() {
        let text = "# 7. Title\n\n- Date: 2026-11-20\n- Status: accepted\n- Against: cost\n- Instead of: x\n\n## Why\n";
        assert!(header_problems("docs/decisions/0007-title.md", text).is_empty());
        assert_eq!(header_problems("docs/decisions/0008-title.md", text).len(), 1);
        let without = text.replace("- Status: accepted\n", "");
        assert_eq!(header_problems("docs/decisions/0007-title.md", &without).len(), 3);
    }
}
