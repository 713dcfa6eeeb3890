//! The pages in `docs/functions/` say of each function what its contract says.

use std::path::Path;

const PAGES: [&str; 9] = ["template", "echo", "ipv4", "ipsec", "dpi", "ipv6", "l2", "ndn", "responder"];

fn read(page: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/functions").join(page).with_extension("md");
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_verdict_and_drop_stands_on_its_page() {
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
        assert_eq!(written, rows.len(), "{name}.md has rows that the contract has not");
        assert!(page.contains(contract.summary), "{name}.md does not say: {}", contract.summary);
        assert!(read("README").contains(contract.summary), "README.md does not say of {name}: {}", contract.summary);
    }
}

/// Whether a line begins as those of verdicts and drops do: a name and its number.
fn is_row(line: &str) -> bool {
    let number = line.strip_prefix("| `").and_then(|rest| rest.split_once("` ("));
    let number = number.and_then(|(name, rest)| Some((name, rest.split_once(") |")?.0)));
    number.is_some_and(|(name, number)| !name.contains('`') && number.parse::<u8>().is_ok())
}
