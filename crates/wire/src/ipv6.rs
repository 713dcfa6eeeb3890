//! IPv6 packets (RFC 8200, section 3). See [`ipv6_extension`](crate::ipv6_extension) for extension
//! headers.
//!
//! The layout of a packet is as follows, with offsets in bytes:
//!
//! ```text
//! 0                                        4                6             7           8        24
//! | version:4 traffic class:8 flow label:20 | payload length | next header | hop limit | source | destination | payload
//! ```

use crate::view::{Field, range, range_mut};
use crate::{Checksum, Error, Extensions, IpAddress};

/// Length of the fixed header, in bytes.
pub const HEADER_BYTES: usize = 40;

/// Largest flow label.
pub const FLOW_LABEL_MAX: u32 = 0xf_ffff;

view! {
    /// An IPv6 packet. It does not include bytes after its payload length, such as Ethernet
    /// padding. A jumbogram (RFC 2675) has a payload length of 0 and appears as a packet without
    /// payload.
    Ipv6, check
}

#[inline]
pub(crate) fn check(bytes: &[u8]) -> Result<(), Error> {
    if bytes.len() < HEADER_BYTES {
        return Err(Error::Truncated);
    }
    if bytes[0] >> 4 != 6 {
        return Err(Error::Malformed);
    }
    let payload_bytes = usize::from(u16::load(bytes, 4));
    if bytes.len() - HEADER_BYTES < payload_bytes { Err(Error::Truncated) } else { Ok(()) }
}

fields! { Ipv6;
    /// Version, traffic class and flow label.
    0 => version_class_label / set_version_class_label: u32,
    /// Number of bytes after the fixed header, including extension headers.
    4 => payload_bytes / set_payload_bytes: u16,
    /// Type of the next header. See [`protocol`](crate::protocol).
    6 => next_header / set_next_header: u8,
    /// Hop limit.
    7 => hop_limit / set_hop_limit: u8,
    /// Source address.
    8 => source / set_source: [u8; 16],
    /// Destination address.
    24 => destination / set_destination: [u8; 16],
}

impl<T: AsRef<[u8]>> Ipv6<T> {
    /// Returns the traffic class: differentiated services and ECN (RFC 2474, RFC 3168).
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        (self.version_class_label() >> 20) as u8
    }

    /// Returns the flow label (RFC 6437), which has 20 bits.
    #[inline]
    pub fn flow_label(&self) -> u32 {
        self.version_class_label() & FLOW_LABEL_MAX
    }

    /// Returns the bytes after the fixed header, without Ethernet padding.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        range(self.bytes(), HEADER_BYTES, HEADER_BYTES + usize::from(self.payload_bytes()))
    }

    /// Returns an iterator over the extension headers. After the last one, the iterator gives the
    /// offset of the upper layer.
    #[inline]
    pub fn extensions(&self) -> Extensions<'_> {
        Extensions::new(self.next_header(), self.payload())
    }

    /// Returns the checksum of the pseudo header for an upper layer of `length_bytes` bytes (RFC
    /// 8200, section 8.1). The caller adds the upper-layer header and the payload.
    ///
    /// The checksum covers the destination address of the fixed header, which is not the final
    /// destination if a routing header has segments left.
    pub fn pseudo_header(&self, protocol: u8, length_bytes: u32) -> Checksum {
        let (source, destination) = (IpAddress::V6(self.source()), IpAddress::V6(self.destination()));
        Checksum::pseudo_header(source, destination, protocol, length_bytes)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv6<T> {
    /// Returns the bytes after the fixed header, without Ethernet padding.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let to = HEADER_BYTES + usize::from(self.payload_bytes());
        range_mut(self.buffer.as_mut(), HEADER_BYTES, to)
    }

    /// Decrements the hop limit. Returns `false` and changes nothing if the hop limit is 0 or 1
    /// (RFC 8200, section 3).
    #[inline]
    pub fn decrement_hop_limit(&mut self) -> bool {
        let old = self.hop_limit();
        if old <= 1 {
            return false;
        }
        self.set_hop_limit(old - 1);
        true
    }
}

/// Representation of the fixed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Header {
    /// Differentiated services and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Number of bytes after the fixed header, including extension headers.
    pub payload_bytes: u16,
    /// Type of the next header.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub source: [u8; 16],
    /// Destination address.
    pub destination: [u8; 16],
}

impl Ipv6Header {
    /// Parses the header.
    pub fn parse<T: AsRef<[u8]>>(view: &Ipv6<T>) -> Self {
        Self {
            traffic_class: view.traffic_class(),
            flow_label: view.flow_label(),
            payload_bytes: view.payload_bytes(),
            next_header: view.next_header(),
            hop_limit: view.hop_limit(),
            source: view.source(),
            destination: view.destination(),
        }
    }

    /// Writes the header to the start of `buffer`. Returns the number of bytes written. The buffer
    /// need not contain the payload.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        if self.flow_label > FLOW_LABEL_MAX {
            return Err(Error::Malformed);
        }
        let Some(header) = buffer.first_chunk_mut::<HEADER_BYTES>() else {
            return Err(Error::Truncated);
        };
        (6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label).store(header, 0);
        self.payload_bytes.store(header, 4);
        self.next_header.store(header, 6);
        self.hop_limit.store(header, 7);
        self.source.store(header, 8);
        self.destination.store(header, 24);
        Ok(HEADER_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parses_a_known_packet() {
        let mut packet = [0u8; 47];
        packet[..8].copy_from_slice(&[0x6a, 0xbc, 0xde, 0xf0, 0, 5, 59, 2]);
        packet[23] = 1;
        packet[39] = 2;
        let mut view = Ipv6::new_checked(&mut packet).unwrap();
        assert_eq!((view.traffic_class(), view.flow_label()), (0xab, 0xcdef0));
        assert_eq!(view.source()[15], 1);
        assert_eq!(view.destination()[15], 2);
        assert_eq!(view.payload().len(), 5, "the payload excludes the frame's padding");
        assert!(view.decrement_hop_limit());
        assert!(!view.decrement_hop_limit());
        assert_eq!(view.hop_limit(), 1);
        view.set_payload_bytes(u16::MAX);
        assert_eq!(view.payload().len(), 7, "the payload stays within the buffer");
    }

    #[test]
    fn rejects_wrong_lengths() {
        let mut packet = [0u8; 44];
        assert_eq!(Ipv6::new_checked(&packet), Err(Error::Malformed), "version");
        packet[0] = 0x60;
        assert_eq!(Ipv6::new_checked(&packet[..39]), Err(Error::Truncated));
        packet[5] = 5;
        assert_eq!(Ipv6::new_checked(&packet), Err(Error::Truncated));
        packet[5] = 4;
        assert!(Ipv6::new_checked(&packet).is_ok());
    }

    proptest! {
        #[test]
        fn emit_then_parse(
            (traffic_class, flow_label, payload_bytes) in any::<(u8, u32, u16)>(),
            (next_header, hop_limit) in any::<(u8, u8)>(),
            (source, destination) in any::<([u8; 16], [u8; 16])>(),
            keep_label: bool,
        ) {
            let flow_label = if keep_label { flow_label } else { flow_label >> 12 };
            let header = Ipv6Header { traffic_class, flow_label, payload_bytes, next_header, hop_limit, source, destination };
            let mut buffer = vec![0xa5; HEADER_BYTES + usize::from(payload_bytes)];
            let result = header.emit(&mut buffer);
            if flow_label > FLOW_LABEL_MAX {
                prop_assert_eq!(result, Err(Error::Malformed));
            } else {
                prop_assert_eq!(result, Ok(HEADER_BYTES));
                prop_assert_eq!(Ipv6Header::parse(&Ipv6::new_checked(&buffer).unwrap()), header);
            }
        }
    }
}
