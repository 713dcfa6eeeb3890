//! Groups of one lane split between functions: each named function has groups of its own, by share.
//!
//! ```text
//! groups of a lane   | 0 | 1 | 2 | 3 | 4 | 5 |        share: esp 2, dpi 1
//! bins of esp          ^^^^^^^^^^^^^^^
//! bins of dpi                          ^^^^^^
//! bins of others       ^^^^^^^^^^^^^^^^^^^^^^         any group serves them
//! ```
//! Where nothing is said, every group serves every function. A queue holds the bins of functions with the same groups, so that
//! bins which wait for their groups hold up no others. Parts of a bin of several variants ([`godwit_abi::Bin::part`]) go to one group.

use std::collections::VecDeque;
use std::ops::Range;

use godwit_abi::{Bin, PART_REST};

/// Which groups serve which programs, and the bins that wait for them.
#[derive(Debug)]
pub(crate) struct Split {
    /// Per queue: the groups that serve its bins.
    groups: Vec<Range<usize>>,
    /// Per program its queue; programs behind the end have queue 0, which every group serves.
    queue_of: Vec<usize>,
    /// Per queue.
    waiting: Vec<VecDeque<Waiting>>,
    /// Per queue: the group that got its last bin.
    last: Vec<usize>,
}

#[derive(Debug)]
struct Waiting {
    /// Number of the chunk.
    chunk: u64,
    /// Index of the bin.
    bin: usize,
    /// Whether it is to go where the one in front of it went, which is another part of it.
    rest: bool,
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
        Self { last: vec![0; ranges.len()], groups: ranges, queue_of, waiting }
    }

    /// All bins of a chunk are to go to groups.
    pub(crate) fn wait(&mut self, chunk: u64, bins: &[Bin]) {
        for (bin, Bin { instance, part, .. }) in bins.iter().enumerate() {
            let queue = self.queue_of.get(usize::from(*instance)).copied().unwrap_or(0);
            self.waiting[queue].push_back(Waiting { chunk, bin, rest: part & PART_REST != 0 });
        }
    }

    /// Gives bins to groups, each queue's oldest first and those that any group serves last, until none that waits finds a place:
    /// `place` takes one and the groups that serve it, and says which of these got it, or that they have no place.
    pub(crate) fn give(&mut self, mut place: impl FnMut(u64, usize, Range<usize>) -> Option<usize>) {
        for queue in (1..self.waiting.len()).chain([0]) {
            let (waiting, groups, last) = (&mut self.waiting[queue], &self.groups[queue], &mut self.last[queue]);
            while let Some(&Waiting { chunk, bin, rest }) = waiting.front() {
                // Parts are of one function, so the one in front was this queue's last.
                let serving = if rest { *last..*last + 1 } else { groups.clone() };
                let Some(group) = place(chunk, bin, serving) else { break };
                *last = group;
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
        split.wait(7, &bins(&[0, 0, 0, 1]));
        split.wait(8, &bins(&[9]));
        let mut given = Vec::new();
        // The first group takes one bin, the second as many as come.
        let mut free = 1;
        split.give(|chunk, bin, groups| {
            let takes = groups.contains(&1) || free > 0;
            free -= usize::from(takes && !groups.contains(&1));
            takes.then(|| {
                given.push((chunk, bin, groups.clone()));
                groups.start
            })
        });
        assert_eq!(given, [(7, 0, 0..1), (7, 3, 1..2), (8, 0, 0..2)]);
        let mut rest = Vec::new();
        split.give(|chunk, bin, groups| {
            rest.push((chunk, bin));
            Some(groups.start)
        });
        assert_eq!(rest, [(7, 1), (7, 2)]);
        split.wait(9, &bins(&[0]));
        split.clear();
        split.give(|_, _, _| panic!("nothing waits"));
    }

    #[test]
    fn parts_of_a_bin_go_to_one_group() {
        let mut split = Split::new(6, &[1, 1]);
        let mut chunk = bins(&[0, 0, 0, 9, 9, 1]);
        chunk[1].part = PART_REST;
        chunk[2].part = PART_REST;
        chunk[4].part = PART_REST;
        split.wait(0, &chunk);
        // Each bin would go to another group; when the second part of the first comes, there is no place.
        let mut given = Vec::new();
        for room in [1, usize::MAX] {
            let mut room = room;
            split.give(|_, bin, groups| {
                let group = groups.start + bin % groups.len();
                room = room.checked_sub(usize::from(bin < 3))?;
                given.push((bin, group));
                Some(group)
            });
        }
        assert_eq!(given, [(0, 0), (5, 5), (3, 3), (4, 3), (1, 0), (2, 0)]);
    }

    /// One bin for each of these programs.
    fn bins(programs: &[u16]) -> Vec<Bin> {
        programs.iter().map(|&instance| Bin { instance, ..Bin::default() }).collect()
    }
}
