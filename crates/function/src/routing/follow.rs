//! Routes and neighbours of this machine, followed: the kernel's tables by rtnetlink, a routing daemon by FRR's forwarding plane
//! protocol. All on the thread of housekeeping.
//!
//! ```text
//! kernel: links, neighbours, routes --netlink.rs--\
//!                                                   State: what there is --> what the table should say --> Routing
//! zebra: routes (dplane_fpm_nl) ----fpm.rs--------/        state.rs
//! ```
//! Nothing is remembered by hand of who said what: whenever something may have been missed, all is asked for again, and what is
//! not said again goes.

mod config;
mod fpm;
mod netlink;
mod state;
mod wanted;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub(crate) use config::FollowConfig;
use state::State;
use wanted::{Wanted, WantedHost};

use super::Routing;
use crate::{Error, HostHalf, Running};

/// How often it looks.
pub(crate) const INTERVAL: Duration = Duration::from_millis(20);

/// A function's table follows this machine's.
pub(crate) struct Follower {
    state: Mutex<State>,
    wanted: Arc<Wanted>,
}

/// Where routes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    Kernel,
    Fpm,
}

/// What is followed.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) from: From,
    /// The table of the kernel beside that of local addresses.
    pub(super) table: u32,
    /// Where zebra connects to.
    pub(super) fpm: std::net::SocketAddr,
    /// Port by interface.
    pub(super) ports: Vec<(String, u16)>,
}

impl Follower {
    pub(super) fn new(settings: Settings) -> Self {
        Self { state: Mutex::new(State::new(settings)), wanted: Arc::default() }
    }

    /// A worker's host half, by which the kernel is made to ask for stations of packets with this verdict.
    pub(crate) fn host_half(&self, unresolved: u8) -> Box<dyn HostHalf> {
        Box::new(WantedHost { wanted: Arc::clone(&self.wanted), unresolved })
    }

    /// See [`crate::Function::housekeeping`].
    pub(crate) fn keep(&self, routing: &dyn Routing, running: &dyn Running) -> Result<(), Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.turn(self.wanted.take(), routing, running)
    }

    /// An operator has changed routes: those that he added stay as they are.
    pub(crate) fn changed_by_operator(&self, request: &serde_json::Value) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let added = request.get("command").and_then(serde_json::Value::as_str) == Some("add");
        for route in request.get("route").and_then(serde_json::Value::as_array).into_iter().flatten() {
            let text = route.as_str().or_else(|| route.get("prefix").and_then(serde_json::Value::as_str));
            if let Some(prefix) = text.and_then(|text| super::Prefix::parse(text).ok()) {
                state.keep_off(prefix, added);
            }
        }
    }
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower").finish_non_exhaustive()
    }
}
