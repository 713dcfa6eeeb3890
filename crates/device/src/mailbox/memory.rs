//! Accesses mailboxes, the queues through which the host gives batches of packets to persistent
//! work-groups. Host and device access the mailboxes at the same time.

use std::mem::{offset_of, size_of};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use godwit_abi::{Bin, MAILBOX_SLOT_PACKETS, Mailbox, MailboxSlot, extent};
use godwit_sched::Chunk;

use crate::bytes::{get, put};
use crate::check::packets_of;

/// Initial value of the mailbox counters, just below 2^32. The counters soon wrap to 0, which
/// reveals errors early.
const COUNTERS_START: u32 = u32::MAX - 80;
/// Alignment of mailboxes, in bytes.
const ALIGN_BYTES: usize = 128;
/// Stop request in an 8-byte word that the host shares with a work-group. The upper half of the
/// word holds [`Mailbox::stop`], and the lower half holds `posted`.
const STOP: u64 = 1 << 32;

/// Size of the host's atomic writes to memory that it shares with a work-group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostWords {
    /// Each write has 4 bytes. Work-groups do not read the field [`Mailbox::extent`].
    Single,
    /// Each write has 8 bytes. Work-groups read the fields `posted` and `stop` together, and then
    /// the field `extent`.
    Pairs,
}

/// Addresses of the mailboxes of all persistent work-groups of a device.
#[derive(Debug)]
pub(crate) struct Mailboxes {
    base: NonNull<u8>,
    groups: usize,
    mailbox_bytes: usize,
    slots: u32,
    slot: MailboxSlot,
    bin_packets: usize,
    words: HostWords,
}

// SAFETY: the value holds only addresses, and each method states the conditions for accesses.
unsafe impl Send for Mailboxes {}
// SAFETY: see above.
unsafe impl Sync for Mailboxes {}

impl Mailboxes {
    /// Rounds the maximum batch size in packets up to a supported number.
    pub(crate) fn bin_packets(bin_packets: usize) -> usize {
        bin_packets.max(1).next_multiple_of(MAILBOX_SLOT_PACKETS)
    }

    /// Returns the size in bytes of a mailbox for `slots` batches of up to `bin_packets` packets.
    /// The caller has rounded `bin_packets` with [`Mailboxes::bin_packets`].
    pub(crate) fn bytes_each(slots: u32, bin_packets: usize) -> usize {
        (size_of::<Mailbox>() + slots as usize * MailboxSlot::new(bin_packets).bytes).next_multiple_of(ALIGN_BYTES)
    }

    /// Initializes mailboxes in zeroed memory.
    ///
    /// # Safety
    /// `base` must be valid for `groups` times [`Mailboxes::bytes_each`] bytes as long as the value
    /// is used. No group may run yet.
    pub(crate) unsafe fn new(
        base: NonNull<u8>,
        groups: usize,
        slots: u32,
        bin_packets: usize,
        words: HostWords,
    ) -> Self {
        let (mailbox_bytes, slot) = (Self::bytes_each(slots, bin_packets), MailboxSlot::new(bin_packets));
        let mailboxes = Self { base, groups, mailbox_bytes, slots, slot, bin_packets, words };
        for group in 0..groups {
            mailboxes.word(group, offset_of!(Mailbox, posted)).store(COUNTERS_START, Ordering::Relaxed);
            mailboxes.word(group, offset_of!(Mailbox, finished)).store(COUNTERS_START, Ordering::Relaxed);
        }
        mailboxes
    }

    /// Returns the number of batches that each mailbox can hold.
    pub(crate) fn slots(&self) -> usize {
        self.slots as usize
    }

    /// Returns the maximum number of packets in a batch.
    pub(crate) fn bin_packets_max(&self) -> usize {
        self.bin_packets
    }

    /// Returns the number of batches that were posted to a work-group, modulo 2^32.
    pub(crate) fn posted(&self, group: usize) -> u32 {
        self.word(group, offset_of!(Mailbox, posted)).load(Ordering::Relaxed)
    }

    /// Returns the number of batches that a work-group has finished, modulo 2^32. The acquire load
    /// makes the results of these batches visible to the caller.
    pub(crate) fn finished(&self, group: usize) -> u32 {
        self.word(group, offset_of!(Mailbox, finished)).load(Ordering::Acquire)
    }

    /// Writes a batch to the slot with the number `posted`, and posts it to the work-group.
    ///
    /// # Safety
    /// The slot must be free: the group never owned it, or the caller has acquired its completion.
    /// No other thread may post to the group.
    pub(crate) unsafe fn post(&self, group: usize, posted: u32, chunk: &Chunk, bin: &Bin) {
        // SAFETY: the caller guarantees that the slot is free, and no other reference to it exists.
        let slot = unsafe { self.slot(group, posted) };
        let descriptors = &chunk.descriptors[packets_of(bin)];
        put(slot, 0, 0, &[Bin { first: 0, ..*bin }]);
        put(slot, self.slot.descriptors, 0, descriptors);
        put(slot, self.slot.parameters, 0, &chunk.parameters[packets_of(bin)]);
        let posted = posted.wrapping_add(1);
        match self.words {
            HostWords::Single => self.word(group, offset_of!(Mailbox, posted)).store(posted, Ordering::Release),
            HostWords::Pairs => {
                let extent = extent(descriptors, posted);
                self.pair(group, offset_of!(Mailbox, extent)).store(extent, Ordering::Relaxed);
                self.pair(group, offset_of!(Mailbox, posted)).store(posted.into(), Ordering::Release);
            }
        }
    }

    /// Copies the results of the batch with index `bin` from slot `number` to its submission.
    ///
    /// # Safety
    /// The caller must have acquired the completion of the slot.
    pub(crate) unsafe fn read(&self, group: usize, number: u32, chunk: &mut Chunk, bin: usize) {
        // SAFETY: the caller has acquired the completion of the slot, and no other reference to it
        // exists.
        let slot = unsafe { self.slot(group, number) };
        let packets = packets_of(&chunk.bins[bin]);
        get(slot, self.slot.descriptors, 0, &mut chunk.descriptors[packets.clone()]);
        get(slot, self.slot.outcomes, 0, &mut chunk.outcomes[packets.clone()]);
        if chunk.ran_chain {
            get(slot, self.slot.trails, 0, &mut chunk.trails[packets]);
        }
    }

    /// Waits until all work-groups report `state`. Returns `false` if this takes longer than
    /// `timeout`.
    pub(crate) fn wait_for(&self, state: u32, timeout: Duration, pause: impl Fn()) -> bool {
        let started = Instant::now();
        (0..self.groups).all(|group| {
            let running = self.word(group, offset_of!(Mailbox, running));
            while running.load(Ordering::Acquire) != state {
                if started.elapsed() > timeout {
                    return false;
                }
                pause();
            }
            true
        })
    }

    /// Makes every work-group end after its last posted batch. The caller must not post batches
    /// afterwards.
    pub(crate) fn request_stop(&self) {
        for group in 0..self.groups {
            match self.words {
                HostWords::Single => self.word(group, offset_of!(Mailbox, stop)).store(1, Ordering::Release),
                HostWords::Pairs => {
                    self.pair(group, offset_of!(Mailbox, posted)).fetch_or(STOP, Ordering::Release);
                }
            }
        }
    }

    /// Resets the mailboxes. All previous work-groups must have ended.
    pub(crate) fn reset(&self) {
        for group in 0..self.groups {
            self.word(group, offset_of!(Mailbox, stop)).store(0, Ordering::Relaxed);
            self.word(group, offset_of!(Mailbox, running)).store(0, Ordering::Relaxed);
        }
    }

    fn at(&self, group: usize, offset: usize) -> NonNull<u8> {
        assert!(group < self.groups && offset < self.mailbox_bytes);
        // SAFETY: the offset lies within the mailbox.
        unsafe { self.base.add(group * self.mailbox_bytes + offset) }
    }

    /// Returns a mailbox word as an atomic, because host and work-group access it at the same time.
    fn word(&self, group: usize, offset: usize) -> &AtomicU32 {
        // SAFETY: the word is aligned, and lives as long as the mailboxes. Host and device access
        // it only by atomic operations.
        unsafe { AtomicU32::from_ptr(self.at(group, offset).cast().as_ptr()) }
    }

    /// Returns two adjacent mailbox words as one atomic, because host and work-group access them at
    /// the same time.
    fn pair(&self, group: usize, offset: usize) -> &AtomicU64 {
        // SAFETY: the pair lies at a multiple of 8, and lives as long as the mailboxes. While
        // groups run, host and device access it only by 8-byte atomic operations.
        unsafe { AtomicU64::from_ptr(self.at(group, offset).cast().as_ptr()) }
    }

    /// Returns the bytes of the mailbox slot with the number `number`.
    ///
    /// # Safety
    /// The group must not own the slot, and there must be no other reference to it.
    #[expect(clippy::mut_from_ref, reason = "an address; the caller guarantees that there is one reference at a time")]
    unsafe fn slot(&self, group: usize, number: u32) -> &mut [u8] {
        let offset = size_of::<Mailbox>() + (number % self.slots) as usize * self.slot.bytes;
        // SAFETY: the slot lies within the mailbox. The caller guarantees exclusive access.
        unsafe { std::slice::from_raw_parts_mut(self.at(group, offset).as_ptr(), self.slot.bytes) }
    }
}
