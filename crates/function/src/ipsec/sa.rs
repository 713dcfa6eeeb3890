//! Security association (SA; RFC 4301, section 4.4.2.1), and the headroom and tailroom that its
//! packets need.

use std::fmt;
use std::net::IpAddr;

use zeroize::Zeroizing;

use super::config::{Direction, Mode};
use super::config_sa::SPI_MIN;
use super::selector::Selector;
use super::suite::{Authentication, Cipher, Protocol, SUITES, Suite};

/// Security association. Its cryptographic keys are wiped when it is dropped, and its `Debug`
/// output omits them.
pub(super) struct Sa {
    pub(super) name: String,
    pub(super) spi: u32,
    pub(super) direction: Direction,
    /// Suite number: the index in [`SUITES`].
    pub(super) suite: u8,
    pub(super) mode: Mode,
    /// Source address of the outer packets, or source host in transport mode. It has the address
    /// family of `destination`.
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    /// Key of the cipher or of GMAC, without the salt. Its length depends on the cipher suite.
    pub(super) key: Zeroizing<Vec<u8>>,
    /// Salt, which precedes the IV in the nonce. Only some cipher suites use it.
    pub(super) salt: Zeroizing<[u8; 4]>,
    /// HMAC key. It is empty if the SA does not use HMAC.
    pub(super) hmac_key: Zeroizing<Vec<u8>>,
    /// Length of the transmitted ICV, in bytes.
    pub(super) icv_bytes: u8,
    /// Whether the SA uses extended sequence numbers (RFC 4303, section 2.2.1).
    pub(super) esn: bool,
    /// Size of the replay window of an inbound SA, in packets. 0 disables replay protection.
    pub(super) replay_window: u32,
    /// Ports of ESP in UDP (RFC 3948), if the SA uses it.
    pub(super) udp: Option<Udp>,
    /// Idle time after which a keepalive is sent, in seconds. 0 disables keepalives.
    pub(super) keepalive_s: u16,
    /// Maximum length of the outer packet of an outbound tunnel, in bytes. 0 means no limit.
    pub(super) path_mtu: u16,
    /// DSCP of the outer header. `None` copies the DSCP of the inner header.
    pub(super) dscp: Option<u8>,
    pub(super) df: Df,
    /// Whether ECN is handled in the normal mode of RFC 6040 instead of the compatibility mode.
    pub(super) ecn: bool,
    /// TTL or hop limit of the outer header.
    pub(super) hop_limit: u8,
    pub(super) lifetime: Lifetime,
    /// Selectors that the inner packets of an inbound SA must match. An outbound SA has no
    /// selectors.
    pub(super) selectors: Vec<Selector>,
    /// Whether the operator accepts insecure settings, such as one key for both directions.
    pub(super) insecure: bool,
    /// Whether the operator configures a new cryptographic key each time the process starts.
    /// Sequence numbers may then begin at 1.
    pub(super) key_is_new: bool,
}

/// Ports of ESP in UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Udp {
    pub(super) source_port: u16,
    pub(super) destination_port: u16,
}

/// DF bit of the outer header (RFC 4301, section 8.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Df {
    #[default]
    Copy,
    Clear,
    Set,
}

/// Lifetime limits of an SA. At a soft limit, the operator is asked to replace the SA. At a hard
/// limit, the SA ends. `u64::MAX` means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lifetime {
    pub(super) soft_bytes: u64,
    pub(super) hard_bytes: u64,
    pub(super) soft_packets: u64,
    pub(super) hard_packets: u64,
}

impl Lifetime {
    pub(super) const ENDLESS: Self =
        Self { soft_bytes: u64::MAX, hard_bytes: u64::MAX, soft_packets: u64::MAX, hard_packets: u64::MAX };
}

impl fmt::Debug for Sa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, spi, direction, source, destination, .. } = self;
        let suite = self.suite().name;
        write!(f, "SA \"{name}\" ({direction:?}, {suite}, SPI {spi:#x}, {source} to {destination}, keys not shown)")
    }
}

/// Size of the ESP header (SPI and sequence number) in bytes.
const ESP_BYTES: usize = 8;
/// Size of the fixed part of the AH header in bytes, including the sequence number.
const AH_BYTES: usize = 12;
const UDP_BYTES: usize = 8;
/// Size of the ESP fields "pad length" and "next header", in bytes.
const ESP_TAIL_BYTES: usize = 2;

impl Sa {
    pub(super) fn suite(&self) -> &'static Suite {
        &SUITES[usize::from(self.suite)]
    }

    pub(super) fn is_inbound(&self) -> bool {
        self.direction == Direction::In
    }

    /// Returns a warning if the SPI is reserved by IANA (RFC 4303, section 2.1). Some peers refuse
    /// such SPIs.
    pub(super) fn warning(&self) -> Option<String> {
        let Self { name, spi, .. } = self;
        (*spi < SPI_MIN).then(|| format!("spi = {spi} of SA \"{name}\" is reserved by IANA: use {SPI_MIN} or more"))
    }

    /// Returns the maximum number of bytes that the SA adds before a packet.
    pub(super) fn headroom_bytes(&self) -> usize {
        if self.is_inbound() {
            return 0;
        }
        let suite = self.suite();
        let outer = match (self.mode, self.source) {
            (Mode::Transport, _) => 0,
            (Mode::Tunnel, IpAddr::V4(_)) => 20,
            (Mode::Tunnel, IpAddr::V6(_)) => 40,
        };
        let header = match suite.protocol {
            Protocol::Esp => ESP_BYTES + suite.iv_bytes() + self.udp.map_or(0, |_| UDP_BYTES),
            // In IPv6 packets, the size of AH is a multiple of 8 bytes (RFC 4302, section 2.2).
            Protocol::Ah => {
                let bytes = AH_BYTES + suite.iv_bytes() + usize::from(self.icv_bytes);
                let ipv4_only = self.source.is_ipv4();
                if ipv4_only { bytes } else { bytes.next_multiple_of(8) }
            }
        };
        outer + header
    }

    /// Returns the maximum number of bytes that the SA adds after a packet of any length.
    pub(super) fn tailroom_bytes(&self) -> usize {
        (0..16).map(|length| self.tail_bytes(length)).max().unwrap_or(0)
    }

    /// Returns the maximum number of bytes that the SA adds after a packet in a frame of this
    /// length. Only the length modulo 16 matters.
    pub(super) fn tail_bytes(&self, frame_bytes: usize) -> usize {
        let suite = self.suite();
        if self.is_inbound() || suite.protocol == Protocol::Ah {
            return 0;
        }
        let block = suite.block_bytes();
        // The packet is assumed to fill its frame, because other packets need no additional
        // tailroom. An Ethernet header precedes ESP, with or without a VLAN tag. In transport mode,
        // an IP header also precedes ESP.
        let prefixes: &[usize] = match self.mode {
            Mode::Tunnel => &[14, 18],
            Mode::Transport => &[14, 14 + 4, 14 + 8, 14 + 12],
        };
        let padding = |prefix: &usize| (3 * 16 + prefix - frame_bytes % 16 - ESP_TAIL_BYTES) % block;
        let padding = prefixes.iter().map(padding).max().unwrap_or(0);
        padding + ESP_TAIL_BYTES + usize::from(self.icv_bytes)
    }

    /// Assigns a path MTU to an outbound tunnel that configures none.
    pub(super) fn inherit_path_mtu(&mut self, path_mtu: Option<u16>) {
        if self.path_mtu == 0 && !self.is_inbound() && self.mode == Mode::Tunnel {
            self.path_mtu = path_mtu.unwrap_or(0);
        }
    }

    /// Returns the maximum inner packet length of the tunnel in bytes, or `None` if there is no
    /// limit (RFC 4301, section 8.1).
    pub(super) fn inner_mtu(&self) -> Option<u16> {
        let room = usize::from(self.path_mtu).checked_sub(self.headroom_bytes()).filter(|_| self.path_mtu > 0)?;
        let inner = match self.suite().protocol {
            Protocol::Ah => room,
            Protocol::Esp => {
                let block = self.suite().block_bytes();
                (room - usize::from(self.icv_bytes)) / block * block - ESP_TAIL_BYTES
            }
        };
        Some(inner as u16)
    }

    /// Returns a digest of the cryptographic key and the salt, if the nonces are counters. SAs of
    /// opposite directions must have different digests. Otherwise, both ends would use the same
    /// nonces (RFC 8221, section 3).
    pub(super) fn stream_name(&self) -> Option<[u8; 32]> {
        use sha2::{Digest, Sha256};
        let digest = || Sha256::new().chain_update(&*self.key).chain_update(*self.salt).finalize().into();
        self.suite().is_counter_mode().then(digest)
    }

    /// Returns a digest of the cryptographic key and all constant nonce or IV inputs. Outbound SAs
    /// with the same digest would repeat nonces or IVs. Returns `None` if a repetition is
    /// impossible or harmless.
    pub(super) fn nonce_name(&self) -> Option<[u8; 32]> {
        use sha2::{Digest, Sha256};
        let digest = Sha256::new().chain_update(&*self.key);
        if self.is_inbound() {
            return None;
        }
        if self.suite().is_counter_mode() {
            return self.stream_name();
        }
        // The IV depends on the SPI, the destination address and the sequence number (see
        // `gw_ipsec_cbc_iv`).
        let destination = match self.destination {
            IpAddr::V4(address) => address.octets(),
            IpAddr::V6(address) => *address.octets().first_chunk().expect("an IPv6 address has 16 bytes"),
        };
        let ivs = digest.chain_update(self.spi.to_be_bytes()).chain_update(destination);
        (self.suite().cipher == Cipher::Cbc).then(|| ivs.finalize().into())
    }

    pub(super) fn sequence_last(&self) -> u64 {
        if self.esn { (1 << super::SEQUENCE_BITS) - 1 } else { u32::MAX.into() }
    }

    /// Returns the name under which the state folder on disk stores the SA's sequence numbers. The
    /// name stays the same after a restart. Returns `None` if the SA accepts repeated sequence
    /// numbers.
    pub(super) fn durable_name(&self) -> Option<[u8; 32]> {
        use sha2::{Digest, Sha256};
        if self.is_inbound() && self.replay_window == 0 {
            return None;
        }
        let digest = Sha256::new().chain_update([u8::from(self.is_inbound())]);
        // Outbound SAs with the same nonce inputs have the same name. They therefore share one
        // sequence of numbers and repeat no nonce.
        if let Some(nonces) = self.nonce_name() {
            return Some(digest.chain_update(nonces).finalize().into());
        }
        let keys = [&self.key[..], &self.salt[..], &self.hmac_key[..]];
        let digest = keys
            .into_iter()
            .fold(digest, |digest, key| digest.chain_update((key.len() as u32).to_be_bytes()).chain_update(key));
        let destination = match self.destination {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        Some(digest.chain_update(self.spi.to_be_bytes()).chain_update(destination.octets()).finalize().into())
    }

    /// Returns whether the SA encrypts without authentication, which RFC 8221, sections 5 and 6,
    /// forbids.
    pub(super) fn is_insecure(&self) -> bool {
        let Suite { cipher, authentication, .. } = self.suite();
        *cipher != Cipher::Null && *authentication == Authentication::None
    }
}
