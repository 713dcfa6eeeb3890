//! The XDP program in the repository is what its source says.

use std::path::Path;
use std::process::Command;

#[test]
fn the_object_is_made_of_the_source() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let version = Command::new("clang").arg("--version").output();
    let version = version.map(|said| String::from_utf8_lossy(&said.stdout).into_owned()).unwrap_or_default();
    if !version.contains("clang version 14.") {
        println!("skipped: another clang than 14 makes another program of the same source");
        return;
    }
    let made = std::env::temp_dir().join(format!("godwit-filter-{}.o", std::process::id()));
    let said = Command::new(repository.join("scripts/bpf.sh")).arg(&made).output().expect("bash starts");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let bytes = std::fs::read(&made).expect("it was made");
    std::fs::remove_file(&made).expect("it is there");
    let kept = std::fs::read(repository.join("crates/io/src/af_xdp/filter.bpf.o")).expect("it is there");
    assert!(bytes == kept, "filter.bpf.o is not made of filter.bpf.c: scripts/bpf.sh");
}
