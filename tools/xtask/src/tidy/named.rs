//! Rule for code spans in prose: the named files and commands exist.

use std::sync::LazyLock;

use regex::Regex;

use super::Problem;
use super::files::{Kind, Tree};
use super::prose::{code_spans, lines};

/// Matches a path: a folder and a file with a known extension, or a folder that ends in a slash.
static PATH: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"^(?:\.\./)*[a-z0-9_.-]+/(?:[A-Za-z0-9_.-]+/)*(?:[A-Za-z0-9_-]+\.(?:rs|h|c|cl|cu|cc|cpp|md|toml|sh|py))?$",
    )
    .unwrap()
});
/// Top-level folders of the repository. Other paths are on the reader's machine, so they are not
/// checked.
const TOP: &[&str] =
    &["bench", "contrib", "crates", "docs", "examples", "fuzz", "kernels", "scripts", "tests", "tools"];

/// Placeholders in paths, such as `crates/CRATE/src/fuzz.rs`. Paths with a placeholder are not
/// checked.
const PLACEHOLDERS: &[&str] = &["NAME", "CRATE"];

pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in tree.files() {
        for line in lines(file) {
            for span in code_spans(line.text) {
                let is_missing = if PATH.is_match(span) {
                    is_missing(tree, &file.path, span)
                } else {
                    file.kind == Kind::Markdown && is_missing_command(tree, span)
                };
                if is_missing {
                    problems.push(Problem::at(&file.path, line.number, format!("`{span}` does not exist")));
                }
            }
        }
    }
    problems
}

fn is_missing(tree: &Tree, file: &str, path: &str) -> bool {
    let first = path.split('/').next().unwrap_or_default();
    if first != ".." && !TOP.contains(&first) {
        return false;
    }
    if path.split(['/', '.']).any(|part| PLACEHOLDERS.contains(&part)) {
        return false;
    }
    let from_file = resolve(file, path).is_some_and(|resolved| tree.exists(&resolved));
    !from_file && !in_crate(tree, file, path) && !tree.exists(path.trim_end_matches('/'))
}

/// Returns whether `path` exists in one of the folders above `file`.
fn in_crate(tree: &Tree, file: &str, path: &str) -> bool {
    let folders = file.match_indices('/').map(|(end, _)| &file[..end]);
    folders
        .into_iter()
        .any(|folder| tree.exists(&format!("{folder}/{path}")) || tree.exists(&format!("{folder}/src/{path}")))
}

/// Returns whether `span` is `make TARGET` or `cargo xtask COMMAND` with an unknown target or
/// command.
fn is_missing_command(tree: &Tree, span: &str) -> bool {
    let mut words = span.split_whitespace();
    match (words.next(), words.next()) {
        (Some("make"), Some(target)) => {
            let makefile = tree.text("Makefile").unwrap_or_default();
            let is_rule = |line: &str| {
                line.split_once(':').is_some_and(|(targets, _)| targets.split_whitespace().any(|name| name == target))
            };
            !makefile.lines().any(is_rule)
        }
        (Some("cargo"), Some("xtask")) => {
            let commands = ["tidy", "regenerate", "msrv", "new-function"];
            words.next().is_some_and(|command| !commands.contains(&command))
        }
        _ => false,
    }
}

/// Resolves `path` relative to the folder of `file`. Returns the path from the root, or `None` if
/// `path` leaves the repository.
pub(super) fn resolve(file: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            parts.pop()?;
        } else {
            parts.push(part);
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_files_and_targets_are_found() {
        let good = "`crates/a/src/lib.rs`, `src/lib.rs`, `/etc/x.toml`, `crates/CRATE/src/NAME.rs`, `make test`, \
             `cargo xtask tidy`, `docs/`";
        let files = [
            ("crates/a/README.md", good),
            ("crates/a/src/lib.rs", ""),
            ("docs/x.md", ""),
            ("Makefile", "test: check\n"),
        ];
        assert!(check(&Tree::of(&files)).is_empty());
        let bad = "`crates/b/src/lib.rs`, `make tests`, `cargo xtask tidily`, `scripts/x.sh`";
        let files = [("README.md", bad), ("Makefile", "test: check\n")];
        assert_eq!(check(&Tree::of(&files)).len(), 4);
    }

    #[test]
    fn paths_resolve_from_the_folder_of_the_file() {
        assert_eq!(resolve("docs/a.md", "../README.md").as_deref(), Some("README.md"));
        assert_eq!(resolve("a.md", "../x.md"), None);
    }
}
