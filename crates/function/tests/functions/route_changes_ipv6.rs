//! Changes of routes and next hops of `ipv6` while other threads run the kernel.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use godwit_function::Function;
use godwit_function::ipv6::{Form, Ipv6, Route, Spare};
use godwit_function::routing::{NextHop, Prefix, RouteChange, Routing};
use godwit_test_support::Random;
use godwit_wire::MacAddress;

use super::running::{End, Idle, READERS, Readers, level};

const NO_ROUTE: u32 = godwit_kernels::image::IPV6_NONE;
const HOPS: u32 = 40;
const NET: u128 = 0x2001_0db8 << 96;

fn mask(length: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
}

fn prefix(address: u128, length: u8) -> Prefix {
    Prefix::of(Ipv6Addr::from_bits(address).into(), length).unwrap()
}

/// Returns the next hop of the longest prefix that covers `address`, by linear search.
fn expected_next_hop(routes: &BTreeMap<(u8, u128), u32>, address: u128) -> u32 {
    (0..=128).rev().find_map(|length| routes.get(&(length, address & mask(length))).copied()).unwrap_or(NO_ROUTE)
}

/// Returns an address in one of a few ranges. The addresses differ in both halves, and each change
/// concerns many of them.
fn clustered(random: &mut Random) -> u128 {
    let near = u128::from(random.below(64_u32));
    match random.below(4) {
        0 => NET | near << 90,
        1 => NET ^ near << 66 ^ (near & 7) << 109,
        2 => NET | near << 50,
        _ => NET | near << 1,
    }
}

/// Allowed results of a lookup, before and after the current change.
struct Answers {
    addresses: Vec<u128>,
    /// Count of the starts and ends of changes. It is odd during a change.
    change: AtomicU64,
    /// Allowed results for each address. The upper half holds the result before the change, and the
    /// lower half holds the result after it.
    both: Vec<AtomicU64>,
}

fn changes_under_lookups(form: Form, spare: Spare, batch: u32, changes: usize) {
    let mut random = Random::new(u64::from(batch));
    let next_hops = vec![NextHop::Local; HOPS as usize];
    let function = Ipv6::with_room(&[], &next_hops, Vec::new(), Some(form), spare).unwrap();
    let addresses: Vec<u128> = (0..600).map(|_| clustered(&mut random)).chain([0, u128::MAX, NET - 1, NET]).collect();
    let bytes: Vec<[u8; 16]> = addresses.iter().map(|address| address.to_be_bytes()).collect();
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
            let (readers, answers, bytes, lookups, wrong, image) =
                (&readers, &answers, &bytes, &lookups, &wrong, &image);
            scope.spawn(move || {
                let mut found = vec![0; 64];
                let mut at = reader * 977;
                readers.read(reader, || {
                    at = (at + found.len()) % (bytes.len() - found.len());
                    let part = at..at + found.len();
                    let before = answers.change.load(Ordering::SeqCst);
                    // SAFETY: the image is complete, and the CPU supports the level.
                    unsafe { level().ipv6_lookup_bulk(image.as_ptr(), variant, &bytes[part.clone()], &mut found) };
                    let allowed: Vec<u64> =
                        answers.both[part.clone()].iter().map(|a| a.load(Ordering::SeqCst)).collect();
                    if answers.change.load(Ordering::SeqCst) != before {
                        return;
                    }
                    lookups.fetch_add(found.len() as u64, Ordering::Relaxed);
                    for ((address, found), allowed) in answers.addresses[part].iter().zip(&found).zip(allowed) {
                        if *found != (allowed >> 32) as u32 && *found != allowed as u32 {
                            let text = format!("{address:#x}: {found:#x} is neither half of {allowed:#x}");
                            wrong.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(text);
                        }
                    }
                });
            });
        }
        let mut routes: BTreeMap<(u8, u128), u32> = BTreeMap::new();
        let mut made = 0;
        while made < changes {
            let mut batch_changes = Vec::new();
            for _ in 0..1 + random.below(batch) {
                let length = match random.below(1000) {
                    0 => random.below(16),
                    1..20 => 16 + random.below(16),
                    20..500 => 32 + random.below(33),
                    _ => 65 + random.below(64),
                };
                let address = clustered(&mut random) & mask(length);
                // With this ratio, the table neither fills up nor becomes empty.
                let next_hop = (random.below(5) < 2).then(|| random.below(HOPS));
                match next_hop {
                    Some(next_hop) => routes.insert((length, address), next_hop),
                    None => routes.remove(&(length, address)),
                };
                batch_changes.push(RouteChange { prefix: prefix(address, length), next_hop });
            }
            let after: Vec<u32> =
                answers.addresses.iter().map(|&address| expected_next_hop(&routes, address)).collect();
            answers.change.fetch_add(1, Ordering::SeqCst);
            for (both, after) in answers.both.iter().zip(&after) {
                let before = both.load(Ordering::SeqCst) as u32;
                both.store(u64::from(before) << 32 | u64::from(*after), Ordering::SeqCst);
            }
            function.change(&batch_changes, &readers).unwrap();
            answers.change.fetch_add(1, Ordering::SeqCst);
            for ((both, after), address) in answers.both.iter().zip(&after).zip(&answers.addresses) {
                both.store(u64::from(*after) << 32 | u64::from(*after), Ordering::SeqCst);
                assert_eq!(
                    function.lookup_ref(*address).unwrap_or(NO_ROUTE),
                    *after,
                    "ref must use the current routes"
                );
            }
            made += batch_changes.len();
        }
        drop(end);
        let bytes_used = function.bytes_used();
        let deleted: Vec<RouteChange> = routes
            .keys()
            .map(|&(length, address)| RouteChange { prefix: prefix(address, length), next_hop: None })
            .collect();
        function.change(&deleted, &Idle).unwrap();
        assert!(function.routes().is_empty() && function.bytes_used() <= bytes_used);
    });
    assert_eq!(wrong.into_inner().unwrap_or_else(PoisonError::into_inner), None);
    assert!(lookups.load(Ordering::Relaxed) > 0, "no lookup was checked");
}

#[test]
fn a_lookup_returns_the_result_before_or_after_a_change() {
    for form in [Form::Trie, Form::Hash] {
        // The number of spare lines is small, so lines are often reused.
        let spare = Spare { next_hops: 0, lines: Some(60_000) };
        changes_under_lookups(form, spare, 1, 300);
        changes_under_lookups(form, spare, 200, 20_000);
    }
}

#[test]
fn a_change_that_does_not_fit_is_refused_without_effect() {
    for form in [Form::Trie, Form::Hash] {
        let spare = Spare { next_hops: 1, lines: Some(20) };
        let function = Ipv6::with_room(&[], &[NextHop::Local], Vec::new(), Some(form), spare).unwrap();
        let changes: Vec<RouteChange> = (0..5000u128)
            .map(|at| RouteChange { prefix: prefix(NET | (at * 0x9e37_79b9) << 70, 58), next_hop: Some(0) })
            .collect();
        let unchanged = function.change(&changes, &Idle).unwrap_err();
        assert!(unchanged.error.to_string().contains("spare_lines"), "{}", unchanged.error);
        assert!(unchanged.made > 0 && function.routes().len() <= unchanged.made, "{form:?}: {}", unchanged.made);
        for change in &changes[..unchanged.made] {
            assert_eq!(function.route(change.prefix), Some(0));
        }
        let unknown = [RouteChange { prefix: prefix(0, 0), next_hop: Some(1) }];
        assert_eq!(function.change(&unknown, &Idle).unwrap_err().made, 0);
        let mac = MacAddress([2, 0, 0, 0, 0, 1]);
        assert_eq!(function.add_next_hops(&[NextHop::forward(0, mac, mac)], &Idle).unwrap(), [1]);
        assert!(function.add_next_hops(&[NextHop::Local], &Idle).is_err());
        function.change(&[RouteChange { prefix: prefix(0, 7), next_hop: Some(1) }], &Idle).unwrap();
        assert!(function.remove_next_hops(&[1], &Idle).unwrap_err().to_string().contains("1 routes"));
        assert_eq!(function.find(Ipv6Addr::LOCALHOST.into()), Some((prefix(0, 7), 1)));
    }
}

#[test]
fn a_full_table_is_loaded_in_batches() {
    const ROUTES: u32 = 100_000;
    for form in [Form::Trie, Form::Hash] {
        let spare = Spare { next_hops: 0, lines: Some(400_000) };
        let function = Ipv6::with_room(&[], &[NextHop::Local; 64], Vec::new(), Some(form), spare).unwrap();
        let mut random = Random::new(1);
        let changes: Vec<RouteChange> = (0..ROUTES)
            .map(|index| {
                let length = random.pick(&[48, 48, 48, 32, 40, 44]);
                let address = u128::from(random.next_u32()) << 96 | u128::from(random.next_u32()) << 64;
                let address = address & mask(length) >> 3 | 1 << 125;
                RouteChange { prefix: prefix(address, length), next_hop: Some(index % 64) }
            })
            .collect();
        let begin = Instant::now();
        function.change(&changes, &Idle).unwrap();
        println!("{form:?}: {ROUTES} routes in {:.0} ms", begin.elapsed().as_secs_f64() * 1e3);
        // The results must equal those of a new table with these routes.
        let routes: Vec<Route> = changes
            .iter()
            .filter_map(|change| match change.prefix.address() {
                std::net::IpAddr::V6(address) => Some(Route {
                    prefix: address.to_bits(),
                    length: change.prefix.length(),
                    next_hop: change.next_hop?,
                }),
                std::net::IpAddr::V4(_) => None,
            })
            .collect();
        let fresh = Ipv6::new(&routes, &[NextHop::Local; 64], Some(form)).unwrap();
        let addresses: Vec<[u8; 16]> = routes.iter().map(|route| (route.prefix | 1).to_be_bytes()).collect();
        let (mut changed, mut expected) = (vec![0; addresses.len()], vec![0; addresses.len()]);
        for (function, found) in [(&function, &mut changed), (&fresh, &mut expected)] {
            let (image, variant) = (function.image().as_ptr(), function.properties().variant.into());
            // SAFETY: the image is complete, and the CPU supports the level.
            unsafe { level().ipv6_lookup_bulk(image, variant, &addresses, found) };
        }
        assert_eq!(changed, expected);
        for native in godwit_kernels::natives().iter().filter(|native| native.supported() && native.looks_up()) {
            changed.fill(0);
            let (image, variant) = (function.image().as_ptr(), function.properties().variant.into());
            // SAFETY: as above.
            unsafe { native.ipv6_lookup_bulk(image, variant, &addresses, &mut changed) };
            assert_eq!(changed, expected, "by {}", native.name);
        }
        let deleted: Vec<RouteChange> =
            changes.iter().map(|change| RouteChange { next_hop: None, ..*change }).collect();
        function.change(&deleted, &Idle).unwrap();
        assert_eq!(function.routes().len(), 0);
        assert_eq!(function.find(Ipv6Addr::LOCALHOST.into()), None);
    }
}
