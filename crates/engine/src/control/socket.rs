//! Implements the control socket, a Unix socket that accepts one request per line and sends one
//! reply per line. Both are JSON objects.
//!
//! ```text
//! client   {"command":"status"}
//! server   {"ok":true,"result":{...}}
//! client   {"function":"vpn","command":"list"}
//! server   {"ok":false,"error":"..."}
//! ```
//! Each client has a separate thread. Function commands run one at a time. Only the user that runs
//! Godwit has access to the socket. A request may contain keys, so its bytes are overwritten after
//! the answer. Replies and log lines quote only names from a request.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use godwit_function::request::refuse_unknown;
use godwit_function::{Function, Running};
use nix::libc::{EMFILE, ENFILE};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
use nix::sys::stat::{Mode, fchmod};
use serde_json::{Value, json};
use zeroize::{Zeroize, Zeroizing};

use crate::control::address::{Named, addressed};
use crate::control::cores::pin_to;
use crate::control::running::RunningFunction;
use crate::control::wiped::WipedValue;
use crate::error::Error;
use crate::observe::report::Report;
use crate::observe::trace::{Trace, Traces};
use crate::place::devices::Devices;
use crate::place::monitor::Monitor;
use crate::plan::changer::{ChangeResult, Changer};
use crate::plan::grace::GracePeriods;

/// Maximum length of a request, in bytes.
const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Maximum number of simultaneous clients.
const CLIENTS_MAX: usize = 8;
/// Idle time after which the server disconnects a client.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Longest time in which a client must read a complete reply.
const WRITE_LIMIT: Duration = Duration::from_secs(5);
/// Time after the end of the run in which a client can still read a reply.
const END_WRITE_LIMIT: Duration = Duration::from_millis(200);
/// Interval at which a waiting thread checks whether the run has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Longest wait for a report. It is normally available much earlier.
const REPORT_LIMIT: Duration = Duration::from_secs(10);
/// Time after the end of the run in which a client can still read the packets of its trace.
const TRACE_GRACE: Duration = Duration::from_secs(1);
/// Maximum time for which a trace request waits for packets.
const TRACE_WAIT: Duration = Duration::from_millis(500);

/// Engine commands with their keys. A trace checks the keys of `start` itself.
const COMMANDS: [(&str, &[&str]); 6] = [
    ("status", &[]),
    ("stop", &[]),
    ("chain", &["text", "origin", "directory"]),
    ("reload", &[]),
    ("policy", &["policy", "under", "placement"]),
    ("help", &[]),
];

/// Control socket that accepts connections but does not answer requests yet. Dropping it removes
/// the socket file.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl ControlSocket {
    /// Listens at `path`. Replaces the socket file of a process that has ended.
    ///
    /// # Errors
    /// Returns an error if another process listens at `path`, if the file is not a socket, or if
    /// the socket cannot be created.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let refuse = |what: &str| Error::Setup(format!("cannot listen for control at {}: {what}", path.display()));
        match std::fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => return Err(refuse("the path exists and is not a socket")),
            Ok(_) => match UnixStream::connect(path) {
                Ok(_) => return Err(refuse("another process listens there")),
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(path).map_err(|error| refuse(&error.to_string()))?;
                }
                Err(error) => return Err(refuse(&error.to_string())),
            },
            Err(_) => {}
        }
        let made = || -> nix::Result<UnixListener> {
            let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            let made = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
            // The mode is set before the socket has a name, because other users must never be able
            // to connect.
            fchmod(&made, Mode::S_IRUSR | Mode::S_IWUSR)?;
            bind(made.as_raw_fd(), &UnixAddr::new(path)?)?;
            listen(&made, Backlog::new(CLIENTS_MAX as i32)?)?;
            Ok(made.into())
        };
        let listener = made().map_err(|error| refuse(error.desc()))?;
        Ok(Self { listener, path: path.to_owned() })
    }

    /// Waits for a client for at most [`LOOK_INTERVAL`], and returns its connection. If no file
    /// descriptor is free, refuses the client with the spare descriptor.
    fn accept(&self, spare: &mut Option<File>, ended: &AtomicBool) -> Option<UnixStream> {
        if !is_readable(&self.listener, LOOK_INTERVAL) {
            return None;
        }
        match self.listener.accept() {
            Ok((stream, _)) => return Some(stream),
            Err(error) if matches!(error.raw_os_error(), Some(EMFILE | ENFILE)) => {
                drop(spare.take());
                if let Ok((stream, _)) = self.listener.accept() {
                    reply(&stream, &refused("this process has no file descriptor left: raise LimitNOFILE"), ended);
                }
                *spare = spare_descriptor();
            }
            Err(_) => {}
        }
        // The listener may still be readable. Without this pause, the loop would use a whole core.
        thread::sleep(LOOK_INTERVAL);
        None
    }
}

/// Opens the spare file descriptor with which [`ControlSocket::accept`] refuses a client.
fn spare_descriptor() -> Option<File> {
    File::open("/dev/null").ok()
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn is_readable(from: &impl AsFd, limit: Duration) -> bool {
    let mut fds = [PollFd::new(from.as_fd(), PollFlags::POLLIN)];
    let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::ZERO);
    poll(&mut fds, limit).is_ok_and(|ready| ready > 0)
}

/// Engine parts for control requests and for the periodic work of functions.
pub(crate) struct Commands {
    /// Configured name and implementation of each function.
    pub(crate) functions: Vec<(String, Arc<dyn Function>)>,
    /// Name of the configuration file, as given.
    pub(crate) origin: String,
    pub(crate) devices: Arc<Devices>,
    pub(crate) graces: GracePeriods,
    pub(crate) traces: Arc<Traces>,
    /// Channel for report requests, which the watch loop answers.
    pub(crate) reports: Sender<Sender<Report>>,
    /// Flag that the command `stop` sets.
    pub(crate) stop: Arc<AtomicBool>,
    /// Lock that permits only one call of a function at a time.
    pub(crate) one_at_a_time: Mutex<()>,
    pub(crate) changer: Changer,
    /// Placement of the functions, if one is configured.
    pub(crate) placement: Option<Arc<Monitor>>,
}

/// Threads that answer clients. They end when this value is dropped.
pub(crate) struct ControlServer {
    ended: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl ControlServer {
    /// Starts the server. Pins its threads to `cores`, on which no worker runs. A busy worker would
    /// delay them by milliseconds.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub(crate) fn start(socket: ControlSocket, commands: Arc<Commands>, cores: Vec<usize>) -> Result<Self, Error> {
        let ended = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&ended);
        let thread = thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || {
                // The threads of clients inherit the affinity of this thread.
                if !cores.is_empty() {
                    pin_to(&cores);
                }
                serve(&socket, &commands, &flag);
            })
            .map_err(|error| Error::Setup(format!("cannot start the control socket thread: {error}")))?;
        Ok(Self { ended, thread: Some(thread) })
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn serve(socket: &ControlSocket, commands: &Commands, ended: &AtomicBool) {
    let clients = AtomicUsize::new(0);
    let mut spare = spare_descriptor();
    thread::scope(|scope| {
        while !ended.load(Ordering::Relaxed) {
            let Some(stream) = socket.accept(&mut spare, ended) else { continue };
            if clients.load(Ordering::Relaxed) >= CLIENTS_MAX {
                reply(&stream, &refused(format!("{CLIENTS_MAX} clients are connected already")), ended);
                continue;
            }
            clients.fetch_add(1, Ordering::Relaxed);
            let clients = &clients;
            let body = move || {
                serve_client(&stream, commands, ended);
                clients.fetch_sub(1, Ordering::Relaxed);
            };
            if thread::Builder::new().name("control-client".to_owned()).spawn_scoped(scope, body).is_err() {
                clients.fetch_sub(1, Ordering::Relaxed);
            }
        }
    });
}

/// Answers the requests of a client until it disconnects, is idle for too long, or sends too long a
/// request.
fn serve_client(mut stream: &UnixStream, commands: &Commands, ended: &AtomicBool) {
    // On some systems, accepted sockets inherit the non-blocking mode of the listener.
    if stream.set_nonblocking(false).is_err() {
        return;
    }
    // The buffer must not grow, because freed memory could then contain a copy of a key.
    let mut read = Zeroizing::new(vec![0; REQUEST_BYTES_MAX]);
    let mut filled = 0;
    let mut last_activity = Instant::now();
    // Trace of this client. It ends when the client disconnects.
    let mut trace = None;
    // After the run, a client with an active trace has a short time to read the last packets.
    while !ended.load(Ordering::Relaxed) || (trace.is_some() && last_activity.elapsed() < TRACE_GRACE) {
        while let Some(end) = read[..filled].iter().position(|&byte| byte == b'\n') {
            // After the run, remaining requests are not answered.
            if ended.load(Ordering::Relaxed) && trace.is_none() {
                return;
            }
            let answer = answer(&read[..end], commands, &mut trace);
            read.copy_within(end + 1..filled, 0);
            let rest = filled - (end + 1);
            read[rest..filled].zeroize();
            filled = rest;
            if !reply(stream, &answer, ended) {
                return;
            }
            last_activity = Instant::now();
        }
        if filled == read.len() {
            reply(stream, &refused(format!("a request must not exceed {REQUEST_BYTES_MAX} bytes")), ended);
            return;
        }
        if !is_readable(stream, LOOK_INTERVAL) {
            if last_activity.elapsed() > SILENCE_MAX {
                return;
            }
            continue;
        }
        match stream.read(&mut read[filled..]) {
            Ok(0) => return,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return,
        }
        last_activity = Instant::now();
    }
}

/// Sends a reply. Returns false if the client has disconnected or reads too slowly.
fn reply(mut stream: &UnixStream, answer: &Value, ended: &AtomicBool) -> bool {
    let mut line = answer.to_string();
    line.push('\n');
    let mut rest = line.as_bytes();
    if stream.set_write_timeout(Some(LOOK_INTERVAL)).is_err() {
        return false;
    }
    let (started, mut end) = (Instant::now(), None);
    while !rest.is_empty() {
        if ended.load(Ordering::Relaxed) {
            end.get_or_insert_with(Instant::now);
        }
        if started.elapsed() > WRITE_LIMIT || end.is_some_and(|end: Instant| end.elapsed() > END_WRITE_LIMIT) {
            return false;
        }
        match stream.write(rest) {
            Ok(0) => return false,
            Ok(bytes) => rest = &rest[bytes..],
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {}
            Err(_) => return false,
        }
    }
    true
}

fn refused(sentence: impl std::fmt::Display) -> Value {
    json!({ "ok": false, "error": sentence.to_string() })
}

fn answer(line: &[u8], commands: &Commands, trace: &mut Option<Trace>) -> Value {
    let request: WipedValue = match serde_json::from_slice(line) {
        Ok(request) => request,
        // The message does not quote the request, which may contain a key.
        Err(error) => return refused(format!("invalid JSON at column {}", error.column())),
    };
    let result = catch_unwind(AssertUnwindSafe(|| commands.run(&request.0, trace)));
    drop(request);
    match result {
        Ok(Ok(result)) => json!({ "ok": true, "result": result }),
        Ok(Err(sentence)) => refused(sentence),
        Err(_) => refused("a bug interrupted this request; the engine continues"),
    }
}

impl Commands {
    fn run(&self, request: &Value, trace: &mut Option<Trace>) -> Result<Value, Error> {
        let command = match (request.as_object(), request.get("command").and_then(Value::as_str)) {
            (None, _) => return Err(Error::request("a request must be a JSON object")),
            (_, None) => return Err(Error::request("a request must contain the string `command`")),
            (_, Some(command)) => command,
        };
        let named: Vec<Named<'_>> =
            self.functions.iter().map(|(name, function)| (name.as_str(), function.contract().kind)).collect();
        if let Some(function) = addressed(request, &named)? {
            let run = |function: &dyn Function, running: &dyn Running| match function.operate() {
                Some(part) => part.command(request, running),
                None => Err(godwit_function::Error::no_commands()),
            };
            return self.with(function, run).map_err(Error::request);
        }
        refuse_unknown(request, &COMMANDS).map_err(Error::request)?;
        match command {
            "status" => self.report(),
            "stop" => {
                self.stop.store(true, Ordering::Relaxed);
                Ok(Value::Null)
            }
            "trace" => self.trace(request, trace),
            "chain" => self.change_chain(request).and_then(to_value),
            "reload" => self.changer.reload().and_then(to_value),
            "policy" => self.policy(request),
            "help" => Ok(help(&named)),
            _ => Err(Error::request(
                "the engine has the commands `status`, `stop`, `trace`, `chain`, `reload`, `policy` and `help`: other \
                 commands need a `function`",
            )),
        }
    }

    /// Handles a trace request. A client sends `start`, and then `read` until the trace is over. It
    /// can end the trace with `stop`.
    fn trace(&self, request: &Value, trace: &mut Option<Trace>) -> Result<Value, Error> {
        let none = || Error::request("no trace is active: `start` one on this connection");
        if request.get("action").and_then(Value::as_str) != Some("start") {
            refuse_unknown(request, &[("trace", &["action", "wait_ms"])]).map_err(Error::request)?;
        }
        let wait = request.get("wait_ms").and_then(Value::as_u64).map(Duration::from_millis);
        let wait = wait.unwrap_or(TRACE_WAIT).min(TRACE_WAIT);
        let found = match request.get("action").and_then(Value::as_str) {
            Some("start") if trace.is_some() => return Err(Error::request("a trace is active: `stop` it first")),
            Some("start") => {
                *trace = Some(self.traces.start(request)?);
                return Ok(Value::Null);
            }
            Some("read") => trace.as_ref().ok_or_else(none)?.read(wait),
            Some("stop") => trace.take().ok_or_else(none)?.stop(),
            _ => return Err(Error::request("`action` must be `start`, `read` or `stop`")),
        };
        if found.over {
            *trace = None;
        }
        serde_json::to_value(found).map_err(Error::request)
    }

    /// Sets the policy of the placement if the request names one. Returns the policy and the
    /// placement.
    fn policy(&self, request: &Value) -> Result<Value, Error> {
        let [policy, under, placement] = ["policy", "under", "placement"].map(|key| text(request, key));
        let (policy, under, placement) = (policy?, under?, placement?);
        let missing =
            "no placement is configured: add [placement] with a profile to the configuration, and restart Godwit";
        let monitor = self.placement.as_ref().ok_or_else(|| Error::request(missing))?;
        match policy {
            Some(policy) => monitor.set(policy, under, placement)?,
            None if under.is_some() || placement.is_some() => {
                return Err(Error::request("`under` and `placement` need the string `policy`"));
            }
            None => {}
        }
        serde_json::to_value(monitor.report()).map_err(Error::request)
    }

    fn change_chain(&self, request: &Value) -> Result<ChangeResult, Error> {
        let text = |key: &str| text(request, key);
        let missing = "`chain` needs the string `text` with [[class]] and [[chain]] stanzas";
        let chain = text("text")?.ok_or_else(|| Error::request(missing))?;
        let (origin, directory) = (text("origin")?.unwrap_or("the chain"), text("directory")?.unwrap_or_default());
        self.changer.take(chain, origin, Path::new(directory))
    }

    /// Calls `act` with a function, outside the packet path. Only one such call runs at a time.
    pub(crate) fn with<R>(&self, function: usize, act: impl FnOnce(&dyn Function, &dyn Running) -> R) -> R {
        let _guard = self.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        let running = RunningFunction { function, devices: self.devices.all(), graces: &self.graces };
        act(&*self.functions[function].1, &running)
    }

    /// Asks the watch loop for a report.
    ///
    /// # Errors
    /// Returns an error if the run is ending.
    pub(crate) fn current_report(&self) -> Result<Report, Error> {
        let (sender, receiver) = channel();
        let ended = || Error::request("the run is ending");
        self.reports.send(sender).map_err(|_| ended())?;
        receiver.recv_timeout(REPORT_LIMIT).map_err(|_| ended())
    }

    fn report(&self) -> Result<Value, Error> {
        let mut report = serde_json::to_value(self.current_report()?).map_err(Error::request)?;
        report["godwit"] = env!("CARGO_PKG_VERSION").into();
        report["config"] = self.origin.as_str().into();
        Ok(report)
    }
}

/// Returns the string value of a key, or `None` if the request does not contain the key.
fn text<'a>(request: &'a Value, key: &str) -> Result<Option<&'a str>, Error> {
    match request.get(key) {
        None => Ok(None),
        Some(value) => value.as_str().map(Some).ok_or_else(|| Error::request(format_args!("`{key}` must be a string"))),
    }
}

/// Returns the engine commands with their keys, and the function kinds.
fn help(functions: &[Named<'_>]) -> Value {
    let mut commands: serde_json::Map<String, Value> =
        COMMANDS.iter().map(|(name, keys)| ((*name).to_owned(), json!(keys))).collect();
    commands.insert("trace".to_owned(), json!(["action", "wait_ms", "count", "dropped", "frames", "filter"]));
    let kinds: serde_json::Map<String, Value> =
        functions.iter().map(|(name, kind)| ((*name).to_owned(), json!(kind))).collect();
    json!({ "commands": commands, "functions": kinds })
}

fn to_value(changed: ChangeResult) -> Result<Value, Error> {
    serde_json::to_value(changed).map_err(Error::request)
}
