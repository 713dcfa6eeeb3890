//! Programs that tests compare with.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A program to compare with.
#[derive(Clone, Debug)]
pub struct Peer {
    program: PathBuf,
}

impl Peer {
    /// A command that starts it.
    pub fn command(&self) -> Command {
        Command::new(&self.program)
    }

    /// The program `name`, where it is installed.
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

/// A Python that has the module `module`: `$GODWIT_PYTHON`, else the system's, else the first in the path.
pub fn python(module: &str) -> Option<Peer> {
    let given = std::env::var_os("GODWIT_PYTHON").map(PathBuf::from);
    let candidates = given.into_iter().chain(["/usr/bin/python3".into(), "python3".into()]);
    let import = format!("import {module}");
    let mut peers = candidates.map(|program| Peer { program });
    let found = peers.find(|peer| peer.runs(&["-c", &import]));
    if found.is_none() {
        absent(&format!("Python with {module}"));
    }
    found
}

/// Says that a comparison is left out; fails where `GODWIT_PEERS=required` says that it may not be.
pub fn absent(what: &str) {
    let required = std::env::var_os("GODWIT_PEERS").is_some_and(|value| value == "required");
    assert!(!required, "there is no {what} here: run scripts/install.sh test");
    // Past the test harness, which shows nothing of a test that passes.
    writeln!(std::io::stderr(), "skipped: there is no {what} here to compare with").expect("stderr can be written");
}
