//! State of the switch that belongs to no worker. It contains the known addresses, and writes the
//! table that kernels read. Only one thread at a time uses it.
//!
//! The ageing of addresses needs no writes while packets are processed. An entry is *fresh* if a
//! frame from its address arrived recently. Kernels request no reports for fresh entries. The
//! ageing process periodically clears the flag. The next frame from the address then causes a
//! report that sets the flag again. An entry whose flag stays clear for the ageing time is removed.
//!
//! An address therefore stays for at least the ageing time after its last frame, and for at most a
//! quarter of the ageing time longer.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

use godwit_packet::Image;

use super::host::{Notice, NoticeSender, QUEUE, SharedState, count};
use super::switch::Switch;
use super::table::{Hash, Table, Value};
use super::{HOUSEKEEPING_INTERVAL, tables};
use crate::tables::exact::{Waves, capacity_of};
use crate::{Error, Running};

/// Number of addresses that `learn_all` adds before it writes them to the kernel's table.
const LEARNED_AT_ONCE: usize = 16_384;

/// Number of passes over the whole table during one ageing time.
const SWEEPS: f64 = 8.0;

/// Known addresses, each with its key `VID << 48 | MAC`.
pub(super) type Entries = HashMap<u64, Entry>;

/// Entry of a known address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) port: u8,
    pub(super) is_static: bool,
    pub(super) is_fresh: bool,
    /// Time of the last reported frame from the address, or time when `is_fresh` was last cleared.
    pub(super) since: Duration,
}

impl Entry {
    fn value(&self) -> Value {
        Value { port: self.port, is_static: self.is_static, is_fresh: self.is_fresh }
    }
}

/// Configured limits of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) bucket_bits: u32,
    /// Ageing time of learned addresses. With `None`, addresses do not age.
    pub(super) ageing: Option<Duration>,
}

/// State of the switch that belongs to no worker.
pub(super) struct Control {
    pub(super) switch: Arc<Switch>,
    pub(super) image: Arc<Image>,
    pub(super) entries: Arc<RwLock<Entries>>,
    table: Table,
    waves: Waves,
    limits: Limits,
    /// Number of learned addresses at each port.
    learned_at: Vec<u32>,
    pub(super) shared: Arc<SharedState>,
    notices: Vec<Receiver<Notice>>,
    /// Table slot that the ageing process visits next.
    next_slot: u32,
    /// Time of the last housekeeping, or `None` if the engine has not run yet.
    last_housekeeping: Option<Duration>,
}

impl Control {
    pub(super) fn new(switch: Arc<Switch>, limits: Limits) -> Result<Self, Error> {
        let hash = Hash::random(limits.bucket_bits)?;
        Ok(Self {
            image: Arc::new(Image::new(tables::image(&hash, &switch)?)),
            entries: Arc::default(),
            table: Table::new(hash),
            switch,
            waves: Waves::default(),
            limits,
            learned_at: vec![0; 256],
            shared: Arc::default(),
            notices: Vec::new(),
            next_slot: 0,
            last_housekeeping: None,
        })
    }

    /// Creates a queue for a worker's source address reports. Returns the sending end, which
    /// belongs to the worker.
    pub(super) fn notice_sender(&mut self) -> NoticeSender {
        let (sender, receiver) = NoticeSender::new(Arc::clone(&self.shared));
        self.notices.push(receiver);
        sender
    }

    /// Learns addresses from worker reports, ages entries, and writes the changes to the kernel's
    /// table.
    pub(super) fn housekeeping(&mut self, now: Duration, running: &dyn Running) -> Result<(), Error> {
        // An earlier call may have left changes unwritten, so they are written first.
        self.publish(Some(running))?;
        let entries = Arc::clone(&self.entries);
        {
            let mut entries = write(&entries);
            for worker in 0..self.notices.len() {
                // The loop reads at most as many reports as the queue holds. It thus ends even if
                // the worker keeps sending.
                for _ in 0..QUEUE {
                    let Ok(notice) = self.notices[worker].try_recv() else { break };
                    self.handle_notice(&mut entries, notice, now);
                }
            }
            self.age(&mut entries, now);
        }
        let published = self.publish(Some(running));
        // A worker reports a source address only once between two calls to this method. After a
        // call, it may report the address again, because the switch may not have learned it.
        self.shared.rounds.fetch_add(1, Ordering::Relaxed);
        published
    }

    /// Learns or refreshes an address.
    fn handle_notice(&mut self, entries: &mut Entries, notice: Notice, now: Duration) {
        let Notice { key, port } = notice;
        let Some(entry) = entries.get_mut(&key) else {
            self.learn(entries, notice, now);
            return;
        };
        if entry.is_static || (entry.port == port && entry.is_fresh) {
            return;
        }
        if entry.port != port {
            if !has_room(&self.switch, &self.learned_at, port) {
                count(&self.shared.not_learned, 1);
                return;
            }
            self.learned_at[usize::from(entry.port)] -= 1;
            self.learned_at[usize::from(port)] += 1;
            count(&self.shared.moved, 1);
        }
        *entry = Entry { port, is_static: false, is_fresh: true, since: now };
        self.set(key, *entry);
    }

    fn learn(&mut self, entries: &mut Entries, Notice { key, port }: Notice, now: Duration) {
        let entry = Entry { port, is_static: false, is_fresh: true, since: now };
        if !has_room(&self.switch, &self.learned_at, port) || !self.insert(entries, key, entry) {
            count(&self.shared.not_learned, 1);
            return;
        }
        self.learned_at[usize::from(port)] += 1;
        count(&self.shared.learned, 1);
    }

    /// Inserts an address into the table. Returns `false` if the table has no room for it.
    fn insert(&mut self, entries: &mut Entries, key: u64, entry: Entry) -> bool {
        if entries.len() as u64 >= capacity_of(self.limits.bucket_bits) {
            return false;
        }
        let Some(displaced) = self.table.insert(key, entry.value(), &mut self.waves) else { return false };
        count(&self.shared.displaced, displaced as u64);
        entries.insert(key, entry);
        self.shared.addresses.store(entries.len() as u64, Ordering::Relaxed);
        true
    }

    /// Writes the changed entry of an address to the table.
    fn set(&mut self, key: u64, entry: Entry) {
        if let Some(slot) = self.table.find(key) {
            self.table.set(slot, entry.value(), &mut self.waves);
        }
    }

    fn remove(&mut self, entries: &mut Entries, key: u64) {
        let Some(entry) = entries.remove(&key) else { return };
        self.shared.addresses.store(entries.len() as u64, Ordering::Relaxed);
        if !entry.is_static {
            self.learned_at[usize::from(entry.port)] -= 1;
        }
        if let Some(slot) = self.table.find(key) {
            self.table.remove(slot, &mut self.waves);
        }
    }

    /// Visits the next part of the table and ages the entries there. The size of this part depends
    /// on the time since the last call. The whole table is visited within an eighth of the ageing
    /// time.
    fn age(&mut self, entries: &mut Entries, now: Duration) {
        let Some(ageing) = self.limits.ageing else { return };
        // The first call has no previous time, so it assumes that one housekeeping interval has
        // passed. A longer time would make it visit the whole table at once.
        let passed = self
            .last_housekeeping
            .map_or(HOUSEKEEPING_INTERVAL, |last| now.saturating_sub(last).max(HOUSEKEEPING_INTERVAL));
        self.last_housekeeping = Some(now);
        let slots = self.table.slots();
        let due = (f64::from(slots) * passed.as_secs_f64() / (ageing.as_secs_f64() / SWEEPS)).ceil();
        for _ in 0..(due as u32).min(slots) {
            let slot = self.next_slot;
            self.next_slot = (slot + 1) % slots;
            let Some(key) = self.table.key(slot) else { continue };
            let Some(entry) = entries.get_mut(&key).filter(|entry| !entry.is_static) else { continue };
            if entry.is_fresh {
                (entry.is_fresh, entry.since) = (false, now);
                let value = entry.value();
                self.table.set(slot, value, &mut self.waves);
            } else if now.saturating_sub(entry.since) >= ageing {
                count(&self.shared.aged, 1);
                self.remove(entries, key);
            }
        }
    }

    /// Writes the pending changes to the kernel's table in groups, and copies them to the devices.
    /// Without an engine, no lookups run, so the method does not wait after a group.
    ///
    /// # Errors
    /// Returns an error if the copy to a device failed or a wait timed out. The next call continues
    /// at the same group of writes.
    pub(super) fn publish(&mut self, running: Option<&dyn Running>) -> Result<(), Error> {
        self.waves.publish(&self.image, tables::offset(0), running)
    }

    /// Learns addresses as [`super::L2::learn_all`] describes.
    pub(super) fn learn_all(&mut self, addresses: &[(u64, u8)], running: Option<&dyn Running>) -> Result<(), Error> {
        let entries = Arc::clone(&self.entries);
        write(&entries).reserve(addresses.len());
        for some in addresses.chunks(LEARNED_AT_ONCE) {
            let before = self.shared.not_learned.load(Ordering::Relaxed);
            {
                let mut entries = write(&entries);
                some.iter()
                    .for_each(|&(key, port)| self.handle_notice(&mut entries, Notice { key, port }, Duration::ZERO));
            }
            self.publish(running)?;
            if self.shared.not_learned.load(Ordering::Relaxed) > before {
                return Err(Error::Command { message: "the table has no room for all of the addresses".to_owned() });
            }
        }
        Ok(())
    }

    /// Adds static addresses and makes learned addresses static. Changes either all addresses or
    /// none.
    ///
    /// # Errors
    /// Returns the index of an address that cannot be added, and the reason.
    pub(super) fn add(&mut self, addresses: &[(u64, u8)], now: Duration) -> Result<(), (usize, String)> {
        let shared = Arc::clone(&self.entries);
        let mut entries = write(&shared);
        let mut done: Vec<(u64, Option<Entry>)> = Vec::new();
        let mut refused = None;
        for (index, &(key, port)) in addresses.iter().enumerate() {
            let entry = Entry { port, is_static: true, is_fresh: true, since: now };
            let before = entries.get(&key).copied();
            let added = match before {
                Some(Entry { is_static: true, .. }) => Err("this address is in the table already".to_owned()),
                Some(learned) => {
                    self.learned_at[usize::from(learned.port)] -= 1;
                    entries.insert(key, entry);
                    self.set(key, entry);
                    Ok(())
                }
                None => match self.insert(&mut entries, key, entry) {
                    true => Ok(()),
                    false => {
                        let capacity = capacity_of(self.limits.bucket_bits);
                        Err(format!("the table is full: it holds {capacity} addresses (see capacity)"))
                    }
                },
            };
            match added {
                Ok(()) => done.push((key, before)),
                Err(message) => {
                    refused = Some((index, message));
                    break;
                }
            }
        }
        let Some(refused) = refused else { return Ok(()) };
        for (key, before) in done.into_iter().rev() {
            match before {
                Some(learned) => {
                    self.learned_at[usize::from(learned.port)] += 1;
                    entries.insert(key, learned);
                    self.set(key, learned);
                }
                None => self.remove(&mut entries, key),
            }
        }
        Err(refused)
    }

    /// Removes either all of the given addresses from the table or none.
    ///
    /// # Errors
    /// Returns the index of an address that is not in the table.
    pub(super) fn delete(&mut self, keys: &[u64]) -> Result<(), usize> {
        let shared = Arc::clone(&self.entries);
        let mut entries = write(&shared);
        if let Some(missing) = keys.iter().position(|key| !entries.contains_key(key)) {
            return Err(missing);
        }
        keys.iter().for_each(|key| self.remove(&mut entries, *key));
        Ok(())
    }

    /// Removes all addresses that `is_selected` accepts. Returns the number of removed addresses.
    pub(super) fn flush(&mut self, is_selected: impl Fn(u64, &Entry) -> bool) -> usize {
        let shared = Arc::clone(&self.entries);
        let mut entries = write(&shared);
        let selected = entries.iter().filter(|(key, entry)| is_selected(**key, entry)).map(|(key, _)| *key);
        let selected: Vec<u64> = selected.collect();
        selected.iter().for_each(|key| self.remove(&mut entries, *key));
        selected.len()
    }

    /// Returns the number of addresses in the table.
    pub(super) fn len(&self) -> usize {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}

fn write(entries: &RwLock<Entries>) -> RwLockWriteGuard<'_, Entries> {
    entries.write().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether the configured limit of a port allows the switch to learn one more address
/// there.
fn has_room(switch: &Switch, learned_at: &[u32], port: u8) -> bool {
    switch.port(port).is_some_and(|known| known.mac_limit.is_none_or(|limit| learned_at[usize::from(port)] < limit))
}
