//! Names and next hops of `ndn` that change while kernels look names up: every look-up says what the table said before or
//! after a change, the next one what it says now; and a device that takes what it is told to take has the same table.

mod ndn_common;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use godwit_abi::{Descriptor, Outcome};
use godwit_function::ndn::{Carrier, Names, Ndn, NextHop, Parts};
use godwit_function::{Error, Function, Running};
use godwit_kernels::{BinCall, Level, NDN, levels};
use godwit_packet::{Arena, ArenaConfig, Memory, Region};
use godwit_wire::MacAddress;
use ndn_common::{Way, element, frame};
use serde_json::{Value, json};

/// Numbers that look random (xorshift64: Marsaglia, Journal of Statistical Software, 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

fn uri(parts: &[&str]) -> String {
    parts.iter().map(|part| format!("/{part}")).collect()
}

fn interest(uri: &str) -> Vec<u8> {
    let name: Vec<u8> = uri.split('/').skip(1).flat_map(|part| element(8, part.as_bytes())).collect();
    let packet = element(5, &[element(7, &name), element(10, &[1, 2, 3, 4])].concat());
    frame(Way::Ethernet, false, 6363, &packet)
}

fn next_hop(index: u16) -> NextHop {
    let station = |kind| MacAddress([2, 0, kind, 0, (index >> 8) as u8, index as u8]);
    NextHop::Forward { port: index, destination: station(1), source: station(2), carrier: Carrier::Ethernet }
}

fn level() -> &'static Level {
    levels().iter().rfind(|level| level.supported()).unwrap()
}

/// Packets that are looked up again and again.
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

    /// What the kernel says of each, with this image.
    fn look(&mut self, image: *const u8) -> Vec<Outcome> {
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
        };
        // SAFETY: the level is supported; the descriptors are of a region that is borrowed mutably, the arrays have `count`
        // elements, and the image is one of `ndn`, which lives longer than the call.
        unsafe { level().run_bin(NDN, &call) };
        outcomes
    }
}

/// The next hop that an outcome names; none: no route.
fn said(outcome: &Outcome) -> Option<u32> {
    match outcome.verdict {
        0 => Some(outcome.value),
        _ => {
            assert_eq!(*outcome, Outcome::drop(5), "neither forwarded nor without route");
            None
        }
    }
}

/// One worker that looks, and a device with a copy of the image that takes what it is told to.
struct Engine<'a> {
    function: &'a Ndn,
    /// Turns of the worker: even while it looks.
    turns: &'a AtomicU64,
    ended: &'a AtomicBool,
    copy: Mutex<Memory>,
}

impl Running for Engine<'_> {
    fn image_changed(&self, range: Range<usize>) -> Result<(), Error> {
        self.function.image().copy_to(range.start, &mut self.copy.lock().unwrap()[range]);
        Ok(())
    }

    fn quiesce(&self) -> Result<(), Error> {
        // A whole turn that begins from now on.
        let seen = self.turns.load(Ordering::SeqCst);
        while self.turns.load(Ordering::SeqCst) < seen + 2 && !self.ended.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        Ok(())
    }
}

fn ask(engine: &Engine<'_>, request: Value) -> Value {
    engine.function.command(&request, engine).unwrap_or_else(|error| panic!("{request}: {error}"))
}

/// All prefixes of a name, the longest first.
fn prefixes(name: &str) -> impl Iterator<Item = &str> {
    let ends = (0..=name.len()).rev().filter(|&end| end == name.len() || name.as_bytes()[end] == b'/');
    ends.map(|end| if end == 0 { "/" } else { &name[..end] })
}

/// The longest prefix, the plainest way.
fn expected(table: &BTreeMap<String, u32>, name: &str) -> Option<u32> {
    prefixes(name).find_map(|prefix| table.get(prefix).copied())
}

/// What may be said while a request is under way: each of its names is as before or as after it.
fn during(before: &BTreeMap<String, u32>, after: &BTreeMap<String, u32>, name: &str) -> Vec<Option<u32>> {
    let mut may_be = Vec::new();
    for prefix in prefixes(name) {
        let hops = [before.get(prefix).copied(), after.get(prefix).copied()];
        may_be.extend(hops.iter().filter(|hop| hop.is_some()));
        if hops.iter().all(Option::is_some) {
            return may_be;
        }
    }
    may_be.push(None);
    may_be
}

#[test]
fn look_ups_see_the_table_before_or_after_each_change() {
    let mut random = Random(7);
    let words = ["a", "bb", "example", "site", "a component of some length, as there are some", "x"];
    let mut table: BTreeMap<String, u32> = BTreeMap::new();
    let mut names = Names::new();
    let any = |random: &mut Random| {
        let depth = 1 + random.below(6) as usize;
        uri(&(0..depth).map(|_| words[random.below(6) as usize].split(' ').next().unwrap()).collect::<Vec<_>>())
    };
    for _ in 0..200 {
        let (name, next_hop) = (any(&mut random), random.below(8) as u32);
        names.push_uri(name.as_bytes(), next_hop).unwrap();
        table.insert(name, next_hop);
    }
    let hops = (0..8).map(|index| (format!("hop{index}"), next_hop(index)));
    let parts = Parts { guide: Some(2), spare_names: 400, ..Parts::new(names, hops.collect()) };
    let function = Ndn::new(parts).unwrap();
    let asked: Vec<String> = (0..600).map(|_| any(&mut random)).collect();

    let (turns, ended) = (AtomicU64::new(1), AtomicBool::new(false));
    let mut copy = Memory::new(function.image().len(), "a test").unwrap();
    function.image().copy_to(0, &mut copy);
    let engine = Engine { function: &function, turns: &turns, ended: &ended, copy: Mutex::new(copy) };
    // What each name may be at the moment: as of before the change that is under way, and after it.
    let allowed = Mutex::new(asked.iter().map(|name| vec![expected(&table, name)]).collect::<Vec<_>>());
    let changes = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let mut packets = Packets::new(&asked);
            let mut looked = 0u64;
            while !ended.load(Ordering::SeqCst) {
                turns.fetch_add(1, Ordering::SeqCst);
                // Changes end with a grace period, so at most one begins meanwhile.
                let before = allowed.lock().unwrap().clone();
                let outcomes = packets.look(function.image().as_ptr());
                let after = allowed.lock().unwrap().clone();
                for (index, outcome) in outcomes.iter().enumerate() {
                    let said = said(outcome);
                    let may_be = before[index].contains(&said) || after[index].contains(&said);
                    assert!(may_be, "{}: {said:?}, and not {:?} or {:?}", asked[index], before[index], after[index]);
                    looked += 1;
                }
                turns.fetch_add(1, Ordering::SeqCst);
            }
            looked
        });
        let mut checked = Packets::new(&asked);
        let mut changes = 0;
        for round in 0..150 {
            if worker.is_finished() {
                break;
            }
            let mut after = table.clone();
            let request = if round % 2 == 0 {
                let mut added = Vec::new();
                for _ in 0..1 + random.below(20) {
                    let (name, hop) = (any(&mut random), random.below(8) as u32);
                    after.insert(name.clone(), hop);
                    added.push(json!({ "prefix": name, "next_hop": format!("hop{hop}") }));
                }
                if round % 10 == 0 {
                    after.insert("/".to_owned(), 3);
                    added.push(json!({ "prefix": "/", "next_hop": "hop3" }));
                }
                json!({ "command": "add", "route": added })
            } else {
                let gone: Vec<String> = table.keys().filter(|_| random.below(8) == 0).cloned().collect();
                after.retain(|name, _| !gone.contains(name));
                if gone.is_empty() {
                    continue;
                }
                json!({ "command": "delete", "prefix": gone })
            };
            *allowed.lock().unwrap() = asked.iter().map(|name| during(&table, &after, name)).collect();
            ask(&engine, request);
            table = after;
            let now: Vec<Option<u32>> = asked.iter().map(|name| expected(&table, name)).collect();
            *allowed.lock().unwrap() = now.iter().map(|&hop| vec![hop]).collect();
            let outcomes = checked.look(function.image().as_ptr());
            let copied = checked.look(engine.copy.lock().unwrap().base().as_ptr());
            for (index, name) in asked.iter().enumerate() {
                assert_eq!(said(&outcomes[index]), now[index], "{name} after change {round}");
                assert_eq!(said(&copied[index]), now[index], "{name} on a device after change {round}");
            }
            changes += 1;
        }
        ended.store(true, Ordering::SeqCst);
        assert!(worker.join().unwrap() > 1000, "nothing was looked up meanwhile");
        changes
    });
    assert!(changes > 100, "only {changes} changes");
    assert_eq!(function.names(), table.len() as u64);
    for name in &asked {
        let bytes: Vec<u8> = name.split('/').skip(1).flat_map(|part| element(8, part.as_bytes())).collect();
        assert_eq!(function.lookup_ref(&bytes), expected(&table, name), "ref: {name}");
    }
}
