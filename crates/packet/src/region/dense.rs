//! The layout `dense`: where buffers of any length lie, back to back, and which are free.

use std::ops::Range;

/// A ring of buffers, in units of 64 bytes from the region's start.
///
/// ```text
/// 0        tail            head          end
/// |  free  | buffers in use |    free    |
/// ```
///
/// The tail passes buffers in the order in which they were allocated, once they are returned. Quarantined buffers count
/// as returned; the head goes around them.
#[derive(Debug)]
pub(super) struct Dense {
    /// For the first unit of a returned buffer (or of a gap at the end): its units. 0: in use.
    pub(super) returned: Vec<u32>,
    pub(super) align_units: usize,
    pub(super) head: usize,
    pub(super) tail: usize,
    pub(super) used: usize,
    /// Units that are never used again: sorted, apart from each other, and nearly always none.
    pub(super) quarantined: Vec<Range<usize>>,
}

/// The next multiple of a power of two. (`next_multiple_of` divides, which would cost as much as all the rest.)
#[inline(always)]
pub(super) fn aligned(units: usize, align_units: usize) -> usize {
    debug_assert!(align_units.is_power_of_two());
    (units + align_units - 1) & !(align_units - 1)
}

impl Dense {
    /// First unit and size of a new buffer of at least `units`.
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
            // The buffer does not fit before the end: the rest becomes a gap that is free once the tail gets there.
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
        Some(self.place(units))
    }

    /// Whether there is room for a buffer of so many units, a multiple of the alignment, where the head is.
    #[inline(always)]
    pub(super) fn fits_at_head(&self, units: usize) -> bool {
        let end = self.returned.len();
        units <= (end - self.used).min(end - self.head) && self.quarantined.is_empty()
    }

    /// The same where some units are never to be used.
    #[cold]
    #[inline(never)]
    fn allocate_around(&mut self, units: usize) -> Option<(usize, u8)> {
        if self.used == 0 {
            // From the start every place is tried; from anywhere else one that the head lies in would not be.
            (self.head, self.tail) = (0, 0);
        }
        let end = self.returned.len();
        let free = end - self.used;
        let (mut at, mut skipped) = (self.head, 0);
        let mut next = self.quarantined.partition_point(|units| units.end <= at);
        while skipped + units <= free {
            // Where the units from `at` on are not free of quarantine, or end too early: the next place to try.
            let blocked = self.quarantined.get(next).filter(|blocked| blocked.start < at + units);
            let after = match blocked {
                Some(blocked) => blocked.end,
                None if at + units > end => end,
                None => {
                    let before_end = skipped.min(end - self.head);
                    self.leave_gap(before_end);
                    self.leave_gap(skipped - before_end);
                    return Some(self.place(units));
                }
            };
            skipped += after - at;
            (at, next) = if after == end { (0, 0) } else { (after, next + 1) };
        }
        None
    }

    /// Steps over units at the head, none behind the end. They are free again once the tail gets there.
    fn leave_gap(&mut self, units: usize) {
        if units > 0 {
            self.returned[self.head] = units as u32;
            self.step(units);
        }
    }

    /// A buffer at the head.
    #[inline(always)]
    pub(super) fn place(&mut self, units: usize) -> (usize, u8) {
        let unit = self.head;
        // The tail left a zero here.
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

    /// Whether the oldest buffer is among these, and not the first of them: in a full ring the newest ends where it begins.
    #[inline(always)]
    pub(super) fn begins_within(&self, unit: usize, units: u32) -> bool {
        unit < self.tail && self.tail < unit + units as usize
    }

    pub(super) fn release(&mut self, unit: usize, units: u32) {
        self.release_all(std::iter::once((unit, units)));
    }

    /// Returns buffers: first unit and size of each.
    #[inline(always)]
    pub(super) fn release_all(&mut self, buffers: impl Iterator<Item = (usize, u32)>) {
        // In registers: through memory, each buffer would wait for the one before.
        let (mut tail, mut used) = (self.tail, self.used);
        for (unit, units) in buffers {
            debug_assert_eq!(self.returned[unit], 0, "a buffer was returned twice");
            // The oldest one is passed at once, and not written down.
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

    /// Moves the tail over what was returned.
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
        // Neighbours become one.
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

    /// The most units that lie side by side and are not quarantined.
    pub(super) fn longest_run(&self) -> usize {
        let starts = std::iter::once(0).chain(self.quarantined.iter().map(|units| units.end));
        let ends = self.quarantined.iter().map(|units| units.start).chain([self.returned.len()]);
        starts.zip(ends).map(|(start, end)| end - start).max().unwrap_or(0)
    }
}
