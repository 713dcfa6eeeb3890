//! Security association database and security policy database (RFC 4301, section 4.4).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use arc_swap::ArcSwap;
use godwit_packet::simd::Isa;
use godwit_packet::{ANY_WORKER, BUCKETS, SteerKey};
use godwit_wire::{Parsed, protocol};

use super::frame::{Frame, Packet, Plain, PlainEsp};
use super::lengths::Lengths;
use super::lookup::{Lookup, mix};
use super::policies::{Action, Policies, PolicyAddress};
use super::sa::Sa;
use super::state::States;
use super::suite::Protocol;
use super::{
    DROP_FRAGMENT, DROP_KEEPALIVE, DROP_MALFORMED, DROP_NO_SA, DROP_POLICY_DISCARD, DROP_UNPROTECTED, VERDICT_BYPASS,
    VERDICT_NOT_IP,
};
use crate::fragments::Limits;

/// Decision about a frame, such as encapsulation with an SA, packed into one word:
///
/// ```text
/// | kind | SA   | sequence number's lower half, verdict or drop reason |
///  62     32     0
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decision(u64);

/// Decoded [`Decision`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decided {
    /// Encapsulate the packet with the outbound SA of this index.
    Encrypt(u32),
    /// The packet is decapsulated with an inbound SA. The values are the SA index and the lower
    /// half of the packet's sequence number.
    Decrypt(u32, u32),
    /// Let the packet pass with this verdict.
    Pass(u8),
    /// Drop the packet for this reason.
    Drop(u8),
}

impl Decision {
    const SA: u32 = 32;
    const KIND: u32 = 62;

    pub(super) const fn encrypt(sa: u32) -> Self {
        Self((sa as u64) << Self::SA)
    }

    const fn decrypt(sa: u32, sequence: u32) -> Self {
        Self(1 << Self::KIND | (sa as u64) << Self::SA | sequence as u64)
    }

    const fn pass(verdict: u8) -> Self {
        Self(2 << Self::KIND | verdict as u64)
    }

    const fn drop(reason: u8) -> Self {
        Self(3 << Self::KIND | reason as u64)
    }

    #[inline(always)]
    pub(super) fn to_encrypt(self) -> Option<u32> {
        (self.0 >> Self::KIND == 0).then_some((self.0 >> Self::SA) as u32)
    }

    #[inline(always)]
    pub(super) fn to_decrypt(self) -> Option<(u32, u32)> {
        (self.0 >> Self::KIND == 1).then_some(((self.0 >> Self::SA) as u32 & ((1 << 30) - 1), self.0 as u32))
    }

    #[inline]
    pub(super) fn decided(self) -> Decided {
        let sa = (self.0 >> Self::SA) as u32 & ((1 << 30) - 1);
        match self.0 >> Self::KIND {
            0 => Decided::Encrypt(sa),
            1 => Decided::Decrypt(sa, self.0 as u32),
            2 => Decided::Pass(self.0 as u8),
            _ => Decided::Drop(self.0 as u8),
        }
    }
}

/// Encapsulation in which the packets of an inbound SA arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encapsulation {
    Esp,
    Ah,
    /// ESP in UDP.
    Udp,
}

impl Encapsulation {
    fn of(sa: &Sa) -> Self {
        match (sa.suite().protocol, sa.udp) {
            (Protocol::Ah, _) => Self::Ah,
            (Protocol::Esp, None) => Self::Esp,
            (Protocol::Esp, Some(_)) => Self::Udp,
        }
    }
}

/// SA and policy database. Workers read it while the control thread changes it.
pub(super) struct Database {
    pub(super) policies: ArcSwap<Policies>,
    /// Set of the unprotected ports, which lead to the network outside the tunnels. Bit `n` stands
    /// for port `n`.
    unprotected: u64,
    /// Table of inbound SAs, with lookup keys from [`Endpoint::sa_key`]. A value contains the index
    /// and the [`Encapsulation`] of an SA.
    inbound: Lookup,
    /// Set of the local endpoints of inbound SAs, with lookup keys from [`Endpoint::endpoint_key`].
    endpoints: Lookup,
    /// Filter for the UDP ports of inbound SAs, with bit `port % 64` set for each port. Most
    /// packets to other ports therefore need no lookup.
    udp_ports: AtomicU64,
    pub(super) states: States,
    pub(super) lengths: Lengths,
    /// SAs by index. Packet processing does not use this list.
    sas: RwLock<Vec<Option<Arc<Sa>>>>,
}

/// Number of inbound SAs at each local endpoint, with the keys of [`Database::endpoints`].
pub(super) type Endpoints = HashMap<u64, u32>;

impl Database {
    /// Creates empty databases with space for `capacity` SAs. The capacity must be a multiple of
    /// [`BUCKETS`].
    pub(super) fn new(capacity: usize, reassembly: Option<Limits>, unprotected: u64) -> Self {
        Self {
            policies: ArcSwap::from_pointee(Policies::new(&[])),
            unprotected,
            inbound: Lookup::with_capacity(capacity),
            endpoints: Lookup::with_capacity(capacity),
            udp_ports: AtomicU64::new(0),
            states: States::new(capacity),
            lengths: Lengths::new(capacity, reassembly),
            sas: RwLock::new(vec![None; capacity]),
        }
    }

    /// Returns the SA at `index`. The lock makes this function too slow to call for every packet.
    pub(super) fn sa(&self, index: u32) -> Option<Arc<Sa>> {
        self.all().get(index as usize).cloned().flatten()
    }

    fn all(&self) -> std::sync::RwLockReadGuard<'_, Vec<Option<Arc<Sa>>>> {
        self.sas.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn put(&self, index: u32, sa: Option<Arc<Sa>>) {
        self.sas.write().unwrap_or_else(std::sync::PoisonError::into_inner)[index as usize] = sa;
    }

    /// Sets up the state of an SA. Packets find the SA only after [`Database::publish`].
    pub(super) fn insert(&self, index: u32, sa: Arc<Sa>) {
        self.states.begin(index, &sa, 0);
        self.lengths.insert(index, Self::bucket(index), &sa);
        self.put(index, Some(sa));
    }

    /// Makes an inbound SA visible to packets. Returns false if the table of inbound SAs is full.
    /// Outbound SAs need no entry in this table, because policies refer to them.
    pub(super) fn publish(&self, index: u32, sa: &Sa, endpoints: &mut Endpoints) -> bool {
        if !sa.is_inbound() {
            return true;
        }
        let (key, endpoint) = Self::keys(sa);
        let count = endpoints.entry(endpoint).or_default();
        let known = *count > 0 || self.endpoints.insert(endpoint, 0);
        if !known || !self.inbound.insert(key, u64::from(index) | (Encapsulation::of(sa) as u64) << 32) {
            if *count == 0 {
                endpoints.remove(&endpoint);
                self.endpoints.remove(endpoint);
            }
            return false;
        }
        *count += 1;
        if let Some(udp) = sa.udp {
            self.udp_ports.fetch_or(1 << (udp.destination_port % 64), Ordering::Relaxed);
        }
        true
    }

    pub(super) fn unpublish(&self, sa: &Sa, endpoints: &mut Endpoints) {
        if !sa.is_inbound() {
            return;
        }
        let (key, endpoint) = Self::keys(sa);
        self.inbound.remove(key);
        if let Some(count) = endpoints.get_mut(&endpoint) {
            *count -= 1;
            if *count == 0 {
                endpoints.remove(&endpoint);
                self.endpoints.remove(endpoint);
            }
        }
    }

    /// Removes an SA. No packet may refer to it any more.
    pub(super) fn remove(&self, index: u32) {
        if let Some(sa) = self.sa(index) {
            self.lengths.remove(&sa);
        }
        self.states.grants.end(index);
        self.put(index, None);
    }

    fn keys(sa: &Sa) -> (u64, u64) {
        let port = sa.udp.map(|udp| udp.destination_port);
        match sa.destination {
            std::net::IpAddr::V4(address) => {
                let address = u32::from(address);
                (address.sa_key(sa.spi), address.endpoint_key(port))
            }
            std::net::IpAddr::V6(address) => {
                let address = u128::from(address);
                (address.sa_key(sa.spi), address.endpoint_key(port))
            }
        }
    }

    #[inline(always)]
    pub(super) fn has_unprotected(&self) -> bool {
        self.unprotected != 0
    }

    /// Returns a drop if a packet from an unprotected port requires protection (RFC 4301, section
    /// 5.2, step 3b). Otherwise, returns `decision` unchanged.
    pub(super) fn apply_port(&self, decision: Decision, port: u8) -> Decision {
        let is_unprotected = self.unprotected.checked_shr(port.into()).unwrap_or(0) & 1 == 1;
        if is_unprotected && decision.to_encrypt().is_some() { Decision::drop(DROP_UNPROTECTED) } else { decision }
    }

    /// Decides what happens to a frame from a protected port. IPv4 packets without VLAN tag and
    /// options take a fast path, which makes the same decision as [`Database::decide_any`].
    #[inline(always)]
    pub(super) fn decide(&self, policies: &Policies, frame: &[u8]) -> Decision {
        self.decide_parsed(policies, Plain::parse(frame), frame)
    }

    /// Makes the same decision as [`Database::decide`], but is not inlined into loops that rarely
    /// call it.
    #[inline(never)]
    pub(super) fn decide_out_of_line(&self, policies: &Policies, frame: &[u8]) -> Decision {
        self.decide(policies, frame)
    }

    /// Makes the same decision as [`Database::decide`]. `plain` is the result of [`Plain::parse`]
    /// for the frame.
    #[inline(always)]
    pub(super) fn decide_parsed(&self, policies: &Policies, plain: Option<Plain>, frame: &[u8]) -> Decision {
        let Some(plain) = plain else { return self.decide_any(policies, frame) };
        match plain.protocol {
            protocol::ESP => match plain.esp {
                Some((spi, sequence)) => self
                    .inbound_index(plain.destination.sa_key(spi), Encapsulation::Esp)
                    .map_or_else(|| self.decide_any(policies, frame), |index| Decision::decrypt(index, sequence)),
                None => self.decide_any(policies, frame),
            },
            protocol::AH | protocol::UDP if plain.protocol == protocol::AH || self.accepts_udp() => {
                self.decide_any(policies, frame)
            }
            _ => Self::policy_decision(policies.ipv4().find(plain.source, plain.destination, || Plain::fields(frame))),
        }
    }

    /// Makes the decision for an ESP packet over IPv4 with a lookup in one hash bucket. Returns
    /// `None` if the bucket contains no matching SA.
    #[inline(always)]
    pub(super) fn decide_esp(&self, esp: PlainEsp, isa: impl Isa) -> Option<Decision> {
        let value = self.inbound.get_in_first_bucket(esp.key, isa);
        (value >> 32 == Encapsulation::Esp as u64).then_some(Decision::decrypt(value as u32, esp.sequence))
    }

    #[inline(always)]
    pub(super) fn accepts_udp(&self) -> bool {
        self.udp_ports.load(Ordering::Relaxed) != 0
    }

    /// Makes the decision for any frame, without the fast path of [`Database::decide`].
    #[inline(never)]
    pub(super) fn decide_any(&self, policies: &Policies, frame: &[u8]) -> Decision {
        match Frame::parse(frame) {
            Ok(Frame::Ipv4(packet)) => self.decide_packet(policies, &packet),
            Ok(Frame::Ipv6(packet)) => self.decide_packet(policies, &packet),
            Ok(Frame::Other) => Decision::pass(VERDICT_NOT_IP),
            Err(reason) => Decision::drop(reason),
        }
    }

    #[inline]
    fn decide_packet<A: Endpoint>(&self, policies: &Policies, packet: &impl Packet<Address = A>) -> Decision {
        let inbound = match packet.protocol() {
            protocol::ESP => self.inbound(packet, Encapsulation::Esp, None, packet.payload(), packet.is_fragment()),
            protocol::AH => self.inbound(packet, Encapsulation::Ah, None, packet.payload(), packet.is_fragment()),
            protocol::UDP if self.accepts_udp() => self.inbound_udp(packet),
            _ => None,
        };
        inbound.unwrap_or_else(|| Self::outbound(policies, packet))
    }

    /// Looks up the inbound SA of a packet by the SPI (RFC 4301, section 5.2, steps 2 and 3a).
    /// Returns `None` if the packet is not addressed to a local endpoint.
    fn inbound<A: Endpoint>(
        &self,
        packet: &impl Packet<Address = A>,
        encapsulation: Encapsulation,
        port: Option<u16>,
        bytes: &[u8],
        is_fragment: bool,
    ) -> Option<Decision> {
        // Reassembly precedes IPsec processing (RFC 4303, section 3.4.1). A fragment that was not
        // reassembled is therefore dropped.
        let found = if is_fragment { Err(DROP_FRAGMENT) } else { self.inbound_sa(packet, encapsulation, bytes) };
        match found {
            Ok((index, sequence)) => Some(Decision::decrypt(index, sequence)),
            Err(_) if self.endpoints.get(packet.destination().endpoint_key(port)) == Lookup::ABSENT => None,
            Err(reason) => Some(Decision::drop(reason)),
        }
    }

    /// Returns the SA index for an ESP or AH header, and the sequence number in the header. If
    /// there is no such SA, returns the drop reason.
    #[inline]
    fn inbound_sa<A: Endpoint>(
        &self,
        packet: &impl Packet<Address = A>,
        encapsulation: Encapsulation,
        bytes: &[u8],
    ) -> Result<(u32, u32), u8> {
        // In AH, the SPI follows four bytes: next header, length and a reserved field (RFC 4302,
        // section 2).
        let skipped = if encapsulation == Encapsulation::Ah { 4 } else { 0 };
        let Some(&[a, b, c, d, e, f, g, h]) = bytes.get(skipped..).and_then(|bytes| bytes.first_chunk()) else {
            return Err(DROP_MALFORMED);
        };
        // The SPI alone identifies the SA, but the destination address must also match.
        let spi = u32::from_be_bytes([a, b, c, d]);
        let index = self.inbound_index(packet.destination().sa_key(spi), encapsulation).ok_or(DROP_NO_SA)?;
        Ok((index, u32::from_be_bytes([e, f, g, h])))
    }

    /// Returns the index of the inbound SA with this key.
    #[inline(always)]
    fn inbound_index(&self, key: u64, encapsulation: Encapsulation) -> Option<u32> {
        let value = self.inbound.get(key);
        (value >> 32 == encapsulation as u64).then_some(value as u32)
    }

    /// Makes the decision for UDP packets to the port of an inbound SA (RFC 3948). Such a packet
    /// contains ESP, IKE or a keepalive. Returns `None` if the decision is up to the policies.
    fn inbound_udp<A: Endpoint>(&self, packet: &impl Packet<Address = A>) -> Option<Decision> {
        if packet.is_later_fragment() {
            return None;
        }
        let &[_, _, a, b, _, _, _, _, ref bytes @ ..] = packet.payload() else { return None };
        let port = u16::from_be_bytes([a, b]);
        if self.udp_ports.load(Ordering::Relaxed) >> (port % 64) & 1 == 0
            || self.endpoints.get(packet.destination().endpoint_key(Some(port))) == Lookup::ABSENT
        {
            return None;
        }
        match bytes {
            // The packet is a keepalive (RFC 3948, section 2.3).
            [0xff] => Some(Decision::drop(DROP_KEEPALIVE)),
            // No SPI is 0, so these four zero bytes are the non-ESP marker (RFC 3948, section 2.2).
            [0, 0, 0, 0, ..] => None,
            _ => self.inbound(packet, Encapsulation::Udp, Some(port), bytes, packet.is_fragment()),
        }
    }

    /// Applies the first policy that matches the packet (RFC 4301, section 5.1). A packet that
    /// matches no policy is dropped (section 4.4.1).
    #[inline]
    fn outbound<A: PolicyAddress>(policies: &Policies, packet: &impl Packet<Address = A>) -> Decision {
        Self::policy_decision(A::policies(policies).find(packet.source(), packet.destination(), || packet.fields()))
    }

    #[inline(always)]
    pub(super) fn policy_decision(action: Option<Action>) -> Decision {
        match action {
            Some(Action::Protect(sa)) => Decision::encrypt(sa),
            Some(Action::Bypass) => Decision::pass(VERDICT_BYPASS),
            Some(Action::Discard) | None => Decision::drop(DROP_POLICY_DISCARD),
        }
    }

    /// Returns the steering bucket of the SA that processes a frame, or `None` if no SA does.
    #[inline(always)]
    fn bucket_of(&self, policies: &Policies, frame: &[u8]) -> Option<usize> {
        if let Some(bucket) = self.lengths.bucket_of_fragment(frame) {
            return Some(bucket);
        }
        match self.decide(policies, frame).decided() {
            Decided::Encrypt(sa) | Decided::Decrypt(sa, _) => Some(Self::bucket(sa)),
            Decided::Pass(_) | Decided::Drop(_) => None,
        }
    }

    pub(super) fn bucket(index: u32) -> usize {
        index as usize % BUCKETS
    }
}

/// Address of a local endpoint, which receives the packets of inbound SAs.
trait Endpoint: PolicyAddress {
    /// Returns the lookup key of an inbound SA: its SPI and destination address.
    fn sa_key(self, spi: u32) -> u64;

    /// Returns the lookup key of a local endpoint: its address and, for ESP in UDP, its port.
    fn endpoint_key(self, port: Option<u16>) -> u64;
}

impl Endpoint for u32 {
    #[inline]
    fn sa_key(self, spi: u32) -> u64 {
        u64::from(self) << 32 | u64::from(spi)
    }

    fn endpoint_key(self, port: Option<u16>) -> u64 {
        port.map_or(0, |port| 1 << 48 | u64::from(port) << 32) | u64::from(self)
    }
}

/// The lookup keys contain only a hash of the IPv6 address, so the kernel compares the full
/// destination address.
impl Endpoint for u128 {
    fn sa_key(self, spi: u32) -> u64 {
        Self::pair(self, 0) << 32 | u64::from(spi)
    }

    fn endpoint_key(self, port: Option<u16>) -> u64 {
        mix(Self::pair(self, 0) ^ port.map_or(0, |port| 1 << 16 | u64::from(port)))
    }
}

impl SteerKey for Database {
    /// Returns the number that selects the worker of a packet: the steering bucket of its SA, or
    /// the flow hash without an SA.
    fn steer_key(&self, frame: &[u8], _parsed: &Parsed, flow_hash: u32) -> u32 {
        self.bucket_of(&self.policies.load(), frame).map_or(flow_hash, |bucket| bucket as u32)
    }

    fn buckets(&self, frames: &[&[u8]], buckets: &mut [u8]) {
        let policies = self.policies.load();
        for (frame, bucket) in frames.iter().zip(buckets) {
            *bucket = self.bucket_of(&policies, frame).map_or(ANY_WORKER, |bucket| bucket as u8);
        }
    }
}
