//! Reassembly of IP fragments within limits of memory and time.
//!
//! IPv4 follows RFC 791 (section 3.2), and IPv6 follows RFC 8200 (section 4.5). If fragments
//! overlap, the packet and all its later fragments are dropped. RFC 5722 requires this for IPv6.
//! IPv4 fragments are treated in the same way, because in legitimate traffic only duplicates
//! overlap. The congestion marks of the fragments are combined as in RFC 3168, section 5.3.

use std::collections::{HashMap, VecDeque};

use godwit_wire::checksum::checksum;
use godwit_wire::ipv6_extension::HEADERS_MAX;
use godwit_wire::{ethertype, protocol};

/// Limits for a [`Reassembler`]. They bound its memory, because anyone can send fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of incomplete packets.
    pub packets: usize,
    /// Maximum number of bytes in held fragments, including the overhead per fragment.
    pub bytes: usize,
    /// Maximum length of a reassembled frame, in bytes.
    pub frame_bytes: usize,
    /// Time in nanoseconds from the arrival of a packet's first fragment until the incomplete
    /// packet is dropped.
    pub timeout_ns: u64,
}

/// Maximum number of fragments per packet. It allows a packet of 64 KiB in fragments of 1 KiB.
const FRAGMENTS_MAX: usize = 64;
/// Number of bytes that a held fragment takes in addition to its payload.
const FRAGMENT_COST_BYTES: usize = 128;
/// Maximum payload length of an IP packet, in bytes.
const PAYLOAD_BYTES_MAX: usize = 65535;

/// Result of [`Reassembler::add`] for an accepted fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// The fragment was copied, and the copy is held until the rest of its packet arrives.
    Held,
    /// The fragment completed its packet. [`Reassembler::whole`] returns the reassembled frame.
    Whole {
        /// Number of held fragments that are now part of the frame, without the fragment that
        /// completed the packet.
        held: u32,
    },
}

/// Reason why a fragment is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// The fragment is not valid.
    Malformed,
    /// The fragment overlaps another fragment of its packet, or implies a different length of the
    /// packet.
    Overlap,
    /// The packet would be too long or have too many fragments, or would exceed the memory limit.
    Limit,
    /// The remaining fragments did not arrive in time.
    Timeout,
}

/// Fields that identify the packet of a fragment. An IPv4 address occupies the first four bytes of
/// an address field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    source: [u8; 16],
    destination: [u8; 16],
    identification: u32,
    /// Protocol of an IPv4 packet, or 0 for IPv6. RFC 791 identifies a packet by its protocol,
    /// among other fields, but RFC 8200 does not.
    protocol: u8,
    version: u8,
}

/// Parsed fragment.
struct Fragment<'a> {
    key: Key,
    offset: usize,
    more: bool,
    payload: &'a [u8],
    /// Ethernet and IP headers that are the same in every fragment, without the IPv6 fragment
    /// header.
    front: &'a [u8],
    /// Offset and new value of the "next header" field before the removed fragment header, or
    /// `None` for IPv4.
    next_header: Option<(usize, u8)>,
    ip_at: usize,
    ecn: u8,
}

struct Packet {
    number: u64,
    since_ns: u64,
    /// Headers of the fragment at offset 0, which the reassembled packet reuses.
    front: Vec<u8>,
    next_header: Option<(usize, u8)>,
    ip_at: usize,
    /// Held fragments sorted by offset, each with its offset and payload.
    parts: Vec<(usize, Box<[u8]>)>,
    /// Number of payload bytes that have arrived.
    bytes: usize,
    /// Number of payload bytes of the whole packet, which is known once its last fragment has
    /// arrived.
    total: Option<usize>,
    /// Whether each of the four congestion marks (ECN, RFC 3168) occurs in a fragment.
    marks: [bool; 4],
    /// Whether reassembly of the packet has failed. Such a packet holds no fragments, and its later
    /// fragments are dropped.
    void: bool,
}

/// Collects fragments until all fragments of a packet have arrived. The module documentation
/// describes the rules.
pub struct Reassembler {
    limits: Limits,
    packets: HashMap<Key, Packet>,
    /// Packets in the order in which their first fragments arrived, possibly with obsolete entries
    /// of completed packets.
    ages: VecDeque<(Key, u64)>,
    next_number: u64,
    bytes: usize,
    expired: Vec<(u32, Refusal)>,
    whole: Vec<u8>,
}

impl Reassembler {
    /// Creates a reassembler that holds no fragments.
    pub fn new(limits: Limits) -> Self {
        let (packets, ages) = (HashMap::new(), VecDeque::new());
        Self { limits, packets, ages, next_number: 0, bytes: 0, expired: Vec::new(), whole: Vec::new() }
    }

    /// Adds the fragment in `frame`, whose IP header begins at offset `ip_at`.
    ///
    /// The reassembler may drop older packets to make room. [`Reassembler::take_expired`] returns
    /// the number of their fragments.
    ///
    /// # Errors
    /// Returns the reason why the caller must drop the fragment.
    pub fn add(&mut self, frame: &[u8], ip_at: usize, now_ns: u64) -> Result<Added, Refusal> {
        self.expire(now_ns);
        let fragment = Fragment::parse(frame, ip_at).ok_or(Refusal::Malformed)?;
        let key = fragment.key;
        if !self.packets.contains_key(&key) {
            self.begin(&fragment, now_ns);
        }
        let Some(packet) = self.packets.get_mut(&key) else { return Err(Refusal::Limit) };
        if packet.void {
            return Err(Refusal::Overlap);
        }
        let frame_bytes = fragment.front.len() + fragment.offset + fragment.payload.len();
        if frame_bytes > self.limits.frame_bytes || packet.parts.len() >= FRAGMENTS_MAX {
            self.annul(key, Refusal::Limit);
            return Err(Refusal::Limit);
        }
        let Some(index) = packet.insert_index(&fragment) else {
            self.annul(key, Refusal::Overlap);
            return Err(Refusal::Overlap);
        };
        if fragment.offset == 0 {
            packet.front = fragment.front.to_vec();
            self.bytes += packet.front.len();
            (packet.next_header, packet.ip_at) = (fragment.next_header, fragment.ip_at);
        }
        if !fragment.more {
            packet.total = Some(fragment.offset + fragment.payload.len());
        }
        packet.marks[usize::from(fragment.ecn)] = true;
        packet.bytes += fragment.payload.len();
        if packet.total != Some(packet.bytes) {
            packet.parts.insert(index, (fragment.offset, fragment.payload.into()));
            self.bytes += cost(fragment.payload);
            // This call may drop the packet that just received the fragment.
            self.make_room();
            return Ok(Added::Held);
        }
        let Some(packet) = self.remove(&key) else { unreachable!("the packet was found above") };
        let held = packet.parts.len() as u32;
        if packet.front.len() + packet.bytes > self.limits.frame_bytes || packet.marks[3] && packet.marks[0] {
            let refusal = if packet.marks[3] && packet.marks[0] { Refusal::Overlap } else { Refusal::Limit };
            self.expired.push((held, refusal));
            return Err(refusal);
        }
        packet.join(index, &fragment, &mut self.whole);
        Ok(Added::Whole { held })
    }

    /// Returns the frame that was reassembled when [`Reassembler::add`] last returned
    /// [`Added::Whole`].
    pub fn whole(&self) -> &[u8] {
        &self.whole
    }

    /// Returns the number of held fragments dropped since the last call, by drop reason.
    pub fn take_expired(&mut self) -> impl Iterator<Item = (u32, Refusal)> + '_ {
        self.expired.drain(..).filter(|(held, _)| *held > 0)
    }

    /// Drops the packets that have timed out.
    pub fn expire(&mut self, now_ns: u64) {
        while let Some((key, since_ns)) = self.oldest()
            && since_ns.saturating_add(self.limits.timeout_ns) <= now_ns
        {
            self.give_up(&key, Refusal::Timeout);
        }
    }

    /// Drops all packets.
    pub fn expire_all(&mut self) {
        while let Some((key, _)) = self.oldest() {
            self.give_up(&key, Refusal::Timeout);
        }
    }

    /// Returns the time at which the next packet times out, or `u64::MAX` if no packet is held.
    pub fn wake_ns(&mut self) -> u64 {
        self.oldest().map_or(u64::MAX, |(_, since_ns)| since_ns.saturating_add(self.limits.timeout_ns))
    }

    /// Returns the number of bytes in held fragments, including the overhead.
    pub fn held_bytes(&self) -> usize {
        self.bytes
    }

    fn oldest(&mut self) -> Option<(Key, u64)> {
        while let Some(&(key, number)) = self.ages.front() {
            match self.packets.get(&key) {
                Some(packet) if packet.number == number => return Some((key, packet.since_ns)),
                _ => self.ages.pop_front(),
            };
        }
        None
    }

    fn begin(&mut self, fragment: &Fragment<'_>, now_ns: u64) {
        while self.packets.len() >= self.limits.packets.max(1) {
            let Some((key, _)) = self.oldest() else { break };
            self.give_up(&key, Refusal::Limit);
        }
        let packet = Packet {
            number: self.next_number,
            since_ns: now_ns,
            front: Vec::new(),
            next_header: None,
            ip_at: 0,
            parts: Vec::new(),
            bytes: 0,
            total: None,
            marks: [false; 4],
            void: false,
        };
        self.ages.push_back((fragment.key, self.next_number));
        // Without this removal of completed packets, the queue `ages` would grow without bound.
        if self.ages.len() > 2 * self.limits.packets + 16 {
            let packets = &self.packets;
            self.ages.retain(|(key, number)| packets.get(key).is_some_and(|packet| packet.number == *number));
        }
        self.next_number += 1;
        self.packets.insert(fragment.key, packet);
    }

    /// Drops the oldest packets until the held fragments are within the memory limit.
    fn make_room(&mut self) {
        while self.bytes > self.limits.bytes
            && let Some((key, _)) = self.oldest()
        {
            self.give_up(&key, Refusal::Limit);
        }
    }

    fn give_up(&mut self, key: &Key, refusal: Refusal) {
        if let Some(packet) = self.remove(key) {
            self.expired.push((packet.parts.len() as u32, refusal));
        }
    }

    fn remove(&mut self, key: &Key) -> Option<Packet> {
        let packet = self.packets.remove(key)?;
        self.bytes -= packet.cost();
        Some(packet)
    }

    /// Drops the held fragments of a packet. Until the packet's timeout, its later fragments are
    /// also dropped.
    fn annul(&mut self, key: Key, refusal: Refusal) {
        let Some(packet) = self.packets.get_mut(&key) else { return };
        packet.void = true;
        self.bytes -= packet.cost();
        let parts = std::mem::take(&mut packet.parts);
        packet.front = Vec::new();
        self.expired.push((parts.len() as u32, refusal));
    }
}

fn cost(part: &[u8]) -> usize {
    part.len() + FRAGMENT_COST_BYTES
}

impl Packet {
    /// Returns the number of bytes that count against the memory limit. Headers count too, because
    /// IPv6 headers can be as long as a frame.
    fn cost(&self) -> usize {
        self.front.len() + self.parts.iter().map(|(_, part)| cost(part)).sum::<usize>()
    }

    /// Returns the index in `parts` at which a fragment must be inserted. Returns `None` if the
    /// fragment overlaps another fragment or implies a different length of the packet.
    fn insert_index(&self, fragment: &Fragment<'_>) -> Option<usize> {
        let (begin, end) = (fragment.offset, fragment.offset + fragment.payload.len());
        let index = self.parts.partition_point(|(offset, _)| *offset < begin);
        let before = index.checked_sub(1).map(|index| &self.parts[index]);
        let overlaps = before.is_some_and(|(offset, part)| offset + part.len() > begin)
            || self.parts.get(index).is_some_and(|(offset, _)| *offset < end);
        let contradicts = match self.total {
            Some(total) => !fragment.more || end > total,
            None => !fragment.more && self.parts.last().is_some_and(|(offset, part)| offset + part.len() > end),
        };
        (!overlaps && !contradicts).then_some(index)
    }

    /// Writes the reassembled frame to `whole`. The frame consists of the held fragments, with the
    /// fragment `last` inserted at `index`.
    fn join(&self, index: usize, last: &Fragment<'_>, whole: &mut Vec<u8>) {
        whole.clear();
        whole.extend(&self.front);
        let (before, after) = self.parts.split_at(index);
        before.iter().for_each(|(_, part)| whole.extend(part));
        whole.extend(last.payload);
        after.iter().for_each(|(_, part)| whole.extend(part));
        let (ip, congested) = (&mut whole[self.ip_at..], self.marks[3]);
        let bytes = ip.len();
        match self.next_header {
            None => {
                let header_bytes = usize::from(ip[0] & 0x0f) * 4;
                ip[1] |= if congested { 3 } else { 0 };
                ip[2..4].copy_from_slice(&(bytes as u16).to_be_bytes());
                ip[6..8].fill(0);
                ip[10..12].fill(0);
                let sum = checksum(&ip[..header_bytes]);
                ip[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            Some((at, next_header)) => {
                ip[1] |= if congested { 0x30 } else { 0 };
                ip[4..6].copy_from_slice(&((bytes - 40) as u16).to_be_bytes());
                whole[at] = next_header;
            }
        }
    }
}

impl<'a> Fragment<'a> {
    fn parse(frame: &'a [u8], ip_at: usize) -> Option<Self> {
        let packet = frame.get(ip_at..)?;
        let fragment = match packet.first()? >> 4 {
            4 => Self::parse_ipv4(frame, packet, ip_at),
            6 => Self::parse_ipv6(frame, packet, ip_at),
            _ => None,
        }?;
        let Self { offset, more, payload, front, .. } = &fragment;
        let whole_units = !more || payload.len().is_multiple_of(8);
        // The length fields of IPv4 and IPv6 have 16 bits.
        let fits = front.len() - ip_at + offset + payload.len() <= PAYLOAD_BYTES_MAX;
        (!payload.is_empty() && whole_units && fits).then_some(fragment)
    }

    fn parse_ipv4(frame: &'a [u8], packet: &'a [u8], ip_at: usize) -> Option<Self> {
        let header_bytes = usize::from(packet[0] & 0x0f) * 4;
        let header = packet.get(..header_bytes.max(20))?;
        let word = u16::from_be_bytes([header[6], header[7]]);
        // The IPv4 header identifies the packet, so its checksum must be valid. The checksum of the
        // payload is not verified.
        if header_bytes < 20 || checksum(&header[..header_bytes]) != 0 || word & 0x3fff == 0 {
            return None;
        }
        let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let address = |at: usize| {
            let mut address = [0; 16];
            address[..4].copy_from_slice(&header[at..at + 4]);
            address
        };
        let key = Key {
            source: address(12),
            destination: address(16),
            identification: u16::from_be_bytes([header[4], header[5]]).into(),
            protocol: header[9],
            version: 4,
        };
        Some(Self {
            key,
            offset: usize::from(word & 0x1fff) * 8,
            more: word & 0x2000 != 0,
            payload: packet.get(header_bytes..total)?,
            front: &frame[..ip_at + header_bytes],
            next_header: None,
            ip_at,
            ecn: header[1] & 3,
        })
    }

    fn parse_ipv6(frame: &'a [u8], packet: &'a [u8], ip_at: usize) -> Option<Self> {
        let header = packet.get(..40)?;
        let end = 40 + usize::from(u16::from_be_bytes([header[4], header[5]]));
        let packet = packet.get(..end)?;
        let (mut named_at, mut next_header, mut at) = (6, header[6], 40);
        // The loop skips the extension headers that every fragment carries (RFC 8200, section 4.5).
        for _ in 0..HEADERS_MAX {
            if next_header == protocol::FRAGMENT {
                break;
            }
            if !matches!(next_header, protocol::HOP_BY_HOP | protocol::DESTINATION_OPTIONS | protocol::ROUTING) {
                return None;
            }
            let &[next, eighths] = packet.get(at..)?.first_chunk()?;
            (named_at, next_header) = (at, next);
            at += 8 * (1 + usize::from(eighths));
        }
        let &[next, _, high, low, a, b, c, d] = packet.get(at..)?.first_chunk()?;
        let word = u16::from_be_bytes([high, low]);
        if next_header != protocol::FRAGMENT || word & 0xfff9 == 0 {
            return None;
        }
        let key = Key {
            source: *header[8..].first_chunk()?,
            destination: *header[24..].first_chunk()?,
            identification: u32::from_be_bytes([a, b, c, d]),
            protocol: 0,
            version: 6,
        };
        Some(Self {
            key,
            offset: usize::from(word & 0xfff8),
            more: word & 1 != 0,
            payload: &packet[at + 8..],
            front: &frame[..ip_at + at],
            next_header: Some((ip_at + named_at, next)),
            ip_at,
            ecn: header[1] >> 4 & 3,
        })
    }
}

/// Returns the offset of the IP header in a frame with at most one VLAN tag. Returns `None` if the
/// frame carries no IP packet.
pub fn ip_at(frame: &[u8]) -> Option<usize> {
    let ether_type = |at: usize| frame.get(at..at + 2).map(|word| u16::from_be_bytes([word[0], word[1]]));
    let at = if ether_type(12)? == ethertype::VLAN { 18 } else { 14 };
    matches!(ether_type(at - 2)?, ethertype::IPV4 | ethertype::IPV6).then_some(at)
}

#[cfg(test)]
mod tests;
