//! Rule for commit messages: an imperative subject of at most 72 characters, one change, and a body
//! with the reason.

use std::path::Path;

use super::{Problem, git};

/// Last commit before the rule was introduced. Older commits are not checked.
const BASE: &str = "d1989585aafcb06982187455b63ec0202a23aead";
/// Maximum length of the subject, in characters.
const SUBJECT_MAX: usize = 72;
/// Endings of verbs that are not imperative.
const NOT_IMPERATIVE: [&str; 2] = ["ed", "ing"];
/// Imperative verbs and nouns with these endings.
const EXCEPTIONS: &[&str] = &["Embed", "Feed", "Need", "Seed", "Shed", "Speed", "Bring", "Ring", "String", "Ping"];

pub(super) fn check(root: &Path) -> Vec<Problem> {
    // A shallow clone may lack the base commit. The check then skips its commits.
    let Some(log) = git(root, &["log", "--no-merges", "--format=%h%x1f%s%x1f%b%x1e", &format!("{BASE}..HEAD")]) else {
        println!("skipped: tidy commit messages (the history does not reach {BASE})");
        return Vec::new();
    };
    log.split('\x1e')
        .filter(|entry| !entry.trim().is_empty())
        .flat_map(|entry| {
            let mut fields = entry.trim_start().splitn(3, '\x1f').map(str::trim);
            let mut next = || fields.next().unwrap_or_default().to_owned();
            let (hash, subject, body) = (next(), next(), next());
            let location = format!("commit {hash}");
            faults(&subject, &body).into_iter().map(move |message| Problem { location: location.clone(), message })
        })
        .collect()
}

/// Returns the faults of one commit message.
fn faults(subject: &str, body: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let length = subject.chars().count();
    if length > SUBJECT_MAX {
        faults.push(format!("the subject has {length} characters, at most {SUBJECT_MAX} are allowed"));
    }
    if subject.ends_with('.') || subject.contains(';') {
        faults.push("the subject ends in a full stop or joins several changes with a semicolon".to_owned());
    }
    // An optional area comes first: `ipsec: add AES-CCM`.
    let action = subject.split_once(": ").map_or(subject, |(_, action)| action);
    let verb = action.split_whitespace().next().unwrap_or_default();
    let is_inflected = NOT_IMPERATIVE.iter().any(|ending| verb.ends_with(ending));
    if is_inflected && !EXCEPTIONS.iter().any(|word| word.eq_ignore_ascii_case(verb)) {
        faults.push(format!("\"{verb}\" is not imperative: write \"add\", not \"added\" or \"adding\""));
    }
    if body.is_empty() {
        faults.push("the body that gives the reason is missing".to_owned());
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_messages_pass() {
        assert!(faults("ipsec: add AES-CCM", "strongSwan proposes it.").is_empty());
        assert!(faults("Bring the link up before the first packet", "Drivers drop frames.").is_empty());
    }

    #[test]
    fn each_fault_is_found() {
        assert_eq!(faults("Added a thing", "Why.").len(), 1);
        assert_eq!(faults("docs: fix a; add b", "Why.").len(), 1);
        assert_eq!(faults(&"long ".repeat(15), "Why.").len(), 1);
        assert_eq!(faults("Add a thing", "").len(), 1);
    }
}
