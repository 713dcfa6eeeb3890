//! Fuzz corpus, replayed in the normal test run.

use std::fs;

use crate::repository;

/// Variants of each input that [`replay`] also runs.
#[derive(Clone, Copy, Debug)]
pub struct Variants {
    /// Number of bytes at the start of an input at which it is truncated and changed.
    pub bytes: usize,
    /// Distance between two truncations, in bytes.
    pub cut_step: usize,
    /// Values that replace each byte.
    pub values: &'static [u8],
}

/// Runs `target` on every file of `fuzz/corpus/NAME`, and on its variants: truncated, with each
/// byte replaced, and with bit 4 of each byte inverted.
///
/// # Panics
///
/// Panics if `target` does, after printing the path of the file. Panics if the folder is empty.
pub fn replay(name: &str, variants: &Variants, target: fn(&[u8])) {
    let folder = repository().join("fuzz/corpus").join(name);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut inputs = 0;
    for entry in entries {
        let path = entry.expect("a readable folder").path();
        let input = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        if let Err(panic) = std::panic::catch_unwind(|| run(&input, variants, target)) {
            eprintln!("input: {}", path.display());
            std::panic::resume_unwind(panic);
        }
        inputs += 1;
    }
    assert!(inputs > 0, "{} is empty", folder.display());
}

fn run(input: &[u8], variants: &Variants, target: fn(&[u8])) {
    target(input);
    let bytes = input.len().min(variants.bytes);
    for cut in (0..bytes).step_by(variants.cut_step) {
        target(&input[..cut]);
    }
    let mut changed = input.to_vec();
    for index in 0..bytes {
        for value in variants.values.iter().copied().chain([input[index] ^ 0x10]) {
            changed[index] = value;
            target(&changed);
        }
        changed[index] = input[index];
    }
}
