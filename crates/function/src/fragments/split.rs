//! Fragmentation of IPv4 packets (RFC 791, section 3.2).

use godwit_wire::checksum::checksum;

use super::IPV4_MTU_MIN;

const HEADER_BYTES: usize = 20;
const HEADER_BYTES_MAX: usize = 60;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;
/// Bit in an IPv4 option type. If it is set, every fragment needs a copy of the option (RFC 791,
/// section 3.1).
const OPTION_COPIED: u8 = 0x80;

/// Division of an IPv4 packet into fragments.
#[derive(Debug)]
pub struct Split<'a> {
    packet: &'a [u8],
    header_bytes: usize,
    /// IPv4 header of all fragments except the first, with only some of the packet's options.
    later: [u8; HEADER_BYTES_MAX],
    later_bytes: usize,
    /// Number of payload bytes in the first fragment. `each_bytes` is the number in each later
    /// fragment except the last.
    first_bytes: usize,
    each_bytes: usize,
}

impl<'a> Split<'a> {
    /// Divides an IPv4 packet into fragments of at most `mtu` bytes. The packet may itself be a
    /// fragment.
    ///
    /// Returns `None` if the packet already fits, if the MTU is below the minimum, or if the packet
    /// is not valid IPv4. The caller checks the "don't fragment" flag.
    pub fn new(packet: &'a [u8], mtu: usize) -> Option<Self> {
        let header_bytes = usize::from(packet.first()? & 0x0f) * 4;
        let header = packet.get(..header_bytes.max(HEADER_BYTES))?;
        let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let packet = packet.get(..total)?;
        if header[0] >> 4 != 4 || header_bytes < HEADER_BYTES || total <= mtu.max(header_bytes) || mtu < IPV4_MTU_MIN {
            return None;
        }
        let mut later = [0; HEADER_BYTES_MAX];
        let later_bytes = later_header(header, &mut later);
        let payload_bytes = |header_bytes: usize| (mtu - header_bytes) / 8 * 8;
        let (first_bytes, each_bytes) = (payload_bytes(header_bytes), payload_bytes(later_bytes));
        let last = usize::from(u16::from_be_bytes([header[6], header[7]]) & OFFSET) * 8 + total - header_bytes;
        // The payload ends beyond the range of the 13-bit offset field, so the original packet was
        // too long.
        if last > usize::from(OFFSET) * 8 + 8 {
            return None;
        }
        Some(Self { packet, header_bytes, later, later_bytes, first_bytes, each_bytes })
    }

    /// Returns the number of fragments, which is at least two.
    pub fn count(&self) -> usize {
        1 + (self.payload_bytes() - self.first_bytes).div_ceil(self.each_bytes)
    }

    fn payload_bytes(&self) -> usize {
        self.packet.len() - self.header_bytes
    }

    /// Returns the header length of fragment number `index`, and the part of the packet's payload
    /// that it carries.
    fn part(&self, index: usize) -> (usize, std::ops::Range<usize>) {
        let end = self.payload_bytes();
        match index {
            0 => (self.header_bytes, 0..self.first_bytes),
            _ => {
                let first = self.first_bytes + (index - 1) * self.each_bytes;
                (self.later_bytes, first..(first + self.each_bytes).min(end))
            }
        }
    }

    /// Returns the length of fragment `index`, in bytes.
    pub fn bytes(&self, index: usize) -> usize {
        let (header_bytes, payload) = self.part(index);
        header_bytes + payload.len()
    }

    /// Writes fragment number `index`, counted from 0, to `out`. The length of `out` must be
    /// [`Split::bytes`].
    pub fn emit(&self, index: usize, out: &mut [u8]) {
        let (header_bytes, payload) = self.part(index);
        let header = if index == 0 { &self.packet[..header_bytes] } else { &self.later[..header_bytes] };
        out[..header_bytes].copy_from_slice(header);
        out[header_bytes..].copy_from_slice(&self.packet[self.header_bytes..][payload.clone()]);
        self.finish(&mut out[..header_bytes], &payload);
    }

    /// Returns the header of the first fragment and the length of this header.
    ///
    /// The caller turns the original packet into the first fragment: it overwrites the header and
    /// truncates the packet to `bytes(0)`.
    pub fn first_header(&self) -> ([u8; HEADER_BYTES_MAX], usize) {
        let mut header = [0; HEADER_BYTES_MAX];
        header[..self.header_bytes].copy_from_slice(&self.packet[..self.header_bytes]);
        self.finish(&mut header[..self.header_bytes], &(0..self.first_bytes));
        (header, self.header_bytes)
    }

    /// Sets the length, the flags, the offset and the checksum in a fragment's header. `payload` is
    /// the part of the payload that the fragment carries.
    fn finish(&self, header: &mut [u8], payload: &std::ops::Range<usize>) {
        let before = u16::from_be_bytes([self.packet[6], self.packet[7]]);
        let offset = (before & OFFSET) + (payload.start / 8) as u16;
        let is_last = payload.end == self.payload_bytes();
        let more = if is_last { before & MORE_FRAGMENTS } else { MORE_FRAGMENTS };
        let length = (header.len() + payload.len()) as u16;
        header[2..4].copy_from_slice(&length.to_be_bytes());
        header[6..8].copy_from_slice(&(offset | more).to_be_bytes());
        header[10..12].fill(0);
        let sum = checksum(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Writes the header of all fragments except the first. Only the options that every fragment needs
/// are copied into it. Returns the length of this header.
fn later_header(header: &[u8], later: &mut [u8; HEADER_BYTES_MAX]) -> usize {
    later[..HEADER_BYTES].copy_from_slice(&header[..HEADER_BYTES]);
    let mut size = HEADER_BYTES;
    let mut options = &header[HEADER_BYTES..];
    while let Some(&kind) = options.first() {
        let bytes = match kind {
            // This option ends the list of options.
            0 => break,
            // The option "no operation" is a single byte.
            1 => 1,
            _ => match options.get(1) {
                Some(&bytes) if bytes >= 2 && usize::from(bytes) <= options.len() => bytes.into(),
                // A malformed option ends the list, because the position of the options after it is
                // unknown.
                _ => break,
            },
        };
        if kind & OPTION_COPIED != 0 {
            later[size..size + bytes].copy_from_slice(&options[..bytes]);
            size += bytes;
        }
        options = &options[bytes..];
    }
    // The header is initialized with zeros, so its last word is padded with the option "end of
    // options" (0).
    let padded = size.next_multiple_of(4);
    later[0] = 0x40 | (padded / 4) as u8;
    padded
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packet(options: &[u8], payload: &[u8], word: u16) -> Vec<u8> {
        let header_bytes = HEADER_BYTES + options.len();
        let mut packet = vec![0; HEADER_BYTES];
        packet[0] = 0x40 | (header_bytes / 4) as u8;
        packet[2..4].copy_from_slice(&((header_bytes + payload.len()) as u16).to_be_bytes());
        packet[6..8].copy_from_slice(&word.to_be_bytes());
        packet[8..10].copy_from_slice(&[64, 17]);
        packet.extend(options);
        packet.extend(payload);
        packet
    }

    proptest! {
        #[test]
        fn fragments_carry_the_whole_packet(
            payload in prop::collection::vec(any::<u8>(), 1..3000),
            mtu in 68usize..1600,
            options in 0usize..11,
            offset in 0u16..1000,
            more: bool,
        ) {
            // The packet has a record route option and a security option. Only the security option
            // is copied into later fragments.
            let mut list = vec![7, 4, 4, 0, 130, 4, 1, 2];
            list.resize(4 * options.max(2), 1);
            let options = if options == 0 { &[][..] } else { &list[..] };
            let payload = if more { &payload[..payload.len() / 8 * 8] } else { &payload[..] };
            let word = offset | u16::from(more) << 13;
            let packet = packet(options, payload, word);
            let Some(split) = Split::new(&packet, mtu) else {
                prop_assert!(packet.len() <= mtu);
                return Ok(());
            };
            prop_assert!(packet.len() > mtu && split.count() > 1);
            let (mut offset_bytes, mut seen) = (usize::from(offset) * 8, Vec::<u8>::new());
            for index in 0..split.count() {
                let mut part = vec![0xee; split.bytes(index)];
                split.emit(index, &mut part);
                prop_assert!(part.len() <= mtu);
                let view = godwit_wire::Ipv4::new_checked(&part[..]).unwrap();
                view.verify_checksum().unwrap();
                prop_assert_eq!(usize::from(view.fragment_offset_bytes()), offset_bytes);
                prop_assert_eq!(view.more_fragments(), more || index + 1 < split.count());
                prop_assert_eq!(view.header_bytes(), match (index, options.len()) {
                    (_, 0) => 20,
                    (0, bytes) => 20 + bytes,
                    _ => 24,
                });
                offset_bytes += view.payload().len();
                seen.extend(view.payload());
                if index == 0 {
                    let (header, bytes) = split.first_header();
                    prop_assert_eq!(&header[..bytes], &part[..bytes]);
                }
            }
            prop_assert_eq!(seen, payload);
        }

        #[test]
        fn accepts_arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200), ipv4: bool, mtu in 0usize..150) {
            let mut bytes = bytes;
            if ipv4 && bytes.len() > 4 {
                let total = bytes.len() as u16;
                bytes[0] = 0x40 | bytes[0] & 0x0f;
                bytes[2..4].copy_from_slice(&total.to_be_bytes());
            }
            if let Some(split) = Split::new(&bytes, mtu) {
                for index in 0..split.count() {
                    split.emit(index, &mut vec![0; split.bytes(index)]);
                }
            }
        }
    }
}
