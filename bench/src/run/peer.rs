//! Peers that run as separate programs.
//!
//! `make peers` builds them into `target/peers`, and `GODWIT_PEER_DIR` names another folder. The
//! bench reports a missing peer and omits it.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::error::Error;
use crate::load::routes;
use crate::progress::Progress;

/// Returns the path of a peer, if it was built.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let given = std::env::var_os("GODWIT_PEER_DIR").map(PathBuf::from);
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.parent()?.join("peers")));
    let here = Some(PathBuf::from("target/peers"));
    let folders = [given, beside, here];
    folders.into_iter().flatten().map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Returns the path of a peer. Reports a peer that was not built, and returns `None`.
pub(crate) fn find_or_report(name: &str, progress: &mut Progress<'_>) -> Option<PathBuf> {
    let path = find(name);
    if path.is_none() {
        progress(&format!("peer {name} is left out: it is not built (`make peers`)"));
    }
    path
}

/// Starts a peer with a table file and lookup files. Returns `None` if `use_peer` is false or if
/// the peer was not built. With several lookup files, each request to the peer ends with the index
/// of a file.
pub(crate) fn over(
    name: &str,
    table: &[u8],
    lists: &[&[u8]],
    use_peer: bool,
    progress: &mut Progress<'_>,
) -> Result<Option<Peer>, Error> {
    if !use_peer {
        return Ok(None);
    }
    let Some(path) = find_or_report(name, progress) else { return Ok(None) };
    let contents = std::iter::once(&table).chain(lists);
    let files = contents.map(|content| routes::temporary(content)).collect::<Result<Vec<_>, _>>()?;
    let arguments: Vec<_> = files.iter().map(|file| file.path().as_os_str()).collect();
    Peer::start(&path, &arguments).map(Some)
}

/// A running peer. It answers each line with one line.
pub(crate) struct Peer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// Description that the peer printed when it was ready.
    pub(crate) ready: String,
}

impl Peer {
    /// Starts the program and waits until it is ready.
    pub(crate) fn start(path: &Path, arguments: &[&OsStr]) -> Result<Self, Error> {
        let failed = |error: std::io::Error| Error::Setup(format!("peer {}: {error}", path.display()));
        let mut command = Command::new(path);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::Setup(format!("peer {}: no pipes", path.display())));
        };
        let mut peer = Self { child, input, output: BufReader::new(output), ready: String::new() };
        peer.ready = peer.line()?;
        match peer.ready.strip_prefix("ready") {
            Some(rest) => peer.ready = rest.trim().to_owned(),
            None => {
                return Err(Error::Setup(format!("peer {}: expected `ready`, not `{}`", path.display(), peer.ready)));
            }
        }
        Ok(peer)
    }

    /// Runs one round. Returns its time in nanoseconds and the sum of its results.
    pub(crate) fn round(&mut self) -> Result<(f64, u64), Error> {
        self.ask("go")
    }

    /// Sends `request`, which runs one round. Returns the round's time in nanoseconds and the sum
    /// of its results.
    pub(crate) fn ask(&mut self, request: &str) -> Result<(f64, u64), Error> {
        writeln!(self.input, "{request}").and_then(|()| self.input.flush()).map_err(Error::setup)?;
        let line = self.line()?;
        let parsed = line.split_once(' ').and_then(|(time, sum)| Some((time.parse().ok()?, sum.trim().parse().ok()?)));
        parsed.ok_or_else(|| Error::Setup(format!("peer: expected a time and a sum, not `{line}`")))
    }

    fn line(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(0) | Err(_) => Err(Error::Setup("the peer ended without an answer".to_owned())),
            Ok(_) => Ok(line.trim().to_owned()),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // A peer ends when its input closes. Killing it avoids waiting for a peer that hangs.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
