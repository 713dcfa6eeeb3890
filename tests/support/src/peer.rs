//! Programs that results are compared with.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::skip;

/// Installed program that results are compared with.
#[derive(Clone, Debug)]
pub struct Peer {
    program: PathBuf,
}

impl Peer {
    /// Returns a command that starts the program.
    pub fn command(&self) -> Command {
        Command::new(&self.program)
    }

    /// Returns the program `name`. Returns `None` and reports a skipped comparison if it is not
    /// installed.
    pub fn find(name: &str) -> Option<Self> {
        let peer = Self { program: PathBuf::from(name) };
        if peer.runs(&["--version"]) {
            return Some(peer);
        }
        absent(name);
        None
    }

    fn runs(&self, arguments: &[&str]) -> bool {
        let status = self.command().args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    }
}

/// Returns a Python interpreter that has `module`. The candidates are `$GODWIT_PYTHON`,
/// `/usr/bin/python3`, and `python3` in the path. Returns `None` and reports a skipped comparison
/// if no candidate has the module.
pub fn python(module: &str) -> Option<Peer> {
    let configured = std::env::var_os("GODWIT_PYTHON").map(PathBuf::from);
    let candidates = configured.into_iter().chain(["/usr/bin/python3".into(), "python3".into()]);
    let import = format!("import {module}");
    let mut peers = candidates.map(|program| Peer { program });
    let peer = peers.find(|peer| peer.runs(&["-c", &import]));
    if peer.is_none() {
        absent(&format!("Python with {module}"));
    }
    peer
}

/// Reports that a comparison is skipped, because `peer` is not installed.
///
/// # Panics
///
/// Panics if `GODWIT_PEERS` is `required`.
pub fn absent(peer: &str) {
    let required = std::env::var_os("GODWIT_PEERS").is_some_and(|value| value == "required");
    assert!(!required, "{peer} is not installed: run scripts/install.sh test");
    skip(format_args!("{peer} is not installed, so nothing is compared with it"));
}
