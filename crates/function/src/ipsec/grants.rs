//! Sequence numbers that each SA may use. The state folder on disk permits the numbers up to a
//! ceiling. A worker asks for more numbers when it reaches a mark below the ceiling. Another thread
//! first writes the higher ceiling to the state folder and then stores it here.
//!
//! ```text
//! sequence          mark                  ceiling
//! ----+--------------+---------------------+---------> numbers
//!     used           request               drop
//! ```
//!
//! An outbound SA sends no packet with a number above the ceiling. An inbound SA accepts no packet
//! with a number above the ceiling. After a restart, each SA continues after its ceiling, so it
//! repeats no number and accepts no packet twice.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use godwit_state::{Entry, KeyName, Source, State};

use super::database::Database;
use super::sa::Sa;

/// Minimum and maximum number of sequence numbers that an outbound SA reserves in advance. After a
/// crash, the SA skips at most the maximum number.
const OUT: (u64, u64) = (1 << 18, 1 << 26);
/// Minimum and maximum number of sequence numbers that are permitted in advance for an inbound SA.
/// After a crash, the SA drops at most the maximum number of authentic packets.
const IN: (u64, u64) = (64, 1 << 22);
/// Time in seconds for which reserved sequence numbers suffice at the measured packet rate.
const AHEAD_S: f64 = 2.0;

/// Sequence numbers that one SA may use.
#[derive(Default)]
struct Grant {
    /// Last sequence number that the state folder on disk permits.
    ceiling: AtomicU64,
    /// Sequence number at which the worker requests more numbers.
    mark: AtomicU64,
    /// For an inbound SA, the largest sequence number that [`Grants::want`] recorded.
    wanted: AtomicU64,
    /// Whether [`Grants::requests`] contains the index of the SA.
    is_requested: AtomicBool,
}

/// SA whose sequence numbers are reserved in the state folder on disk.
struct User {
    name: KeyName,
    is_inbound: bool,
    /// Last sequence number that the SA can use.
    last: u64,
    /// Sequence number before the SA's first one in this process.
    first: u64,
    /// Sequence number and time of the last reservation, to measure the packet rate.
    at: (u64, Instant),
}

/// Sequence numbers that the SAs of a function may use. Without a state folder on disk, all numbers
/// are permitted.
#[derive(Default)]
pub(super) struct Grants {
    durable: OnceLock<Durable>,
}

struct Durable {
    state: Arc<State>,
    grants: Box<[Grant]>,
    /// Indices of SAs whose workers request more sequence numbers.
    requests: Mutex<Vec<u32>>,
    users: Mutex<HashMap<u32, User>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Grants {
    /// Permits only sequence numbers that are reserved in the state folder on disk. The function is
    /// called once, before packets arrive.
    pub(super) fn use_folder(&self, state: Arc<State>, capacity: usize) {
        let grants = (0..capacity).map(|_| Grant::default()).collect();
        let durable = Durable { state, grants, requests: Mutex::default(), users: Mutex::default() };
        drop(self.durable.set(durable));
    }

    /// Returns the sequence number before the SA's first one, and the first reservation. The
    /// reservation must be on disk before [`Grants::begin`].
    pub(super) fn plan(&self, sa: &Sa) -> (u64, Option<Entry>) {
        let Some((durable, name)) = self.durable.get().and_then(|durable| Some((durable, sa.durable_name()?))) else {
            return (0, None);
        };
        let first = durable.state.number(&name);
        let (ahead, _) = if sa.is_inbound() { IN } else { OUT };
        (first, Some(Entry { name, number: (first + ahead).min(sa.sequence_last()) }))
    }

    pub(super) fn reserve(&self, entries: &[Entry]) -> Result<(), godwit_state::Error> {
        self.durable.get().map_or(Ok(()), |durable| durable.state.reserve(entries))
    }

    /// Permits the sequence numbers that were reserved on disk for a new SA. Packets cannot find
    /// the SA yet.
    pub(super) fn begin(&self, index: u32, sa: &Sa, first: u64, reserved: Option<Entry>) {
        let Some(durable) = self.durable.get() else { return };
        let mut users = lock(&durable.users);
        let grant = &durable.grants[index as usize];
        grant.wanted.store(0, Relaxed);
        let Some(Entry { name, number }) = reserved else {
            users.remove(&index);
            return grant.permit(u64::MAX, 0);
        };
        let at = (first, Instant::now());
        let last = sa.sequence_last();
        users.insert(index, User { name, is_inbound: sa.is_inbound(), last, first, at });
        grant.permit(number, if number == last { 0 } else { number - first });
    }

    /// Forgets an SA. Its reservations stay on disk.
    pub(super) fn end(&self, index: u32) {
        if let Some(durable) = self.durable.get() {
            lock(&durable.users).remove(&index);
        }
    }

    pub(super) fn first(&self, index: u32) -> u64 {
        self.durable.get().and_then(|durable| Some(lock(&durable.users).get(&index)?.first)).unwrap_or(0)
    }

    /// Returns the last sequence number that an SA may use before it must call this function again.
    /// `next` is the SA's next number. Returns `None` if `next` is not reserved on disk yet.
    #[cold]
    pub(super) fn limit(&self, index: u32, next: u64) -> Option<u64> {
        let Some(durable) = self.durable.get() else { return Some(u64::MAX) };
        let grant = &durable.grants[index as usize];
        // The writer stores `mark` before `ceiling`. A thread that reads a new ceiling therefore
        // also reads the matching mark.
        let ceiling = grant.ceiling.load(Acquire);
        let mark = grant.mark.load(Relaxed);
        if next <= mark {
            return Some(mark);
        }
        if ceiling < u64::MAX && !grant.is_requested.swap(true, Relaxed) {
            lock(&durable.requests).push(index);
            durable.state.wake();
        }
        (next <= ceiling).then_some(ceiling)
    }

    /// Records an authentic sequence number of an inbound SA, even above the permitted maximum.
    pub(super) fn want(&self, index: u32, sequence: u64) {
        if let Some(durable) = self.durable.get() {
            durable.grants[index as usize].wanted.fetch_max(sequence, Relaxed);
        }
    }
}

impl Grant {
    /// Permits sequence numbers up to `ceiling`. The last `ahead` numbers are still unused.
    fn permit(&self, ceiling: u64, ahead: u64) {
        self.mark.store(ceiling - ahead / 2, Relaxed);
        self.is_requested.store(false, Relaxed);
        self.ceiling.store(ceiling, Release);
    }
}

impl Source for Database {
    fn due(&self) -> Vec<Entry> {
        let Some(durable) = self.states.grants.durable.get() else { return Vec::new() };
        let requests = lock(&durable.requests).clone();
        let users = lock(&durable.users);
        let now = Instant::now();
        let entry = |index: &u32| {
            let user = users.get(index)?;
            let used = self.states.hot(*index).sequence().max(durable.grants[*index as usize].wanted.load(Relaxed));
            let elapsed = now.duration_since(user.at.1).as_secs_f64().max(1e-3);
            let (least, most) = if user.is_inbound { IN } else { OUT };
            let ahead = (used.saturating_sub(user.at.0) as f64 / elapsed * AHEAD_S) as u64;
            // A worker may already use numbers up to the current ceiling, so the ceiling never
            // decreases.
            let ceiling = durable.grants[*index as usize].ceiling.load(Relaxed);
            Some(Entry { name: user.name, number: (used + ahead.clamp(least, most)).min(user.last).max(ceiling) })
        };
        requests.iter().filter_map(entry).collect()
    }

    fn grant(&self, entries: &[Entry]) {
        let Some(durable) = self.states.grants.durable.get() else { return };
        let mut users = lock(&durable.users);
        let numbers: HashMap<KeyName, u64> = entries.iter().map(|entry| (entry.name, entry.number)).collect();
        lock(&durable.requests).retain(|index| {
            let Some(user) = users.get_mut(index) else { return false };
            let Some(&number) = numbers.get(&user.name) else { return true };
            let used = self.states.hot(*index).sequence();
            user.at = (used, Instant::now());
            let ahead = if number == user.last { 0 } else { number.saturating_sub(used) };
            durable.grants[*index as usize].permit(number, ahead);
            false
        });
    }

    fn used(&self) -> Vec<Entry> {
        let Some(durable) = self.states.grants.durable.get() else { return Vec::new() };
        let users = lock(&durable.users);
        users
            .iter()
            .map(|(&index, user)| Entry { name: user.name, number: self.states.hot(index).sequence().max(user.first) })
            .collect()
    }
}
