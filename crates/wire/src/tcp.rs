//! TCP segments (RFC 9293, section 3.1).
//!
//! The layout of a segment is as follows, with offsets in bytes:
//!
//! ```text
//! 0             2                  4          8
//! | source port | destination port | sequence | acknow |
//! 12                            14       16         18       20
//! | offset:4 reserved:4 flags:8 | window | checksum | urgent | options (offset*4-20) | payload
//! ```

use crate::view::{Field, range, range_mut};
use crate::{Checksum, Error};

/// Length of a header without options, in bytes.
pub const HEADER_BYTES: usize = 20;

/// Length of the longest header, in bytes.
pub const HEADER_BYTES_MAX: usize = 60;

/// Control bits (RFC 9293, section 3.1).
pub mod flags {
    /// FIN: the sender has no more data.
    pub const FIN: u8 = 0x01;
    /// Synchronise sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Reset the connection.
    pub const RST: u8 = 0x04;
    /// Push.
    pub const PSH: u8 = 0x08;
    /// The acknowledgment field is valid.
    pub const ACK: u8 = 0x10;
    /// The urgent pointer is valid.
    pub const URG: u8 = 0x20;
    /// ECN echo (RFC 3168).
    pub const ECE: u8 = 0x40;
    /// Congestion window reduced (RFC 3168).
    pub const CWR: u8 = 0x80;
}

view! {
    /// A TCP segment, which fills the whole buffer.
    Tcp, check
}

fn check(bytes: &[u8]) -> Result<(), Error> {
    if bytes.len() < HEADER_BYTES {
        return Err(Error::Truncated);
    }
    match header_bytes(bytes) {
        ..HEADER_BYTES => Err(Error::Malformed),
        length if length > bytes.len() => Err(Error::Truncated),
        _ => Ok(()),
    }
}

#[inline]
fn header_bytes(bytes: &[u8]) -> usize {
    usize::from(u8::load(bytes, 12) >> 4) * 4
}

fields! { Tcp;
    /// Source port.
    0 => source_port / set_source_port: u16,
    /// Destination port.
    2 => destination_port / set_destination_port: u16,
    /// Sequence number.
    4 => sequence / set_sequence: u32,
    /// Acknowledgment number.
    8 => acknowledgment / set_acknowledgment: u32,
    /// Control bits, see [`flags`].
    13 => flags / set_flags: u8,
    /// Window size, without the scaling of the window scale option.
    14 => window / set_window: u16,
    /// Checksum.
    16 => checksum / set_checksum: u16,
    /// Urgent pointer.
    18 => urgent / set_urgent: u16,
}

impl<T: AsRef<[u8]>> Tcp<T> {
    /// Returns the length of the header including its options, 20 to 60 bytes.
    #[inline]
    pub fn header_bytes(&self) -> usize {
        header_bytes(self.bytes())
    }

    /// Returns the bytes of the options. There are 0 to 40 bytes.
    #[inline]
    pub fn option_bytes(&self) -> &[u8] {
        range(self.bytes(), HEADER_BYTES, self.header_bytes())
    }

    /// Returns an iterator over the options.
    pub fn options(&self) -> TcpOptions<'_> {
        TcpOptions { rest: self.option_bytes() }
    }

    /// Returns the payload.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        range(self.bytes(), self.header_bytes(), usize::MAX)
    }

    /// Verifies the checksum. The length in `pseudo_header` must be the length of the buffer.
    pub fn verify_checksum(&self, mut pseudo_header: Checksum) -> Result<(), Error> {
        pseudo_header.add(self.bytes());
        if pseudo_header.finish() == 0 { Ok(()) } else { Err(Error::Checksum) }
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Tcp<T> {
    /// Returns the payload.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let from = self.header_bytes();
        range_mut(self.buffer.as_mut(), from, usize::MAX)
    }

    /// Computes the checksum over the pseudo header, the header and the payload, and writes it to
    /// the header.
    pub fn fill_checksum(&mut self, mut pseudo_header: Checksum) {
        self.set_checksum(0);
        pseudo_header.add(self.bytes());
        self.set_checksum(pseudo_header.finish());
    }
}

/// A TCP option (IANA "TCP Option Kind Numbers").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpOption<'a> {
    /// No operation, kind 1 (RFC 9293). It serves as padding between options.
    NoOperation,
    /// Maximum segment size, kind 2 (RFC 9293). The value is the size in bytes of the largest
    /// segment that the option's sender accepts.
    MaximumSegment(u16),
    /// Window scale, kind 3 (RFC 7323). The value is the left shift of the window size, 0 to 14.
    WindowScale(u8),
    /// Selective acknowledgment permitted, kind 4 (RFC 2018).
    SackPermitted,
    /// Selective acknowledgment, kind 5 (RFC 2018). The bytes contain the left edge and the right
    /// edge of each received block, with 4 bytes per edge.
    Sack(&'a [u8]),
    /// Timestamps, kind 8 (RFC 7323).
    Timestamps {
        /// Timestamp of the sender's clock.
        value: u32,
        /// Timestamp of the receiver's clock, which the sender echoes.
        echo: u32,
    },
    /// An option of another kind, or with a wrong length.
    Other {
        /// Kind of the option. It is neither 0 nor 1.
        kind: u8,
        /// Bytes of the option after its kind and length, at most 38.
        data: &'a [u8],
    },
}

impl<'a> TcpOption<'a> {
    fn parse(kind: u8, data: &'a [u8]) -> Self {
        match (kind, data) {
            (2, &[a, b]) => Self::MaximumSegment(u16::from_be_bytes([a, b])),
            (3, &[shift]) => Self::WindowScale(shift),
            (4, []) => Self::SackPermitted,
            (5, edges) if edges.len() % 8 == 0 => Self::Sack(edges),
            (8, data) if data.len() == 8 => Self::Timestamps { value: u32::load(data, 0), echo: u32::load(data, 4) },
            _ => Self::Other { kind, data },
        }
    }

    /// Writes the option to the start of `buffer`. Returns the number of bytes written.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let mut scratch = [0; 8];
        let (kind, data): (u8, &[u8]) = match *self {
            Self::NoOperation => {
                *buffer.first_mut().ok_or(Error::Truncated)? = 1;
                return Ok(1);
            }
            Self::MaximumSegment(bytes) => {
                bytes.store(&mut scratch, 0);
                (2, &scratch[..2])
            }
            Self::WindowScale(shift) => {
                shift.store(&mut scratch, 0);
                (3, &scratch[..1])
            }
            Self::SackPermitted => (4, &[]),
            Self::Sack(edges) => (5, edges),
            Self::Timestamps { value, echo } => {
                value.store(&mut scratch, 0);
                echo.store(&mut scratch, 4);
                (8, &scratch)
            }
            Self::Other { kind, data } => (kind, data),
        };
        if kind < 2 || data.len() > HEADER_BYTES_MAX - HEADER_BYTES - 2 {
            return Err(Error::Malformed);
        }
        let length = data.len() + 2;
        let option = buffer.get_mut(..length).ok_or(Error::Truncated)?;
        [kind, length as u8].store(option, 0); // at most 40
        range_mut(option, 2, length).copy_from_slice(data);
        Ok(length)
    }
}

/// Iterator over the options of a header. It ends at the end-of-list option and after an error.
#[derive(Clone, Copy, Debug)]
pub struct TcpOptions<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for TcpOptions<'a> {
    type Item = Result<TcpOption<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = core::mem::take(&mut self.rest);
        match *rest {
            [] | [0, ..] => None,
            [1, ref tail @ ..] => {
                self.rest = tail;
                Some(Ok(TcpOption::NoOperation))
            }
            [_] => Some(Err(Error::Truncated)),
            [kind, length, ..] => match rest.split_at_checked(usize::from(length)) {
                None => Some(Err(Error::Truncated)),
                Some((option, tail)) => {
                    let Some(data) = option.get(2..) else {
                        return Some(Err(Error::Malformed));
                    };
                    self.rest = tail;
                    Some(Ok(TcpOption::parse(kind, data)))
                }
            },
        }
    }
}

/// Representation of a TCP header. `emit` computes the length of the header from the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpHeader<'a> {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgment number.
    pub acknowledgment: u32,
    /// Control bits, see [`flags`].
    pub flags: u8,
    /// Window size, without the scaling of the window scale option.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// Options, at most 40 bytes. `emit` pads them with zeros to a multiple of 4.
    pub options: &'a [u8],
}

impl<'a> TcpHeader<'a> {
    /// Parses the header, without a check of the checksum.
    pub fn parse<T: AsRef<[u8]>>(view: &'a Tcp<T>) -> Self {
        Self {
            source_port: view.source_port(),
            destination_port: view.destination_port(),
            sequence: view.sequence(),
            acknowledgment: view.acknowledgment(),
            flags: view.flags(),
            window: view.window(),
            urgent: view.urgent(),
            options: view.option_bytes(),
        }
    }

    /// Returns the number of bytes that `emit` writes.
    pub fn header_bytes(&self) -> usize {
        HEADER_BYTES + self.options.len().next_multiple_of(4)
    }

    /// Writes the header without its checksum to the start of `buffer`. Returns the number of bytes
    /// written.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let header_bytes = self.header_bytes();
        if header_bytes > HEADER_BYTES_MAX {
            return Err(Error::Malformed);
        }
        let header = buffer.get_mut(..header_bytes).ok_or(Error::Truncated)?;
        self.source_port.store(header, 0);
        self.destination_port.store(header, 2);
        self.sequence.store(header, 4);
        self.acknowledgment.store(header, 8);
        [(header_bytes as u8 / 4) << 4, self.flags].store(header, 12); // at most 15
        self.window.store(header, 14);
        0u16.store(header, 16);
        self.urgent.store(header, 18);
        let options = range_mut(header, HEADER_BYTES, header_bytes);
        options.fill(0);
        range_mut(options, 0, self.options.len()).copy_from_slice(self.options);
        Ok(header_bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{IpAddress, protocol};

    fn pseudo(length: usize) -> Checksum {
        let address = |last| IpAddress::V6([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        Checksum::pseudo_header(address(1), address(2), protocol::TCP, length as u32)
    }

    #[test]
    fn parses_the_options_of_a_syn() {
        #[rustfmt::skip]
        let syn = [
            0xc0, 0x00, 0x00, 0x50, 0, 0, 0, 1, 0, 0, 0, 0, 0xb0, 0x02, 0xff, 0xff, 0, 0, 0, 0,
            2, 4, 5, 0xb4, 1, 3, 3, 7, 1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 0, 4, 2, 0, 9,
        ];
        let view = Tcp::new_checked(&syn).unwrap();
        assert_eq!((view.flags(), view.header_bytes()), (flags::SYN, 44));
        let options: Vec<_> = view.options().map(Result::unwrap).collect();
        assert_eq!(
            options,
            [
                TcpOption::MaximumSegment(1460),
                TcpOption::NoOperation,
                TcpOption::WindowScale(7),
                TcpOption::NoOperation,
                TcpOption::NoOperation,
                TcpOption::Timestamps { value: 9, echo: 0 },
                TcpOption::SackPermitted,
            ]
        );
    }

    #[test]
    fn rejects_wrong_lengths() {
        let mut segment = [0u8; 23];
        assert_eq!(Tcp::new_checked(segment), Err(Error::Malformed));
        segment[12] = 0x60;
        assert_eq!(Tcp::new_checked(segment), Err(Error::Truncated));
        segment[12] = 0x50;
        assert_eq!(Tcp::new_checked(segment).unwrap().payload(), [0; 3]);
        assert_eq!(Tcp::new_checked(&segment[..19]), Err(Error::Truncated));
    }

    fn option() -> impl Strategy<Value = (u8, Vec<u8>, u32, u32)> {
        (0u8..10, prop::collection::vec(any::<u8>(), 0..12), any::<u32>(), any::<u32>())
    }

    fn build((pick, data, a, b): &(u8, Vec<u8>, u32, u32)) -> TcpOption<'_> {
        match pick {
            0 => TcpOption::NoOperation,
            1 => TcpOption::MaximumSegment(*a as u16),
            2 => TcpOption::WindowScale(*a as u8),
            3 => TcpOption::SackPermitted,
            4 => TcpOption::Sack(&data[..data.len() / 8 * 8]),
            5 => TcpOption::Timestamps { value: *a, echo: *b },
            _ => TcpOption::Other { kind: 9 + (*a as u8) % 200, data },
        }
    }

    proptest! {
        #[test]
        fn emit_then_parse(
            (source_port, destination_port, window, urgent) in any::<(u16, u16, u16, u16)>(),
            (sequence, acknowledgment, flags) in any::<(u32, u32, u8)>(),
            options in prop::collection::vec(any::<u8>(), 0..44),
            payload in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            let header = TcpHeader {
                source_port, destination_port, sequence, acknowledgment, flags, window, urgent, options: &options,
            };
            let mut buffer = vec![0xa5; header.header_bytes()];
            let result = header.emit(&mut buffer);
            if options.len() > 40 {
                prop_assert_eq!(result, Err(Error::Malformed));
                return Ok(());
            }
            prop_assert_eq!(result, Ok(buffer.len()));
            buffer.extend(&payload);
            let length = buffer.len();
            let mut view = Tcp::new_checked(&mut buffer).unwrap();
            view.fill_checksum(pseudo(length));
            prop_assert_eq!(view.verify_checksum(pseudo(length)), Ok(()));
            prop_assert_eq!(view.payload(), &payload[..]);
            let mut padded = options.clone();
            padded.resize(options.len().next_multiple_of(4), 0);
            prop_assert_eq!(TcpHeader::parse(&view), TcpHeader { options: &padded, ..header });
            // Only one bit of the window changes. If all bits were inverted, 0 could become 0xffff,
            // which leaves a one's complement sum unchanged.
            view.set_window(window ^ 1);
            prop_assert_eq!(view.verify_checksum(pseudo(length)), Err(Error::Checksum));
        }

        #[test]
        fn options_emit_then_parse(parts in prop::collection::vec(option(), 0..4)) {
            let options: Vec<_> = parts.iter().map(build).collect();
            let mut bytes = [0; 64];
            let mut at = 0;
            for option in &options {
                at += option.emit(&mut bytes[at..]).unwrap();
            }
            let parsed: Vec<_> = TcpOptions { rest: &bytes[..at] }.map(Result::unwrap).collect();
            prop_assert_eq!(parsed, options);
        }
    }
}
