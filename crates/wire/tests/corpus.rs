//! Replays the fuzz corpus in the normal test run, with truncated and corrupted variants.
//!
//! Each crate with fuzz targets has a copy of this file, with one `replay` per
//! folder of `fuzz/corpus`.

use std::fs;
use std::path::Path;

use godwit_wire::fuzz;

/// Runs `target` on every file of `fuzz/corpus/<name>`, and on its variants.
fn replay(name: &str, target: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut inputs = 0;
    for entry in entries {
        let path = entry.expect("the folder can be listed").path();
        let input = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        if let Err(panic) = std::panic::catch_unwind(|| run_variants(&input, target)) {
            eprintln!("input: {}", path.display());
            std::panic::resume_unwind(panic);
        }
        inputs += 1;
    }
    assert!(inputs > 0, "{} is empty", folder.display());
}

/// Runs `target` on the input, on the input truncated at every byte of its headers, and on the
/// input with changed header bytes.
fn run_variants(input: &[u8], target: fn(&[u8])) {
    target(input);
    for cut in 0..input.len().min(128) {
        target(&input[..cut]);
    }
    let mut changed = input.to_vec();
    for at in 0..input.len().min(96) {
        for value in [0x00, 0x01, 0x7f, 0x80, 0xff, input[at] ^ 0x10] {
            changed[at] = value;
            target(&changed);
        }
        changed[at] = input[at];
    }
}

#[test]
fn wire_parse() {
    replay("wire_parse", fuzz::wire_parse);
}

#[test]
fn wire_emit() {
    replay("wire_emit", fuzz::wire_emit);
}
