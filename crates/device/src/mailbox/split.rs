//! Divides the persistent work-groups of one worker between packet functions, in proportion to
//! configured weights.
//!
//! ```text
//! groups of a lane   | 0 | 1 | 2 | 3 | 4 | 5 |        share: esp 2, dpi 1
//! bins of esp          ^^^^^^^^^^^^^^^
//! bins of dpi                          ^^^^^^
//! other bins           ^^^^^^^^^^^^^^^^^^^^^^         any group serves them
//! ```
//!
//! Without weights, every work-group serves every function. Functions with the same work-groups
//! have a common queue. A batch therefore waits only for batches of these work-groups. All parts of
//! a divided batch ([`godwit_abi::Bin::part`]) go to one work-group.

use std::collections::VecDeque;
use std::ops::Range;

use godwit_abi::{Bin, PART_REST};

/// Work-groups that serve each packet function, and the batches that wait for these work-groups.
#[derive(Debug)]
pub(crate) struct Split {
    /// The range of work-groups that serve the batches of each queue.
    groups: Vec<Range<usize>>,
    /// Number of the queue for each packet function. Functions without an entry use queue 0, which
    /// every work-group serves.
    queue_of: Vec<usize>,
    /// The batches of packets that wait in each queue.
    waiting: Vec<VecDeque<Waiting>>,
    /// The work-group that received the last batch of each queue.
    last: Vec<usize>,
}

#[derive(Debug)]
struct Waiting {
    /// Number of the submission.
    chunk: u64,
    /// Index of the batch of packets in its submission.
    bin: usize,
    /// Whether this entry continues the batch of the previous entry. All parts of a batch must go
    /// to the same work-group.
    is_rest: bool,
}

impl Split {
    /// Divides `groups` work-groups between the packet functions, in proportion to their weights. A
    /// function with the weight 0 may use any work-group.
    ///
    /// # Panics
    /// Panics if there are fewer work-groups than functions with a weight above 0 (see
    /// [`groups_min`]).
    pub(crate) fn new(groups: usize, shares: &[u32]) -> Self {
        assert!(groups >= groups_min(shares), "{groups} groups for {shares:?}");
        let mut ranges = Vec::with_capacity(1 + shares.len());
        ranges.push(0..groups);
        let mut queue_of = vec![0; shares.len()];
        let mut first = 0;
        for (program, count) in counts(groups, shares) {
            queue_of[program] = ranges.len();
            ranges.push(first..first + count);
            first += count;
        }
        let waiting = ranges.iter().map(|_| VecDeque::new()).collect();
        Self { last: vec![0; ranges.len()], groups: ranges, queue_of, waiting }
    }

    /// Adds all batches of a submission to the queues.
    pub(crate) fn enqueue(&mut self, chunk: u64, bins: &[Bin]) {
        for (bin, Bin { instance, part, .. }) in bins.iter().enumerate() {
            let queue = self.queue_of.get(usize::from(*instance)).copied().unwrap_or(0);
            self.waiting[queue].push_back(Waiting { chunk, bin, is_rest: part & PART_REST != 0 });
        }
    }

    /// Assigns waiting batches of packets to work-groups, with the oldest batch of each queue
    /// first. Batches that any work-group serves come last.
    ///
    /// `post` receives the submission, the batch, and the work-groups that serve this batch. It
    /// returns the work-group that received the batch, or `None` if no work-group has room.
    pub(crate) fn assign(&mut self, mut post: impl FnMut(u64, usize, Range<usize>) -> Option<usize>) {
        for queue in (1..self.waiting.len()).chain([0]) {
            let (waiting, groups, last) = (&mut self.waiting[queue], &self.groups[queue], &mut self.last[queue]);
            while let Some(&Waiting { chunk, bin, is_rest }) = waiting.front() {
                // All parts of a batch wait in one queue, one after another. `last` is therefore
                // the work-group that received the previous part.
                let serving = if is_rest { *last..*last + 1 } else { groups.clone() };
                let Some(group) = post(chunk, bin, serving) else { break };
                *last = group;
                waiting.pop_front();
            }
        }
    }

    /// Removes all waiting batches.
    pub(crate) fn clear(&mut self) {
        self.waiting.iter_mut().for_each(VecDeque::clear);
    }
}

/// Divides `groups` work-groups between the packet functions by the D'Hondt method. Returns each
/// function with a weight above 0 and the number of its work-groups, which is at least 1.
fn counts(groups: usize, shares: &[u32]) -> Vec<(usize, usize)> {
    let named = shares.iter().enumerate().filter(|(_, share)| **share > 0);
    let mut counts: Vec<(usize, usize)> = named.map(|(program, _)| (program, 1)).collect();
    for _ in counts.len()..groups {
        let quotient = |(program, count): &(usize, usize)| f64::from(shares[*program]) / (*count as f64 + 1.0);
        let largest = counts.iter_mut().reduce(|one, next| if quotient(next) > quotient(one) { next } else { one });
        let Some(largest) = largest else { break };
        largest.1 += 1;
    }
    counts
}

/// Returns the minimum number of work-groups for one worker. Each packet function with a weight
/// above 0 needs a work-group.
pub(crate) fn groups_min(shares: &[u32]) -> usize {
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
    fn divides_all_groups_by_share() {
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
    fn waiting_bins_do_not_delay_bins_of_other_groups() {
        let mut split = Split::new(2, &[1, 1]);
        split.enqueue(7, &bins(&[0, 0, 0, 1]));
        split.enqueue(8, &bins(&[9]));
        let mut given = Vec::new();
        // In this test, the first work-group accepts one batch, and the second work-group accepts
        // any number of batches.
        let mut free = 1;
        split.assign(|chunk, bin, groups| {
            let takes = groups.contains(&1) || free > 0;
            free -= usize::from(takes && !groups.contains(&1));
            takes.then(|| {
                given.push((chunk, bin, groups.clone()));
                groups.start
            })
        });
        assert_eq!(given, [(7, 0, 0..1), (7, 3, 1..2), (8, 0, 0..2)]);
        let mut rest = Vec::new();
        split.assign(|chunk, bin, groups| {
            rest.push((chunk, bin));
            Some(groups.start)
        });
        assert_eq!(rest, [(7, 1), (7, 2)]);
        split.enqueue(9, &bins(&[0]));
        split.clear();
        split.assign(|_, _, _| panic!("no bin waits"));
    }

    #[test]
    fn assigns_all_parts_of_a_bin_to_one_group() {
        let mut split = Split::new(6, &[1, 1]);
        let mut chunk = bins(&[0, 0, 0, 9, 9, 1]);
        chunk[1].part = PART_REST;
        chunk[2].part = PART_REST;
        chunk[4].part = PART_REST;
        split.enqueue(0, &chunk);
        // In the first attempt, the work-group has room for only one part of the first batch.
        let mut given = Vec::new();
        for room in [1, usize::MAX] {
            let mut room = room;
            split.assign(|_, bin, groups| {
                let group = groups.start + bin % groups.len();
                room = room.checked_sub(usize::from(bin < 3))?;
                given.push((bin, group));
                Some(group)
            });
        }
        assert_eq!(given, [(0, 0), (5, 5), (3, 3), (4, 3), (1, 0), (2, 0)]);
    }

    /// Returns one batch for each of the programs.
    fn bins(programs: &[u16]) -> Vec<Bin> {
        programs.iter().map(|&instance| Bin { instance, ..Bin::default() }).collect()
    }
}
