//! Forwards one request: selects a server, retries after failures, and returns the response.

use std::net::SocketAddr;
use std::rc::Rc;

use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::task::spawn_local;

use super::Client;
use super::body::{RequestBody, ResponseBody};
use super::exchange::Exchange;
use super::headers::{self, Invalid};
use super::pool::{Key, Returned, Sender};
use super::upgrade;
use crate::config;
use crate::upstream::Lease;

/// Maximum number of attempts to send a request, over reused and new connections.
const ATTEMPTS_MAX: usize = 8;

/// Forwards a request to a server and returns the response. If no server answers, returns an error
/// response.
pub(super) async fn forward(client: Rc<Client>, mut request: Request<Incoming>) -> Response<ResponseBody> {
    let upgrading = hyper::upgrade::on(&mut request);
    let (mut head, body) = request.into_parts();
    let exchange = Exchange::begin(Rc::clone(&client), &head);
    let (link, counters) = (&client.link, client.link.counters());
    let limits = &link.proxy.config.limits;
    let limit = limits.body_bytes;
    let host = match headers::host(&head, limits.header_bytes) {
        Ok(host) => host,
        Err(invalid) => {
            counters.requests_refused_header.increment();
            return refuse(&exchange, invalid);
        }
    };
    exchange.set_host(host.to_str().unwrap_or_default());
    if body.size_hint().lower() > limit {
        return refuse_body(&exchange);
    }
    let websocket = head.version == hyper::Version::HTTP_11 && headers::is_websocket(&head);
    headers::to_server(&mut head, &host, client.address, websocket);
    let method = head.method.clone();
    let attempt = Attempt { client: &client, exchange: &exchange };
    let (response, returned) = match attempt.run(head, body, limit).await {
        Ok(answered) => answered,
        Err(_) if exchange.too_large.get() => return refuse_body(&exchange),
        Err(failure) => return answer(&exchange, failure.status(), failure.text()),
    };
    exchange.status.set(Some(response.status()));
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        if !websocket {
            counters.upstream_failed_response.increment();
            return answer(&exchange, StatusCode::BAD_GATEWAY, "the server switched protocols without a request");
        }
        return upgrade::switch(&client, exchange, upgrading, response, returned.lease);
    }
    let has_body =
        method != Method::HEAD && !matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let (mut head, body) = response.into_parts();
    headers::remove_hop_by_hop(&mut head.headers);
    head.version = hyper::Version::HTTP_11;
    head.extensions.clear();
    let body = ResponseBody::server(body, returned, exchange, link.proxy.idle(), has_body);
    Response::from_parts(head, body)
}

/// Reason why no server answered a request.
#[derive(Clone, Copy, Debug)]
enum Failure {
    /// No connection could be established.
    Unavailable,
    /// The server closed the connection or sent invalid HTTP.
    Invalid,
    /// The server took too long.
    Timeout,
}

impl Failure {
    fn status(self) -> StatusCode {
        match self {
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Invalid => StatusCode::BAD_GATEWAY,
            Self::Timeout => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Unavailable => "no server is available",
            Self::Invalid => "the server sent no valid response",
            Self::Timeout => "the server did not respond in time",
        }
    }
}

/// State of the attempts to get an answer to one request.
struct Attempt<'a> {
    client: &'a Rc<Client>,
    exchange: &'a Rc<Exchange>,
}

impl Attempt<'_> {
    /// Sends the request to one server after another until one answers. A request that a server may
    /// have received is sent again only if it is idempotent and has no body.
    async fn run(&self, head: Parts, body: Incoming, limit: u64) -> Result<(Response<Incoming>, Returned), Failure> {
        let (link, counters) = (&self.client.link, self.client.link.counters());
        let proxy = &link.proxy;
        let replay = (head.method.is_idempotent() && body.is_end_stream()).then(|| head.clone());
        let body = RequestBody::new(body, Rc::clone(self.exchange), limit, proxy.idle());
        let mut request = Request::from_parts(head, body);
        let mut tried = Vec::new();
        for _ in 0..ATTEMPTS_MAX {
            let Some((lease, mut sender, reused)) = self.sender(self.client.address, &mut tried).await else { break };
            let key = self.key(&lease);
            *self.exchange.upstream.borrow_mut() = Some(lease.server().name.clone());
            let sent = sender.try_send_request(request);
            match tokio::time::timeout(config::seconds(proxy.config.timeouts.response_s), sent).await {
                Err(_) => {
                    counters.upstream_failed_timeout.increment();
                    return Err(Failure::Timeout);
                }
                Ok(Ok(response)) => {
                    if reused {
                        counters.upstream_reused.increment();
                    }
                    return Ok((response, Returned { pool: Rc::clone(&link.pool), key, sender, lease }));
                }
                Ok(Err(mut error)) => {
                    // The server may have closed a reused connection just before the send.
                    let again = error.take_message().or_else(|| {
                        let head = replay.clone()?;
                        Some(Request::from_parts(head, RequestBody::empty(Rc::clone(self.exchange))))
                    });
                    let Some(again) = again else {
                        counters.upstream_failed_response.increment();
                        return Err(Failure::Invalid);
                    };
                    request = again;
                    if !reused {
                        lease.failed();
                        tried.push(lease.index);
                    }
                    counters.upstream_retries.increment();
                }
            }
        }
        counters.upstream_none.increment();
        Err(Failure::Unavailable)
    }

    fn key(&self, lease: &Lease) -> Key {
        let link = &self.client.link;
        (link.index(), link.generation, lease.index)
    }

    /// Returns a connection to a server outside `tried`, and whether the connection is reused.
    async fn sender(&self, client: SocketAddr, tried: &mut Vec<usize>) -> Option<(Lease, Sender, bool)> {
        let (link, counters) = (&self.client.link, self.client.link.counters());
        let proxy = &link.proxy;
        let keep = config::seconds(proxy.config.timeouts.keep_alive_s);
        while let Some(lease) = proxy.upstreams.choose(client, tried) {
            if let Some(sender) = link.pool.take(self.key(&lease), keep).await {
                return Some((lease, sender, true));
            }
            let connected = async {
                let connection = proxy.connector.connect(lease.server(), &[]).await.ok()?;
                http1::handshake(TokioIo::new(connection)).await.ok()
            };
            match connected.await {
                Some((sender, connection)) => {
                    counters.upstream_connections.increment();
                    // This task runs the connection until the sender is dropped or the server
                    // closes it. The request also gets the errors, so the task ignores them.
                    spawn_local(async move {
                        let _ = connection.with_upgrades().await;
                    });
                    return Some((lease, sender, false));
                }
                None => {
                    lease.failed();
                    counters.upstream_failed_connect.increment();
                    tried.push(lease.index);
                    if tried.len() < proxy.upstreams.servers.len() {
                        counters.upstream_retries.increment();
                    }
                }
            }
        }
        None
    }
}

/// Returns a response that the proxy itself creates.
fn answer(exchange: &Rc<Exchange>, status: StatusCode, text: &str) -> Response<ResponseBody> {
    exchange.status.set(Some(status));
    // For HEAD, hyper removes the response body in HTTP/1.1, but not in HTTP/2.
    let text = if exchange.is_head { String::new() } else { format!("{text}\n") };
    let mut response = Response::new(ResponseBody::own(text, Some(Rc::clone(exchange))));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

fn refuse(exchange: &Rc<Exchange>, invalid: Invalid) -> Response<ResponseBody> {
    match invalid {
        Invalid::Host => answer(exchange, StatusCode::BAD_REQUEST, "the request needs one valid host"),
        Invalid::Size => {
            answer(exchange, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "the header of the request is too large")
        }
        Invalid::Length => answer(exchange, StatusCode::BAD_REQUEST, "the request has two lengths"),
        Invalid::Connect => {
            let mut response = answer(exchange, StatusCode::METHOD_NOT_ALLOWED, "CONNECT is not supported");
            let allowed = HeaderValue::from_static("GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH");
            response.headers_mut().insert(ALLOW, allowed);
            response
        }
    }
}

fn refuse_body(exchange: &Rc<Exchange>) -> Response<ResponseBody> {
    exchange.client.link.counters().requests_refused_body.increment();
    answer(exchange, StatusCode::PAYLOAD_TOO_LARGE, "the body of the request is too large")
}
