//! Order in which words of a table are written while kernels look up entries. Writes are divided
//! into groups, which the code calls waves. After each group, the writer waits until all lookups
//! that began earlier have ended.
//!
//! An entry moves in two steps. One group of writes copies the entry to its new slot, and a later
//! group overwrites the old slot. The order of the writes in a group does not matter.

use std::collections::{HashMap, VecDeque};

use godwit_packet::Image;

use crate::tables::ranges;
use crate::{Error, Running};

/// Slot of the table, and the word to write there.
pub(crate) type Write = (u32, u64);

/// Pending writes to the slots of a hash table, in groups.
#[derive(Debug, Default)]
pub(crate) struct Waves {
    waves: VecDeque<Vec<Write>>,
    /// Number of completed groups.
    done: u32,
    /// Number of the last group that writes each slot.
    last: HashMap<u32, u32>,
}

impl Waves {
    /// Adds a write to a table slot. The write joins the first group after all pending writes to
    /// this slot.
    pub(crate) fn write(&mut self, slot: u32, word: u64) {
        let wave = self.first_wave(&[slot]);
        self.put(wave, slot, word);
    }

    /// Adds the writes that insert an entry. Each entry on `path` moves to the next slot, beginning
    /// with the last one. `words` returns the new contents of a slot.
    pub(crate) fn write_path(&mut self, path: &[u32], words: impl Fn(u32) -> u64) {
        let wave = self.first_wave(path);
        for (wave, &slot) in (wave..).zip(path.iter().rev()) {
            self.put(wave, slot, words(slot));
        }
    }

    /// Returns the first group after all pending writes to the given slots.
    fn first_wave(&self, slots: &[u32]) -> u32 {
        slots.iter().filter_map(|slot| self.last.get(slot)).max().map_or(self.done, |wave| wave + 1)
    }

    fn put(&mut self, wave: u32, slot: u32, word: u64) {
        let index = (wave - self.done) as usize;
        while self.waves.len() <= index {
            self.waves.push_back(Vec::new());
        }
        self.waves[index].push((slot, word));
        self.last.insert(slot, wave);
    }

    /// Writes the pending groups to the table at `offset` of the image, and copies them to the
    /// devices. Without an engine, no lookups run, so the method does not wait after a group.
    ///
    /// # Errors
    /// Returns an error if the copy to a device failed or a wait timed out. The next call continues
    /// at the same group.
    pub(crate) fn publish(&mut self, image: &Image, offset: usize, running: Option<&dyn Running>) -> Result<(), Error> {
        let at = |(slot, _): &Write| offset + *slot as usize * 8;
        loop {
            let more = self.waves.len() > 1;
            let Some(wave) = self.front() else { return Ok(()) };
            for write in wave {
                image.store_u64(at(write), write.1);
            }
            if let Some(running) = running {
                for range in ranges(wave.iter().map(at), 8) {
                    running.image_changed(range)?;
                }
                if more {
                    // Lookups that began before this group of writes must end before the next group
                    // is written.
                    running.quiesce()?;
                }
            }
            self.pop();
        }
    }

    /// Returns the writes of the first pending group, in ascending order of their slots.
    pub(crate) fn front(&mut self) -> Option<&[Write]> {
        let wave = self.waves.front_mut()?;
        wave.sort_unstable_by_key(|(slot, _)| *slot);
        Some(wave)
    }

    /// Removes the first group after its words were written.
    pub(crate) fn pop(&mut self) {
        self.waves.pop_front();
        self.done += 1;
        if self.waves.is_empty() {
            self.done = 0;
            self.last.clear();
        }
    }
}
