//! Lookups as they are written, by hand, and as gopt makes them: one text, one result.
//!
//! `GODWIT_WRITE=1` writes what gopt makes now.

use std::path::{Path, PathBuf};

use crate::common::{SANITIZED, compile, has, run};

const CASES: &[&str] = &["cuckoo", "chase", "ipv6", "ndn", "aho"];

fn folder(case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(case)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn what_gopt_makes_of_the_plain_text_is_known_to_the_letter() {
    for case in CASES {
        let folder = folder(case);
        let options = gopt::Options { name: "plain.c", folder: Some(&folder), ..gopt::Options::default() };
        let made = gopt::transform(&read(&folder.join("plain.c")), &options)
            .unwrap_or_else(|error| panic!("{case}: {error}"))
            .text;
        let golden = folder.join("generated.c");
        if std::env::var_os("GODWIT_WRITE").is_some() {
            std::fs::write(&golden, &made).expect("the golden file can be written");
        }
        assert_eq!(made, read(&golden), "{case}: GODWIT_WRITE=1 writes what gopt makes now");
    }
}

#[test]
fn plain_by_hand_and_generated_find_the_same() {
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let program = temporary.path().join("program");
    for compiler in ["gcc", "clang"].into_iter().filter(|compiler| has(compiler)) {
        for case in CASES {
            let find = |form: &str, flags: &[&str]| {
                let text = format!("-DFORM=\"{form}.c\"");
                let flags = [&["-Wall", "-Wextra", "-Werror", &text], flags].concat();
                compile(compiler, &flags, &folder(case).join("main.c"), &program);
                run(&program, &[])
            };
            let plain = find("plain", &["-O1"]);
            assert_eq!(find("hand", &["-O2"]), plain, "{compiler}, {case}: by hand");
            assert_eq!(find("generated", &["-O2"]), plain, "{compiler}, {case}: generated");
            assert_eq!(find("generated", &["-O2", "-DGOPT_GROUP=1"]), plain, "{compiler}, {case}: switched off");
            let sanitized = [&["-O1", "-DGOPT_GROUP=7"], SANITIZED].concat();
            assert_eq!(find("generated", &sanitized), plain, "{compiler}, {case}: under sanitizers");
        }
    }
}
