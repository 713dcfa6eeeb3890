//! The control side: what is known of addresses, and the table that says so to kernels. One thread at a time.
//!
//! Ageing without a write on the packet path: an entry that was heard of is *fresh*, and as long as it is, kernels do not ask
//! that anybody hear of it again. From time to time it loses its freshness; the next frame from that address brings
//! it back, and an entry that is not fresh for the ageing time is removed. So an address leaves the table at least the ageing time after its
//! last frame, and at most a quarter of it later.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

use godwit_packet::Image;

use super::cuckoo::{Cuckoo, Value};
use super::hash::Hash;
use super::host::{Ear, Heard, QUEUE, Shared, count};
use super::switch::Switch;
use super::waves::Waves;
use super::{HOUSEKEEPING_INTERVAL, tables};
use crate::{Error, Running};

/// Words of the table that lie so near to each other are brought to devices together, with all between them.
const NEAR_BYTES: usize = 4096;
/// Addresses learned in one go before devices are told.
const LEARNED_AT_ONCE: usize = 16_384;

/// How often each place is looked at within the ageing time.
const SWEEPS: f64 = 8.0;

/// All that is known, by `VID << 48 | MAC`.
pub(super) type Entries = HashMap<u64, Entry>;

/// What is known of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) port: u8,
    pub(super) is_static: bool,
    pub(super) is_fresh: bool,
    /// When it was heard of, or was found not to be fresh any more.
    pub(super) since: Duration,
}

impl Entry {
    fn value(&self) -> Value {
        Value { port: self.port, is_static: self.is_static, is_fresh: self.is_fresh }
    }
}

/// What the operator says of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) bucket_bits: u32,
    /// `None`: nothing ages.
    pub(super) ageing: Option<Duration>,
}

/// See the module.
pub(super) struct Control {
    pub(super) switch: Arc<Switch>,
    pub(super) image: Arc<Image>,
    pub(super) entries: Arc<RwLock<Entries>>,
    table: Cuckoo,
    waves: Waves,
    limits: Limits,
    /// Addresses that were learned at each port.
    learned_at: Vec<u32>,
    pub(super) shared: Arc<Shared>,
    heard: Vec<Receiver<Heard>>,
    /// Where looking for old entries goes on.
    next_place: u32,
    /// `None`: never, since nobody has run the function yet.
    last_kept: Option<Duration>,
}

impl Control {
    pub(super) fn new(switch: Arc<Switch>, limits: Limits) -> Result<Self, Error> {
        let hash = Hash::random(limits.bucket_bits)?;
        Ok(Self {
            image: Arc::new(Image::new(tables::image(&hash, &switch)?)),
            entries: Arc::default(),
            table: Cuckoo::new(hash),
            switch,
            waves: Waves::default(),
            limits,
            learned_at: vec![0; 256],
            shared: Arc::default(),
            heard: Vec::new(),
            next_place: 0,
            last_kept: None,
        })
    }

    /// What a worker tells of sources by.
    pub(super) fn ear(&mut self) -> Ear {
        let (ear, heard) = Ear::new(Arc::clone(&self.shared));
        self.heard.push(heard);
        ear
    }

    /// Learns what workers have heard, lets old entries go, and writes both down.
    pub(super) fn keep_house(&mut self, now: Duration, running: &dyn Running) -> Result<(), Error> {
        // What was not written down the last time comes first.
        self.publish(Some(running))?;
        let entries = Arc::clone(&self.entries);
        {
            let mut entries = write(&entries);
            for worker in 0..self.heard.len() {
                // No more than were there when this began.
                for _ in 0..QUEUE {
                    let Ok(heard) = self.heard[worker].try_recv() else { break };
                    self.hear(&mut entries, heard, now);
                }
            }
            self.age(&mut entries, now);
        }
        let published = self.publish(Some(running));
        // Workers tell again of what they told before: it may not have been learned.
        self.shared.looks.fetch_add(1, Ordering::Relaxed);
        published
    }

    /// A frame came from this address at this port.
    fn hear(&mut self, entries: &mut Entries, heard: Heard, now: Duration) {
        let Heard { key, port } = heard;
        let Some(entry) = entries.get_mut(&key) else {
            self.learn(entries, heard, now);
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

    fn learn(&mut self, entries: &mut Entries, Heard { key, port }: Heard, now: Duration) {
        let entry = Entry { port, is_static: false, is_fresh: true, since: now };
        if !has_room(&self.switch, &self.learned_at, port) || !self.insert(entries, key, entry) {
            count(&self.shared.not_learned, 1);
            return;
        }
        self.learned_at[usize::from(port)] += 1;
        count(&self.shared.learned, 1);
    }

    /// False: there is no room.
    fn insert(&mut self, entries: &mut Entries, key: u64, entry: Entry) -> bool {
        if entries.len() as u64 >= tables::capacity_of(self.limits.bucket_bits) {
            return false;
        }
        let Some(displaced) = self.table.insert(key, entry.value(), &mut self.waves) else { return false };
        count(&self.shared.displaced, displaced as u64);
        entries.insert(key, entry);
        self.shared.addresses.store(entries.len() as u64, Ordering::Relaxed);
        true
    }

    /// Has the table say what is known of an address.
    fn set(&mut self, key: u64, entry: Entry) {
        if let Some(place) = self.table.find(key) {
            self.table.set(place, entry.value(), &mut self.waves);
        }
    }

    fn remove(&mut self, entries: &mut Entries, key: u64) {
        let Some(entry) = entries.remove(&key) else { return };
        self.shared.addresses.store(entries.len() as u64, Ordering::Relaxed);
        if !entry.is_static {
            self.learned_at[usize::from(entry.port)] -= 1;
        }
        if let Some(place) = self.table.find(key) {
            self.table.remove(place, &mut self.waves);
        }
    }

    /// Looks at as many places as are due: all of them within an eighth of the ageing time.
    fn age(&mut self, entries: &mut Entries, now: Duration) {
        let Some(ageing) = self.limits.ageing else { return };
        // What has passed before the first time no place is owed for: a large table that waited for its engine would have all
        // of it looked at in one go, and every address told of anew.
        let passed =
            self.last_kept.map_or(HOUSEKEEPING_INTERVAL, |last| now.saturating_sub(last).max(HOUSEKEEPING_INTERVAL));
        self.last_kept = Some(now);
        let places = self.table.places();
        let due = (f64::from(places) * passed.as_secs_f64() / (ageing.as_secs_f64() / SWEEPS)).ceil();
        for _ in 0..(due as u32).min(places) {
            let place = self.next_place;
            self.next_place = (place + 1) % places;
            let Some(key) = self.table.key(place) else { continue };
            let Some(entry) = entries.get_mut(&key).filter(|entry| !entry.is_static) else { continue };
            if entry.is_fresh {
                (entry.is_fresh, entry.since) = (false, now);
                let value = entry.value();
                self.table.set(place, value, &mut self.waves);
            } else if now.saturating_sub(entry.since) >= ageing {
                count(&self.shared.aged, 1);
                self.remove(entries, key);
            }
        }
    }

    /// Writes down what is to be written, wave by wave, where devices and look-ups find it. Without an engine nobody looks.
    ///
    /// # Errors
    /// What is left is written the next time; until then some entries lie at two places.
    pub(super) fn publish(&mut self, running: Option<&dyn Running>) -> Result<(), Error> {
        loop {
            let more = self.waves.len() > 1;
            let Some(wave) = self.waves.front() else { return Ok(()) };
            for (place, word) in wave {
                self.image.store_u64(tables::offset(*place), *word);
            }
            if let Some(running) = running {
                for range in ranges(wave.iter().map(|(place, _)| tables::offset(*place))) {
                    running.image_changed(range)?;
                }
                if more {
                    // Nobody who began before these words were there is still looking.
                    running.quiesce()?;
                }
            }
            self.waves.pop();
        }
    }

    /// See [`super::L2::learn_all`].
    pub(super) fn learn_all(&mut self, addresses: &[(u64, u8)], running: Option<&dyn Running>) -> Result<(), Error> {
        let entries = Arc::clone(&self.entries);
        write(&entries).reserve(addresses.len());
        for some in addresses.chunks(LEARNED_AT_ONCE) {
            let before = self.shared.not_learned.load(Ordering::Relaxed);
            {
                let mut entries = write(&entries);
                some.iter().for_each(|&(key, port)| self.hear(&mut entries, Heard { key, port }, Duration::ZERO));
            }
            self.publish(running)?;
            if self.shared.not_learned.load(Ordering::Relaxed) > before {
                return Err(Error::Command { message: "the table has no room for all addresses".to_owned() });
            }
        }
        Ok(())
    }

    /// Adds static addresses, or makes learned ones static: all of them or none.
    ///
    /// # Errors
    /// The index of the one that cannot be, and why.
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
                        let capacity = tables::capacity_of(self.limits.bucket_bits);
                        Err(format!("the table is full: it holds {capacity} addresses (capacity)"))
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

    /// Removes addresses: all of them or none, where one is not there.
    ///
    /// # Errors
    /// The index of the one that is not there.
    pub(super) fn delete(&mut self, keys: &[u64]) -> Result<(), usize> {
        let shared = Arc::clone(&self.entries);
        let mut entries = write(&shared);
        if let Some(missing) = keys.iter().position(|key| !entries.contains_key(key)) {
            return Err(missing);
        }
        keys.iter().for_each(|key| self.remove(&mut entries, *key));
        Ok(())
    }

    /// Removes all addresses that `is_meant` says yes to; returns how many.
    pub(super) fn flush(&mut self, is_meant: impl Fn(u64, &Entry) -> bool) -> usize {
        let shared = Arc::clone(&self.entries);
        let mut entries = write(&shared);
        let meant = entries.iter().filter(|(key, entry)| is_meant(**key, entry)).map(|(key, _)| *key);
        let meant: Vec<u64> = meant.collect();
        meant.iter().for_each(|key| self.remove(&mut entries, *key));
        meant.len()
    }

    /// Addresses in the table.
    pub(super) fn len(&self) -> usize {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}

fn write(entries: &RwLock<Entries>) -> RwLockWriteGuard<'_, Entries> {
    entries.write().unwrap_or_else(PoisonError::into_inner)
}

/// Whether one more address may be learned at a port.
fn has_room(switch: &Switch, learned_at: &[u32], port: u8) -> bool {
    switch.port(port).is_some_and(|known| known.mac_limit.is_none_or(|limit| learned_at[usize::from(port)] < limit))
}

/// The words at these offsets, which are sorted, in few ranges.
fn ranges(offsets: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for offset in offsets {
        match ranges.last_mut() {
            Some(last) if offset <= last.end + NEAR_BYTES => last.end = offset + 8,
            _ => ranges.push(offset..offset + 8),
        }
    }
    ranges
}
