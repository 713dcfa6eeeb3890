//! In which order words of the table are written where look-ups run: in waves, and from one wave to the next everybody is
//! waited for.
//!
//! An entry is moved by a copy in one wave and the overwriting of its old place in a later one. Words of one wave
//! may be written in any order, and brought to a device in any order.

use std::collections::{HashMap, VecDeque};

/// A word and its place: the number of the entry.
pub(super) type Write = (u32, u64);

/// Words that are to be written.
#[derive(Debug, Default)]
pub(super) struct Waves {
    waves: VecDeque<Vec<Write>>,
    /// Waves written before the first of `waves`.
    done: u32,
    /// The last wave that writes a place.
    last: HashMap<u32, u32>,
}

impl Waves {
    /// A word, for when all that was said of its place before is written.
    pub(super) fn write(&mut self, place: u32, word: u64) {
        let wave = self.behind(&[place]);
        self.put(wave, place, word);
    }

    /// A new entry at the first place of a path, and every entry of the path to the next place, the last one first; `words` are
    /// what each place holds at the end.
    pub(super) fn write_path(&mut self, path: &[u32], words: impl Fn(u32) -> u64) {
        let wave = self.behind(path);
        for (wave, &place) in (wave..).zip(path.iter().rev()) {
            self.put(wave, place, words(place));
        }
    }

    /// The first wave behind all that write these places.
    fn behind(&self, places: &[u32]) -> u32 {
        places.iter().filter_map(|place| self.last.get(place)).max().map_or(self.done, |wave| wave + 1)
    }

    fn put(&mut self, wave: u32, place: u32, word: u64) {
        let index = (wave - self.done) as usize;
        while self.waves.len() <= index {
            self.waves.push_back(Vec::new());
        }
        self.waves[index].push((place, word));
        self.last.insert(place, wave);
    }

    /// The words to write now, by place.
    pub(super) fn front(&mut self) -> Option<&[Write]> {
        let wave = self.waves.front_mut()?;
        wave.sort_unstable_by_key(|(place, _)| *place);
        Some(wave)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.waves.len()
    }

    /// The first wave is written.
    pub(super) fn pop(&mut self) {
        self.waves.pop_front();
        self.done += 1;
        if self.waves.is_empty() {
            self.done = 0;
            self.last.clear();
        }
    }
}
