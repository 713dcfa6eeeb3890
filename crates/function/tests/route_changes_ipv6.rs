//! Routes and next hops of `ipv6` change while the kernel looks up, on other threads, the whole time.

mod readers;

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use godwit_function::Function;
use godwit_function::ipv6::{Form, Ipv6, Route, Spare};
use godwit_function::routing::{NextHop, Prefix, RouteChange, Routing};
use godwit_wire::MacAddress;

use readers::{End, Nobody, READERS, Random, Readers, level};

const NO_ROUTE: u32 = godwit_kernels::image::IPV6_NO_ROUTE;
const HOPS: u32 = 40;
const NET: u128 = 0x2001_0db8 << 96;

fn mask(length: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
}

fn prefix(address: u128, length: u8) -> Prefix {
    Prefix::of(Ipv6Addr::from_bits(address).into(), length).unwrap()
}

/// The longest prefix, the plainest way.
fn oracle(routes: &BTreeMap<(u8, u128), u32>, address: u128) -> u32 {
    (0..=128).rev().find_map(|length| routes.get(&(length, address & mask(length))).copied()).unwrap_or(NO_ROUTE)
}

/// Addresses that crowd around a few places, on both sides of /64, so that each change meets many of them.
fn crowded(random: &mut Random) -> u128 {
    let near = u128::from(random.below(64));
    match random.below(4) {
        0 => NET | near << 90,
        1 => NET ^ near << 66 ^ (near & 7) << 109,
        2 => NET | near << 50,
        _ => NET | near << 1,
    }
}

/// What may be said of each address: what was said before the change under way, and what is said after.
struct Answers {
    addresses: Vec<u128>,
    /// Which change is under way: odd while one is.
    change: AtomicU64,
    /// Before in the upper half, after in the lower.
    both: Vec<AtomicU64>,
}

fn changes_under_lookups(form: Form, spare: Spare, batch: u32, changes: usize) {
    let mut random = Random(u64::from(batch));
    let next_hops = vec![NextHop::Local; HOPS as usize];
    let function = Ipv6::with_room(&[], &next_hops, Vec::new(), Some(form), spare).unwrap();
    let addresses: Vec<u128> = (0..600).map(|_| crowded(&mut random)).chain([0, u128::MAX, NET - 1, NET]).collect();
    let bytes: Vec<[u8; 16]> = addresses.iter().map(|address| address.to_be_bytes()).collect();
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
            let (readers, answers, bytes, lookups, wrong, image) =
                (&readers, &answers, &bytes, &lookups, &wrong, &image);
            scope.spawn(move || {
                let mut said = vec![0; 64];
                let mut at = reader * 977;
                readers.read(reader, || {
                    at = (at + said.len()) % (bytes.len() - said.len());
                    let part = at..at + said.len();
                    let before = answers.change.load(Ordering::SeqCst);
                    // SAFETY: the image is whole, and the level is one that this CPU has.
                    unsafe { level().ipv6_lookup_bulk(image.as_ptr(), variant, &bytes[part.clone()], &mut said) };
                    let allowed: Vec<u64> =
                        answers.both[part.clone()].iter().map(|a| a.load(Ordering::SeqCst)).collect();
                    if answers.change.load(Ordering::SeqCst) != before {
                        return;
                    }
                    lookups.fetch_add(said.len() as u64, Ordering::Relaxed);
                    for ((address, said), allowed) in answers.addresses[part].iter().zip(&said).zip(allowed) {
                        if *said != (allowed >> 32) as u32 && *said != allowed as u32 {
                            let text = format!("{address:#x}: {said:#x} is neither half of {allowed:#x}");
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
                    0 => random.below(16) as u8,
                    1..20 => 16 + random.below(16) as u8,
                    20..500 => 32 + random.below(33) as u8,
                    _ => 65 + random.below(64) as u8,
                };
                let address = crowded(&mut random) & mask(length);
                // A table that neither fills up nor runs empty.
                let next_hop = (random.below(5) < 2).then(|| random.below(HOPS));
                match next_hop {
                    Some(next_hop) => routes.insert((length, address), next_hop),
                    None => routes.remove(&(length, address)),
                };
                batch_changes.push(RouteChange { prefix: prefix(address, length), next_hop });
            }
            let after: Vec<u32> = answers.addresses.iter().map(|&address| oracle(&routes, address)).collect();
            answers.change.fetch_add(1, Ordering::SeqCst);
            for (both, after) in answers.both.iter().zip(&after) {
                let before = both.load(Ordering::SeqCst) as u32;
                both.store(u64::from(before) << 32 | u64::from(*after), Ordering::SeqCst);
            }
            function.change(&batch_changes, &readers).unwrap();
            answers.change.fetch_add(1, Ordering::SeqCst);
            for ((both, after), address) in answers.both.iter().zip(&after).zip(&answers.addresses) {
                both.store(u64::from(*after) << 32 | u64::from(*after), Ordering::SeqCst);
                assert_eq!(function.lookup_ref(*address).unwrap_or(NO_ROUTE), *after, "ref goes by the routes of now");
            }
            made += batch_changes.len();
        }
        drop(end);
        let bytes_used = function.bytes_used();
        let gone: Vec<RouteChange> = routes
            .keys()
            .map(|&(length, address)| RouteChange { prefix: prefix(address, length), next_hop: None })
            .collect();
        function.change(&gone, &Nobody).unwrap();
        assert!(function.routes().is_empty() && function.bytes_used() <= bytes_used);
    });
    assert_eq!(wrong.into_inner().unwrap_or_else(PoisonError::into_inner), None);
    assert!(lookups.load(Ordering::Relaxed) > 0, "nobody looked");
}

#[test]
fn a_lookup_says_what_was_or_what_is() {
    for form in [Form::Trie, Form::Hash] {
        // Lines are scarce, so that they are used over and over.
        let spare = Spare { next_hops: 0, lines: Some(60_000) };
        changes_under_lookups(form, spare, 1, 300);
        changes_under_lookups(form, spare, 200, 20_000);
    }
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    for form in [Form::Trie, Form::Hash] {
        let spare = Spare { next_hops: 1, lines: Some(20) };
        let function = Ipv6::with_room(&[], &[NextHop::Local], Vec::new(), Some(form), spare).unwrap();
        let changes: Vec<RouteChange> = (0..5000u128)
            .map(|at| RouteChange { prefix: prefix(NET | (at * 0x9e37_79b9) << 70, 58), next_hop: Some(0) })
            .collect();
        let unchanged = function.change(&changes, &Nobody).unwrap_err();
        assert!(unchanged.error.to_string().contains("spare_lines"), "{}", unchanged.error);
        assert!(unchanged.made > 0 && function.routes().len() <= unchanged.made, "{form:?}: {}", unchanged.made);
        for change in &changes[..unchanged.made] {
            assert_eq!(function.route(change.prefix), Some(0));
        }
        let unknown = [RouteChange { prefix: prefix(0, 0), next_hop: Some(1) }];
        assert_eq!(function.change(&unknown, &Nobody).unwrap_err().made, 0);
        let mac = MacAddress([2, 0, 0, 0, 0, 1]);
        assert_eq!(function.add_next_hops(&[NextHop::forward(0, mac, mac)], &Nobody).unwrap(), [1]);
        assert!(function.add_next_hops(&[NextHop::Local], &Nobody).is_err());
        function.change(&[RouteChange { prefix: prefix(0, 7), next_hop: Some(1) }], &Nobody).unwrap();
        assert!(function.remove_next_hops(&[1], &Nobody).unwrap_err().to_string().contains("1 routes"));
        assert_eq!(function.find(Ipv6Addr::LOCALHOST.into()), Some((prefix(0, 7), 1)));
    }
}

#[test]
fn a_full_table_is_loaded_in_batches() {
    const ROUTES: u32 = 100_000;
    for form in [Form::Trie, Form::Hash] {
        let spare = Spare { next_hops: 0, lines: Some(400_000) };
        let function = Ipv6::with_room(&[], &[NextHop::Local; 64], Vec::new(), Some(form), spare).unwrap();
        let mut random = Random(1);
        let changes: Vec<RouteChange> = (0..ROUTES)
            .map(|index| {
                let length = [48, 48, 48, 32, 40, 44][random.below(6) as usize];
                let address = u128::from(random.below(u32::MAX)) << 96 | u128::from(random.below(u32::MAX)) << 64;
                let address = address & mask(length) >> 3 | 1 << 125;
                RouteChange { prefix: prefix(address, length), next_hop: Some(index % 64) }
            })
            .collect();
        let begin = Instant::now();
        function.change(&changes, &Nobody).unwrap();
        println!("{form:?}: {ROUTES} routes in {:.0} ms", begin.elapsed().as_secs_f64() * 1e3);
        // As a table that has them from the start.
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
        let (mut ours, mut theirs) = (vec![0; addresses.len()], vec![0; addresses.len()]);
        for (function, said) in [(&function, &mut ours), (&fresh, &mut theirs)] {
            // SAFETY: the image is whole, and the level is one that this CPU has.
            unsafe { level().ipv6_lookup_bulk(function.image().as_ptr(), function.variant().into(), &addresses, said) };
        }
        assert_eq!(ours, theirs);
        for native in godwit_kernels::natives().iter().filter(|native| native.supported()) {
            ours.fill(0);
            let (image, variant) = (function.image().as_ptr(), function.variant().into());
            // SAFETY: as above.
            unsafe { native.ipv6_lookup_bulk(image, variant, &addresses, &mut ours) };
            assert_eq!(ours, theirs, "by {}", native.name);
        }
        let gone: Vec<RouteChange> = changes.iter().map(|change| RouteChange { next_hop: None, ..*change }).collect();
        function.change(&gone, &Nobody).unwrap();
        assert_eq!(function.routes().len(), 0);
        assert_eq!(function.find(Ipv6Addr::LOCALHOST.into()), None);
    }
}
