//! ICMPv6 messages (RFC 4443). Unlike the checksum of ICMP, the checksum of ICMPv6 covers a pseudo
//! header.
//!
//! The layout of a message is as follows, with offsets in bytes:
//!
//! ```text
//! 0      1      2          4              8
//! | type | code | checksum | message body, first word | rest
//! ```

use crate::view::{Field, range, range_mut};
use crate::{Checksum, Error};

/// Length in bytes of the header and the first word of the body. Every message of RFC 4443 and RFC
/// 4861 has this word.
pub const HEADER_BYTES: usize = 8;

/// Message types (RFC 4443, RFC 4861).
pub mod kind {
    /// Destination unreachable.
    pub const DESTINATION_UNREACHABLE: u8 = 1;
    /// Packet too big. The first word of the body is the MTU.
    pub const PACKET_TOO_BIG: u8 = 2;
    /// Time exceeded. Code 0 means that the hop limit was exceeded, and code 1 that reassembly took
    /// too long.
    pub const TIME_EXCEEDED: u8 = 3;
    /// Parameter problem. The first word of the body is the offset of the error in the packet.
    pub const PARAMETER_PROBLEM: u8 = 4;
    /// Echo request.
    pub const ECHO_REQUEST: u8 = 128;
    /// Echo reply.
    pub const ECHO_REPLY: u8 = 129;
    /// Neighbour solicitation.
    pub const NEIGHBOUR_SOLICITATION: u8 = 135;
    /// Neighbour advertisement.
    pub const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
}

view! {
    /// An ICMPv6 message, which fills the whole buffer.
    Icmpv6, check
}

fn check(bytes: &[u8]) -> Result<(), Error> {
    if bytes.len() < HEADER_BYTES { Err(Error::Truncated) } else { Ok(()) }
}

fields! { Icmpv6;
    /// Type. See [`kind`].
    0 => kind / set_kind: u8,
    /// Code, which refines the type of the message.
    1 => code / set_code: u8,
    /// Checksum over the pseudo header and the message.
    2 => checksum / set_checksum: u16,
    /// First word of the message body.
    4 => rest / set_rest: u32,
    /// Identifier of an echo request or reply.
    4 => identifier / set_identifier: u16,
    /// Sequence number of an echo request or reply.
    6 => sequence / set_sequence: u16,
}

impl<T: AsRef<[u8]>> Icmpv6<T> {
    /// Returns all bytes after the first word of the body. In an error message, they are the start
    /// of the packet that caused the error.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        range(self.bytes(), HEADER_BYTES, usize::MAX)
    }

    /// Returns whether this is an error message (RFC 4443, section 2.1). An error message must not
    /// cause another error message.
    pub fn is_error(&self) -> bool {
        self.kind() < 128
    }

    /// Verifies the checksum. The length in `pseudo_header` must be the length of the buffer.
    pub fn verify_checksum(&self, mut pseudo_header: Checksum) -> Result<(), Error> {
        pseudo_header.add(self.bytes());
        if pseudo_header.finish() == 0 { Ok(()) } else { Err(Error::Checksum) }
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Icmpv6<T> {
    /// Returns all bytes after the first word of the body.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        range_mut(self.buffer.as_mut(), HEADER_BYTES, usize::MAX)
    }

    /// Computes the checksum over the pseudo header and the message, and writes it to the header.
    pub fn fill_checksum(&mut self, mut pseudo_header: Checksum) {
        self.set_checksum(0);
        pseudo_header.add(self.bytes());
        self.set_checksum(pseudo_header.finish());
    }
}

/// Representation of an ICMPv6 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icmpv6Header {
    /// Type. See [`kind`].
    pub kind: u8,
    /// Code, which refines the type of the message.
    pub code: u8,
    /// First word of the message body. In an echo message, it is the identifier followed by the
    /// sequence number.
    pub rest: u32,
}

impl Icmpv6Header {
    /// Parses the header, without a check of the checksum.
    pub fn parse<T: AsRef<[u8]>>(view: &Icmpv6<T>) -> Self {
        Self { kind: view.kind(), code: view.code(), rest: view.rest() }
    }

    /// Writes the header without its checksum to the start of `buffer`. Returns the number of bytes
    /// written.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let header = buffer.first_chunk_mut::<HEADER_BYTES>().ok_or(Error::Truncated)?;
        [self.kind, self.code, 0, 0].store(header, 0);
        self.rest.store(header, 4);
        Ok(HEADER_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{IpAddress, protocol};

    fn pseudo(length: usize) -> Checksum {
        let address = |last| IpAddress::V6([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        Checksum::pseudo_header(address(1), address(2), protocol::ICMPV6, length as u32)
    }

    #[test]
    fn fills_and_verifies_the_checksum_of_a_known_echo() {
        let mut view = Icmpv6::new_checked([128, 0, 0, 0, 0, 1, 0, 2, b'a', b'b']).unwrap();
        assert_eq!((view.kind(), view.identifier(), view.sequence()), (kind::ECHO_REQUEST, 1, 2));
        assert!(!view.is_error());
        view.fill_checksum(pseudo(10));
        // The pseudo header has the sum fe80 + 1 + fe80 + 2 + a + 3a. The message has the sum 8000
        // + 1 + 2 + 6162.
        let sum = 0xfe80u32 + 1 + 0xfe80 + 2 + 0xa + 0x3a + 0x8000 + 1 + 2 + 0x6162;
        assert_eq!(view.checksum(), !((sum & 0xffff) + (sum >> 16)) as u16);
        assert_eq!(view.verify_checksum(pseudo(10)), Ok(()));
        view.payload_mut()[1] = b'B';
        assert_eq!(view.verify_checksum(pseudo(10)), Err(Error::Checksum));
    }

    proptest! {
        #[test]
        fn emit_then_parse(kind: u8, code: u8, rest: u32, payload in prop::collection::vec(any::<u8>(), 0..40)) {
            let header = Icmpv6Header { kind, code, rest };
            let mut buffer = vec![0xff; 8];
            prop_assert_eq!(header.emit(&mut buffer), Ok(8));
            prop_assert_eq!(header.emit(&mut [0; 7]), Err(Error::Truncated));
            buffer.extend(payload);
            let length = buffer.len();
            let mut view = Icmpv6::new_checked(&mut buffer).unwrap();
            view.fill_checksum(pseudo(length));
            prop_assert_eq!(view.verify_checksum(pseudo(length)), Ok(()));
            prop_assert_eq!(Icmpv6Header::parse(&view), header);
        }
    }
}
