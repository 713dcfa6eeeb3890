//! Changes to the table while kernels look up addresses (`docs/decisions/0009-route-changes.md`).
//!
//! A batch of changes is applied in four steps:
//!
//! 1. *Prepare*: enter the routes into the [`Rib`], and compute the new value of each changed entry
//!    of the first table level, tbl24. Nothing is visible yet. A batch that does not fit is undone.
//! 2. *Write* the contents of new groups, which no lookup reads yet, and copy them to the devices.
//! 3. *Publish*: store each changed entry of tbl24 with one store, and copy the entries to the
//!    devices. Every lookup finds either the old group or the new one, and neither changes.
//! 4. *Retire* the groups that no entry refers to. They can be written again when all packets that
//!    may have read an old entry have left.
//!
//! Some devices do not keep their caches coherent. A group that was in use before may still be in a
//! cache of the device, fetched for an earlier packet. A batch of packets that started before step
//! 2 could then follow a new entry to old contents. If a batch of changes reuses a group, it
//! therefore waits between steps 2 and 3 until all packets in flight have left. The same wait frees
//! the groups that were retired earlier. Groups that were never used are taken first, so small
//! numbers of changes never wait.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use godwit_packet::Image;
use hashbrown::HashMap;

use super::Route;
use super::build::{GROUP_ENTRIES, Group, Layout, Piece};
use super::rib::{BlockCache, Rib};
use crate::routing::Unchanged;
use crate::{Error, Running};

/// Number of route changes that are applied together. With a larger number, more changes share one
/// wait and one copy to the devices. With a smaller number, changes take effect sooner.
const TRANSACTION_CHANGES: usize = 8192;
/// Maximum gap between two changed entries of the first table level, tbl24. Entries with a smaller
/// gap are copied to the devices in one transfer.
const GAP_ENTRIES: u32 = 2048;

/// Route change: prefix, prefix length and next hop index. `None` removes the route.
pub(crate) type Change = (u32, u8, Option<u32>);

/// Longest-prefix-match table with changeable routes. A next hop is a number whose meaning depends
/// on the packet function.
pub(crate) struct Table {
    image: Arc<Image>,
    layout: Layout,
    rib: Rib,
    groups: Groups,
    /// Changed ranges that are not copied to the devices yet.
    unsent: Vec<Range<usize>>,
}

struct Groups {
    /// Index of each group of 256 entries, by its contents.
    by_contents: HashMap<Arc<[Piece]>, u32>,
    slots: Slots<Arc<[Piece]>>,
    /// Number of first-level entries that refer to each group.
    uses: Vec<u32>,
}

/// Slots of the table, indexed by number. Each slot is in use, never used, free or retired. A
/// retired slot is no longer in use, but packets in flight may still read it.
pub(crate) struct Slots<T> {
    pub(crate) taken: Vec<Option<T>>,
    capacity: usize,
    free: VecDeque<u32>,
    pub(crate) retired: Vec<u32>,
}

impl<T> Slots<T> {
    pub(crate) fn new(taken: Vec<Option<T>>, capacity: usize) -> Self {
        Self { taken, capacity, free: VecDeque::new(), retired: Vec::new() }
    }

    pub(crate) fn at(&self, index: u32) -> Option<&T> {
        self.taken.get(index as usize)?.as_ref()
    }

    /// Returns the number of slots that can be taken without waiting for packets in flight.
    pub(crate) fn room(&self) -> usize {
        self.free.len() + self.capacity - self.taken.len()
    }

    /// Takes a slot for `value`. Returns the index of the slot, and whether the slot was in use
    /// before.
    ///
    /// # Panics
    /// Panics if there is no room.
    pub(crate) fn take(&mut self, value: T) -> (u32, bool) {
        if self.taken.len() < self.capacity {
            self.taken.push(Some(value));
            return (self.taken.len() as u32 - 1, false);
        }
        let Some(index) = self.free.pop_front() else { unreachable!("there is room") };
        self.taken[index as usize] = Some(value);
        (index, true)
    }

    pub(crate) fn retire(&mut self, index: u32) -> Option<T> {
        self.retired.push(index);
        self.taken[index as usize].take()
    }

    /// Frees the first `retired` retired slots. No packet in flight may refer to them.
    pub(crate) fn reuse(&mut self, retired: usize) {
        self.free.extend(self.retired.drain(..retired));
    }
}

/// New value of an entry of the first table level, tbl24.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    NextHop(u32),
    Group(u32),
    /// Index into [`TableUpdate::new_groups`] of a new group.
    New(u32),
}

/// Changes that one batch makes to the table.
#[derive(Default)]
struct TableUpdate {
    /// Ranges of consecutive /24 address blocks that get the same new value. Each range has a first
    /// block, a number of blocks and the value.
    runs: Vec<(u32, u32, Target)>,
    /// Contents of the new groups.
    new_groups: Vec<Arc<[Piece]>>,
}

impl Table {
    pub(crate) fn new(image: Arc<Image>, layout: Layout, routes: &[Route], groups: &[Group]) -> Self {
        let contents: Vec<Arc<[Piece]>> = groups.iter().map(|group| group.pieces.as_slice().into()).collect();
        let by_contents = contents.iter().cloned().zip(0..).collect();
        let slots = Slots::new(contents.into_iter().map(Some).collect(), layout.groups);
        let mut uses: Vec<u32> = groups.iter().map(|group| group.uses).collect();
        uses.resize(layout.groups, 0);
        Self { image, layout, rib: Rib::new(routes), groups: Groups { by_contents, slots, uses }, unsent: Vec::new() }
    }

    pub(crate) fn rib(&self) -> &Rib {
        &self.rib
    }

    /// Applies route changes in order. Calls `applied` with the changes that took effect.
    /// `is_known` returns whether a next hop exists.
    pub(crate) fn change(
        &mut self,
        changes: &[Change],
        is_known: impl Fn(u32) -> bool,
        running: &dyn Running,
        applied: &mut dyn FnMut(&[Change]),
    ) -> Result<(), Unchanged> {
        let mut done = 0;
        let mut size = TRANSACTION_CHANGES;
        while done < changes.len() {
            let part = &changes[done..][..size.min(changes.len() - done)];
            let sound = part.iter().take_while(|change| change.2.is_none_or(&is_known)).count();
            let result = match sound {
                0 => Err(refusal("there is no next hop with this index".to_owned())),
                _ => self.transaction(&part[..sound], running),
            };
            match result {
                Ok(true) => {
                    applied(&part[..sound]);
                    done += sound;
                    size = TRANSACTION_CHANGES.min(2 * size);
                }
                // Half of the batch may still fit.
                Ok(false) if sound > 1 => size = sound / 2,
                Ok(false) => {
                    let error = refusal(format!(
                        "all {} groups for routes longer than /24 are in use: raise spare_groups of the function",
                        self.layout.groups
                    ));
                    return Err(Unchanged { made: done, error });
                }
                Err(error) => return Err(Unchanged { made: done, error }),
            }
        }
        Ok(())
    }

    /// Applies all of the route changes or none of them. Returns `false` if too few groups are
    /// free.
    fn transaction(&mut self, changes: &[Change], running: &dyn Running) -> Result<bool, Error> {
        self.send_again(running)?;
        let mut dirty = Vec::new();
        let mut before = Vec::with_capacity(changes.len());
        for &(prefix, length, next_hop) in changes {
            before.push(self.rib.change(prefix, length, next_hop, &mut dirty));
        }
        let update = self.prepare(dirty);
        let written = match self.make_room(update.new_groups.len(), running) {
            Ok(true) => self.write(&update, running).map(Some),
            Ok(false) => Ok(None),
            Err(error) => Err(error),
        };
        match written {
            Ok(Some(made)) => {
                self.publish(&update, &made, running)?;
                Ok(true)
            }
            other => {
                for (&(prefix, length, _), &before) in changes.iter().zip(&before).rev() {
                    self.rib.change(prefix, length, before, &mut Vec::new());
                }
                other.map(|_| false)
            }
        }
    }

    /// Computes the table entries that the new routes change. The [`Rib`] already contains these
    /// routes.
    fn prepare(&self, mut dirty: Vec<(u32, u32)>) -> TableUpdate {
        dirty.sort_unstable();
        let mut update = TableUpdate::default();
        let mut new: HashMap<Arc<[Piece]>, u32> = HashMap::new();
        let (mut cache, mut pieces) = (BlockCache::default(), Vec::new());
        let mut next = 0;
        for (first, end) in dirty {
            for block in first.max(next)..end {
                let base = self.rib.block(block, &mut cache);
                let target = if !self.rib.pieces(block, base, &mut pieces) {
                    Target::NextHop(base)
                } else if let [all] = pieces[..] {
                    Target::NextHop(all as u32)
                } else if let Some(&group) = self.groups.by_contents.get(pieces.as_slice()) {
                    Target::Group(group)
                } else {
                    let number = new.get(pieces.as_slice()).copied().unwrap_or_else(|| {
                        let contents: Arc<[Piece]> = pieces.as_slice().into();
                        update.new_groups.push(Arc::clone(&contents));
                        let number = new.len() as u32;
                        new.insert(contents, number);
                        number
                    });
                    Target::New(number)
                };
                let entry = match target {
                    Target::NextHop(next_hop) => Some(self.layout.entry(next_hop)),
                    Target::Group(group) => Some(self.layout.top() | group),
                    Target::New(_) => None,
                };
                if entry == Some(self.entry(block)) {
                    continue;
                }
                match update.runs.last_mut() {
                    Some((first, count, of)) if *first + *count == block && *of == target => *count += 1,
                    _ => update.runs.push((block, 1, target)),
                }
            }
            next = next.max(end);
        }
        update
    }

    /// Returns whether `groups` groups of 256 entries are available. Waits for packets in flight if
    /// retired groups are needed.
    fn make_room(&mut self, groups: usize, running: &dyn Running) -> Result<bool, Error> {
        if self.groups.slots.room() < groups && !self.groups.slots.retired.is_empty() {
            self.quiesce(running)?;
        }
        Ok(self.groups.slots.room() >= groups)
    }

    /// Waits until all packets in flight have left. Then frees the groups that were retired before
    /// the call.
    pub(crate) fn quiesce(&mut self, running: &dyn Running) -> Result<(), Error> {
        let retired = self.groups.slots.retired.len();
        running.quiesce()?;
        self.groups.slots.reuse(retired);
        Ok(())
    }

    /// Writes the new groups to the table and copies them to the devices. Returns the group
    /// indices. If the copy fails, all new groups are freed again.
    fn write(&mut self, update: &TableUpdate, running: &dyn Running) -> Result<Vec<u32>, Error> {
        let mut made = Vec::with_capacity(update.new_groups.len());
        let mut was_used = false;
        let group_bytes = GROUP_ENTRIES * self.layout.entry_bytes;
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for contents in &update.new_groups {
            let (group, used) = self.groups.slots.take(Arc::clone(contents));
            was_used |= used;
            made.push(group);
            let at = self.layout.tbl8_offset + group as usize * group_bytes;
            let mut ends = contents[1..].iter().map(|piece| (piece >> 32) as usize).chain([GROUP_ENTRIES]);
            for piece in contents.iter() {
                let (first, end) = ((piece >> 32) as usize, ends.next().unwrap_or(GROUP_ENTRIES));
                self.fill(at + first * self.layout.entry_bytes, end - first, self.layout.entry(*piece as u32));
            }
            match ranges.last_mut() {
                Some(last) if last.end == at => last.end += group_bytes,
                _ => ranges.push(at..at + group_bytes),
            }
        }
        let sent = ranges.into_iter().try_for_each(|range| running.image_changed(range));
        let sent = sent.and_then(|()| if was_used { self.quiesce(running) } else { Ok(()) });
        if let Err(error) = sent {
            // No entry refers to the new groups yet, so they can be retired at once.
            made.iter().for_each(|group| drop(self.groups.slots.retire(*group)));
            return Err(error);
        }
        self.groups.by_contents.extend(update.new_groups.iter().cloned().zip(made.iter().copied()));
        Ok(made)
    }

    /// Stores the changed entries and retires unused groups. If the copy to a device fails, the
    /// changes stay in effect, and the device receives them with the next batch.
    fn publish(&mut self, update: &TableUpdate, made: &[u32], running: &dyn Running) -> Result<(), Error> {
        let (top, entry_bytes) = (self.layout.top(), self.layout.entry_bytes);
        let mut retired = Vec::new();
        let mut changed: Vec<(u32, u32)> = Vec::new();
        for &(first, count, target) in &update.runs {
            for block in first..first + count {
                let before = self.entry(block);
                if before & top != 0 {
                    let uses = &mut self.groups.uses[(before & !top) as usize];
                    *uses -= 1;
                    if *uses == 0 {
                        retired.push(before & !top);
                    }
                }
            }
            let group = match target {
                Target::NextHop(_) => None,
                Target::Group(group) => Some(group),
                Target::New(number) => Some(made[number as usize]),
            };
            let entry = match (target, group) {
                (Target::NextHop(next_hop), _) => self.layout.entry(next_hop),
                (_, group) => top | group.unwrap_or_default(),
            };
            if let Some(group) = group {
                self.groups.uses[group as usize] += count;
            }
            self.fill(self.layout.tbl24_offset + first as usize * entry_bytes, count as usize, entry);
            match changed.last_mut() {
                Some((_, end)) if first - *end <= GAP_ENTRIES => *end = first + count,
                _ => changed.push((first, first + count)),
            }
        }
        retired.sort_unstable();
        retired.dedup();
        for group in retired {
            // A later entry of this batch may refer to the group again.
            if self.groups.uses[group as usize] == 0
                && let Some(contents) = self.groups.slots.retire(group)
            {
                self.groups.by_contents.remove(&contents);
            }
        }
        let bytes = |entry: u32| self.layout.tbl24_offset + entry as usize * entry_bytes;
        self.unsent.extend(changed.into_iter().map(|(first, end)| bytes(first)..bytes(end)));
        self.send_again(running)
    }

    /// Copies all changed ranges to the devices. After a failure, the next call tries again.
    pub(crate) fn send_again(&mut self, running: &dyn Running) -> Result<(), Error> {
        while let Some(range) = self.unsent.last() {
            running.image_changed(range.clone())?;
            self.unsent.pop();
        }
        Ok(())
    }

    /// Adds a range that must be copied to devices.
    pub(crate) fn changed(&mut self, range: Range<usize>) {
        self.unsent.push(range);
    }

    fn entry(&self, block: u32) -> u32 {
        let at = self.layout.tbl24_offset + block as usize * self.layout.entry_bytes;
        match self.layout.entry_bytes {
            2 => self.image.load_u16(at).into(),
            _ => self.image.load_u32(at),
        }
    }

    fn fill(&self, offset: usize, count: usize, entry: u32) {
        match self.layout.entry_bytes {
            2 => self.image.fill_u16(offset, count, entry as u16),
            _ => self.image.fill_u32(offset, count, entry),
        }
    }
}

fn refusal(message: String) -> Error {
    Error::Command { message }
}
