//! Routes and neighbours of the operating system, which a function copies into its table.
//!
//! Links, neighbours and routes come from the kernel by rtnetlink. Routes can also come from a
//! routing daemon by FRR's forwarding plane manager (FPM) protocol. All of this runs on the
//! housekeeping thread.
//!
//! ```text
//! kernel: links, neighbours, routes --netlink.rs--\
//!                                                   State (state.rs) --> Routing
//! zebra: routes (dplane_fpm_nl) ----fpm.rs--------/
//!                                    peers.rs: processes that may connect
//! ```
//!
//! Whenever a message may have been lost, the complete state is requested again. Entries that are
//! missing from the reply are removed.

mod awaiting;
mod config;
mod fpm;
mod fuzz;
mod netlink;
mod peers;
mod resolve_queue;
mod state;

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub(crate) use config::KernelRoutesConfig;
pub use fuzz::netlink_messages;
use resolve_queue::{ResolveQueue, ResolveQueueHost};
use state::State;

use super::{OwnAddresses, Prefix, Routing};
use crate::{Complete, Error, Function, Running};

/// Interval between two checks for new messages about routes and neighbours.
pub(crate) const INTERVAL: Duration = Duration::from_millis(20);

/// Copies the operating system's routes into a function's table.
pub(crate) struct KernelRoutes {
    state: Mutex<State>,
    queue: Arc<ResolveQueue>,
}

/// Source of the routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RouteSource {
    Kernel,
    Fpm,
}

/// Configuration of tracked routes with resolved names.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) source: RouteSource,
    /// Kernel routing table to follow, in addition to the local table.
    pub(super) table: u32,
    /// Address on which to listen for zebra.
    pub(super) fpm: std::net::SocketAddr,
    /// Processes and machines that may connect to this address.
    peers: peers::Peers,
    /// Network interfaces to follow, each with its port.
    pub(super) ports: Vec<(String, u16)>,
}

impl KernelRoutes {
    pub(super) fn new(settings: Settings) -> Self {
        Self { state: Mutex::new(State::new(settings)), queue: Arc::default() }
    }

    /// Connects the routes to the responders among `functions`, which hold packets for unresolved
    /// neighbours. Functions call this method in [`Function::connect`].
    pub(crate) fn connect(&self, functions: &[Arc<dyn Function>], own: usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.awaiting = awaiting::Awaiting::new(functions, own);
    }

    /// Returns the part of the function that a worker runs on the CPU. It collects the destinations
    /// of packets with the verdict `unresolved`, so that the operating system resolves their
    /// addresses.
    pub(crate) fn host_half(&self, unresolved: u8) -> Box<dyn Complete> {
        Box::new(ResolveQueueHost { queue: Arc::clone(&self.queue), unresolved })
    }

    /// Reads new messages about routes and neighbours, and updates the table and the addresses of
    /// the router. Functions call this method in [`crate::Function::housekeeping`].
    pub(crate) fn update(&self, routing: &dyn Routing, own: &OwnAddresses, running: &dyn Running) -> Result<(), Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.update(self.queue.take(), routing, own, running)
    }

    /// Adds routes of an operator over gateways, and updates the table. Each route has a prefix, a
    /// gateway and optionally its port.
    ///
    /// # Errors
    /// Returns an error if no interface leads to a gateway. The routes before it are added.
    pub(crate) fn add_via(
        &self,
        routes: &[(Prefix, IpAddr, Option<u16>)],
        routing: &dyn Routing,
        own: &OwnAddresses,
        running: &dyn Running,
    ) -> Result<(), Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let added = routes.iter().try_for_each(|&(prefix, gateway, port)| state.add_via(prefix, gateway, port));
        let updated = state.update(self.queue.take(), routing, own, running);
        added.and(updated)
    }

    /// Records routes that an operator added or deleted. Routes from the kernel never replace
    /// routes that an operator added.
    pub(crate) fn changed_by_operator(&self, request: &serde_json::Value) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let added = request.get("command").and_then(serde_json::Value::as_str) == Some("add");
        super::commands::prefixes(request).for_each(|prefix| state.changed_by_operator(prefix, added));
    }
}

impl std::fmt::Debug for KernelRoutes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KernelRoutes").finish_non_exhaustive()
    }
}
