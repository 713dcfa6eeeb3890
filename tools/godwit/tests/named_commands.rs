//! Commands and options that documents and examples name exist, and shells and `man` know them.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{godwit, listing, run};
use godwit_test_support::{absent, repository};

/// Returns all documents and example configurations.
fn documents() -> Vec<PathBuf> {
    let root = repository();
    let mut found: Vec<PathBuf> = ["README.md", "HACKING.md", "CONTRIBUTING.md", "SECURITY.md", "ARCHITECTURE.md"]
        .iter()
        .map(|name| root.join(name))
        .collect();
    let mut folders = vec![root.join("docs"), root.join("examples"), root.join("bench")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let extension = path.extension().and_then(|extension| extension.to_str());
            match extension {
                _ if path.is_dir() => folders.push(path),
                Some("md" | "toml" | "service") => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    found
}

/// Returns the commands in a text: code spans that start with `godwit`, and lines of code blocks
/// and comments in which `godwit` is the command.
fn commands(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut is_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        let line = line.trim_start_matches(['#', ' ']);
        if is_code {
            found.extend(line.split("&&").filter_map(in_line));
        } else if line.starts_with("godwit ") || line.starts_with("ExecStart") {
            found.extend(in_line(line));
        }
        // Long commands in a table contain `|` outside of spans only.
        let spans = line.split('`').skip(1).step_by(2);
        found.extend(spans.filter_map(|span| span.strip_prefix("godwit ")));
    }
    found
}

/// Returns the arguments in a line of code, without a comment.
fn in_line(line: &str) -> Option<&str> {
    let line = line.split(" #").next()?.trim();
    let runners = ["godwit ", "cargo run --release -- "];
    if let Some(rest) = runners.iter().find_map(|runner| line.strip_prefix(runner)) {
        return Some(rest);
    }
    // `ip netns exec NAME godwit ...`, and `/usr/local/bin/godwit ...` of a unit.
    let (before, rest) = line.split_once("godwit ")?;
    (before.ends_with("/bin/") || before.starts_with("ip netns exec ") && before.ends_with(' ')).then_some(rest)
}

/// Texts that `--help` prints, by subcommand.
#[derive(Default)]
struct Helps(BTreeMap<String, Option<String>>);

impl Helps {
    /// Returns the help of a command, or `None` if it does not exist.
    fn of(&mut self, subcommands: &[&str]) -> Option<&str> {
        let text = self.0.entry(subcommands.join(" ")).or_insert_with(|| {
            let printed = run(godwit().args(subcommands).arg("--help"));
            (printed.code == Some(0)).then_some(printed.stdout)
        });
        text.as_deref()
    }

    /// Checks the arguments of a command. Returns the problem with them.
    fn problem(&mut self, arguments: &str) -> Option<String> {
        let mut words = arguments.split_whitespace().peekable();
        let mut subcommands: Vec<&str> = Vec::new();
        loop {
            let help = match self.of(&subcommands) {
                Some(help) => help,
                None => return Some(format!("there is no command `{}`", subcommands.join(" "))),
            };
            let takes_one = help.lines().any(|line| line == "Commands:") && subcommands != ["bench"];
            match words.peek() {
                Some(word) if takes_one && is_subcommand(word) => subcommands.push(word),
                _ => break,
            }
            words.next();
        }
        let help = self.of(&subcommands)?;
        // Output is redirected, or a pipe follows.
        let words = words.take_while(|word| !["|", "&>", "&", ">", "&&", "||"].contains(word));
        let options = words.map(|word| word.trim_matches(['[', ']', '(', ')', ',', '.', ':']));
        let options = options.flat_map(|word| word.split('|')).filter_map(|word| word.split('=').next());
        let mut options = options.filter(|word| word.starts_with("--") && word.len() > 2);
        let unknown = options.find(|option| !has_option(help, option))?;
        Some(format!("`{}` has no option {unknown}", subcommands.join(" ")))
    }
}

fn is_subcommand(word: &str) -> bool {
    word.starts_with(|letter: char| letter.is_ascii_lowercase())
        && word.chars().all(|letter| letter.is_ascii_lowercase() || letter == '-')
}

fn has_option(help: &str, option: &str) -> bool {
    let is_end = |text: &str| !text.starts_with(|next: char| next.is_ascii_alphanumeric() || next == '-');
    help.split(option).skip(1).any(is_end)
}

#[test]
fn every_command_that_a_document_names_exists() {
    let mut helps = Helps::default();
    let mut problems = Vec::new();
    let mut named = BTreeSet::new();
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        for command in commands(&text) {
            let place = path.strip_prefix(repository()).unwrap_or(&path).display();
            problems.extend(helps.problem(command).map(|problem| format!("{place}: godwit {command}: {problem}")));
            named.extend(command.split_whitespace().next().map(str::to_owned));
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
    // Each command is described somewhere.
    let help = helps.of(&[]).unwrap();
    let all: Vec<&str> = help.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap().lines().collect();
    let all = all.iter().filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
    let undocumented: Vec<&str> = all.filter(|name| is_subcommand(name) && !named.contains(*name)).collect();
    assert!(undocumented.is_empty(), "no document names {undocumented:?}");
}

#[test]
fn commands_are_found_in_text() {
    let text = "Use `godwit sa add --file X` or:\n```\nip netns exec r godwit check a.toml\ncargo run --release -- run b\n\
        ls godwit x\ngodwit status   # all\n```\nThe godwit is a bird.\n";
    let expected = ["sa add --file X", "check a.toml", "run b", "status"];
    assert_eq!(commands(text), expected);
    let mut helps = Helps::default();
    assert_eq!(helps.problem("sa add --file X"), None);
    for wrong in ["sa ad --file X", "stat", "status --watches", "bench --no"] {
        assert!(helps.problem(wrong).is_some(), "{wrong}");
    }
}

#[test]
fn bash_completes_commands_and_options() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("godwit.bash");
    fs::write(&script, run(godwit().args(["completion", "bash"])).succeeded().stdout).unwrap();
    let complete = |words: &[&str]| {
        let line = format!(
            "source {}; COMP_WORDS=({}); COMP_CWORD={}; _godwit godwit '{}' ''; echo ${{COMPREPLY[@]}}",
            script.display(),
            words.join(" "),
            words.len() - 1,
            words.last().unwrap()
        );
        let output = Command::new("bash").args(["-c", &line]).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(complete(&["godwit", "stat"]), "status");
    assert_eq!(complete(&["godwit", "status", "--wat"]), "--watch");
    assert_eq!(complete(&["godwit", "route", "li"]), "list");
}

#[test]
fn other_shells_accept_their_completion() {
    for (shell, check) in [("zsh", "-n"), ("fish", "--no-execute")] {
        let script = run(godwit().args(["completion", shell])).succeeded().stdout;
        assert!(script.contains("status") && script.contains("watch"), "{shell}");
        if Command::new(shell).arg("--version").output().is_err() {
            absent(shell);
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("script");
        fs::write(&path, script).unwrap();
        let output = Command::new(shell).arg(check).arg(&path).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{shell}: {output:?}");
    }
    let refused = run(godwit().args(["completion", "tcsh"]));
    assert!(refused.refused().contains("bash, zsh, fish"), "{refused:?}");
}

#[test]
fn each_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    run(godwit().arg("man").arg(folder.path())).succeeded();
    let pages = listing(folder.path());
    for page in ["godwit.1", "godwit-run.1", "godwit-sa.1", "godwit-sa-add.1", "godwit-completion.1"] {
        assert!(pages.iter().any(|name| name == page), "{page} is not in {pages:?}");
    }
    let text = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(text("godwit-check.1").contains("offline"));
    assert!(text("godwit-sa-add.1").contains("godwit\\-sa\\-add"));
    warnings_of_groff(folder.path(), &pages);
    let missing = folder.path().join("none");
    let refused = run(godwit().arg("man").arg(&missing));
    assert!(refused.refused().starts_with("cannot write manual pages to "), "{refused:?}");
}

/// Checks that groff formats the pages without warnings.
fn warnings_of_groff(folder: &Path, pages: &[String]) {
    if Command::new("groff").arg("--version").output().is_err() {
        return absent("groff");
    }
    for page in pages {
        let output = Command::new("groff")
            .args(["-man", "-Kutf8", "-Tutf8", "-ww", "-z"])
            .arg(folder.join(page))
            .output()
            .unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{page}: {output:?}");
    }
}
