//! `cargo xtask tidy`: checks rules that no other tool checks. Each rule is a module with a
//! function `check`.

mod commits;
mod decisions;
mod files;
mod links;
mod named;
mod prose;
mod vocabulary;
mod width;
mod words;

use std::fmt;
use std::path::Path;
use std::process::Command;

use files::Tree;

/// Violation of a rule.
struct Problem {
    location: String,
    message: String,
}

impl Problem {
    fn at(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { location: format!("{path}:{line}"), message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.location, self.message)
    }
}

pub(crate) fn run(root: &Path) -> Result<(), String> {
    let tree = Tree::read(root)?;
    let mut problems = Vec::new();
    problems.extend(words::check(&tree));
    problems.extend(width::check(&tree));
    problems.extend(links::check(&tree));
    problems.extend(named::check(&tree));
    problems.extend(decisions::check(&tree));
    problems.extend(vocabulary::check(&tree));
    problems.extend(commits::check(root));
    for problem in &problems {
        eprintln!("{problem}");
    }
    match problems.len() {
        0 => {
            println!("tidy: {} files, no problems", tree.files().len());
            Ok(())
        }
        count => Err(format!("tidy: {count} problems")),
    }
}

/// Runs git in `root` and returns its output, or `None` if git fails.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).current_dir(root).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
