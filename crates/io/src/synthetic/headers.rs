//! Headers of generated packets.

use super::config::{Config, IpVersion, Transport};

/// Maximum length of all headers in bytes, rounded up to a size that is cheap to copy. The headers
/// of TCP over IPv6 over Ethernet need 74 bytes.
pub(super) const HEADERS_BYTES_MAX: usize = 80;

pub(super) const ETHERNET_BYTES: usize = 14;

/// IP version and transport protocol of the generated packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) ip: IpVersion,
    pub(super) transport: Transport,
}

/// Partial checksums over the headers of a flow. They are one's complement sums whose carries are
/// not added yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sums {
    /// Sum of the 16-bit words of the IPv4 header.
    pub(super) ip: u32,
    pub(super) transport: u32,
}

impl Shape {
    pub(super) fn of(config: &Config) -> Self {
        Self { ip: config.ip, transport: config.protocol }
    }

    pub(super) const fn ip_bytes(self) -> usize {
        match self.ip {
            IpVersion::V4 => 20,
            IpVersion::V6 => 40,
        }
    }

    const fn transport_bytes(self) -> usize {
        match self.transport {
            Transport::Udp => 8,
            Transport::Tcp => 20,
        }
    }

    /// Returns the offset of the transport header in bytes.
    pub(super) const fn transport_at(self) -> usize {
        ETHERNET_BYTES + self.ip_bytes()
    }

    /// Returns the offset in bytes of the IP addresses in the frame. The transport header follows
    /// the addresses.
    pub(super) const fn addresses_at(self) -> usize {
        ETHERNET_BYTES
            + match self.ip {
                IpVersion::V4 => 12,
                IpVersion::V6 => 8,
            }
    }

    pub(super) const fn headers_bytes(self) -> usize {
        self.transport_at() + self.transport_bytes()
    }

    const fn protocol(self) -> u8 {
        match self.transport {
            Transport::Udp => 17,
            Transport::Tcp => 6,
        }
    }

    /// Returns packet headers. Sets all fields that have the same value in every packet.
    pub(super) fn headers(self, config: &Config) -> [u8; HEADERS_BYTES_MAX] {
        let mut headers = [0; HEADERS_BYTES_MAX];
        headers[..6].copy_from_slice(&config.destination_mac.0);
        headers[6..12].copy_from_slice(&config.source_mac.0);
        const HOPS: u8 = 64;
        match self.ip {
            IpVersion::V4 => {
                headers[12..14].copy_from_slice(&[0x08, 0x00]);
                // Set the version, the header length and the Don't Fragment flag. This flag permits
                // an identification field of 0 (RFC 6864, section 4.1).
                headers[14] = 0x45;
                headers[20] = 0x40;
                headers[22] = HOPS;
                headers[23] = self.protocol();
            }
            IpVersion::V6 => {
                headers[12..14].copy_from_slice(&[0x86, 0xdd]);
                headers[14] = 0x60;
                headers[20] = self.protocol();
                headers[21] = HOPS;
            }
        }
        if self.transport == Transport::Tcp {
            let tcp = &mut headers[self.transport_at()..];
            const ACK: u8 = 0x10;
            tcp[12..16].copy_from_slice(&[5 << 4, ACK, 0xff, 0xff]);
        }
        headers
    }

    /// Returns the partial checksums of `headers`, which contain addresses and ports. The length
    /// fields and the checksum fields must be 0.
    pub(super) fn sums(self, headers: &[u8; HEADERS_BYTES_MAX]) -> Sums {
        // The pseudo header contains the protocol number as the low byte of a big-endian 16-bit
        // word (RFC 768; RFC 8200, section 8.1).
        let protocol = u32::from((u16::from(self.protocol())).to_be());
        let ip = match self.ip {
            IpVersion::V4 => sum(&headers[ETHERNET_BYTES..self.transport_at()]),
            IpVersion::V6 => 0,
        };
        Sums { ip, transport: sum(&headers[self.addresses_at()..]) + protocol }
    }

    /// Writes the length fields and the IPv4 checksum. Returns the sum for the transport checksum,
    /// including the length fields.
    #[inline(always)]
    pub(super) fn set_lengths<const N: usize>(self, sums: Sums, frame_bytes: u16, headers: &mut [u8; N]) -> u32 {
        let transport = self.transport_at();
        let transport_length = (frame_bytes - transport as u16).to_be();
        match self.ip {
            // Set the Payload Length field of IPv6 (RFC 8200, section 3).
            IpVersion::V6 => headers[18..20].copy_from_slice(&transport_length.to_ne_bytes()),
            // Set the Total Length and Header Checksum fields of IPv4 (RFC 791, section 3.1).
            IpVersion::V4 => {
                let length = (frame_bytes - ETHERNET_BYTES as u16).to_be();
                let checksum = !fold(u64::from(sums.ip) + u64::from(length));
                headers[16..18].copy_from_slice(&length.to_ne_bytes());
                headers[24..26].copy_from_slice(&checksum.to_ne_bytes());
            }
        }
        let sum = sums.transport + u32::from(transport_length);
        match self.transport {
            Transport::Tcp => sum,
            // UDP counts the length twice, in the UDP header and in the pseudo header.
            Transport::Udp => {
                headers[transport + 4..transport + 6].copy_from_slice(&transport_length.to_ne_bytes());
                sum + u32::from(transport_length)
            }
        }
    }

    /// Writes the transport checksum. `sum` is the sum of the pseudo header, the transport header
    /// and the payload.
    #[inline(always)]
    pub(super) fn set_checksum<const N: usize>(self, sum: u64, headers: &mut [u8; N]) {
        let checksum = !fold(sum);
        let (at, checksum) = match self.transport {
            Transport::Tcp => (16, checksum),
            // A checksum of 0 is written as 0xffff (RFC 768).
            Transport::Udp => (6, if checksum == 0 { 0xffff } else { checksum }),
        };
        let at = self.transport_at() + at;
        headers[at..at + 2].copy_from_slice(&checksum.to_ne_bytes());
    }
}

/// Returns the one's complement sum of the 16-bit words in the machine's byte order. The carries
/// are not added yet. `bytes` has an even length, and is at most as long as a packet's headers.
fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks_exact(2).map(|word| u32::from(u16::from_ne_bytes([word[0], word[1]]))).sum()
}

/// Adds the carries to the low 16 bits of a one's complement sum (RFC 1071, section 1). `sum` is
/// below 2^40.
#[inline(always)]
fn fold(sum: u64) -> u16 {
    debug_assert!(sum < 1 << 40);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    sum as u16
}
