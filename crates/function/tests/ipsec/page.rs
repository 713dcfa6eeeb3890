//! Checks the examples and tables of `docs/functions/ipsec.md`.

use std::collections::BTreeSet;
use std::path::Path;

use godwit_function::ipsec::suite::{Protocol, SUITES, variant};
use godwit_function::{BuildContext, kind};
use godwit_test_cases::ipsec::association::{every, icv_bytes};
use toml::de::DeTable;

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/functions/ipsec.md");
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every configuration on the page must be valid.
#[test]
fn examples_are_valid() {
    let page = page();
    let examples = page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    // Some examples contain only a function chain.
    let examples: Vec<&str> = examples.filter(|example| example.contains("[[function]]")).collect();
    assert!(examples.len() >= 3, "only {} examples", examples.len());
    for example in examples {
        let mut document: toml::Table = example.parse().unwrap_or_else(|error| panic!("{error}: {example}"));
        let function = document["function"].as_array_mut().unwrap().remove(0);
        let toml::Value::Table(mut stanza) = function else { panic!("{example}") };
        assert_eq!(stanza.remove("kind").unwrap().as_str(), Some("ipsec"));
        let name = stanza.remove("name").unwrap();
        let site = BuildContext { name: name.as_str().unwrap(), ports: &[], directory: Path::new(".") };
        let text = toml::to_string(&stanza).unwrap();
        let built = (kind("ipsec").unwrap().build)(DeTable::parse(&text).unwrap(), &site);
        built.map(drop).unwrap_or_else(|error| panic!("{error}: {example}"));
    }
}

/// The table has exactly one row per suite. Each row states correctly which native forms support
/// the suite.
#[test]
fn suite_table_matches_the_kernels() {
    let page = page();
    let table = page.split("## Suites").nth(1).unwrap().split("\n## ").next().unwrap();
    let found: Vec<&str> = table.lines().filter(|line| line.starts_with("| `") && line.ends_with("yes |")).collect();
    let kernel = kind("ipsec").unwrap().contract.bin_kernel();
    for (number, suite) in (0u8..).zip(SUITES) {
        let row = found[usize::from(number)];
        assert!(row.starts_with(&format!("| `{}` | yes | yes | ", suite.name)), "{row}");
        let column = row.split(" | ").nth(3).unwrap();
        for native in godwit_kernels::natives() {
            let covers = [false, true].map(|inbound| native.covers(kernel, variant(number, inbound)));
            let expected = column == "yes" || (column == "AVX-512" && native.name == "avx512");
            assert_eq!(covers, [expected; 2], "{} of {row}", native.name);
        }
    }
    assert_eq!(found.len(), SUITES.len());
}

/// The shared test SAs cover all modes in the table of the page.
#[test]
fn test_sas_cover_every_mode() {
    let associations = every();
    for suite in SUITES {
        let cell: BTreeSet<_> = associations
            .iter()
            .filter(|association| association.suite.name == suite.name)
            .map(|at| (at.tunnel, at.source.is_ipv6(), at.inner_ipv6(), at.esn, at.udp, at.icv_bytes))
            .collect();
        let udp = if suite.protocol == Protocol::Esp { 2 } else { 1 };
        assert_eq!(cell.len(), 6 * 2 * udp * icv_bytes(suite).len(), "{}", suite.name);
        let modes: BTreeSet<_> = cell.iter().map(|&(tunnel, outer, inner, ..)| (tunnel, outer, inner)).collect();
        assert_eq!(modes.len(), 6, "{}", suite.name);
        assert!(modes.iter().all(|&(tunnel, outer, inner)| tunnel || outer == inner), "{}", suite.name);
    }
}
