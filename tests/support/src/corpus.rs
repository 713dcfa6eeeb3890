//! Fuzz corpus, replayed in the normal test run.

use std::fs;
use std::path::PathBuf;

use crate::{Random, repository};

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
    for (path, input) in inputs(name) {
        if let Err(panic) = std::panic::catch_unwind(|| run(&input, variants, target)) {
            eprintln!("input: {}", path.display());
            std::panic::resume_unwind(panic);
        }
    }
}

/// Returns the files of `fuzz/corpus/NAME`, sorted by path.
fn inputs(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = repository().join("fuzz/corpus").join(name);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let read = |path: PathBuf| {
        let input = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (path, input)
    };
    let mut inputs: Vec<_> = entries.map(|entry| read(entry.expect("a readable folder").path())).collect();
    assert!(!inputs.is_empty(), "{} is empty", folder.display());
    inputs.sort();
    inputs
}

/// Runs `target` on `count` mutated inputs of `fuzz/corpus/NAME`. The same seed gives the same
/// inputs.
///
/// # Panics
///
/// Panics if `target` does, after writing the input to a file and printing its path.
pub fn mutate(name: &str, count: u64, seed: u64, target: fn(&[u8])) {
    let inputs: Vec<Vec<u8>> = inputs(name).into_iter().map(|(_, input)| input).collect();
    let mut random = Random::new(seed);
    let mut input = Vec::new();
    for _ in 0..count {
        input.clone_from(&inputs[random.below(inputs.len())]);
        for _ in 0..1 + random.below(4) {
            change(&mut input, &inputs, &mut random);
        }
        if let Err(panic) = std::panic::catch_unwind(|| target(&input)) {
            let path = std::env::temp_dir().join(format!("godwit-{name}-{seed}"));
            fs::write(&path, &input).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            eprintln!("input: {}", path.display());
            std::panic::resume_unwind(panic);
        }
    }
}

/// Changes one place of an input, or its length, or joins it with another input.
fn change(input: &mut Vec<u8>, inputs: &[Vec<u8>], random: &mut Random) {
    const VALUES: [u8; 12] = [0, 1, 4, 6, 0x11, 0x29, 0x32, 0x33, 0x45, 0x7f, 0x80, 0xff];
    let bytes = input.len();
    // Most fields of headers are in the first 64 bytes.
    let reach = if random.one_in(2) { bytes.min(64) } else { bytes };
    let at = random.below(reach + 1);
    let last = bytes.saturating_sub(1).min(at);
    match random.below(7) {
        0..2 if bytes > 0 => input[last] ^= 1 << random.below(8),
        2 if bytes > 0 => input[last] = random.pick(&VALUES),
        3 if bytes > 0 => input[last] = random.next_u8(),
        4 => input.truncate(at),
        5 => {
            let more = 1 + random.below(8);
            input.splice(at..at, random.bytes(more));
        }
        _ => {
            let other = &inputs[random.below(inputs.len())];
            input.truncate(at);
            input.extend_from_slice(&other[random.below(other.len() + 1)..]);
        }
    }
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
