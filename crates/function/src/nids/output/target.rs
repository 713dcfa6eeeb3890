//! File or Unix socket to which records are written.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Result, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// Number of bytes that are collected before they are written.
const BUFFER_BYTES: usize = 64 << 10;
/// Write timeout for a socket whose reader has stalled.
const SOCKET_TIMEOUT: Duration = Duration::from_millis(500);

/// Configured target of records.
#[derive(Clone, Debug)]
pub(in crate::nids) enum Target {
    /// The target is a file, to which records are appended.
    File(PathBuf),
    /// Unix stream socket of a listening program.
    Socket(PathBuf),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Socket(path) => write!(f, "socket {}", path.display()),
        }
    }
}

impl Target {
    pub(super) fn is_socket(&self) -> bool {
        matches!(self, Self::Socket(_))
    }

    /// Opens the output target. Returns `None` for a socket without a listener.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened.
    pub(super) fn open(&self) -> Result<Option<Open>> {
        let sink: Box<dyn Write + Send> = match self {
            Self::File(path) => Box::new(file(path)?),
            Self::Socket(path) => {
                let Ok(socket) = UnixStream::connect(path) else { return Ok(None) };
                socket.set_write_timeout(Some(SOCKET_TIMEOUT))?;
                Box::new(socket)
            }
        };
        Ok(Some(Open { sink, buffer: Vec::with_capacity(BUFFER_BYTES), torn: false }))
    }
}

fn file(path: &PathBuf) -> Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

/// Open target, with the records that are not written yet.
pub(super) struct Open {
    sink: Box<dyn Write + Send>,
    buffer: Vec<u8>,
    /// Whether the last line of the file may be incomplete, because a write failed.
    torn: bool,
}

impl Open {
    pub(super) fn write(&mut self, records: &[u8]) -> Result<()> {
        if self.buffer.len() + records.len() > BUFFER_BYTES {
            self.flush()?;
        }
        if records.len() >= BUFFER_BYTES {
            self.end_torn_line()?;
            return self.sink.write_all(records);
        }
        self.buffer.extend_from_slice(records);
        Ok(())
    }

    /// Writes the collected records.
    pub(super) fn flush(&mut self) -> Result<()> {
        if !self.buffer.is_empty() {
            self.end_torn_line()?;
            self.sink.write_all(&self.buffer)?;
            self.buffer.clear();
        }
        self.sink.flush()
    }

    /// Discards the collected records. Returns their number.
    pub(super) fn abandon(&mut self) -> u64 {
        let records = super::lines(&self.buffer);
        self.buffer.clear();
        self.torn = true;
        records
    }

    fn end_torn_line(&mut self) -> Result<()> {
        if self.torn {
            self.sink.write_all(b"\n")?;
            self.torn = false;
        }
        Ok(())
    }
}
