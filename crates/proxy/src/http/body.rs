//! Request and response bodies, with their size limits, timeouts and counters.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};

use super::exchange::Exchange;
use super::pool::Returned;

struct Idle {
    timer: Pin<Box<Sleep>>,
    limit: Duration,
}

impl Idle {
    fn new(limit: Duration) -> Self {
        Self { timer: Box::pin(tokio::time::sleep(limit)), limit }
    }

    /// Restarts the timer on progress. Otherwise, returns an error once the timer has expired.
    fn check<T>(&mut self, cx: &mut Context<'_>, polled: &Poll<T>) -> io::Result<()> {
        if polled.is_ready() {
            self.timer.as_mut().reset(Instant::now() + self.limit);
            return Ok(());
        }
        match self.timer.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(()),
        }
    }
}

/// Body of a request on its way to a server.
pub(super) struct RequestBody {
    /// Body from the client, or `None` for a request without one.
    inner: Option<Incoming>,
    exchange: Rc<Exchange>,
    left: u64,
    idle: Idle,
}

impl RequestBody {
    pub(super) fn new(inner: Incoming, exchange: Rc<Exchange>, limit: u64, idle: Duration) -> Self {
        let inner = Some(inner).filter(|inner| !inner.is_end_stream());
        Self { inner, exchange, left: limit, idle: Idle::new(idle) }
    }

    /// Creates the body of a request that is sent again.
    pub(super) fn empty(exchange: Rc<Exchange>) -> Self {
        Self { inner: None, exchange, left: 0, idle: Idle::new(Duration::ZERO) }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Some(inner) = &mut self.inner else { return Poll::Ready(None) };
        let polled = Pin::new(inner).poll_frame(cx).map_err(io::Error::other);
        if let Err(error) = self.idle.check(cx, &polled) {
            return Poll::Ready(Some(Err(error)));
        }
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            let count = data.len() as u64;
            let Some(left) = self.left.checked_sub(count) else {
                self.exchange.too_large.set(true);
                return Poll::Ready(Some(Err(io::ErrorKind::FileTooLarge.into())));
            };
            self.left = left;
            self.exchange.bytes_in.set(self.exchange.bytes_in.get() + count);
            self.exchange.client.progress();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}

/// Body of a response on its way to the client.
pub(crate) struct ResponseBody {
    source: Source,
    exchange: Option<Rc<Exchange>>,
    /// Whether the body has ended, or the response has no body.
    ended: bool,
}

enum Source {
    /// The body is a text that the proxy itself created.
    Own(Full<Bytes>),
    /// Body from a server. After it ends, the connection in `returned` can serve another request.
    Server { inner: Incoming, idle: Idle, returned: Option<Returned> },
}

impl ResponseBody {
    pub(super) fn own(text: String, exchange: Option<Rc<Exchange>>) -> Self {
        Self { source: Source::Own(Full::new(text.into())), exchange, ended: false }
    }

    /// Creates a body from a server. `has_body` is false for responses without a body, such as
    /// responses to HEAD requests.
    pub(super) fn server(
        inner: Incoming,
        returned: Returned,
        exchange: Rc<Exchange>,
        idle: Duration,
        has_body: bool,
    ) -> Self {
        let source = Source::Server { inner, idle: Idle::new(idle), returned: Some(returned) };
        Self { source, exchange: Some(exchange), ended: !has_body }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let polled = match &mut self.source {
            Source::Own(text) => Pin::new(text).poll_frame(cx).map_err(|never| match never {}),
            Source::Server { inner, idle, .. } => {
                let polled = Pin::new(inner).poll_frame(cx).map_err(io::Error::other);
                if let Err(error) = idle.check(cx, &polled) {
                    return Poll::Ready(Some(Err(error)));
                }
                polled
            }
        };
        match &polled {
            Poll::Ready(None) => self.ended = true,
            Poll::Ready(Some(Ok(frame))) => {
                if let (Some(data), Some(exchange)) = (frame.data_ref(), &self.exchange) {
                    exchange.bytes_out.set(exchange.bytes_out.get() + data.len() as u64);
                    exchange.client.progress();
                }
            }
            _ => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Own(text) => text.is_end_stream(),
            Source::Server { inner, .. } => inner.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Own(text) => text.size_hint(),
            Source::Server { inner, .. } => inner.size_hint(),
        }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        let complete = self.ended || self.is_end_stream();
        if let Some(exchange) = &self.exchange {
            exchange.complete.set(complete);
        }
        if let Source::Server { returned, .. } = &mut self.source
            && let Some(returned) = returned.take()
            && complete
        {
            returned.give_back();
        }
    }
}
