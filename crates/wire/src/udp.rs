//! UDP datagrams (RFC 768).
//!
//! The layout of a datagram is as follows, with offsets in bytes:
//!
//! ```text
//! 0             2                  4        6          8
//! | source port | destination port | length | checksum | payload
//! ```

use crate::Error;
use crate::checksum::{Checksum, nonzero};
use crate::view::{Field, range, range_mut};

/// Header length, in bytes.
pub const HEADER_BYTES: usize = 8;

view! {
    /// A UDP datagram. It does not include bytes after the length in its header.
    Udp, check
}

fn check(bytes: &[u8]) -> Result<(), Error> {
    if bytes.len() < HEADER_BYTES {
        return Err(Error::Truncated);
    }
    match usize::from(u16::load(bytes, 4)) {
        ..HEADER_BYTES => Err(Error::Malformed),
        length if length > bytes.len() => Err(Error::Truncated),
        _ => Ok(()),
    }
}

fields! { Udp;
    /// Source port.
    0 => source_port / set_source_port: u16,
    /// Destination port.
    2 => destination_port / set_destination_port: u16,
    /// Total length of the header and the payload, in bytes.
    4 => length_bytes / set_length_bytes: u16,
    /// Checksum, or 0 without a checksum.
    6 => checksum / set_checksum: u16,
}

impl<T: AsRef<[u8]>> Udp<T> {
    /// Returns the payload.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        range(self.bytes(), HEADER_BYTES, usize::from(self.length_bytes()))
    }

    /// Returns the header and the payload.
    fn datagram(&self) -> &[u8] {
        range(self.bytes(), 0, usize::from(self.length_bytes()))
    }

    /// Verifies the checksum. The length in `pseudo_header` must be the length of this datagram.
    ///
    /// Accepts a datagram without a checksum, which RFC 768 allows over IPv4. Over IPv6, RFC 8200,
    /// section 8.1, allows it only for tunnels. The caller must check this.
    pub fn verify_checksum(&self, mut pseudo_header: Checksum) -> Result<(), Error> {
        if self.checksum() == 0 {
            return Ok(());
        }
        pseudo_header.add(self.datagram());
        if pseudo_header.finish() == 0 { Ok(()) } else { Err(Error::Checksum) }
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Udp<T> {
    /// Returns the payload.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let to = usize::from(self.length_bytes());
        range_mut(self.buffer.as_mut(), HEADER_BYTES, to)
    }

    /// Computes the checksum over the pseudo header, the header and the payload, and writes it to
    /// the header.
    pub fn fill_checksum(&mut self, mut pseudo_header: Checksum) {
        self.set_checksum(0);
        pseudo_header.add(self.datagram());
        self.set_checksum(nonzero(pseudo_header.finish()));
    }
}

/// Representation of a UDP header.
///
/// ```
/// use godwit_wire::{Udp, UdpHeader};
///
/// let header = UdpHeader { source_port: 40000, destination_port: 53, payload_bytes: 3 };
/// let mut datagram = *b"........dns";
/// header.emit(&mut datagram)?;
///
/// let view = Udp::new_checked(&datagram)?;
/// assert_eq!(UdpHeader::parse(&view), header);
/// assert_eq!(view.payload(), b"dns");
/// # Ok::<(), godwit_wire::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpHeader {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Payload length, in bytes, at most 65,527.
    pub payload_bytes: usize,
}

impl UdpHeader {
    /// Parses the header, without a check of the checksum.
    pub fn parse<T: AsRef<[u8]>>(view: &Udp<T>) -> Self {
        Self {
            source_port: view.source_port(),
            destination_port: view.destination_port(),
            payload_bytes: view.payload().len(),
        }
    }

    /// Writes the header without its checksum to the start of `buffer`. Returns the number of bytes
    /// written.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let Ok(length) = u16::try_from(self.payload_bytes.saturating_add(HEADER_BYTES)) else {
            return Err(Error::Malformed);
        };
        let header = buffer.first_chunk_mut::<HEADER_BYTES>().ok_or(Error::Truncated)?;
        self.source_port.store(header, 0);
        self.destination_port.store(header, 2);
        length.store(header, 4);
        0u16.store(header, 6);
        Ok(HEADER_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{IpAddress, protocol};

    fn pseudo(length: usize) -> Checksum {
        let (source, destination) = (IpAddress::V4([192, 0, 2, 1]), IpAddress::V4([198, 51, 100, 2]));
        Checksum::pseudo_header(source, destination, protocol::UDP, length as u32)
    }

    #[test]
    fn fills_and_verifies_the_checksum_of_a_known_datagram() {
        // The words c000 0201 c633 6402 0011 000a 1000 2000 000a 6162 sum to 27dbd. The folded sum
        // 7dbf has the complement 8240.
        let mut bytes = *b"\x10\x00\x20\x00\x00\x0a\x00\x00ab\xff";
        let mut view = Udp::new_checked(&mut bytes).unwrap();
        assert_eq!(view.payload(), b"ab");
        view.fill_checksum(pseudo(10));
        let words = [0xc000u32, 0x0201, 0xc633, 0x6402, 0x0011, 0x000a, 0x1000, 0x2000, 0x000a, 0x6162];
        let sum: u32 = words.iter().sum();
        assert_eq!(view.checksum(), !((sum & 0xffff) + (sum >> 16)) as u16);
        assert_eq!(view.verify_checksum(pseudo(10)), Ok(()));
        view.set_source_port(1);
        assert_eq!(view.verify_checksum(pseudo(10)), Err(Error::Checksum));
        view.set_checksum(0);
        assert_eq!(view.verify_checksum(pseudo(10)), Ok(()), "no checksum");
    }

    #[test]
    fn writes_a_computed_zero_as_ffff() {
        let mut bytes = [0, 0, 0, 0, 0, 10, 0, 0, 0, 0];
        // The payload is chosen so that the sum is 0xffff.
        let mut sum = pseudo(10);
        sum.add(&bytes);
        bytes[8..].copy_from_slice(&sum.finish().to_be_bytes());
        let mut view = Udp::new_checked(&mut bytes).unwrap();
        view.fill_checksum(pseudo(10));
        assert_eq!(view.checksum(), 0xffff);
        assert_eq!(view.verify_checksum(pseudo(10)), Ok(()));
    }

    #[test]
    fn rejects_wrong_lengths() {
        assert_eq!(Udp::new_checked([0u8; 7]), Err(Error::Truncated));
        assert_eq!(Udp::new_checked([0, 0, 0, 0, 0, 7, 0, 0]), Err(Error::Malformed));
        assert_eq!(Udp::new_checked([0, 0, 0, 0, 0, 9, 0, 0]), Err(Error::Truncated));
    }

    proptest! {
        #[test]
        fn emit_then_parse(
            source_port: u16, destination_port: u16,
            payload in prop::collection::vec(any::<u8>(), 0..100),
            flip in any::<prop::sample::Index>(),
        ) {
            let header = UdpHeader { source_port, destination_port, payload_bytes: payload.len() };
            let mut buffer = vec![0; 8];
            prop_assert_eq!(header.emit(&mut buffer), Ok(8));
            buffer.extend(&payload);
            let length = buffer.len();
            let mut view = Udp::new_checked(&mut buffer).unwrap();
            view.fill_checksum(pseudo(length));
            prop_assert_eq!(UdpHeader::parse(&view), header);
            prop_assert_eq!(view.payload(), &payload[..]);
            prop_assert_eq!(view.verify_checksum(pseudo(length)), Ok(()));

            // The checksum detects a flipped bit outside the length field, unless the flip sets the
            // checksum to 0 (no checksum).
            let bit = flip.index(8 * length);
            buffer[bit / 8] ^= 1 << (bit % 8);
            if let Ok(view) = Udp::new_checked(&buffer)
                && !(4..6).contains(&(bit / 8))
                && view.checksum() != 0
            {
                prop_assert_eq!(view.verify_checksum(pseudo(length)), Err(Error::Checksum));
            }
        }

        #[test]
        fn rejects_a_payload_that_is_too_long(payload_bytes in 65_500usize..65_600) {
            let header = UdpHeader { source_port: 1, destination_port: 2, payload_bytes };
            let expected = if payload_bytes > 65_527 { Err(Error::Malformed) } else { Ok(8) };
            prop_assert_eq!(header.emit(&mut [0; 8]), expected);
        }
    }
}
