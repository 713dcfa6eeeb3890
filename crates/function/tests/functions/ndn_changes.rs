//! Changes of names and next hops of `ndn` while another thread runs the kernel. A concurrent
//! lookup returns the result before or after a change. A later lookup returns the result after the
//! change. A device that copies the reported ranges of the image has the same table.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use godwit_abi::{Descriptor, Outcome};
use godwit_function::ndn::{Carrier, Names, Ndn, NextHop, Parts};
use godwit_function::{Error, Function, Running};
use godwit_kernels::{BinCall, NDN};
use godwit_packet::{Arena, ArenaConfig, Memory, Region};
use godwit_test_cases::ndn_packets::{self, element, frame};
use godwit_test_support::Random;
use godwit_wire::MacAddress;
use serde_json::{Value, json};

use super::running::level;

fn uri(parts: &[&str]) -> String {
    parts.iter().map(|part| format!("/{part}")).collect()
}

fn interest(uri: &str) -> Vec<u8> {
    let name: Vec<u8> = uri.split('/').skip(1).flat_map(|part| element(8, part.as_bytes())).collect();
    let packet = element(5, &[element(7, &name), element(10, &[1, 2, 3, 4])].concat());
    frame(ndn_packets::Carrier::Ethernet, false, 6363, &packet)
}

fn next_hop(index: u16) -> NextHop {
    let station = |kind| MacAddress([2, 0, kind, 0, (index >> 8) as u8, index as u8]);
    NextHop::Forward { port: index, destination: station(1), source: station(2), carrier: Carrier::Ethernet }
}

struct Packets {
    region: Region,
    descriptors: Vec<Descriptor>,
    frames: Vec<Vec<u8>>,
}

impl Packets {
    fn new(names: &[String]) -> Self {
        let config = ArenaConfig { packets: names.len(), ..ArenaConfig::default() };
        let mut region = Arena::new(config, 1).unwrap().split().remove(0);
        let frames: Vec<Vec<u8>> = names.iter().map(|name| interest(name)).collect();
        let descriptors = frames.iter().map(|frame| region.allocate(frame.len()).unwrap()).collect();
        Self { region, descriptors, frames }
    }

    fn run(&mut self, image: *const u8) -> Vec<Outcome> {
        for (descriptor, frame) in self.descriptors.iter().zip(&self.frames) {
            self.region.frame_mut(descriptor).copy_from_slice(frame);
        }
        let mut descriptors = self.descriptors.clone();
        let parameters = vec![0; descriptors.len()];
        let mut outcomes = vec![Outcome::default(); descriptors.len()];
        let call = BinCall {
            arena: self.region.arena_base(),
            image,
            descriptors: descriptors.as_mut_ptr(),
            parameters: parameters.as_ptr(),
            outcomes: outcomes.as_mut_ptr(),
            count: descriptors.len() as u32,
            variant: 0,
            group: 0,
            counters: std::ptr::null_mut(),
        };
        // SAFETY: the CPU supports the level. The descriptors belong to the region, which is
        // borrowed exclusively. The arrays have `count` elements. The image belongs to `ndn` and
        // outlives the call.
        unsafe { level().run_bin(NDN, &call) };
        outcomes
    }
}

/// Returns the next hop in an outcome, or `None` for a name without a route.
fn next_hop_of(outcome: &Outcome) -> Option<u32> {
    match outcome.verdict {
        0 => Some(outcome.value),
        _ => {
            assert_eq!(*outcome, Outcome::drop(5), "a packet is forwarded or has no route");
            None
        }
    }
}

/// Replacement for an engine with one worker and one device. The device copies the reported ranges
/// of the image.
struct Engine<'a> {
    function: &'a Ndn,
    /// Count of the starts and ends of the worker's rounds. It is even during a round.
    rounds: &'a AtomicU64,
    ended: &'a AtomicBool,
    copy: Mutex<Memory>,
}

impl Running for Engine<'_> {
    fn image_changed(&self, range: Range<usize>) -> Result<(), Error> {
        self.function.image().copy_to(range.start, &mut self.copy.lock().unwrap()[range]);
        Ok(())
    }

    fn quiesce(&self) -> Result<(), Error> {
        // The wait ends after a whole round that starts now or later.
        let seen = self.rounds.load(Ordering::SeqCst);
        while self.rounds.load(Ordering::SeqCst) < seen + 2 && !self.ended.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        Ok(())
    }
}

fn ask(engine: &Engine<'_>, request: Value) -> Value {
    engine.function.operate().unwrap().command(&request, engine).unwrap_or_else(|error| panic!("{request}: {error}"))
}

/// Returns all prefixes of a name, the longest first.
fn prefixes(name: &str) -> impl Iterator<Item = &str> {
    let ends = (0..=name.len()).rev().filter(|&end| end == name.len() || name.as_bytes()[end] == b'/');
    ends.map(|end| if end == 0 { "/" } else { &name[..end] })
}

/// Returns the next hop of the longest prefix of a name, by linear search.
fn expected(table: &BTreeMap<String, u32>, name: &str) -> Option<u32> {
    prefixes(name).find_map(|prefix| table.get(prefix).copied())
}

/// Returns the allowed results while a request changes one name after the other.
fn allowed_during(before: &BTreeMap<String, u32>, after: &BTreeMap<String, u32>, name: &str) -> Vec<Option<u32>> {
    let mut allowed = Vec::new();
    for prefix in prefixes(name) {
        let hops = [before.get(prefix).copied(), after.get(prefix).copied()];
        allowed.extend(hops.iter().filter(|hop| hop.is_some()));
        if hops.iter().all(Option::is_some) {
            return allowed;
        }
    }
    allowed.push(None);
    allowed
}

#[test]
fn a_lookup_returns_the_result_before_or_after_a_change() {
    let mut random = Random::new(7);
    let words = ["a", "bb", "example", "site", "a-component-of-some-length", "x"];
    let mut table: BTreeMap<String, u32> = BTreeMap::new();
    let mut names = Names::new();
    let any = |random: &mut Random| {
        let depth = 1 + random.below(6);
        uri(&(0..depth).map(|_| random.pick(&words)).collect::<Vec<_>>())
    };
    for _ in 0..200 {
        let (name, next_hop) = (any(&mut random), random.below(8));
        names.push_uri(name.as_bytes(), next_hop).unwrap();
        table.insert(name, next_hop);
    }
    let hops = (0..8).map(|index| (format!("hop{index}"), next_hop(index)));
    let parts = Parts { guide: Some(2), spare_names: 400, ..Parts::new(names, hops.collect()) };
    let function = Ndn::new(parts).unwrap();
    let requested: Vec<String> = (0..600).map(|_| any(&mut random)).collect();

    let (rounds, ended) = (AtomicU64::new(1), AtomicBool::new(false));
    let mut copy = Memory::new(function.image().len(), "a test").unwrap();
    function.image().copy_to(0, &mut copy);
    let engine = Engine { function: &function, rounds: &rounds, ended: &ended, copy: Mutex::new(copy) };
    // Allowed results for each name, before and after the current change.
    let allowed = Mutex::new(requested.iter().map(|name| vec![expected(&table, name)]).collect::<Vec<_>>());
    let changes = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let mut packets = Packets::new(&requested);
            let mut lookups = 0u64;
            while !ended.load(Ordering::SeqCst) {
                rounds.fetch_add(1, Ordering::SeqCst);
                // A change ends with a grace period, so at most one change starts during the
                // lookups.
                let before = allowed.lock().unwrap().clone();
                let outcomes = packets.run(function.image().as_ptr());
                let after = allowed.lock().unwrap().clone();
                for (index, outcome) in outcomes.iter().enumerate() {
                    let found = next_hop_of(outcome);
                    let is_allowed = before[index].contains(&found) || after[index].contains(&found);
                    assert!(is_allowed, "{}: {found:?}: {:?}, {:?}", requested[index], before[index], after[index]);
                    lookups += 1;
                }
                rounds.fetch_add(1, Ordering::SeqCst);
            }
            lookups
        });
        let mut checked = Packets::new(&requested);
        let mut changes = 0;
        for round in 0..150 {
            if worker.is_finished() {
                break;
            }
            let mut after = table.clone();
            let request = if round % 2 == 0 {
                let mut added = Vec::new();
                for _ in 0..1 + random.below(20) {
                    let (name, hop) = (any(&mut random), random.below(8));
                    after.insert(name.clone(), hop);
                    added.push(json!({ "prefix": name, "next_hop": format!("hop{hop}") }));
                }
                if round % 10 == 0 {
                    after.insert("/".to_owned(), 3);
                    added.push(json!({ "prefix": "/", "next_hop": "hop3" }));
                }
                json!({ "command": "add", "route": added })
            } else {
                let deleted: Vec<String> = table.keys().filter(|_| random.below(8) == 0).cloned().collect();
                after.retain(|name, _| !deleted.contains(name));
                if deleted.is_empty() {
                    continue;
                }
                json!({ "command": "delete", "prefix": deleted })
            };
            *allowed.lock().unwrap() = requested.iter().map(|name| allowed_during(&table, &after, name)).collect();
            ask(&engine, request);
            table = after;
            let current: Vec<Option<u32>> = requested.iter().map(|name| expected(&table, name)).collect();
            *allowed.lock().unwrap() = current.iter().map(|&hop| vec![hop]).collect();
            let outcomes = checked.run(function.image().as_ptr());
            let copied = checked.run(engine.copy.lock().unwrap().base().as_ptr());
            for (index, name) in requested.iter().enumerate() {
                assert_eq!(next_hop_of(&outcomes[index]), current[index], "{name} after change {round}");
                assert_eq!(next_hop_of(&copied[index]), current[index], "{name} on a device after change {round}");
            }
            changes += 1;
        }
        ended.store(true, Ordering::SeqCst);
        assert!(worker.join().unwrap() > 1000, "too few lookups during the changes");
        changes
    });
    assert!(changes > 100, "only {changes} changes");
    assert_eq!(function.names(), table.len() as u64);
    for name in &requested {
        let bytes: Vec<u8> = name.split('/').skip(1).flat_map(|part| element(8, part.as_bytes())).collect();
        assert_eq!(function.lookup_ref(&bytes), expected(&table, name), "ref: {name}");
    }
}
