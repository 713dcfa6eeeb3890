//! Client of a control socket (`docs/control.md`): one JSON object per line, in both directions.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

/// Time after which a missing reply is a failure.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Connected client.
#[derive(Debug)]
pub struct ControlClient(BufReader<UnixStream>);

impl ControlClient {
    /// Connects to the socket at `path`.
    #[track_caller]
    pub fn connect(path: &Path) -> Self {
        Self::try_connect(path).unwrap_or_else(|| panic!("{}: no server", path.display()))
    }

    /// Connects to the socket at `path`. Returns `None` if no server listens.
    pub fn try_connect(path: &Path) -> Option<Self> {
        let stream = UnixStream::connect(path).ok()?;
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout above 0");
        Some(Self(BufReader::new(stream)))
    }

    /// Returns the connection.
    pub fn stream(&self) -> &UnixStream {
        self.0.get_ref()
    }

    /// Sends bytes as they are. Returns whether the server still accepts them.
    pub fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.0.get_mut().write_all(bytes).is_ok()
    }

    /// Sends bytes as they are.
    #[track_caller]
    pub fn send(&mut self, bytes: &[u8]) {
        assert!(self.try_send(bytes), "the server closed the connection");
    }

    /// Receives one reply. Returns `None` if the server closed the connection.
    pub fn receive(&mut self) -> Option<Value> {
        let mut line = String::new();
        let bytes = self.0.read_line(&mut line).unwrap_or(0);
        (bytes > 0).then(|| serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}")))
    }

    /// Sends a request and returns the whole reply.
    #[track_caller]
    pub fn request(&mut self, request: &Value) -> Value {
        self.send(format!("{request}\n").as_bytes());
        self.receive().expect("a reply")
    }

    /// Sends a request, which must succeed. Returns its result.
    #[track_caller]
    pub fn result(&mut self, request: &Value) -> Value {
        let reply = self.request(request);
        assert_eq!(reply["ok"], true, "{request}: {reply}");
        reply["result"].clone()
    }

    /// Sends a request, which must be refused. Returns the error message.
    #[track_caller]
    pub fn error(&mut self, request: &Value) -> String {
        self.error_of_line(format!("{request}\n").as_bytes())
    }

    /// Sends a line, which must be refused. Returns the error message.
    #[track_caller]
    pub fn error_of_line(&mut self, line: &[u8]) -> String {
        self.send(line);
        let reply = self.receive().expect("a reply");
        assert_eq!(reply["ok"], false, "{reply}");
        reply["error"].as_str().expect("an error message").to_owned()
    }
}
