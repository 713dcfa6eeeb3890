//! The security association database and the security policy database (RFC 4301, section 4.4), and who asks them.

use std::collections::BTreeSet;

use godwit_packet::SteerKey;
use godwit_wire::Parsed;
use zeroize::Zeroizing;

use super::config::Direction;
use super::frame::{Ipv4Frame, PROTOCOL_ESP};
use super::lookup::Lookup;
use super::policies::{Action, Policies, Policy};
use super::selector::Selector;
use super::{
    DROP_FRAGMENT, DROP_MALFORMED, DROP_NO_SA, DROP_POLICY_DISCARD, ESP_HEADER_BYTES, VERDICT_BYPASS, VERDICT_NOT_IP,
};

/// A security association.
pub(super) struct Sa {
    pub(super) spi: u32,
    pub(super) direction: Direction,
    pub(super) source: u32,
    pub(super) destination: u32,
    pub(super) encryption_key: Zeroizing<[u8; 16]>,
    pub(super) authentication_key: Zeroizing<[u8; 20]>,
    /// Inbound: what may be inside. Outbound: empty.
    pub(super) selectors: Vec<Selector>,
}

/// What is to be done with a frame. One word each, so that it is handed over in registers: through memory, it is read
/// wider than it was written, and every packet waits for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// By the outbound SA with this index.
    Encrypt(u32),
    /// By the inbound SA with this index.
    Decrypt(u32),
    /// It passes with this verdict.
    Pass(u32),
    /// It is dropped for this reason.
    Drop(u32),
}

impl Decision {
    const fn pass(verdict: u8) -> Self {
        Self::Pass(verdict as u32)
    }

    const fn drop(reason: u8) -> Self {
        Self::Drop(reason as u32)
    }
}

/// Both databases.
pub(super) struct Database {
    pub(super) sas: Vec<Sa>,
    policies: Policies,
    /// [`name`] of an inbound SA to its index.
    inbound: Lookup,
    /// Destinations of inbound SAs.
    endpoints: Lookup,
    /// Per SA: see [`Database::sa_key`].
    sa_keys: Vec<u32>,
}

impl Database {
    /// SPIs of inbound SAs are unique, and policies name outbound SAs.
    pub(super) fn new(sas: Vec<Sa>, policies: &[Policy]) -> Self {
        let inbound = || (0u64..).zip(&sas).filter(|(_, sa)| sa.direction == Direction::In);
        let endpoints = inbound().map(|(_, sa)| u64::from(sa.destination)).collect::<BTreeSet<_>>();
        let endpoints = Lookup::new(&endpoints.into_iter().map(|endpoint| (endpoint, 0)).collect::<Vec<_>>());
        let inbound = inbound().map(|(index, sa)| (name(sa.spi, sa.destination), index));
        let inbound = Lookup::new(&inbound.collect::<Vec<_>>());
        let sa_keys = sas.iter().map(sa_key).collect();
        Self { sas, policies: Policies::new(policies), inbound, endpoints, sa_keys }
    }

    /// What is to be done with a frame. Nothing is learned of it that depends on keys.
    pub(super) fn decide(&self, frame: &[u8]) -> Decision {
        let packet = match Ipv4Frame::parse(frame) {
            Ok(Some(packet)) => packet,
            Ok(None) => return Decision::pass(VERDICT_NOT_IP),
            Err(reason) => return Decision::drop(reason),
        };
        let esp = if packet.protocol() == PROTOCOL_ESP { self.inbound(&packet) } else { None };
        esp.unwrap_or_else(|| self.outbound(&packet))
    }

    /// RFC 4301, section 5.2, steps 2 and 3a: the SPI finds the SA. `None` where the ESP packet is not for us.
    fn inbound(&self, packet: &Ipv4Frame<'_>) -> Option<Decision> {
        let esp = packet.payload().first_chunk::<ESP_HEADER_BYTES>();
        // Reassembly comes before IPsec (RFC 4303, section 3.4.1), and is not done here.
        let found = match esp {
            _ if packet.is_fragment() => Err(DROP_FRAGMENT),
            None => Err(DROP_MALFORMED),
            // The SPI alone is unique; the destination must be the SA's too.
            Some(&[a, b, c, d, ..]) => {
                match self.inbound.get(name(u32::from_be_bytes([a, b, c, d]), packet.destination())) {
                    Lookup::ABSENT => Err(DROP_NO_SA),
                    index => Ok(index as u32),
                }
            }
        };
        match found {
            Ok(index) => Some(Decision::Decrypt(index)),
            Err(_) if self.endpoints.get(u64::from(packet.destination())) == Lookup::ABSENT => None,
            Err(reason) => Some(Decision::drop(reason)),
        }
    }

    /// RFC 4301, section 5.1: the first policy that matches; none discards (section 4.4.1).
    fn outbound(&self, packet: &Ipv4Frame<'_>) -> Decision {
        match self.policies.find(packet.source(), packet.destination(), || packet.shown()) {
            Some(Action::Protect(sa)) => Decision::Encrypt(sa),
            Some(Action::Bypass) => Decision::pass(VERDICT_BYPASS),
            Some(Action::Discard) | None => Decision::drop(DROP_POLICY_DISCARD),
        }
    }

    /// The key that steers the SA's packets: what names the SA, hashed. All packets of one SA have the same.
    pub(super) fn sa_key(&self, index: u32) -> u32 {
        self.sa_keys[index as usize]
    }
}

/// What names an SA: SPI and destination.
fn name(spi: u32, destination: u32) -> u64 {
    u64::from(destination) << 32 | u64::from(spi)
}

fn sa_key(sa: &Sa) -> u32 {
    // The finalizer of MurmurHash3 (A. Appleby, public domain): every bit of the input reaches the low ones.
    let mut hash = sa.spi ^ sa.destination.rotate_left(16);
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

impl SteerKey for Database {
    fn steer_key(&self, frame: &[u8], _parsed: &Parsed, flow_hash: u32) -> u32 {
        match self.decide(frame) {
            Decision::Encrypt(sa) | Decision::Decrypt(sa) => self.sa_key(sa),
            Decision::Pass(_) | Decision::Drop(_) => flow_hash,
        }
    }
}
