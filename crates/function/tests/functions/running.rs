//! Replacements of an engine: threads that look up while another thread changes tables, or none.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use godwit_function::{Error, Running};
use godwit_kernels::{Level, levels};

/// Number of reader threads.
pub(crate) const READERS: usize = 2;

/// Engine whose packets are the lookups of readers. A lookup that has started is in flight.
#[derive(Default)]
pub(crate) struct Readers {
    /// Number of finished rounds of each reader.
    rounds: [AtomicU64; READERS],
    /// Set to end all readers.
    pub(crate) ended: AtomicBool,
}

impl Readers {
    /// Repeats a round of lookups until the end. Nothing is in flight between two rounds.
    pub(crate) fn read(&self, reader: usize, mut round: impl FnMut()) {
        while !self.ended.load(Ordering::Acquire) {
            round();
            self.rounds[reader].fetch_add(1, Ordering::AcqRel);
            std::thread::yield_now();
        }
        self.rounds[reader].store(u64::MAX / 2, Ordering::Release);
    }
}

impl Running for Readers {
    fn image_changed(&self, _range: Range<usize>) -> Result<(), Error> {
        Ok(())
    }

    fn quiesce(&self) -> Result<(), Error> {
        let before: Vec<u64> = self.rounds.iter().map(|rounds| rounds.load(Ordering::Acquire)).collect();
        for (rounds, before) in self.rounds.iter().zip(before) {
            while rounds.load(Ordering::Acquire) == before {
                std::thread::yield_now();
            }
        }
        Ok(())
    }
}

/// Engine without packets.
pub(crate) struct Idle;

impl Running for Idle {
    fn image_changed(&self, _range: Range<usize>) -> Result<(), Error> {
        Ok(())
    }

    fn quiesce(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// Ends all readers when it is dropped, even if the writer fails.
pub(crate) struct End<'a>(pub(crate) &'a Readers);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Release);
    }
}

/// Returns the highest level that the CPU supports.
pub(crate) fn level() -> &'static Level {
    levels().iter().rfind(|level| level.supported()).expect("the CPU supports a level")
}
