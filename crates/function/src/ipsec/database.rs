//! The security association database and the security policy database (RFC 4301, section 4.4), and who asks them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use arc_swap::ArcSwap;
use godwit_packet::simd::Isa;
use godwit_packet::{BUCKETS, SteerKey};
use godwit_wire::{Parsed, protocol};

use super::frame::{Frame, Packet, Plain, PlainEsp};
use super::lengths::Lengths;
use super::lookup::{Lookup, mix};
use super::policies::{Action, Findable, Policies};
use super::sa::Sa;
use super::state::States;
use super::suite::Protocol;
use super::{
    DROP_FRAGMENT, DROP_KEEPALIVE, DROP_MALFORMED, DROP_NO_SA, DROP_POLICY_DISCARD, VERDICT_BYPASS, VERDICT_NOT_IP,
};
use crate::fragments::Limits;

/// What is to be done with a frame, in one word, so that it is handed over in a register: through memory, it is read
/// wider than it was written, and every packet waits for that.
///
/// ```text
/// | kind | SA   | sequence number's lower half, verdict or drop reason |
///  62     32     0
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decision(u64);

/// A [`Decision`], spelt out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decided {
    /// By the outbound SA with this index.
    Encrypt(u32),
    /// By the inbound SA with this index; the packet shows this sequence number.
    Decrypt(u32, u32),
    /// It passes with this verdict.
    Pass(u8),
    /// It is dropped for this reason.
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

    /// The SA of [`Decided::Encrypt`].
    #[inline(always)]
    pub(super) fn to_encrypt(self) -> Option<u32> {
        (self.0 >> Self::KIND == 0).then_some((self.0 >> Self::SA) as u32)
    }

    /// SA and sequence number of [`Decided::Decrypt`].
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

/// How an inbound SA's packets come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Esp,
    Ah,
    /// ESP in UDP.
    Udp,
}

impl Class {
    fn of(sa: &Sa) -> Self {
        match (sa.suite().protocol, sa.udp) {
            (Protocol::Ah, _) => Self::Ah,
            (Protocol::Esp, None) => Self::Esp,
            (Protocol::Esp, Some(_)) => Self::Udp,
        }
    }
}

/// Both databases, as workers ask them. What control changes, it changes so that they need not wait.
pub(super) struct Database {
    pub(super) policies: ArcSwap<Policies>,
    /// What names an inbound SA, to its index and [`Class`].
    inbound: Lookup,
    /// Where inbound SAs end.
    endpoints: Lookup,
    /// Bit `port % 64`: some inbound SA ends at such a UDP port.
    udp_ports: AtomicU64,
    pub(super) states: States,
    pub(super) lengths: Lengths,
    /// By index. Not for the packet path.
    sas: RwLock<Vec<Option<Arc<Sa>>>>,
}

/// How many inbound SAs end at each place of [`Database::endpoints`].
pub(super) type Endpoints = HashMap<u64, u32>;

impl Database {
    /// `capacity`: a multiple of [`BUCKETS`].
    pub(super) fn new(capacity: usize, reassembly: Option<Limits>) -> Self {
        Self {
            policies: ArcSwap::from_pointee(Policies::new(&[])),
            inbound: Lookup::with_capacity(capacity),
            endpoints: Lookup::with_capacity(capacity),
            udp_ports: AtomicU64::new(0),
            states: States::new(capacity),
            lengths: Lengths::new(capacity, reassembly),
            sas: RwLock::new(vec![None; capacity]),
        }
    }

    /// The SA at a place; for control, and for `ref`.
    pub(super) fn sa(&self, index: u32) -> Option<Arc<Sa>> {
        self.all().get(index as usize).cloned().flatten()
    }

    fn all(&self) -> std::sync::RwLockReadGuard<'_, Vec<Option<Arc<Sa>>>> {
        self.sas.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn put(&self, index: u32, sa: Option<Arc<Sa>>) {
        self.sas.write().unwrap_or_else(std::sync::PoisonError::into_inner)[index as usize] = sa;
    }

    /// Makes what is needed of an SA before packets find it.
    pub(super) fn begin(&self, index: u32, sa: Arc<Sa>) {
        self.states.begin(index, &sa);
        self.lengths.begin(index, Self::bucket(index), &sa);
        self.put(index, Some(sa));
    }

    /// Lets packets find an inbound SA; false where the table has no room. Outbound SAs are found by policies.
    pub(super) fn find(&self, index: u32, sa: &Sa, endpoints: &mut Endpoints) -> bool {
        if !sa.is_inbound() {
            return true;
        }
        let (name, endpoint) = Self::names(sa);
        let count = endpoints.entry(endpoint).or_default();
        let known = *count > 0 || self.endpoints.insert(endpoint, 0);
        if !known || !self.inbound.insert(name, u64::from(index) | (Class::of(sa) as u64) << 32) {
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

    /// Lets no more packets find an inbound SA.
    pub(super) fn lose(&self, sa: &Sa, endpoints: &mut Endpoints) {
        if !sa.is_inbound() {
            return;
        }
        let (name, endpoint) = Self::names(sa);
        self.inbound.remove(name);
        if let Some(count) = endpoints.get_mut(&endpoint) {
            *count -= 1;
            if *count == 0 {
                endpoints.remove(&endpoint);
                self.endpoints.remove(endpoint);
            }
        }
    }

    /// Forgets an SA that no packet refers to any more.
    pub(super) fn end(&self, index: u32) {
        if let Some(sa) = self.sa(index) {
            self.lengths.end(&sa);
        }
        self.put(index, None);
    }

    /// What finds an inbound SA, and its endpoint.
    fn names(sa: &Sa) -> (u64, u64) {
        let port = sa.udp.map(|udp| udp.destination_port);
        match sa.destination {
            std::net::IpAddr::V4(address) => (u32::from(address).name(sa.spi), u32::from(address).endpoint(port)),
            std::net::IpAddr::V6(address) => (u128::from(address).name(sa.spi), u128::from(address).endpoint(port)),
        }
    }

    /// What is to be done with a frame. Nothing is learned of it that depends on keys.
    ///
    /// Most frames are IPv4 without VLAN tag and options, and need not be taken apart further: [`Database::decide_any`]
    /// would say the same of them.
    #[inline(always)]
    pub(super) fn decide(&self, policies: &Policies, frame: &[u8]) -> Decision {
        self.decide_parsed(policies, Plain::parse(frame), frame)
    }

    /// The same, for loops whose frames are mostly others.
    #[inline(never)]
    pub(super) fn decide_apart(&self, policies: &Policies, frame: &[u8]) -> Decision {
        self.decide(policies, frame)
    }

    /// [`Database::decide`] for a frame that [`Plain::parse`] said this of.
    #[inline(always)]
    pub(super) fn decide_parsed(&self, policies: &Policies, plain: Option<Plain>, frame: &[u8]) -> Decision {
        let Some(plain) = plain else { return self.decide_any(policies, frame) };
        match plain.protocol {
            protocol::ESP => match plain.esp {
                Some((spi, sequence)) => self
                    .named(plain.destination.name(spi), Class::Esp)
                    .map_or_else(|| self.decide_any(policies, frame), |index| Decision::decrypt(index, sequence)),
                None => self.decide_any(policies, frame),
            },
            protocol::AH | protocol::UDP if plain.protocol == protocol::AH || self.ends_udp() => {
                self.decide_any(policies, frame)
            }
            _ => Self::protect(policies.ipv4().find(plain.source, plain.destination, || Plain::shown(frame))),
        }
    }

    /// [`Database::decide`] for a frame that shows this name, where the first look finds an SA that takes ESP.
    #[inline(always)]
    pub(super) fn decide_named(&self, esp: PlainEsp, form: impl Isa) -> Option<Decision> {
        let value = self.inbound.first_look(esp.name, form);
        (value >> 32 == Class::Esp as u64).then_some(Decision::decrypt(value as u32, esp.sequence))
    }

    /// Whether some inbound SA takes ESP in UDP.
    #[inline(always)]
    pub(super) fn ends_udp(&self) -> bool {
        self.udp_ports.load(Ordering::Relaxed) != 0
    }

    /// [`Database::decide`] for any frame.
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
            protocol::ESP => self.inbound(packet, Class::Esp, None, packet.payload(), packet.is_fragment()),
            protocol::AH => self.inbound(packet, Class::Ah, None, packet.payload(), packet.is_fragment()),
            protocol::UDP if self.ends_udp() => self.inbound_udp(packet),
            _ => None,
        };
        inbound.unwrap_or_else(|| Self::outbound(policies, packet))
    }

    /// RFC 4301, section 5.2, steps 2 and 3a: the SPI finds the SA. `None` where the packet is not for us.
    fn inbound<A: Endpoint>(
        &self,
        packet: &impl Packet<Address = A>,
        class: Class,
        port: Option<u16>,
        bytes: &[u8],
        is_fragment: bool,
    ) -> Option<Decision> {
        // Reassembly comes before IPsec (RFC 4303, section 3.4.1), and before this.
        let found = if is_fragment { Err(DROP_FRAGMENT) } else { self.inbound_sa(packet, class, bytes) };
        match found {
            Ok((index, sequence)) => Some(Decision::decrypt(index, sequence)),
            Err(_) if self.endpoints.get(packet.destination().endpoint(port)) == Lookup::ABSENT => None,
            Err(reason) => Some(Decision::drop(reason)),
        }
    }

    /// Index and sequence number.
    #[inline]
    fn inbound_sa<A: Endpoint>(
        &self,
        packet: &impl Packet<Address = A>,
        class: Class,
        bytes: &[u8],
    ) -> Result<(u32, u32), u8> {
        // AH begins with next header, length and two bytes (RFC 4302, section 2).
        let skipped = if class == Class::Ah { 4 } else { 0 };
        let Some(&[a, b, c, d, e, f, g, h]) = bytes.get(skipped..).and_then(|bytes| bytes.first_chunk()) else {
            return Err(DROP_MALFORMED);
        };
        // The SPI alone is unique; the destination must be the SA's too.
        let spi = u32::from_be_bytes([a, b, c, d]);
        let index = self.named(packet.destination().name(spi), class).ok_or(DROP_NO_SA)?;
        Ok((index, u32::from_be_bytes([e, f, g, h])))
    }

    /// The index of the inbound SA with this name.
    #[inline(always)]
    fn named(&self, name: u64, class: Class) -> Option<u32> {
        let value = self.inbound.get(name);
        // No SA is found by `Lookup::ABSENT`, whose class is none.
        (value >> 32 == class as u64).then_some(value as u32)
    }

    /// RFC 3948: ESP, IKE behind a marker, or a keepalive.
    fn inbound_udp<A: Endpoint>(&self, packet: &impl Packet<Address = A>) -> Option<Decision> {
        if packet.is_later_fragment() {
            return None;
        }
        let &[_, _, a, b, _, _, _, _, ref bytes @ ..] = packet.payload() else { return None };
        let port = u16::from_be_bytes([a, b]);
        if self.udp_ports.load(Ordering::Relaxed) >> (port % 64) & 1 == 0
            || self.endpoints.get(packet.destination().endpoint(Some(port))) == Lookup::ABSENT
        {
            return None;
        }
        match bytes {
            // Section 2.3.
            [0xff] => Some(Decision::drop(DROP_KEEPALIVE)),
            // The non-ESP marker of section 2.2: no SPI is 0.
            [0, 0, 0, 0, ..] => None,
            _ => self.inbound(packet, Class::Udp, Some(port), bytes, packet.is_fragment()),
        }
    }

    /// RFC 4301, section 5.1: the first policy that matches; none discards (section 4.4.1).
    #[inline]
    fn outbound<A: Findable>(policies: &Policies, packet: &impl Packet<Address = A>) -> Decision {
        Self::protect(A::policies(policies).find(packet.source(), packet.destination(), || packet.shown()))
    }

    #[inline(always)]
    pub(super) fn protect(action: Option<Action>) -> Decision {
        match action {
            Some(Action::Protect(sa)) => Decision::encrypt(sa),
            Some(Action::Bypass) => Decision::pass(VERDICT_BYPASS),
            Some(Action::Discard) | None => Decision::drop(DROP_POLICY_DISCARD),
        }
    }

    /// The bucket that an SA's packets are steered by, below [`BUCKETS`].
    pub(super) fn bucket(index: u32) -> usize {
        index as usize % BUCKETS
    }
}

/// An address at which inbound SAs end.
trait Endpoint: Findable {
    /// What names an SA: SPI and destination.
    fn name(self, spi: u32) -> u64;

    /// The place of [`Database::endpoints`]; with the port of ESP in UDP.
    fn endpoint(self, port: Option<u16>) -> u64;
}

impl Endpoint for u32 {
    #[inline]
    fn name(self, spi: u32) -> u64 {
        u64::from(self) << 32 | u64::from(spi)
    }

    fn endpoint(self, port: Option<u16>) -> u64 {
        port.map_or(0, |port| 1 << 48 | u64::from(port) << 32) | u64::from(self)
    }
}

/// Hashed: the SPI is exact, and of another destination the kernel says that it has no SA.
impl Endpoint for u128 {
    fn name(self, spi: u32) -> u64 {
        Self::pair(self, 0) << 32 | u64::from(spi)
    }

    fn endpoint(self, port: Option<u16>) -> u64 {
        mix(Self::pair(self, 0) ^ port.map_or(0, |port| 1 << 16 | u64::from(port)))
    }
}

impl SteerKey for Database {
    /// All packets of one SA have the same, and whoever has a worker's share of the buckets has a worker's share of the
    /// SAs.
    fn steer_key(&self, frame: &[u8], _parsed: &Parsed, flow_hash: u32) -> u32 {
        if let Some(bucket) = self.lengths.bucket_of_fragment(frame) {
            return bucket as u32;
        }
        match self.decide(&self.policies.load(), frame).decided() {
            Decided::Encrypt(sa) | Decided::Decrypt(sa, _) => Self::bucket(sa) as u32,
            Decided::Pass(_) | Decided::Drop(_) => flow_hash,
        }
    }
}
