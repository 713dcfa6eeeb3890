//! Threads that look up while another one changes routes.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use godwit_function::{Error, Running};
use godwit_kernels::{Level, levels};

pub(crate) const READERS: usize = 2;

/// Stands for an engine: what readers have begun is in flight.
#[derive(Default)]
pub(crate) struct Readers {
    turns: [AtomicU64; READERS],
    pub(crate) ended: AtomicBool,
}

impl Readers {
    /// What a reader does over and over; nothing is in flight between two of its turns.
    pub(crate) fn read(&self, reader: usize, mut turn: impl FnMut()) {
        while !self.ended.load(Ordering::Acquire) {
            turn();
            self.turns[reader].fetch_add(1, Ordering::AcqRel);
            std::thread::yield_now();
        }
        self.turns[reader].store(u64::MAX / 2, Ordering::Release);
    }
}

impl Running for Readers {
    fn image_changed(&self, _range: Range<usize>) -> Result<(), Error> {
        Ok(())
    }

    fn quiesce(&self) -> Result<(), Error> {
        let before: Vec<u64> = self.turns.iter().map(|turns| turns.load(Ordering::Acquire)).collect();
        for (turns, before) in self.turns.iter().zip(before) {
            while turns.load(Ordering::Acquire) == before {
                std::thread::yield_now();
            }
        }
        Ok(())
    }
}

/// Stands for an engine where nobody reads: nothing is in flight.
#[allow(dead_code, reason = "not every test has such")]
pub(crate) struct Nobody;

impl Running for Nobody {
    fn image_changed(&self, _range: Range<usize>) -> Result<(), Error> {
        Ok(())
    }

    fn quiesce(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// Ends readers also where the writer fails.
pub(crate) struct End<'a>(pub(crate) &'a Readers);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Release);
    }
}

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        // splitmix64 (Steele, Lea, Flood, OOPSLA 2014, figure 16).
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % u64::from(end)) as u32
    }
}

pub(crate) fn level() -> &'static Level {
    levels().iter().rfind(|level| level.supported()).expect("a level for this CPU")
}
