//! Changes to the table while kernels look up routes (`docs/decisions/0009-route-changes.md`).
//!
//! A change modifies only entries of the root table. The lookup structure below a changed entry is
//! rebuilt in free memory, and then the entry is stored. A batch of changes is applied in four
//! steps:
//!
//! 1. *Enter* the routes into the [`Rib`], and find the entries of the root that they affect.
//! 2. *Build* the structures below these entries in free memory, and copy them to the devices. If
//!    there is too little free memory, the batch is undone.
//! 3. *Publish*: store each entry with one store, and copy the entries to the devices. A lookup
//!    reads one entry of the root, once. It finds either the old structure or the new one, and
//!    neither changes.
//! 4. *Retire* the structures below the old entries. Their memory is free when all packets that may
//!    have read an old entry have left.
//!
//! Some devices do not keep their caches coherent. Memory that was in use before may still be in a
//! cache of the device, fetched for an earlier packet. If a batch reuses memory, it therefore waits
//! between steps 2 and 3 until all packets in flight have left.

use std::ops::Range;
use std::sync::Arc;

use godwit_packet::Image;

use super::lines::{Lines, Run};
use super::rib::Rib;
use super::tables::{self, Full, Layout, Writer};
use super::{Route, walk};
use crate::routing::{NextHops, Unchanged};
use crate::{Error, Running};

/// Number of route changes that take effect together. With a larger number, changes share more
/// work. With a smaller number, changes take effect sooner.
const TRANSACTION_CHANGES: usize = 8192;
/// Maximum gap between two changed ranges of the tables, in bytes. Ranges with a smaller gap are
/// copied to the devices in one transfer.
const GAP_BYTES: usize = 4096;

/// Route change: prefix, prefix length and next hop index. `None` removes the route.
pub(super) type Change = (u128, u8, Option<u32>);

/// State for changes to routes and next hops.
#[derive(Debug)]
pub(super) struct Changer {
    image: Arc<Image>,
    layout: Layout,
    rib: Rib,
    /// Next hop for each entry of the root table, from the longest route that covers all addresses
    /// of the entry.
    covering: Vec<u32>,
    lines: Lines,
    /// Memory ranges to which no table entry refers. They are not reused yet, because packets in
    /// flight may still read them.
    retired: Vec<Run>,
    pub(super) next_hops: NextHops,
    /// Number of routes that use each next hop.
    uses: Vec<u32>,
    /// Changed ranges of the tables that are not copied to the devices yet.
    unsent: Vec<Range<usize>>,
}

/// Writes lookup structures to free memory of the tables, while kernels read the rest.
struct FreeLineWriter<'a> {
    image: &'a Image,
    layout: &'a Layout,
    lines: &'a mut Lines,
    taken: Vec<Run>,
}

impl Writer for FreeLineWriter<'_> {
    fn take(&mut self, count: u32) -> Result<u32, Full> {
        let first = self.lines.take(count).ok_or(Full)?;
        self.taken.push(Run { first, count });
        Ok(first)
    }

    fn write(&mut self, line: u32, bytes: &[u8]) {
        self.image.write(self.layout.line(line), bytes);
    }
}

impl Changer {
    pub(super) fn new(image: Arc<Image>, layout: Layout, lines: Lines, rib: Rib, next_hops: NextHops) -> Self {
        let covering = tables::covering(&rib, layout.root_bits, 0, 1 << layout.root_bits);
        let mut uses = Vec::new();
        rib.routes().for_each(|route| *use_of(&mut uses, route.next_hop) += 1);
        let (retired, unsent) = (Vec::new(), Vec::new());
        Self { image, layout, rib, covering, lines, retired, next_hops, uses, unsent }
    }

    pub(super) fn rib(&self) -> &Rib {
        &self.rib
    }

    pub(super) fn lines_used(&self) -> usize {
        self.lines.used()
    }

    pub(super) fn remove_next_hops(&mut self, indexes: &[u32]) -> Result<(), Error> {
        let uses = &self.uses;
        self.next_hops.remove(indexes, &|index| uses.get(index as usize).copied().unwrap_or(0))
    }

    /// Applies route changes in order. Calls `applied` with the changes that took effect.
    pub(super) fn change(
        &mut self,
        changes: &[Change],
        running: &dyn Running,
        applied: &mut dyn FnMut(&[Change]),
    ) -> Result<(), Unchanged> {
        let mut done = 0;
        let mut size = TRANSACTION_CHANGES;
        while done < changes.len() {
            let part = &changes[done..][..size.min(changes.len() - done)];
            let known = |change: &&Change| change.2.is_none_or(|next_hop| self.next_hops.at(next_hop).is_some());
            let sound = part.iter().take_while(known).count();
            let result = match sound {
                0 => Err(refusal("there is no next hop with this index".to_owned())),
                _ => self.transaction(&part[..sound], running, applied),
            };
            match result {
                Ok(true) => {
                    done += sound;
                    size = TRANSACTION_CHANGES.min(2 * size);
                }
                // The tables have too little room for the batch, so the loop tries half of it.
                Ok(false) if sound > 1 => size = sound / 2,
                Ok(false) => {
                    let message = format!(
                        "the {} lines of the table leave no room for this change: raise spare_lines of the function",
                        self.layout.lines
                    );
                    return Err(Unchanged { made: done, error: refusal(message) });
                }
                Err(error) => return Err(Unchanged { made: done, error }),
            }
        }
        Ok(())
    }

    /// Applies either all of the route changes or none of them. Returns `false` if the tables have
    /// too little free memory.
    fn transaction(
        &mut self,
        changes: &[Change],
        running: &dyn Running,
        applied: &mut dyn FnMut(&[Change]),
    ) -> Result<bool, Error> {
        self.send_again(running)?;
        let before: Vec<Option<u32>> = changes.iter().map(|&change| self.enter(change)).collect();
        let never_used = self.lines.touched() as u32;
        let mut built = self.build(changes);
        if matches!(built, Err(Full)) && !self.retired.is_empty() {
            built = match self.quiesce(running) {
                Ok(()) => self.build(changes),
                Err(error) => {
                    self.undo(changes, &before);
                    return Err(error);
                }
            };
        }
        let Ok((entries, taken)) = built else {
            self.undo(changes, &before);
            return Ok(false);
        };
        let was_used = taken.iter().any(|run| run.first < never_used);
        let bytes = |run: &Run| self.layout.line(run.first)..self.layout.line(run.first + run.count);
        let sent =
            merge(taken.iter().map(bytes).collect()).into_iter().try_for_each(|range| running.image_changed(range));
        let sent = sent.and_then(|()| if was_used { self.quiesce(running) } else { Ok(()) });
        if let Err(error) = sent {
            // The table does not refer to the newly allocated memory yet, so it can be freed at
            // once.
            taken.into_iter().for_each(|run| self.lines.give(run));
            self.undo(changes, &before);
            return Err(error);
        }
        self.publish(&entries);
        applied(changes);
        // The route changes are in effect even if the copy to a device fails. The device then
        // receives these changes with the next batch.
        self.send_again(running).map(|()| true)
    }

    /// Enters a route change into the list of routes. Returns the previous next hop of the prefix.
    fn enter(&mut self, (prefix, length, next_hop): Change) -> Option<u32> {
        let before = self.rib.set(prefix, length, next_hop);
        if let Some(next_hop) = next_hop {
            *use_of(&mut self.uses, next_hop) += 1;
        }
        if let Some(before) = before {
            self.uses[before as usize] -= 1;
        }
        before
    }

    fn undo(&mut self, changes: &[Change], before: &[Option<u32>]) {
        for (&(prefix, length, _), &before) in changes.iter().zip(before).rev() {
            self.enter((prefix, length, before));
        }
    }

    /// Builds the lookup structures below the affected entries of the root table. Returns three
    /// values per entry: its index, its new value, and the next hop of the longest route that
    /// covers it. Also returns the allocated memory.
    #[allow(clippy::type_complexity, reason = "used once")]
    fn build(&mut self, changes: &[Change]) -> Result<(Vec<(u32, u32, u32)>, Vec<Run>), Full> {
        let root_bits = self.layout.root_bits;
        let slot_of = |prefix: u128| (prefix >> (128 - root_bits)) as u32;
        let mut slots: Vec<u32> = Vec::new();
        let mut covered: Vec<Range<u32>> = Vec::new();
        for &(prefix, length, _) in changes {
            let slot = slot_of(prefix);
            if u32::from(length) > root_bits {
                slots.push(slot);
            } else {
                covered.push(slot..slot + (1 << (root_bits - u32::from(length))));
            }
        }
        covered.sort_unstable_by_key(|range| (range.start, range.end));
        let mut next = 0;
        let mut outsides: Vec<(u32, u32)> = Vec::new();
        for range in covered {
            let first = range.start.max(next);
            if first < range.end {
                let now = tables::covering(&self.rib, root_bits, first, (range.end - first) as usize);
                let changed = (first..).zip(now).filter(|&(slot, outside)| outside != self.covering[slot as usize]);
                outsides.extend(changed);
                next = range.end;
            }
        }
        slots.extend(outsides.iter().map(|&(slot, _)| slot));
        slots.sort_unstable();
        slots.dedup();
        // Both lists are sorted by index, and may contain the same index.
        let mut outsides = outsides.into_iter().peekable();
        let mut outside_of = |slot: u32| {
            let now = outsides.next_if(|&(changed, _)| changed == slot);
            now.map_or(self.covering[slot as usize], |(_, outside)| outside)
        };
        let (image, layout) = (&*self.image, &self.layout);
        let mut writer = FreeLineWriter { image, layout, lines: &mut self.lines, taken: Vec::new() };
        let mut entries = Vec::with_capacity(slots.len());
        // A short prefix covers many entries of the root table. Entries below this index contain no
        // longer prefixes, so they need no search.
        let mut bare_until = 0;
        for slot in slots {
            let outside = outside_of(slot);
            if slot < bare_until {
                entries.push((slot, tables::leaf(outside), outside));
                continue;
            }
            let start = u128::from(slot) << (128 - root_bits);
            let longer: Vec<Route> = self.rib.inside(start, root_bits as u8).collect();
            if longer.is_empty() {
                let next = self.rib.from(start).find(|route| u32::from(route.length) > root_bits);
                bare_until = next.map_or(1 << root_bits, |route| slot_of(route.prefix));
            }
            match tables::below(layout.form, root_bits, slot, outside, &longer, &mut writer) {
                Ok(entry) => entries.push((slot, entry, outside)),
                Err(Full) => {
                    let FreeLineWriter { lines, taken, .. } = writer;
                    taken.into_iter().for_each(|run| lines.give(run));
                    return Err(Full);
                }
            }
        }
        Ok((entries, writer.taken))
    }

    /// Stores the new entries of the root table. The memory of the old lookup structures is freed
    /// later.
    fn publish(&mut self, entries: &[(u32, u32, u32)]) {
        let mut changed: Vec<Range<usize>> = Vec::new();
        let read = |line: u32, word: usize| self.image.load_u32(self.layout.line(line) + 4 * word);
        for &(slot, entry, outside) in entries {
            let offset = self.layout.root(slot);
            let before = self.image.load_u32(offset);
            if before != entry {
                walk::runs(self.layout.form, before, &read, &mut self.retired);
                self.image.fill_u32(offset, 1, entry);
                match changed.last_mut() {
                    Some(last) if last.end == offset => last.end += 4,
                    _ => changed.push(offset..offset + 4),
                }
            }
            self.covering[slot as usize] = outside;
        }
        self.unsent.extend(merge(changed));
    }

    /// Copies all changed ranges of the tables to the devices. If the copy fails, the next call
    /// repeats it.
    pub(super) fn send_again(&mut self, running: &dyn Running) -> Result<(), Error> {
        self.next_hops.send_again(running)?;
        while let Some(range) = self.unsent.last() {
            running.image_changed(range.clone())?;
            self.unsent.pop();
        }
        Ok(())
    }

    /// Waits until all packets in flight have left. Then frees the memory and the next hops that
    /// were retired before the call.
    fn quiesce(&mut self, running: &dyn Running) -> Result<(), Error> {
        let (retired, next_hops) = (self.retired.len(), self.next_hops.retired());
        running.quiesce()?;
        self.retired.drain(..retired).for_each(|run| self.lines.give(run));
        self.next_hops.reuse(next_hops);
        Ok(())
    }
}

/// Merges ranges whose gaps are at most [`GAP_BYTES`].
fn merge(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<usize>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end + GAP_BYTES => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

fn use_of(uses: &mut Vec<u32>, next_hop: u32) -> &mut u32 {
    let index = next_hop as usize;
    if uses.len() <= index {
        uses.resize(index + 1, 0);
    }
    &mut uses[index]
}

fn refusal(message: String) -> Error {
    Error::Command { message }
}
