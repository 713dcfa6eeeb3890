//! The control socket: a Unix socket that takes one request a line and gives one reply a line, both JSON objects.
//!
//! ```text
//! client   {"command":"status"}
//! server   {"ok":true,"result":{...}}
//! client   {"function":"vpn","command":"list"}
//! server   {"ok":false,"error":"..."}
//! ```
//! Served by threads of its own, one a client; a function's commands run one at a time. Only who may read and write the
//! socket, that is the user that Godwit runs as, can reach it. A request may hold keys: its bytes are wiped once it is
//! answered, and no reply or message of this file quotes any of it but names.

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

use godwit_function::{Function, Running};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
use nix::sys::stat::{Mode, fchmod};
use serde_json::{Value, json};
use zeroize::{Zeroize, Zeroizing};

use crate::changer::{Changed, Changer};
use crate::control::pin_to;
use crate::grace::Graces;
use crate::running::RunningFunction;
use crate::setup::Devices;
use crate::trace::{Trace, Traces};
use crate::{Error, Report};

/// Longest request, bytes.
const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Most clients at once.
const CLIENTS_MAX: usize = 8;
/// A client that says nothing for so long is sent away.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// A client that does not take its reply in that time is left.
const WRITE_LIMIT: Duration = Duration::from_secs(5);
/// How often a thread that waits looks whether the run has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// The watch loop answers far sooner.
const REPORT_LIMIT: Duration = Duration::from_secs(10);
/// How long a client that traces is still listened to when the run has ended.
const TRACE_GRACE: Duration = Duration::from_secs(1);
/// Longest that a client waits for packets of its trace in one request.
const TRACE_WAIT: Duration = Duration::from_millis(500);

/// The socket, listening; nobody is answered yet. Removed when dropped.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl ControlSocket {
    /// Listens at `path`. What a Godwit that is gone has left there is replaced.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let refuse = |what: &str| Error::Setup(format!("cannot listen for control at {}: {what}", path.display()));
        match std::fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => return Err(refuse("there is a file, and it is no socket")),
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
            // Before it has a name, so that at no moment others can connect.
            fchmod(&made, Mode::S_IRUSR | Mode::S_IWUSR)?;
            bind(made.as_raw_fd(), &UnixAddr::new(path)?)?;
            listen(&made, Backlog::new(CLIENTS_MAX as i32)?)?;
            Ok(made.into())
        };
        let listener = made().map_err(|error| refuse(error.desc()))?;
        Ok(Self { listener, path: path.to_owned() })
    }

    /// A client that has come within [`LOOK_INTERVAL`].
    fn accept(&self) -> Option<UnixStream> {
        is_readable(&self.listener, LOOK_INTERVAL)
            .then(|| self.listener.accept().ok())
            .flatten()
            .map(|(stream, _)| stream)
    }
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

/// What requests and housekeeping can reach.
pub(crate) struct Commands {
    /// Configured name and function.
    pub(crate) functions: Vec<(String, Arc<dyn Function>)>,
    pub(crate) devices: Arc<Devices>,
    pub(crate) graces: Arc<Graces>,
    pub(crate) traces: Arc<Traces>,
    /// Who wants a report asks the watch loop for it.
    pub(crate) reports: Sender<Sender<Report>>,
    /// Set by `stop`.
    pub(crate) stop: Arc<AtomicBool>,
    /// Functions are told one thing at a time.
    pub(crate) one_at_a_time: Mutex<()>,
    pub(crate) changer: Changer,
}

/// The threads that answer. Ends them when dropped.
pub(crate) struct ControlServer {
    ended: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl ControlServer {
    /// `cores`: those that its threads are pinned to, if any are left for them. Behind a worker that spins they would wait for
    /// milliseconds until they are moved elsewhere.
    pub(crate) fn start(socket: ControlSocket, commands: Arc<Commands>, cores: Vec<usize>) -> Result<Self, Error> {
        let ended = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&ended);
        let thread = thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || {
                // Those of its clients begin with what it is pinned to.
                if !cores.is_empty() {
                    pin_to(&cores);
                }
                serve(&socket, &commands, &flag);
            })
            .map_err(|error| Error::Setup(format!("cannot start the thread of the control socket: {error}")))?;
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
    thread::scope(|scope| {
        while !ended.load(Ordering::Relaxed) {
            let Some(stream) = socket.accept() else { continue };
            if clients.load(Ordering::Relaxed) >= CLIENTS_MAX {
                reply(&stream, &refused(format!("{CLIENTS_MAX} clients are connected already")));
                continue;
            }
            clients.fetch_add(1, Ordering::Relaxed);
            let clients = &clients;
            let body = move || {
                talk(&stream, commands, ended);
                clients.fetch_sub(1, Ordering::Relaxed);
            };
            if thread::Builder::new().name("control-client".to_owned()).spawn_scoped(scope, body).is_err() {
                clients.fetch_sub(1, Ordering::Relaxed);
            }
        }
    });
}

/// Answers a client until it leaves, says nothing, or says something too long.
fn talk(mut stream: &UnixStream, commands: &Commands, ended: &AtomicBool) {
    // The listener does not block, and on some systems what it accepts inherits that.
    if stream.set_nonblocking(false).is_err() || stream.set_write_timeout(Some(WRITE_LIMIT)).is_err() {
        return;
    }
    // Never grows, so that no copy of a key is left behind.
    let mut read = Zeroizing::new(vec![0; REQUEST_BYTES_MAX]);
    let mut filled = 0;
    let mut last_heard = Instant::now();
    // Ends with its client.
    let mut trace = None;
    // Who traces hears of what was found until the end.
    while !ended.load(Ordering::Relaxed) || (trace.is_some() && last_heard.elapsed() < TRACE_GRACE) {
        while let Some(end) = read[..filled].iter().position(|&byte| byte == b'\n') {
            let answer = answer(&read[..end], commands, &mut trace);
            read.copy_within(end + 1..filled, 0);
            let rest = filled - (end + 1);
            read[rest..filled].zeroize();
            filled = rest;
            if !reply(stream, &answer) {
                return;
            }
            last_heard = Instant::now();
        }
        if filled == read.len() {
            reply(stream, &refused(format!("a request has at most {REQUEST_BYTES_MAX} bytes")));
            return;
        }
        if !is_readable(stream, LOOK_INTERVAL) {
            if last_heard.elapsed() > SILENCE_MAX {
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
        last_heard = Instant::now();
    }
}

/// False: the client is gone.
fn reply(mut stream: &UnixStream, answer: &Value) -> bool {
    let mut line = answer.to_string();
    line.push('\n');
    stream.write_all(line.as_bytes()).is_ok()
}

fn refused(sentence: impl std::fmt::Display) -> Value {
    json!({ "ok": false, "error": sentence.to_string() })
}

fn answer(line: &[u8], commands: &Commands, trace: &mut Option<Trace>) -> Value {
    let mut request: Value = match serde_json::from_slice(line) {
        Ok(request) => request,
        // Where it is wrong, and not what stands there.
        Err(error) => return refused(format!("this is not JSON from column {} on", error.column())),
    };
    let said = catch_unwind(AssertUnwindSafe(|| commands.run(&request, trace)));
    wipe_texts(&mut request);
    match said {
        Ok(Ok(result)) => json!({ "ok": true, "result": result }),
        Ok(Err(sentence)) => refused(sentence),
        Err(_) => refused("this request met a bug; the engine goes on"),
    }
}

impl Commands {
    fn run(&self, request: &Value, trace: &mut Option<Trace>) -> Result<Value, String> {
        let command = match (request.as_object(), request.get("command").and_then(Value::as_str)) {
            (None, _) => return Err("a request is a JSON object".to_owned()),
            (_, None) => return Err("a request has a text `command`".to_owned()),
            (_, Some(command)) => command,
        };
        if let Some(name) = request.get("function") {
            return self.tell(name, request);
        }
        match command {
            "status" => self.report(),
            "stop" => {
                self.stop.store(true, Ordering::Relaxed);
                Ok(Value::Null)
            }
            "trace" => self.trace(request, trace),
            "chain" => self.change_chain(request).and_then(said),
            "reload" => self.changer.reload().and_then(said),
            _ => Err("the engine takes `status`, `stop`, `trace`, `chain` and `reload`; what else there is goes to a `function`"
                .to_owned()),
        }
    }

    /// A client's trace: `start`, then `read` as long as it is not over, or `stop`.
    fn trace(&self, request: &Value, trace: &mut Option<Trace>) -> Result<Value, String> {
        const NONE: &str = "there is no trace: `start` one, on this connection";
        let wait = request.get("wait_ms").and_then(Value::as_u64).map(Duration::from_millis);
        let wait = wait.unwrap_or(TRACE_WAIT).min(TRACE_WAIT);
        let found = match request.get("action").and_then(Value::as_str) {
            Some("start") if trace.is_some() => return Err("there is a trace: `stop` it first".to_owned()),
            Some("start") => {
                *trace = Some(self.traces.start(request)?);
                return Ok(Value::Null);
            }
            Some("read") => trace.as_ref().ok_or(NONE)?.read(wait),
            Some("stop") => trace.take().ok_or(NONE)?.stop(),
            _ => return Err("`action` is `start`, `read` or `stop`".to_owned()),
        };
        if found.over {
            *trace = None;
        }
        serde_json::to_value(found).map_err(|error| error.to_string())
    }

    fn change_chain(&self, request: &Value) -> Result<Changed, String> {
        let text = |key: &str| match request.get(key) {
            None => Ok(None),
            Some(value) => value.as_str().map(Some).ok_or(format!("`{key}` must be a text")),
        };
        let chain = text("text")?.ok_or("`chain` has a text `text`: [[class]] and [[chain]] stanzas")?;
        let (origin, directory) = (text("origin")?.unwrap_or("the chain"), text("directory")?.unwrap_or_default());
        self.changer.take(chain, origin, Path::new(directory))
    }

    fn tell(&self, name: &Value, request: &Value) -> Result<Value, String> {
        let name = name.as_str().ok_or("`function` is the name of one")?;
        let Some(function) = self.functions.iter().position(|(known, _)| known == name) else {
            let known: Vec<&str> = self.functions.iter().map(|(name, _)| name.as_str()).collect();
            return Err(godwit_chain::names::unknown("function", name, &known));
        };
        self.with(function, |function, running| function.command(request, running)).map_err(|error| error.to_string())
    }

    /// Has a function do something beside the workers; nobody else has any function do anything meanwhile.
    pub(crate) fn with<R>(&self, function: usize, act: impl FnOnce(&dyn Function, &dyn Running) -> R) -> R {
        let _guard = self.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        let running = RunningFunction { function, devices: self.devices.all(), graces: &self.graces };
        act(&*self.functions[function].1, &running)
    }

    fn report(&self) -> Result<Value, String> {
        let (sender, receiver) = channel();
        let ended = |_| "the run is ending".to_owned();
        self.reports.send(sender).map_err(|error| ended(error.to_string()))?;
        let report = receiver.recv_timeout(REPORT_LIMIT).map_err(|error| ended(error.to_string()))?;
        serde_json::to_value(report).map_err(|error| error.to_string())
    }
}

fn said(changed: Changed) -> Result<Value, String> {
    serde_json::to_value(changed).map_err(|error| error.to_string())
}

/// Overwrites every text of a request or an answer, which may be a key.
pub fn wipe_texts(value: &mut Value) {
    match value {
        Value::String(text) => text.zeroize(),
        Value::Array(values) => values.iter_mut().for_each(wipe_texts),
        Value::Object(values) => values.values_mut().for_each(wipe_texts),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
