//! Which packets of the sequence are a worker's: found without looking at the others.
//!
//! The sequence goes in turns. Each packet of a turn is a *slot* that belongs to a steering bucket, the same one in every turn; a bucket
//! has slots in proportion to its flows, and slots are shuffled once, by the seed. A worker keeps the slots of its own buckets.
//!
//! ```text
//! number    | 0  1  2  3  4  5  6  7 | 8  9 10 11 12 13 14 15 | ...
//! bucket    | 5  9  5  0  9  9  5  3 | 5  9  5  0  9  9  5  3 | ...
//! worker 1  | x  x  x     x  x  x  x | x  x  x     x  x  x  x |         of two: the odd buckets
//! ```

use godwit_packet::BUCKETS;

use super::draw::{below, draw};

/// About how many slots a turn has: enough for shares of buckets to be right within a percent, few enough to stay in a cache.
const TURN_PACKETS: u32 = 16 << 10;

/// A packet of each turn that is this worker's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// Its place in the turn.
    pub(super) place: u16,
    /// Which of this worker's groups of flows it takes one from.
    pub(super) group: u16,
}

/// The slots of one worker.
#[derive(Debug)]
pub(super) struct Schedule {
    slots: Vec<Slot>,
    /// Packets of a turn, of all workers.
    turn_packets: u64,
}

/// A packet of a schedule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    /// Its number in the sequence of all workers; `u64::MAX`: there is none.
    pub(super) sequence: u64,
    slot: usize,
    /// Number of the first packet of the turn that it is in.
    pub(super) turn_start: u64,
}

impl Schedule {
    /// Of a worker that looks at every packet, all of group 0.
    pub(super) fn all() -> Self {
        Self { slots: vec![Slot { place: 0, group: 0 }], turn_packets: 1 }
    }

    /// `flows`: how many each bucket has, not all 0. `groups`: the worker's group of flows of each bucket, `None` where it is another's.
    pub(super) fn new(seed: u64, flows: &[usize; BUCKETS], groups: &[Option<u16>; BUCKETS]) -> Self {
        let mut buckets: Vec<u8> = Vec::new();
        for (bucket, &count) in slots_per_bucket(flows).iter().enumerate() {
            buckets.extend(std::iter::repeat_n(bucket as u8, count as usize));
        }
        shuffle(seed, &mut buckets);
        let own = |(place, &bucket): (usize, &u8)| {
            groups[usize::from(bucket)].map(|group| Slot { place: place as u16, group })
        };
        Self { slots: buckets.iter().enumerate().filter_map(own).collect(), turn_packets: buckets.len() as u64 }
    }

    /// The first packet.
    pub(super) fn start(&self) -> Cursor {
        let sequence = self.slots.first().map_or(u64::MAX, |slot| u64::from(slot.place));
        Cursor { sequence, slot: 0, turn_start: 0 }
    }

    /// The way from packet to packet.
    pub(super) fn steps(&self) -> Steps<'_> {
        Steps { slots: &self.slots, turn_packets: self.turn_packets }
    }
}

/// A [`Schedule`], ready to be walked.
#[derive(Clone, Copy)]
pub(super) struct Steps<'a> {
    slots: &'a [Slot],
    turn_packets: u64,
}

impl Steps<'_> {
    #[cfg(test)]
    fn group(&self, at: Cursor) -> usize {
        usize::from(self.slots[at.slot].group)
    }

    /// At most so many of this worker's packets of the turn, from one on.
    #[inline(always)]
    pub(super) fn from(&self, at: Cursor, packets_max: usize) -> &[Slot] {
        let rest = &self.slots[at.slot..];
        &rest[..rest.len().min(packets_max)]
    }

    /// The packet `packets` packets of this worker later; at most as many as a turn has.
    #[inline(always)]
    pub(super) fn ahead(&self, at: Cursor, packets: usize) -> Cursor {
        let (mut slot, mut turn_start) = (at.slot + packets, at.turn_start);
        if slot >= self.slots.len() {
            slot -= self.slots.len();
            turn_start += self.turn_packets;
        }
        Cursor { sequence: turn_start + u64::from(self.slots[slot].place), slot, turn_start }
    }
}

/// In proportion to flows; exact where a turn has room for every flow, else at least 1 for a bucket that has any.
fn slots_per_bucket(flows: &[usize; BUCKETS]) -> [u32; BUCKETS] {
    let total: usize = flows.iter().sum();
    let room = TURN_PACKETS as usize;
    if total <= room {
        return flows.map(|count| (count * (room / total)) as u32);
    }
    let mut slots = flows.map(|count| ((count * room / total) as u32).max(u32::from(count > 0)));
    // What rounding down left over goes to those that lost most by it.
    let mut order: Vec<usize> = (0..BUCKETS).collect();
    let lost = |bucket: usize| (flows[bucket] * room) as i64 - i64::from(slots[bucket]) * total as i64;
    order.sort_by_key(|&bucket| std::cmp::Reverse(lost(bucket)));
    let left = TURN_PACKETS.saturating_sub(slots.iter().sum());
    order[..(left as usize).min(BUCKETS)].iter().for_each(|&bucket| slots[bucket] += 1);
    slots
}

/// Fisher and Yates, with numbers drawn by position.
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
        /// Every number of the sequence is exactly one worker's, whatever buckets have flows, and buckets get their shares.
        #[test]
        fn every_packet_is_one_workers(
            seed: u64,
            workers in 1usize..20,
            filled in prop::collection::btree_map(0..BUCKETS, prop_oneof![1usize..4, 1usize..1000, 1usize..100_000], 1..BUCKETS),
        ) {
            let flows: [usize; BUCKETS] = std::array::from_fn(|bucket| filled.get(&bucket).copied().unwrap_or(0));
            let total: usize = flows.iter().sum();
            let mut bucket_of = std::collections::BTreeMap::new();
            let mut turn_packets = 0;
            for worker in 0..workers {
                let own = |bucket| (bucket % workers == worker).then_some(bucket as u16);
                let schedule = Schedule::new(seed, &flows, &std::array::from_fn(own));
                turn_packets = schedule.turn_packets;
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
            prop_assert!(turn_packets <= u64::from(TURN_PACKETS) + BUCKETS as u64);
            prop_assert!(bucket_of.keys().copied().eq(0..2 * turn_packets));
            for (bucket, count) in flows.iter().enumerate() {
                let slots = bucket_of.values().filter(|&&of| of == bucket).count() as f64 / 2.0;
                let room = if total <= TURN_PACKETS as usize { turn_packets } else { u64::from(TURN_PACKETS) };
                let expected = *count as f64 / total as f64 * room as f64;
                let tolerance = if total <= TURN_PACKETS as usize { 1e-6 } else { 1.0 };
                prop_assert!((slots - expected).abs() <= tolerance, "bucket {bucket}: {slots} for {expected}");
            }
        }
    }
}
