//! WebSocket connections. After both sides have switched protocols, bytes are copied in both
//! directions.

use std::rc::Rc;

use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue, UPGRADE};
use hyper::upgrade::OnUpgrade;
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::task::{JoinHandle, spawn_local};

use super::Client;
use super::body::ResponseBody;
use super::exchange::Exchange;
use super::headers;
use crate::relay::{End, relay};
use crate::upstream::Lease;

/// Task that relays a WebSocket. Dropping it closes the WebSocket.
pub(super) struct Upgraded(JoinHandle<()>);

impl Upgraded {
    /// Waits until the WebSocket is closed.
    pub(super) async fn finished(mut self) {
        // After a panic, the task has already printed a message.
        let _ = (&mut self.0).await;
    }
}

impl Drop for Upgraded {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Returns a response with status 101. A new task copies the bytes after both sides have switched
/// protocols.
pub(super) fn switch(
    client: &Rc<Client>,
    exchange: Rc<Exchange>,
    from_client: OnUpgrade,
    mut response: Response<Incoming>,
    lease: Lease,
) -> Response<ResponseBody> {
    let from_server = hyper::upgrade::on(&mut response);
    let link = Rc::clone(&client.link);
    let task = spawn_local(async move {
        let _lease = lease;
        if let (Ok(from_client), Ok(from_server)) = (from_client.await, from_server.await) {
            let counters = link.counters();
            counters.upgrades.increment();
            let (mut from_client, mut from_server) = (TokioIo::new(from_client), TokioIo::new(from_server));
            let bytes = [&counters.bytes_in, &counters.bytes_out];
            if relay(&mut from_client, &mut from_server, link.proxy.idle(), bytes).await == End::Idle {
                counters.closed_idle.increment();
            }
        }
    });
    *client.upgraded.borrow_mut() = Some(Upgraded(task));
    let (mut head, _) = response.into_parts();
    headers::remove_hop_by_hop(&mut head.headers);
    head.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    head.headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    head.extensions.clear();
    head.status = StatusCode::SWITCHING_PROTOCOLS;
    Response::from_parts(head, ResponseBody::own(String::new(), Some(exchange)))
}
