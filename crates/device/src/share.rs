//! Groups of one lane split between functions: each named function has groups of its own, by share.
//!
//! ```text
//! groups of a lane   | 0 | 1 | 2 | 3 | 4 | 5 |        share: esp 2, dpi 1
//! bins of esp          ^^^^^^^^^^^^^^^
//! bins of dpi                          ^^^^^^
//! bins of others       ^^^^^^^^^^^^^^^^^^^^^^         any group serves them
//! ```
//! Where nothing is said, every group serves every function. A queue holds the bins of functions with the same groups, so that
//! bins which wait for their groups hold up no others.

use std::collections::VecDeque;
use std::ops::Range;

/// Which groups serve which programs, and the bins that wait for them.
#[derive(Debug)]
pub(crate) struct Split {
    /// Per queue: the groups that serve its bins.
    groups: Vec<Range<usize>>,
    /// Per program its queue; programs behind the end have queue 0, which every group serves.
    queue_of: Vec<usize>,
    /// Per queue: number of the chunk, index of the bin.
    waiting: Vec<VecDeque<(u64, usize)>>,
}

impl Split {
    /// Of `groups` groups, by the share of each program; 0: any group serves it.
    ///
    /// # Panics
    /// When there are fewer groups than programs with a share: [`least`] says how many there must be.
    pub(crate) fn new(groups: usize, shares: &[u32]) -> Self {
        assert!(groups >= least(shares), "{groups} groups for {shares:?}");
        let mut ranges = Vec::with_capacity(1 + shares.len());
        ranges.push(0..groups);
        let mut queue_of = vec![0; shares.len()];
        let mut at = 0;
        for (program, count) in counts(groups, shares) {
            queue_of[program] = ranges.len();
            ranges.push(at..at + count);
            at += count;
        }
        let waiting = ranges.iter().map(|_| VecDeque::new()).collect();
        Self { groups: ranges, queue_of, waiting }
    }

    /// A bin of this program is to go to a group.
    pub(crate) fn wait(&mut self, program: usize, chunk: u64, bin: usize) {
        let queue = self.queue_of.get(program).copied().unwrap_or(0);
        self.waiting[queue].push_back((chunk, bin));
    }

    /// Gives bins to groups, each queue's oldest first and those that any group serves last, until none that waits finds a place:
    /// `place` takes one and the groups that serve it, or says that they have no place.
    pub(crate) fn give(&mut self, mut place: impl FnMut(u64, usize, Range<usize>) -> bool) {
        for queue in (1..self.waiting.len()).chain([0]) {
            let (waiting, groups) = (&mut self.waiting[queue], &self.groups[queue]);
            while let Some(&(chunk, bin)) = waiting.front() {
                if !place(chunk, bin, groups.clone()) {
                    break;
                }
                waiting.pop_front();
            }
        }
    }

    /// Nothing waits any more.
    pub(crate) fn clear(&mut self) {
        self.waiting.iter_mut().for_each(VecDeque::clear);
    }
}

/// Programs with a share and how many groups each has: one at least, and the next always to whom most is owed.
fn counts(groups: usize, shares: &[u32]) -> Vec<(usize, usize)> {
    let named = shares.iter().enumerate().filter(|(_, share)| **share > 0);
    let mut counts: Vec<(usize, usize)> = named.map(|(program, _)| (program, 1)).collect();
    for _ in counts.len()..groups {
        // D'Hondt's quotients.
        let owed = |(program, count): &(usize, usize)| f64::from(shares[*program]) / (*count as f64 + 1.0);
        let Some(most) = counts.iter_mut().reduce(|one, next| if owed(next) > owed(one) { next } else { one }) else {
            break;
        };
        most.1 += 1;
    }
    counts
}

/// Groups that a lane must have at least: one for each program with a share.
pub(crate) fn least(shares: &[u32]) -> usize {
    shares.iter().filter(|share| **share > 0).count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(groups: usize, shares: &[u32]) -> Vec<usize> {
        let split = Split::new(groups, shares);
        let mut next = 0;
        for range in &split.groups[1..] {
            assert_eq!(range.start, next, "{groups} for {shares:?}: {split:?}");
            next = range.end;
        }
        assert!(next == groups || split.groups.len() == 1, "{groups} for {shares:?}: {split:?}");
        split.groups[1..].iter().map(Range::len).collect()
    }

    #[test]
    fn groups_are_split_by_share_and_none_is_left_over() {
        assert_eq!(split(6, &[2, 1]), [4, 2]);
        assert_eq!(split(64, &[1, 1]), [32, 32]);
        assert_eq!(split(32, &[3, 0, 1]), [24, 8]);
        assert_eq!(split(3, &[1, 1000, 1]), [1, 1, 1]);
        assert_eq!(split(2, &[7, 7]), [1, 1]);
        assert_eq!(split(5, &[0, 9]), [5]);
        assert_eq!(split(1, &[]), [0; 0]);
        for groups in 3..100 {
            for shares in [[1, 1, 1], [1, 2, 3], [u32::MAX, 1, 1]] {
                let counts = split(groups, &shares);
                assert!(counts.iter().all(|count| *count > 0), "{groups} for {shares:?}: {counts:?}");
            }
        }
    }

    #[test]
    fn bins_that_wait_hold_up_none_of_others() {
        let mut split = Split::new(2, &[1, 1]);
        for bin in 0..3 {
            split.wait(0, 7, bin);
        }
        split.wait(1, 7, 3);
        split.wait(9, 8, 0);
        let mut given = Vec::new();
        // The first group takes one bin, the second as many as come.
        let mut free = 1;
        split.give(|chunk, bin, groups| {
            let takes = groups.contains(&1) || free > 0;
            free -= usize::from(takes && !groups.contains(&1));
            takes.then(|| given.push((chunk, bin, groups))).is_some()
        });
        assert_eq!(given, [(7, 0, 0..1), (7, 3, 1..2), (8, 0, 0..2)]);
        let mut rest = Vec::new();
        split.give(|chunk, bin, _| {
            rest.push((chunk, bin));
            true
        });
        assert_eq!(rest, [(7, 1), (7, 2)]);
        split.wait(0, 9, 0);
        split.clear();
        split.give(|_, _, _| panic!("nothing waits"));
    }
}
