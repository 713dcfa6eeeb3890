//! Implements the memory layout `dense`, in which buffers of different sizes are allocated from a
//! ring.

use std::ops::Range;

/// A ring of packet buffers. Positions and sizes are in units of 64 bytes, and positions are
/// relative to the start of the region:
///
/// ```text
/// 0        tail            head          end
/// |  free  | buffers in use |    free    |
/// ```
///
/// New buffers are allocated at the head. The tail moves over freed buffers in the order of their
/// allocation. Quarantined buffers count as freed, but are never allocated again.
#[derive(Debug)]
pub(super) struct Dense {
    /// Sizes of freed buffers and of gaps, in units of 64 bytes. The index is the position of the
    /// first unit. A buffer in use has size 0.
    pub(super) returned: Vec<u32>,
    pub(super) align_units: usize,
    pub(super) head: usize,
    pub(super) tail: usize,
    pub(super) used: usize,
    /// Sorted and disjoint ranges of 64-byte units that are never allocated again. The list is
    /// nearly always empty.
    pub(super) quarantined: Vec<Range<usize>>,
}

/// Rounds up to a multiple of `align_units`, which is a power of two. The standard method
/// `next_multiple_of` would double the cost of an allocation, because it divides.
#[inline(always)]
pub(super) fn aligned(units: usize, align_units: usize) -> usize {
    debug_assert!(align_units.is_power_of_two());
    (units + align_units - 1) & !(align_units - 1)
}

impl Dense {
    /// Allocates a buffer of at least `units` units. Returns its first unit, and its size in units.
    #[inline]
    pub(super) fn allocate(&mut self, units: usize) -> Option<(usize, u8)> {
        let units = aligned(units, self.align_units);
        if !self.quarantined.is_empty() {
            return self.allocate_around(units);
        }
        let end = self.returned.len();
        let free = end - self.used;
        let to_end = end - self.head;
        if self.head >= self.tail && to_end < units {
            // The buffer does not fit before the end of the ring, so the units there become a gap.
            // The gap becomes free when the tail moves over it.
            if free >= to_end + units {
                self.leave_gap(to_end);
            } else if self.used == 0 && units <= end {
                (self.head, self.tail) = (0, 0);
            } else {
                return None;
            }
        } else if free < units {
            return None;
        }
        Some(self.take_at_head(units))
    }

    /// Returns whether a buffer of `units` units fits at the head of the ring. `units` must be a
    /// multiple of the alignment.
    #[inline(always)]
    pub(super) fn fits_at_head(&self, units: usize) -> bool {
        let end = self.returned.len();
        units <= (end - self.used).min(end - self.head) && self.quarantined.is_empty()
    }

    /// Allocates a buffer if some memory of the ring must stay unused.
    #[cold]
    #[inline(never)]
    fn allocate_around(&mut self, units: usize) -> Option<(usize, u8)> {
        if self.used == 0 {
            // In an empty ring, the search must start at position 0. From another position, it
            // would miss a free range that extends across that position.
            (self.head, self.tail) = (0, 0);
        }
        let end = self.returned.len();
        let free = end - self.used;
        let (mut at, mut skipped) = (self.head, 0);
        let mut next = self.quarantined.partition_point(|units| units.end <= at);
        while skipped + units <= free {
            let blocked = self.quarantined.get(next).filter(|blocked| blocked.start < at + units);
            let after = match blocked {
                Some(blocked) => blocked.end,
                None if at + units > end => end,
                None => {
                    let before_end = skipped.min(end - self.head);
                    self.leave_gap(before_end);
                    self.leave_gap(skipped - before_end);
                    return Some(self.take_at_head(units));
                }
            };
            skipped += after - at;
            (at, next) = if after == end { (0, 0) } else { (after, next + 1) };
        }
        None
    }

    /// Turns the next `units` units at the head into a gap, which must end within the ring. The gap
    /// becomes free when the tail moves over it.
    fn leave_gap(&mut self, units: usize) {
        if units > 0 {
            self.returned[self.head] = units as u32;
            self.step(units);
        }
    }

    /// Allocates `units` units at the head of the ring for a buffer.
    #[inline(always)]
    pub(super) fn take_at_head(&mut self, units: usize) -> (usize, u8) {
        let unit = self.head;
        // The tail of the ring has set this size to 0.
        debug_assert_eq!(self.returned[unit], 0);
        self.step(units);
        (unit, units as u8)
    }

    #[inline(always)]
    fn step(&mut self, units: usize) {
        self.head += units;
        self.used += units;
        if self.head == self.returned.len() {
            self.head = 0;
        }
    }

    /// Returns whether the tail of the ring lies within the given units, but not at their start.
    #[inline(always)]
    pub(super) fn begins_within(&self, unit: usize, units: u32) -> bool {
        unit < self.tail && self.tail < unit + units as usize
    }

    pub(super) fn release(&mut self, unit: usize, units: u32) {
        self.release_all(std::iter::once((unit, units)));
    }

    /// Frees several buffers, each given as its first unit and its size.
    #[inline(always)]
    pub(super) fn release_all(&mut self, buffers: impl Iterator<Item = (usize, u32)>) {
        // Local variables keep the tail and the number of used units in registers. Updates in
        // memory would be slower, because each update waits for the previous one.
        let (mut tail, mut used) = (self.tail, self.used);
        for (unit, units) in buffers {
            debug_assert_eq!(self.returned[unit], 0, "a buffer was returned twice");
            // The tail moves over the oldest buffer at once, so this buffer needs no entry in
            // `returned`.
            if unit == tail {
                used -= units as usize;
                tail += units as usize;
                if tail == self.returned.len() {
                    tail = 0;
                }
            } else {
                self.returned[unit] = units;
            }
        }
        (self.tail, self.used) = (tail, used);
        self.pass_returned();
    }

    /// Moves the tail over all freed buffers that follow it.
    #[inline(always)]
    fn pass_returned(&mut self) {
        while self.used > 0 && self.returned[self.tail] != 0 {
            let units = std::mem::take(&mut self.returned[self.tail]) as usize;
            self.used -= units;
            self.tail += units;
            if self.tail == self.returned.len() {
                self.tail = 0;
            }
        }
    }

    pub(super) fn quarantine(&mut self, unit: usize, units: u32) {
        let mut added = unit..unit + units as usize;
        let mut at = self.quarantined.partition_point(|known| known.start < unit);
        // Merge adjacent ranges.
        if self.quarantined.get(at).is_some_and(|known| known.start == added.end) {
            added.end = self.quarantined.remove(at).end;
        }
        if at > 0 && self.quarantined[at - 1].end == unit {
            at -= 1;
            added.start = self.quarantined.remove(at).start;
        }
        self.quarantined.insert(at, added);
        self.release(unit, units);
    }

    /// Returns the length of the longest usable memory range, in units of 64 bytes.
    pub(super) fn longest_run(&self) -> usize {
        let starts = std::iter::once(0).chain(self.quarantined.iter().map(|units| units.end));
        let ends = self.quarantined.iter().map(|units| units.start).chain([self.returned.len()]);
        starts.zip(ends).map(|(start, end)| end - start).max().unwrap_or(0)
    }
}
