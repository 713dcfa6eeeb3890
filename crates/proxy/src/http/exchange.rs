//! Counts a request and its response, and writes them to the access log.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Instant, SystemTime};

use hyper::header::{HeaderMap, HeaderName, REFERER, USER_AGENT};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use serde_json::json;

use super::Client;

/// Maximum length of a logged request field, in bytes.
const TEXT_BYTES_MAX: usize = 1024;

/// Request whose response is not yet complete. Dropping this value counts and logs the request.
pub(super) struct Exchange {
    pub(super) client: Rc<Client>,
    started: Instant,
    method: String,
    /// Whether the method is HEAD, which means that the response has no body.
    pub(super) is_head: bool,
    host: RefCell<String>,
    path: String,
    protocol: &'static str,
    agent: Option<String>,
    referer: Option<String>,
    pub(super) status: Cell<Option<StatusCode>>,
    pub(super) complete: Cell<bool>,
    pub(super) bytes_in: Cell<u64>,
    pub(super) bytes_out: Cell<u64>,
    pub(super) upstream: RefCell<Option<String>>,
    /// Whether the body of the request exceeded the limit.
    pub(super) too_large: Cell<bool>,
}

impl Exchange {
    pub(super) fn begin(client: Rc<Client>, request: &Parts) -> Rc<Self> {
        let counters = client.link.counters();
        counters.requests.increment();
        counters.requests_in_flight.increment();
        client.begin();
        let is_logged = client.link.log.is_some();
        let text = |text: &str| if is_logged { shorten(text) } else { String::new() };
        Rc::new(Self {
            started: Instant::now(),
            method: text(request.method.as_str()),
            is_head: request.method == Method::HEAD,
            host: RefCell::default(),
            path: text(request.uri.path_and_query().map_or("", |path| path.as_str())),
            protocol: if request.version == hyper::Version::HTTP_2 { "HTTP/2.0" } else { "HTTP/1.1" },
            agent: field(&request.headers, USER_AGENT).filter(|_| is_logged),
            referer: field(&request.headers, REFERER).filter(|_| is_logged),
            status: Cell::new(None),
            complete: Cell::new(false),
            bytes_in: Cell::new(0),
            bytes_out: Cell::new(0),
            upstream: RefCell::default(),
            too_large: Cell::new(false),
            client,
        })
    }

    pub(super) fn set_host(&self, host: &str) {
        if self.client.link.log.is_some() {
            *self.host.borrow_mut() = shorten(host);
        }
    }

    fn line(&self) -> String {
        let time = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs_f64();
        let line = json!({
            "time": (time * 1e3).round() / 1e3,
            "proxy": self.client.link.proxy.config.name,
            "client": self.client.address.to_string(),
            "tls": self.client.version,
            "protocol": self.protocol,
            "method": self.method,
            "host": *self.host.borrow(),
            "path": self.path,
            "status": self.status.get().map(|status| status.as_u16()),
            "complete": self.complete.get(),
            "bytes_in": self.bytes_in.get(),
            "bytes_out": self.bytes_out.get(),
            "ms": (self.started.elapsed().as_secs_f64() * 1e6).round() / 1e3,
            "upstream": *self.upstream.borrow(),
            "user_agent": self.agent,
            "referer": self.referer,
        });
        line.to_string()
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let counters = self.client.link.counters();
        self.client.end();
        counters.requests_in_flight.decrement();
        counters.bytes_in.add(self.bytes_in.get());
        counters.bytes_out.add(self.bytes_out.get());
        match self.status.get().filter(|_| self.complete.get()) {
            None => counters.requests_aborted.increment(),
            Some(status) => {
                counters.responses.increment();
                match status.as_u16() / 100 {
                    2 => counters.responses_2xx.increment(),
                    3 => counters.responses_3xx.increment(),
                    4 => counters.responses_4xx.increment(),
                    5 => counters.responses_5xx.increment(),
                    _ => {}
                }
            }
        }
        if let Some(log) = &self.client.link.log
            && !log.line(self.line())
        {
            counters.log_lost.increment();
        }
    }
}

fn field(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    headers.get(name).map(|value| shorten(&String::from_utf8_lossy(value.as_bytes())))
}

fn shorten(text: &str) -> String {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}
