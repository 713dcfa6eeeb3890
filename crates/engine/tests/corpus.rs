//! Replays the fuzz corpus, and shortened and damaged forms of it, in the plain test run.

use std::fs;
use std::path::Path;

use godwit_engine::fuzz;

#[test]
fn ipsec_inbound() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/ipsec_inbound");
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut inputs = 0;
    for entry in entries {
        let path = entry.expect("the folder can be listed").path();
        let input = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        if let Err(panic) = std::panic::catch_unwind(|| neighbours(&input)) {
            eprintln!("input: {}", path.display());
            std::panic::resume_unwind(panic);
        }
        inputs += 1;
    }
    assert!(inputs > 0, "{} is empty", folder.display());
}

/// The input itself, cut anywhere, and with each byte changed.
fn neighbours(input: &[u8]) {
    fuzz::ipsec_inbound(input);
    for cut in 0..input.len() {
        fuzz::ipsec_inbound(&input[..cut]);
    }
    let mut changed = input.to_vec();
    for at in 0..input.len() {
        for value in [0x00, 0x01, 0x04, 0x29, 0x32, 0x3b, 0x7f, 0x80, 0xff, input[at] ^ 0x10] {
            changed[at] = value;
            fuzz::ipsec_inbound(&changed);
        }
        changed[at] = input[at];
    }
}
