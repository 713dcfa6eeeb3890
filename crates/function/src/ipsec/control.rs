//! What changes the databases: when the function is built, and by commands while packets flow. One thread at a time.
//!
//! A place of the image is written while nobody can find it, and wiped when no packet refers to it any more.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use godwit_packet::{BUCKETS, Image, Memory};

use super::database::{Database, Endpoints};
use super::places::{Places, Runs};
use super::policies::{Action, Policies, Policy};
use super::room::Room;
use super::sa::Sa;
use super::selector::Selector;
use super::tables::{self, Shape};
use crate::fragments::Limits;
use crate::{Error, Running};

/// Both databases with all that is needed to change them.
pub(super) struct Control {
    pub(super) database: Arc<Database>,
    pub(super) image: Arc<Image>,
    arranges: bool,
    /// Of tunnels that have none of their own.
    path_mtu: Option<u16>,
    shape: Shape,
    room: Room,
    places: Places,
    selectors: Runs,
    /// By name.
    names: HashMap<String, u32>,
    /// Inbound by SPI, outbound by destination besides.
    spis: HashMap<(u32, Option<IpAddr>), u32>,
    /// Keys with nonces that outbound SAs use or have used.
    nonces: HashSet<[u8; 32]>,
    /// Keys with nonces that inbound SAs use or have used, with how many SAs did.
    received_nonces: HashMap<[u8; 32], u32>,
    /// SAs that no packet finds any more, but that some in flight may refer to, with what to ask the engine by.
    retired: Vec<(u32, u64)>,
    endpoints: Endpoints,
    records: HashMap<u32, Record>,
    policies: Vec<Policy>,
}

/// What is known of an SA here alone.
#[derive(Default)]
struct Record {
    /// Where its selectors lie.
    selectors: Range<u32>,
    /// Policies that it protects for.
    policies: Vec<u32>,
    /// Events that the operator has been told of.
    told: u64,
    /// Packets find it.
    is_published: bool,
}

/// Why an SA cannot be added.
pub(super) struct Refusal {
    /// The SPI is at fault, and not the SA as a whole.
    pub(super) is_of_spi: bool,
    pub(super) message: String,
}

fn refusal(message: String) -> Refusal {
    Refusal { is_of_spi: false, message }
}

/// The selectors that accept everything lie at the first place, for all SAs.
const SELECT_ALL: Range<u32> = 0..1;

impl Control {
    /// `arranges`: host halves can do what path MTUs and keepalives ask for.
    pub(super) fn new(
        shape: Shape,
        room: Room,
        reassembly: Option<Limits>,
        arranges: bool,
        path_mtu: Option<u16>,
    ) -> Result<Self, Error> {
        let mut memory: Memory = shape.empty()?;
        memory[shape.selectors(SELECT_ALL)].copy_from_slice(&tables::selector(&Selector::default()));
        Ok(Self {
            database: Arc::new(Database::new(shape.sas, reassembly)),
            arranges,
            path_mtu,
            image: Arc::new(Image::new(memory)),
            shape,
            room,
            places: Places::new(shape.sas),
            selectors: Runs::new(SELECT_ALL.end..shape.selectors as u32),
            names: HashMap::new(),
            spis: HashMap::new(),
            nonces: HashSet::new(),
            received_nonces: HashMap::new(),
            retired: Vec::new(),
            endpoints: Endpoints::new(),
            records: HashMap::new(),
            policies: Vec::new(),
        })
    }

    /// The outbound SA of a name.
    pub(super) fn outbound(&self, name: &str) -> Result<u32, String> {
        const SHOWN: usize = 8;
        let Some(&index) = self.names.get(name) else {
            let mut known: Vec<&str> = self.names.keys().map(String::as_str).collect();
            known.sort_unstable();
            let known = match known.len() {
                0 => "there is none".to_owned(),
                1..=SHOWN => format!("there are {}", known.join(", ")),
                count => format!("there are {} and {} more", known[..SHOWN].join(", "), count - SHOWN),
            };
            return Err(format!("no SA is called \"{name}\"; {known}"));
        };
        if self.database.sa(index).is_some_and(|sa| sa.is_inbound()) {
            return Err(format!("SA \"{name}\" is inbound and cannot protect; name one with direction = \"out\""));
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

    /// How many policies an SA protects for.
    pub(super) fn policies_of(&self, index: u32) -> usize {
        self.records.get(&index).map_or(0, |record| record.policies.len())
    }

    /// In the order in which they are asked.
    pub(super) fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// Writes an SA to a place of the image that nobody can find; `replaced`: the SA whose name it gets,
    /// and whose bucket if fragments do not ask for another.
    pub(super) fn place(&mut self, mut sa: Sa, replaced: Option<u32>) -> Result<u32, Refusal> {
        sa.inherit_path_mtu(self.path_mtu);
        let name = &sa.name;
        if self.names.get(name).is_some_and(|index| Some(*index) != replaced) {
            return Err(refusal(format!("two SAs are called \"{name}\"")));
        }
        let spi = spi(&sa);
        if let Some(other) = self.spis.get(&spi).and_then(|index| self.database.sa(*index)) {
            let to = spi.1.map_or(String::new(), |destination| format!(" to {destination}"));
            let message = format!("SA \"{name}\" has the same SPI {:#x}{to} as SA \"{}\"", sa.spi, other.name);
            return Err(Refusal { is_of_spi: true, message });
        }
        self.room.check(&sa).map_err(refusal)?;
        if !self.arranges && (sa.path_mtu > 0 || sa.keepalive_s > 0) {
            return Err(refusal(format!(
                "SA \"{name}\" has a path_mtu or keepalive_s, which no SA had at the start: say path_mtu in the function's stanza"
            )));
        }
        let nonces = sa.nonce_name();
        if nonces.is_some_and(|nonces| self.nonces.contains(&nonces)) {
            return Err(refusal(format!(
                "SA \"{name}\" has the key of another outbound SA, now or before, with its salt, or with its SPI and \
                 destination: its nonces or IVs would come twice, which gives away what they protect"
            )));
        }
        let stream = sa.stream_name();
        let is_shared = |stream: &[u8; 32]| match sa.is_inbound() {
            true => self.nonces.contains(stream),
            false => self.received_nonces.contains_key(stream),
        };
        if !sa.insecure && stream.as_ref().is_some_and(is_shared) {
            return Err(refusal(format!(
                "SA \"{name}\" has the key and salt of an SA of the other direction, now or before: both ends would use the same \
                 nonces, which gives away what they protect; give each direction a key of its own (insecure = true takes it all the same)"
            )));
        }
        let is_all = sa.selectors.iter().all(|selector| *selector == Selector::default());
        let selectors = match sa.selectors.len() as u32 {
            0 => Some(0..0),
            _ if is_all => Some(SELECT_ALL),
            count => self.selectors.take(count),
        };
        let Some(selectors) = selectors else {
            return Err(refusal(format!(
                "SA \"{name}\" has more selectors than there are places: all SAs have {} (selector_capacity)",
                self.shape.selectors
            )));
        };
        // With reassembly, fragments between two endpoints go to one worker.
        let bucket = self.database.lengths.bucket(&sa).or(replaced.map(Database::bucket));
        let place = match bucket {
            Some(bucket) => self.places.take_of(bucket),
            None => self.places.take(),
        };
        let Some(index) = place else {
            self.give_back_selectors(selectors);
            let shared = match self.database.lengths.bucket(&sa) {
                Some(_) => format!(", of which SAs between the same endpoints share {}", self.shape.sas / BUCKETS),
                None => String::new(),
            };
            return Err(refusal(format!(
                "there is no place for SA \"{name}\": there are {}{shared} (sa_capacity)",
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
        self.database.begin(index, Arc::new(sa));
        Ok(index)
    }

    /// Lets packets find an SA that was placed, and that devices have.
    pub(super) fn publish(&mut self, index: u32) -> Result<(), Refusal> {
        let Some(sa) = self.database.sa(index) else { return Ok(()) };
        let Some(record) = self.records.get_mut(&index).filter(|record| !record.is_published) else { return Ok(()) };
        record.is_published = self.database.find(index, &sa, &mut self.endpoints);
        match record.is_published {
            true => Ok(()),
            false => Err(refusal(format!("the table of inbound SAs has no room for SA \"{}\"", sa.name))),
        }
    }

    /// Where an SA and its selectors lie in the image.
    fn bytes(&self, index: u32) -> [Range<usize>; 2] {
        let selectors = self.records.get(&index).map_or(0..0, |record| record.selectors.clone());
        [self.shape.sa(index), self.shape.selectors(selectors)]
    }

    /// Brings SAs to devices.
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

    /// Wipes SAs that no packet refers to, and gives their places back. Devices that do not take it are lost, and their
    /// memory with them.
    pub(super) fn forget(&mut self, indexes: &[u32], running: Option<&dyn Running>) {
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
                // Nothing went out under what no packet used.
                if self.database.states.hot(index).sequence() == 0 {
                    sa.nonce_name().map(|nonces| self.nonces.remove(&nonces));
                    self.unreceive(&sa);
                }
            }
            if let Some(record) = self.records.remove(&index) {
                self.give_back_selectors(record.selectors);
            }
            self.database.end(index);
            self.places.give_back(index);
        }
    }

    /// An inbound SA has received nothing.
    fn unreceive(&mut self, sa: &Sa) {
        let Some(stream) = sa.stream_name().filter(|_| sa.is_inbound()) else { return };
        if let Some(count) = self.received_nonces.get_mut(&stream) {
            *count -= 1;
            if *count == 0 {
                self.received_nonces.remove(&stream);
            }
        }
    }

    /// Forgets lost SAs now, or, where packets that may refer to them are in flight for too long, once these are gone.
    ///
    /// # Errors
    /// The latter.
    pub(super) fn retire(&mut self, indexes: &[u32], running: &dyn Running) -> Result<(), Error> {
        let quiet = running.quiesce();
        match quiet {
            Ok(()) => self.forget(indexes, Some(running)),
            Err(_) => {
                let asked = running.ask_for_quiet();
                self.retired.extend(indexes.iter().map(|&index| (index, asked)));
            }
        }
        quiet
    }

    /// Forgets the SAs of [`Control::retire`] that no packet in flight refers to any more. Does not wait. Whether there were any to look at.
    #[inline(never)]
    pub(super) fn forget_retired(&mut self, running: &dyn Running) -> bool {
        if self.retired.is_empty() {
            return false;
        }
        let retired = std::mem::take(&mut self.retired);
        let (quiet, waiting) = retired.into_iter().partition::<Vec<_>, _>(|&(_, asked)| running.is_quiet(asked));
        self.retired = waiting;
        self.forget(&quiet.into_iter().map(|(index, _)| index).collect::<Vec<_>>(), Some(running));
        true
    }

    fn give_back_selectors(&mut self, run: Range<u32>) {
        if run != SELECT_ALL && !run.is_empty() {
            self.selectors.give_back(run);
        }
    }

    /// No new packet finds these SAs. Those that none finds yet have no part in what others are found by.
    pub(super) fn lose(&mut self, indexes: &[u32]) {
        for index in indexes {
            let Some(sa) = self.database.sa(*index) else { continue };
            let Some(record) = self.records.get_mut(index).filter(|record| record.is_published) else { continue };
            record.is_published = false;
            self.database.lose(&sa, &mut self.endpoints);
        }
    }

    /// All policies anew, for every packet that is prepared from now on.
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

    /// From now on policies protect by `new` where they protected by `old`, which has its name no more.
    pub(super) fn switch(&mut self, old: u32, new: u32) {
        let orders = self.records.get_mut(&old).map(|record| std::mem::take(&mut record.policies)).unwrap_or_default();
        let arranged = self.database.policies.load();
        for &order in &orders {
            let policy = &mut self.policies[order as usize];
            arranged.protect_by(order, policy, new);
            policy.action = Action::Protect(new);
        }
        if let Some(record) = self.records.get_mut(&new) {
            record.policies = orders;
        }
        if let Some(sa) = self.database.sa(new) {
            self.names.insert(sa.name.clone(), new);
        }
    }

    /// What has happened to SAs since the last call, in sentences for the operator.
    pub(super) fn notices(&mut self) -> Vec<String> {
        use super::state::Plan;
        let mut notices = Vec::new();
        for (&index, record) in &mut self.records {
            let Some(sa) = self.database.sa(index) else { continue };
            let plan = self.database.states.hot(index).plan();
            let name = &sa.name;
            let sentences = [
                (Plan::WARNED, format!("SA \"{name}\" has used three quarters of its sequence numbers: replace it")),
                (Plan::SOFT, format!("SA \"{name}\" has come to the end of its soft lifetime: replace it")),
                (Plan::ENDED, format!("SA \"{name}\" has come to its end: what it is for is dropped from now on")),
            ];
            for (event, sentence) in sentences {
                if plan.is(event) && record.told & event == 0 {
                    record.told |= event;
                    notices.push(sentence);
                }
            }
        }
        notices.sort_unstable();
        notices
    }
}

/// What must be unique: inbound the SPI, which alone finds the SA (RFC 4301, section 4.1); outbound with the destination.
fn spi(sa: &Sa) -> (u32, Option<IpAddr>) {
    (sa.spi, (!sa.is_inbound()).then_some(sa.destination))
}
