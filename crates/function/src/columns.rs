//! Work that the kernel must do for the packets of a batch, with a separate array for each field.

use std::ops::Range;

use godwit_abi::Outcome;

use crate::Work;

/// Stores one [`Work`] for each of several packets, in two arrays (columns). The columns let a
/// caller find runs of packets with the same variant quickly, and copy their parameters together.
/// If [`Work`] were stored in one array (rows), the caller would take 28 instead of 2 instructions
/// per packet (measured by `worker_cost`).
///
/// ```text
/// kinds    |  2   |  2   | SETTLED |  2   |   variants
/// values   |  p0  |  p1  | outcome |  p3  |   parameters
/// ```
#[derive(Clone, Debug, Default)]
pub struct WorkColumns {
    /// Variant of each packet, or [`SETTLED`] for a packet that skips the kernel.
    kinds: Vec<u16>,
    /// Kernel parameter of each packet, or the outcome of a packet that skips the kernel.
    values: Vec<u64>,
    /// Scratch memory for functions that return one [`Work`] per packet.
    rows: Vec<Work>,
}

/// Value in `kinds` for a packet that skips the kernel. No variant has this value.
const SETTLED: u16 = 1 << 8;

impl WorkColumns {
    /// Returns the number of packets.
    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Returns whether there are no packets.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Removes all packets, but keeps the allocated memory.
    pub fn clear(&mut self) {
        self.kinds.clear();
        self.values.clear();
    }

    /// Appends the work for one packet.
    pub fn push(&mut self, work: Work) {
        let (kind, value) = columns(work);
        self.kinds.push(kind);
        self.values.push(value);
    }

    /// Returns the work for the packet with index `packet`.
    ///
    /// # Panics
    /// Panics if the packet does not exist.
    pub fn at(&self, packet: usize) -> Work {
        row(self.kinds[packet], self.values[packet])
    }

    /// Returns the work for all packets, one [`Work`] per packet.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Work> {
        self.kinds.iter().zip(&self.values).map(|(&kind, &value)| row(kind, value))
    }

    /// Returns the variant of the packet `from`, and the number of consecutive packets with this
    /// variant. Returns `None` if the packet skips the kernel.
    ///
    /// # Panics
    /// Panics if the packet does not exist.
    #[inline]
    pub fn run(&self, from: usize) -> Option<(u8, usize)> {
        const BLOCK_KINDS: usize = 32;
        let kinds = &self.kinds[from..];
        let kind = kinds[0];
        let (blocks, _) = kinds.as_chunks::<BLOCK_KINDS>();
        let is_same =
            |block: &&[u16; BLOCK_KINDS]| block.iter().fold(0, |differs, other| differs | (other ^ kind)) == 0;
        let whole = blocks.iter().take_while(is_same).count() * BLOCK_KINDS;
        let run = whole + kinds[whole..].iter().take_while(|&&other| other == kind).count();
        (kind != SETTLED).then_some((kind as u8, run))
    }

    /// Returns the kernel parameters of several packets. None of these packets may skip the kernel.
    ///
    /// # Panics
    /// Panics if one of the packets does not exist.
    pub fn parameters(&self, packets: Range<usize>) -> &[u64] {
        debug_assert!(self.kinds[packets.clone()].iter().all(|&kind| kind != SETTLED));
        &self.values[packets]
    }

    /// Calls `prepare`, which writes one [`Work`] per packet, and appends the results.
    pub fn extend_with_rows(&mut self, prepare: impl FnOnce(&mut Vec<Work>)) {
        let mut rows = std::mem::take(&mut self.rows);
        prepare(&mut rows);
        rows.drain(..).for_each(|work| self.push(work));
        self.rows = rows;
    }

    /// Appends entries for `packets` packets, and returns them. The caller must write each entry.
    pub(crate) fn grow(&mut self, packets: usize) -> Slots<'_> {
        let first = self.kinds.len();
        // All entries are created first, so that writing an entry needs no capacity check.
        self.kinds.resize(first + packets, 0);
        self.values.resize(first + packets, 0);
        Slots { kinds: &mut self.kinds[first..], values: &mut self.values[first..] }
    }
}

pub(crate) struct Slots<'a> {
    kinds: &'a mut [u16],
    values: &'a mut [u64],
}

impl Slots<'_> {
    /// Returns the entries from index `first` on.
    pub(crate) fn from(&mut self, first: usize) -> Slots<'_> {
        Slots { kinds: &mut self.kinds[first..], values: &mut self.values[first..] }
    }

    pub(crate) fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = Slot<'_>> {
        self.kinds.iter_mut().zip(&mut *self.values).map(|(kind, value)| Slot { kind, value })
    }
}

/// Entry of one packet.
pub(crate) struct Slot<'a> {
    kind: &'a mut u16,
    value: &'a mut u64,
}

impl Slot<'_> {
    /// Writes the entry of a packet that needs the kernel.
    #[inline(always)]
    pub(crate) fn run(self, variant: u8, parameter: u64) {
        (*self.kind, *self.value) = (variant.into(), parameter);
    }

    /// Writes the entry of a packet that skips the kernel. Such packets are rare.
    #[cold]
    #[inline(never)]
    pub(crate) fn settle(self, outcome: Outcome) {
        (*self.kind, *self.value) = columns(Work::Done(outcome));
    }
}

#[inline]
fn columns(work: Work) -> (u16, u64) {
    match work {
        Work::Run { variant, parameter } => (variant.into(), parameter),
        Work::Done(Outcome { verdict, reason, port, value }) => {
            let low = u64::from(verdict) | u64::from(reason) << 8 | u64::from(port) << 16;
            (SETTLED, low | u64::from(value) << 32)
        }
    }
}

#[inline]
fn row(kind: u16, value: u64) -> Work {
    if kind == SETTLED {
        let (verdict, reason, port) = (value as u8, (value >> 8) as u8, (value >> 16) as u16);
        return Work::Done(Outcome { verdict, reason, port, value: (value >> 32) as u32 });
    }
    Work::Run { variant: kind as u8, parameter: value }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn work() -> impl Strategy<Value = Work> {
        let outcome = (any::<[u8; 2]>(), any::<u16>(), any::<u32>());
        prop_oneof![
            8 => any::<u64>().prop_map(|parameter| Work::Run { variant: 2, parameter }),
            1 => any::<(u8, u64)>().prop_map(|(variant, parameter)| Work::Run { variant, parameter }),
            1 => outcome.prop_map(|([verdict, reason], port, value)| {
                Work::Done(Outcome { verdict, reason, port, value })
            }),
        ]
    }

    proptest! {
        #[test]
        fn columns_match_rows(stretches in prop::collection::vec((work(), 1..90_usize), 0..8)) {
            let rows: Vec<Work> = stretches.iter().flat_map(|&(work, count)| vec![work; count]).collect();
            let mut columns = WorkColumns::default();
            let (pushed, appended) = rows.split_at(rows.len() / 2);
            pushed.iter().for_each(|&work| columns.push(work));
            columns.extend_with_rows(|work| work.extend(appended));
            prop_assert_eq!(columns.iter().collect::<Vec<_>>(), rows.clone());
            for (from, &first) in rows.iter().enumerate() {
                prop_assert_eq!(columns.at(from), first);
                let Work::Run { variant, .. } = first else {
                    prop_assert_eq!(columns.run(from), None);
                    continue;
                };
                let same = |work: &&Work| matches!(work, Work::Run { variant: other, .. } if *other == variant);
                let run = rows[from..].iter().take_while(same).count();
                prop_assert_eq!(columns.run(from), Some((variant, run)));
                for (at, &parameter) in (from..).zip(columns.parameters(from..from + run)) {
                    prop_assert_eq!(Work::Run { variant, parameter }, rows[at]);
                }
            }
        }

        #[test]
        fn grown_slots_are_written(rows in prop::collection::vec(work(), 0..40)) {
            let mut columns = WorkColumns::default();
            columns.push(Work::Run { variant: 9, parameter: 9 });
            let mut slots = columns.grow(rows.len());
            let middle = rows.len() / 2;
            for (slot, &work) in slots.iter_mut().zip(&rows[..middle]).collect::<Vec<_>>() {
                write(slot, work);
            }
            for (slot, &work) in slots.from(middle).iter_mut().zip(&rows[middle..]) {
                write(slot, work);
            }
            prop_assert_eq!(columns.iter().skip(1).collect::<Vec<_>>(), rows);
        }
    }

    fn write(slot: Slot<'_>, work: Work) {
        match work {
            Work::Run { variant, parameter } => slot.run(variant, parameter),
            Work::Done(outcome) => slot.settle(outcome),
        }
    }
}
