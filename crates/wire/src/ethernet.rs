//! Ethernet II and IEEE 802.3 frames, without preamble and FCS.
//!
//! The layout of a frame is as follows, with offsets in bytes:
//!
//! ```text
//! 0              6              12          14
//! | destination  | source       | ethertype | payload (maybe with padding)
//! ```

use crate::view::range;
use crate::{Error, MacAddress};

/// Header length, in bytes.
pub const HEADER_BYTES: usize = 14;

/// Ethertypes (IANA "IEEE 802 Numbers").
pub mod ethertype {
    /// IPv4 (RFC 894).
    pub const IPV4: u16 = 0x0800;
    /// ARP (RFC 826).
    pub const ARP: u16 = 0x0806;
    /// Customer VLAN tag (IEEE 802.1Q).
    pub const VLAN: u16 = 0x8100;
    /// IPv6 (RFC 2464).
    pub const IPV6: u16 = 0x86dd;
    /// Service VLAN tag (IEEE 802.1ad).
    pub const SERVICE_VLAN: u16 = 0x88a8;
    /// Outer VLAN tag of double-tagged frames before IEEE 802.1ad.
    pub const OLD_SERVICE_VLAN: u16 = 0x9100;
    /// Smallest ethertype. A smaller value is a payload length (IEEE 802.3, clause 3.2.6).
    pub const FIRST: u16 = 0x0600;

    /// Returns whether the ethertype announces a VLAN tag.
    #[inline]
    pub const fn is_vlan(ethertype: u16) -> bool {
        matches!(ethertype, VLAN | SERVICE_VLAN | OLD_SERVICE_VLAN)
    }
}

view! {
    /// An Ethernet frame. The check only ensures that the buffer holds the 14-byte header.
    Ethernet, check
}

fn check(bytes: &[u8]) -> Result<(), Error> {
    if bytes.len() < HEADER_BYTES { Err(Error::Truncated) } else { Ok(()) }
}

fields! { Ethernet;
    /// Destination address.
    0 => destination / set_destination: MacAddress,
    /// Source address.
    6 => source / set_source: MacAddress,
    /// Type of the payload. A value below [`ethertype::FIRST`] is the payload's length in bytes.
    12 => ethertype / set_ethertype: u16,
}

impl<T: AsRef<[u8]>> Ethernet<T> {
    /// Returns all bytes after the header, including Ethernet padding.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        range(self.bytes(), HEADER_BYTES, usize::MAX)
    }
}

impl<T: AsMut<[u8]>> Ethernet<T> {
    /// Returns all bytes after the header, including Ethernet padding.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        crate::view::range_mut(self.buffer.as_mut(), HEADER_BYTES, usize::MAX)
    }
}

/// Representation of an Ethernet header.
///
/// ```
/// use godwit_wire::{Ethernet, EthernetHeader, MacAddress, ethertype};
///
/// let mut frame = [0; 60];
/// let source = MacAddress([2, 0, 0, 0, 0, 1]);
/// let header =
///     EthernetHeader { destination: MacAddress::BROADCAST, source, ethertype: ethertype::ARP };
/// header.emit(&mut frame)?;
/// assert_eq!(EthernetHeader::parse(&Ethernet::new_checked(&frame)?), header);
/// # Ok::<(), godwit_wire::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EthernetHeader {
    /// Destination address.
    pub destination: MacAddress,
    /// Source address.
    pub source: MacAddress,
    /// Type of the payload.
    pub ethertype: u16,
}

impl EthernetHeader {
    /// Parses the header.
    pub fn parse<T: AsRef<[u8]>>(view: &Ethernet<T>) -> Self {
        Self { destination: view.destination(), source: view.source(), ethertype: view.ethertype() }
    }

    /// Writes the header to the start of `buffer`. Returns the number of bytes written.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let mut view = Ethernet::new_checked(buffer)?;
        view.set_destination(self.destination);
        view.set_source(self.source);
        view.set_ethertype(self.ethertype);
        Ok(HEADER_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_have_their_standard_offsets() {
        let mut frame = *b"\x01\x02\x03\x04\x05\x06\x11\x12\x13\x14\x15\x16\x08\x00xyz";
        let view = Ethernet::new_checked(&frame).unwrap();
        assert_eq!(view.destination(), MacAddress([1, 2, 3, 4, 5, 6]));
        assert_eq!(view.source(), MacAddress([0x11, 0x12, 0x13, 0x14, 0x15, 0x16]));
        assert_eq!(view.ethertype(), ethertype::IPV4);
        assert_eq!(view.payload(), b"xyz");
        Ethernet::new_checked(&mut frame).unwrap().payload_mut()[0] = b'X';
        assert_eq!(&frame[14..], b"Xyz");
    }

    proptest! {
        #[test]
        fn emit_then_parse(destination: [u8; 6], source: [u8; 6], ethertype: u16, length in 0usize..40) {
            let header = EthernetHeader { destination: MacAddress(destination), source: MacAddress(source), ethertype };
            let mut buffer = vec![0xa5; length];
            match header.emit(&mut buffer) {
                Ok(written) => {
                    prop_assert_eq!(written, HEADER_BYTES);
                    prop_assert_eq!(EthernetHeader::parse(&Ethernet::new_checked(&buffer).unwrap()), header);
                }
                Err(error) => {
                    prop_assert_eq!(error, Error::Truncated);
                    prop_assert!(length < HEADER_BYTES);
                    prop_assert!(buffer.iter().all(|&byte| byte == 0xa5), "emit writes nothing if it fails");
                }
            }
        }
    }
}
