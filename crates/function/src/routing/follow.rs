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

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Duration;

pub(crate) use config::FollowConfig;
use state::State;

use super::Routing;
use crate::{Error, Running};

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

/// Addresses that workers met packets for, and that no station is known of.
#[derive(Debug, Default)]
pub(crate) struct Wanted(Mutex<Vec<(u16, IpAddr)>>);

/// Most addresses that wait to be asked for: what comes beyond has not been asked for and may come again.
const WANTED_MAX: usize = 256;

impl Wanted {
    /// On a worker; does not wait.
    pub(crate) fn note(&self, port: u16, address: IpAddr) {
        let mut wanted = match self.0.try_lock() {
            Ok(wanted) => wanted,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if wanted.len() < WANTED_MAX && wanted.last() != Some(&(port, address)) {
            wanted.push((port, address));
        }
    }

    fn take(&self) -> Vec<(u16, IpAddr)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Follower {
    pub(super) fn new(settings: Settings) -> Self {
        Self { state: Mutex::new(State::new(settings)), wanted: Arc::default() }
    }

    /// What workers tell of addresses that are wanted.
    pub(crate) fn wanted(&self) -> Arc<Wanted> {
        Arc::clone(&self.wanted)
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
