//! Ring buffers in shared memory. Each ring has fixed-size slots, one writer and one reader.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::atomic::fence;

use super::shared::Shared;
use super::slot::{ANSWER_WORDS, JOB_WORDS};

/// Number of words before the slots. Each shared counter and flag has its own cache line.
const HEAD_WORDS: usize = 64;
const LINE_WORDS: usize = 8;

/// Index of the cache line with the flag that a process sets before it sleeps.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sleeper {
    Signer = 4,
    Client = 5,
}

/// Returns the size of the shared memory in words, for `slots` slots per ring.
pub(super) const fn words(slots: usize) -> usize {
    HEAD_WORDS + slots * (JOB_WORDS + ANSWER_WORDS)
}

/// Position of a ring in the shared memory.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Word with the number of slots written so far.
    written: usize,
    /// Word with the number of slots read so far.
    read: usize,
    first: usize,
    slot_words: usize,
    slots: u64,
}

impl Place {
    fn jobs(slots: usize) -> Self {
        Self { written: 0, read: LINE_WORDS, first: HEAD_WORDS, slot_words: JOB_WORDS, slots: slots as u64 }
    }

    fn answers(slots: usize) -> Self {
        let first = HEAD_WORDS + slots * JOB_WORDS;
        let lines = [2 * LINE_WORDS, 3 * LINE_WORDS];
        Self { written: lines[0], read: lines[1], first, slot_words: ANSWER_WORDS, slots: slots as u64 }
    }

    fn slot(&self, number: u64) -> std::ops::Range<usize> {
        let start = self.first + (number % self.slots) as usize * self.slot_words;
        start..start + self.slot_words
    }
}

/// Writing end of a ring.
#[derive(Debug)]
pub(super) struct Writer {
    shared: Arc<Shared>,
    place: Place,
    written: u64,
}

/// Reading end of a ring.
#[derive(Debug)]
pub(super) struct Reader {
    shared: Arc<Shared>,
    place: Place,
    read: u64,
}

/// The other process violated the protocol of a ring buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

/// Returns the client's job writer and answer reader.
pub(super) fn client(shared: &Arc<Shared>, slots: usize) -> (Writer, Reader) {
    ends(shared, Place::jobs(slots), Place::answers(slots))
}

/// Returns the signer's answer writer and job reader.
pub(super) fn signer(shared: &Arc<Shared>, slots: usize) -> (Writer, Reader) {
    ends(shared, Place::answers(slots), Place::jobs(slots))
}

fn ends(shared: &Arc<Shared>, write: Place, read: Place) -> (Writer, Reader) {
    let writer = Writer { shared: Arc::clone(shared), place: write, written: 0 };
    (writer, Reader { shared: Arc::clone(shared), place: read, read: 0 })
}

impl Writer {
    /// Writes one slot. Returns false if the ring is full.
    pub(super) fn push(&mut self, slot: &[u64]) -> bool {
        debug_assert!(slot.len() <= self.place.slot_words);
        let words = self.shared.words();
        let read = words[self.place.read].load(Ordering::Acquire);
        if self.written.wrapping_sub(read) >= self.place.slots {
            return false;
        }
        for (word, value) in words[self.place.slot(self.written)].iter().zip(slot) {
            word.store(*value, Ordering::Relaxed);
        }
        self.written += 1;
        // Release ordering publishes the slot's contents before the new count.
        words[self.place.written].store(self.written, Ordering::Release);
        true
    }
}

impl Reader {
    /// Copies the next slot to `slot`. Returns false if the ring is empty.
    pub(super) fn take(&mut self, slot: &mut [u64]) -> Result<bool, Broken> {
        let words = self.shared.words();
        let written = words[self.place.written].load(Ordering::Acquire);
        match written.wrapping_sub(self.read) {
            0 => return Ok(false),
            present if present > self.place.slots => return Err(Broken),
            _ => {}
        }
        for (value, word) in slot.iter_mut().zip(&words[self.place.slot(self.read)]) {
            *value = word.load(Ordering::Relaxed);
        }
        self.read += 1;
        words[self.place.read].store(self.read, Ordering::Release);
        Ok(true)
    }

    fn is_empty(&self) -> bool {
        self.shared.words()[self.place.written].load(Ordering::Acquire) == self.read
    }

    /// Announces that this process will sleep until the other one wakes it. Returns false if a slot
    /// has arrived, so that this process must stay awake.
    pub(super) fn announce_sleep(&self, sleeper: Sleeper) -> bool {
        let flag = &self.shared.words()[sleeper as usize * LINE_WORDS];
        flag.store(1, Ordering::Relaxed);
        // The fence separates the write of the flag from the following read. Either this process
        // sees the new slot, or the other process sees the flag.
        fence(Ordering::SeqCst);
        if self.is_empty() {
            return true;
        }
        flag.store(0, Ordering::Relaxed);
        false
    }
}

impl Writer {
    /// Returns whether the other process sleeps and must be woken after a slot was written.
    pub(super) fn must_wake(&self, sleeper: Sleeper) -> bool {
        fence(Ordering::SeqCst);
        let flag = &self.shared.words()[sleeper as usize * LINE_WORDS];
        flag.load(Ordering::Relaxed) == 1 && flag.swap(0, Ordering::Relaxed) == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOTS: usize = 8;

    fn pair() -> (Arc<Shared>, Writer, Reader) {
        let shared = Arc::new(Shared::create(words(SLOTS)).unwrap().0);
        let ((jobs, _), (_, reader)) = (client(&shared, SLOTS), signer(&shared, SLOTS));
        (shared, jobs, reader)
    }

    #[test]
    fn slots_arrive_in_order_and_a_full_ring_refuses() {
        let (_shared, mut writer, mut reader) = pair();
        let mut slot = [0; JOB_WORDS];
        for turn in 0..5 {
            for number in 0..SLOTS as u64 {
                assert!(writer.push(&[turn, number]));
            }
            assert!(!writer.push(&[9, 9]));
            for number in 0..SLOTS as u64 {
                assert_eq!(reader.take(&mut slot), Ok(true));
                assert_eq!(slot[..2], [turn, number]);
            }
            assert_eq!(reader.take(&mut slot), Ok(false));
        }
    }

    #[test]
    fn a_false_number_of_slots_is_detected() {
        let (shared, _writer, mut reader) = pair();
        for number in [SLOTS as u64 + 1, u64::MAX, 1 << 63] {
            shared.words()[0].store(number, Ordering::Relaxed);
            assert_eq!(reader.take(&mut [0; JOB_WORDS]), Err(Broken));
        }
    }

    #[test]
    fn no_wake_up_is_lost() {
        let (_shared, mut writer, mut reader) = pair();
        assert!(!writer.must_wake(Sleeper::Signer));
        assert!(reader.announce_sleep(Sleeper::Signer));
        assert!(writer.push(&[1]) && writer.must_wake(Sleeper::Signer));
        assert!(!writer.must_wake(Sleeper::Signer), "one wake-up suffices");
        assert!(!reader.announce_sleep(Sleeper::Signer), "a slot waits");
        assert_eq!(reader.take(&mut [0; JOB_WORDS]), Ok(true));
    }
}
