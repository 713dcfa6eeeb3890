//! What the databases know of lengths and fragments: which packets need more than a look-up.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use godwit_wire::{ethertype, protocol};

use super::frame::{Frame, Packet};
use super::lookup::{Lookup, mix};
use super::sa::Sa;
use crate::fragments::Limits;

/// In front of the shortest packet that is too long for some SA.
const L2_BYTES: usize = 14;

/// Of all SAs.
pub(super) struct Lengths {
    /// By index: longest packet that fits into the tunnel; 0: any.
    inner_mtus: Box<[AtomicU16]>,
    /// Longer frames may be too long for their SA.
    frame_bytes: AtomicUsize,
    /// By index: seconds; 0: none.
    keepalives: Box<[AtomicU16]>,
    has_keepalives: AtomicBool,
    /// Where fragments are joined: what may be held. `frame_bytes` is the arena's.
    pub(super) reassembly: Option<Limits>,
    /// The endpoints of inbound SAs, two and two, to the bucket that all of them share; with reassembly only.
    peers: Lookup,
    /// How many SAs each of these has. For control.
    peer_sas: Mutex<HashMap<u64, u32>>,
}

impl Lengths {
    pub(super) fn new(capacity: usize, reassembly: Option<Limits>) -> Self {
        let peers = if reassembly.is_some() { capacity } else { 1 };
        Self {
            inner_mtus: (0..capacity).map(|_| AtomicU16::new(0)).collect(),
            frame_bytes: AtomicUsize::new(usize::MAX),
            keepalives: (0..capacity).map(|_| AtomicU16::new(0)).collect(),
            has_keepalives: AtomicBool::new(false),
            reassembly,
            peers: Lookup::with_capacity(peers),
            peer_sas: Mutex::default(),
        }
    }

    /// Makes an SA known; false where there is no room. Every one is forgotten once.
    pub(super) fn begin(&self, index: u32, bucket: usize, sa: &Sa) {
        let mtu = sa.inner_mtu().unwrap_or(0);
        self.inner_mtus[index as usize].store(mtu, Relaxed);
        if mtu > 0 {
            self.frame_bytes.fetch_min(L2_BYTES + usize::from(mtu), Relaxed);
        }
        self.keepalives[index as usize].store(sa.keepalive_s, Relaxed);
        self.has_keepalives.fetch_or(sa.keepalive_s > 0, Relaxed);
        if let Some(pair) = self.pair(sa) {
            let mut sas = self.peer_sas.lock().unwrap_or_else(PoisonError::into_inner);
            let count = sas.entry(pair).or_default();
            // The table has room for as many pairs as there are SAs; a pair that it refuses is as good as impossible, and its
            // fragments go where others of their flow go.
            let _ = *count > 0 || self.peers.insert(pair, bucket as u64);
            *count += 1;
        }
    }

    pub(super) fn end(&self, sa: &Sa) {
        let Some(pair) = self.pair(sa) else { return };
        let mut sas = self.peer_sas.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = sas.get_mut(&pair) {
            *count -= 1;
            if *count == 0 {
                sas.remove(&pair);
                self.peers.remove(pair);
            }
        }
    }

    fn pair(&self, sa: &Sa) -> Option<u64> {
        let is_wanted = self.reassembly.is_some() && sa.is_inbound();
        is_wanted.then(|| match (sa.source, sa.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => pair_ipv4(source.into(), destination.into()),
            (IpAddr::V6(source), IpAddr::V6(destination)) => pair_ipv6(source.into(), destination.into()),
            // Both endpoints are of one family.
            _ => 0,
        })
    }

    /// The bucket that an inbound SA must have, if others go between the same endpoints.
    pub(super) fn bucket(&self, sa: &Sa) -> Option<usize> {
        self.pair(sa).and_then(|pair| self.peer(pair))
    }

    fn peer(&self, pair: u64) -> Option<usize> {
        match self.peers.get(pair) {
            Lookup::ABSENT => None,
            bucket => Some(bucket as usize),
        }
    }

    /// The bucket of a fragment that is to be joined with others.
    pub(super) fn bucket_of_fragment(&self, frame: &[u8]) -> Option<usize> {
        if self.reassembly.is_none() || !is_perhaps_fragment(frame) {
            return None;
        }
        let (pair, number) = match Frame::parse(frame) {
            Ok(Frame::Ipv4(packet)) if packet.is_fragment() => {
                (pair_ipv4(packet.source(), packet.destination()), packet.protocol())
            }
            Ok(Frame::Ipv6(packet)) if packet.is_fragment() => {
                (pair_ipv6(packet.source(), packet.destination()), packet.protocol())
            }
            _ => return None,
        };
        // ESP in UDP: behind the first fragment nothing says whether it is that, and what is not finds no SA once it is whole.
        matches!(number, protocol::ESP | protocol::AH | protocol::UDP).then(|| self.peer(pair)).flatten()
    }

    /// Whether a frame of an SA may be too long for it, or is perhaps a fragment to be joined.
    #[inline]
    pub(super) fn is_special(&self, frame: &[u8]) -> bool {
        frame.len() > self.frame_bytes.load(Relaxed) || (self.reassembly.is_some() && is_perhaps_fragment(frame))
    }

    /// The longest packet that fits into an SA's tunnel, if there is a limit.
    pub(super) fn inner_mtu(&self, index: u32) -> Option<usize> {
        match self.inner_mtus[index as usize].load(Relaxed) {
            0 => None,
            mtu => Some(mtu.into()),
        }
    }

    /// Whether any SA is kept alive.
    pub(super) fn has_keepalives(&self) -> bool {
        self.has_keepalives.load(Relaxed)
    }

    /// After how many seconds an SA that sends nothing is kept alive; 0: never.
    pub(super) fn keepalive_s(&self, index: u32) -> u16 {
        self.keepalives[index as usize].load(Relaxed)
    }
}

/// False only where a frame is no fragment.
#[inline]
fn is_perhaps_fragment(frame: &[u8]) -> bool {
    let be16 = |at: usize| frame.get(at..at + 2).map_or(0, |word| u16::from_be_bytes([word[0], word[1]]));
    let (mut at, mut ether_type) = (14, be16(12));
    if ether_type == ethertype::VLAN {
        (at, ether_type) = (18, be16(16));
    }
    match ether_type {
        ethertype::IPV4 => be16(at + 6) & 0x3fff != 0,
        ethertype::IPV6 => matches!(
            frame.get(at + 6),
            Some(&(protocol::FRAGMENT | protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION_OPTIONS))
        ),
        _ => false,
    }
}

fn pair_ipv4(source: u32, destination: u32) -> u64 {
    u64::from(source) << 32 | u64::from(destination)
}

/// Hashed: strangers can only have fragments held that nobody is for, which is bounded.
fn pair_ipv6(source: u128, destination: u128) -> u64 {
    let fold = |address: u128| mix((address >> 64) as u64 ^ mix(address as u64));
    mix(fold(source) ^ fold(destination).rotate_left(1))
}
