//! IPv4 packets (RFC 791).
//!
//! The layout of a packet is as follows, with offsets in bytes:
//!
//! ```text
//! 0          1     2              4                6                     8     9          10
//! | ver, IHL | ToS | total length | identification | flags:3 offset:13   | TTL | protocol | checksum
//! 12       16            20
//! | source | destination | options (IHL*4-20) | payload | (Ethernet padding, not part of the packet)
//! ```

use crate::checksum::{checksum, update, update_bytes};
use crate::view::{Field, range, range_mut};
use crate::{Checksum, Error, IpAddress};

/// Length of a header without options, in bytes.
pub const HEADER_BYTES: usize = 20;

/// Length of the longest header, in bytes.
pub const HEADER_BYTES_MAX: usize = 60;

/// IP protocol numbers (IANA "Protocol Numbers"), which are also IPv6 next headers.
pub mod protocol {
    /// IPv6 hop-by-hop options (RFC 8200).
    pub const HOP_BY_HOP: u8 = 0;
    /// ICMP (RFC 792).
    pub const ICMP: u8 = 1;
    /// IPv4 in IP (RFC 2003).
    pub const IPV4: u8 = 4;
    /// TCP (RFC 9293).
    pub const TCP: u8 = 6;
    /// UDP (RFC 768).
    pub const UDP: u8 = 17;
    /// DCCP (RFC 4340).
    pub const DCCP: u8 = 33;
    /// IPv6 in IP (RFC 2473).
    pub const IPV6: u8 = 41;
    /// IPv6 routing header (RFC 8200).
    pub const ROUTING: u8 = 43;
    /// IPv6 fragment header (RFC 8200).
    pub const FRAGMENT: u8 = 44;
    /// ESP (RFC 4303).
    pub const ESP: u8 = 50;
    /// AH (RFC 4302).
    pub const AH: u8 = 51;
    /// ICMPv6 (RFC 4443).
    pub const ICMPV6: u8 = 58;
    /// No next header, in IPv6 (RFC 8200).
    pub const NO_NEXT_HEADER: u8 = 59;
    /// IPv6 destination options (RFC 8200).
    pub const DESTINATION_OPTIONS: u8 = 60;
    /// SCTP (RFC 9260).
    pub const SCTP: u8 = 132;
    /// UDP-Lite (RFC 3828).
    pub const UDP_LITE: u8 = 136;

    /// Returns whether the upper-layer header starts with a source port and a destination port of
    /// 16 bits each.
    #[inline]
    pub const fn has_ports(protocol: u8) -> bool {
        matches!(protocol, TCP | UDP | DCCP | SCTP | UDP_LITE)
    }
}

view! {
    /// An IPv4 packet. It does not include bytes after its total length, such as Ethernet padding.
    /// [`verify_checksum`](Self::verify_checksum) checks the checksum separately.
    Ipv4, check
}

#[inline]
pub(crate) fn check(bytes: &[u8]) -> Result<(), Error> {
    if bytes.len() < HEADER_BYTES {
        return Err(Error::Truncated);
    }
    let header_bytes = header_bytes(bytes);
    let total_bytes = usize::from(u16::load(bytes, 2));
    if bytes[0] >> 4 != 4 || header_bytes < HEADER_BYTES || total_bytes < header_bytes {
        return Err(Error::Malformed);
    }
    if bytes.len() < total_bytes { Err(Error::Truncated) } else { Ok(()) }
}

#[inline]
fn header_bytes(bytes: &[u8]) -> usize {
    usize::from(u8::load(bytes, 0) & 0x0f) * 4
}

fields! { Ipv4;
    /// Version and header length. See [`header_bytes`](Self::header_bytes).
    0 => version_ihl / set_version_ihl: u8,
    /// Traffic class: differentiated services and ECN (RFC 2474, RFC 3168).
    1 => traffic_class / set_traffic_class: u8,
    /// Total length of the header and the payload, in bytes.
    2 => total_bytes / set_total_bytes: u16,
    /// Identification, which all fragments of a datagram share.
    4 => identification / set_identification: u16,
    /// Flags and fragment offset. See [`is_fragment`](Self::is_fragment).
    6 => flags_offset / set_flags_offset: u16,
    /// Time to live.
    8 => ttl / set_ttl: u8,
    /// Protocol of the payload. See [`protocol`].
    9 => protocol / set_protocol: u8,
    /// Header checksum.
    10 => checksum / set_checksum: u16,
    /// Source address.
    12 => source / set_source: [u8; 4],
    /// Destination address.
    16 => destination / set_destination: [u8; 4],
}

impl<T: AsRef<[u8]>> Ipv4<T> {
    /// Returns the length of the header including its options, 20 to 60 bytes.
    #[inline]
    pub fn header_bytes(&self) -> usize {
        header_bytes(self.bytes())
    }

    /// Returns the flag "don't fragment".
    #[inline]
    pub fn dont_fragment(&self) -> bool {
        self.flags_offset() & 0x4000 != 0
    }

    /// Returns the flag "more fragments".
    #[inline]
    pub fn more_fragments(&self) -> bool {
        self.flags_offset() & 0x2000 != 0
    }

    /// Returns the offset in bytes of this fragment's payload in the datagram. The offset is a
    /// multiple of 8.
    #[inline]
    pub fn fragment_offset_bytes(&self) -> u16 {
        (self.flags_offset() & 0x1fff) << 3
    }

    /// Returns whether this is a fragment of a datagram, including the first fragment.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        self.flags_offset() & 0x3fff != 0
    }

    /// Returns the bytes of the options. There are 0 to 40 bytes.
    #[inline]
    pub fn option_bytes(&self) -> &[u8] {
        range(self.bytes(), HEADER_BYTES, self.header_bytes())
    }

    /// Returns an iterator over the options.
    pub fn options(&self) -> Ipv4Options<'_> {
        Ipv4Options { rest: self.option_bytes() }
    }

    /// Returns the payload, without Ethernet padding.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        range(self.bytes(), self.header_bytes(), usize::from(self.total_bytes()))
    }

    /// Verifies the header checksum.
    #[inline]
    pub fn verify_checksum(&self) -> Result<(), Error> {
        let header = range(self.bytes(), 0, self.header_bytes());
        if checksum(header) == 0 { Ok(()) } else { Err(Error::Checksum) }
    }

    /// Returns the checksum of the pseudo header, to which the caller adds the upper-layer header
    /// and the payload.
    pub fn pseudo_header(&self) -> Checksum {
        let length = usize::from(self.total_bytes()).saturating_sub(self.header_bytes());
        let (source, destination) = (IpAddress::V4(self.source()), IpAddress::V4(self.destination()));
        Checksum::pseudo_header(source, destination, self.protocol(), length as u32)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv4<T> {
    /// Returns the payload, without Ethernet padding.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let (from, to) = (self.header_bytes(), usize::from(self.total_bytes()));
        range_mut(self.buffer.as_mut(), from, to)
    }

    /// Computes the header checksum and writes it to the header.
    pub fn fill_checksum(&mut self) {
        self.set_checksum(0);
        let sum = checksum(range(self.bytes(), 0, self.header_bytes()));
        self.set_checksum(sum);
    }

    /// Decrements the TTL and updates the checksum (RFC 1812 section 5.3.1, RFC 1624). Returns
    /// `false` and changes nothing if the TTL is 0 or 1.
    #[inline]
    pub fn decrement_ttl(&mut self) -> bool {
        let (old, protocol) = (self.ttl(), self.protocol());
        if old <= 1 {
            return false;
        }
        self.set_ttl(old - 1);
        let (old, new) = (u16::from_be_bytes([old, protocol]), u16::from_be_bytes([old - 1, protocol]));
        self.set_checksum(update(self.checksum(), old, new));
        true
    }

    /// Replaces the source address and updates the header checksum.
    pub fn replace_source(&mut self, source: [u8; 4]) {
        self.set_checksum(update_bytes(self.checksum(), &self.source(), &source));
        self.set_source(source);
    }

    /// Replaces the destination address and updates the header checksum.
    pub fn replace_destination(&mut self, destination: [u8; 4]) {
        self.set_checksum(update_bytes(self.checksum(), &self.destination(), &destination));
        self.set_destination(destination);
    }
}

/// An IPv4 option (RFC 791, section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Option<'a> {
    /// Copied flag, class and number of the option. The value 0 ends the options, and the value 1
    /// has no effect.
    pub kind: u8,
    /// Bytes of the option after its kind and length. Options of kind 0 and 1 have no data.
    pub data: &'a [u8],
}

/// Iterator over the options of a header. It ends at the end-of-list option and after an error.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4Options<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Ipv4Options<'a> {
    type Item = Result<Ipv4Option<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = core::mem::take(&mut self.rest);
        match *rest {
            [] | [0, ..] => None,
            [1, ref tail @ ..] => {
                self.rest = tail;
                Some(Ok(Ipv4Option { kind: 1, data: &[] }))
            }
            [_] => Some(Err(Error::Truncated)),
            [kind, length, ..] => match rest.split_at_checked(usize::from(length)) {
                None => Some(Err(Error::Truncated)),
                Some((option, tail)) => {
                    let Some(data) = option.get(2..) else {
                        return Some(Err(Error::Malformed));
                    };
                    self.rest = tail;
                    Some(Ok(Ipv4Option { kind, data }))
                }
            },
        }
    }
}

/// Representation of an IPv4 header. `emit` computes the length fields and the checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Header<'a> {
    /// Traffic class, which contains differentiated services and ECN.
    pub traffic_class: u8,
    /// Identification, which all fragments of a datagram share.
    pub identification: u16,
    /// Flag "don't fragment".
    pub dont_fragment: bool,
    /// Flag "more fragments".
    pub more_fragments: bool,
    /// Offset in bytes of the payload in the original datagram. It is a multiple of 8.
    pub fragment_offset_bytes: u16,
    /// Time to live.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Source address.
    pub source: [u8; 4],
    /// Destination address.
    pub destination: [u8; 4],
    /// Options, at most 40 bytes. `emit` pads them with zeros to a multiple of 4.
    pub options: &'a [u8],
    /// Payload length, in bytes. The header and the payload together have at most 65,535 bytes.
    pub payload_bytes: usize,
}

impl<'a> Ipv4Header<'a> {
    /// Parses the header, without a check of the checksum.
    pub fn parse<T: AsRef<[u8]>>(view: &'a Ipv4<T>) -> Self {
        Self {
            traffic_class: view.traffic_class(),
            identification: view.identification(),
            dont_fragment: view.dont_fragment(),
            more_fragments: view.more_fragments(),
            fragment_offset_bytes: view.fragment_offset_bytes(),
            ttl: view.ttl(),
            protocol: view.protocol(),
            source: view.source(),
            destination: view.destination(),
            options: view.option_bytes(),
            payload_bytes: view.payload().len(),
        }
    }

    /// Returns the number of bytes that `emit` writes.
    pub fn header_bytes(&self) -> usize {
        HEADER_BYTES + self.options.len().next_multiple_of(4)
    }

    /// Writes the header with its checksum to the start of `buffer`. Returns the number of bytes
    /// written. The buffer need not contain the payload.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let header_bytes = self.header_bytes();
        let total_bytes = self.payload_bytes.saturating_add(header_bytes);
        let Ok(total) = u16::try_from(total_bytes) else {
            return Err(Error::Malformed);
        };
        if header_bytes > HEADER_BYTES_MAX || !self.fragment_offset_bytes.is_multiple_of(8) {
            return Err(Error::Malformed);
        }
        let header = buffer.get_mut(..header_bytes).ok_or(Error::Truncated)?;
        let flags = u16::from(self.dont_fragment) << 14 | u16::from(self.more_fragments) << 13;
        (0x40 | (header_bytes / 4) as u8).store(header, 0);
        self.traffic_class.store(header, 1);
        total.store(header, 2);
        self.identification.store(header, 4);
        (flags | self.fragment_offset_bytes >> 3).store(header, 6);
        self.ttl.store(header, 8);
        self.protocol.store(header, 9);
        0u16.store(header, 10);
        self.source.store(header, 12);
        self.destination.store(header, 16);
        let options = range_mut(header, HEADER_BYTES, header_bytes);
        options.fill(0);
        range_mut(options, 0, self.options.len()).copy_from_slice(self.options);
        checksum(header).store(header, 10);
        Ok(header_bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// ICMP echo request from 10.0.0.1 to 10.0.0.2, with a padded record-route option.
    #[rustfmt::skip]
    const PACKET: [u8; 40] = [
        0x47, 0x00, 0x00, 0x24, 0x12, 0x34, 0x40, 0x00, 0x40, 0x01, 0x0a, 0xb4,
        10, 0, 0, 1, 10, 0, 0, 2, 0x07, 0x07, 0x04, 0, 0, 0, 0, 0x00,
        0x08, 0x00, 0xf7, 0xfd, 0x00, 0x01, 0x00, 0x01,
        0, 0, 0, 0, // padding of the frame
    ];

    #[test]
    fn parses_a_known_packet() {
        let mut packet = PACKET;
        let mut view = Ipv4::new_checked(&mut packet).unwrap();
        view.fill_checksum();
        assert_eq!((view.header_bytes(), view.total_bytes()), (28, 36));
        assert!(view.dont_fragment() && !view.is_fragment());
        assert_eq!(view.options().collect::<Vec<_>>(), [Ok(Ipv4Option { kind: 7, data: &[4, 0, 0, 0, 0] })]);
        assert_eq!(view.payload(), &PACKET[28..36], "the payload excludes the frame's padding");
        assert_eq!(view.verify_checksum(), Ok(()));
        view.set_identification(0);
        assert_eq!(view.verify_checksum(), Err(Error::Checksum));
    }

    #[test]
    fn rejects_wrong_lengths() {
        let with = |at: usize, value: u8| {
            let mut packet = PACKET;
            packet[at] = value;
            Ipv4::new_checked(packet).map(|_| ())
        };
        assert_eq!(with(0, 0x67), Err(Error::Malformed), "version");
        assert_eq!(with(0, 0x44), Err(Error::Malformed), "header shorter than 20 bytes");
        assert_eq!(with(3, 27), Err(Error::Malformed), "total length shorter than the header");
        assert_eq!(with(3, 41), Err(Error::Truncated), "total length longer than the buffer");
        assert_eq!(with(3, 40), Ok(()));
        assert_eq!(Ipv4::new_checked(&PACKET[..19]), Err(Error::Truncated));
    }

    #[test]
    fn malformed_option_ends_the_list() {
        let options = |rest| Ipv4Options { rest }.collect::<Vec<_>>();
        assert_eq!(options(&[0, 9, 9]), []);
        assert_eq!(options(&[1, 7]), [Ok(Ipv4Option { kind: 1, data: &[] }), Err(Error::Truncated)]);
        assert_eq!(options(&[7, 1, 1, 1]), [Err(Error::Malformed)]);
        assert_eq!(options(&[7, 0, 1, 1]), [Err(Error::Malformed)]);
        assert_eq!(options(&[7, 9, 1, 1]), [Err(Error::Truncated)]);
    }

    #[test]
    fn ttl_of_one_is_not_decremented() {
        for (ttl, allowed) in [(0, false), (1, false), (2, true), (255, true)] {
            let mut packet = PACKET;
            let mut view = Ipv4::new_checked(&mut packet).unwrap();
            view.set_ttl(ttl);
            view.fill_checksum();
            assert_eq!(view.decrement_ttl(), allowed);
            assert_eq!(view.ttl(), if allowed { ttl - 1 } else { ttl });
            assert_eq!(view.verify_checksum(), Ok(()));
        }
    }

    proptest! {
        #[test]
        fn emit_then_parse(
            (traffic_class, identification, dont_fragment, more_fragments) in any::<(u8, u16, bool, bool)>(),
            (offset, ttl, protocol) in any::<(u16, u8, u8)>(),
            (source, destination, other) in any::<([u8; 4], [u8; 4], [u8; 4])>(),
            options in prop::collection::vec(any::<u8>(), 0..44),
            payload_bytes in prop_oneof![0usize..100, 65_400usize..65_600],
        ) {
            let header = Ipv4Header {
                traffic_class, identification, dont_fragment, more_fragments,
                fragment_offset_bytes: offset & 0xfff8,
                ttl, protocol, source, destination, options: &options, payload_bytes,
            };
            let mut buffer = vec![0xa5; HEADER_BYTES_MAX + payload_bytes];
            let result = header.emit(&mut buffer);
            if options.len() > 40 || header.header_bytes() + payload_bytes > 65_535 {
                prop_assert_eq!(result, Err(Error::Malformed));
                return Ok(());
            }
            prop_assert_eq!(result, Ok(header.header_bytes()));
            let mut view = Ipv4::new_checked(&mut buffer).unwrap();
            prop_assert_eq!(view.verify_checksum(), Ok(()));
            let mut padded = options.clone();
            padded.resize(options.len().next_multiple_of(4), 0);
            prop_assert_eq!(Ipv4Header::parse(&view), Ipv4Header { options: &padded, ..header });

            // Incremental updates give the same checksum as a full computation.
            view.decrement_ttl();
            view.replace_source(other);
            view.replace_destination(source);
            prop_assert_eq!((view.source(), view.destination()), (other, source));
            let incremental = view.checksum();
            view.fill_checksum();
            prop_assert_eq!(incremental, view.checksum());
        }
    }
}
