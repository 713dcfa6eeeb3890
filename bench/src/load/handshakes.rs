//! Clients and a web server for the TLS proxy benchmark. They run on the thread that calls
//! [`Clients::round`], or on threads that it starts.

use std::cell::RefCell;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::{self, cipher_suite, kx_group};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::TLS13;
use rustls::{ClientConfig, HandshakeKind, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinSet, LocalSet, spawn_local};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::error::Error;

/// Time limit of a handshake and of a request.
const LIMIT: Duration = Duration::from_secs(10);
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Work of the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Each connection has a full handshake, and ends after it.
    Full,
    /// Each connection resumes the session of an earlier one, and ends after the handshake.
    Resumed,
    /// Each connection stays open and sends one request after another.
    Requests,
}

impl Work {
    pub(crate) const ALL: [Self; 3] = [Self::Full, Self::Resumed, Self::Requests];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Resumed => "resumed",
            Self::Requests => "requests",
        }
    }
}

/// Clients that verify the certificate and every signature of a server.
pub(crate) struct Clients(ClientConfig);

/// A client before the measurement: its connector, and a connection if it stays open.
type Prepared = (TlsConnector, Option<TlsStream<TcpStream>>);

/// Results of one round.
pub(crate) struct Round {
    /// Nanoseconds per handshake or request, measured by the client.
    pub(crate) times_ns: Vec<f64>,
    pub(crate) elapsed: Duration,
}

impl Clients {
    /// Creates clients that trust the certificate in a PEM file.
    pub(crate) fn new(certificate: &Path) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(certificate).map_err(Error::setup)?).map_err(Error::setup)?;
        // All benchmarked servers use the same suite and the same group.
        let mut provider = aws_lc_rs::default_provider();
        provider.cipher_suites = vec![cipher_suite::TLS13_AES_128_GCM_SHA256];
        provider.kx_groups = vec![kx_group::X25519];
        let builder = ClientConfig::builder_with_provider(Arc::new(provider)).with_protocol_versions(&[&TLS13]);
        Ok(Self(builder.map_err(Error::setup)?.with_root_certificates(roots).with_no_client_auth()))
    }

    /// Returns a connector with a separate session store, because each ticket serves one
    /// connection.
    fn connector(&self, work: Work) -> TlsConnector {
        let mut config = self.0.clone();
        config.resumption = match work {
            Work::Resumed => Resumption::in_memory_sessions(8),
            Work::Full | Work::Requests => Resumption::disabled(),
        };
        TlsConnector::from(Arc::new(config))
    }

    /// Runs `work` on `connections` parallel connections for the time `duration`. Also returns the
    /// results of `measure` after the preparation and after the last answer.
    ///
    /// # Errors
    /// Returns an error if a handshake or a request fails.
    pub(crate) fn round<T>(
        &self,
        address: SocketAddr,
        work: Work,
        connections: usize,
        duration: Duration,
        measure: impl Fn() -> T,
    ) -> Result<(Round, T, T), Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::setup)?;
        LocalSet::new().block_on(&runtime, async {
            let prepared = self.prepare(address, work, connections).await?;
            let (before, started) = (measure(), Instant::now());
            let end = started + duration;
            let times = Rc::new(RefCell::new(Vec::new()));
            let mut tasks = JoinSet::new();
            for (connector, stream) in prepared {
                let client = Client { connector, address, work, times: Rc::clone(&times) };
                tasks.spawn_local(client.run(stream, end));
            }
            while let Some(ended) = tasks.join_next().await {
                ended
                    .map_err(Error::setup)?
                    .map_err(|error| Error::Setup(format!("a client of the bench: {error}")))?;
            }
            let (elapsed, after) = (started.elapsed(), measure());
            Ok((Round { times_ns: times.take(), elapsed }, before, after))
        })
    }

    /// Opens the connections of [`Work::Requests`], or receives tickets for [`Work::Resumed`].
    async fn prepare(&self, address: SocketAddr, work: Work, connections: usize) -> Result<Vec<Prepared>, Error> {
        let failed = |error: io::Error| Error::Setup(format!("a client of the bench: {error}"));
        let mut prepared = Vec::with_capacity(connections);
        for _ in 0..connections {
            let connector = self.connector(work);
            let stream = match work {
                Work::Full => None,
                Work::Resumed => {
                    close(connect(&connector, address).await.map_err(failed)?).await.map_err(failed)?;
                    None
                }
                Work::Requests => Some(connect(&connector, address).await.map_err(failed)?),
            };
            prepared.push((connector, stream));
        }
        Ok(prepared)
    }
}

/// A client that opens one connection after another, or sends one request after another.
struct Client {
    connector: TlsConnector,
    address: SocketAddr,
    work: Work,
    times: Rc<RefCell<Vec<f64>>>,
}

impl Client {
    async fn run(self, mut stream: Option<TlsStream<TcpStream>>, end: Instant) -> io::Result<()> {
        loop {
            let started = Instant::now();
            match &mut stream {
                Some(stream) => request(stream).await?,
                None => {
                    let stream = connect(&self.connector, self.address).await?;
                    self.times.borrow_mut().push(started.elapsed().as_nanos() as f64);
                    let resumed = stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed);
                    if resumed != (self.work == Work::Resumed) {
                        return Err(io::Error::other(format!("a handshake was resumed: {resumed}")));
                    }
                    close(stream).await?;
                }
            }
            if stream.is_some() {
                self.times.borrow_mut().push(started.elapsed().as_nanos() as f64);
            }
            if Instant::now() >= end {
                break;
            }
        }
        match stream {
            Some(stream) => close(stream).await,
            None => Ok(()),
        }
    }
}

async fn limited<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(LIMIT, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn connect(connector: &TlsConnector, address: SocketAddr) -> io::Result<TlsStream<TcpStream>> {
    limited(async {
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
        connector.connect(name, socket).await
    })
    .await
}

/// Closes a connection and waits until the server has closed it. The server has then sent its
/// tickets.
async fn close(mut stream: TlsStream<TcpStream>) -> io::Result<()> {
    limited(async {
        stream.shutdown().await?;
        let mut bytes = [0; 1024];
        loop {
            match stream.read(&mut bytes).await {
                Ok(0) => return Ok(()),
                // A server may report that a request is missing.
                Ok(_) => {}
                // A server may close without an alert after the client's.
                Err(error) if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    })
    .await
}

async fn request(stream: &mut TlsStream<TcpStream>) -> io::Result<()> {
    limited(async {
        stream.write_all(REQUEST).await?;
        let mut bytes = [0; 1024];
        let mut count = 0;
        // The body of each response is `ok`.
        while !(bytes[..count].ends_with(b"\r\n\r\nok")) {
            match stream.read(&mut bytes[count..]).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => count += more,
            }
        }
        if bytes.starts_with(b"HTTP/1.1 200") { Ok(()) } else { Err(io::Error::other("the status is not 200")) }
    })
    .await
}

/// Starts a web server on a new thread that runs until the process ends. Returns its address.
pub(crate) fn web_server() -> Result<SocketAddr, Error> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::setup)?;
    let address = listener.local_addr().map_err(Error::setup)?;
    listener.set_nonblocking(true).map_err(Error::setup)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::setup)?;
    let serve = move || {
        LocalSet::new().block_on(&runtime, async {
            let Ok(listener) = TcpListener::from_std(listener) else { return };
            while let Ok((stream, _)) = listener.accept().await {
                // The client may close at any time.
                spawn_local(async { drop(answer(stream).await) });
            }
        });
    };
    std::thread::Builder::new().name("web".to_owned()).spawn(serve).map_err(Error::setup)?;
    Ok(address)
}

/// Answers the requests of one connection. They have no body.
async fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut bytes = [0; 4096];
    let mut count = 0;
    loop {
        match stream.read(&mut bytes[count..]).await? {
            0 => return Ok(()),
            more => count += more,
        }
        if bytes[..count].ends_with(b"\r\n\r\n") {
            stream.write_all(RESPONSE).await?;
            count = 0;
        }
    }
}
