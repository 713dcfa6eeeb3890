//! Replacements for an engine. One has threads that look up entries while another thread changes
//! tables.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use godwit_function::{Error, Running};
use godwit_kernels::{Level, levels};

/// Number of reader threads.
pub(crate) const READERS: usize = 2;

/// Replacement for an engine, in which each lookup is a packet in flight.
#[derive(Default)]
pub(crate) struct Readers {
    /// Number of finished rounds of each reader.
    rounds: [AtomicU64; READERS],
    /// Whether all readers must end.
    pub(crate) ended: AtomicBool,
}

impl Readers {
    /// Repeats a round of lookups until the end of the test. No lookup is in flight between two
    /// rounds.
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

pub(crate) struct Idle;

impl Running for Idle {
    fn image_changed(&self, _range: Range<usize>) -> Result<(), Error> {
        Ok(())
    }

    fn quiesce(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// Ends all readers when this value is dropped, even if the writer fails.
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
