//! Compares the pages in `docs/functions/` with the contracts of the functions.

use godwit_test_support::repository;

const PAGES: [&str; 12] =
    ["template", "echo", "ipv4", "ipsec", "dpi", "ipv6", "l2", "ndn", "hash", "aes", "responder", "nids"];

fn read(page: &str) -> String {
    let path = repository().join("docs/functions").join(page).with_extension("md");
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_page_of_a_function_lists_its_verdicts_drops_and_counters() {
    for name in PAGES {
        let contract = godwit_function::kind(name).unwrap().contract;
        let page = read(name);
        let mut rows = Vec::new();
        for (number, verdict) in contract.verdicts.iter().enumerate() {
            rows.push(format!("| `{}` ({number}) | {} |", verdict.name, verdict.sentence));
        }
        for (number, drop) in contract.drops.iter().enumerate() {
            rows.push(format!("| `{0}` ({number}) | `{name}_dropped_{0}` | {1} |", drop.name, drop.sentence));
        }
        let counted = contract.counters.iter();
        let counters: Vec<String> =
            counted.map(|c| format!("| `{name}_{}` | {} | {} |", c.name, c.unit, c.sentence)).collect();
        for row in rows.iter().chain(&counters) {
            assert!(page.lines().any(|line| line == row), "{name}.md has no row {row}");
        }
        let written = page.lines().filter(|line| is_row(line)).count();
        assert_eq!(written, rows.len(), "{name}.md has rows that the contract lacks");
        assert!(page.contains(contract.summary), "{name}.md lacks: {}", contract.summary);
        assert!(read("README").contains(contract.summary), "README.md lacks for {name}: {}", contract.summary);
    }
}

/// Returns whether a line of a table names a verdict or a drop reason. Such a line starts with a
/// name and a number.
fn is_row(line: &str) -> bool {
    let number = line.strip_prefix("| `").and_then(|rest| rest.split_once("` ("));
    let number = number.and_then(|(name, rest)| Some((name, rest.split_once(") |")?.0)));
    number.is_some_and(|(name, number)| !name.contains('`') && number.parse::<u8>().is_ok())
}
