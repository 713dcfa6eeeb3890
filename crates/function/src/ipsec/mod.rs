//! `ipsec`: ESP in tunnel mode over IPv4 (RFC 4303, RFC 4301), AES-128-CBC (RFC 3602) with HMAC-SHA1-96 (RFC 2404).
//!
//! The host half matches policies and hands out sequence numbers (`host`); everything that touches keys is in the
//! kernel. `docs/functions/ipsec.md` says what the operator can write, and what is not there.

mod aes_key;
mod config;
mod database;
mod frame;
mod host;
mod key;
pub mod key_area;
mod lookup;
mod policies;
mod reference;
mod selector;
pub mod suite;
mod tables;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::{ImageRef, Memory, SteerKey};
use toml::Spanned;
use toml::de::DeTable;
use zeroize::Zeroize;

use crate::{Contract, Error, Function, HostHalf, Kind, Site, Verdict};
use database::Database;
use host::{IpsecHost, Sequence};

pub use config::Config;

/// The packet is now an ESP packet.
pub const VERDICT_ENCRYPTED: u8 = 0;
/// The packet is now what was inside.
pub const VERDICT_DECRYPTED: u8 = 1;
/// A policy lets the packet pass.
pub const VERDICT_BYPASS: u8 = 2;
/// Not IP; passes.
pub const VERDICT_NOT_IP: u8 = 3;

/// The frame ends early.
pub const DROP_TRUNCATED: u8 = 0;
/// A header is wrong.
pub const DROP_MALFORMED: u8 = 1;
/// A policy discards the packet, or none matches.
pub const DROP_POLICY_DISCARD: u8 = 2;
/// Unknown SPI.
pub const DROP_NO_SA: u8 = 3;
/// No room for what ESP adds.
pub const DROP_NO_ROOM: u8 = 4;
/// Wrong ICV.
pub const DROP_AUTHENTICATION: u8 = 5;
/// Wrong padding.
pub const DROP_PADDING: u8 = 6;
/// No sequence number left.
pub const DROP_SEQUENCE_EXHAUSTED: u8 = 7;
/// Another worker's SA.
pub const DROP_WRONG_WORKER: u8 = 8;
/// The SA is not for what was inside.
pub const DROP_POLICY_MISMATCH: u8 = 9;
/// A fragment of an ESP packet.
pub const DROP_FRAGMENT: u8 = 10;
/// Traffic flow padding.
pub const DROP_DUMMY: u8 = 11;
/// A congestion mark that the packet inside cannot carry.
pub const DROP_CONGESTION: u8 = 12;

/// Encrypts with AES-128-CBC and HMAC-SHA1-96.
pub const VARIANT_ENCRYPT: u8 = 0;
/// Decrypts the same.
pub const VARIANT_DECRYPT: u8 = 1;

const ESP_HEADER_BYTES: usize = 8;

/// Padding to a cipher block, pad length and next header, ICV.
const TAILROOM_BYTES: usize = 15 + 2 + 12;

/// See [`Contract::tailroom_saved`]. An IPv4 packet behind 14 or 18 bytes of L2, pad length and next header make whole
/// cipher blocks; a packet that is shorter than its frame ends earlier.
const fn tailroom_saved() -> [u8; 16] {
    let mut saved = [0; 16];
    let mut length = 0;
    while length < 16 {
        let untagged = (2 * 16 - (length + 32 - 14 + 2) % 16) % 16;
        let tagged = (2 * 16 - (length + 32 - 18 + 2) % 16) % 16;
        let padding = if untagged > tagged { untagged } else { tagged };
        saved[length] = (TAILROOM_BYTES - 2 - 12 - padding) as u8;
        length += 1;
    }
    saved
}

/// The contract block of `kernels/ipsec/`, as data.
pub const CONTRACT: Contract = Contract {
    kind: "ipsec",
    summary: "Encrypts and decrypts IPv4 packets by policy: ESP tunnels with AES-128-CBC and HMAC-SHA1-96.",
    kernel: godwit_kernels::IPSEC,
    verdicts: &[
        said("encrypted", "A policy protects the packet: it is now an ESP packet between the tunnel's endpoints."),
        said("decrypted", "An ESP packet for one of our endpoints was authentic: the packet is now what was inside."),
        said("bypass", "A policy lets the packet pass as it is."),
        said("not_ip", "The frame carries no IP and passes as it is."),
    ],
    drops: &[
        dropped("truncated", "The frame ends before the IPv4 packet does."),
        dropped("malformed", "An IPv4 or ESP header contradicts itself, or the outer checksum is wrong."),
        dropped("policy_discard", "A policy discards the packet, or none matches it (RFC 4301, section 4.4.1)."),
        dropped("no_sa", "An ESP packet for one of our endpoints names an SPI that is not configured for it."),
        dropped("no_room", "The window has no room for what ESP adds."),
        dropped("authentication", "The ICV is wrong: the packet was changed, or the keys differ."),
        dropped("padding", "The padding of an authentic packet is not 1, 2, 3 … (RFC 4303, section 2.4)."),
        dropped("sequence_exhausted", "The SA has used all 2^32 - 1 sequence numbers (RFC 4303, section 3.3.3)."),
        dropped("wrong_worker", "The packet came to a worker that does not own the SA."),
        dropped("policy_mismatch", "What was inside is not what the SA is for (RFC 4301, section 5.2)."),
        dropped("fragment", "A fragment of an ESP packet for one of our endpoints; it is not reassembled."),
        dropped("dummy", "A packet that only hides how much traffic there is: next header 59 (RFC 4303, section 2.6)."),
        dropped("congestion", "A congestion mark that the packet inside cannot carry (RFC 6040, section 4.2)."),
    ],
    variants: &["encrypt_aes128cbc_sha1", "decrypt_aes128cbc_sha1"],
    in_order: true,
    // Outer IPv4 header, ESP header, IV.
    reads_bytes: Contract::ALL,
    writes_bytes: Contract::ALL,
    headroom_bytes: 20 + 8 + 16,
    // Padding to the block, pad length and next header, ICV.
    tailroom_bytes: TAILROOM_BYTES as u16,
    tailroom_saved: tailroom_saved(),
    spec: "RFC 4301, RFC 4303, RFC 3602, RFC 2404, RFC 6040",
};

const fn said(name: &'static str, sentence: &'static str) -> Verdict {
    Verdict { name, sentence, chooses_port: false }
}

const fn dropped(name: &'static str, sentence: &'static str) -> crate::Drop {
    crate::Drop { name, sentence }
}

/// The registration.
pub const KIND: Kind = Kind { contract: &CONTRACT, build };

/// Bits of a sequence number in the kernel's parameter.
const SEQUENCE_BITS: u32 = 44;

/// The kernel's parameter: index of the SA, and the packet's sequence number.
pub const fn parameter(sa: u32, sequence: u64) -> u64 {
    (sa as u64) << SEQUENCE_BITS | sequence
}

/// What [`parameter`] is made of.
const fn sa_and_sequence(parameter: u64) -> (u32, u64) {
    ((parameter >> SEQUENCE_BITS) as u32, parameter & ((1 << SEQUENCE_BITS) - 1))
}

/// The configured function.
pub struct Ipsec {
    database: Arc<Database>,
    sequences: Arc<[Sequence]>,
    image: Memory,
}

fn build(stanza: Spanned<DeTable<'_>>, _site: &Site<'_>) -> Result<Arc<dyn Function>, Error> {
    Ok(Arc::new(Ipsec::new(crate::config::read(stanza)?)?))
}

impl Ipsec {
    fn new(config: Config) -> Result<Self, Error> {
        let database = config.database()?;
        let image = tables::image(&database.sas)?;
        let sequences = database.sas.iter().map(|_| Sequence::default()).collect();
        Ok(Self { database: Arc::new(database), sequences, image })
    }
}

impl Function for Ipsec {
    fn contract(&self) -> &'static Contract {
        &CONTRACT
    }

    fn image(&self) -> ImageRef<'_> {
        (&self.image).into()
    }

    fn host_half(&self, worker: usize, workers: usize) -> Option<Box<dyn HostHalf>> {
        let (database, sequences) = (Arc::clone(&self.database), Arc::clone(&self.sequences));
        Some(Box::new(IpsecHost::new(database, sequences, worker, workers)))
    }

    fn steer_key(&self) -> Option<Arc<dyn SteerKey>> {
        Some(Arc::clone(&self.database) as Arc<dyn SteerKey>)
    }

    fn run_ref(&self, window: &mut [u8], descriptor: &mut Descriptor, variant: u8, parameter: u64) -> Outcome {
        reference::run_ref(window, descriptor, &self.database.sas, variant, parameter)
    }
}

/// The image holds keys.
impl Drop for Ipsec {
    fn drop(&mut self) {
        self.image[..].zeroize();
    }
}
