//! ICMP messages (RFC 792).
//!
//! The layout of a message is as follows, with offsets in bytes:
//!
//! ```text
//! 0      1      2          4                8
//! | type | code | checksum | rest of header | payload
//! ```

use crate::Error;
use crate::checksum::checksum;
use crate::view::{Field, range, range_mut};

/// Header length, in bytes.
pub const HEADER_BYTES: usize = 8;

/// Message types (RFC 792).
pub mod kind {
    /// Echo reply.
    pub const ECHO_REPLY: u8 = 0;
    /// Destination unreachable.
    pub const DESTINATION_UNREACHABLE: u8 = 3;
    /// Redirect.
    pub const REDIRECT: u8 = 5;
    /// Echo.
    pub const ECHO: u8 = 8;
    /// Time exceeded. Code 0 means that the TTL reached 0 in transit, and code 1 that reassembly
    /// took too long.
    pub const TIME_EXCEEDED: u8 = 11;
    /// Parameter problem.
    pub const PARAMETER_PROBLEM: u8 = 12;
}

view! {
    /// An ICMP message, which fills the whole buffer.
    Icmpv4, check
}

fn check(bytes: &[u8]) -> Result<(), Error> {
    if bytes.len() < HEADER_BYTES { Err(Error::Truncated) } else { Ok(()) }
}

fields! { Icmpv4;
    /// Type. See [`kind`].
    0 => kind / set_kind: u8,
    /// Code, which refines the type of the message.
    1 => code / set_code: u8,
    /// Checksum of the message.
    2 => checksum / set_checksum: u16,
    /// Rest of the header. Its meaning depends on the type.
    4 => rest / set_rest: u32,
    /// Identifier of an echo request or reply.
    4 => identifier / set_identifier: u16,
    /// Sequence number of an echo request or reply.
    6 => sequence / set_sequence: u16,
}

impl<T: AsRef<[u8]>> Icmpv4<T> {
    /// Returns all bytes after the header. In an error message, they are the start of the packet
    /// that caused the error.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        range(self.bytes(), HEADER_BYTES, usize::MAX)
    }

    /// Returns whether this is an error message. An error message must not cause another error
    /// message (RFC 1122, section 3.2.2).
    pub fn is_error(&self) -> bool {
        matches!(self.kind(), 3 | 4 | 5 | 11 | 12)
    }

    /// Verifies the checksum.
    pub fn verify_checksum(&self) -> Result<(), Error> {
        if checksum(self.bytes()) == 0 { Ok(()) } else { Err(Error::Checksum) }
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Icmpv4<T> {
    /// Returns all bytes after the header.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        range_mut(self.buffer.as_mut(), HEADER_BYTES, usize::MAX)
    }

    /// Computes the checksum over the message and writes it to the header.
    pub fn fill_checksum(&mut self) {
        self.set_checksum(0);
        let sum = checksum(self.bytes());
        self.set_checksum(sum);
    }
}

/// Representation of an ICMP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icmpv4Header {
    /// Type. See [`kind`].
    pub kind: u8,
    /// Code, which refines the type of the message.
    pub code: u8,
    /// Rest of the header, whose meaning depends on the type. In an echo message, it is the
    /// identifier followed by the sequence number.
    pub rest: u32,
}

impl Icmpv4Header {
    /// Parses the header, without a check of the checksum.
    pub fn parse<T: AsRef<[u8]>>(view: &Icmpv4<T>) -> Self {
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

    #[test]
    fn fills_and_verifies_the_checksum_of_a_known_echo() {
        let mut view = Icmpv4::new_checked([8, 0, 0, 0, 0, 1, 0, 2, b'a', b'b', b'c']).unwrap();
        assert_eq!((view.kind(), view.identifier(), view.sequence()), (kind::ECHO, 1, 2));
        assert!(!view.is_error());
        view.fill_checksum();
        // The sum of the words is 0800 + 0001 + 0002 + 6162 + 6300 = cc65.
        assert_eq!(view.checksum(), !0xcc65);
        assert_eq!(view.verify_checksum(), Ok(()));
        assert_eq!(view.payload(), b"abc");
        view.payload_mut()[0] = b'A';
        assert_eq!(view.verify_checksum(), Err(Error::Checksum));
    }

    proptest! {
        #[test]
        fn emit_then_parse(kind: u8, code: u8, rest: u32, payload in prop::collection::vec(any::<u8>(), 0..40)) {
            let header = Icmpv4Header { kind, code, rest };
            let mut buffer = vec![0xff; 8];
            prop_assert_eq!(header.emit(&mut buffer), Ok(8));
            prop_assert_eq!(header.emit(&mut [0; 7]), Err(Error::Truncated));
            buffer.extend(payload);
            let mut view = Icmpv4::new_checked(&mut buffer).unwrap();
            view.fill_checksum();
            prop_assert_eq!(view.verify_checksum(), Ok(()));
            prop_assert_eq!(Icmpv4Header::parse(&view), header);
        }
    }
}
