//! Places in the table image: which are free.

use std::collections::BTreeMap;
use std::ops::Range;

use godwit_packet::BUCKETS;

/// Places of SAs. The place says which bucket steers the SA's packets, so buckets are filled evenly.
pub(super) struct Places {
    capacity: u32,
    /// Per bucket: those that were used before.
    freed: Vec<Vec<u32>>,
    /// Per bucket: how many were ever used.
    used: Vec<u32>,
    /// The bucket that comes next.
    next: usize,
}

impl Places {
    /// `capacity`: a multiple of [`BUCKETS`].
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity: capacity as u32, freed: vec![Vec::new(); BUCKETS], used: vec![0; BUCKETS], next: 0 }
    }

    /// A place of any bucket.
    pub(super) fn take(&mut self) -> Option<u32> {
        (0..BUCKETS).find_map(|_| {
            let bucket = self.next;
            self.next = (bucket + 1) % BUCKETS;
            self.take_of(bucket)
        })
    }

    /// A place of this bucket.
    pub(super) fn take_of(&mut self, bucket: usize) -> Option<u32> {
        if let Some(place) = self.freed[bucket].pop() {
            return Some(place);
        }
        let place = self.used[bucket] * BUCKETS as u32 + bucket as u32;
        (place < self.capacity).then(|| {
            self.used[bucket] += 1;
            place
        })
    }

    pub(super) fn give_back(&mut self, place: u32) {
        self.freed[place as usize % BUCKETS].push(place);
    }
}

/// Places of selectors, of which an SA has several in a row.
pub(super) struct Runs {
    /// First place to how many are free from there on; no two of them touch.
    free: BTreeMap<u32, u32>,
}

impl Runs {
    /// All places but the first ones.
    pub(super) fn new(places: Range<u32>) -> Self {
        Self { free: BTreeMap::from([(places.start, places.end.saturating_sub(places.start))]) }
    }

    pub(super) fn take(&mut self, count: u32) -> Option<Range<u32>> {
        let (&start, &free) = self.free.iter().find(|(_, free)| **free >= count)?;
        self.free.remove(&start);
        if free > count {
            self.free.insert(start + count, free - count);
        }
        Some(start..start + count)
    }

    pub(super) fn give_back(&mut self, run: Range<u32>) {
        let (mut start, mut count) = (run.start, run.end - run.start);
        if let Some((&before, &free)) = self.free.range(..start).next_back()
            && before + free == start
        {
            (start, count) = (before, free + count);
        }
        if let Some(behind) = self.free.remove(&run.end) {
            count += behind;
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
    fn all_places_are_handed_out_evenly_and_once() {
        let mut places = Places::new(3 * BUCKETS);
        let all: Vec<u32> = std::iter::from_fn(|| places.take()).collect();
        assert_eq!(all, (0..3 * BUCKETS as u32).collect::<Vec<_>>());
        places.give_back(130);
        assert_eq!((places.take_of(3), places.take_of(2), places.take()), (None, Some(130), None));
    }

    proptest! {
        #[test]
        fn runs_never_overlap_and_come_together_again(changes in prop::collection::vec((0..6u32, any::<u16>()), 0..200)) {
            let (mut runs, mut taken, mut held) = (Runs::new(1..65), HashSet::new(), Vec::<Range<u32>>::new());
            for (count, which) in changes {
                if count == 0 {
                    if !held.is_empty() {
                        let run = held.swap_remove(usize::from(which) % held.len());
                        run.clone().for_each(|place| assert!(taken.remove(&place)));
                        runs.give_back(run);
                    }
                } else if let Some(run) = runs.take(count) {
                    prop_assert_eq!(run.len(), count as usize);
                    prop_assert!(run.clone().all(|place| (1..65).contains(&place) && taken.insert(place)));
                    held.push(run);
                }
            }
            held.into_iter().for_each(|run| runs.give_back(run));
            prop_assert_eq!(runs.free, BTreeMap::from([(1, 64)]));
        }
    }
}
