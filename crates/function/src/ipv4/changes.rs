//! Changes of the table while look-ups run (`docs/decisions/0009-route-changes.md`).
//!
//! A batch of changes goes through four steps:
//!
//! 1. *Plan*: enter the routes into the [`Rib`], and find which entries of tbl24 must become what. Nobody sees anything yet;
//!    a batch that does not fit is taken back.
//! 2. *Write* the contents of new groups, where no look-up reads, and bring them to devices.
//! 3. *Publish*: store each entry of tbl24, whole, and bring them to devices. Any look-up finds the old group or the new
//!    one, and neither changes.
//! 4. *Retire* groups that no entry names any more. They are written again when all packets that may have read such an entry
//!    are gone.
//!
//! A group that was in use before may lie in a cache of a device that keeps none of its caches coherent, fetched by a packet
//! that is gone. A bin that began before step 2 could then follow a new entry to old contents. So between steps 2 and 3 all
//! packets in flight are waited for, if a group is written that was in use before; the same wait frees those that were
//! retired before. Groups never used are taken first, so that few changes never wait.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use godwit_packet::Image;
use hashbrown::HashMap;

use super::Route;
use super::rib::{Near, Rib};
use super::tables::{self, GROUP_ENTRIES, Group, Layout, Piece};
use crate::routing::{NextHop, Unchanged};
use crate::{Error, Running};

/// Changes that are planned and published together: large enough to share waits and copies, small enough that what comes
/// first is soon in force.
const TRANSACTION_CHANGES: usize = 8192;
/// Entries of tbl24 that lie so near are copied to devices in one go.
const GAP_ENTRIES: u32 = 2048;

/// A change in numbers.
pub(super) type Change = (u32, u8, Option<u32>);

/// All that is needed to change the table.
pub(super) struct Changer {
    image: Arc<Image>,
    layout: Layout,
    rib: Rib,
    groups: Groups,
    next_hops: Slots<NextHop>,
    /// Parts of the image that a device did not take.
    unsent: Vec<Range<usize>>,
}

/// The groups that entries name.
struct Groups {
    /// How each splits its block.
    of_contents: HashMap<Arc<[Piece]>, u32>,
    slots: Slots<Arc<[Piece]>>,
    /// How many entries name each.
    uses: Vec<u32>,
}

/// Places of the image by index: in use, never used, free, and such that packets in flight may know.
struct Slots<T> {
    taken: Vec<Option<T>>,
    capacity: usize,
    free: VecDeque<u32>,
    retired: Vec<u32>,
}

impl<T> Slots<T> {
    fn new(taken: Vec<Option<T>>, capacity: usize) -> Self {
        Self { taken, capacity, free: VecDeque::new(), retired: Vec::new() }
    }

    fn at(&self, index: u32) -> Option<&T> {
        self.taken.get(index as usize)?.as_ref()
    }

    /// Places that can be taken without waiting.
    fn room(&self) -> usize {
        self.free.len() + self.capacity - self.taken.len()
    }

    /// Takes a place; and whether it was in use before. There must be room.
    fn take(&mut self, value: T) -> (u32, bool) {
        if self.taken.len() < self.capacity {
            self.taken.push(Some(value));
            return (self.taken.len() as u32 - 1, false);
        }
        let Some(index) = self.free.pop_front() else { unreachable!("there is room") };
        self.taken[index as usize] = Some(value);
        (index, true)
    }

    fn retire(&mut self, index: u32) -> Option<T> {
        self.retired.push(index);
        self.taken[index as usize].take()
    }

    /// No packet knows retired places any more.
    fn reuse(&mut self, retired: usize) {
        self.free.extend(self.retired.drain(..retired));
    }
}

/// What an entry of tbl24 is to become.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    NextHop(u32),
    Group(u32),
    /// One that is to be made: its place in [`Plan::contents`].
    New(u32),
}

/// What a transaction does.
#[derive(Default)]
struct Plan {
    /// Blocks one after the other with the same target: first, count.
    runs: Vec<(u32, u32, Target)>,
    /// Groups to be made.
    contents: Vec<Arc<[Piece]>>,
}

impl Changer {
    /// `groups`: those that the image has, by index.
    pub(super) fn new(
        image: Arc<Image>,
        layout: Layout,
        routes: &[Route],
        next_hops: &[NextHop],
        groups: &[Group],
    ) -> Self {
        let contents: Vec<Arc<[Piece]>> = groups.iter().map(|group| group.pieces.as_slice().into()).collect();
        let of_contents = contents.iter().cloned().zip(0..).collect();
        let slots = Slots::new(contents.into_iter().map(Some).collect(), layout.groups);
        let mut uses: Vec<u32> = groups.iter().map(|group| group.uses).collect();
        uses.resize(layout.groups, 0);
        Self {
            image,
            layout,
            rib: Rib::new(routes),
            groups: Groups { of_contents, slots, uses },
            next_hops: Slots::new(next_hops.iter().copied().map(Some).collect(), layout.next_hops),
            unsent: Vec::new(),
        }
    }

    pub(super) fn rib(&self) -> &Rib {
        &self.rib
    }

    pub(super) fn next_hop(&self, index: u32) -> Option<NextHop> {
        self.next_hops.at(index).copied()
    }

    pub(super) fn next_hops(&self) -> impl Iterator<Item = (u32, NextHop)> {
        (0..).zip(&self.next_hops.taken).filter_map(|(index, next_hop)| Some((index, (*next_hop)?)))
    }

    /// Makes changes in their order; `made` hears of those that are in force.
    pub(super) fn change(
        &mut self,
        changes: &[Change],
        running: &dyn Running,
        made: &mut dyn FnMut(&[Change]),
    ) -> Result<(), Unchanged> {
        let mut done = 0;
        let mut size = TRANSACTION_CHANGES;
        while done < changes.len() {
            let part = &changes[done..][..size.min(changes.len() - done)];
            let known = |change: &&Change| change.2.is_none_or(|next_hop| self.next_hops.at(next_hop).is_some());
            let sound = part.iter().take_while(known).count();
            let result = match sound {
                0 => Err(refusal("there is no such next hop".to_owned())),
                _ => self.transaction(&part[..sound], running),
            };
            match result {
                Ok(true) => {
                    made(&part[..sound]);
                    done += sound;
                    size = TRANSACTION_CHANGES.min(2 * size);
                }
                // It may be that half of it fits.
                Ok(false) if sound > 1 => size = sound / 2,
                Ok(false) => {
                    let error = refusal(format!(
                        "all {} groups of addresses that routes longer than /24 take are in use: \
                         give the function more by spare_groups",
                        self.layout.groups
                    ));
                    return Err(Unchanged { made: done, error });
                }
                Err(error) => return Err(Unchanged { made: done, error }),
            }
        }
        Ok(())
    }

    /// Makes changes together, or none. False: there is no room for all of them.
    fn transaction(&mut self, changes: &[Change], running: &dyn Running) -> Result<bool, Error> {
        self.send_again(running)?;
        let mut dirty = Vec::new();
        let mut before = Vec::with_capacity(changes.len());
        for &(prefix, length, next_hop) in changes {
            before.push(self.rib.change(prefix, length, next_hop, &mut dirty));
        }
        let plan = self.plan(dirty);
        let written = match self.make_room(plan.contents.len(), running) {
            Ok(true) => self.write(&plan, running).map(Some),
            Ok(false) => Ok(None),
            Err(error) => Err(error),
        };
        match written {
            Ok(Some(made)) => {
                self.publish(&plan, &made, running)?;
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

    /// Step 1, behind the routes: entries that are not what they are to be.
    fn plan(&self, mut dirty: Vec<(u32, u32)>) -> Plan {
        dirty.sort_unstable();
        let mut plan = Plan::default();
        let mut new: HashMap<Arc<[Piece]>, u32> = HashMap::new();
        let (mut near, mut pieces) = (Near::default(), Vec::new());
        let mut next = 0;
        for (first, end) in dirty {
            for block in first.max(next)..end {
                let base = self.rib.block(block, &mut near);
                let target = if !self.rib.pieces(block, base, &mut pieces) {
                    Target::NextHop(base)
                } else if let [all] = pieces[..] {
                    Target::NextHop(all as u32)
                } else if let Some(&group) = self.groups.of_contents.get(pieces.as_slice()) {
                    Target::Group(group)
                } else {
                    let number = new.get(pieces.as_slice()).copied().unwrap_or_else(|| {
                        let contents: Arc<[Piece]> = pieces.as_slice().into();
                        plan.contents.push(Arc::clone(&contents));
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
                match plan.runs.last_mut() {
                    Some((first, count, of)) if *first + *count == block && *of == target => *count += 1,
                    _ => plan.runs.push((block, 1, target)),
                }
            }
            next = next.max(end);
        }
        plan
    }

    /// Whether so many groups can be made, if need be once no packet knows retired ones.
    fn make_room(&mut self, groups: usize, running: &dyn Running) -> Result<bool, Error> {
        if self.groups.slots.room() < groups && !self.groups.slots.retired.is_empty() {
            self.quiesce(running)?;
        }
        Ok(self.groups.slots.room() >= groups)
    }

    fn quiesce(&mut self, running: &dyn Running) -> Result<(), Error> {
        let retired = (self.groups.slots.retired.len(), self.next_hops.retired.len());
        running.quiesce()?;
        self.groups.slots.reuse(retired.0);
        self.next_hops.reuse(retired.1);
        Ok(())
    }

    /// Step 2. The groups that were made, by their place in the plan; none where that fails.
    fn write(&mut self, plan: &Plan, running: &dyn Running) -> Result<Vec<u32>, Error> {
        let mut made = Vec::with_capacity(plan.contents.len());
        let mut was_used = false;
        let group_bytes = GROUP_ENTRIES * self.layout.entry_bytes;
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for contents in &plan.contents {
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
            // Nobody has found them.
            made.iter().for_each(|group| drop(self.groups.slots.retire(*group)));
            return Err(error);
        }
        self.groups.of_contents.extend(plan.contents.iter().cloned().zip(made.iter().copied()));
        Ok(made)
    }

    /// Steps 3 and 4. The changes are in force, also where a device did not take them: it gets them with the next ones.
    fn publish(&mut self, plan: &Plan, made: &[u32], running: &dyn Running) -> Result<(), Error> {
        let (top, entry_bytes) = (self.layout.top(), self.layout.entry_bytes);
        let mut retired = Vec::new();
        let mut changed: Vec<(u32, u32)> = Vec::new();
        for &(first, count, target) in &plan.runs {
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
            // Another entry may have come to name it.
            if self.groups.uses[group as usize] == 0
                && let Some(contents) = self.groups.slots.retire(group)
            {
                self.groups.of_contents.remove(&contents);
            }
        }
        let bytes = |entry: u32| self.layout.tbl24_offset + entry as usize * entry_bytes;
        self.unsent.extend(changed.into_iter().map(|(first, end)| bytes(first)..bytes(end)));
        self.send_again(running)
    }

    /// Brings what has changed to devices.
    fn send_again(&mut self, running: &dyn Running) -> Result<(), Error> {
        while let Some(range) = self.unsent.last() {
            running.image_changed(range.clone())?;
            self.unsent.pop();
        }
        Ok(())
    }

    pub(super) fn add_next_hops(&mut self, next_hops: &[NextHop], running: &dyn Running) -> Result<Vec<u32>, Error> {
        self.send_again(running)?;
        if self.next_hops.room() < next_hops.len() && !self.next_hops.retired.is_empty() {
            self.quiesce(running)?;
        }
        if self.next_hops.room() < next_hops.len() {
            let message = format!(
                "all {} next hops that the table has room for are in use: give the function more by spare_next_hops",
                self.layout.next_hops
            );
            return Err(refusal(message));
        }
        let mut was_used = false;
        let mut indexes = Vec::with_capacity(next_hops.len());
        for &next_hop in next_hops {
            let (index, used) = self.next_hops.take(next_hop);
            was_used |= used;
            indexes.push(index);
            self.unsent.push(self.write_next_hop(index, &next_hop));
        }
        let sent = self.send_again(running);
        // As with groups: a device may remember what was there.
        let sent = sent.and_then(|()| if was_used { self.quiesce(running) } else { Ok(()) });
        if let Err(error) = sent {
            for &index in &indexes {
                self.next_hops.retire(index);
            }
            return Err(error);
        }
        Ok(indexes)
    }

    fn write_next_hop(&self, index: u32, next_hop: &NextHop) -> Range<usize> {
        let (at, record) = (self.layout.next_hop(index), tables::record_of(next_hop));
        self.image.store_u64(at + 8, record.from);
        self.image.store_u64(at, record.to);
        at..at + 16
    }

    pub(super) fn set_next_hops(&mut self, next_hops: &[(u32, NextHop)], running: &dyn Running) -> Result<(), Error> {
        self.send_again(running)?;
        if next_hops.iter().any(|(index, _)| self.next_hops.at(*index).is_none()) {
            return Err(refusal("there is no such next hop".to_owned()));
        }
        // Where both words change nobody must see the one without the other: such a next hop is unresolved until no packet
        // is in flight that may have read a part of it.
        let mut slow = Vec::new();
        for &(index, next_hop) in next_hops {
            let at = self.layout.next_hop(index);
            let record = tables::record_of(&next_hop);
            let differs = (self.image.load_u64(at) != record.to, self.image.load_u64(at + 8) != record.from);
            self.next_hops.taken[index as usize] = Some(next_hop);
            match differs {
                (false, false) => continue,
                (true, false) => self.image.store_u64(at, record.to),
                (false, true) => self.image.store_u64(at + 8, record.from),
                (true, true) => {
                    let flag = u64::from(godwit_kernels::image::IPV4_UNRESOLVED);
                    self.image.store_u64(at, self.image.load_u64(at) & !0xff | flag);
                    slow.push((at, record));
                }
            }
            self.unsent.push(at..at + 16);
        }
        self.send_again(running)?;
        if slow.is_empty() {
            return Ok(());
        }
        self.quiesce(running)?;
        for (at, record) in &slow {
            self.image.store_u64(at + 8, record.from);
            self.unsent.push(*at..at + 16);
        }
        self.send_again(running)?;
        self.quiesce(running)?;
        for (at, record) in &slow {
            self.image.store_u64(*at, record.to);
            self.unsent.push(*at..at + 16);
        }
        self.send_again(running)
    }

    pub(super) fn remove_next_hops(&mut self, indexes: &[u32]) -> Result<(), Error> {
        for &index in indexes {
            if self.next_hops.at(index).is_none() {
                return Err(refusal("there is no such next hop".to_owned()));
            }
            match self.rib.uses(index) {
                0 => {}
                routes => return Err(refusal(format!("{routes} routes lead to the next hop"))),
            }
        }
        for &index in indexes {
            if self.next_hops.at(index).is_some() {
                self.next_hops.retire(index);
            }
        }
        Ok(())
    }

    fn entry(&self, block: u32) -> u32 {
        let at = self.layout.tbl24_offset + block as usize * self.layout.entry_bytes;
        // The top bit is the top one of either width.
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

impl std::fmt::Debug for Changer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Changer").field("layout", &self.layout).finish_non_exhaustive()
    }
}
