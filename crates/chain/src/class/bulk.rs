//! Classifies many packets at once. Each rule is compared with a block of packets, in branch-free
//! loops that the compiler vectorizes.

use godwit_wire::{IpAddress, protocol};

use super::{Classifier, Compiled, HAS_PORTS};

const BLOCK_PACKETS: usize = 64;
/// Number of rules after which the loop checks whether all packets already have a class.
const RULES_PER_CHECK: usize = 16;
/// Protocol value that no IPv4 rule matches.
const NOT_IPV4: u32 = 0x200;

/// Header fields of a block of packets, one array per field.
struct Block {
    source: [u32; BLOCK_PACKETS],
    destination: [u32; BLOCK_PACKETS],
    /// Source port (upper half) and destination port (lower half) of each packet.
    ports: [u32; BLOCK_PACKETS],
    /// Protocol number of each packet, or [`NOT_IPV4`]. The bit [`HAS_PORTS`] is set if the
    /// protocol has ports and the packet is not a fragment.
    protocol: [u32; BLOCK_PACKETS],
    /// Class of each packet, or 0 while no rule has matched it.
    class: [u32; BLOCK_PACKETS],
}

impl Classifier {
    /// Writes the class of each frame to `classes`. The result is that of
    /// [`Classifier::classify`] for each frame.
    ///
    /// The function is inlined, so that a caller can compile it for the instruction set of the
    /// machine.
    ///
    /// ```
    /// # use godwit_chain::{Classifier, Rule};
    /// # let (source, protocol, source_ports, destination_ports) = (None, None, None, None);
    /// # let destination = "10.0.0.0/8".parse().ok();
    /// # let class = 1;
    /// # let rule = Rule { class, protocol, source, destination, source_ports, destination_ports };
    /// let classifier = Classifier::new(&[rule]);
    /// let frames: [&[u8]; 2] = [&[0; 60], &[1; 60]];
    /// let mut classes = [9; 2];
    /// classifier.classify_all(frames.into_iter(), &mut classes);
    /// assert_eq!(classes, [0, 0]);
    /// ```
    #[inline(always)]
    pub fn classify_all<'a>(&self, mut frames: impl Iterator<Item = &'a [u8]>, classes: &mut [u8]) {
        let mut block = Block::new();
        for classes in classes.chunks_mut(BLOCK_PACKETS) {
            for packet in 0..classes.len() {
                let frame = frames.next().unwrap_or_default();
                if !block.read_common(packet, frame) {
                    self.read_other(&mut block, packet, frame);
                }
            }
            block.compare(&self.v4);
            for (class, found) in classes.iter_mut().zip(&block.class) {
                *class = *found as u8;
            }
        }
    }

    /// Reads the addresses, protocol and ports of an IPv4 packet into the block. Any other packet
    /// is classified immediately.
    #[cold]
    #[inline(never)]
    fn read_other(&self, block: &mut Block, packet: usize, frame: &[u8]) {
        let parsed = godwit_wire::parse(frame);
        let five_tuple = parsed.five_tuple.map(|tuple| (tuple.source, tuple.destination, tuple));
        if let Some((IpAddress::V4(source), IpAddress::V4(destination), tuple)) = five_tuple {
            let has_ports = protocol::has_ports(tuple.protocol) && !parsed.fragment;
            block.source[packet] = u32::from_be_bytes(source);
            block.destination[packet] = u32::from_be_bytes(destination);
            block.ports[packet] = u32::from(tuple.source_port) << 16 | u32::from(tuple.destination_port);
            block.protocol[packet] = u32::from(tuple.protocol) | if has_ports { HAS_PORTS.into() } else { 0 };
            block.class[packet] = 0;
        } else {
            block.protocol[packet] = NOT_IPV4;
            block.class[packet] = self.classify(&parsed).into();
        }
    }
}

impl Block {
    fn new() -> Self {
        let column = [0; BLOCK_PACKETS];
        Self { source: column, destination: column, ports: column, protocol: [NOT_IPV4; BLOCK_PACKETS], class: column }
    }

    /// Reads a frame with the most common headers: Ethernet without a VLAN tag, IPv4 without
    /// options, and UDP or TCP. Returns false for all other frames and for fragments.
    #[inline(always)]
    fn read_common(&mut self, packet: usize, frame: &[u8]) -> bool {
        let Some(header) = frame.first_chunk::<38>() else { return false };
        let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let is_plain_ipv4 = word(12) >> 8 == 0x08_0045;
        let is_fragment = word(20) >> 16 & 0x3fff != 0;
        let protocol = header[23];
        let has_ports = (protocol == protocol::UDP) | (protocol == protocol::TCP);
        let packet_bytes = (word(16) >> 16) as usize;
        let is_whole = (packet_bytes >= 24) & (packet_bytes + 14 <= frame.len());
        self.source[packet] = word(26);
        self.destination[packet] = word(30);
        self.ports[packet] = word(34);
        self.protocol[packet] = u32::from(protocol) | u32::from(HAS_PORTS);
        self.class[packet] = 0;
        is_plain_ipv4 & !is_fragment & has_ports & is_whole
    }

    /// Sets the class of each packet to that of the first matching rule.
    #[inline(always)]
    fn compare(&mut self, rules: &[Compiled<u32>]) {
        for rules in rules.chunks(RULES_PER_CHECK) {
            for rule in rules {
                self.compare_rule(rule);
            }
            if self.class.iter().all(|class| *class != 0) {
                return;
            }
        }
    }

    #[inline(always)]
    fn compare_rule(&mut self, rule: &Compiled<u32>) {
        let (value, mask) = (u32::from(rule.protocol.0), u32::from(rule.protocol.1) | NOT_IPV4);
        let (source_low, source_span) = (u32::from(rule.source_ports.low), u32::from(rule.source_ports.span));
        let (low, span) = (u32::from(rule.destination_ports.low), u32::from(rule.destination_ports.span));
        for packet in 0..BLOCK_PACKETS {
            let differs = ((self.source[packet] ^ rule.source.0) & rule.source.1)
                | ((self.destination[packet] ^ rule.destination.0) & rule.destination.1)
                | ((self.protocol[packet] ^ value) & mask);
            let ports = self.ports[packet];
            // One comparison checks both ends of a port range. For a port below the range, the
            // subtraction wraps around to a number above 65535.
            let is_outside =
                ((ports >> 16).wrapping_sub(source_low) > source_span) | ((ports & 0xffff).wrapping_sub(low) > span);
            let is_match = (differs == 0) & !is_outside & (self.class[packet] == 0);
            self.class[packet] |= u32::from(rule.class) & u32::from(is_match).wrapping_neg();
        }
    }
}
