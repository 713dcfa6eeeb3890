//! Tests that `docs/functions/tls.md` lists every counter and every configuration key.

use std::collections::BTreeSet;
use std::path::Path;

use godwit_proxy::{COUNTERS, Config};
use godwit_test_support::repository;

fn page() -> String {
    std::fs::read_to_string(repository().join("docs/functions/tls.md")).expect("the page exists")
}

/// Returns the names in the first column of the tables whose header begins with `title`.
fn rows(page: &str, title: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for table in page.split("\n\n").filter(|part| part.starts_with(&format!("| {title} |"))) {
        names.extend(table.lines().skip(2).filter_map(|line| Some(line.split('`').nth(1)?.to_owned())));
    }
    names
}

#[test]
fn the_page_lists_every_counter() {
    let page = page();
    for (name, sentence) in COUNTERS {
        let row = format!("| `{name}` | {sentence} |");
        assert!(page.lines().any(|line| line == row), "docs/functions/tls.md has no row {row}");
    }
    let signer = serde_json::to_value(godwit_sign::Counters::default()).unwrap();
    let signer = signer.as_object().unwrap().keys().cloned();
    let counters: BTreeSet<String> = COUNTERS.iter().map(|(name, _)| (*name).to_owned()).chain(signer).collect();
    assert_eq!(rows(&page, "counter"), counters);
}

/// Returns the keys of a table, which the message about an unknown key lists.
fn keys(text: &str) -> BTreeSet<String> {
    let error = Config::parse(text, "p.toml", Path::new("")).expect_err(text).to_string();
    let expected = error.split_once("unknown field `x`, expected ").unwrap_or_else(|| panic!("{error}")).1;
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_page_lists_every_key() {
    let proxy = "[signer]\nkey = []\n[[proxy]]\n";
    let mut expected = BTreeSet::new();
    for (prefix, text) in [
        ("", "x = 1".to_owned()),
        ("", "[signer]\nx = 1".to_owned()),
        ("key.", "[signer]\nkey = [{ x = 1 }]".to_owned()),
        ("", format!("{proxy}x = 1")),
        ("upstream.", format!("{proxy}upstream = [{{ x = 1 }}]")),
        ("client_certificates.", format!("{proxy}client_certificates = {{ x = 1 }}")),
        ("upstream_tls.", format!("{proxy}upstream_tls = {{ x = 1 }}")),
        ("health.", format!("{proxy}health = {{ x = 1 }}")),
        ("limits.", format!("{proxy}limits = {{ x = 1 }}")),
        ("timeouts.", format!("{proxy}timeouts = {{ x = 1 }}")),
    ] {
        expected.extend(keys(&text).into_iter().map(|key| format!("{prefix}{key}")));
    }
    // The page lists the keys of these tables, but not the tables themselves.
    expected.retain(|key| !["limits", "timeouts"].contains(&key.as_str()));
    assert_eq!(rows(&page(), "key"), expected);
}
