//! Test servers behind the proxy. They are threads with blocking sockets, and record requests as
//! they receive them.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Request of HTTP/1.1 as a server receives it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Header as received, without the request line.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

/// Server with a thread for each connection.
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    connections: Arc<Mutex<Vec<TcpStream>>>,
    requests: Arc<Mutex<Vec<Request>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Reply of a test server to a request.
pub(crate) enum Answer {
    /// Response with status 200 and this body.
    Body(Vec<u8>),
    /// The server sends these bytes and keeps the connection open.
    Raw(Vec<u8>),
    /// The server sends these bytes and closes the connection.
    Last(Vec<u8>),
}

impl Backend {
    /// Starts a server for raw connections on a free port.
    pub(crate) fn raw(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        Self::on("127.0.0.1:0".parse().unwrap(), Arc::default(), serve)
    }

    /// Starts a server of HTTP/1.1 on a free port.
    pub(crate) fn http(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        Self::http_on("127.0.0.1:0".parse().unwrap(), answer)
    }

    /// Starts a server of HTTP/1.1 that answers with the path.
    pub(crate) fn paths() -> Self {
        Self::http(|request| Answer::Body(request.path.clone().into_bytes()))
    }

    pub(crate) fn http_on(address: SocketAddr, answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&requests);
        let serve = move |stream: TcpStream| {
            // The client may close at any time.
            let _ = serve_http(stream, &record, &answer);
        };
        Self::on(address, requests, serve)
    }

    fn on(
        address: SocketAddr,
        requests: Arc<Mutex<Vec<Request>>>,
        serve: impl Fn(TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).unwrap_or_else(|error| panic!("{address}: {error}"));
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let (open, ended, serve) = (Arc::clone(&connections), Arc::clone(&stop), Arc::new(serve));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let end = stream.try_clone().unwrap();
                open.lock().unwrap().push(stream.try_clone().unwrap());
                let serve = Arc::clone(&serve);
                std::thread::spawn(move || {
                    serve(stream);
                    // The clone in the list keeps the connection open. The client may already have
                    // disconnected.
                    let _ = end.shutdown(Shutdown::Both);
                });
            }
        });
        Self { address, connections, requests, stop, thread: Some(thread) }
    }

    /// Returns the requests so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// Closes the listener and all connections, as if the process of the server ended.
    pub(crate) fn kill(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.stop.store(true, Ordering::SeqCst);
        // The thread waits for a connection.
        let _ = TcpStream::connect(self.address);
        thread.join().expect("the listener does not panic");
        for connection in self.connections.lock().unwrap().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.kill();
    }
}

fn serve_http(
    mut stream: TcpStream,
    record: &Mutex<Vec<Request>>,
    answer: &impl Fn(&Request) -> Answer,
) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(request) = read_request(&mut reader)? {
        record.lock().unwrap().push(request.clone());
        match answer(&request) {
            Answer::Body(body) => {
                stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes())?;
                if request.method != "HEAD" {
                    stream.write_all(&body)?;
                }
            }
            Answer::Raw(bytes) => stream.write_all(&bytes)?,
            Answer::Last(bytes) => {
                stream.write_all(&bytes)?;
                return stream.shutdown(Shutdown::Both);
            }
        }
    }
    Ok(())
}

fn read_request(reader: &mut impl BufRead) -> io::Result<Option<Request>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let mut request = Request { method: words.next().unwrap(), path: words.next().unwrap(), ..Request::default() };
    loop {
        let mut field = String::new();
        reader.read_line(&mut field)?;
        if field.trim().is_empty() {
            break;
        }
        request.head += &field;
    }
    let head = request.head.to_ascii_lowercase();
    if let Some((_, rest)) = head.split_once("content-length: ") {
        let length = rest.split("\r\n").next().and_then(|length| length.parse().ok()).expect("a length");
        request.body = vec![0; length];
        reader.read_exact(&mut request.body)?;
    } else if head.contains("transfer-encoding: chunked") {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size)?;
            let size = usize::from_str_radix(size.trim(), 16).map_err(io::Error::other)?;
            let mut chunk = vec![0; size + 2];
            reader.read_exact(&mut chunk)?;
            request.body.extend_from_slice(&chunk[..size]);
            if size == 0 {
                break;
            }
        }
    }
    Ok(Some(request))
}
