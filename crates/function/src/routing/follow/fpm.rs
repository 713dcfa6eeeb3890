//! Zebra's side: a server of FRR's forwarding plane protocol, as `dplane_fpm_nl` speaks it. Netlink messages in frames of
//! version (1), type (1: netlink), length of the whole (2 bytes, big-endian).
//!
//! Zebra tells all that it has whenever it connects. There is no mark where that ends: it has, when nothing came for a while.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::super::Family;
use super::netlink::{self, Event, Said};

const HEADER_BYTES: usize = 4;
const VERSION: u8 = 1;
const NETLINK: u8 = 1;
/// So long nothing has come: all was told.
const SILENCE: Duration = Duration::from_secs(3);
/// Read in one turn at most, so that what came first is soon in force.
const TURN_BYTES: usize = 4 << 20;

/// Servers by where they listen. Zebra makes one connection for all families, and a function forwards one.
static SERVERS: Mutex<Vec<(SocketAddr, Weak<Mutex<Server>>)>> = Mutex::new(Vec::new());

/// A family's share of a server.
pub(super) struct Fpm {
    server: Arc<Mutex<Server>>,
    inbox: Arc<Mutex<Inbox>>,
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Zebra has connected: it tells everything.
    Begun,
    Event(Event),
    /// It has told everything.
    Told,
}

struct Inbox {
    family: Family,
    heard: VecDeque<Heard>,
}

struct Server {
    listener: TcpListener,
    zebra: Option<Zebra>,
    inboxes: Vec<Weak<Mutex<Inbox>>>,
}

/// A connection.
struct Zebra {
    stream: TcpStream,
    read: Vec<u8>,
    heard: Instant,
    is_telling: bool,
}

impl Fpm {
    /// Listens, or joins who listens there already; zebra then connects anew, and tells everybody everything.
    pub(super) fn listen(at: SocketAddr, family: Family) -> std::io::Result<Self> {
        let mut servers = lock(&SERVERS);
        servers.retain(|(_, server)| server.strong_count() > 0);
        let there = servers.iter().find_map(|(of, server)| server.upgrade().filter(|_| *of == at));
        let server = match there {
            Some(server) => server,
            None => {
                let listener = TcpListener::bind(at)?;
                listener.set_nonblocking(true)?;
                let server = Arc::new(Mutex::new(Server { listener, zebra: None, inboxes: Vec::new() }));
                servers.push((at, Arc::downgrade(&server)));
                server
            }
        };
        let inbox = Arc::new(Mutex::new(Inbox { family, heard: VecDeque::new() }));
        let mut joined = lock(&server);
        joined.zebra = None;
        joined.inboxes.retain(|inbox| inbox.strong_count() > 0);
        joined.inboxes.push(Arc::downgrade(&inbox));
        drop(joined);
        Ok(Self { server, inbox })
    }

    /// Hands over what there is.
    pub(super) fn turn(&self, heard: impl FnMut(Heard)) {
        lock(&self.server).turn();
        let waiting = std::mem::take(&mut lock(&self.inbox).heard);
        waiting.into_iter().for_each(heard);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inbox {
    /// Objects may be of any family; a route is of its own.
    fn take(&mut self, heard: &Heard) {
        let is_other =
            matches!(heard, Heard::Event(Event::Route { route, .. }) if route.prefix.family() != self.family);
        if !is_other {
            self.heard.push_back(heard.clone());
        }
    }
}

impl Server {
    fn turn(&mut self) {
        let inboxes: Vec<Arc<Mutex<Inbox>>> = self.inboxes.iter().filter_map(Weak::upgrade).collect();
        let tell = |heard: Heard| inboxes.iter().for_each(|inbox| lock(inbox).take(&heard));
        // A new connection is one of a zebra that has started anew.
        while let Ok((stream, _)) = self.listener.accept() {
            if stream.set_nonblocking(true).is_ok() {
                self.zebra = Some(Zebra { stream, read: Vec::new(), heard: Instant::now(), is_telling: true });
                tell(Heard::Begun);
            }
        }
        let Some(zebra) = &mut self.zebra else { return };
        if !zebra.read(&mut |event| tell(Heard::Event(event))) {
            self.zebra = None;
        } else if zebra.is_telling && zebra.heard.elapsed() > SILENCE {
            zebra.is_telling = false;
            tell(Heard::Told);
        }
    }
}

impl Zebra {
    /// False: it is gone, or says what is not of the protocol.
    fn read(&mut self, event: &mut impl FnMut(Event)) -> bool {
        let mut taken = 0;
        let mut part = vec![0; 256 << 10];
        while taken < TURN_BYTES {
            match self.stream.read(&mut part) {
                Ok(0) => return false,
                Ok(bytes) => {
                    taken += bytes;
                    self.heard = Instant::now();
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
        let mut at = 0;
        while let Some(&[version, kind, high, low]) = self.read[at..].first_chunk::<HEADER_BYTES>() {
            let length = usize::from(u16::from_be_bytes([high, low]));
            if version != VERSION || length < HEADER_BYTES {
                return false;
            }
            let Some(frame) = self.read.get(at + HEADER_BYTES..at + length) else { break };
            if kind == NETLINK {
                netlink::read(frame, |said| {
                    if let Said::Event(said) = said {
                        event(said);
                    }
                });
            }
            at += length;
        }
        self.read.drain(..at);
        true
    }
}
