//! Mutated frames. A frame that takes a new path through the kernel is mutated further.

/// Maximum length of a frame that grows, in bytes.
const GROWN_BYTES_MAX: usize = 1600;
/// Maximum number of frames that are mutated further.
const KNOWN_MAX: usize = 4096;
/// Bytes at limits of numbers.
const LIMITS: [u8; 8] = [0, 1, 0x0f, 0x40, 0x7f, 0x80, 0xfe, 0xff];

/// Source of mutated frames. The same seed and frames always give the same mutations.
pub(super) struct Mutator {
    state: u64,
    known: Vec<Vec<u8>>,
}

impl Mutator {
    /// Creates a source from captured frames and general frames.
    pub(super) fn new(seed: u64, captured: Vec<Vec<u8>>) -> Self {
        let mut known = captured;
        known.retain(|frame| !frame.is_empty());
        known.extend(general());
        Self { state: seed, known }
    }

    /// Adds a frame that is mutated further.
    pub(super) fn learn(&mut self, frame: Vec<u8>) {
        if self.known.len() < KNOWN_MAX {
            self.known.push(frame);
        }
    }

    /// Returns mutated frames.
    pub(super) fn frames(&mut self, count: usize) -> Vec<Vec<u8>> {
        (0..count).map(|_| self.frame()).collect()
    }

    /// Returns the next number of the SplitMix64 generator, below `end`.
    fn below(&mut self, end: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % end.max(1) as u64) as usize
    }

    fn frame(&mut self) -> Vec<u8> {
        let index = self.below(self.known.len());
        let mut frame = self.known[index].clone();
        for _ in 0..=self.below(4) {
            self.mutate(&mut frame);
        }
        frame
    }

    fn mutate(&mut self, frame: &mut Vec<u8>) {
        // Headers are at the front, so half of the changes are there.
        let end = if self.below(2) == 0 { frame.len().min(64) } else { frame.len() };
        let at = self.below(end);
        match self.below(8) {
            0 => frame[at] ^= 1 << self.below(8),
            1 => frame[at] = self.below(256) as u8,
            2 => frame[at] = LIMITS[self.below(LIMITS.len())],
            3 => frame[at] = frame[at].wrapping_add(1 + 254 * self.below(2) as u8),
            4 => frame.truncate(at.max(1)),
            5 => {
                let more = 1 + self.below(64);
                let byte = self.below(256) as u8;
                if frame.len() + more <= GROWN_BYTES_MAX {
                    frame.resize(frame.len() + more, byte);
                }
            }
            6 => {
                // A number of 16 bits.
                let number = [0, 1, 0x7fff, 0xffff, self.below(1 << 16), frame.len()][self.below(6)];
                for (byte, new) in frame[at..].iter_mut().zip((number as u16).to_be_bytes()) {
                    *byte = new;
                }
            }
            _ => {
                // The same bytes of another frame.
                let other = self.below(self.known.len());
                let length = 1 + self.below(16);
                for (byte, new) in frame[at..].iter_mut().zip(self.known[other].iter().skip(at)).take(length) {
                    *byte = *new;
                }
            }
        }
    }
}

/// Returns frames of common protocols: ARP, and UDP and TCP over IPv4 and IPv6, with and without
/// VLAN tag.
fn general() -> Vec<Vec<u8>> {
    let ethernet = |ether_type: u16, payload: &[u8]| {
        [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], &ether_type.to_be_bytes()[..], payload].concat()
    };
    let udp = [0x03, 0xe8, 0x07, 0xd0, 0, 16, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    let tcp = [0x03, 0xe8, 0x00, 0x50, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 4, 0, 0, 0, 0, 0];
    let ipv4 = |protocol: u8, payload: &[u8]| {
        let length = 20 + payload.len() as u8;
        let header = [0x45, 0, 0, length, 0, 1, 0, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 198, 51, 100, 1];
        [&header[..], payload].concat()
    };
    let ipv6 = |protocol: u8, payload: &[u8]| {
        let mut header = [0; 40];
        header[0] = 0x60;
        header[5] = payload.len() as u8;
        (header[6], header[7]) = (protocol, 64);
        [&header[..], payload].concat()
    };
    let tagged = [&[0, 7, 8, 0][..], &ipv4(17, &udp)].concat();
    vec![
        ethernet(0x0800, &ipv4(17, &udp)),
        ethernet(0x0800, &ipv4(6, &tcp)),
        ethernet(0x86dd, &ipv6(17, &udp)),
        ethernet(0x86dd, &ipv6(6, &tcp)),
        ethernet(0x8100, &tagged),
        ethernet(0x0806, &[0; 46]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutations_depend_on_the_seed_only_and_are_never_empty() {
        let run = |seed| Mutator::new(seed, vec![vec![1; 20], Vec::new()]).frames(2000);
        let frames = run(1);
        assert_eq!(frames, run(1));
        assert_ne!(frames, run(2));
        assert!(frames.iter().all(|frame| !frame.is_empty() && frame.len() <= GROWN_BYTES_MAX));
    }
}
