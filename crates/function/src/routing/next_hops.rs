//! Next hops in a table image, changed while look-ups run (`docs/decisions/0009-route-changes.md`).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use godwit_packet::Image;

use super::NextHop;
use crate::{Error, Running};

/// A next hop as it lies in an image, 16 bytes: `from`, the second word, has what belongs to the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) to: u64,
    pub(crate) from: u64,
}

/// How the kernel of a function reads next hops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    pub(crate) record: fn(&NextHop) -> Record,
    /// In the lowest byte of `to`: the station's address is not known.
    pub(crate) unresolved: u8,
}

/// Bytes of a [`Record`].
const RECORD_BYTES: usize = 16;

/// The next hops of an image.
#[derive(Debug)]
pub(crate) struct NextHops {
    image: Arc<Image>,
    /// Where they begin.
    offset: usize,
    /// For how many there is room.
    capacity: usize,
    format: Format,
    taken: Vec<Option<NextHop>>,
    free: VecDeque<u32>,
    /// Those that packets in flight may know.
    retired: Vec<u32>,
    /// Parts of the image that a device did not take.
    unsent: Vec<Range<usize>>,
}

impl NextHops {
    /// `next_hops` are those that the image has.
    pub(crate) fn new(
        image: Arc<Image>,
        offset: usize,
        capacity: usize,
        format: Format,
        next_hops: &[NextHop],
    ) -> Self {
        Self {
            image,
            offset,
            capacity,
            format,
            taken: next_hops.iter().copied().map(Some).collect(),
            free: VecDeque::new(),
            retired: Vec::new(),
            unsent: Vec::new(),
        }
    }

    pub(crate) fn at(&self, index: u32) -> Option<NextHop> {
        *self.taken.get(index as usize)?
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, NextHop)> {
        (0..).zip(&self.taken).filter_map(|(index, next_hop)| Some((index, (*next_hop)?)))
    }

    /// How many are retired: to be reused once packets now in flight are gone.
    pub(crate) fn retired(&self) -> usize {
        self.retired.len()
    }

    /// No packet knows the first so many retired ones any more.
    pub(crate) fn reuse(&mut self, retired: usize) {
        self.free.extend(self.retired.drain(..retired));
    }

    fn quiesce(&mut self, running: &dyn Running) -> Result<(), Error> {
        let retired = self.retired();
        running.quiesce()?;
        self.reuse(retired);
        Ok(())
    }

    /// Brings what has changed to devices.
    pub(crate) fn send_again(&mut self, running: &dyn Running) -> Result<(), Error> {
        while let Some(range) = self.unsent.last() {
            running.image_changed(range.clone())?;
            self.unsent.pop();
        }
        Ok(())
    }

    /// Those that can be added without waiting.
    fn room(&self) -> usize {
        self.free.len() + self.capacity - self.taken.len()
    }

    pub(crate) fn add(&mut self, next_hops: &[NextHop], running: &dyn Running) -> Result<Vec<u32>, Error> {
        self.send_again(running)?;
        if self.room() < next_hops.len() && !self.retired.is_empty() {
            self.quiesce(running)?;
        }
        if self.room() < next_hops.len() {
            return Err(refusal(format!(
                "all {} next hops that the table has room for are in use: give the function more by spare_next_hops",
                self.capacity
            )));
        }
        let mut was_used = false;
        let mut indexes = Vec::with_capacity(next_hops.len());
        for &next_hop in next_hops {
            // Those never used first: no device remembers what was there.
            let index = if self.taken.len() < self.capacity {
                self.taken.push(None);
                self.taken.len() as u32 - 1
            } else {
                was_used = true;
                let Some(index) = self.free.pop_front() else { unreachable!("there is room") };
                index
            };
            self.taken[index as usize] = Some(next_hop);
            indexes.push(index);
            let (at, record) = (self.place(index), (self.format.record)(&next_hop));
            self.image.store_u64(at + 8, record.from);
            self.image.store_u64(at, record.to);
            self.unsent.push(at..at + RECORD_BYTES);
        }
        let sent = self.send_again(running);
        let sent = sent.and_then(|()| if was_used { self.quiesce(running) } else { Ok(()) });
        if let Err(error) = sent {
            indexes.iter().for_each(|&index| self.retire(index));
            return Err(error);
        }
        Ok(indexes)
    }

    /// Changes next hops where they are.
    pub(crate) fn set(&mut self, next_hops: &[(u32, NextHop)], running: &dyn Running) -> Result<(), Error> {
        self.send_again(running)?;
        if next_hops.iter().any(|(index, _)| self.at(*index).is_none()) {
            return Err(refusal("there is no such next hop".to_owned()));
        }
        // Where both words change nobody must see the one without the other: such a next hop is unresolved until no packet
        // is in flight that may have read a part of it.
        let mut slow = Vec::new();
        for &(index, next_hop) in next_hops {
            let (at, record) = (self.place(index), (self.format.record)(&next_hop));
            let differs = (self.image.load_u64(at) != record.to, self.image.load_u64(at + 8) != record.from);
            self.taken[index as usize] = Some(next_hop);
            match differs {
                (false, false) => continue,
                (true, false) => self.image.store_u64(at, record.to),
                (false, true) => self.image.store_u64(at + 8, record.from),
                (true, true) => {
                    let flag = u64::from(self.format.unresolved);
                    self.image.store_u64(at, self.image.load_u64(at) & !0xff | flag);
                    slow.push((at, record));
                }
            }
            self.unsent.push(at..at + RECORD_BYTES);
        }
        self.send_again(running)?;
        if slow.is_empty() {
            return Ok(());
        }
        self.quiesce(running)?;
        for (at, record) in &slow {
            self.image.store_u64(at + 8, record.from);
            self.unsent.push(*at..at + RECORD_BYTES);
        }
        self.send_again(running)?;
        self.quiesce(running)?;
        for (at, record) in &slow {
            self.image.store_u64(*at, record.to);
            self.unsent.push(*at..at + RECORD_BYTES);
        }
        self.send_again(running)
    }

    /// Removes next hops; `uses` says how many routes lead to one.
    pub(crate) fn remove(&mut self, indexes: &[u32], uses: &dyn Fn(u32) -> u32) -> Result<(), Error> {
        for &index in indexes {
            if self.at(index).is_none() {
                return Err(refusal("there is no such next hop".to_owned()));
            }
            match uses(index) {
                0 => {}
                routes => return Err(refusal(format!("{routes} routes lead to the next hop"))),
            }
        }
        indexes.iter().for_each(|&index| self.retire(index));
        Ok(())
    }

    fn retire(&mut self, index: u32) {
        if self.taken[index as usize].take().is_some() {
            self.retired.push(index);
        }
    }

    fn place(&self, index: u32) -> usize {
        self.offset + index as usize * RECORD_BYTES
    }
}

fn refusal(message: String) -> Error {
    Error::Command { message }
}
