//! Next hops that change while kernels look up routes (`docs/decisions/0009-route-changes.md`).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use godwit_packet::Image;

use super::NextHop;
use crate::{Error, Running};

/// Encoded next hop, 16 bytes long. The word `to` holds the destination address, the port and the
/// flags. The word `from` holds the source address and the MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) to: u64,
    pub(crate) from: u64,
}

/// Encoding of next hops for the kernel of a function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    pub(crate) record: fn(&NextHop) -> Record,
    /// Flag in the lowest byte of [`Record::to`] for a next hop whose Ethernet address is unknown.
    pub(crate) unresolved: u8,
}

/// Length of a [`Record`], in bytes.
const RECORD_BYTES: usize = 16;

/// Next hops in the memory that kernels read.
#[derive(Debug)]
pub(crate) struct NextHops {
    image: Arc<Image>,
    /// Offset of the first next hop in memory.
    offset: usize,
    /// Number of next hops for which there is room.
    capacity: usize,
    format: Format,
    taken: Vec<Option<NextHop>>,
    free: VecDeque<u32>,
    /// Indices of removed next hops, to which packets in flight may still refer.
    retired: Vec<u32>,
    /// Changed ranges that are not copied to the devices yet.
    unsent: Vec<Range<usize>>,
}

impl NextHops {
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

    /// Returns the number of removed next hops whose records are not free yet. The records can be
    /// reused when all packets in flight have left.
    pub(crate) fn retired(&self) -> usize {
        self.retired.len()
    }

    /// Frees the records of the first `retired` removed next hops. No packet in flight may refer to
    /// these records.
    pub(crate) fn reuse(&mut self, retired: usize) {
        self.free.extend(self.retired.drain(..retired));
    }

    fn quiesce(&mut self, running: &dyn Running) -> Result<(), Error> {
        let retired = self.retired();
        running.quiesce()?;
        self.reuse(retired);
        Ok(())
    }

    /// Copies all changed ranges to the devices. If the copy fails, the next call repeats it.
    pub(crate) fn send_again(&mut self, running: &dyn Running) -> Result<(), Error> {
        while let Some(range) = self.unsent.last() {
            running.image_changed(range.clone())?;
            self.unsent.pop();
        }
        Ok(())
    }

    /// Returns the number of next hops that can be added without waiting for packets in flight.
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
                "all {} next hops of the table are in use: raise spare_next_hops of the function",
                self.capacity
            )));
        }
        let mut was_used = false;
        let mut indexes = Vec::with_capacity(next_hops.len());
        for &next_hop in next_hops {
            // Indices that were never used are taken first, because no device cache contains old
            // contents for them.
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
            let (at, record) = (self.record_offset(index), (self.format.record)(&next_hop));
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

    /// Changes existing next hops.
    pub(crate) fn set(&mut self, next_hops: &[(u32, NextHop)], running: &dyn Running) -> Result<(), Error> {
        self.send_again(running)?;
        if next_hops.iter().any(|(index, _)| self.at(*index).is_none()) {
            return Err(refusal("there is no next hop with this index".to_owned()));
        }
        // A packet must not combine an old word and a new word of the same next hop. If both words
        // change, the next hop is first marked as unresolved. The new words are written after all
        // packets that may have read an old word have left.
        let mut slow = Vec::new();
        for &(index, next_hop) in next_hops {
            let (at, record) = (self.record_offset(index), (self.format.record)(&next_hop));
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

    /// Removes next hops that no route uses. `uses` returns the number of routes to a next hop.
    pub(crate) fn remove(&mut self, indexes: &[u32], uses: &dyn Fn(u32) -> u32) -> Result<(), Error> {
        for &index in indexes {
            if self.at(index).is_none() {
                return Err(refusal("there is no next hop with this index".to_owned()));
            }
            match uses(index) {
                0 => {}
                routes => return Err(refusal(format!("the next hop is in use by {routes} routes"))),
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

    fn record_offset(&self, index: u32) -> usize {
        self.offset + index as usize * RECORD_BYTES
    }
}

fn refusal(message: String) -> Error {
    Error::Command { message }
}
