//! Functions of the G-Opt repository compute the same, or are refused for `rand`.

use std::path::{Path, PathBuf};

use crate::common::{SANITIZED, compile, run};

/// Files of the repository, with the programs that run their functions.
const FILES: &[(&str, &str)] = &[
    ("actual/aho-corasick/nogoto.c", "aho"),
    ("actual/cuckoo-city64/nogoto.c", "cuckoo"),
    ("actual/cuckoo/nogoto.c", "cuckoo"),
    ("actual/ht-cuckoo/nogoto.c", "ht_cuckoo"),
    ("actual/ipv6/rte_lpm6.c", "lpm6"),
    ("actual/locals/nogoto.c", "log"),
    ("actual/mica/nogoto.c", "mica"),
    ("actual/ndn/nogoto.c", "ndn"),
    ("actual/pointer-chasing/nogoto.c", "log"),
    ("actual/random-walk/nogoto.c", "walk"),
    ("actual/simple/nogoto.c", "log"),
    ("actual/synthetic-divergence/nogoto.c", "divergence"),
    ("test/aho-corasick/nogoto.c", "aho"),
    ("test/cuckoo/nogoto.c", "cuckoo"),
    ("test/dpdk-cuckoo/nogoto.c", "dpdk_cuckoo"),
    ("test/dpdk-ipv6/nogoto.c", "dpdk_lpm6"),
    ("test/ipv4_rtable/nogoto.c", "dpdk_lpm"),
    ("test/ipv6/nogoto.c", "lpm6"),
    ("test/locals/nogoto.c", "log"),
    ("test/mica/nogoto.c", "mica"),
    ("test/ndn/nogoto.c", "dpdk_ndn"),
    ("test/pointer-chasing/nogoto.c", "log"),
    ("test/rand-walk/nogoto.c", "walk"),
    ("test/simple/nogoto.c", "log"),
    ("test/synthetic-divergence/nogoto.c", "divergence"),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/paper")
}

/// Returns the function with the batch loop.
fn fragment(text: &str) -> Option<String> {
    const NAMES: &[&str] =
        &["process_batch(", "process_batch_nogoto(", "process_pkts_in_batch(", "rte_lpm6_lookup_nogoto("];
    let begins = |line: &&str| {
        !line.starts_with([' ', '\t']) && !line.ends_with(';') && NAMES.iter().any(|name| line.contains(name))
    };
    let first = text.lines().find(begins)?;
    let (_, rest) = text.split_once(first)?;
    let (body, _) = rest.split_once("\n}").unwrap_or((rest, ""));
    Some(format!("{first}{body}\n}}\n"))
}

/// `GOPT_PAPER=FOLDER` names a checkout of the repository.
#[test]
fn functions_of_the_paper_compute_the_same_or_are_refused_for_rand() {
    let Some(checkout) = std::env::var_os("GOPT_PAPER") else {
        eprintln!("skipped: GOPT_PAPER names no checkout of the G-Opt repository");
        return;
    };
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| temporary.path().join(name);
    let include = format!("-I{}", folder().display());
    let unseen = folder().join("unseen.c").display().to_string();
    let (markers, rand) = (["PREFETCH".to_owned()], ["rand".to_owned()]);
    let mut refused = 0;
    for (file, program) in FILES {
        let text = std::fs::read_to_string(Path::new(&checkout).join("antlr").join(file));
        let text = text.unwrap_or_else(|error| panic!("{file}: {error}"));
        let text = fragment(&text).unwrap_or_else(|| panic!("{file}: no function with a batch loop"));
        let around = std::fs::read_to_string(folder().join(format!("{program}.c"))).expect("the program can be read");
        let text = around.replace("#include \"fragment.h\"\n", &text);
        std::fs::write(at("plain.c"), &text).expect("the folder can be written");
        let compiler = gopt::Compiler { flags: vec![include.clone()], ..gopt::Compiler::default() };
        let options = gopt::Options { name: file, compiler, markers: &markers, ..gopt::Options::default() };
        let made = match gopt::transform(&text, &options) {
            Err(gopt::Error::Refusal(refusal)) if *program == "walk" => {
                assert!(refusal.reason.starts_with("rand inside the lookup"), "{refusal}");
                refused += 1;
                gopt::transform(&text, &gopt::Options { unordered: &rand, ..options })
            }
            other => other,
        };
        let made = made.unwrap_or_else(|error| panic!("{error}"));
        std::fs::write(at("made.c"), made.text).expect("the folder can be written");
        let flags = [&["-w", "-O1", include.as_str(), unseen.as_str()], SANITIZED].concat();
        compile("cc", &flags[..4], &at("plain.c"), &at("plain"));
        compile("cc", &flags, &at("made.c"), &at("made"));
        let plain = run(&at("plain"), &[]);
        for group in ["1", "7", "32", "64"] {
            assert_eq!(run(&at("made"), &[group]), plain, "{file}, group {group}");
        }
    }
    assert_eq!(refused, 2, "functions with rand");
}
