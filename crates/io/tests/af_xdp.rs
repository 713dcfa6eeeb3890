//! Checks that the compiled XDP program in the repository belongs to its source.

use std::process::Command;

use godwit_test_support::{Folder, output_of, repository, skip};

#[test]
fn the_committed_object_is_compiled_from_the_source() {
    let version = Command::new("clang").arg("--version").output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    if !version.contains("clang version 14.") {
        skip("only clang 14 compiles filter.bpf.c to the same object");
        return;
    }
    let folder = Folder::new();
    let compiled = folder.join("filter.o");
    output_of(Command::new(repository().join("scripts/bpf.sh")).arg(&compiled));
    let committed = std::fs::read(repository().join("crates/io/src/af_xdp/filter.bpf.o")).unwrap();
    assert!(std::fs::read(&compiled).unwrap() == committed, "filter.bpf.o is out of date: run scripts/bpf.sh");
}
