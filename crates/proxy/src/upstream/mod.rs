//! Servers behind a proxy. This module tracks their health, and selects a server for each
//! connection or request.

pub(crate) mod balance;
pub(crate) mod connect;
pub(crate) mod health;

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::Error;
use crate::config;

/// Time during which a server is avoided after a failed connection.
const AVOIDED: Duration = Duration::from_millis(500);

/// Servers of one proxy. All workers share them.
pub(crate) struct Upstreams {
    pub(crate) servers: Vec<Server>,
    balance: config::Balance,
    /// Number of selections so far. The round-robin method uses it to find the next server.
    turn: AtomicUsize,
    started: Instant,
}

/// One server.
pub(crate) struct Server {
    /// Configured address.
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    /// Hash of the configured address, for consistent hashing.
    seed: u64,
    /// Whether the last health check succeeded. It is always true without health checks.
    healthy: AtomicBool,
    /// Time until which the server is avoided, in milliseconds since the program started.
    avoided_until_ms: AtomicU64,
    /// Number of connections or requests in progress.
    active: AtomicUsize,
}

/// Active connection or request on a server. It is counted until this value is dropped.
pub(crate) struct Lease {
    upstreams: Arc<Upstreams>,
    pub(crate) index: usize,
}

impl Upstreams {
    /// Resolves all server addresses. Servers that are also in `old`, the previous configuration,
    /// keep the result of their last health check.
    pub(crate) fn new(proxy: &config::Proxy, old: Option<&Self>) -> Result<Self, Error> {
        let resolve = |address: &str| {
            let fail =
                |reason: String| Error::Resolve { proxy: proxy.name.clone(), address: address.to_owned(), reason };
            let mut found = address.to_socket_addrs().map_err(|error| fail(error.to_string()))?;
            found.next().ok_or_else(|| fail("the name has no address".to_owned()))
        };
        let was_healthy = |name: &str| {
            let mut before = old.filter(|_| proxy.health.is_some()).into_iter().flat_map(|old| &old.servers);
            before.find(|server| server.name == name).is_none_or(Server::is_healthy)
        };
        let server = |upstream: &config::Upstream| {
            Ok(Server {
                name: upstream.address.clone(),
                address: resolve(&upstream.address)?,
                seed: balance::hash_bytes(upstream.address.as_bytes()),
                healthy: AtomicBool::new(was_healthy(&upstream.address)),
                avoided_until_ms: AtomicU64::new(0),
                active: AtomicUsize::new(0),
            })
        };
        Ok(Self {
            servers: proxy.upstream.iter().map(server).collect::<Result<_, Error>>()?,
            balance: proxy.balance,
            turn: AtomicUsize::new(0),
            started: Instant::now(),
        })
    }

    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// Selects a server that is not in `tried`. If all of them seem unavailable, selects one
    /// anyway, because their state may be outdated.
    pub(crate) fn choose(self: &Arc<Self>, client: SocketAddr, tried: &[usize]) -> Option<Lease> {
        let now_ms = self.now_ms();
        let open = |index: &usize| !tried.contains(index);
        let mut candidates: Vec<usize> =
            (0..self.servers.len()).filter(open).filter(|index| self.servers[*index].is_available(now_ms)).collect();
        if candidates.is_empty() {
            candidates = (0..self.servers.len()).filter(open).collect();
        }
        let index = match self.balance {
            config::Balance::RoundRobin => {
                let turn = self.turn.fetch_add(1, Ordering::Relaxed);
                candidates.get(turn.checked_rem(candidates.len())?).copied()?
            }
            config::Balance::LeastConnections => {
                let turn = self.turn.fetch_add(1, Ordering::Relaxed);
                let active = |index: &usize| self.servers[*index].active();
                // Servers with the same load are selected one after another.
                let rotated = candidates.iter().cycle().skip(turn.checked_rem(candidates.len())?);
                *rotated.take(candidates.len()).min_by_key(|index| active(index))?
            }
            config::Balance::Hash => {
                let seeds = candidates.iter().map(|index| self.servers[*index].seed);
                candidates[balance::rendezvous(client.ip(), seeds)?]
            }
        };
        self.servers[index].active.fetch_add(1, Ordering::Relaxed);
        Some(Lease { upstreams: Arc::clone(self), index })
    }
}

impl Server {
    fn is_available(&self, now_ms: u64) -> bool {
        self.is_healthy() && now_ms >= self.avoided_until_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn is_healthy(&self) -> bool {
        self.healthy.load(Ordering::Relaxed)
    }

    pub(crate) fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }
}

impl Lease {
    pub(crate) fn server(&self) -> &Server {
        &self.upstreams.servers[self.index]
    }

    /// Reports a failed connection to the server. New connections then avoid it for some time.
    pub(crate) fn failed(&self) {
        let until_ms = self.upstreams.now_ms() + AVOIDED.as_millis() as u64;
        self.server().avoided_until_ms.store(until_ms, Ordering::Relaxed);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.server().active.fetch_sub(1, Ordering::Relaxed);
    }
}
