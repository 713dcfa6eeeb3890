//! Serves the metrics of a run over HTTP, on a Unix socket or a loopback address.
//!
//! One thread answers one client at a time. It does not disturb the workers, because it only reads
//! published values.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::config::MetricsAddress;
use crate::control::cores::pin_to;
use crate::control::socket::Commands;
use crate::error::Error;
use crate::observe::openmetrics;

/// Maximum length of a request, in bytes.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Time in which a client must send its request and read the answer.
const CLIENT_LIMIT: Duration = Duration::from_secs(2);
/// Longest wait in one read or write of a client.
const IO_LIMIT: Duration = Duration::from_millis(200);
/// Interval at which the thread looks for clients and for the end of the run.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Open socket that answers no client yet.
#[derive(Debug)]
pub(crate) enum MetricsSocket {
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener),
}

impl MetricsSocket {
    /// Listens at `address`. Replaces the Unix socket of a process that has ended.
    ///
    /// # Errors
    /// Returns an error if the address is in use, or cannot be opened.
    pub(crate) fn open(address: &MetricsAddress) -> Result<Self, Error> {
        let refuse = |at: &dyn std::fmt::Display, error: std::io::Error| {
            Error::Setup(format!("cannot serve metrics at {at}: {error}"))
        };
        match address {
            MetricsAddress::Unix(path) => {
                let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
                if is_socket && UnixStream::connect(path).is_err() {
                    let _ = std::fs::remove_file(path);
                }
                let listener = UnixListener::bind(path).and_then(|listener| {
                    listener.set_nonblocking(true)?;
                    Ok(listener)
                });
                listener
                    .map(|listener| Self::Unix(listener, path.clone()))
                    .map_err(|error| refuse(&path.display(), error))
            }
            MetricsAddress::Tcp(address) => {
                let listener = TcpListener::bind(address).and_then(|listener| {
                    listener.set_nonblocking(true)?;
                    Ok(listener)
                });
                listener.map(Self::Tcp).map_err(|error| refuse(address, error))
            }
        }
    }

    /// Accepts a client, if one waits.
    fn accept(&self) -> Option<Box<dyn Client>> {
        match self {
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept().ok()?;
                stream.set_nonblocking(false).ok()?;
                stream.set_read_timeout(Some(IO_LIMIT)).ok()?;
                stream.set_write_timeout(Some(IO_LIMIT)).ok()?;
                Some(Box::new(stream))
            }
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().ok()?;
                stream.set_nonblocking(false).ok()?;
                stream.set_read_timeout(Some(IO_LIMIT)).ok()?;
                stream.set_write_timeout(Some(IO_LIMIT)).ok()?;
                Some(Box::new(stream))
            }
        }
    }
}

impl Drop for MetricsSocket {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Connection to a client.
trait Client: Read + Write {}
impl<T: Read + Write> Client for T {}

/// Thread that serves metrics. Dropping this value ends it.
pub(crate) struct MetricsServer {
    ended: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl MetricsServer {
    /// Starts the thread on `cores`, on which no worker runs.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub(crate) fn start(socket: MetricsSocket, commands: Arc<Commands>, cores: Vec<usize>) -> Result<Self, Error> {
        let ended = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&ended);
        let body = move || {
            if !cores.is_empty() {
                pin_to(&cores);
            }
            while !flag.load(Ordering::Relaxed) {
                match socket.accept() {
                    Some(mut client) => serve(&mut *client, &commands),
                    None => thread::sleep(LOOK_INTERVAL),
                }
            }
        };
        let thread = thread::Builder::new().name("metrics".to_owned()).spawn(body);
        let thread = thread.map_err(|error| Error::Setup(format!("cannot start the metrics thread: {error}")))?;
        Ok(Self { ended, thread: Some(thread) })
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn serve(client: &mut dyn Client, commands: &Commands) {
    let started = Instant::now();
    let Some(request) = read_request(client, started) else { return };
    let (status, kind, body) = match request_target(&request) {
        Some("/metrics") => match commands.current_report() {
            Ok(report) => ("200 OK", openmetrics::CONTENT_TYPE, openmetrics::text(&report, &commands.origin)),
            Err(error) => ("503 Service Unavailable", "text/plain", format!("{error}\n")),
        },
        Some(_) => ("404 Not Found", "text/plain", "the metrics are at /metrics\n".to_owned()),
        None => ("405 Method Not Allowed", "text/plain", "only GET is supported\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let mut rest = [head.as_bytes(), body.as_bytes()].concat();
    while !rest.is_empty() && started.elapsed() < CLIENT_LIMIT {
        match client.write(&rest) {
            Ok(0) => return,
            Ok(bytes) => drop(rest.drain(..bytes)),
            Err(error) if is_temporary(&error) => {}
            Err(_) => return,
        }
    }
}

fn is_temporary(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Reads a request up to the empty line after its header. Returns `None` if no complete request
/// arrives.
fn read_request(client: &mut dyn Client, started: Instant) -> Option<Vec<u8>> {
    let (mut request, mut part) = (Vec::new(), [0; 1024]);
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if request.len() > REQUEST_BYTES_MAX || started.elapsed() > CLIENT_LIMIT {
            return None;
        }
        match client.read(&mut part) {
            Ok(0) => return None,
            Ok(bytes) => request.extend_from_slice(&part[..bytes]),
            Err(error) if is_temporary(&error) => {}
            Err(_) => return None,
        }
    }
    Some(request)
}

/// Returns the path of a GET request, without a query.
fn request_target(request: &[u8]) -> Option<&str> {
    let line = std::str::from_utf8(request.split(|&byte| byte == b'\r').next()?).ok()?;
    let mut words = line.split(' ');
    (words.next() == Some("GET")).then(|| words.next().unwrap_or_default().split('?').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_path_of_a_get_request_counts() {
        assert_eq!(request_target(b"GET /metrics?name=x HTTP/1.1\r\nHost: a\r\n\r\n"), Some("/metrics"));
        assert_eq!(request_target(b"GET / HTTP/1.0\r\n\r\n"), Some("/"));
        for other in [&b"POST /metrics HTTP/1.1\r\n\r\n"[..], b"\xff\r\n\r\n", b"\r\n\r\n"] {
            assert_eq!(request_target(other), None);
        }
    }

    #[test]
    fn a_request_that_is_too_long_or_ends_early_is_ignored() {
        let mut long = std::io::Cursor::new(vec![b'a'; 3 * REQUEST_BYTES_MAX]);
        assert_eq!(read_request(&mut long, Instant::now()), None);
        let mut short = std::io::Cursor::new(b"GET /metrics HTTP/1.1\r\n".to_vec());
        assert_eq!(read_request(&mut short, Instant::now()), None);
    }
}
