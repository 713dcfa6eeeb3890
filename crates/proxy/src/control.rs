//! Control socket of the proxy. Each request and each reply is one line of JSON
//! (`docs/control.md`).

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use serde_json::{Value, json};

use crate::Error;

/// Longest request, in bytes.
const REQUEST_BYTES_MAX: u64 = 64 << 10;
/// Maximum idle time of a client between two requests.
const WAIT: Duration = Duration::from_secs(10);

/// Command that a client sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Reads the report.
    Status,
    /// Reads the configuration file again.
    Reload,
    /// Ends the run.
    Stop,
}

/// Command and the channel for its reply.
pub(crate) struct Request {
    pub(crate) command: Command,
    pub(crate) reply: Sender<Result<Value, Error>>,
}

pub(crate) struct Control(PathBuf);

impl Control {
    /// Opens the control socket at `path`. One thread per client sends the client's requests to the
    /// channel `requests`.
    pub(crate) fn open(path: &Path, requests: Sender<Request>) -> Result<Self, Error> {
        let fail = |source| Error::File { file: path.to_owned(), source };
        if UnixStream::connect(path).is_err() {
            // A process that was killed leaves its socket file behind.
            let is_socket = std::fs::symlink_metadata(path)
                .is_ok_and(|metadata| std::os::unix::fs::FileTypeExt::is_socket(&metadata.file_type()));
            if is_socket {
                std::fs::remove_file(path).map_err(fail)?;
            }
        }
        let listener = UnixListener::bind(path).map_err(fail)?;
        let control = Self(path.to_owned());
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(fail)?;
        let accept = move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let requests = requests.clone();
                // If no thread can be created, the client is disconnected and may connect again.
                let _ = std::thread::Builder::new().name("control".to_owned()).spawn(move || serve(stream, &requests));
            }
        };
        std::thread::Builder::new().name("control".to_owned()).spawn(accept).map_err(Error::Thread)?;
        Ok(control)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Answers the requests of one client.
fn serve(mut stream: UnixStream, requests: &Sender<Request>) {
    let Ok(reader) = stream.set_read_timeout(Some(WAIT)).and_then(|()| stream.try_clone()) else { return };
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = String::new();
        match reader.by_ref().take(REQUEST_BYTES_MAX).read_line(&mut line) {
            Ok(1..) => {}
            Ok(0) | Err(_) => return,
        }
        let reply = match answer(&line, requests) {
            Ok(result) => json!({ "ok": true, "result": result }),
            Err(error) => json!({ "ok": false, "error": error.to_string() }),
        };
        if writeln!(stream, "{reply}").is_err() {
            return;
        }
    }
}

fn answer(line: &str, requests: &Sender<Request>) -> Result<Value, Error> {
    let refuse = |sentence: String| Err(Error::Request(sentence));
    let request: Value = match serde_json::from_str(line) {
        Ok(request) => request,
        Err(error) => return refuse(format!("the request is not JSON: {error}")),
    };
    let command = match request["command"].as_str() {
        Some("status") => Command::Status,
        Some("reload") => Command::Reload,
        Some("stop") => Command::Stop,
        Some(other) => return refuse(format!("unknown command `{other}`; a proxy has status, reload and stop")),
        None => return refuse("the request has no `command`".to_owned()),
    };
    if let Some(key) = request.as_object().into_iter().flatten().map(|(key, _)| key).find(|key| *key != "command") {
        return refuse(format!("unknown key `{}`: a request to a proxy has only `command`", key.escape_debug()));
    }
    let (reply, result) = channel();
    let stopping = || Error::Request("the proxy stops".to_owned());
    requests.send(Request { command, reply }).map_err(|_| stopping())?;
    result.recv().map_err(|_| stopping())?
}
