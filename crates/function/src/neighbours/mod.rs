//! Stations that this machine asks for by itself, where no kernel does it: which are known, which are being asked for, which are silent
//! (RFC 826; RFC 1122, section 2.3.2; RFC 4861, section 7). A table and a clock that the caller brings: frames are the responder's, and
//! routes those of the functions whose next hops name stations.
//!
//! ```text
//!            want                 3 questions, a second apart            3 s
//!   (none) --------> asking --------------------------------> silent --------> (none); asking again where it is a gateway
//!                    |    ^
//!              heard |    | 3 questions to itself without an answer
//!                    v    |
//!                    known        asked anew after 30 s without a word from it
//! ```
//!
//! One table is shared by all workers: who is answered is not who asked. It is behind a mutex that is taken for packets whose
//! station is not known, and for answers; packets that are forwarded never come here.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use godwit_wire::MacAddress;

const MILLISECOND_NS: u64 = 1_000_000;
const SECOND_NS: u64 = 1000 * MILLISECOND_NS;
/// Between two questions (RFC 4861, section 10: RETRANS_TIMER).
pub(crate) const RETRY_NS: u64 = SECOND_NS;
/// Questions without an answer (MAX_MULTICAST_SOLICIT, MAX_UNICAST_SOLICIT).
pub(crate) const QUESTIONS_MAX: u8 = 3;
/// A station that has said nothing for so long is asked whether it is still there (REACHABLE_TIME).
pub(crate) const REACHABLE_NS: u64 = 30 * SECOND_NS;
/// A station that did not answer is not asked for again before.
pub(crate) const SILENCE_NS: u64 = 3 * SECOND_NS;
/// Routes lead to a station so long after its answer: packets that waited for it have left by then, and none overtakes them.
pub(crate) const SETTLE_NS: u64 = 20 * MILLISECOND_NS;
/// The table is not searched for what is due more often.
const LOOK_NS: u64 = 5 * MILLISECOND_NS;
/// Stations that are remembered, those without an answer too.
pub(crate) const STATIONS_MAX: usize = 4096;

/// A station: where it is, and its address there.
pub(crate) type Station = (u16, IpAddr);

/// What this machine knows of the stations around it; one for each responder.
#[derive(Debug)]
pub struct Neighbours {
    /// This machine's own address, by port.
    sources: Vec<Option<MacAddress>>,
    state: Mutex<State>,
    /// Counts whatever those that wait, and routes, have to know.
    version: AtomicU64,
    /// When to look what is due.
    next_ns: AtomicU64,
    /// Whether somebody asks at all.
    used: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// By function and next hop.
    targets: HashMap<(usize, u32), Target>,
    stations: HashMap<Station, Entry>,
    asked: u64,
    learned: u64,
    silent: u64,
}

/// What a next hop leads to whose station has to be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) port: u16,
    /// `None`: the packet's own destination.
    pub(crate) gateway: Option<IpAddr>,
    /// Longest IP packet that goes there.
    pub(crate) mtu: u16,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    phase: Phase,
    /// When something is to be done next.
    due_ns: u64,
    /// A gateway: asked for as long as the program runs.
    is_kept: bool,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Asking {
        questions: u8,
    },
    Known {
        address: MacAddress,
        questions: u8,
        /// Whether routes may lead there.
        is_settled: bool,
    },
    Silent,
}

/// Whether a packet can go to its station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// It can.
    Known {
        address: MacAddress,
        /// Whether all that waited for the station have left.
        is_settled: bool,
    },
    /// It may wait; the station is being asked for.
    Asking,
    /// Nobody answers.
    Silent,
    /// There are too many stations.
    Full,
}

/// A question that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) station: Station,
    /// Where it was last; `None`: everybody is asked.
    pub(crate) to: Option<MacAddress>,
}

impl Neighbours {
    /// `sources`: this machine's own address, by port, where it has one.
    pub(crate) fn new(sources: Vec<Option<MacAddress>>) -> Self {
        let (version, next_ns) = Default::default();
        Self { sources, state: Mutex::default(), version, next_ns, used: AtomicBool::new(false) }
    }

    /// This machine's own address at a port; `None`: it has none, and cannot ask there.
    pub(crate) fn source(&self, port: u16) -> Option<MacAddress> {
        *self.sources.get(usize::from(port))?
    }

    /// A next hop of a function whose station is to be asked for.
    pub(crate) fn register(&self, function: usize, next_hop: u32, target: Target) {
        let mut state = self.lock();
        state.targets.insert((function, next_hop), target);
        if let Some(gateway) = target.gateway {
            let entry = Entry { phase: Phase::Asking { questions: 0 }, due_ns: 0, is_kept: true };
            state.stations.insert((target.port, gateway), entry);
        }
        self.used.store(true, Ordering::Release);
    }

    /// Whether there is any next hop that is asked for.
    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Ordering::Acquire)
    }

    /// Grows with whatever those that wait, and routes, have to know.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// When [`Neighbours::due`] has something to do.
    pub(crate) fn next_ns(&self) -> u64 {
        self.next_ns.load(Ordering::Acquire)
    }

    /// A packet for `destination` came to a next hop whose station is not known: where it goes, and whether it can. `None`: that next
    /// hop is not asked for. A station that nobody has asked for becomes due at once.
    pub(crate) fn want(
        &self,
        function: usize,
        next_hop: u32,
        destination: IpAddr,
        now_ns: u64,
    ) -> Option<(Station, Target, Reach)> {
        let mut state = self.lock();
        let target = *state.targets.get(&(function, next_hop))?;
        let station = (target.port, target.gateway.unwrap_or(destination));
        let known = state.stations.get(&station).map(Entry::reach);
        let reach = match known {
            Some(reach) => reach,
            None if !state.make_room() => Reach::Full,
            None => {
                let entry = Entry { phase: Phase::Asking { questions: 0 }, due_ns: now_ns, is_kept: false };
                state.stations.insert(station, entry);
                self.next_ns.fetch_min(now_ns, Ordering::AcqRel);
                Reach::Asking
            }
        };
        Some((station, target, reach))
    }

    /// What has become of a station that a packet waits for.
    pub(crate) fn reach(&self, station: Station) -> Reach {
        // Forgotten means that it was silent.
        self.lock().stations.get(&station).map_or(Reach::Silent, Entry::reach)
    }

    /// A station has said where it is. Only those that were asked for are listened to.
    pub(crate) fn heard(&self, station: Station, address: MacAddress, now_ns: u64) {
        if address.is_multicast() || address == MacAddress::default() {
            return;
        }
        let mut state = self.lock();
        let Some(entry) = state.stations.get_mut(&station) else { return };
        let is_new = match &mut entry.phase {
            Phase::Known { address: before, questions, is_settled } => {
                *questions = 0;
                if *is_settled {
                    entry.due_ns = now_ns + REACHABLE_NS;
                }
                std::mem::replace(before, address) != address
            }
            phase => {
                *phase = Phase::Known { address, questions: 0, is_settled: false };
                entry.due_ns = now_ns + SETTLE_NS;
                self.next_ns.fetch_min(entry.due_ns, Ordering::AcqRel);
                true
            }
        };
        if is_new {
            state.learned += 1;
            self.version.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Appends the questions that are due, and moves stations on whose time has come.
    pub(crate) fn due(&self, now_ns: u64, questions: &mut Vec<Question>) {
        if now_ns < self.next_ns() {
            return;
        }
        let mut state = self.lock();
        let State { stations, asked, silent, .. } = &mut *state;
        let (mut next_ns, mut has_changed) = (u64::MAX, false);
        stations.retain(|&station, entry| {
            if entry.due_ns <= now_ns {
                let (turn, news) = entry.turn(now_ns);
                has_changed |= news;
                match turn {
                    Turn::Nothing => {}
                    Turn::Ask(to) => {
                        *asked += 1;
                        questions.push(Question { station, to });
                    }
                    Turn::Silent => *silent += 1,
                    Turn::Forget => return false,
                }
            }
            next_ns = next_ns.min(entry.due_ns);
            true
        });
        self.next_ns.store(next_ns.max(now_ns + LOOK_NS), Ordering::Release);
        if has_changed {
            self.version.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Stations that routes may lead to, in order.
    pub(crate) fn settled(&self) -> Vec<(Station, MacAddress)> {
        let state = self.lock();
        let mut settled: Vec<_> = (state.stations.iter())
            .filter_map(|(station, entry)| match entry.phase {
                Phase::Known { address, is_settled: true, .. } => Some((*station, address)),
                _ => None,
            })
            .collect();
        settled.sort_unstable_by_key(|(station, _)| *station);
        settled
    }

    /// Questions asked, addresses learned, stations found silent.
    pub(crate) fn counts(&self) -> [u64; 3] {
        let state = self.lock();
        [state.asked, state.learned, state.silent]
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether there is room for one more, made by forgetting those that are silent if need be.
    fn make_room(&mut self) -> bool {
        if self.stations.len() >= STATIONS_MAX {
            self.stations.retain(|_, entry| entry.is_kept || !matches!(entry.phase, Phase::Silent));
        }
        self.stations.len() < STATIONS_MAX
    }
}

impl Entry {
    fn reach(&self) -> Reach {
        match self.phase {
            Phase::Known { address, is_settled, .. } => Reach::Known { address, is_settled },
            Phase::Asking { .. } => Reach::Asking,
            Phase::Silent => Reach::Silent,
        }
    }

    /// Its time has come; and whether that is news to others.
    fn turn(&mut self, now_ns: u64) -> (Turn, bool) {
        let (turn, news, pause_ns) = match &mut self.phase {
            Phase::Known { is_settled, .. } if !*is_settled => {
                *is_settled = true;
                (Turn::Nothing, true, REACHABLE_NS)
            }
            Phase::Known { address, questions, .. } if *questions < QUESTIONS_MAX => {
                *questions += 1;
                (Turn::Ask(Some(*address)), false, RETRY_NS)
            }
            Phase::Asking { questions } if *questions < QUESTIONS_MAX => {
                *questions += 1;
                (Turn::Ask(None), false, RETRY_NS)
            }
            Phase::Asking { .. } => {
                self.phase = Phase::Silent;
                (Turn::Silent, true, SILENCE_NS)
            }
            Phase::Silent if !self.is_kept => (Turn::Forget, false, 0),
            // It may have another address by now; or it is a gateway, which is never given up.
            Phase::Known { .. } | Phase::Silent => {
                self.phase = Phase::Asking { questions: 1 };
                (Turn::Ask(None), true, RETRY_NS)
            }
        };
        self.due_ns = now_ns + pause_ns;
        (turn, news)
    }
}

/// What is to be done with a station whose time has come.
enum Turn {
    Nothing,
    /// Whom: itself where it last was, or everybody.
    Ask(Option<MacAddress>),
    Silent,
    Forget,
}

#[cfg(test)]
mod tests;
