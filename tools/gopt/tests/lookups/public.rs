//! Lookups of public projects compute the same in every form.

use std::path::{Path, PathBuf};

use crate::common::{SANITIZED, compile, run};

/// Groups of interleaved lookups, by the argument of the program.
const GROUPS: &[&str] = &["1", "7", "32", "64"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/public")
}

/// Returns the C files of the lookups.
fn sources() -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder()).expect("the folder of public lookups");
    let mut all: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
    all.retain(|path| path.extension().is_some_and(|extension| extension == "c"));
    all.sort();
    all
}

#[test]
fn public_lookups_compute_the_same_in_groups_of_every_size() {
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let program = temporary.path().join("program");
    let folder = folder();
    let include = format!("-I{}", folder.display());
    let mut count = 0;
    for path in sources() {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(&path).expect("the file can be read");
        let options = gopt::Options { name: &name, folder: Some(&folder), auto: true, ..gopt::Options::default() };
        let made = gopt::transform(&text, &options).unwrap_or_else(|error| panic!("{error}"));
        compile("cc", &["-w", "-O1", &include], &path, &program);
        let plain = run(&program, &[]);
        assert_eq!(made.loops.len(), plain.lines().count(), "{name}: transformed loops");
        count += made.loops.len();
        let generated = temporary.path().join("generated.c");
        std::fs::write(&generated, &made.text).expect("the folder can be written");
        let sanitized = [&["-w", "-O1", include.as_str()], SANITIZED].concat();
        compile("cc", &sanitized, &generated, &program);
        for group in GROUPS {
            assert_eq!(run(&program, &[group]), plain, "{name}, group {group}");
        }
        compile("cc", &["-w", "-O0", &include, "-DGOPT_GROUP=auto"], &generated, &program);
        assert_eq!(run(&program, &[]), plain, "{name}, group auto");
    }
    assert!(count >= 45, "{count} lookups");
}
