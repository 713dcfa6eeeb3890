//! Client of the control socket: one line per request and one line per reply (`docs/control.md`).

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;

use crate::failure::Failure;
use crate::secret;

/// Option that selects a running godwit.
#[derive(Args)]
pub(crate) struct Socket {
    /// Control socket of the running godwit: the value of its `--control` or `[engine] control`.
    #[arg(long = "control", value_name = "PATH")]
    pub(crate) path: PathBuf,
}

/// Connection to a running godwit.
pub(crate) struct Connection<'a> {
    path: &'a Path,
    stream: BufReader<UnixStream>,
}

impl Socket {
    pub(crate) fn connect(&self) -> Result<Connection<'_>, Failure> {
        let stream = UnixStream::connect(&self.path)
            .map_err(|error| Failure::User(format!("no godwit answers at {}: {error}", self.path.display())))?;
        Ok(Connection { path: &self.path, stream: BufReader::new(stream) })
    }
}

impl Connection<'_> {
    /// Sends a request and returns its result.
    ///
    /// # Errors
    /// If godwit refuses the request, or closes the connection.
    pub(crate) fn send(&mut self, request: &Value) -> Result<Value, Failure> {
        let failure = |problem: &str| Failure::User(format!("godwit at {} {problem}", self.path.display()));
        let line = secret::line(request);
        // A godwit that refuses a connection sends a reply and closes the connection. The write
        // then fails, but the reply contains the reason. Read it before any error is reported.
        let written = self.stream.get_mut().write_all(&line);
        let mut reply = String::new();
        let read = self.stream.read_line(&mut reply);
        if reply.is_empty() {
            let error =
                written.and(read.map(|_| ())).map_or_else(|error| error.to_string(), |()| "it ended".to_owned());
            return Err(failure(&format!("closed the connection without a reply: {error}")));
        }
        let mut reply: Value = serde_json::from_str(&reply).map_err(|_| failure("sent a reply that is not JSON"))?;
        if reply["ok"] == true {
            return Ok(reply["result"].take());
        }
        Err(Failure::User(reply["error"].as_str().unwrap_or("godwit refused the request without a reason").to_owned()))
    }
}
