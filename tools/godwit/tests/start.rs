//! Follows the pages of `docs/start/` to the letter: runs their commands in one shell and compares
//! the output.
//!
//! | block | meaning |
//! |---|---|
//! | ```` ```sh ```` | commands; every one must succeed |
//! | ```` ```text ```` | output of the `sh` block before it; without such a block, the commands print nothing |
//!
//! In a `text` block, `…` matches any text within a line, and a line `…` matches any number of
//! lines. Blank lines and the number of spaces are not compared. The section `Now your NIC` needs
//! hardware, so its blocks are not run.
//!
//! The shell has its own namespaces for mounts, network and processes. They disappear when the
//! shell ends, so no network namespace or process remains after a failure. The names on a page
//! cannot collide with names of the machine.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use godwit_test_support::{Folder, absent, repository, skip};

/// Time limit of one page.
const LIMIT: Duration = Duration::from_secs(120);

/// Heading of the first section that is not run.
const HARDWARE: &str = "## Now your NIC";

/// Arguments of `unshare` that isolate the shell of a page. The kernel kills all processes of the
/// page when `unshare` is killed.
const ISOLATED: [&str; 6] = ["--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"];

#[test]
fn router() {
    follow("router", &["traceroute"]);
}

#[test]
fn ipsec_gateway() {
    follow("ipsec-gateway", &["tshark"]);
}

#[test]
fn ips() {
    follow("ips", &["curl", "python3"]);
}

#[test]
fn switch() {
    follow("switch", &["tshark"]);
}

#[test]
fn tls_proxy() {
    follow("tls-proxy", &["curl", "openssl", "python3"]);
}

/// Commands of a page, and their output.
#[derive(Debug, Default, PartialEq)]
struct Step {
    /// Number of the line where the commands begin, from 1.
    line: usize,
    commands: Vec<String>,
    output: Vec<String>,
}

/// Runs the page `docs/start/{name}.md`, which needs `programs` in addition to those that all pages
/// need.
fn follow(name: &str, programs: &[&str]) {
    let isolated = || {
        let mut command = Command::new("unshare");
        command.args(ISOLATED).stdin(Stdio::null());
        command
    };
    let allowed = isolated().arg("true").stderr(Stdio::null()).status();
    if !allowed.is_ok_and(|status| status.success()) {
        skip(format_args!("docs/start/{name}.md needs the right to create namespaces: run the tests as root"));
        return;
    }
    let is_installed = |program: &str| {
        let status = Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    for program in ["ip", "ethtool", "ping"].iter().chain(programs) {
        if !is_installed(program) {
            return absent(program);
        }
    }

    let page = fs::read_to_string(repository().join(format!("docs/start/{name}.md"))).expect("the page exists");
    let steps = steps(&page);
    assert!(steps.len() >= 5, "{name}: {} steps", steps.len());
    let folder = Folder::new();
    let script = folder.write("page.sh", script(&steps));
    let transcript = folder.join("transcript");
    let output = File::create(&transcript).expect("the folder is writable");
    let godwit = Path::new(env!("CARGO_BIN_EXE_godwit")).parent().expect("the program is in a folder");
    let path = format!("{}:{}", godwit.display(), std::env::var("PATH").unwrap_or_default());
    // `ip netns` stores names in /run/netns. This file system disappears with the shell.
    let shell = "mount -t tmpfs none /run && exec bash \"$0\"";
    let mut child = isolated()
        .args(["bash", "-c", shell])
        .arg(&script)
        .current_dir(repository())
        .env("PATH", path)
        .stdout(output.try_clone().expect("a second handle"))
        .stderr(output)
        .spawn()
        .expect("unshare starts");
    let files = Files::of(&page);
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        if start.elapsed() > LIMIT {
            child.kill().expect("a child");
            break child.wait().expect("a child");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let transcript = fs::read_to_string(&transcript).expect("UTF-8");
    if let Err(error) = compare(&steps, &transcript) {
        panic!("docs/start/{name}.md:{error}\n{status}\n{}", files.logs());
    }
    assert!(status.success(), "docs/start/{name}.md leaves namespaces or processes: {transcript}");
    let left: Vec<&PathBuf> = files.existing().collect();
    assert!(left.is_empty(), "docs/start/{name}.md leaves {left:?}");
}

/// Files in `/tmp` that a page names. Removes them when dropped, which matters after a failure.
struct Files(BTreeSet<PathBuf>);

impl Files {
    fn of(page: &str) -> Self {
        let is_part = |character: char| character.is_ascii_alphanumeric() || "-.".contains(character);
        let name = |rest: &str| rest.chars().take_while(|character| is_part(*character)).collect::<String>();
        Self(page.split("/tmp/").skip(1).map(|rest| Path::new("/tmp").join(name(rest))).collect())
    }

    /// Returns the files and sockets that exist.
    fn existing(&self) -> impl Iterator<Item = &PathBuf> {
        self.0.iter().filter(|path| path.exists())
    }

    /// Returns names and contents of the files, for the message of a failure.
    fn logs(&self) -> String {
        let text = |path: &Path| fs::read_to_string(path).ok().map(|text| format!("{}:\n{text}", path.display()));
        self.existing().filter_map(|path| text(path)).collect()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for path in self.existing() {
            let _ = fs::remove_file(path);
        }
    }
}

/// Returns the steps of a page up to the section that needs hardware.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    // Language of the block that is open.
    let mut block: Option<&str> = None;
    for (number, line) in page.lines().enumerate().take_while(|(_, line)| *line != HARDWARE) {
        match (block, line.strip_prefix("```")) {
            (None, Some(language)) => {
                block = Some(language);
                if language == "sh" {
                    steps.push(Step { line: number + 2, ..Step::default() });
                }
            }
            (Some(_), Some(_)) => block = None,
            (Some("sh"), None) => steps.last_mut().expect("a step").commands.push(line.to_owned()),
            (Some("text"), None) => steps.last_mut().expect("output after commands").output.push(line.to_owned()),
            _ => {}
        }
    }
    steps
}

/// Line that ends the output of a step.
fn end_of_step(index: usize) -> String {
    format!("--- end of step {index} ---")
}

/// Returns a shell script that runs all steps, and stops at the first command that fails.
fn script(steps: &[Step]) -> String {
    let mut script = String::from("set -e -o pipefail\ntrap 'echo \"exit status $? of: $BASH_COMMAND\"' ERR\n");
    for (index, step) in steps.iter().enumerate() {
        script += &format!("{}\necho '{}'\n", step.commands.join("\n"), end_of_step(index));
    }
    // A page must delete its namespaces and end its background jobs.
    script + "test -z \"$(ip netns list)\"\ntest -z \"$(jobs -p)\"\n"
}

/// Compares the output of all steps. The error begins with the line of the page.
fn compare(steps: &[Step], mut transcript: &str) -> Result<(), String> {
    for (index, Step { line, output, .. }) in steps.iter().enumerate() {
        let end = format!("{}\n", end_of_step(index));
        let Some((printed, rest)) = transcript.split_once(&end) else {
            return Err(format!("{line}: a command failed or did not end:\n{transcript}"));
        };
        transcript = rest;
        if let Err(missing) = match_lines(&normalize(&output.join("\n")), &normalize(printed)) {
            let problem = missing.map_or("more lines than on the page".to_owned(), |text| format!("no line {text:?}"));
            return Err(format!("{line}: the output has {problem}:\n{printed}"));
        }
    }
    Ok(())
}

/// Returns the lines of a text without blank lines, and with one space between words.
fn normalize(text: &str) -> Vec<String> {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().map(words).filter(|line| !line.is_empty()).collect()
}

/// Compares lines with a pattern. The error is the first unmatched line of the pattern, or `None`
/// if the whole pattern matches and more lines follow.
fn match_lines(pattern: &[String], lines: &[String]) -> Result<(), Option<String>> {
    // reachable[i]: whether the lines so far match the first i lines of the pattern.
    let mut reachable = vec![false; pattern.len() + 1];
    reachable[0] = true;
    let skip_gaps = |reachable: &mut Vec<bool>| {
        for (index, line) in pattern.iter().enumerate() {
            if line == "…" && reachable[index] {
                reachable[index + 1] = true;
            }
        }
    };
    skip_gaps(&mut reachable);
    let mut furthest = 0;
    for line in lines {
        let mut next = vec![false; pattern.len() + 1];
        for (index, expected) in pattern.iter().enumerate().filter(|(index, _)| reachable[*index]) {
            if expected == "…" {
                next[index] = true;
            } else if match_line(expected, line) {
                next[index + 1] = true;
            }
        }
        skip_gaps(&mut next);
        furthest = furthest.max(reachable.iter().rposition(|reached| *reached).unwrap_or(0));
        reachable = next;
    }
    furthest = furthest.max(reachable.iter().rposition(|reached| *reached).unwrap_or(0));
    if reachable[pattern.len()] { Ok(()) } else { Err(pattern.get(furthest).cloned()) }
}

/// Compares a line with a pattern in which `…` matches any text.
fn match_line(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[test]
fn a_page_is_split_into_steps() {
    let page = "# Page\n```\npicture\n```\n```sh\none\ntwo\n```\n\n```text\n1\n```\n```sh\nthree\n```\n## Now your NIC\n```sh\nfour\n```\n";
    let step = |line: usize, commands: &[&str], output: &[&str]| {
        let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
        Step { line, commands: lines(commands), output: lines(output) }
    };
    assert_eq!(steps(page), [step(6, &["one", "two"], &["1"]), step(14, &["three"], &[])]);
}

#[test]
fn dots_match_text_and_lines() {
    assert!(match_line("a … c", "a b c") && match_line("…", "") && match_line("a…", "abc"));
    assert!(!match_line("a … c", "a b cd") && !match_line("a", "ab") && !match_line("aa…aa", "aaa"));
    let lines = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let result = |pattern: &str, text: &str| match_lines(&lines(pattern), &lines(text));
    assert_eq!(result("a … d", "a b c d"), Ok(()));
    assert_eq!(result("a … d", "a d"), Ok(()));
    assert_eq!(result("… b c …", "b d b c"), Ok(()));
    assert_eq!(result("a b", "a c"), Err(Some("b".to_owned())));
    assert_eq!(result("a …  b", "a c"), Err(Some(String::new())));
    assert_eq!(result("a", "a b"), Err(None));
}
