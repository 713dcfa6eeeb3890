//! Replays the fuzz corpus, and shortened and damaged forms of it, in the plain test run.

use std::fs;
use std::path::Path;

use godwit_engine::fuzz;

#[test]
fn ipsec_inbound() {
    replay("ipsec_inbound", fuzz::ipsec_inbound);
}

#[test]
fn ipv6_frame() {
    replay("ipv6_frame", fuzz::ipv6_frame);
}

#[test]
fn l2_frame() {
    replay("l2_frame", fuzz::l2_frame);
}

#[test]
fn l2_macs() {
    replay("l2_macs", fuzz::l2_macs);
}

#[test]
fn ndn_names() {
    replay("ndn_names", fuzz::ndn_names);
}

#[test]
fn ndn_interest() {
    replay("ndn_interest", fuzz::ndn_interest);
}

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

/// The input itself, cut anywhere, and with each byte changed.
fn neighbours(input: &[u8], target: fn(&[u8])) {
    target(input);
    for cut in 0..input.len() {
        target(&input[..cut]);
    }
    let mut changed = input.to_vec();
    for at in 0..input.len() {
        for value in [0x00, 0x01, 0x04, 0x29, 0x32, 0x3b, 0x7f, 0x80, 0xff, input[at] ^ 0x10] {
            changed[at] = value;
            target(&changed);
        }
        changed[at] = input[at];
    }
}
