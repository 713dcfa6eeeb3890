//! Zebra's side: a server of FRR's forwarding plane protocol, as `dplane_fpm_nl` speaks it. Netlink messages in frames of
//! version (1), type (1: netlink), length of the whole (2 bytes, big-endian).
//!
//! Zebra tells all that it has whenever it connects. There is no mark where that ends: it has, when nothing came for a while.

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::netlink::{self, Event, Said};

const HEADER_BYTES: usize = 4;
const VERSION: u8 = 1;
const NETLINK: u8 = 1;
/// So long nothing has come: all was told.
const SILENCE: Duration = Duration::from_secs(3);
/// Read in one turn at most, so that what came first is soon in force.
const TURN_BYTES: usize = 4 << 20;

/// The server.
pub(super) struct Fpm {
    listener: TcpListener,
    zebra: Option<Zebra>,
}

/// A connection.
struct Zebra {
    stream: TcpStream,
    read: Vec<u8>,
    heard: Instant,
    is_telling: bool,
}

/// What has become of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Nothing,
    /// Zebra has connected: it tells everything.
    Begun,
    /// It has told everything.
    Told,
}

impl Fpm {
    pub(super) fn listen(at: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind(at)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, zebra: None })
    }

    /// Hands over what there is to read.
    pub(super) fn turn(&mut self, mut event: impl FnMut(Event)) -> Turn {
        let mut turn = Turn::Nothing;
        // A new connection is one of a zebra that has started anew.
        while let Ok((stream, _)) = self.listener.accept() {
            if stream.set_nonblocking(true).is_ok() {
                self.zebra = Some(Zebra { stream, read: Vec::new(), heard: Instant::now(), is_telling: true });
                turn = Turn::Begun;
            }
        }
        if turn == Turn::Begun {
            return turn;
        }
        let Some(zebra) = &mut self.zebra else { return turn };
        if !zebra.read(&mut event) {
            self.zebra = None;
        } else if zebra.is_telling && zebra.heard.elapsed() > SILENCE {
            zebra.is_telling = false;
            turn = Turn::Told;
        }
        turn
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
