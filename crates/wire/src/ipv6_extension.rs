//! IPv6 extension headers (RFC 8200, section 4), including AH (RFC 4302).
//!
//! The layouts of the headers are as follows, with offsets in bytes:
//!
//! ```text
//! hop-by-hop, routing, destination options      fragment
//! 0             1            2                  0             1          2              4
//! | next header | (len+1)*8  | data             | next header | reserved | offset:13 M  | identification
//! ```

use crate::ah::Ah;
use crate::ipv4::protocol;
use crate::view::{Field, range, range_mut};
use crate::{Error, ipv6};

/// Maximum number of extension headers in a packet. A packet with more headers gives
/// [`Error::TooDeep`].
///
/// RFC 8200, section 4.1, recommends at most two destination options headers and one header of each
/// other kind. With AH, these are six headers.
pub const HEADERS_MAX: usize = 8;

/// Length of a fragment header, in bytes.
pub const FRAGMENT_BYTES: usize = 8;

/// An extension header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension<'a> {
    /// Type of the header, which is a value of [`protocol`].
    pub kind: u8,
    /// Offset in bytes of the extension header from the end of the fixed IPv6 header.
    pub offset: usize,
    /// Bytes of the whole header.
    pub bytes: &'a [u8],
}

impl<'a> Extension<'a> {
    /// Parses a fragment header. Returns `None` for any other header.
    #[inline]
    pub fn fragment(&self) -> Option<FragmentHeader> {
        if self.kind == protocol::FRAGMENT { FragmentHeader::parse(self.bytes).ok() } else { None }
    }

    /// Returns an iterator over the options. Only hop-by-hop and destination options headers
    /// contain options.
    pub fn options(&self) -> Ipv6Options<'a> {
        match self.kind {
            protocol::HOP_BY_HOP | protocol::DESTINATION_OPTIONS => {
                Ipv6Options { rest: range(self.bytes, 2, usize::MAX) }
            }
            _ => Ipv6Options { rest: &[] },
        }
    }

    /// Returns the routing type and the number of segments left (RFC 8200, section 4.4), or `None`
    /// for any other header.
    pub fn routing(&self) -> Option<(u8, u8)> {
        (self.kind == protocol::ROUTING).then(|| (u8::load(self.bytes, 2), u8::load(self.bytes, 3)))
    }
}

/// Iterator over the extension headers of a packet.
///
/// The iterator ends at the upper layer or after an error. It also ends after the fragment header
/// of a fragment other than the first fragment, because the following bytes are not a header. After
/// each step, [`protocol`](Self::protocol) and [`offset`](Self::offset) give the type and the
/// offset of the next header.
///
/// ```
/// use godwit_wire::{Extensions, protocol};
///
/// // A hop-by-hop header with padding, then TCP.
/// let payload = [protocol::TCP, 0, 1, 4, 0, 0, 0, 0, 0xc0, 0x00];
/// let extensions = Extensions::new(protocol::HOP_BY_HOP, &payload);
/// assert_eq!(extensions.upper_layer(), Ok((protocol::TCP, 8)));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Extensions<'a> {
    payload: &'a [u8],
    offset: usize,
    protocol: u8,
    walked: usize,
    done: bool,
}

impl<'a> Extensions<'a> {
    /// Creates an iterator over the extension headers in `payload`, the bytes after the fixed
    /// header. `next_header` is the next header field of the fixed header.
    #[inline]
    pub fn new(next_header: u8, payload: &'a [u8]) -> Self {
        Self { payload, offset: 0, protocol: next_header, walked: 0, done: false }
    }

    /// Returns the protocol number of the header at [`offset`](Self::offset): the next extension
    /// header or the upper layer.
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.protocol
    }

    /// Returns the offset in bytes of the next header from the start of the payload. It is at most
    /// the payload length.
    #[inline]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the bytes from the next header to the end of the packet.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        range(self.payload, self.offset, usize::MAX)
    }

    /// Skips all extension headers. Returns the protocol and the offset of the upper layer.
    pub fn upper_layer(mut self) -> Result<(u8, usize), Error> {
        for step in self.by_ref() {
            step?;
        }
        Ok((self.protocol, self.offset))
    }

    fn step(&mut self) -> Result<Option<Extension<'a>>, Error> {
        let rest = self.rest();
        // The length field of AH counts units of 4 bytes, minus 2. The fragment header has no
        // length field. All other length fields count units of 8 bytes, minus 1 (RFC 4302 section
        // 2.2, RFC 8200 sections 4.3 to 4.6).
        let length = usize::from(u8::load(rest, 1));
        let length = match self.protocol {
            // A hop-by-hop options header is allowed only directly after the fixed header (RFC
            // 8200, section 4.1).
            protocol::HOP_BY_HOP if self.walked > 0 => return Err(Error::Malformed),
            protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION_OPTIONS => 8 * (length + 1),
            protocol::FRAGMENT => FRAGMENT_BYTES,
            protocol::AH => 4 * (length + 2),
            _ => return Ok(None),
        };
        if self.walked == HEADERS_MAX {
            return Err(Error::TooDeep);
        }
        let bytes = rest.get(..length).ok_or(Error::Truncated)?;
        if self.protocol == protocol::AH {
            Ah::new_checked(bytes)?;
        }
        let extension = Extension { kind: self.protocol, offset: self.offset, bytes };
        self.done = extension.fragment().is_some_and(|fragment| fragment.offset_bytes != 0);
        self.walked += 1;
        self.protocol = u8::load(bytes, 0);
        self.offset += length;
        Ok(Some(extension))
    }
}

impl<'a> Iterator for Extensions<'a> {
    type Item = Result<Extension<'a>, Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let step = self.step();
        self.done |= !matches!(step, Ok(Some(_)));
        step.transpose()
    }
}

/// An option of a hop-by-hop or destination options header (RFC 8200, section 4.2). The iterator
/// skips padding options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Option<'a> {
    /// Type of the option. Its two highest bits tell a node how to treat an unknown option.
    pub kind: u8,
    /// Data of the option.
    pub data: &'a [u8],
}

/// Iterator over the options of one header. The iterator ends after the first error.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6Options<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Ipv6Options<'a> {
    type Item = Result<Ipv6Option<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let rest = core::mem::take(&mut self.rest);
            match *rest {
                [] => return None,
                [0, ref tail @ ..] => self.rest = tail, // Pad1
                [_] => return Some(Err(Error::Truncated)),
                [kind, length, ref tail @ ..] => {
                    let Some((data, tail)) = tail.split_at_checked(usize::from(length)) else {
                        return Some(Err(Error::Truncated));
                    };
                    self.rest = tail;
                    if kind != 1 {
                        return Some(Ok(Ipv6Option { kind, data }));
                    } // else PadN
                }
            }
        }
    }
}

/// Representation of a fragment header (RFC 8200, section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentHeader {
    /// Type of the first header in the fragmentable part of the packet (RFC 8200, section 4.5).
    pub next_header: u8,
    /// Offset in bytes of this fragment in the fragmentable part of the packet. It is a multiple of
    /// 8 and at most 65,528.
    pub offset_bytes: u16,
    /// Whether more fragments follow.
    pub more_fragments: bool,
    /// Identification of the datagram.
    pub identification: u32,
}

impl FragmentHeader {
    /// Returns whether the datagram was split into several fragments. The result is `false` for an
    /// atomic fragment (RFC 6946), which contains the whole datagram.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        self.offset_bytes != 0 || self.more_fragments
    }

    /// Parses the header at the start of `bytes`.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let header = bytes.first_chunk::<FRAGMENT_BYTES>().ok_or(Error::Truncated)?;
        let offset = u16::load(header, 2);
        Ok(Self {
            next_header: header[0],
            offset_bytes: offset & 0xfff8,
            more_fragments: offset & 1 != 0,
            identification: u32::load(header, 4),
        })
    }

    /// Writes the header to the start of `buffer`. Returns the number of bytes written.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        if !self.offset_bytes.is_multiple_of(8) {
            return Err(Error::Malformed);
        }
        let header = buffer.first_chunk_mut::<FRAGMENT_BYTES>().ok_or(Error::Truncated)?;
        [self.next_header, 0].store(header, 0);
        (self.offset_bytes | u16::from(self.more_fragments)).store(header, 2);
        self.identification.store(header, 4);
        Ok(FRAGMENT_BYTES)
    }
}

/// Writes a hop-by-hop, destination options or routing header. Returns the number of bytes written,
/// which is a multiple of 8.
///
/// `content` follows the first two bytes of the header, and has at most 2,046 bytes. The function
/// pads `content` with Pad1 or PadN (RFC 8200, section 4.2). A routing header has no padding, so
/// its content must have 8 * n + 6 bytes.
pub fn emit_extension(next_header: u8, content: &[u8], buffer: &mut [u8]) -> Result<usize, Error> {
    let length = (content.len() + 2).next_multiple_of(8);
    let Ok(units) = u8::try_from(length / 8 - 1) else {
        return Err(Error::Malformed);
    };
    let header = buffer.get_mut(..length).ok_or(Error::Truncated)?;
    [next_header, units].store(header, 0);
    range_mut(header, 2, 2 + content.len()).copy_from_slice(content);
    match range_mut(header, 2 + content.len(), length) {
        [] => {}
        [pad1] => *pad1 = 0,
        [kind, pad_bytes, pad @ ..] => {
            (*kind, *pad_bytes) = (1, pad.len() as u8); // at most 5
            pad.fill(0);
        }
    }
    Ok(length)
}

/// Maximum total length in bytes of the headers that [`Extensions`] accepts, including the fixed
/// header.
pub const CHAIN_BYTES_MAX: usize = ipv6::HEADER_BYTES + HEADERS_MAX * 2048;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ah::AhHeader;

    /// Kind, offset and length of each header.
    type Steps = Vec<(u8, usize, usize)>;

    fn walk(next_header: u8, payload: &[u8]) -> (Steps, Result<(u8, usize), Error>) {
        let walk = Extensions::new(next_header, payload);
        let steps = walk.map_while(Result::ok).map(|step| (step.kind, step.offset, step.bytes.len()));
        (steps.collect(), walk.upper_layer())
    }

    /// Returns the following headers: hop-by-hop, routing, first fragment, AH, destination options
    /// and UDP.
    fn chain() -> Vec<u8> {
        let mut bytes = vec![0; 128];
        let mut at = 0;
        at += emit_extension(protocol::ROUTING, &[5, 2, 0, 0], &mut bytes[at..]).unwrap();
        at += emit_extension(protocol::FRAGMENT, &[0, 0, 0, 0, 0, 0], &mut bytes[at..]).unwrap();
        let fragment =
            FragmentHeader { next_header: protocol::AH, offset_bytes: 0, more_fragments: true, identification: 7 };
        at += fragment.emit(&mut bytes[at..]).unwrap();
        let ah = AhHeader { next_header: protocol::DESTINATION_OPTIONS, spi: 1, sequence: 2, icv: &[9; 12] };
        at += ah.emit(&mut bytes[at..]).unwrap();
        at += emit_extension(protocol::UDP, &[0x3e, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9], &mut bytes[at..]).unwrap();
        bytes.truncate(at + 8);
        bytes
    }

    #[test]
    fn iterates_over_all_kinds() {
        let bytes = chain();
        let (steps, upper) = walk(protocol::HOP_BY_HOP, &bytes);
        assert_eq!(steps, [(0, 0, 8), (43, 8, 8), (44, 16, 8), (51, 24, 24), (60, 48, 16)]);
        assert_eq!(upper, Ok((protocol::UDP, 64)));
        let options: Vec<_> = Extensions::new(protocol::HOP_BY_HOP, &bytes)
            .flat_map(|step| step.unwrap().options().map(Result::unwrap))
            .collect();
        assert_eq!(options[0], Ipv6Option { kind: 5, data: &[0, 0] });
        assert_eq!(options[1], Ipv6Option { kind: 0x3e, data: &[1, 2, 3, 4, 5, 6, 7, 8, 9] });
        assert_eq!(options.len(), 2, "padding is skipped");
        let routing = Extensions::new(protocol::HOP_BY_HOP, &bytes).nth(1).unwrap().unwrap();
        assert_eq!(routing.routing(), Some((0, 0)));
    }

    #[test]
    fn rejects_a_truncated_chain() {
        let bytes = chain();
        for cut in 0..64 {
            assert_eq!(walk(protocol::HOP_BY_HOP, &bytes[..cut]).1, Err(Error::Truncated), "cut at {cut}");
        }
        assert_eq!(walk(protocol::HOP_BY_HOP, &bytes[..64]).1, Ok((protocol::UDP, 64)));
    }

    #[test]
    fn stops_after_a_later_fragment() {
        let mut bytes = chain();
        bytes[19] = 8; // fragment offset: one unit
        let (steps, upper) = walk(protocol::HOP_BY_HOP, &bytes);
        assert_eq!(steps.len(), 3);
        assert_eq!(upper, Ok((protocol::AH, 24)));
    }

    #[test]
    fn limits_depth_and_order() {
        let many = |count: usize| {
            let mut bytes = [protocol::DESTINATION_OPTIONS, 0, 1, 4, 0, 0, 0, 0].repeat(count);
            let last = bytes.len() - 8;
            bytes[last] = protocol::TCP;
            bytes
        };
        assert_eq!(walk(protocol::DESTINATION_OPTIONS, &many(HEADERS_MAX)).1, Ok((protocol::TCP, 8 * HEADERS_MAX)));
        assert_eq!(walk(protocol::DESTINATION_OPTIONS, &many(HEADERS_MAX + 1)).1, Err(Error::TooDeep));
        let bytes = [protocol::HOP_BY_HOP, 0, 1, 4, 0, 0, 0, 0, protocol::TCP, 0, 1, 4, 0, 0, 0, 0];
        assert_eq!(walk(protocol::DESTINATION_OPTIONS, &bytes).1, Err(Error::Malformed));
        let short_ah = [protocol::TCP, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(walk(protocol::AH, &short_ah).1, Err(Error::Malformed), "AH without SPI and sequence number");
    }

    #[test]
    fn malformed_option_ends_the_list() {
        let options = |rest| Ipv6Options { rest }.collect::<Vec<_>>();
        assert_eq!(options(&[0, 0, 0, 5]), [Err(Error::Truncated)]);
        assert_eq!(options(&[5, 4, 0, 0]), [Err(Error::Truncated)]);
        assert_eq!(options(&[1, 2, 0, 0]), []);
    }

    proptest! {
        #[test]
        fn fragment_emit_then_parse(next_header: u8, offset: u16, more_fragments: bool, identification: u32) {
            let header = FragmentHeader { next_header, offset_bytes: offset & 0xfff8, more_fragments, identification };
            let mut buffer = [0xff; 9];
            prop_assert_eq!(header.emit(&mut buffer), Ok(8));
            prop_assert_eq!(FragmentHeader::parse(&buffer), Ok(header));
            prop_assert_eq!(header.emit(&mut buffer[..7]), Err(Error::Truncated));
        }

        #[test]
        fn extension_emit_then_walk(content in prop::collection::vec(any::<u8>(), 0..2100)) {
            let mut buffer = vec![0xff; 4096];
            let result = emit_extension(protocol::TCP, &content, &mut buffer);
            if content.len() > 2046 {
                prop_assert_eq!(result, Err(Error::Malformed));
            } else {
                let written = result.unwrap();
                let step = Extensions::new(protocol::ROUTING, &buffer).next().unwrap().unwrap();
                prop_assert_eq!(step.bytes.len(), written);
                prop_assert_eq!(&step.bytes[2..2 + content.len()], &content[..]);
                prop_assert!(written < content.len() + 10);
                let mut padding = Ipv6Options { rest: &step.bytes[2 + content.len()..] };
                prop_assert_eq!(padding.next(), None, "all added bytes are padding");
            }
        }
    }
}
