//! Replays the fuzz corpus, and shortened and damaged forms of it, in the plain test run.

use std::fs;
use std::path::Path;

use godwit_function::ipv6::fuzz;

#[test]
fn ipv6_routes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/ipv6_routes");
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
    fuzz::ipv6_routes(input);
    for cut in (0..input.len()).step_by(18) {
        fuzz::ipv6_routes(&input[..cut]);
    }
    let mut changed = input.to_vec();
    for at in 0..input.len() {
        for value in [0x00, 0x40, 0x80, 0xff] {
            changed[at] = value;
            fuzz::ipv6_routes(&changed);
        }
        changed[at] = input[at];
    }
}
