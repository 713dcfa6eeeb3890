//! Changes of routes and next hops of `ipv4` while other threads run the kernel.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use godwit_abi::{Descriptor, Outcome};
use godwit_function::Function;
use godwit_function::ipv4::{Ipv4, Spare, VERDICT_FORWARD, VERDICT_UNRESOLVED};
use godwit_function::routing::{Adjacency, NextHop, Prefix, RouteChange, Routing};
use godwit_kernels::{BinCall, IPV4};
use godwit_test_support::{FrameBuilder, Random, wait_for};
use godwit_wire::MacAddress;

use super::running::{End, READERS, Readers, level};

const NO_ROUTE: u32 = godwit_kernels::image::IPV4_NONE;
/// Number of /24 address blocks. It is small, and many changes concern the same block.
const BLOCKS: u32 = 8;

fn mask(length: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0)
}

fn prefix(address: u32, length: u8) -> Prefix {
    Prefix::of(Ipv4Addr::from_bits(address).into(), length).unwrap()
}

/// Returns the next hop of the longest prefix that covers `address`, by linear search.
fn expected_next_hop(routes: &BTreeMap<(u8, u32), u32>, address: u32) -> u32 {
    (0..=32).rev().find_map(|length| routes.get(&(length, address & mask(length))).copied()).unwrap_or(NO_ROUTE)
}

/// Allowed results of a lookup, before and after the current change.
struct Answers {
    addresses: Vec<u32>,
    /// Count of the starts and ends of changes. It is odd during a change.
    change: AtomicU64,
    /// Allowed results for each address. The upper half holds the result before the change, and the
    /// lower half holds the result after it.
    both: Vec<AtomicU64>,
}

/// Returns addresses in few blocks. Each change then concerns many of them.
fn addresses(random: &mut Random) -> Vec<u32> {
    let near = (0..600).map(|_| 0x0a00_0000 + random.below(BLOCKS * 256));
    near.chain([0, u32::MAX, 0x0a00_0000 - 1, 0x0a01_0000, 0x0b00_0000]).collect()
}

fn changes_under_lookups(spare: Spare, hops: u32, batch: u32, changes: usize) {
    let mut random = Random::new(u64::from(batch));
    let next_hops = vec![NextHop::Local; hops as usize];
    let function = Ipv4::with_room(Vec::new(), next_hops, Vec::new(), spare).unwrap();
    let addresses = addresses(&mut random);
    let no_routes = u64::from(NO_ROUTE) << 32 | u64::from(NO_ROUTE);
    let both = addresses.iter().map(|_| AtomicU64::new(no_routes)).collect();
    let answers = Answers { addresses, change: AtomicU64::new(0), both };
    let readers = Readers::default();
    let lookups = AtomicU64::new(0);
    let wrong: Mutex<Option<String>> = Mutex::default();
    let (image, variant) = (function.image(), u32::from(function.properties().variant));
    std::thread::scope(|scope| {
        let end = End(&readers);
        for reader in 0..READERS {
            let (readers, answers, lookups, wrong, image) = (&readers, &answers, &lookups, &wrong, &image);
            scope.spawn(move || {
                let mut found = vec![0; 64];
                let mut at = reader * 977;
                readers.read(reader, || {
                    let addresses = &answers.addresses;
                    at = (at + found.len()) % (addresses.len() - found.len());
                    let part = at..at + found.len();
                    let before = answers.change.load(Ordering::SeqCst);
                    // SAFETY: the image is complete, and the CPU supports the level.
                    unsafe {
                        let part = &addresses[part.clone()];
                        level().ipv4_lookup_bulk(image.as_ptr(), variant, part, &mut found, 16);
                    };
                    let allowed: Vec<u64> =
                        answers.both[part.clone()].iter().map(|a| a.load(Ordering::SeqCst)).collect();
                    if answers.change.load(Ordering::SeqCst) != before {
                        return;
                    }
                    lookups.fetch_add(found.len() as u64, Ordering::Relaxed);
                    for ((address, found), allowed) in addresses[part].iter().zip(&found).zip(allowed) {
                        if *found != (allowed >> 32) as u32 && *found != allowed as u32 {
                            let text = format!("{address:#x}: {found:#x} is neither half of {allowed:#x}");
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
                    0 => random.below(16),
                    1..20 => 16 + random.below(4),
                    20..400 => 20 + random.below(5),
                    _ => 25 + random.below(8),
                };
                let address = (0x0a00_0000 + random.below(BLOCKS * 256)) & mask(length);
                // With this ratio, the table neither fills up nor becomes empty.
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
                    true => expected_next_hop(&routes, address),
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
    assert!(lookups.load(Ordering::Relaxed) > 0, "no lookup was checked");
}

#[test]
fn a_lookup_returns_the_result_before_or_after_a_change() {
    // The number of spare groups is small, so groups are often reused.
    for hops in [40, 0x8000] {
        // Each block needs two groups, one before and one after a change.
        let spare = Spare { next_hops: 0, groups: 2 * BLOCKS as usize };
        changes_under_lookups(spare, hops, 1, 500);
        changes_under_lookups(spare, hops, 400, 100_000);
    }
}

#[repr(align(64))]
struct Buffer([u8; 64]);

fn buffer() -> Buffer {
    let frame = FrameBuilder::new().ipv4([192, 0, 2, 1], [10, 0, 0, 1]).udp([1, 2], &[0; 12]);
    let mut buffer = [0; 64];
    buffer[..frame.len()].copy_from_slice(&frame);
    Buffer(buffer)
}

fn station(port: u16, address: u8) -> Adjacency {
    let mac = |kind| MacAddress([2, kind, address, address, address, port as u8]);
    Adjacency { port, destination: mac(1), source: MacAddress([2, 2, 2, 2, 2, port as u8]), mtu: 1500 }
}

#[test]
fn no_frame_gets_parts_of_two_next_hops() {
    let next_hop = NextHop::Forward(station(0, 0));
    let route = godwit_function::ipv4::Route { prefix: 0x0a00_0000, length: 8, next_hop: 0 };
    let function = Ipv4::new(vec![route], vec![next_hop]).unwrap();
    let readers = Readers::default();
    let wrong: Mutex<Option<String>> = Mutex::default();
    let forwarded = AtomicU64::new(0);
    let (image, variant) = (function.image(), u32::from(function.properties().variant));
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
                        counters: std::ptr::null_mut(),
                    };
                    // SAFETY: the only packet has its own buffer, the image belongs to the
                    // function, and the CPU supports the level.
                    unsafe { level().run_bin(IPV4, &call) };
                    let is_correct = match outcome.verdict {
                        VERDICT_FORWARD => {
                            forwarded.fetch_add(1, Ordering::Relaxed);
                            let station = station(outcome.port, buffer.0[2]);
                            buffer.0[..6] == station.destination.0 && buffer.0[6..12] == station.source.0
                        }
                        VERDICT_UNRESOLVED => true,
                        _ => false,
                    };
                    if !is_correct {
                        let text = format!("{outcome:?} {:x?}", &buffer.0[..12]);
                        wrong.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(text);
                    }
                });
            });
        }
        let mut random = Random::new(7);
        let mut port = 0;
        // On a busy machine, the readers may start late.
        let has_forwarded = || forwarded.load(Ordering::Relaxed) > 0;
        wait_for("a forwarded packet", Duration::from_secs(60), has_forwarded);
        for _ in 0..10_000 {
            // The MAC address of the station changes each time, and its port changes sometimes.
            port = if random.below(50) == 0 { random.below(3) } else { port };
            let station = station(port, random.next_u8());
            let next_hop = match random.below(5) {
                0 => NextHop::Unresolved(station),
                _ => NextHop::Forward(station),
            };
            function.set_next_hops(&[(0, next_hop)], &readers).unwrap();
        }
        drop(end);
    });
    assert_eq!(wrong.into_inner().unwrap_or_else(PoisonError::into_inner), None);
}

#[test]
fn a_full_table_is_loaded_in_batches() {
    const ROUTES: u32 = 200_000;
    let function = Ipv4::new(Vec::new(), vec![NextHop::Local; 64]).unwrap();
    let mut random = Random::new(1);
    let changes: Vec<RouteChange> = (0..ROUTES)
        .map(|index| {
            let length = random.pick(&[24, 24, 24, 22, 20, 16]);
            RouteChange { prefix: prefix(random.next_u32() & mask(length), length), next_hop: Some(index % 64) }
        })
        .collect();
    let readers = Readers::default();
    readers.ended.store(true, Ordering::Release);
    let begin = Instant::now();
    function.change(&changes, &readers).unwrap();
    println!("{ROUTES} routes in {:.0} ms", begin.elapsed().as_secs_f64() * 1e3);
    let deleted: Vec<RouteChange> = changes.iter().map(|change| RouteChange { next_hop: None, ..*change }).collect();
    function.change(&deleted, &readers).unwrap();
    assert_eq!(function.routes().len(), 0);
    assert_eq!(function.find(Ipv4Addr::new(10, 0, 0, 1).into()), None);
}
