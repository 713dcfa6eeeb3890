//! A security association (RFC 4301, section 4.4.2.1), and the room that its packets need.

use std::fmt;
use std::net::IpAddr;

use zeroize::Zeroizing;

use super::config::{Direction, Mode};
use super::selector::Selector;
use super::suite::{Authentication, Cipher, Protocol, SUITES, Suite};

/// A security association. Its keys are wiped with it, and shown by nothing.
pub(super) struct Sa {
    pub(super) name: String,
    pub(super) spi: u32,
    pub(super) direction: Direction,
    /// Number of its suite.
    pub(super) suite: u8,
    pub(super) mode: Mode,
    /// Endpoints: of a tunnel, or of what is protected in transport mode. Both of one family.
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    /// Of the cipher or of GMAC: as long as the suite says, without the salt.
    pub(super) key: Zeroizing<Vec<u8>>,
    /// In front of the IV in the nonce, where the suite has any.
    pub(super) salt: Zeroizing<[u8; 4]>,
    /// Of HMAC; empty with any other authentication.
    pub(super) hmac_key: Zeroizing<Vec<u8>>,
    /// On the wire.
    pub(super) icv_bytes: u8,
    /// Extended sequence numbers (RFC 4303, section 2.2.1).
    pub(super) esn: bool,
    /// Inbound: packets that may come late; 0: all may come any time, and again.
    pub(super) replay_window: u32,
    /// ESP in UDP (RFC 3948), and its ports.
    pub(super) udp: Option<Udp>,
    /// After so many idle seconds a keepalive is sent; 0: none is.
    pub(super) keepalive_s: u16,
    /// Outbound tunnels: longest packet outside; 0: no limit.
    pub(super) path_mtu: u16,
    /// Of the outer header; copied where not given.
    pub(super) dscp: Option<u8>,
    pub(super) df: Df,
    /// RFC 6040, normal mode; otherwise compatibility mode.
    pub(super) ecn: bool,
    /// Of the outer header.
    pub(super) hop_limit: u8,
    pub(super) lifetime: Lifetime,
    /// Inbound: what may be inside. Outbound: empty.
    pub(super) selectors: Vec<Selector>,
    /// The operator says that he knows: its key may be that of the other direction.
    pub(super) insecure: bool,
}

/// Ports of ESP in UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Udp {
    pub(super) source_port: u16,
    pub(super) destination_port: u16,
}

/// What becomes of DF in the outer header (RFC 4301, section 8.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Df {
    #[default]
    Copy,
    Clear,
    Set,
}

/// When an SA is to be replaced (soft) and when it does no more (hard); `u64::MAX` where not given.
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

/// ESP header: SPI and sequence number. AH has eight bytes more than its sequence number ends at.
const ESP_BYTES: usize = 8;
const AH_BYTES: usize = 12;
const UDP_BYTES: usize = 8;
/// Pad length and next header.
const ESP_TAIL_BYTES: usize = 2;

impl Sa {
    pub(super) fn suite(&self) -> &'static Suite {
        &SUITES[usize::from(self.suite)]
    }

    pub(super) fn is_inbound(&self) -> bool {
        self.direction == Direction::In
    }

    /// What it puts in front of a packet: most bytes.
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
            // A multiple of 8 bytes with IPv6 (RFC 4302, section 2.2), which a transported packet may be.
            Protocol::Ah => {
                let bytes = AH_BYTES + suite.iv_bytes() + usize::from(self.icv_bytes);
                let ipv4_only = self.source.is_ipv4();
                if ipv4_only { bytes } else { bytes.next_multiple_of(8) }
            }
        };
        outer + header
    }

    /// What it puts behind a packet: most bytes.
    pub(super) fn tailroom_bytes(&self) -> usize {
        (0..16).map(|length| self.tail_bytes(length)).max().unwrap_or(0)
    }

    /// What it puts behind the packet of a frame whose length is this modulo 16: most bytes.
    pub(super) fn tail_bytes(&self, frame_bytes: usize) -> usize {
        let suite = self.suite();
        if self.is_inbound() || suite.protocol == Protocol::Ah {
            return 0;
        }
        let block = suite.block_bytes();
        // A packet that is shorter than its frame ends earlier. What stays in front of ESP: L2 with or without a tag,
        // in transport mode also an IP header, of any number of words.
        let fronts: &[usize] = match self.mode {
            Mode::Tunnel => &[14, 18],
            Mode::Transport => &[14, 14 + 4, 14 + 8, 14 + 12],
        };
        let padding = |front: &usize| (3 * 16 + front - frame_bytes % 16 - ESP_TAIL_BYTES) % block;
        let padding = fronts.iter().map(padding).max().unwrap_or(0);
        padding + ESP_TAIL_BYTES + usize::from(self.icv_bytes)
    }

    /// Gives an outbound tunnel that says none the path MTU of the function.
    pub(super) fn inherit_path_mtu(&mut self, path_mtu: Option<u16>) {
        if self.path_mtu == 0 && !self.is_inbound() && self.mode == Mode::Tunnel {
            self.path_mtu = path_mtu.unwrap_or(0);
        }
    }

    /// The longest packet that goes into its tunnel, if there is a limit (RFC 4301, section 8.1).
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

    /// What names the key and salt of a mode that counts its nonces: two directions that share both share nonces (RFC 8221, section 3).
    pub(super) fn stream_name(&self) -> Option<[u8; 32]> {
        use sha2::{Digest, Sha256};
        let named = || Sha256::new().chain_update(&*self.key).chain_update(*self.salt).finalize().into();
        self.suite().is_counter_mode().then(named)
    }

    /// What names the key and the nonces or IVs that it uses, where they must never come twice.
    pub(super) fn nonce_name(&self) -> Option<[u8; 32]> {
        use sha2::{Digest, Sha256};
        let named = Sha256::new().chain_update(&*self.key);
        if self.is_inbound() {
            return None;
        }
        if self.suite().is_counter_mode() {
            return self.stream_name();
        }
        // What the IV is made of besides the sequence number: `gw_ipsec_cbc_iv`.
        let destination = match self.destination {
            IpAddr::V4(address) => address.octets(),
            IpAddr::V6(address) => *address.octets().first_chunk().expect("an IPv6 address has 16 bytes"),
        };
        let ivs = named.chain_update(self.spi.to_be_bytes()).chain_update(destination);
        (self.suite().cipher == Cipher::Cbc).then(|| ivs.finalize().into())
    }

    /// RFC 8221, sections 5 and 6, names it MUST NOT, or it does not protect what it carries.
    pub(super) fn is_insecure(&self) -> bool {
        let Suite { cipher, authentication, .. } = self.suite();
        *cipher != Cipher::Null && *authentication == Authentication::None
    }
}
