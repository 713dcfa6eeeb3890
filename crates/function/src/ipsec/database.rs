//! The security association database and the security policy database (RFC 4301, section 4.4), and who asks them.

use std::collections::{HashMap, HashSet};

use godwit_abi::Outcome;
use godwit_packet::SteerKey;
use godwit_wire::Parsed;
use zeroize::Zeroizing;

use super::config::Direction;
use super::frame::{Ipv4Frame, PROTOCOL_ESP};
use super::selector::{Match, Selector};
use super::{
    DROP_FRAGMENT, DROP_MALFORMED, DROP_NO_SA, DROP_POLICY_DISCARD, ESP_HEADER_BYTES, VERDICT_BYPASS, VERDICT_NOT_IPV4,
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

pub(super) struct Policy {
    pub(super) selector: Selector,
    pub(super) action: Action,
}

#[derive(Clone, Copy)]
pub(super) enum Action {
    /// By the SA with this index.
    Protect(u32),
    Bypass,
    Discard,
}

/// What is to be done with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// By the outbound SA with this index.
    Encrypt(u32),
    /// By the inbound SA with this index.
    Decrypt(u32),
    Settled(Outcome),
}

/// Both databases.
pub(super) struct Database {
    pub(super) sas: Vec<Sa>,
    policies: Vec<Policy>,
    /// Inbound SPI to index. The SPIs are ours, so nobody else can make them collide.
    inbound: HashMap<u32, u32>,
    /// Destinations of inbound SAs.
    endpoints: HashSet<u32>,
}

impl Database {
    /// SPIs of inbound SAs are unique, and policies name outbound SAs.
    pub(super) fn new(sas: Vec<Sa>, policies: Vec<Policy>) -> Self {
        let inbound = || (0u32..).zip(&sas).filter(|(_, sa)| sa.direction == Direction::In);
        let endpoints = inbound().map(|(_, sa)| sa.destination).collect();
        let inbound = inbound().map(|(index, sa)| (sa.spi, index)).collect();
        Self { sas, policies, inbound, endpoints }
    }

    /// What is to be done with a frame. Nothing is learned of it that depends on keys.
    pub(super) fn decide(&self, frame: &[u8]) -> Decision {
        let packet = match Ipv4Frame::parse(frame) {
            Ok(Some(packet)) => packet,
            Ok(None) => return Decision::Settled(Outcome::verdict(VERDICT_NOT_IPV4)),
            Err(reason) => return Decision::Settled(Outcome::drop(reason)),
        };
        if packet.protocol() == PROTOCOL_ESP && self.endpoints.contains(&packet.destination()) {
            self.inbound(&packet).map_or_else(|reason| Decision::Settled(Outcome::drop(reason)), Decision::Decrypt)
        } else {
            self.outbound(&packet)
        }
    }

    /// RFC 4301, section 5.2, steps 2 and 3a: the SPI finds the SA.
    fn inbound(&self, packet: &Ipv4Frame<'_>) -> Result<u32, u8> {
        // Reassembly comes before IPsec (RFC 4303, section 3.4.1), and is not done here.
        if packet.is_fragment() {
            return Err(DROP_FRAGMENT);
        }
        let esp = packet.payload().first_chunk::<ESP_HEADER_BYTES>().ok_or(DROP_MALFORMED)?;
        let [a, b, c, d, ..] = *esp;
        let &index = self.inbound.get(&u32::from_be_bytes([a, b, c, d])).ok_or(DROP_NO_SA)?;
        match self.sas.get(index as usize) {
            Some(sa) if sa.destination == packet.destination() => Ok(index),
            _ => Err(DROP_NO_SA),
        }
    }

    /// RFC 4301, section 5.1: the first policy that matches; none discards (section 4.4.1).
    fn outbound(&self, packet: &Ipv4Frame<'_>) -> Decision {
        let shown = packet.shown();
        let action = self.policies.iter().find_map(|policy| match (policy.selector.matches(&shown), policy.action) {
            (Match::Yes, action) => Some(action),
            // A fragment that hides its ports must not slip past the policy that discards them.
            (Match::Unknown, Action::Discard) => Some(Action::Discard),
            (Match::Unknown | Match::No, _) => None,
        });
        match action {
            Some(Action::Protect(sa)) => Decision::Encrypt(sa),
            Some(Action::Bypass) => Decision::Settled(Outcome::verdict(VERDICT_BYPASS)),
            Some(Action::Discard) | None => Decision::Settled(Outcome::drop(DROP_POLICY_DISCARD)),
        }
    }

    /// The key that steers the SA's packets: what names the SA, hashed. All packets of one SA have the same.
    pub(super) fn sa_key(&self, index: u32) -> u32 {
        let sa = &self.sas[index as usize];
        // The finalizer of MurmurHash3 (A. Appleby, public domain): every bit of the input reaches the low ones.
        let mut hash = sa.spi ^ sa.destination.rotate_left(16);
        hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
        hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
        hash ^ hash >> 16
    }
}

impl SteerKey for Database {
    fn steer_key(&self, frame: &[u8], _parsed: &Parsed, flow_hash: u32) -> u32 {
        match self.decide(frame) {
            Decision::Encrypt(sa) | Decision::Decrypt(sa) => self.sa_key(sa),
            Decision::Settled(_) => flow_hash,
        }
    }
}
