//! Selects the packets of a worker without computing the packets of other workers.
//!
//! The sequence of packets consists of rounds. Each position in a round is a *slot*. A slot belongs
//! to the same hash bucket in every round. A bucket with more flows has proportionally more slots,
//! and the seed determines the order of the slots. A worker keeps the slots of the hash buckets
//! that it owns:
//!
//! ```text
//! number    | 0  1  2  3  4  5  6  7 | 8  9 10 11 12 13 14 15 | ...
//! bucket    | 5  9  5  0  9  9  5  3 | 5  9  5  0  9  9  5  3 | ...
//! worker 1  | x  x  x     x  x  x  x | x  x  x     x  x  x  x |    of two: the odd buckets
//! ```

use godwit_packet::BUCKETS;

use super::draw::{below, draw};

/// Approximate period of the schedule in packets. With this period, the fraction of packets in each
/// hash bucket is correct within 1 %, and the schedule fits into a cache.
const ROUND_PACKETS: u32 = 16 << 10;

/// A position in the packet sequence whose packet belongs to this worker. The sequence consists of
/// rounds, and the position is the same in every round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// Position of the packet in the round.
    pub(super) position: u16,
    /// Group of flows to which the packet belongs.
    pub(super) group: u16,
}

/// Positions of one worker's packets in a round, which is a section of the packet sequence. The
/// positions are the same in every round.
#[derive(Debug)]
pub(super) struct Schedule {
    slots: Vec<Slot>,
    /// Number of packets of all workers in a round.
    round_packets: u64,
}

/// Position of a packet in a schedule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    /// Sequence number of the packet among the packets of all workers, or `u64::MAX` if there is no
    /// packet.
    pub(super) sequence: u64,
    slot: usize,
    /// Sequence number of the first packet of the round.
    pub(super) round_start: u64,
}

impl Schedule {
    /// Creates a schedule that contains every packet of the sequence. The worker then examines all
    /// packets, and all packets belong to flow group 0.
    pub(super) fn all() -> Self {
        Self { slots: vec![Slot { position: 0, group: 0 }], round_packets: 1 }
    }

    /// Creates the schedule of a worker. `flows` contains the number of flows in each hash bucket,
    /// and at least one number must not be 0. `groups` contains the flow group of each hash bucket,
    /// or `None` if the bucket belongs to another worker.
    pub(super) fn new(seed: u64, flows: &[usize; BUCKETS], groups: &[Option<u16>; BUCKETS]) -> Self {
        let mut buckets: Vec<u8> = Vec::new();
        for (bucket, &count) in slots_per_bucket(flows).iter().enumerate() {
            buckets.extend(std::iter::repeat_n(bucket as u8, count as usize));
        }
        shuffle(seed, &mut buckets);
        let own = |(position, &bucket): (usize, &u8)| {
            groups[usize::from(bucket)].map(|group| Slot { position: position as u16, group })
        };
        Self { slots: buckets.iter().enumerate().filter_map(own).collect(), round_packets: buckets.len() as u64 }
    }

    /// Returns the position of the worker's first packet.
    pub(super) fn start(&self) -> Cursor {
        let sequence = self.slots.first().map_or(u64::MAX, |slot| u64::from(slot.position));
        Cursor { sequence, slot: 0, round_start: 0 }
    }

    pub(super) fn steps(&self) -> Steps<'_> {
        Steps { slots: &self.slots, round_packets: self.round_packets }
    }
}

/// Moves through a [`Schedule`], from one packet of the worker to the next.
#[derive(Clone, Copy)]
pub(super) struct Steps<'a> {
    slots: &'a [Slot],
    round_packets: u64,
}

impl Steps<'_> {
    #[cfg(test)]
    fn group(&self, at: Cursor) -> usize {
        usize::from(self.slots[at.slot].group)
    }

    #[inline(always)]
    pub(super) fn from(&self, at: Cursor, packets_max: usize) -> &[Slot] {
        let rest = &self.slots[at.slot..];
        &rest[..rest.len().min(packets_max)]
    }

    /// Returns the position that lies `packets` of this worker's packets after `at`. `packets` must
    /// not exceed the worker's number of packets per round.
    #[inline(always)]
    pub(super) fn ahead(&self, at: Cursor, packets: usize) -> Cursor {
        let (mut slot, mut round_start) = (at.slot + packets, at.round_start);
        if slot >= self.slots.len() {
            slot -= self.slots.len();
            round_start += self.round_packets;
        }
        Cursor { sequence: round_start + u64::from(self.slots[slot].position), slot, round_start }
    }
}

/// Returns the number of packets in a round for each hash bucket, in proportion to the number of
/// its flows. If a round is too short for a packet of every flow, each hash bucket with flows still
/// gets at least one packet.
fn slots_per_bucket(flows: &[usize; BUCKETS]) -> [u32; BUCKETS] {
    let total: usize = flows.iter().sum();
    let room = ROUND_PACKETS as usize;
    if total <= room {
        return flows.map(|count| (count * (room / total)) as u32);
    }
    let mut slots = flows.map(|count| ((count * room / total) as u32).max(u32::from(count > 0)));
    // Rounding down assigns too few packets to the hash buckets. The remaining packets go to the
    // buckets that lost most by rounding.
    let mut order: Vec<usize> = (0..BUCKETS).collect();
    let lost = |bucket: usize| (flows[bucket] * room) as i64 - i64::from(slots[bucket]) * total as i64;
    order.sort_by_key(|&bucket| std::cmp::Reverse(lost(bucket)));
    let left = ROUND_PACKETS.saturating_sub(slots.iter().sum());
    order[..(left as usize).min(BUCKETS)].iter().for_each(|&bucket| slots[bucket] += 1);
    slots
}

/// Shuffles the items with the Fisher-Yates algorithm. The random numbers depend only on `seed`.
pub(super) fn shuffle<T>(seed: u64, items: &mut [T]) {
    for last in (1..items.len()).rev() {
        items.swap(last, below(draw(seed, last as u64) as u32, last as u32 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Checks that every packet of the sequence belongs to exactly one worker. Also checks the
        /// number of packets in each hash bucket.
        #[test]
        fn every_packet_has_one_worker(
            seed: u64,
            workers in 1usize..20,
            filled in prop::collection::btree_map(0..BUCKETS, prop_oneof![1usize..4, 1usize..1000, 1usize..100_000], 1..BUCKETS),
        ) {
            let flows: [usize; BUCKETS] = std::array::from_fn(|bucket| filled.get(&bucket).copied().unwrap_or(0));
            let total: usize = flows.iter().sum();
            let mut bucket_of = std::collections::BTreeMap::new();
            let mut round_packets = 0;
            for worker in 0..workers {
                let own = |bucket| (bucket % workers == worker).then_some(bucket as u16);
                let schedule = Schedule::new(seed, &flows, &std::array::from_fn(own));
                round_packets = schedule.round_packets;
                let (mut at, steps) = (schedule.start(), schedule.steps());
                for _ in 0..2 * schedule.slots.len() {
                    let bucket = steps.group(at);
                    prop_assert!(flows[bucket] > 0 && bucket % workers == worker);
                    prop_assert_eq!(bucket_of.insert(at.sequence, bucket), None);
                    let next = steps.ahead(at, 1);
                    prop_assert!(next.sequence > at.sequence);
                    at = next;
                }
                prop_assert_eq!(schedule.slots.is_empty(), schedule.start().sequence == u64::MAX);
            }
            prop_assert!(round_packets <= u64::from(ROUND_PACKETS) + BUCKETS as u64);
            prop_assert!(bucket_of.keys().copied().eq(0..2 * round_packets));
            for (bucket, count) in flows.iter().enumerate() {
                let slots = bucket_of.values().filter(|&&other| other == bucket).count() as f64 / 2.0;
                let room = if total <= ROUND_PACKETS as usize { round_packets } else { u64::from(ROUND_PACKETS) };
                let expected = *count as f64 / total as f64 * room as f64;
                let tolerance = if total <= ROUND_PACKETS as usize { 1e-6 } else { 1.0 };
                prop_assert!((slots - expected).abs() <= tolerance, "bucket {bucket}: {slots} for {expected}");
            }
        }
    }
}
