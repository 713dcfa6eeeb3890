//! Routes and next hops of `ipv4` change while the kernel looks up, on other threads, the whole time.

mod readers;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use godwit_abi::{Descriptor, Outcome};
use godwit_function::Function;
use godwit_function::ipv4::{Ipv4, Spare, VERDICT_FORWARD, VERDICT_UNRESOLVED};
use godwit_function::routing::{Adjacency, NextHop, Prefix, RouteChange, Routing};
use godwit_kernels::{BinCall, IPV4};
use godwit_wire::MacAddress;

use readers::{End, READERS, Random, Readers, level};

const NO_ROUTE: u32 = godwit_kernels::image::IPV4_NO_ROUTE;
/// So few blocks of 256 addresses that changes meet.
const BLOCKS: u32 = 8;

fn mask(length: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0)
}

fn prefix(address: u32, length: u8) -> Prefix {
    Prefix::of(Ipv4Addr::from_bits(address).into(), length).unwrap()
}

/// The longest prefix, the plainest way.
fn oracle(routes: &BTreeMap<(u8, u32), u32>, address: u32) -> u32 {
    (0..=32).rev().find_map(|length| routes.get(&(length, address & mask(length))).copied()).unwrap_or(NO_ROUTE)
}

/// What may be said of each address: what was said before the change under way, and what is said after.
struct Answers {
    addresses: Vec<u32>,
    /// Which change is under way: odd while one is.
    change: AtomicU64,
    /// Before in the upper half, after in the lower.
    both: Vec<AtomicU64>,
}

/// Addresses that crowd in few blocks, so that each change meets many of them.
fn addresses(random: &mut Random) -> Vec<u32> {
    let near = (0..600).map(|_| 0x0a00_0000 + random.below(BLOCKS * 256));
    near.chain([0, u32::MAX, 0x0a00_0000 - 1, 0x0a01_0000, 0x0b00_0000]).collect()
}

fn changes_under_lookups(spare: Spare, hops: u32, batch: u32, changes: usize) {
    let mut random = Random(u64::from(batch));
    let next_hops = vec![NextHop::Local; hops as usize];
    let function = Ipv4::with_room(Vec::new(), next_hops, Vec::new(), spare).unwrap();
    let addresses = addresses(&mut random);
    let nothing = u64::from(NO_ROUTE) << 32 | u64::from(NO_ROUTE);
    let both = addresses.iter().map(|_| AtomicU64::new(nothing)).collect();
    let answers = Answers { addresses, change: AtomicU64::new(0), both };
    let readers = Readers::default();
    let lookups = AtomicU64::new(0);
    let wrong: Mutex<Option<String>> = Mutex::default();
    let (image, variant) = (function.image(), u32::from(function.variant()));
    std::thread::scope(|scope| {
        let end = End(&readers);
        for reader in 0..READERS {
            let (readers, answers, lookups, wrong, image) = (&readers, &answers, &lookups, &wrong, &image);
            scope.spawn(move || {
                let mut said = vec![0; 64];
                let mut at = reader * 977;
                readers.read(reader, || {
                    let addresses = &answers.addresses;
                    at = (at + said.len()) % (addresses.len() - said.len());
                    let part = at..at + said.len();
                    let before = answers.change.load(Ordering::SeqCst);
                    // SAFETY: the image is whole, and the level is one that this CPU has.
                    unsafe {
                        let part = &addresses[part.clone()];
                        level().ipv4_lookup_bulk(image.as_ptr(), variant, part, &mut said, 16);
                    };
                    let allowed: Vec<u64> =
                        answers.both[part.clone()].iter().map(|a| a.load(Ordering::SeqCst)).collect();
                    if answers.change.load(Ordering::SeqCst) != before {
                        return;
                    }
                    lookups.fetch_add(said.len() as u64, Ordering::Relaxed);
                    for ((address, said), allowed) in addresses[part].iter().zip(&said).zip(allowed) {
                        if *said != (allowed >> 32) as u32 && *said != allowed as u32 {
                            let text = format!("{address:#x}: {said:#x} is neither half of {allowed:#x}");
                            wrong.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(text);
                        }
                    }
                });
            });
        }
        let mut routes: BTreeMap<(u8, u32), u32> = BTreeMap::new();
        let mut made = 0;
        while made < changes {
            let mut batch_changes = Vec::new();
            for _ in 0..1 + random.below(batch) {
                let length = match random.below(1000) {
                    0 => random.below(16) as u8,
                    1..20 => 16 + random.below(4) as u8,
                    20..400 => 20 + random.below(5) as u8,
                    _ => 25 + random.below(8) as u8,
                };
                let address = (0x0a00_0000 + random.below(BLOCKS * 256)) & mask(length);
                // A table that neither fills up nor runs empty.
                let next_hop = (random.below(5) < 2).then(|| random.below(hops));
                match next_hop {
                    Some(next_hop) => routes.insert((length, address), next_hop),
                    None => routes.remove(&(length, address)),
                };
                batch_changes.push(RouteChange { prefix: prefix(address, length), next_hop });
            }
            let concerns = |address: u32| {
                batch_changes.iter().any(|change| change.prefix.covers(Ipv4Addr::from_bits(address).into()))
            };
            let after: Vec<u32> = (answers.addresses.iter().zip(&answers.both))
                .map(|(&address, both)| match concerns(address) {
                    true => oracle(&routes, address),
                    false => both.load(Ordering::SeqCst) as u32,
                })
                .collect();
            answers.change.fetch_add(1, Ordering::SeqCst);
            for (both, after) in answers.both.iter().zip(&after) {
                let before = both.load(Ordering::SeqCst) as u32;
                both.store(u64::from(before) << 32 | u64::from(*after), Ordering::SeqCst);
            }
            function.change(&batch_changes, &readers).unwrap();
            answers.change.fetch_add(1, Ordering::SeqCst);
            for (both, after) in answers.both.iter().zip(&after) {
                both.store(u64::from(*after) << 32 | u64::from(*after), Ordering::SeqCst);
            }
            made += batch_changes.len();
        }
        drop(end);
    });
    assert_eq!(wrong.into_inner().unwrap_or_else(PoisonError::into_inner), None);
    assert!(lookups.load(Ordering::Relaxed) > 0, "nobody looked");
}

#[test]
fn a_lookup_says_what_was_or_what_is() {
    // Groups are scarce, so that they are used over and over.
    for hops in [40, 0x8000] {
        // Twice the blocks: what there is, and what there is to be.
        let spare = Spare { next_hops: 0, groups: 2 * BLOCKS as usize };
        changes_under_lookups(spare, hops, 1, 500);
        changes_under_lookups(spare, hops, 400, 100_000);
    }
}

/// A frame to 10.0.0.1, in a buffer of 64 bytes.
#[repr(align(64))]
struct Buffer([u8; 64]);

fn buffer() -> Buffer {
    let mut buffer = [0; 64];
    buffer[12..14].copy_from_slice(&[8, 0]);
    let header = godwit_wire::Ipv4Header {
        traffic_class: 0,
        identification: 0,
        dont_fragment: false,
        more_fragments: false,
        fragment_offset_bytes: 0,
        ttl: 64,
        protocol: 17,
        source: [192, 0, 2, 1],
        destination: [10, 0, 0, 1],
        options: &[],
        payload_bytes: 20,
    };
    header.emit(&mut buffer[14..]).unwrap();
    Buffer(buffer)
}

fn station(port: u16, address: u8) -> Adjacency {
    let mac = |kind| MacAddress([2, kind, address, address, address, port as u8]);
    Adjacency { port, destination: mac(1), source: MacAddress([2, 2, 2, 2, 2, port as u8]), mtu: 1500 }
}

#[test]
fn no_frame_leaves_with_half_a_next_hop() {
    let next_hop = NextHop::Forward(station(0, 0));
    let route = godwit_function::ipv4::Route { prefix: 0x0a00_0000, length: 8, next_hop: 0 };
    let function = Ipv4::new(vec![route], vec![next_hop]).unwrap();
    let readers = Readers::default();
    let wrong: Mutex<Option<String>> = Mutex::default();
    let forwarded = AtomicU64::new(0);
    let (image, variant) = (function.image(), u32::from(function.variant()));
    std::thread::scope(|scope| {
        let end = End(&readers);
        for reader in 0..READERS {
            let (readers, wrong, forwarded, image) = (&readers, &wrong, &forwarded, &image);
            scope.spawn(move || {
                readers.read(reader, || {
                    let mut buffer = buffer();
                    let mut descriptor = Descriptor { length: 54, room: 1, ..Descriptor::default() };
                    let mut outcome = Outcome::default();
                    let call = BinCall {
                        arena: buffer.0.as_mut_ptr(),
                        image: image.as_ptr(),
                        descriptors: &raw mut descriptor,
                        parameters: &0,
                        outcomes: &raw mut outcome,
                        count: 1,
                        variant,
                        group: 0,
                    };
                    // SAFETY: one packet in a buffer of its own, the function's image, a level that this CPU has.
                    unsafe { level().run_bin(IPV4, &call) };
                    let is_right = match outcome.verdict {
                        VERDICT_FORWARD => {
                            forwarded.fetch_add(1, Ordering::Relaxed);
                            let station = station(outcome.port, buffer.0[2]);
                            buffer.0[..6] == station.destination.0 && buffer.0[6..12] == station.source.0
                        }
                        VERDICT_UNRESOLVED => true,
                        _ => false,
                    };
                    if !is_right {
                        let text = format!("{outcome:?} {:x?}", &buffer.0[..12]);
                        wrong.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(text);
                    }
                });
            });
        }
        let mut random = Random(7);
        let mut port = 0;
        for _ in 0..10_000 {
            // Mostly the station has another address; now and then it is behind another port.
            port = if random.below(50) == 0 { random.below(3) as u16 } else { port };
            let station = station(port, random.below(256) as u8);
            let next_hop = match random.below(5) {
                0 => NextHop::Unresolved(station),
                _ => NextHop::Forward(station),
            };
            function.set_next_hops(&[(0, next_hop)], &readers).unwrap();
        }
        drop(end);
    });
    assert_eq!(wrong.into_inner().unwrap_or_else(PoisonError::into_inner), None);
    assert!(forwarded.load(Ordering::Relaxed) > 0, "nobody looked");
}

#[test]
fn a_full_table_is_loaded_in_batches() {
    const ROUTES: u32 = 200_000;
    let function = Ipv4::new(Vec::new(), vec![NextHop::Local; 64]).unwrap();
    let mut random = Random(1);
    let changes: Vec<RouteChange> = (0..ROUTES)
        .map(|index| {
            let length = [24, 24, 24, 22, 20, 16][random.below(6) as usize];
            RouteChange { prefix: prefix(random.below(u32::MAX) & mask(length), length), next_hop: Some(index % 64) }
        })
        .collect();
    let readers = Readers::default();
    readers.ended.store(true, Ordering::Release);
    let begin = Instant::now();
    function.change(&changes, &readers).unwrap();
    println!("{ROUTES} routes in {:.0} ms", begin.elapsed().as_secs_f64() * 1e3);
    let gone: Vec<RouteChange> = changes.iter().map(|change| RouteChange { next_hop: None, ..*change }).collect();
    function.change(&gone, &readers).unwrap();
    assert_eq!(function.routes().len(), 0);
    assert_eq!(function.find(Ipv4Addr::new(10, 0, 0, 1).into()), None);
}
