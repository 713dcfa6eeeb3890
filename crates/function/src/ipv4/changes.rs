//! Changes to next hops while kernels look up routes. The routes themselves change in the table of
//! [`crate::tables::lpm4`].
//!
//! The slot of a removed next hop is not reused at once. All packets that may have read its old
//! contents must leave first.

use std::ops::Range;
use std::sync::Arc;

use godwit_packet::Image;

use super::Route;
use super::tables::{self, Layout};
use crate::routing::{NextHop, Unchanged};
use crate::tables::lpm4::{Change, Group, Rib, Slots, Table};
use crate::{Error, Running};

/// State for changes to routes and next hops.
pub(super) struct Changer {
    image: Arc<Image>,
    layout: Layout,
    table: Table,
    next_hops: Slots<NextHop>,
}

impl Changer {
    pub(super) fn new(
        image: Arc<Image>,
        layout: Layout,
        routes: &[Route],
        next_hops: &[NextHop],
        groups: &[Group],
    ) -> Self {
        Self {
            table: Table::new(Arc::clone(&image), layout.table, routes, groups),
            next_hops: Slots::new(next_hops.iter().copied().map(Some).collect(), layout.next_hops),
            image,
            layout,
        }
    }

    pub(super) fn rib(&self) -> &Rib {
        self.table.rib()
    }

    pub(super) fn next_hop(&self, index: u32) -> Option<NextHop> {
        self.next_hops.at(index).copied()
    }

    pub(super) fn next_hops(&self) -> impl Iterator<Item = (u32, NextHop)> {
        (0..).zip(&self.next_hops.taken).filter_map(|(index, next_hop)| Some((index, (*next_hop)?)))
    }

    /// Applies route changes in order. Calls `applied` with the changes that took effect.
    pub(super) fn change(
        &mut self,
        changes: &[Change],
        running: &dyn Running,
        applied: &mut dyn FnMut(&[Change]),
    ) -> Result<(), Unchanged> {
        let next_hops = &self.next_hops;
        self.table.change(changes, |next_hop| next_hops.at(next_hop).is_some(), running, applied)
    }

    fn quiesce(&mut self, running: &dyn Running) -> Result<(), Error> {
        let retired = self.next_hops.retired.len();
        self.table.quiesce(running)?;
        self.next_hops.reuse(retired);
        Ok(())
    }

    pub(super) fn add_next_hops(&mut self, next_hops: &[NextHop], running: &dyn Running) -> Result<Vec<u32>, Error> {
        self.table.send_again(running)?;
        if self.next_hops.room() < next_hops.len() && !self.next_hops.retired.is_empty() {
            self.quiesce(running)?;
        }
        if self.next_hops.room() < next_hops.len() {
            let message = format!(
                "all {} next hops of the table are in use: raise spare_next_hops of the function",
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
            self.table.changed(self.write_next_hop(index, &next_hop));
        }
        let sent = self.table.send_again(running);
        // A device cache may still contain old contents of a reused slot, so the change waits for
        // packets in flight.
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
        self.table.send_again(running)?;
        if next_hops.iter().any(|(index, _)| self.next_hops.at(*index).is_none()) {
            return Err(refusal("there is no next hop with this index".to_owned()));
        }
        // A packet must not combine an old word and a new word of the same next hop. If both words
        // change, the next hop is first marked as unresolved. The new words are written after all
        // packets that may have read an old word have left.
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
                    let flag = u64::from(godwit_kernels::image::IPV4_HOP_UNRESOLVED);
                    self.image.store_u64(at, self.image.load_u64(at) & !0xff | flag);
                    slow.push((at, record));
                }
            }
            self.table.changed(at..at + 16);
        }
        self.table.send_again(running)?;
        if slow.is_empty() {
            return Ok(());
        }
        self.quiesce(running)?;
        for (at, record) in &slow {
            self.image.store_u64(at + 8, record.from);
            self.table.changed(*at..at + 16);
        }
        self.table.send_again(running)?;
        self.quiesce(running)?;
        for (at, record) in &slow {
            self.image.store_u64(*at, record.to);
            self.table.changed(*at..at + 16);
        }
        self.table.send_again(running)
    }

    pub(super) fn remove_next_hops(&mut self, indexes: &[u32]) -> Result<(), Error> {
        for &index in indexes {
            if self.next_hops.at(index).is_none() {
                return Err(refusal("there is no next hop with this index".to_owned()));
            }
            match self.table.rib().uses(index) {
                0 => {}
                routes => return Err(refusal(format!("the next hop is in use by {routes} routes"))),
            }
        }
        for &index in indexes {
            if self.next_hops.at(index).is_some() {
                self.next_hops.retire(index);
            }
        }
        Ok(())
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
