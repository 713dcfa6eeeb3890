//! Applies configuration and commands to the SA database and the policy database. Only one thread
//! at a time makes changes. A new SA is written to the table image before packets can find it. A
//! deleted SA is wiped from the image after its last packet.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use godwit_packet::{BUCKETS, Image, Memory};
use godwit_state::{Source, State};

use super::database::{Database, Endpoints};
use super::policies::{Action, Policies, Policy};
use super::room::Room;
use super::sa::Sa;
use super::selector::Selector;
use super::slots::{RangeAllocator, SlotAllocator};
use super::tables::{self, Shape};
use crate::fragments::Limits;
use crate::{Error, Notice, Running};

/// SA and policy databases, with the state needed to change them.
pub(super) struct Control {
    pub(super) database: Arc<Database>,
    pub(super) image: Arc<Image>,
    arranges: bool,
    /// Default path MTU of outbound tunnels, in bytes.
    path_mtu: Option<u16>,
    shape: Shape,
    room: Room,
    sa_slots: SlotAllocator,
    selector_slots: RangeAllocator,
    /// Index of each SA, by the name of the SA.
    names: HashMap<String, u32>,
    /// Index of each SA by its SPI. For outbound SAs, the map key also contains the destination
    /// address.
    spis: HashMap<(u32, Option<IpAddr>), u32>,
    /// Digests of the nonce inputs of outbound SAs, from [`Sa::nonce_name`]. A digest remains after
    /// its SA is deleted, because nonces must not repeat. It is removed only if the SA has
    /// protected no packet.
    nonces: HashSet<ShortName>,
    /// Number of inbound SAs, present and deleted, for each digest from [`Sa::stream_name`].
    received_nonces: HashMap<ShortName, u32>,
    /// SAs that new packets no longer find, but that packets in flight may still use. Each SA has
    /// the ticket of its grace period.
    retired: Vec<(u32, u64)>,
    endpoints: Endpoints,
    records: HashMap<u32, Record>,
    policies: Vec<Policy>,
    /// Durable state of the process, and configured function name. [`Control::start`] sets both.
    state: Option<(Arc<State>, String)>,
    /// Events that are not reported to the operator yet.
    events: Vec<Notice>,
}

/// First eight bytes of the digest of a cryptographic key. A new key is refused if these bytes
/// equal those of an earlier key. Among a billion random keys, the probability of an accidental
/// match is 3 %.
type ShortName = u64;

fn short(name: [u8; 32]) -> ShortName {
    u64::from_le_bytes(*name.first_chunk().unwrap_or(&[0; 8]))
}

/// Information that the control thread keeps about one SA.
#[derive(Default)]
struct Record {
    /// Indexes of the SA's selectors in the table image.
    selectors: Range<u32>,
    /// Indexes of the policies that use the SA.
    policies: Vec<u32>,
    /// Events of the SA that were reported to the operator.
    reported: u64,
    /// Whether packets can find the SA.
    is_published: bool,
}

/// Reason why an SA cannot be added.
pub(super) struct Refusal {
    /// Whether the SPI is the problem. The error message then names the line of the SPI.
    pub(super) concerns_spi: bool,
    pub(super) message: String,
}

fn refusal(message: String) -> Refusal {
    Refusal { concerns_spi: false, message }
}

/// Index of the selector that accepts every packet, which several SAs share.
const SELECT_ALL: Range<u32> = 0..1;

impl Control {
    /// Creates empty databases. Bit `n` of `unprotected` is set if port `n` is unprotected. SAs may
    /// have path MTUs and keepalives only if `arranges` is true.
    pub(super) fn new(
        shape: Shape,
        room: Room,
        reassembly: Option<Limits>,
        arranges: bool,
        path_mtu: Option<u16>,
        unprotected: u64,
    ) -> Result<Self, Error> {
        let mut memory: Memory = shape.empty()?;
        memory[shape.selectors(SELECT_ALL)].copy_from_slice(&tables::selector(&Selector::default()));
        Ok(Self {
            database: Arc::new(Database::new(shape.sas, reassembly, unprotected)),
            arranges,
            path_mtu,
            image: Arc::new(Image::new(memory)),
            shape,
            room,
            sa_slots: SlotAllocator::new(shape.sas),
            selector_slots: RangeAllocator::new(SELECT_ALL.end..shape.selectors as u32),
            names: HashMap::new(),
            spis: HashMap::new(),
            nonces: HashSet::new(),
            received_nonces: HashMap::new(),
            retired: Vec::new(),
            endpoints: Endpoints::new(),
            records: HashMap::new(),
            policies: Vec::new(),
            state: None,
            events: Vec::new(),
        })
    }

    pub(super) fn outbound(&self, name: &str) -> Result<u32, Error> {
        const SHOWN: usize = 8;
        let Some(&index) = self.names.get(name) else {
            let mut known: Vec<&str> = self.names.keys().map(String::as_str).collect();
            known.sort_unstable();
            let known = match known.len() {
                0 => "there are no SAs".to_owned(),
                1..=SHOWN => format!("the SAs are {}", known.join(", ")),
                count => format!("the SAs are {} and {} more", known[..SHOWN].join(", "), count - SHOWN),
            };
            return Err(Error::value(format!("no SA is called \"{name}\": {known}")));
        };
        if self.database.sa(index).is_some_and(|sa| sa.is_inbound()) {
            return Err(Error::value(format!(
                "SA \"{name}\" is inbound and cannot protect packets: name an SA with direction = \"out\""
            )));
        }
        Ok(index)
    }

    pub(super) fn index(&self, name: &str) -> Option<u32> {
        self.names.get(name).copied()
    }

    pub(super) fn indexes(&self) -> Vec<u32> {
        let mut indexes: Vec<u32> = self.names.values().copied().collect();
        indexes.sort_unstable();
        indexes
    }

    pub(super) fn policies_of(&self, index: u32) -> usize {
        self.records.get(&index).map_or(0, |record| record.policies.len())
    }

    pub(super) fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// Writes an SA to a free slot of the table image. Packets find the SA only after
    /// [`Control::publish`]. If the SA replaces the SA at index `replaced`, it takes over the name
    /// and, if possible, the steering bucket.
    pub(super) fn stage(&mut self, mut sa: Sa, replaced: Option<u32>) -> Result<u32, Refusal> {
        sa.inherit_path_mtu(self.path_mtu);
        let name = &sa.name;
        if self.names.get(name).is_some_and(|index| Some(*index) != replaced) {
            return Err(refusal(format!("two SAs are called \"{name}\"")));
        }
        let spi = spi(&sa);
        if let Some(other) = self.spis.get(&spi).and_then(|index| self.database.sa(*index)) {
            let to = spi.1.map_or(String::new(), |destination| format!(" to {destination}"));
            let message = format!("SA \"{name}\" has the same SPI {:#x}{to} as SA \"{}\"", sa.spi, other.name);
            return Err(Refusal { concerns_spi: true, message });
        }
        self.room.check(&sa).map_err(|error| refusal(error.to_string()))?;
        if !self.arranges && (sa.path_mtu > 0 || sa.keepalive_s > 0) {
            return Err(refusal(format!(
                "SA \"{name}\" has a path_mtu or keepalive_s, but no SA had one at the start: set path_mtu in the function's stanza"
            )));
        }
        let nonces = sa.nonce_name().map(short);
        if nonces.is_some_and(|nonces| self.nonces.contains(&nonces)) {
            return Err(refusal(format!(
                "SA \"{name}\" reuses the key of another outbound SA, present or deleted, with the same salt, or with the same \
                 SPI and destination: repeated nonces or IVs would reveal the plaintext; use a new key"
            )));
        }
        let stream = sa.stream_name().map(short);
        let is_shared = |stream: &ShortName| match sa.is_inbound() {
            true => self.nonces.contains(stream),
            false => self.received_nonces.contains_key(stream),
        };
        if !sa.insecure && stream.as_ref().is_some_and(is_shared) {
            return Err(refusal(format!(
                "SA \"{name}\" uses the key and salt of an SA of the other direction, present or deleted: both ends would use the \
                 same nonces, which would reveal the plaintext; use a separate key for each direction (insecure = true overrides this)"
            )));
        }
        let is_all = sa.selectors.iter().all(|selector| *selector == Selector::default());
        let selectors = match sa.selectors.len() as u32 {
            0 => Some(0..0),
            _ if is_all => Some(SELECT_ALL),
            count => self.selector_slots.allocate(count),
        };
        let Some(selectors) = selectors else {
            return Err(refusal(format!(
                "there is no space for the {} selectors of SA \"{name}\": all SAs together can have {}; raise selector_capacity",
                sa.selectors.len(),
                self.shape.selectors
            )));
        };
        // All fragments between two endpoints must go to one worker for reassembly. The SAs between
        // these endpoints therefore share a steering bucket.
        let bucket = self.database.lengths.bucket(&sa).or(replaced.map(Database::bucket));
        let slot = match bucket {
            Some(bucket) => self.sa_slots.allocate_in(bucket),
            None => self.sa_slots.allocate(),
        };
        let Some(index) = slot else {
            self.free_selectors(selectors);
            let shared = match self.database.lengths.bucket(&sa) {
                Some(_) => format!(", and SAs between the same endpoints share {}", self.shape.sas / BUCKETS),
                None => String::new(),
            };
            return Err(refusal(format!(
                "there is no free slot for SA \"{name}\": the function has {}{shared}; raise sa_capacity",
                self.shape.sas
            )));
        };
        if selectors != SELECT_ALL {
            let bytes: Vec<u8> = sa.selectors.iter().flat_map(tables::selector).collect();
            self.image.write(self.shape.selectors(selectors.clone()).start, &bytes);
        }
        self.image.write(self.shape.sa(index).start, &*tables::sa(&sa, &selectors));
        self.nonces.extend(nonces);
        if let Some(stream) = stream.filter(|_| sa.is_inbound()) {
            *self.received_nonces.entry(stream).or_default() += 1;
        }
        self.spis.insert(spi, index);
        if replaced.is_none() {
            self.names.insert(name.clone(), index);
        }
        self.records.insert(index, Record { selectors, ..Record::default() });
        self.database.insert(index, Arc::new(sa));
        Ok(index)
    }

    /// Loads the durable state of the process before packets arrive. After a restart, no SA repeats
    /// sequence numbers that it may have used before.
    pub(super) fn start(&mut self, name: &str, state: &Arc<State>) -> Result<(), Error> {
        if state.is_durable() {
            self.database.states.grants.use_folder(Arc::clone(state), self.shape.sas);
            let database = Arc::clone(&self.database);
            let source: Arc<dyn Source> = database;
            state.add(&source);
        }
        self.state = Some((Arc::clone(state), name.to_owned()));
        self.make_durable(&self.indexes())
    }

    /// Claims the cryptographic keys of new SAs and reserves sequence numbers. Packets cannot find
    /// these SAs yet.
    pub(super) fn make_durable(&self, indexes: &[u32]) -> Result<(), Error> {
        let Some((state, name)) = &self.state else { return Ok(()) };
        let refuse = |error: godwit_state::Error| Error::Command { message: error.to_string() };
        let states = &self.database.states;
        let mut planned = Vec::with_capacity(indexes.len());
        for &index in indexes {
            let Some(sa) = self.database.sa(index) else { continue };
            if let Some(nonces) = sa.nonce_name() {
                state.claim(&nonces, &format!("SA \"{}\"", sa.name), name).map_err(refuse)?;
            }
            let (first, reserved) = states.grants.plan(&sa);
            planned.push((index, sa, first, reserved));
        }
        let entries: Vec<_> = planned.iter().filter_map(|(.., reserved)| *reserved).collect();
        states.grants.reserve(&entries).map_err(refuse)?;
        for (index, sa, first, reserved) in planned {
            states.begin(index, &sa, first);
            states.grants.begin(index, &sa, first, reserved);
        }
        Ok(())
    }

    /// Makes an SA visible to packets. The caller has written the SA to the table image and to the
    /// memory of all devices.
    pub(super) fn publish(&mut self, index: u32) -> Result<(), Refusal> {
        let Some(sa) = self.database.sa(index) else { return Ok(()) };
        let Some(record) = self.records.get_mut(&index).filter(|record| !record.is_published) else { return Ok(()) };
        record.is_published = self.database.publish(index, &sa, &mut self.endpoints);
        match record.is_published {
            true => Ok(()),
            false => Err(refusal(format!("the table of inbound SAs is full: SA \"{}\" does not fit", sa.name))),
        }
    }

    fn bytes(&self, index: u32) -> [Range<usize>; 2] {
        let selectors = self.records.get(&index).map_or(0..0, |record| record.selectors.clone());
        [self.shape.sa(index), self.shape.selectors(selectors)]
    }

    /// Copies SAs from the table image to the devices.
    pub(super) fn upload(&self, indexes: &[u32], running: &dyn Running) -> Result<(), Error> {
        let mut ranges: Vec<Range<usize>> = indexes.iter().flat_map(|index| self.bytes(*index)).collect();
        ranges.retain(|range| !range.is_empty());
        ranges.sort_unstable_by_key(|range| range.start);
        let mut joined: Vec<Range<usize>> = Vec::new();
        for range in ranges {
            match joined.last_mut() {
                Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
                _ => joined.push(range),
            }
        }
        joined.into_iter().try_for_each(|range| running.image_changed(range))
    }

    /// Wipes SAs that no packet uses, and frees their slots in the table image. A device that
    /// rejects the change counts as lost.
    pub(super) fn wipe(&mut self, indexes: &[u32], running: Option<&dyn Running>) {
        for &index in indexes {
            let [sa, selectors] = self.bytes(index);
            self.image.wipe(sa);
            if self.records.get(&index).is_some_and(|record| record.selectors != SELECT_ALL) {
                self.image.wipe(selectors);
            }
        }
        if let Some(running) = running {
            let _ = self.upload(indexes, running);
        }
        for &index in indexes {
            if let Some(sa) = self.database.sa(index) {
                if self.names.get(&sa.name) == Some(&index) {
                    self.names.remove(&sa.name);
                }
                self.spis.remove(&spi(&sa));
                // If no packet has used the SA, its nonces may be used again.
                let states = &self.database.states;
                if states.hot(index).sequence() == states.grants.first(index) {
                    sa.nonce_name().map(|nonces| self.nonces.remove(&short(nonces)));
                    self.remove_received_nonces(&sa);
                }
            }
            if let Some(record) = self.records.remove(&index) {
                self.free_selectors(record.selectors);
            }
            self.database.remove(index);
            self.sa_slots.free(index);
        }
    }

    /// Removes the key digest of an inbound SA that has received no packet.
    fn remove_received_nonces(&mut self, sa: &Sa) {
        let Some(stream) = sa.stream_name().map(short).filter(|_| sa.is_inbound()) else { return };
        if let Some(count) = self.received_nonces.get_mut(&stream) {
            *count -= 1;
            if *count == 0 {
                self.received_nonces.remove(&stream);
            }
        }
    }

    /// Waits until no packet in flight uses the SAs, and then wipes them. If the wait times out,
    /// [`Control::wipe_retired`] wipes the SAs later.
    ///
    /// # Errors
    /// Returns the error of [`Running::quiesce`] if the packets are still in flight after the
    /// timeout.
    pub(super) fn retire(&mut self, indexes: &[u32], running: &dyn Running) -> Result<(), Error> {
        let quiet = running.quiesce();
        match quiet {
            Ok(()) => self.wipe(indexes, Some(running)),
            Err(_) => {
                let ticket = running.request_quiesce();
                self.retired.extend(indexes.iter().map(|&index| (index, ticket)));
            }
        }
        quiet
    }

    /// Wipes retired SAs that no packet in flight uses, without waiting. Returns whether any SA was
    /// retired.
    #[inline(never)]
    pub(super) fn wipe_retired(&mut self, running: &dyn Running) -> bool {
        if self.retired.is_empty() {
            return false;
        }
        let retired = std::mem::take(&mut self.retired);
        let (quiet, waiting) = retired.into_iter().partition::<Vec<_>, _>(|&(_, ticket)| running.is_quiesced(ticket));
        self.retired = waiting;
        self.wipe(&quiet.into_iter().map(|(index, _)| index).collect::<Vec<_>>(), Some(running));
        true
    }

    fn free_selectors(&mut self, range: Range<u32>) {
        if range != SELECT_ALL && !range.is_empty() {
            self.selector_slots.free(range);
        }
    }

    /// Hides SAs from new packets. Ignores SAs that are not published.
    pub(super) fn unpublish(&mut self, indexes: &[u32]) {
        for index in indexes {
            let Some(sa) = self.database.sa(*index) else { continue };
            let Some(record) = self.records.get_mut(index).filter(|record| record.is_published) else { continue };
            record.is_published = false;
            self.database.unpublish(&sa, &mut self.endpoints);
        }
    }

    pub(super) fn set_policies(&mut self, policies: Vec<Policy>) {
        self.database.policies.store(Arc::new(Policies::new(&policies)));
        self.records.values_mut().for_each(|record| record.policies.clear());
        for (order, policy) in (0..).zip(&policies) {
            if let Action::Protect(sa) = policy.action
                && let Some(record) = self.records.get_mut(&sa)
            {
                record.policies.push(order);
            }
        }
        self.policies = policies;
    }

    /// Replaces the SA `old` with the SA `new` in all IPsec policies. The new SA also takes over
    /// the name.
    pub(super) fn switch(&mut self, old: u32, new: u32) {
        let orders = self.records.get_mut(&old).map(|record| std::mem::take(&mut record.policies)).unwrap_or_default();
        let published = self.database.policies.load();
        for &order in &orders {
            let policy = &mut self.policies[order as usize];
            published.set_sa(order, policy, new);
            policy.action = Action::Protect(new);
        }
        if let Some(record) = self.records.get_mut(&new) {
            record.policies = orders;
        }
        if let Some(sa) = self.database.sa(new) {
            self.names.insert(sa.name.clone(), new);
        }
    }

    /// Records an event for [`Control::notices`].
    pub(super) fn notice(&mut self, event: &'static str, sentence: String) {
        self.events.push((event, sentence));
        self.database.states.note_event();
    }

    /// Returns SA events, such as an expired lifetime or a new key. Each event is reported once.
    pub(super) fn notices(&mut self) -> Vec<Notice> {
        use super::state::SaFacts;
        let mut notices = Vec::new();
        for (&index, record) in &mut self.records {
            let Some(sa) = self.database.sa(index) else { continue };
            let facts = self.database.states.hot(index).facts();
            let name = &sa.name;
            let sentences = [
                (
                    SaFacts::WARNED,
                    "sa_to_replace",
                    format!("SA \"{name}\" has used three quarters of its sequence numbers: replace it"),
                ),
                (SaFacts::SOFT, "sa_to_replace", format!("SA \"{name}\" has reached its soft lifetime: replace it")),
                (
                    SaFacts::ENDED,
                    "sa_ended",
                    format!("SA \"{name}\" has ended and its packets are dropped: replace it"),
                ),
            ];
            for (fact, event, sentence) in sentences {
                if facts.is(fact) && record.reported & fact == 0 {
                    record.reported |= fact;
                    notices.push((event, sentence));
                }
            }
        }
        notices.sort_unstable();
        let mut all = std::mem::take(&mut self.events);
        all.append(&mut notices);
        all
    }
}

/// Returns the unique identifier of an SA. An inbound SA has a unique SPI (RFC 4301, section 4.1),
/// while an outbound SA also needs its destination address.
fn spi(sa: &Sa) -> (u32, Option<IpAddr>) {
    (sa.spi, (!sa.is_inbound()).then_some(sa.destination))
}
