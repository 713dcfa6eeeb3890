//! What tests of several crates share: captures, read by a library that is not ours, and peers that are programs of
//! their own. For tests only: whatever goes wrong here panics with a sentence.
#![forbid(unsafe_code)]

mod capture;
mod peer;

use std::path::{Path, PathBuf};

pub use capture::{Frame, captures, concatenate, frames, without_padding};
pub use peer::{Peer, absent, python};

/// The root of the repository.
pub fn repository() -> PathBuf {
    // This crate lies in tests/.
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ has a parent").to_owned()
}
