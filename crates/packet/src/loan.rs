//! A worker can lend packet buffers to another thread. This thread reads the frames and then
//! returns the buffers.
//!
//! ```text
//! worker's Region --lend--> Loan --accept--> sender's Borrower
//! worker's Region <--take_back-- Loan <--frame, release, returned-- sender's Borrower
//! ```
//!
//! A [`Loan`] cannot be copied. A buffer therefore belongs either to the worker's region or to one
//! borrower. Each side refuses access to buffers that the other side holds. A loan is sent through
//! a channel, which also makes the writes of one thread visible to the other thread.

use std::sync::Arc;

use crate::region::outside;
use crate::{BUFFER_UNIT_BYTES, Descriptor, Memory, Region};

/// Buffers in transit between a region and a borrower.
///
/// If a loan is dropped, its buffers are lost to their region. The memory itself stays valid.
///
/// ```
/// use godwit_packet::{Arena, ArenaConfig};
///
/// let mut region = Arena::new(ArenaConfig::default(), 1)?.split().remove(0);
/// let mut borrower = region.borrower();
/// let packet = region.allocate(60).expect("the region is empty");
///
/// borrower.accept(region.lend([&packet]));
/// assert!(!region.contains(&packet));
/// assert_eq!(borrower.frame(&packet).len(), 60);
///
/// borrower.release(&packet);
/// region.take_back(borrower.returned());
/// assert_eq!(region.allocated(), 0);
/// # Ok::<(), godwit_packet::Error>(())
/// ```
#[derive(Debug)]
pub struct Loan {
    /// Identifier of the region, which is unique in the process.
    pub(crate) region: u64,
    pub(crate) buffers: Vec<Descriptor>,
    /// Number of packets that the borrower has passed to ports. Their buffers become free after
    /// transmission.
    pub(crate) handed_over: usize,
    /// Arena offsets of the buffers that ports have returned, in units of 64 bytes.
    pub(crate) reclaimed: Vec<u32>,
}

impl Loan {
    /// Returns the number of packets.
    pub fn len(&self) -> usize {
        self.buffers.len()
    }

    /// Returns whether the loan has no packets.
    pub fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }
}

/// Set of 64-byte units in a worker's packet memory. An empty set allocates no memory.
#[derive(Debug, Default)]
pub(crate) struct Units {
    words: Vec<u64>,
}

impl Units {
    /// Allocates memory for `units` units on the first call.
    pub(crate) fn reserve(&mut self, units: usize) {
        if self.words.is_empty() {
            self.words.resize(units.div_ceil(64), 0);
        }
    }

    /// Returns whether the set is not allocated yet.
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

    /// Returns whether a unit is in the set.
    #[inline(always)]
    pub(crate) fn has(&self, unit: usize) -> bool {
        self.words.get(unit / 64).is_some_and(|word| word >> (unit % 64) & 1 != 0)
    }

    /// Adds a 64-byte unit to the set. Returns false if the unit is already in the set or outside
    /// the set's range.
    #[inline(always)]
    pub(crate) fn add(&mut self, unit: usize) -> bool {
        let Some(word) = self.words.get_mut(unit / 64) else { return false };
        let bit = 1 << (unit % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Removes a 64-byte unit from the set. Returns false if the unit is not in the set.
    #[inline(always)]
    pub(crate) fn take(&mut self, unit: usize) -> bool {
        let Some(word) = self.words.get_mut(unit / 64) else { return false };
        let bit = 1 << (unit % 64);
        let was_there = *word & bit != 0;
        *word &= !bit;
        was_there
    }

    /// Returns whether the set contains any of the `count` units from `first` on.
    #[inline]
    pub(crate) fn any(&self, first: usize, count: usize) -> bool {
        if self.words.is_empty() {
            return false;
        }
        let mut found = false;
        each_word(first, count, |word, mask| found |= self.words[word] & mask != 0);
        found
    }

    /// Returns whether the set contains all `count` units from `first` on.
    pub(crate) fn all(&self, first: usize, count: usize) -> bool {
        let mut all = !self.words.is_empty();
        each_word(first, count, |word, mask| all &= self.words.get(word).is_some_and(|bits| bits & mask == mask));
        all
    }
}

/// Calls `with` for each 64-bit word that overlaps a range, with a mask of the range's bits in this
/// word.
#[inline]
fn each_word(first: usize, count: usize, mut with: impl FnMut(usize, u64)) {
    let (mut at, end) = (first, first + count);
    if count > 0 && at % 64 + count <= 64 {
        // Usually, all units of a buffer are in one word.
        with(at / 64, (u64::MAX >> (64 - count)) << (at % 64));
        return;
    }
    while at < end {
        let bits = (64 - at % 64).min(end - at);
        with(at / 64, (u64::MAX >> (64 - bits)) << (at % 64));
        at += bits;
    }
}

/// Buffers that a thread has borrowed from a worker's region. The thread only reads the frames in
/// these buffers.
#[derive(Debug)]
pub struct Borrower {
    memory: Arc<Memory>,
    region: u64,
    start: usize,
    bytes: usize,
    /// Set of the 64-byte units in all buffers that this thread has borrowed.
    held: Units,
    released: Vec<Descriptor>,
    /// Number of packets passed to ports since the last call to [`Borrower::returned`].
    handed_over: usize,
    /// Buffers that ports have returned since the last call to [`Borrower::returned`].
    reclaimed: Vec<u32>,
    /// Empty vector, whose memory a later loan reuses.
    spare: Vec<Descriptor>,
    /// Empty vector, whose memory a later loan reuses.
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

    /// Takes over the buffers that a region has lent with `loan`.
    ///
    /// # Panics
    /// Panics if the buffers belong to the region of another worker.
    pub fn accept(&mut self, mut loan: Loan) {
        assert_eq!(loan.region, self.region, "a loan of another region");
        for descriptor in loan.buffers.drain(..) {
            self.held.insert(self.first_unit(&descriptor), usize::from(descriptor.room));
        }
        self.spare = loan.buffers;
        self.spare_reclaimed = loan.reclaimed;
    }

    /// Returns the frame of a packet.
    ///
    /// # Panics
    /// Panics if this thread has not borrowed the buffer.
    #[inline]
    pub fn frame(&self, descriptor: &Descriptor) -> &[u8] {
        if !self.holds(descriptor) {
            outside(*descriptor);
        }
        // SAFETY: the borrower holds all units of the buffer, so they came with a loan that has not
        // been returned. A region creates no reference to lent buffers and lends no buffer twice,
        // and loans cannot be copied. No code writes the buffer before it is returned, which takes
        // `&mut self`. `memory` keeps the arena mapped. A device accesses only packets that are
        // submitted to it, and packets that are being sent are not.
        unsafe {
            let frame = self.memory.base().as_ptr().add(descriptor.frame_offset());
            std::slice::from_raw_parts(frame, usize::from(descriptor.length))
        }
    }

    /// Releases a buffer that is no longer needed. The next [`Loan`] from [`Borrower::returned`]
    /// returns the buffer to its region.
    ///
    /// # Panics
    /// Panics if this thread has not borrowed the buffer.
    #[inline]
    pub fn release(&mut self, descriptor: &Descriptor) {
        if !self.holds(descriptor) {
            outside(*descriptor);
        }
        self.held.remove(self.first_unit(descriptor), usize::from(descriptor.room));
        self.released.push(*descriptor);
    }

    /// Passes a packet to a port that sends it later, as [`Region::hand_over`] does.
    ///
    /// # Panics
    /// Panics if this thread has not borrowed the buffer.
    #[inline]
    pub fn hand_over(&mut self, descriptor: &Descriptor) {
        if !self.holds(descriptor) {
            outside(*descriptor);
        }
        self.held.remove(self.first_unit(descriptor), usize::from(descriptor.room));
        self.handed_over += 1;
    }

    /// Takes a buffer back from a port after the port has sent the packet, as [`Region::reclaim`]
    /// does. The region checks later that the port held the buffer.
    #[inline]
    pub fn reclaim(&mut self, buffer: u32) {
        self.reclaimed.push(buffer);
    }

    /// Returns all buffers that were released since the last call. The result is passed to
    /// [`Region::take_back`].
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

/// Access to the buffers of packets that must be sent.
#[derive(Debug)]
pub enum Outgoing<'a> {
    /// The worker that received the packets also sends them.
    Own(&'a mut Region),
    /// A separate thread sends the packets.
    Lent(&'a mut Borrower),
}

impl Outgoing<'_> {
    /// Returns the frame of an outgoing packet.
    ///
    /// # Panics
    /// Panics if the sending thread does not own or borrow the buffer.
    #[inline]
    pub fn frame(&self, descriptor: &Descriptor) -> &[u8] {
        match self {
            Self::Own(region) => region.frame(descriptor),
            Self::Lent(borrower) => borrower.frame(descriptor),
        }
    }

    /// Frees the buffer of a packet that has been sent.
    #[inline]
    pub fn release(&mut self, descriptor: &Descriptor) {
        match self {
            Self::Own(region) => region.release(descriptor),
            Self::Lent(borrower) => borrower.release(descriptor),
        }
    }

    /// Passes a packet to a port that sends it later. The packet no longer counts as in flight. Its
    /// buffer is not free until [`reclaim`](Outgoing::reclaim) is called.
    ///
    /// # Panics
    /// Panics if the sending thread does not own or borrow the buffer.
    #[inline]
    pub fn hand_over(&mut self, descriptor: &Descriptor) {
        match self {
            Self::Own(region) => region.hand_over(descriptor),
            Self::Lent(borrower) => borrower.hand_over(descriptor),
        }
    }

    /// Passes several packets to a port that sends them later, as [`Outgoing::hand_over`] does.
    ///
    /// # Panics
    /// Panics if the sending thread does not own or borrow one of the buffers.
    #[inline]
    pub fn hand_over_all<'d>(&mut self, descriptors: impl Iterator<Item = &'d Descriptor>) {
        match self {
            Self::Own(region) => region.hand_over_all(descriptors),
            Self::Lent(borrower) => descriptors.for_each(|descriptor| borrower.hand_over(descriptor)),
        }
    }

    /// Takes back a buffer from a port to which its packet was passed.
    #[inline]
    pub fn reclaim(&mut self, buffer: u32) {
        match self {
            Self::Own(region) => region.reclaim(buffer),
            Self::Lent(borrower) => borrower.reclaim(buffer),
        }
    }

    /// Frees the buffers of packets that have been sent.
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
    fn each_side_refuses_buffers_of_the_other() {
        for layout in [Layout::Slots, Layout::Dense] {
            let mut region = region(layout);
            let mut borrower = region.borrower();
            let [lent, kept] = [100, 200].map(|length| region.allocate(length).unwrap());
            region.frame_mut(&lent).fill(7);
            let loan = region.lend([&lent]);
            assert!(panics(|| region.frame(&lent).len()));
            assert!(panics(|| region.buffer_mut(&lent).len()));
            assert!(panics(|| region.lend([&lent])));
            // The descriptor starts inside a buffer, so it is invalid.
            let overlapping = Descriptor { buffer: lent.buffer + 1, room: 1, head: 0, length: 1, ..lent };
            assert!(!region.contains(&overlapping) && region.contains(&kept));
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
    fn region_rejects_a_loan_of_another_region() {
        let mut regions = Arena::new(ArenaConfig { packets: 4, ..ArenaConfig::default() }, 2).unwrap().split();
        let buffer = regions[0].allocate(60).unwrap();
        let loan = regions[0].lend([&buffer]);
        regions[1].take_back(loan);
    }

    #[test]
    fn frames_cross_threads_intact() {
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
        fn units_behave_as_a_set(steps in prop::collection::vec((0u8..3, 0usize..500, 0usize..140), 0..100)) {
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
