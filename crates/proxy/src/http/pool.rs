//! Pool of open server connections for later requests. Each worker has its own pool.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use hyper::client::conn::http1::SendRequest;

use super::body::RequestBody;
use crate::upstream::Lease;

/// Largest number of unused connections to one server.
const IDLE_MAX: usize = 256;

/// Proxy index, configuration number and server index.
pub(super) type Key = (usize, u64, usize);
pub(super) type Sender = SendRequest<RequestBody>;

/// Unused server connections for each key, sorted from oldest to newest.
#[derive(Default)]
pub(crate) struct Pool(RefCell<HashMap<Key, Vec<(Sender, Instant)>>>);

impl Pool {
    /// Returns an unused connection that can take a request.
    pub(super) async fn take(&self, key: Key, keep: Duration) -> Option<Sender> {
        loop {
            let (mut sender, since) = self.0.borrow_mut().get_mut(&key)?.pop()?;
            if since.elapsed() >= keep {
                // All other connections in the list are older.
                self.0.borrow_mut().remove(&key);
                return None;
            }
            if !sender.is_closed() && sender.ready().await.is_ok() {
                return Some(sender);
            }
        }
    }

    fn give_back(&self, key: Key, sender: Sender) {
        let mut pool = self.0.borrow_mut();
        // Remove connections from earlier configurations.
        pool.retain(|(proxy, generation, _), _| *proxy != key.0 || *generation >= key.1);
        let idle = pool.entry(key).or_default();
        if idle.len() >= IDLE_MAX {
            idle.remove(0);
        }
        idle.push((sender, Instant::now()));
    }
}

/// Server connection that still receives a response body. It returns to the pool after the body.
/// Until then, the server counts as active.
pub(super) struct Returned {
    pub(super) pool: Rc<Pool>,
    pub(super) key: Key,
    pub(super) sender: Sender,
    pub(super) lease: Lease,
}

impl Returned {
    /// Keeps the connection for another request.
    pub(super) fn give_back(self) {
        if !self.sender.is_closed() {
            self.pool.give_back(self.key, self.sender);
        }
        drop(self.lease);
    }
}
