//! Allocates slots for SAs and selectors in the table image, which the kernel reads.

use std::collections::BTreeMap;
use std::ops::Range;

use godwit_packet::BUCKETS;

/// Allocator of slots for SAs in the table image. The slot of an SA determines its steering bucket,
/// which selects the worker of its packets. The allocator fills all buckets evenly.
pub(super) struct SlotAllocator {
    capacity: u32,
    /// Free slots of each bucket that were in use before.
    freed: Vec<Vec<u32>>,
    /// Number of slots in each bucket that were allocated at least once.
    used: Vec<u32>,
    /// Bucket from which the next slot is allocated.
    next: usize,
}

impl SlotAllocator {
    /// Creates an allocator for `capacity` slots, which must be a multiple of [`BUCKETS`].
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity: capacity as u32, freed: vec![Vec::new(); BUCKETS], used: vec![0; BUCKETS], next: 0 }
    }

    pub(super) fn allocate(&mut self) -> Option<u32> {
        (0..BUCKETS).find_map(|_| {
            let bucket = self.next;
            self.next = (bucket + 1) % BUCKETS;
            self.allocate_in(bucket)
        })
    }

    pub(super) fn allocate_in(&mut self, bucket: usize) -> Option<u32> {
        if let Some(slot) = self.freed[bucket].pop() {
            return Some(slot);
        }
        let slot = self.used[bucket] * BUCKETS as u32 + bucket as u32;
        (slot < self.capacity).then(|| {
            self.used[bucket] += 1;
            slot
        })
    }

    pub(super) fn free(&mut self, slot: u32) {
        self.freed[slot as usize % BUCKETS].push(slot);
    }
}

/// Allocator of slots for selectors in the table image. The selectors of an SA occupy consecutive
/// slots.
pub(super) struct RangeAllocator {
    /// Free ranges, each with its first slot and its number of slots. Adjacent ranges are merged.
    free: BTreeMap<u32, u32>,
}

impl RangeAllocator {
    pub(super) fn new(slots: Range<u32>) -> Self {
        Self { free: BTreeMap::from([(slots.start, slots.end.saturating_sub(slots.start))]) }
    }

    pub(super) fn allocate(&mut self, count: u32) -> Option<Range<u32>> {
        let (&start, &free) = self.free.iter().find(|(_, free)| **free >= count)?;
        self.free.remove(&start);
        if free > count {
            self.free.insert(start + count, free - count);
        }
        Some(start..start + count)
    }

    pub(super) fn free(&mut self, range: Range<u32>) {
        let (mut start, mut count) = (range.start, range.end - range.start);
        if let Some((&before, &free)) = self.free.range(..start).next_back()
            && before + free == start
        {
            (start, count) = (before, free + count);
        }
        if let Some(after) = self.free.remove(&range.end) {
            count += after;
        }
        self.free.insert(start, count);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn allocates_every_slot_once_and_evenly() {
        let mut slots = SlotAllocator::new(3 * BUCKETS);
        let all: Vec<u32> = std::iter::from_fn(|| slots.allocate()).collect();
        assert_eq!(all, (0..3 * BUCKETS as u32).collect::<Vec<_>>());
        slots.free(130);
        assert_eq!((slots.allocate_in(3), slots.allocate_in(2), slots.allocate()), (None, Some(130), None));
    }

    proptest! {
        #[test]
        fn ranges_never_overlap_and_merge_when_freed(changes in prop::collection::vec((0..6u32, any::<u16>()), 0..200)) {
            let (mut ranges, mut taken, mut held) = (RangeAllocator::new(1..65), HashSet::new(), Vec::<Range<u32>>::new());
            for (count, index) in changes {
                if count == 0 {
                    if !held.is_empty() {
                        let range = held.swap_remove(usize::from(index) % held.len());
                        range.clone().for_each(|slot| assert!(taken.remove(&slot)));
                        ranges.free(range);
                    }
                } else if let Some(range) = ranges.allocate(count) {
                    prop_assert_eq!(range.len(), count as usize);
                    prop_assert!(range.clone().all(|slot| (1..65).contains(&slot) && taken.insert(slot)));
                    held.push(range);
                }
            }
            held.into_iter().for_each(|range| ranges.free(range));
            prop_assert_eq!(ranges.free, BTreeMap::from([(1, 64)]));
        }
    }
}
