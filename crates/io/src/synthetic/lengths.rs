//! Lengths of frames: a shuffled cycle in which each length has its share, so that what lies before a packet is known without adding it up.

use super::draw::{Shares, draw};
use super::schedule::{Slot, shuffle};
use super::units::Size;

/// Packets of a cycle. A prime above any turn of a schedule: no slot meets the same lengths again and again.
const CYCLE_PACKETS: usize = 16519;

/// Lengths of all packets of a sequence.
#[derive(Debug)]
pub(super) enum Lengths {
    /// All of one length, bytes.
    Fixed(u16),
    /// In a cycle.
    Cycle(Box<Cycle>),
}

#[derive(Debug)]
pub(super) struct Cycle {
    bytes: Vec<u16>,
    /// Bytes of the packets of a cycle before each.
    before: Vec<u32>,
    total_bytes: u64,
    longest: u16,
}

impl Lengths {
    /// `headers_bytes`: no frame is shorter.
    pub(super) fn new(seed: u64, size: &Size, headers_bytes: u16) -> Self {
        let shares = Shares::new(size, headers_bytes);
        if let Shares::Fixed(bytes) = shares {
            return Self::Fixed(bytes);
        }
        // One random number from the middle of each of equal parts.
        let random = |packet: usize| (((2 * packet as u64 + 1) << 31) / CYCLE_PACKETS as u64) as u32;
        let mut bytes: Vec<u16> = (0..CYCLE_PACKETS).map(|packet| shares.pick(random(packet))).collect();
        shuffle(draw(seed, u64::MAX / 5), &mut bytes);
        let before =
            bytes.iter().scan(0, |sum, &bytes| Some(std::mem::replace(sum, *sum + u32::from(bytes)))).collect();
        let total_bytes = bytes.iter().map(|&bytes| u64::from(bytes)).sum();
        let longest = bytes.iter().copied().max().unwrap_or(0);
        Self::Cycle(Box::new(Cycle { bytes, before, total_bytes, longest }))
    }

    /// The length of all packets, where there is only one.
    pub(super) fn fixed(&self) -> Option<u16> {
        match self {
            Self::Fixed(bytes) => Some(*bytes),
            Self::Cycle(_) => None,
        }
    }

    /// Of packet `sequence`.
    #[inline(always)]
    pub(super) fn bytes(&self, sequence: u64) -> u16 {
        match self {
            Self::Fixed(bytes) => *bytes,
            Self::Cycle(cycle) => cycle.bytes[(sequence % CYCLE_PACKETS as u64) as usize],
        }
    }

    /// The longest, bytes.
    pub(super) fn longest(&self) -> u16 {
        match self {
            Self::Fixed(bytes) => *bytes,
            Self::Cycle(cycle) => cycle.longest,
        }
    }

    /// Of packets of one turn of a schedule, which begins with packet `turn_start`: written to `lengths`, as many as there are slots.
    /// Lengths that are all alike are left as they are.
    #[inline(always)]
    pub(super) fn of_slots(&self, turn_start: u64, slots: &[Slot], lengths: &mut [u16]) {
        let Self::Cycle(cycle) = self else { return };
        // A turn is shorter than a cycle: one division does for all of them.
        let first = (turn_start % CYCLE_PACKETS as u64) as usize;
        for (length, slot) in lengths.iter_mut().zip(slots) {
            let packet = first + usize::from(slot.place);
            *length = cycle.bytes[packet.checked_sub(CYCLE_PACKETS).unwrap_or(packet)];
        }
    }

    /// Of all packets before packet `sequence`.
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

    /// Mean length, bytes.
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
        let slots: Vec<Slot> = (0..CYCLE_PACKETS as u16 - 1).step_by(7).map(|place| Slot { place, group: 0 }).collect();
        for size in [Size::Fixed(61), Size::Imix, Size::Uniform { min: 60, max: 1514 }] {
            let lengths = Lengths::new(3, &size, 42);
            let mut longest = 0;
            for turn_start in [0, 16384, 2 * 16384, u64::MAX - 40_000] {
                let mut found = vec![lengths.fixed().unwrap_or(0); slots.len()];
                lengths.of_slots(turn_start, &slots, &mut found);
                let packets = slots.iter().map(|slot| turn_start + u64::from(slot.place));
                assert_eq!(found, packets.map(|packet| lengths.bytes(packet)).collect::<Vec<_>>());
                longest = found.into_iter().fold(longest, u16::max);
            }
            assert_eq!(lengths.longest(), longest);
        }
    }
}
