//! Lengths of the frames in a sequence of packets. The lengths repeat in a shuffled cycle, which
//! contains each length in the configured proportion. The total length of all packets before a
//! given packet is therefore cheap to compute.

use super::draw::{Shares, draw};
use super::schedule::{Slot, shuffle};
use super::units::Size;

/// Number of packets after which the lengths repeat. This number is prime, and larger than the
/// period of the schedule. The two periods therefore do not coincide.
const CYCLE_PACKETS: usize = 16519;

/// Frame lengths of all packets in a sequence.
#[derive(Debug)]
pub(super) enum Lengths {
    /// All packets have this length, in bytes.
    Fixed(u16),
    /// The frame lengths repeat in a cycle.
    Cycle(Box<Cycle>),
}

#[derive(Debug)]
pub(super) struct Cycle {
    bytes: Vec<u16>,
    /// For each packet of the cycle, the total length in bytes of all packets before it.
    before: Vec<u32>,
    total_bytes: u64,
    longest: u16,
}

impl Lengths {
    /// Creates the frame lengths of a packet sequence. A length below `headers_bytes` becomes
    /// `headers_bytes`.
    pub(super) fn new(seed: u64, size: &Size, headers_bytes: u16) -> Self {
        let shares = Shares::new(size, headers_bytes);
        if let Shares::Fixed(bytes) = shares {
            return Self::Fixed(bytes);
        }
        // The midpoints of equal intervals replace random numbers. Each length therefore gets its
        // exact proportion.
        let random = |packet: usize| (((2 * packet as u64 + 1) << 31) / CYCLE_PACKETS as u64) as u32;
        let mut bytes: Vec<u16> = (0..CYCLE_PACKETS).map(|packet| shares.pick(random(packet))).collect();
        shuffle(draw(seed, u64::MAX / 5), &mut bytes);
        let before =
            bytes.iter().scan(0, |sum, &bytes| Some(std::mem::replace(sum, *sum + u32::from(bytes)))).collect();
        let total_bytes = bytes.iter().map(|&bytes| u64::from(bytes)).sum();
        let longest = bytes.iter().copied().max().unwrap_or(0);
        Self::Cycle(Box::new(Cycle { bytes, before, total_bytes, longest }))
    }

    pub(super) fn fixed(&self) -> Option<u16> {
        match self {
            Self::Fixed(bytes) => Some(*bytes),
            Self::Cycle(_) => None,
        }
    }

    #[inline(always)]
    pub(super) fn bytes(&self, sequence: u64) -> u16 {
        match self {
            Self::Fixed(bytes) => *bytes,
            Self::Cycle(cycle) => cycle.bytes[(sequence % CYCLE_PACKETS as u64) as usize],
        }
    }

    /// Returns the length of the longest packet in bytes.
    pub(super) fn longest(&self) -> u16 {
        match self {
            Self::Fixed(bytes) => *bytes,
            Self::Cycle(cycle) => cycle.longest,
        }
    }

    /// Writes the frame lengths of the packets in `slots` to `lengths`. The slots belong to the
    /// round that begins with packet number `round_start`. If all frames have the same length,
    /// `lengths` stays unchanged.
    #[inline(always)]
    pub(super) fn of_slots(&self, round_start: u64, slots: &[Slot], lengths: &mut [u16]) {
        let Self::Cycle(cycle) = self else { return };
        // The lengths repeat after `CYCLE_PACKETS` packets, and all positions in a round are below
        // this number. One division is therefore enough for all packets.
        let first = (round_start % CYCLE_PACKETS as u64) as usize;
        for (length, slot) in lengths.iter_mut().zip(slots) {
            let packet = first + usize::from(slot.position);
            *length = cycle.bytes[packet.checked_sub(CYCLE_PACKETS).unwrap_or(packet)];
        }
    }

    #[inline(always)]
    pub(super) fn bytes_before(&self, sequence: u64) -> u64 {
        match self {
            Self::Fixed(bytes) => sequence * u64::from(*bytes),
            Self::Cycle(cycle) => {
                let (cycles, packet) = (sequence / CYCLE_PACKETS as u64, sequence % CYCLE_PACKETS as u64);
                cycles * cycle.total_bytes + u64::from(cycle.before[packet as usize])
            }
        }
    }

    /// Returns the average length of all packets in bytes.
    pub(super) fn mean_bytes(&self) -> f64 {
        match self {
            Self::Fixed(bytes) => f64::from(*bytes),
            Self::Cycle(cycle) => cycle.total_bytes as f64 / CYCLE_PACKETS as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_before_are_the_sum_of_lengths() {
        for size in [Size::Fixed(61), Size::Imix, Size::Uniform { min: 60, max: 1514 }] {
            let lengths = Lengths::new(3, &size, 42);
            let mut sum = 0;
            for packet in 0..40_000 {
                assert_eq!(lengths.bytes_before(packet), sum);
                sum += u64::from(lengths.bytes(packet));
            }
            assert!((sum as f64 / 40_000.0 / lengths.mean_bytes() - 1.0).abs() < 0.01);
        }
    }

    #[test]
    fn slots_have_the_lengths_of_their_packets() {
        let slots: Vec<Slot> =
            (0..CYCLE_PACKETS as u16 - 1).step_by(7).map(|position| Slot { position, group: 0 }).collect();
        for size in [Size::Fixed(61), Size::Imix, Size::Uniform { min: 60, max: 1514 }] {
            let lengths = Lengths::new(3, &size, 42);
            let mut longest = 0;
            for round_start in [0, 16384, 2 * 16384, u64::MAX - 40_000] {
                let mut found = vec![lengths.fixed().unwrap_or(0); slots.len()];
                lengths.of_slots(round_start, &slots, &mut found);
                let packets = slots.iter().map(|slot| round_start + u64::from(slot.position));
                assert_eq!(found, packets.map(|packet| lengths.bytes(packet)).collect::<Vec<_>>());
                longest = found.into_iter().fold(longest, u16::max);
            }
            assert_eq!(lengths.longest(), longest);
        }
    }
}
