//! Buffers in another thread's hands: a region lends them, and a borrower reads their frames until it gives them back.
//!
//! ```text
//! worker's Region --lend--> Loan --accept--> sender's Borrower --frame, release, returned--> Loan --take_back--> Region
//! ```
//! A [`Loan`] cannot be copied, so a buffer is at any time either its region's or one borrower's, and each side refuses what is
//! in the other's hands. Handing a loan over, through a channel or otherwise, is what makes one side's writes visible to the other.

use std::sync::Arc;

use crate::region::outside;
use crate::{BUFFER_UNIT_BYTES, Descriptor, Memory, Region};

/// Some buffers of a region, on their way from one hand to another. One that is dropped is lost to its region, memory is not.
#[derive(Debug)]
pub struct Loan {
    /// The region, among all of the process.
    pub(crate) region: u64,
    pub(crate) buffers: Vec<Descriptor>,
    /// Packets that a port has taken over: no longer in flight, but their buffers are not free yet.
    pub(crate) handed_over: usize,
    /// Buffers, in units of 64 bytes, that a port has given back.
    pub(crate) reclaimed: Vec<u32>,
}

impl Loan {
    /// Packets in it.
    pub fn len(&self) -> usize {
        self.buffers.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }
}

/// A set of places in a region, in units of 64 bytes. Empty, it has no memory.
#[derive(Debug, Default)]
pub(crate) struct Units {
    words: Vec<u64>,
}

impl Units {
    /// Room for so many units.
    pub(crate) fn reserve(&mut self, units: usize) {
        if self.words.is_empty() {
            self.words.resize(units.div_ceil(64), 0);
        }
    }

    /// Whether there never was any.
    #[inline]
    pub(crate) fn is_unused(&self) -> bool {
        self.words.is_empty()
    }

    #[inline]
    pub(crate) fn insert(&mut self, first: usize, count: usize) {
        each_word(first, count, |word, mask| self.words[word] |= mask);
    }

    #[inline]
    pub(crate) fn remove(&mut self, first: usize, count: usize) {
        each_word(first, count, |word, mask| self.words[word] &= !mask);
    }

    /// Whether a unit is in the set.
    #[inline(always)]
    pub(crate) fn has(&self, unit: usize) -> bool {
        self.words.get(unit / 64).is_some_and(|word| word >> (unit % 64) & 1 != 0)
    }

    /// Adds a unit; false where it is in the set already, or beyond it.
    #[inline(always)]
    pub(crate) fn add(&mut self, unit: usize) -> bool {
        let Some(word) = self.words.get_mut(unit / 64) else { return false };
        let bit = 1 << (unit % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Removes a unit; false where it is not in the set.
    #[inline(always)]
    pub(crate) fn take(&mut self, unit: usize) -> bool {
        let Some(word) = self.words.get_mut(unit / 64) else { return false };
        let bit = 1 << (unit % 64);
        let was_there = *word & bit != 0;
        *word &= !bit;
        was_there
    }

    /// Whether any unit is in the set.
    #[inline]
    pub(crate) fn any(&self, first: usize, count: usize) -> bool {
        if self.words.is_empty() {
            return false;
        }
        let mut found = false;
        each_word(first, count, |word, mask| found |= self.words[word] & mask != 0);
        found
    }

    /// Whether all units are in the set.
    pub(crate) fn all(&self, first: usize, count: usize) -> bool {
        let mut all = !self.words.is_empty();
        each_word(first, count, |word, mask| all &= self.words.get(word).is_some_and(|bits| bits & mask == mask));
        all
    }
}

/// The words that a range lies in, and which bits of each.
#[inline]
fn each_word(first: usize, count: usize, mut with: impl FnMut(usize, u64)) {
    let (mut at, end) = (first, first + count);
    if count > 0 && at % 64 + count <= 64 {
        // Nearly all: slots lie at multiples of their size.
        with(at / 64, (u64::MAX >> (64 - count)) << (at % 64));
        return;
    }
    while at < end {
        let bits = (64 - at % 64).min(end - at);
        with(at / 64, (u64::MAX >> (64 - bits)) << (at % 64));
        at += bits;
    }
}

/// The one to whom a region lends buffers. It reads frames; it writes nothing.
#[derive(Debug)]
pub struct Borrower {
    memory: Arc<Memory>,
    region: u64,
    start: usize,
    bytes: usize,
    /// Units of all buffers in its hands.
    held: Units,
    released: Vec<Descriptor>,
    /// Packets handed over to ports since the last return.
    handed_over: usize,
    /// Buffers that ports gave back since then.
    reclaimed: Vec<u32>,
    /// Vectors to be used again.
    spare: Vec<Descriptor>,
    spare_reclaimed: Vec<u32>,
}

impl Borrower {
    pub(crate) fn new(memory: Arc<Memory>, region: u64, start: usize, bytes: usize) -> Self {
        let mut held = Units::default();
        held.reserve(bytes.div_ceil(BUFFER_UNIT_BYTES));
        Self {
            memory,
            region,
            start,
            bytes,
            held,
            released: Vec::new(),
            handed_over: 0,
            reclaimed: Vec::new(),
            spare: Vec::new(),
            spare_reclaimed: Vec::new(),
        }
    }

    /// Takes buffers into its hands.
    ///
    /// # Panics
    /// When they are another region's.
    pub fn accept(&mut self, mut loan: Loan) {
        assert_eq!(loan.region, self.region, "a loan of another region");
        for descriptor in loan.buffers.drain(..) {
            self.held.insert(self.first_unit(&descriptor), usize::from(descriptor.room));
        }
        self.spare = loan.buffers;
        self.spare_reclaimed = loan.reclaimed;
    }

    /// The frame of a packet in its hands.
    ///
    /// # Panics
    /// When it is not.
    #[inline]
    pub fn frame(&self, descriptor: &Descriptor) -> &[u8] {
        if !self.holds(descriptor) {
            outside(*descriptor);
        }
        // SAFETY: all units of the buffer are held, so they came with a loan that was not given back. A region makes no reference to what
        // it has lent, lends nothing twice, and loans cannot be copied; so nobody writes here before the buffer is given back, which takes
        // `&mut self`. `memory` keeps the arena mapped. A device reaches only packets that were submitted to it, and those
        // that leave are not.
        unsafe {
            let frame = self.memory.base().as_ptr().add(descriptor.frame_offset());
            std::slice::from_raw_parts(frame, usize::from(descriptor.length))
        }
    }

    /// Lets go of a buffer.
    ///
    /// # Panics
    /// When it is not in its hands.
    #[inline]
    pub fn release(&mut self, descriptor: &Descriptor) {
        if !self.holds(descriptor) {
            outside(*descriptor);
        }
        self.held.remove(self.first_unit(descriptor), usize::from(descriptor.room));
        self.released.push(*descriptor);
    }

    /// As [`Region::hand_over`].
    ///
    /// # Panics
    /// When the packet is not in its hands.
    #[inline]
    pub fn hand_over(&mut self, descriptor: &Descriptor) {
        if !self.holds(descriptor) {
            outside(*descriptor);
        }
        self.held.remove(self.first_unit(descriptor), usize::from(descriptor.room));
        self.handed_over += 1;
    }

    /// As [`Region::reclaim`]; it is the region that looks whether a port had the buffer.
    #[inline]
    pub fn reclaim(&mut self, buffer: u32) {
        self.reclaimed.push(buffer);
    }

    /// What was let go of since the last call, to be brought back to the region.
    pub fn returned(&mut self) -> Loan {
        let spare = std::mem::take(&mut self.spare);
        let spare_reclaimed = std::mem::take(&mut self.spare_reclaimed);
        Loan {
            region: self.region,
            buffers: std::mem::replace(&mut self.released, spare),
            handed_over: std::mem::take(&mut self.handed_over),
            reclaimed: std::mem::replace(&mut self.reclaimed, spare_reclaimed),
        }
    }

    fn holds(&self, descriptor: &Descriptor) -> bool {
        let offset = descriptor.buffer_offset().wrapping_sub(self.start);
        offset < self.bytes
            && descriptor.room_bytes() <= self.bytes - offset
            && usize::from(descriptor.head) + usize::from(descriptor.length) <= descriptor.room_bytes()
            && self.held.all(offset / BUFFER_UNIT_BYTES, usize::from(descriptor.room))
    }

    fn first_unit(&self, descriptor: &Descriptor) -> usize {
        (descriptor.buffer_offset() - self.start) / BUFFER_UNIT_BYTES
    }
}

/// The buffers of packets on their way out, in whoever's hands they are.
#[derive(Debug)]
pub enum Outgoing<'a> {
    /// The worker that received them sends them too.
    Own(&'a mut Region),
    /// A thread of its own sends them.
    Lent(&'a mut Borrower),
}

impl Outgoing<'_> {
    /// The frame.
    ///
    /// # Panics
    /// When the packet is not in these hands.
    #[inline]
    pub fn frame(&self, descriptor: &Descriptor) -> &[u8] {
        match self {
            Self::Own(region) => region.frame(descriptor),
            Self::Lent(borrower) => borrower.frame(descriptor),
        }
    }

    /// Returns the buffer of a packet that is out.
    #[inline]
    pub fn release(&mut self, descriptor: &Descriptor) {
        match self {
            Self::Own(region) => region.release(descriptor),
            Self::Lent(borrower) => borrower.release(descriptor),
        }
    }

    /// Gives a packet to a port that reads it later: it is no longer in flight, its buffer not free before it is reclaimed.
    ///
    /// # Panics
    /// When the packet is not in these hands.
    #[inline]
    pub fn hand_over(&mut self, descriptor: &Descriptor) {
        match self {
            Self::Own(region) => region.hand_over(descriptor),
            Self::Lent(borrower) => borrower.hand_over(descriptor),
        }
    }

    /// [`Outgoing::hand_over`] of several packets.
    ///
    /// # Panics
    /// When one is not in these hands.
    #[inline]
    pub fn hand_over_all<'d>(&mut self, descriptors: impl Iterator<Item = &'d Descriptor>) {
        match self {
            Self::Own(region) => region.hand_over_all(descriptors),
            Self::Lent(borrower) => descriptors.for_each(|descriptor| borrower.hand_over(descriptor)),
        }
    }

    /// A buffer that was handed over is back.
    #[inline]
    pub fn reclaim(&mut self, buffer: u32) {
        match self {
            Self::Own(region) => region.reclaim(buffer),
            Self::Lent(borrower) => borrower.reclaim(buffer),
        }
    }

    /// Returns the buffers of packets that are out.
    #[inline]
    pub fn release_all(&mut self, packets: &[impl AsRef<Descriptor>]) {
        match self {
            Self::Own(region) => region.release_all(packets),
            Self::Lent(borrower) => packets.iter().for_each(|packet| borrower.release(packet.as_ref())),
        }
    }
}

impl<'a> From<&'a mut Region> for Outgoing<'a> {
    fn from(region: &'a mut Region) -> Self {
        Self::Own(region)
    }
}

impl<'a> From<&'a mut Borrower> for Outgoing<'a> {
    fn from(borrower: &'a mut Borrower) -> Self {
        Self::Lent(borrower)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use proptest::prelude::*;

    use super::*;
    use crate::{Arena, ArenaConfig, Layout};

    fn region(layout: Layout) -> Region {
        let config = ArenaConfig { layout, packets: 16, ..ArenaConfig::default() };
        Arena::new(config, 2).unwrap().split().remove(1)
    }

    fn panics<T>(body: impl FnOnce() -> T) -> bool {
        catch_unwind(AssertUnwindSafe(body)).is_err()
    }

    #[test]
    fn each_side_refuses_what_the_other_has() {
        for layout in [Layout::Slots, Layout::Dense] {
            let mut region = region(layout);
            let mut borrower = region.borrower();
            let [lent, kept] = [100, 200].map(|length| region.allocate(length).unwrap());
            region.frame_mut(&lent).fill(7);
            let loan = region.lend([&lent]);
            assert!(panics(|| region.frame(&lent).len()));
            assert!(panics(|| region.buffer_mut(&lent).len()));
            assert!(panics(|| region.lend([&lent])));
            // A descriptor that reaches into the buffer from beside it.
            let reaching = Descriptor { buffer: lent.buffer + 1, room: 1, head: 0, length: 1, ..lent };
            assert!(!region.contains(&reaching) && region.contains(&kept));
            assert!(panics(|| borrower.frame(&lent).len()));
            borrower.accept(loan);
            assert!(borrower.frame(&lent).iter().all(|&byte| byte == 7));
            assert!(panics(|| borrower.frame(&kept).len()));
            borrower.release(&lent);
            assert!(panics(|| borrower.frame(&lent).len()));
            assert!(panics(|| borrower.release(&lent)));
            assert!(!region.contains(&lent));
            let back = borrower.returned();
            assert_eq!((back.len(), region.allocated()), (1, 2));
            region.take_back(back);
            assert!(region.contains(&lent));
            assert_eq!(region.allocated(), 1);
        }
    }

    #[test]
    #[should_panic(expected = "another region")]
    fn a_loan_goes_back_to_its_own_region() {
        let mut regions = Arena::new(ArenaConfig { packets: 4, ..ArenaConfig::default() }, 2).unwrap().split();
        let buffer = regions[0].allocate(60).unwrap();
        let loan = regions[0].lend([&buffer]);
        regions[1].take_back(loan);
    }

    /// Frames are read on one thread while others are written on another; nothing is lost or mixed up.
    #[test]
    fn frames_cross_threads() {
        let mut region = region(Layout::Dense);
        let mut borrower = region.borrower();
        let (there, arrived) = std::sync::mpsc::sync_channel::<(Loan, Vec<Descriptor>)>(4);
        let (back, home) = std::sync::mpsc::sync_channel(4);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for (loan, descriptors) in arrived {
                    borrower.accept(loan);
                    for descriptor in &descriptors {
                        let mark = descriptor.flow_hash as u8;
                        assert!(borrower.frame(descriptor).iter().all(|&byte| byte == mark));
                        borrower.release(descriptor);
                    }
                    back.send(borrower.returned()).unwrap();
                }
            });
            let mut descriptors = Vec::new();
            for packet in 0..20_000u32 {
                while let Ok(loan) = home.try_recv() {
                    region.take_back(loan);
                }
                if let Some(mut descriptor) = region.allocate(60 + packet as usize % 900) {
                    descriptor.flow_hash = packet;
                    region.buffer_mut(&descriptor).fill(packet as u8);
                    descriptors.push(descriptor);
                }
                if descriptors.len() == 3 {
                    let loan = region.lend(&descriptors);
                    there.send((loan, std::mem::take(&mut descriptors))).unwrap();
                }
            }
            drop(there);
            home.iter().for_each(|loan| region.take_back(loan));
            assert_eq!(region.allocated(), descriptors.len());
        });
    }

    proptest! {
        #[test]
        fn units_are_a_set(steps in prop::collection::vec((0u8..3, 0usize..500, 0usize..140), 0..100)) {
            let mut units = Units::default();
            prop_assert!(!units.any(0, 640));
            units.reserve(640);
            let mut model = [false; 640];
            for (kind, first, count) in steps {
                let range = first..first + count;
                prop_assert_eq!(units.any(first, count), model[range.clone()].contains(&true));
                prop_assert_eq!(units.has(first), model[first]);
                prop_assert_eq!(units.all(first, count), !model[range.clone()].contains(&false));
                match kind {
                    0 if count == 1 => prop_assert_eq!(units.add(first), !model[first]),
                    0 => units.insert(first, count),
                    1 if count == 1 => prop_assert_eq!(units.take(first), model[first]),
                    1 => units.remove(first, count),
                    _ => continue,
                }
                model[range].fill(kind == 0);
            }
        }
    }
}
