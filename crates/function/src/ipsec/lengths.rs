//! MTUs and keepalive intervals of SAs, and fast checks for packets that must be fragmented or
//! reassembled.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use godwit_wire::{ethertype, protocol};

use super::frame::{Frame, Packet};
use super::lookup::{Lookup, mix};
use super::sa::Sa;
use crate::fragments::Limits;

/// Size of the shortest layer 2 header, in bytes.
const L2_BYTES: usize = 14;

/// MTUs and keepalive intervals of all SAs.
pub(super) struct Lengths {
    /// Maximum inner packet length of each SA's tunnel in bytes, by SA index. 0 means no limit.
    inner_mtus: Box<[AtomicU16]>,
    /// Length of the longest frame that fits into every SA's tunnel, in bytes.
    frame_bytes: AtomicUsize,
    /// Keepalive interval of each SA in seconds, by SA index. 0 means no keepalives.
    keepalives: Box<[AtomicU16]>,
    has_keepalives: AtomicBool,
    /// Reassembly limits, or `None` if reassembly is disabled.
    pub(super) reassembly: Option<Limits>,
    /// Steering bucket for each pair of inbound SA endpoints. Reassembly needs it, because all
    /// fragments between two endpoints must reach the same worker.
    peers: Lookup,
    /// Number of inbound SAs between each pair of endpoints.
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

    /// Adds an SA. Each added SA must be removed once.
    pub(super) fn insert(&self, index: u32, bucket: usize, sa: &Sa) {
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
            // The table has room for one pair of endpoints per SA, so the insertion almost never
            // fails. Without an entry, the flow hash selects the worker for fragments.
            let _ = *count > 0 || self.peers.insert(pair, bucket as u64);
            *count += 1;
        }
    }

    pub(super) fn remove(&self, sa: &Sa) {
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
        let is_tracked = self.reassembly.is_some() && sa.is_inbound();
        is_tracked.then(|| match (sa.source, sa.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => pair_ipv4(source.into(), destination.into()),
            (IpAddr::V6(source), IpAddr::V6(destination)) => pair_ipv6(source.into(), destination.into()),
            // Unreachable: both endpoints are of one family.
            _ => 0,
        })
    }

    /// Returns the steering bucket that an inbound SA shares with other SAs between the same
    /// endpoints. Returns `None` if there are no such SAs.
    pub(super) fn bucket(&self, sa: &Sa) -> Option<usize> {
        self.pair(sa).and_then(|pair| self.peer(pair))
    }

    fn peer(&self, pair: u64) -> Option<usize> {
        match self.peers.get(pair) {
            Lookup::ABSENT => None,
            bucket => Some(bucket as usize),
        }
    }

    /// Returns the steering bucket of a fragment that must be reassembled, or `None` for any other
    /// frame.
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
        // A later UDP fragment contains no ports, so it may belong to ESP in UDP. All UDP fragments
        // between the endpoints of an SA are therefore reassembled.
        matches!(number, protocol::ESP | protocol::AH | protocol::UDP).then(|| self.peer(pair)).flatten()
    }

    /// Returns whether a frame may exceed the MTU of its SA or may be a fragment to reassemble.
    #[inline]
    pub(super) fn needs_arranging(&self, frame: &[u8]) -> bool {
        frame.len() > self.frame_bytes.load(Relaxed) || (self.reassembly.is_some() && is_perhaps_fragment(frame))
    }

    /// Returns the maximum inner packet length of an SA's tunnel in bytes, or `None` if there is no
    /// limit.
    pub(super) fn inner_mtu(&self, index: u32) -> Option<usize> {
        match self.inner_mtus[index as usize].load(Relaxed) {
            0 => None,
            mtu => Some(mtu.into()),
        }
    }

    pub(super) fn has_keepalives(&self) -> bool {
        self.has_keepalives.load(Relaxed)
    }

    /// Returns the keepalive interval of an SA in seconds, or 0 if the SA sends no keepalives.
    pub(super) fn keepalive_s(&self, index: u32) -> u16 {
        self.keepalives[index as usize].load(Relaxed)
    }
}

/// Returns whether a frame may be a fragment. The check is fast but not exact. If the result is
/// true, the caller must parse the frame.
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

fn pair_ipv6(source: u128, destination: u128) -> u64 {
    let fold = |address: u128| mix((address >> 64) as u64 ^ mix(address as u64));
    mix(fold(source) ^ fold(destination).rotate_left(1))
}
