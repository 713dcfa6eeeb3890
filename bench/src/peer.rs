//! Peers that are programs of their own: found, started, asked round by round.
//!
//! `make peers` builds them into `target/peers`; `GODWIT_PEER_DIR` names another folder. A peer that is not there is left out, and said so.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::{BenchOptions, Error, Progress, routes};

/// Where a peer of ours lies, if it was built.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let given = std::env::var_os("GODWIT_PEER_DIR").map(PathBuf::from);
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.parent()?.join("peers")));
    let here = Some(PathBuf::from("target/peers"));
    let folders = [given, beside, here];
    folders.into_iter().flatten().map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// A peer of ours over a table and what is looked up there, each as a file; `None` where it is not wanted or not built.
/// Where there are several lists, what it is asked ends with the number of one.
pub(crate) fn over(
    name: &str,
    table: &[u8],
    lists: &[&[u8]],
    options: &BenchOptions,
    progress: &mut Progress<'_>,
) -> Result<Option<Peer>, Error> {
    if !options.peers {
        return Ok(None);
    }
    let Some(path) = find(name) else {
        progress(&format!("peer {name} is not built (`make peers`): left out"));
        return Ok(None);
    };
    let contents = std::iter::once(&table).chain(lists);
    let files = contents.map(|content| routes::temporary(content)).collect::<Result<Vec<_>, _>>()?;
    let arguments: Vec<_> = files.iter().map(|file| file.path().as_os_str()).collect();
    Peer::start(&path, &arguments).map(Some)
}

/// A peer that answers a line with a line.
pub(crate) struct Peer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// What it said of itself when it was ready.
    pub(crate) ready: String,
}

impl Peer {
    /// Starts it and waits until it is ready.
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
            None => return Err(Error::Setup(format!("peer {}: said `{}`", path.display(), peer.ready))),
        }
        Ok(peer)
    }

    /// One round: its time in nanoseconds and its proof.
    pub(crate) fn round(&mut self) -> Result<(f64, u64), Error> {
        self.ask("go")
    }

    /// The same in the form that `what` names.
    pub(crate) fn ask(&mut self, what: &str) -> Result<(f64, u64), Error> {
        writeln!(self.input, "{what}").and_then(|()| self.input.flush()).map_err(Error::setup)?;
        let line = self.line()?;
        let parsed = line.split_once(' ').and_then(|(time, sum)| Some((time.parse().ok()?, sum.trim().parse().ok()?)));
        parsed.ok_or_else(|| Error::Setup(format!("peer said `{line}`")))
    }

    fn line(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(0) | Err(_) => Err(Error::Setup("the peer stopped before it answered".to_owned())),
            Ok(_) => Ok(line.trim().to_owned()),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It ends by itself when its input closes; a peer that hangs is not waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
