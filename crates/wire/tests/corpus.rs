//! Replays the fuzz corpus, and shortened and damaged forms of it, in the plain test run.
//!
//! A crate with fuzz targets has this file: one `replay` per folder of `fuzz/corpus`.

use std::fs;
use std::path::Path;

use godwit_wire::fuzz;

/// Runs `target` over every file of `fuzz/corpus/<name>`, and over its neighbours.
fn replay(name: &str, target: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut inputs = 0;
    for entry in entries {
        let path = entry.expect("the folder can be listed").path();
        let input = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        if let Err(panic) = std::panic::catch_unwind(|| neighbours(&input, target)) {
            eprintln!("input: {}", path.display());
            std::panic::resume_unwind(panic);
        }
        inputs += 1;
    }
    assert!(inputs > 0, "{} is empty", folder.display());
}

/// The input itself, cut at every byte of its headers, and with bytes of its headers changed.
fn neighbours(input: &[u8], target: fn(&[u8])) {
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
