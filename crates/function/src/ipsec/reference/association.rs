//! Properties of an SA that the reference implementation needs.

use std::net::IpAddr;

use super::super::DROP_POLICY_MISMATCH;
use super::super::config::Mode;
use super::super::sa::{Df, Sa};
use super::super::selector::{Match, PacketFields, Selector, has_ports};
use super::super::suite::{Suite, variant};
use super::ip::Headers;
use super::{crypto, ip};

pub(super) fn variant_of(sa: &Sa) -> u8 {
    variant(sa.suite, sa.is_inbound())
}

/// DF bit of an outer IPv4 header (RFC 4301, section 8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DontFragment {
    Copy,
    Clear,
    Set,
}

pub(super) struct Association<'a> {
    pub(super) suite: Suite,
    pub(super) spi: u32,
    /// Key of the cipher or of GMAC.
    pub(super) key: &'a [u8],
    /// Salt, which precedes the IV in a nonce.
    pub(super) salt: [u8; 4],
    /// HMAC key.
    pub(super) authentication_key: &'a [u8],
    /// Size of the transmitted ICV, in bytes.
    pub(super) icv_bytes: usize,
    /// Whether the SA uses tunnel mode instead of transport mode.
    pub(super) tunnel: bool,
    /// Address of the endpoint that encapsulates packets.
    pub(super) source: IpAddr,
    /// Address of the endpoint that decapsulates packets.
    pub(super) destination: IpAddr,
    /// Whether the SA uses extended sequence numbers.
    pub(super) esn: bool,
    /// Source and destination port if the SA uses ESP in UDP (RFC 3948).
    pub(super) udp_ports: Option<(u16, u16)>,
    pub(super) dont_fragment: DontFragment,
    /// DSCP of the outer header. `None` copies the DSCP of the inner header.
    pub(super) dscp: Option<u8>,
    /// Whether ECN is handled in the compatibility mode of RFC 6040, section 4.1.
    pub(super) ecn_ignored: bool,
    pub(super) hop_limit: u8,
    pub(super) selectors: &'a [Selector],
}

impl<'a> Association<'a> {
    pub(super) fn new(sa: &'a Sa) -> Self {
        Self {
            suite: *sa.suite(),
            spi: sa.spi,
            key: &sa.key,
            salt: *sa.salt,
            authentication_key: &sa.hmac_key,
            icv_bytes: sa.icv_bytes.into(),
            tunnel: sa.mode == Mode::Tunnel,
            source: sa.source,
            destination: sa.destination,
            esn: sa.esn,
            udp_ports: sa.udp.map(|udp| (udp.source_port, udp.destination_port)),
            dont_fragment: match sa.df {
                Df::Copy => DontFragment::Copy,
                Df::Clear => DontFragment::Clear,
                Df::Set => DontFragment::Set,
            },
            dscp: sa.dscp,
            ecn_ignored: !sa.ecn,
            hop_limit: sa.hop_limit,
            selectors: &sa.selectors,
        }
    }

    /// Checks that the inner packet matches a selector of the SA (RFC 4301, section 5.2, step 4).
    pub(super) fn accepts(&self, packet: &[u8], headers: Headers, inside: &[u8]) -> Result<(), u8> {
        // Only the first fragment of a packet contains the ports (RFC 4301, section 7).
        let protocol = headers.end.protocol;
        let ports = match inside.get(headers.end.at..headers.end.at + 4) {
            Some(&[a, b, c, d]) if has_ports(protocol) && !headers.is_later_fragment => {
                Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
            }
            _ => None,
        };
        let fields = PacketFields { source: ip::source(packet), destination: ip::destination(packet), protocol, ports };
        if self.selectors.iter().any(|selector| selector.matches(&fields) == Match::Yes) {
            Ok(())
        } else {
            Err(DROP_POLICY_MISMATCH)
        }
    }

    /// Returns the IV for AES-CBC, which must be unpredictable (RFC 3602, section 3). It is the
    /// encryption of a nonce (NIST SP 800-38A, appendix C, first method).
    pub(super) fn cbc_iv(&self, sequence: u64) -> [u8; 16] {
        let mut nonce = [0; 16];
        nonce[..4].copy_from_slice(&self.spi.to_be_bytes());
        nonce[4..12].copy_from_slice(&sequence.to_be_bytes());
        let destination = match self.destination {
            IpAddr::V4(address) => address.octets(),
            IpAddr::V6(address) => *address.octets().first_chunk().expect("16 bytes"),
        };
        nonce[12..].copy_from_slice(&destination);
        crypto::aes_block(self.key, nonce)
    }
}
