//! Listens for clients, checks their users, and starts a thread for each of them.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use serde::Serialize;

use super::handover::{self, SLOTS_MAX};
use super::session::Session;
use crate::counters::Counters;
use crate::key::Key;
use crate::lanes::Library;
use crate::policy::PolicyConfig;
use crate::signer::Signer;

/// Interval at which the flag `stop` is read, in milliseconds.
const POLL_MS: u16 = 20;

/// Private keys of the signer, which a reload replaces.
///
/// The previous keys stay until the next reload, because clients use them until they reload their
/// certificates.
#[derive(Debug, Default)]
pub struct KeyRing(RwLock<[Vec<Arc<Key>>; 2]>);

impl KeyRing {
    /// Creates a ring with these keys.
    pub fn new(keys: Vec<Arc<Key>>) -> Self {
        Self(RwLock::new([keys, Vec::new()]))
    }

    /// Replaces the keys. The previous keys stay available. Older keys are zeroed after their last
    /// job.
    pub fn replace(&self, keys: Vec<Arc<Key>>) {
        let mut rings = self.0.write().unwrap_or_else(PoisonError::into_inner);
        rings[1] = std::mem::replace(&mut rings[0], keys);
    }

    pub(super) fn current(&self) -> Vec<Arc<Key>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)[0].clone()
    }

    pub(super) fn find(&self, id: u64) -> Option<Arc<Key>> {
        let rings = self.0.read().unwrap_or_else(PoisonError::into_inner);
        rings.iter().flatten().find(|key| key.id() == id).cloned()
    }
}

/// Settings of the signer.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Path of the socket.
    pub socket: PathBuf,
    /// Users whose processes are served.
    pub users: Vec<u32>,
    /// Policy for the jobs of each client. `jobs_max` is rounded up to a power of two, which is
    /// also the number of slots per ring.
    pub policy: PolicyConfig,
    /// Library for SIMD lanes.
    pub library: Option<Arc<Library>>,
    /// Version of the library, or the reason why it is not used.
    pub lanes: String,
}

/// State of the signer.
#[derive(Clone, Debug, Serialize)]
pub struct HostReport {
    /// Time since the start, in seconds.
    pub elapsed_s: f64,
    /// Version of crypto_mb, or the reason why it is not used.
    pub lanes: String,
    /// Number of keys.
    pub keys: usize,
    /// Clients that connected.
    pub clients: u64,
    /// Clients refused because of their user.
    pub clients_refused: u64,
    /// Number of clients that sent no valid greeting, or disconnected before the connection was
    /// ready.
    pub clients_failed: u64,
    /// Counters of all jobs.
    pub signer: Counters,
}

/// Running session of a client.
struct Running {
    socket: UnixStream,
    counters: Arc<Mutex<Counters>>,
    thread: JoinHandle<()>,
}

/// Signer that listens on a socket. Dropping the value removes the socket file.
pub struct Host {
    config: HostConfig,
    listener: UnixListener,
    keys: Arc<KeyRing>,
    running: HashMap<u64, Running>,
    /// Counters of clients that have disconnected.
    ended: Counters,
    clients: u64,
    refused: u64,
    failed: Arc<AtomicU64>,
    started: Instant,
}

impl Host {
    /// Opens the socket.
    ///
    /// # Errors
    /// Returns an operating system error, for example if another signer listens on the socket.
    pub fn open(config: HostConfig, keys: Arc<KeyRing>) -> io::Result<Self> {
        if is_left_behind(&config.socket) {
            std::fs::remove_file(&config.socket)?;
        }
        let listener = UnixListener::bind(&config.socket)?;
        listener.set_nonblocking(true)?;
        // All users may connect. The signer then checks who they are.
        std::fs::set_permissions(&config.socket, std::fs::Permissions::from_mode(0o666))?;
        Ok(Self {
            config,
            listener,
            keys,
            running: HashMap::new(),
            ended: Counters::default(),
            clients: 0,
            refused: 0,
            failed: Arc::default(),
            started: Instant::now(),
        })
    }

    /// Serves clients until `stop` is set. Calls `idle` at least every 20 ms.
    pub fn run(&mut self, stop: &AtomicBool, mut idle: impl FnMut()) {
        while !stop.load(Ordering::Relaxed) {
            let mut events = [PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
            // A signal interrupts the call, and the next turn repeats it.
            let _ = poll(&mut events, PollTimeout::from(POLL_MS));
            while let Ok((socket, _)) = self.listener.accept() {
                self.accept(socket);
            }
            self.reap();
            idle();
        }
        for running in self.running.values() {
            // The client may have disconnected already.
            let _ = running.socket.shutdown(std::net::Shutdown::Both);
        }
        while self.running.values().any(|running| !running.thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.reap();
    }

    /// Returns the state.
    pub fn report(&self) -> HostReport {
        let mut signer = self.ended.clone();
        for running in self.running.values() {
            signer.add(&running.counters.lock().unwrap_or_else(PoisonError::into_inner));
        }
        HostReport {
            elapsed_s: self.started.elapsed().as_secs_f64(),
            lanes: self.config.lanes.clone(),
            keys: self.keys.current().len(),
            clients: self.clients,
            clients_refused: self.refused,
            clients_failed: self.failed.load(Ordering::Relaxed),
            signer,
        }
    }

    fn accept(&mut self, mut socket: UnixStream) {
        let user = getsockopt(&socket, PeerCredentials).map(|peer| peer.uid());
        if !user.is_ok_and(|user| self.config.users.contains(&user)) {
            self.refused += 1;
            // The client may have disconnected already.
            let _ = handover::refuse(&mut socket);
            return;
        }
        self.clients += 1;
        let counters = Arc::new(Mutex::new(Counters::default()));
        let (config, keys) = (self.config.clone(), Arc::clone(&self.keys));
        let (published, failed) = (Arc::clone(&counters), Arc::clone(&self.failed));
        let copy = socket.try_clone();
        let serve = move || match serve(socket, &config, keys) {
            Ok(session) => session.run(&published),
            Err(_) => increment(&failed),
        };
        let thread = std::thread::Builder::new().name(format!("client-{}", self.clients)).spawn(serve);
        match (copy, thread) {
            (Ok(socket), Ok(thread)) => {
                self.running.insert(self.clients, Running { socket, counters, thread });
            }
            // The client's socket closes, and the client tries again.
            _ => increment(&self.failed),
        }
    }

    /// Adds the counters of sessions that have ended.
    fn reap(&mut self) {
        let ended = &mut self.ended;
        self.running.retain(|_, running| {
            if !running.thread.is_finished() {
                return true;
            }
            ended.add(&running.counters.lock().unwrap_or_else(PoisonError::into_inner));
            false
        });
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.config.socket);
    }
}

fn increment(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Returns whether a killed process has left the socket file behind.
fn is_left_behind(socket: &Path) -> bool {
    let is_socket = std::fs::symlink_metadata(socket).is_ok_and(|metadata| metadata.file_type().is_socket());
    is_socket && UnixStream::connect(socket).is_err()
}

/// Receives a client's greeting, and gives the client access to the ring buffers.
fn serve(mut socket: UnixStream, config: &HostConfig, keys: Arc<KeyRing>) -> io::Result<Session> {
    socket.set_nonblocking(false)?;
    handover::receive_hello(&mut socket)?;
    let slots = config.policy.jobs_max.clamp(1, SLOTS_MAX).next_power_of_two();
    let policy = PolicyConfig { jobs_max: slots, ..config.policy.clone() };
    let signer = Signer::new(policy, config.library.clone(), Vec::new()).map_err(io::Error::other)?;
    Session::start(socket, signer, keys, slots, &config.lanes)
}
