//! A client of the control socket: one request a line, one reply a line (`docs/control.md`).

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;

use crate::failure::Failure;
use crate::secret;

/// Which running godwit.
#[derive(Args)]
pub(crate) struct Socket {
    /// Control socket of the running godwit: what its `--control` or `[engine] control` says.
    #[arg(long = "control", value_name = "PATH")]
    pub(crate) path: PathBuf,
}

/// A connection to a running godwit.
pub(crate) struct Connection<'a> {
    path: &'a Path,
    stream: BufReader<UnixStream>,
}

impl Socket {
    pub(crate) fn connect(&self) -> Result<Connection<'_>, Failure> {
        let stream = UnixStream::connect(&self.path)
            .map_err(|error| Failure::User(format!("nobody answers at {}: {error}", self.path.display())))?;
        Ok(Connection { path: &self.path, stream: BufReader::new(stream) })
    }
}

impl Connection<'_> {
    /// What the running godwit says to a request; a refusal is the user's to mend.
    pub(crate) fn ask(&mut self, request: &Value) -> Result<Value, Failure> {
        let left = |what: &str| Failure::User(format!("godwit at {} {what}", self.path.display()));
        let line = secret::line(request);
        // One that refuses a client says why and leaves: its sentence is worth more than that it does not listen.
        let said = self.stream.get_mut().write_all(&line);
        let mut reply = String::new();
        let heard = self.stream.read_line(&mut reply);
        if reply.is_empty() {
            let error = said.and(heard.map(|_| ())).map_or_else(|error| error.to_string(), |()| "it ended".to_owned());
            return Err(left(&format!("gives no answer: {error}")));
        }
        let mut reply: Value = serde_json::from_str(&reply).map_err(|_| left("gives an answer that is no JSON"))?;
        if reply["ok"] == true {
            return Ok(reply["result"].take());
        }
        Err(Failure::User(reply["error"].as_str().unwrap_or("it refuses, and does not say why").to_owned()))
    }
}
