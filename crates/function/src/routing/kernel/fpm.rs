//! Server for FRR's forwarding plane manager (FPM) protocol, through which zebra announces routes
//! with its plugin `dplane_fpm_nl`.
//!
//! Each frame begins with a version (1), a type (1 for netlink) and a total length (2 bytes,
//! big-endian). Netlink messages follow. Zebra sends its complete state whenever it connects. No
//! message marks the end of that state, so it counts as complete after a pause.
//!
//! The server reads one connection at a time, until the connection ends. The newest of the other
//! connections waits. A zebra that restarts thus takes over as soon as the connection of its
//! predecessor has been read to the end.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::super::Family;
use super::netlink::{self, Event, Message};
use super::peers::Peers;

const HEADER_BYTES: usize = 4;
const VERSION: u8 = 1;
const NETLINK: u8 = 1;
/// Silence after which zebra has presumably sent all its routes.
const SILENCE: Duration = Duration::from_secs(3);
/// Maximum number of bytes that are read from zebra at a time. With this limit, the first routes of
/// a large table take effect early.
const POLL_BYTES: usize = 4 << 20;
/// Maximum number of connections that one poll accepts or refuses.
const ACCEPTS_MAX: usize = 256;
/// Maximum number of unread notifications per function. At this limit, the server stops reading and
/// zebra must wait.
const NOTICES_MAX: usize = 1 << 18;

/// Running servers with their listening addresses. Zebra sends the routes of all address families
/// over one connection, but each function forwards only one family. Several functions therefore
/// share a server.
static SERVERS: Mutex<Vec<(SocketAddr, Weak<Mutex<Server>>)>> = Mutex::new(Vec::new());

/// Subscription of one function to a server.
pub(super) struct Fpm {
    server: Arc<Mutex<Server>>,
    inbox: Arc<Mutex<Inbox>>,
    peers: Peers,
}

/// Notification that a server passes to a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// Zebra has connected and begins to send its complete state.
    Connected,
    Event(Event),
    /// Zebra has sent its complete state, which contains routes.
    Synced,
}

struct Inbox {
    family: Family,
    notices: VecDeque<Notice>,
}

struct Server {
    listener: TcpListener,
    zebra: Option<Zebra>,
    /// Latest connection that arrived while zebra was already connected.
    waiting: Option<TcpStream>,
    inboxes: Vec<Weak<Mutex<Inbox>>>,
}

/// Connection from zebra.
struct Zebra {
    stream: TcpStream,
    read: Vec<u8>,
    last_read: Instant,
    is_syncing: bool,
    /// Whether zebra has announced a route on this connection. Until then, the routes from earlier
    /// connections are kept.
    has_announced: bool,
}

impl Fpm {
    /// Subscribes a function to the server at `address`, and starts the server if necessary. Closes
    /// zebra's connection, so that zebra reconnects and sends all its routes again.
    pub(super) fn listen(address: SocketAddr, peers: Peers, family: Family) -> std::io::Result<Self> {
        let mut servers = lock(&SERVERS);
        servers.retain(|(_, server)| server.strong_count() > 0);
        let existing = servers.iter().find_map(|(known, server)| server.upgrade().filter(|_| *known == address));
        let server = match existing {
            Some(server) => server,
            None => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                let server = Arc::new(Mutex::new(Server { listener, zebra: None, waiting: None, inboxes: Vec::new() }));
                servers.push((address, Arc::downgrade(&server)));
                server
            }
        };
        let inbox = Arc::new(Mutex::new(Inbox { family, notices: VecDeque::new() }));
        let mut joined = lock(&server);
        joined.zebra = None;
        joined.inboxes.retain(|inbox| inbox.strong_count() > 0);
        joined.inboxes.push(Arc::downgrade(&inbox));
        drop(joined);
        Ok(Self { server, inbox, peers })
    }

    /// Reads from zebra's connection and passes all unread notifications to `handle`. Returns the
    /// reason if a connection was refused.
    pub(super) fn poll(&self, handle: impl FnMut(Notice)) -> Option<String> {
        let refusal = lock(&self.server).poll(&self.peers);
        let waiting = std::mem::take(&mut lock(&self.inbox).notices);
        waiting.into_iter().for_each(handle);
        refusal
    }

    /// Closes zebra's connection, so that zebra reconnects and sends all its routes again.
    pub(super) fn disconnect(&self) {
        lock(&self.server).zebra = None;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inbox {
    /// Stores a notification for the function, unless it concerns the other address family.
    fn push(&mut self, notice: &Notice) {
        let is_other =
            matches!(notice, Notice::Event(Event::Route { route, .. }) if route.prefix.family() != self.family);
        if !is_other {
            self.notices.push_back(notice.clone());
        }
    }
}

impl Server {
    /// Reads from zebra's connection. If the connection has ended, the waiting connection takes its
    /// place. Returns the reason if a connection was refused.
    fn poll(&mut self, peers: &Peers) -> Option<String> {
        let inboxes: Vec<Arc<Mutex<Inbox>>> = self.inboxes.iter().filter_map(Weak::upgrade).collect();
        let notify = |notice: Notice| inboxes.iter().for_each(|inbox| lock(inbox).push(&notice));
        let refusal = self.accept(peers);
        if self.zebra.is_none()
            && let Some(stream) = self.waiting.take()
        {
            self.zebra = Some(Zebra::new(stream));
            notify(Notice::Connected);
        }
        if inboxes.iter().any(|inbox| lock(inbox).notices.len() > NOTICES_MAX) {
            return refusal;
        }
        if let Some(zebra) = &mut self.zebra {
            if !zebra.read(&mut |event| notify(Notice::Event(event))) {
                self.zebra = None;
            } else if zebra.is_syncing && zebra.has_announced && zebra.last_read.elapsed() > SILENCE {
                zebra.is_syncing = false;
                notify(Notice::Synced);
            }
        }
        refusal
    }

    fn accept(&mut self, peers: &Peers) -> Option<String> {
        let mut refusal = None;
        for _ in 0..ACCEPTS_MAX {
            let Ok((stream, _)) = self.listener.accept() else { break };
            refusal = match peers.refusal(&stream) {
                None if stream.set_nonblocking(true).is_ok() => {
                    // A crashed machine does not close its connections. TCP keepalive closes them
                    // after a while.
                    let _ = socket2::SockRef::from(&stream).set_keepalive(true);
                    self.waiting = Some(stream);
                    continue;
                }
                reason => reason.or(refusal),
            };
        }
        refusal
    }
}

impl Zebra {
    fn new(stream: TcpStream) -> Self {
        Self { stream, read: Vec::new(), last_read: Instant::now(), is_syncing: true, has_announced: false }
    }

    /// Reads the bytes that have arrived. Returns `false` if the connection is closed or if the
    /// bytes violate the protocol.
    fn read(&mut self, event: &mut impl FnMut(Event)) -> bool {
        let mut taken = 0;
        let mut part = vec![0; 256 << 10];
        while taken < POLL_BYTES {
            match self.stream.read(&mut part) {
                Ok(0) => return false,
                Ok(bytes) => {
                    taken += bytes;
                    self.last_read = Instant::now();
                    self.read.extend_from_slice(&part[..bytes]);
                    if !self.frames(event) {
                        return false;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }

    fn frames(&mut self, event: &mut impl FnMut(Event)) -> bool {
        let Self { read, has_announced, .. } = self;
        read_frames(read, &mut |change| {
            *has_announced |= matches!(change, Event::Route { is_there: true, .. });
            event(change);
        })
    }
}

/// Removes all complete frames from the buffer `read`, and calls `event` for each message in them.
/// Returns `false` if the bytes violate the protocol.
pub(super) fn read_frames(read: &mut Vec<u8>, event: &mut impl FnMut(Event)) -> bool {
    let mut at = 0;
    while let Some(&[version, kind, high, low]) = read[at..].first_chunk::<HEADER_BYTES>() {
        let length = usize::from(u16::from_be_bytes([high, low]));
        if version != VERSION || length < HEADER_BYTES {
            return false;
        }
        let Some(frame) = read.get(at + HEADER_BYTES..at + length) else { break };
        if kind == NETLINK {
            netlink::read(frame, |message| {
                if let Message::Event(change) = message {
                    event(change);
                }
            });
        }
        at += length;
    }
    read.drain(..at);
    true
}
