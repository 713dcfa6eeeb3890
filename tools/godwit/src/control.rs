//! Client of the control socket: one line per request and one line per reply (`docs/control.md`).

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::{runtime, secret};

/// Option that selects a running godwit.
#[derive(Args)]
pub(crate) struct Socket {
    /// Control socket of the running godwit. Default: $GODWIT_CONTROL, or the only socket in the
    /// runtime folder.
    #[arg(long = "control", value_name = "PATH")]
    pub(crate) path: Option<PathBuf>,
}

/// Options that select a function of a running godwit.
#[derive(Args)]
pub(crate) struct Target {
    #[command(flatten)]
    pub(crate) socket: Socket,
    /// Configured name of the function. Default: the only function of the kind that the command
    /// needs.
    #[arg(long, value_name = "NAME")]
    function: Option<String>,
}

/// Connection to a running godwit.
pub(crate) struct Connection {
    path: PathBuf,
    stream: BufReader<UnixStream>,
}

impl Socket {
    pub(crate) fn connect(&self) -> Result<Connection, Failure> {
        let path = match self.path.clone().or_else(|| std::env::var_os("GODWIT_CONTROL").map(PathBuf::from)) {
            Some(path) => path,
            None => runtime::only_socket()?,
        };
        let stream = UnixStream::connect(&path)
            .map_err(|error| Failure::User(format!("no godwit answers at {}: {error}", path.display())))?;
        Ok(Connection { path, stream: BufReader::new(stream) })
    }
}

impl Target {
    /// Returns a request to the selected function, which must be of one of `kinds`.
    pub(crate) fn request(&self, kinds: &[&str], command: &str) -> Value {
        let mut request = json!({ "kind": kinds, "command": command });
        if let Some(function) = &self.function {
            request["function"] = function.as_str().into();
        }
        request
    }
}

impl Connection {
    /// Sends a request and returns its result.
    ///
    /// # Errors
    /// Returns an error if godwit refuses the request or closes the connection.
    pub(crate) fn send(&mut self, request: &Value) -> Result<Value, Failure> {
        let failure = |problem: &str| Failure::User(format!("godwit at {} {problem}", self.path.display()));
        let line = secret::line(request);
        // A godwit that refuses a connection sends a reply and closes the connection. The write
        // then fails, so read the reply, which contains the reason, before reporting an error.
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

    /// Waits until godwit ends and thereby closes the connection.
    pub(crate) fn wait_for_end(mut self) {
        let _ = std::io::copy(&mut self.stream, &mut std::io::sink());
    }
}
