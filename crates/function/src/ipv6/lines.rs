//! Allocates the memory of tables in lines of 64 bytes.

use std::collections::BTreeMap;

use godwit_kernels::image::IPV6_LINES_MAX;

/// Range of consecutive 64-byte lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Run {
    pub(super) first: u32,
    pub(super) count: u32,
}

/// Allocator for lines of 64 bytes. Lines from index `next` on were never used, and some lines
/// before this index are free again.
#[derive(Debug)]
pub(super) struct Lines {
    next: u32,
    end: u32,
    /// First lines of the free ranges, grouped by range length.
    free: BTreeMap<u32, Vec<u32>>,
    free_count: usize,
}

impl Lines {
    /// Creates an allocator for `count` lines, all of them free.
    pub(super) fn new(count: usize) -> Self {
        Self { next: 0, end: count.min(IPV6_LINES_MAX) as u32, free: BTreeMap::new(), free_count: 0 }
    }

    /// Returns the number of 64-byte lines that were allocated at least once. All later lines are
    /// zero.
    pub(super) fn touched(&self) -> usize {
        self.next as usize
    }

    /// Returns the number of allocated lines.
    pub(super) fn used(&self) -> usize {
        self.next as usize - self.free_count
    }

    /// Sets the total number of lines to `count`, or to the number of lines ever allocated if that
    /// is larger.
    pub(super) fn limit(&mut self, count: usize) {
        self.end = count.clamp(self.next as usize, IPV6_LINES_MAX) as u32;
    }

    /// Allocates `count` consecutive lines and returns the index of the first one. Returns `None`
    /// if no free range is long enough.
    pub(super) fn take(&mut self, count: u32) -> Option<u32> {
        if let Some(first) = self.take_free(count) {
            return Some(first);
        }
        if self.end - self.next >= count {
            let first = self.next;
            self.next += count;
            return Some(first);
        }
        self.join();
        self.take_free(count)
    }

    /// Allocates memory from the shortest free range that is long enough. The rest of the range
    /// stays free.
    fn take_free(&mut self, count: u32) -> Option<u32> {
        let (&length, firsts) = self.free.range_mut(count..).next()?;
        let first = firsts.pop()?;
        if firsts.is_empty() {
            self.free.remove(&length);
        }
        self.free_count -= length as usize;
        if length > count {
            self.give(Run { first: first + count, count: length - count });
        }
        Some(first)
    }

    /// Frees a range of lines.
    pub(super) fn give(&mut self, run: Run) {
        self.free.entry(run.count).or_default().push(run.first);
        self.free_count += run.count as usize;
    }

    /// Joins adjacent free ranges.
    fn join(&mut self) {
        let mut runs: Vec<Run> = std::mem::take(&mut self.free)
            .into_iter()
            .flat_map(|(count, firsts)| firsts.into_iter().map(move |first| Run { first, count }))
            .collect();
        runs.sort_unstable();
        self.free_count = 0;
        let mut joined: Option<Run> = None;
        for run in runs {
            joined = match joined {
                Some(before) if before.first + before.count == run.first => {
                    Some(Run { count: before.count + run.count, ..before })
                }
                before => {
                    before.into_iter().for_each(|before| self.give(before));
                    Some(run)
                }
            };
        }
        match joined {
            // The last free range may end where the unused memory begins. Both are then merged.
            Some(last) if last.first + last.count == self.next => self.next = last.first,
            last => last.into_iter().for_each(|last| self.give(last)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reuses_and_joins_free_runs() {
        let mut lines = Lines::new(100);
        let first: Vec<u32> = (0..10).map(|_| lines.take(10).unwrap()).collect();
        assert_eq!(first, [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]);
        assert_eq!((lines.take(1), lines.used()), (None, 100));
        for first in [30, 10, 20] {
            lines.give(Run { first, count: 10 });
        }
        assert_eq!((lines.take(30), lines.used()), (Some(10), 100));
        lines.give(Run { first: 10, count: 30 });
        assert_eq!((lines.take(4), lines.take(26), lines.take(1)), (Some(10), Some(14), None));
        lines.give(Run { first: 90, count: 10 });
        assert_eq!(lines.take(11), None);
        lines.limit(101);
        assert_eq!((lines.take(11), lines.used()), (Some(90), 101));
    }
}
