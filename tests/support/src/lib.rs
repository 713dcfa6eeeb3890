//! Shared parts of the tests of all crates. Every function panics with a message on failure, so
//! tests need no error handling.
//!
//! | module | contents |
//! |---|---|
//! | [`random`] | the one seeded random number generator |
//! | [`frame`] | Ethernet frames with VLAN, IPv4, IPv6, UDP, TCP and ESP |
//! | [`control`] | client of a control socket |
//! | [`cuda`] | emulated CUDA devices |
//! | [`config`] | TOML text of a configuration |
//! | [`capture`] | reading and writing of captures |
//! | [`certificate`] | certificates of test keys, and `openssl` |
//! | [`corpus`] | replay of the fuzz corpus |
//! | [`folder`] | temporary folders |
//! | [`network`] | network namespaces |
//! | [`peer`] | programs that results are compared with |
//! | [`process`] | processes that run to their end, or in the background |
//! | [`program`] | runs of the program `godwit` |
//! | [`hex`] | hexadecimal text |
#![deny(unsafe_code)]

pub mod capture;
pub mod certificate;
pub mod config;
pub mod control;
pub mod corpus;
#[allow(unsafe_code, reason = "loads a library")]
pub mod cuda;
pub mod folder;
pub mod frame;
pub mod hex;
pub mod network;
pub mod peer;
pub mod process;
pub mod program;
pub mod random;

use std::fmt::Display;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use config::ConfigText;
pub use control::ControlClient;
pub use folder::Folder;
pub use frame::FrameBuilder;
pub use peer::{Peer, absent, python};
pub use random::Random;

/// Returns the root folder of the repository.
pub fn repository() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("tests/support is two levels below the root")
}

/// Reports that a test, or a part of it, is skipped, and why.
///
/// The line goes to standard error directly, because the test harness hides the output of a test
/// that passes.
pub fn skip(reason: impl Display) {
    writeln!(std::io::stderr(), "skipped: {reason}").expect("standard error is writable");
}

/// Sets a flag when it is dropped, so that a thread that waits for the flag also ends after a
/// panic.
#[derive(Debug)]
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Polls `condition` every 5 ms until it holds.
///
/// # Panics
///
/// Panics if `condition` does not hold within `limit`. The message contains `subject`.
#[track_caller]
pub fn wait_for(subject: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < limit, "{subject}: not within {} s", limit.as_secs());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a command to its end and returns its standard output.
///
/// # Panics
///
/// Panics if the command does not start or fails. The message contains its output.
#[track_caller]
pub fn output_of(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(output.status.success(), "{command:?}: {}\n{stdout}{stderr}", output.status);
    stdout
}
