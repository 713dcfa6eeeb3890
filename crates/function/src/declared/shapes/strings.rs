//! Table shape `strings`, an automaton like that of `dpi` (`kernels/tables/strings.h`). Each change
//! builds a new automaton.

use std::collections::BTreeSet;
use std::sync::Arc;

use godwit_packet::{Image, Memory};

use super::{Content, Place, Plan, refusal};
use crate::declared::entry::{Change, Key, Row};
use crate::dpi::{Case, tables};
use crate::{Error, Running};

/// Minimum block size in bytes, which leaves room for later changes.
const BLOCK_BYTES_MIN: usize = 1 << 20;

struct Strings {
    /// Patterns in the order of their numbers.
    patterns: BTreeSet<Vec<u8>>,
    offset: usize,
    block_bytes: usize,
    header: usize,
    /// Number of the block that searches read, which is 0 or 1.
    block: usize,
}

/// Plans a table with these patterns, with room for an automaton of twice the size.
pub(super) fn plan(entries: &[(Key, Row)]) -> Result<Plan, Error> {
    let patterns: BTreeSet<Vec<u8>> = entries.iter().map(|(key, _)| bytes_of(key).clone()).collect();
    let (memory, bytes) = automaton(&patterns)?;
    let block_bytes = (2 * bytes).max(BLOCK_BYTES_MIN).next_multiple_of(64);
    let write = move |image: &Arc<Image>, place: Place| -> Result<Box<dyn Content>, Error> {
        image.write(place.offset, &memory[..bytes]);
        image.write(place.header, &(place.offset as u64).to_le_bytes());
        Ok(Box::new(Strings { patterns, offset: place.offset, block_bytes, header: place.header, block: 0 }))
    };
    Ok(Plan { bytes: 2 * block_bytes, write: Box::new(write) })
}

fn bytes_of(key: &Key) -> &Vec<u8> {
    let Key::Bytes(bytes) = key else { unreachable!("the key of a strings table") };
    bytes
}

/// Returns the automaton of the patterns, and its size in bytes.
fn automaton(patterns: &BTreeSet<Vec<u8>>) -> Result<(Memory, usize), Error> {
    let list: Vec<Vec<u8>> = patterns.iter().cloned().collect();
    tables::image(&list, Case::Sensitive)
}

impl Strings {
    fn apply(&mut self, image: &Image, changes: &[Change], running: &dyn Running) -> Result<(), Error> {
        let mut patterns = self.patterns.clone();
        for (key, row) in changes {
            match row {
                Some(_) => patterns.insert(bytes_of(key).clone()),
                None => patterns.remove(bytes_of(key)),
            };
        }
        let (memory, bytes) = automaton(&patterns)?;
        if bytes > self.block_bytes {
            return Err(refusal("the patterns do not fit: restart Godwit with them, or use fewer or shorter ones"));
        }
        // Searches that began before the previous change may still read the unused block.
        running.quiesce()?;
        let block = 1 - self.block;
        let at = self.offset + block * self.block_bytes;
        image.write(at, &memory[..bytes]);
        running.image_changed(at..at + bytes)?;
        image.store_u64(self.header, at as u64);
        running.image_changed(self.header..self.header + 8)?;
        (self.patterns, self.block) = (patterns, block);
        Ok(())
    }
}

impl Content for Strings {
    fn change(&mut self, image: &Arc<Image>, changes: &[Change], running: &dyn Running) -> Result<(), (usize, Error)> {
        self.apply(image, changes, running).map_err(|error| (0, error))
    }
}
