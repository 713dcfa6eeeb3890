//! What is to be done with packets, in columns.

use std::ops::Range;

use godwit_abi::Outcome;

use crate::Work;

/// One [`Work`] for each of several packets, in columns: how many packets in a row are of one variant is found many at a time, and
/// their parameters are copied in one go. (Row by row, 28 instructions a packet instead of 2, `worker_cost`.)
///
/// ```text
/// kinds    |  2   |  2   | SETTLED |  2   |   variants
/// values   |  p0  |  p1  | outcome |  p3  |   parameters
/// ```
#[derive(Clone, Debug, Default)]
pub struct WorkColumns {
    /// The variant of a packet that the kernel is to run, or [`SETTLED`].
    kinds: Vec<u16>,
    /// Its parameter, or the outcome.
    values: Vec<u64>,
    /// Of host halves that prepare packets row by row; kept for its memory.
    rows: Vec<Work>,
}

/// No variant: the host half settled the packet.
const SETTLED: u16 = 1 << 8;

impl WorkColumns {
    /// Packets in it.
    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Forgets all packets, keeps the room.
    pub fn clear(&mut self) {
        self.kinds.clear();
        self.values.clear();
    }

    /// Appends one packet.
    pub fn push(&mut self, work: Work) {
        let (kind, value) = columns(work);
        self.kinds.push(kind);
        self.values.push(value);
    }

    /// What is to be done with a packet.
    ///
    /// # Panics
    /// Where there is no such packet.
    pub fn at(&self, packet: usize) -> Work {
        row(self.kinds[packet], self.values[packet])
    }

    /// All of it, in rows.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Work> {
        self.kinds.iter().zip(&self.values).map(|(&kind, &value)| row(kind, value))
    }

    /// The variant of the packet `from`, and how many from there on have it; `None`: the packet is settled.
    ///
    /// # Panics
    /// Where there is no such packet.
    #[inline]
    pub fn run(&self, from: usize) -> Option<(u8, usize)> {
        /// Compared at a time.
        const TOGETHER: usize = 32;
        let kinds = &self.kinds[from..];
        let kind = kinds[0];
        let (blocks, _) = kinds.as_chunks::<TOGETHER>();
        let alike = |block: &&[u16; TOGETHER]| block.iter().fold(0, |differs, other| differs | (other ^ kind)) == 0;
        let whole = blocks.iter().take_while(alike).count() * TOGETHER;
        let run = whole + kinds[whole..].iter().take_while(|&&other| other == kind).count();
        (kind != SETTLED).then_some((kind as u8, run))
    }

    /// The parameters of packets that the kernel is to run.
    ///
    /// # Panics
    /// Where there are no such packets.
    pub fn parameters(&self, packets: Range<usize>) -> &[u64] {
        debug_assert!(self.kinds[packets.clone()].iter().all(|&kind| kind != SETTLED));
        &self.values[packets]
    }

    /// Appends what `prepare` appends to rows.
    pub fn extend_with_rows(&mut self, prepare: impl FnOnce(&mut Vec<Work>)) {
        let mut rows = std::mem::take(&mut self.rows);
        prepare(&mut rows);
        rows.drain(..).for_each(|work| self.push(work));
        self.rows = rows;
    }

    /// Appends so many packets, whose places are to be written.
    pub(crate) fn grow(&mut self, packets: usize) -> Slots<'_> {
        let first = self.kinds.len();
        // Places that are there already are written without asking each time whether there is room.
        self.kinds.resize(first + packets, 0);
        self.values.resize(first + packets, 0);
        Slots { kinds: &mut self.kinds[first..], values: &mut self.values[first..] }
    }
}

/// Places of packets that were appended, as many in both columns.
pub(crate) struct Slots<'a> {
    kinds: &'a mut [u16],
    values: &'a mut [u64],
}

impl Slots<'_> {
    /// The places from one on.
    pub(crate) fn from(&mut self, first: usize) -> Slots<'_> {
        Slots { kinds: &mut self.kinds[first..], values: &mut self.values[first..] }
    }

    pub(crate) fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = Slot<'_>> {
        self.kinds.iter_mut().zip(&mut *self.values).map(|(kind, value)| Slot { kind, value })
    }
}

/// The place of one packet.
pub(crate) struct Slot<'a> {
    kind: &'a mut u16,
    value: &'a mut u64,
}

impl Slot<'_> {
    /// The kernel is to run.
    #[inline(always)]
    pub(crate) fn run(self, variant: u8, parameter: u64) {
        (*self.kind, *self.value) = (variant.into(), parameter);
    }

    /// The packet is settled. Few are.
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
        /// Rows come out as they went in, and runs are those that are seen row by row.
        #[test]
        fn columns_say_what_rows_say(stretches in prop::collection::vec((work(), 1..90_usize), 0..8)) {
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
        fn places_that_were_grown_are_written(rows in prop::collection::vec(work(), 0..40)) {
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
