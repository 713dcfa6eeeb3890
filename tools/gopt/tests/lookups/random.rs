//! Random lookups over random tables compute the same before and after, with gcc and clang, under
//! sanitizers.
//!
//! `GOPT_RANDOM=N` tries N programs; each is named by its seed, which `GOPT_SEED` sets.

use std::path::Path;

use crate::common::{SANITIZED, compile, has, run};

/// Programs of a plain test run.
const PROGRAMS: u64 = 2;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn random_look_ups_compute_the_same_before_and_after() {
    if !has("gcc") {
        return;
    }
    let clang = has("clang");
    let first = number("GOPT_SEED").unwrap_or(1);
    for seed in first..first + number("GOPT_RANDOM").unwrap_or(PROGRAMS) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        try_program(seed, clang, folder.path());
    }
}

fn try_program(seed: u64, clang: bool, folder: &Path) {
    let plain = crate::generator::program(seed);
    let options = gopt::Options { name: "plain.c", ..gopt::Options::default() };
    let kept = std::env::temp_dir().join("gopt-random.c");
    let keep = |text: &str| std::fs::write(&kept, text).expect("the folder for temporary files can be written");
    let made = gopt::transform(&plain, &options).unwrap_or_else(|error| {
        keep(&plain);
        panic!("seed {seed}, {}: {error}", kept.display());
    });
    let made = made.text;

    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, format!("{text}\n{}", crate::generator::MAIN)).expect("the folder can be written");
        path
    };
    let (before, after) = (write("plain.c", &plain), write("made.c", &made));
    let program = folder.join("program");
    compile("gcc", &["-w", "-O1"], &before, &program);
    let expected = run(&program, &[]);
    let mut compilers: Vec<(&str, Vec<&str>)> =
        vec![("gcc", vec!["-w", "-O2"]), ("gcc", [&["-w", "-O0"], SANITIZED].concat())];
    if clang {
        compilers.push(("clang", vec!["-w", "-O2"]));
        compilers.push(("clang", [&["-w", "-O1"], SANITIZED].concat()));
    }
    for (compiler, flags) in compilers {
        compile(compiler, &flags, &after, &program);
        for group in ["1", "2", "3", "16", "33", "64"] {
            let found = run(&program, &[group]);
            if found != expected {
                keep(&made);
                panic!("seed {seed}, {compiler} {flags:?}, group {group}, {}:\n{found}\n{expected}", kept.display());
            }
        }
    }
}
