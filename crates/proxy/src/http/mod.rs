//! Mode `http`: accepts HTTP/1.1 and HTTP/2, and forwards requests over HTTP/1.1.

mod body;
mod exchange;
mod forward;
mod headers;
pub(crate) mod pool;
pub(crate) mod redirect;
mod upgrade;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::{Duration, Instant};

use godwit_tls::Accepted;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::spawn_local;

use crate::config;
use crate::state::{Link, Phase, Stop};
use body::ResponseBody;
use upgrade::Upgraded;

/// Maximum number of buffered response bytes per HTTP/2 stream.
const SEND_BYTES_MAX: usize = 64 << 10;
/// Extra time for a connection to end after a timeout.
const GRACE: Duration = Duration::from_secs(5);

/// Client connection, as all of its requests see it.
pub(crate) struct Client {
    pub(crate) link: Rc<Link>,
    pub(crate) address: SocketAddr,
    /// TLS version.
    pub(crate) version: &'static str,
    /// Number of requests in progress.
    in_progress: Cell<usize>,
    /// Time of the last progress, such as a new request or a part of a body.
    active: Cell<Instant>,
    /// WebSocket that the connection has become.
    upgraded: RefCell<Option<Upgraded>>,
}

#[derive(Clone, Copy)]
struct LocalExecutor;

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        spawn_local(future);
    }
}

/// Serves one connection until it ends.
pub(crate) async fn serve<S>(link: &Rc<Link>, accepted: Accepted<S>, address: SocketAddr)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let client = Rc::new(Client {
        link: Rc::clone(link),
        address,
        version: accepted.version,
        in_progress: Cell::new(0),
        active: Cell::new(Instant::now()),
        upgraded: RefCell::new(None),
    });
    let io = TokioIo::new(accepted.stream);
    let limits = &link.proxy.config.limits;
    let wait = config::seconds(link.proxy.config.timeouts.header_s);
    let answer = Rc::clone(&client);
    let service = service_fn(move |request| handle(Rc::clone(&answer), request));
    let result = if accepted.alpn.as_deref() == Some(b"h2") {
        let connection = http2::Builder::new(LocalExecutor)
            .timer(TokioTimer::new())
            .max_concurrent_streams(limits.streams)
            .max_header_list_size(limits.header_bytes as u32)
            .max_send_buf_size(SEND_BYTES_MAX)
            .keep_alive_interval(wait)
            .keep_alive_timeout(wait)
            .serve_connection(io, service);
        let mut connection = pin!(connection);
        let end = |connection: Pin<&mut _>| http2::Connection::graceful_shutdown(connection);
        drive(&client, connection.as_mut(), end, wait).await
    } else {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(wait)
            .max_buf_size(limits.header_bytes)
            .max_headers(limits.header_fields)
            .serve_connection(io, service)
            .with_upgrades();
        let mut connection = pin!(connection);
        let end = |connection: Pin<&mut _>| http1::UpgradeableConnection::graceful_shutdown(connection);
        // After the time `wait`, hyper closes a connection that has sent no request header.
        drive(&client, connection.as_mut(), end, wait + GRACE).await
    };
    let counters = link.counters();
    match result {
        Err(error) if error.is_timeout() => counters.closed_idle.increment(),
        Err(error) if error.is_parse() => counters.closed_protocol.increment(),
        _ => {}
    }
    let upgraded = client.upgraded.borrow_mut().take();
    if let Some(upgraded) = upgraded {
        upgraded.finished().await;
    }
}

/// Runs a client connection. After a stop or a reload, it finishes the requests in progress and
/// ends. It also ends after the time `idle` without a request, or when a request stalls.
async fn drive<C>(
    client: &Client,
    mut connection: Pin<&mut C>,
    end: impl Fn(Pin<&mut C>),
    idle: Duration,
) -> hyper::Result<()>
where
    C: Future<Output = hyper::Result<()>>,
{
    let link = &client.link;
    let mut phase = link.phase.clone();
    let must_end = |phase: &Phase| phase.stop > Stop::No || phase.generation != link.generation;
    let timeouts = &link.proxy.config.timeouts;
    let busy = config::seconds(timeouts.idle_s.max(timeouts.response_s + timeouts.connect_s)) + GRACE;
    tokio::select! {
        result = connection.as_mut() => return result,
        _ = phase.wait_for(must_end) => {}
        in_progress = client.quiet(idle, busy) => {
            link.counters().closed_idle.increment();
            if in_progress {
                return Ok(());
            }
        }
    }
    end(connection.as_mut());
    client.progress();
    tokio::select! {
        result = connection.as_mut() => result,
        // End the connection even if the client does not read the last response.
        _ = client.quiet(GRACE, busy) => Ok(()),
    }
}

impl Client {
    /// Waits until the connection has been unused for the time `idle`, or a request has stalled for
    /// the time `busy`. Returns whether a request is in progress.
    async fn quiet(&self, idle: Duration, busy: Duration) -> bool {
        loop {
            let in_progress = self.in_progress.get() > 0;
            let limit = if in_progress { busy } else { idle };
            match limit.checked_sub(self.active.get().elapsed()).filter(|rest| !rest.is_zero()) {
                Some(rest) => tokio::time::sleep(rest.min(idle)).await,
                None => return in_progress,
            }
        }
    }

    fn begin(&self) {
        self.in_progress.set(self.in_progress.get() + 1);
        self.progress();
    }

    fn end(&self) {
        self.in_progress.set(self.in_progress.get() - 1);
        self.progress();
    }

    /// Records that a part of a request or a response has arrived.
    fn progress(&self) {
        self.active.set(Instant::now());
    }
}

async fn handle(
    client: Rc<Client>,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, std::convert::Infallible> {
    Ok(forward::forward(client, request).await)
}
