//! The table of l2 alone: bare look-ups of addresses. Peer: DPDK's rte_hash.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::time::Instant;

use godwit_function::Function;

use crate::frames::Random;
use crate::race::{self, Race};
use crate::{BenchOptions, Error, LITTLE, Progress, Row, function, peer, routes};

/// Sizes of the table: one that a large L2 cache nearly holds, and one beyond most caches.
const ADDRESSES: [usize; 2] = [1_000_000, 8_000_000];
/// Addresses looked up in a round.
const LOOKUPS: usize = 1 << 19;
/// Addresses handed over at once; the peer's most is 64.
const BULK: usize = 256;
const PEER_BULK: usize = 64;
/// Of so many look-ups one asks for an address that is not there.
const UNKNOWN_EVERY: usize = 16;

/// The bench `l2-lookup`.
pub(crate) fn lookup(options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let little = options.time < LITTLE;
    let mut rows = Vec::new();
    for addresses in if little { vec![1000] } else { ADDRESSES.to_vec() } {
        rows.append(&mut table(addresses, if little { 4096 } else { LOOKUPS }, options, progress)?);
    }
    Ok(rows)
}

fn table(
    addresses: usize,
    lookups: usize,
    options: &BenchOptions,
    progress: &mut Progress<'_>,
) -> Result<Vec<Row>, Error> {
    let ports: Vec<String> = (0..64).map(|port| format!("p{port}")).collect();
    let mut random = Random::new(62);
    let stations = stations(&mut random, addresses + addresses / UNKNOWN_EVERY);
    let (known, unknown) = stations.split_at(addresses);
    let entries: Vec<(u64, u32)> = known.iter().map(|&mac| (mac, random.below(ports.len() as u32))).collect();
    let function = build(&entries, &ports)?;
    let asked = |number: usize| {
        let list = if number.is_multiple_of(UNKNOWN_EVERY) { unknown } else { known };
        key(list[random.below(list.len() as u32) as usize])
    };
    let keys: Vec<u64> = (0..lookups).map(asked).collect();
    progress(&format!("{addresses} addresses, {lookups} look-ups a round, one of {UNKNOWN_EVERY} of an unknown one"));

    let mut race = Race::new("l2-lookup", keys.len());
    let note = format!("{addresses} addresses, image of {:.1} MB", function.image().len() as f64 / f64::from(1 << 20));
    for level in godwit_kernels::levels().iter().filter(|level| level.supported()) {
        let (image, keys) = (function.image(), &keys);
        race.ours(&format!("{addresses} {}", level.name), BULK, &note, move || {
            Ok(round(keys, |keys, ports| {
                // SAFETY: only supported levels are asked, and the image is the one that `l2` built.
                #[allow(unsafe_code)]
                unsafe {
                    level.l2_lookup_bulk(image.as_ptr(), keys, ports);
                }
            }))
        });
    }
    let records: Vec<u8> =
        entries.iter().flat_map(|&(mac, port)| [key(mac), port.into()]).flat_map(u64::to_le_bytes).collect();
    let list: Vec<u8> = keys.iter().copied().flat_map(u64::to_le_bytes).collect();
    if let Some(ready) = peer::over("rte_hash", &records, &[&list], options, progress)? {
        race.peer("rte_hash", ready, vec![(format!("{addresses} bulk"), PEER_BULK, "bulk".to_owned())]);
    }
    let rows = race.run(options)?;
    race::say_ratio(&rows, progress);
    Ok(rows)
}

/// Different local unicast addresses.
fn stations(random: &mut Random, count: usize) -> Vec<u64> {
    let mut seen = HashSet::with_capacity(count);
    let mut stations = Vec::with_capacity(count);
    while stations.len() < count {
        let bits = u64::from(random.next_u32()) << 16 | u64::from(random.next_u32() & 0xffff);
        let mac = bits & !(1 << 40) | 2 << 40;
        if seen.insert(mac) {
            stations.push(mac);
        }
    }
    stations
}

/// The key of an address, all of them of one VLAN.
fn key(mac: u64) -> u64 {
    1 << 48 | mac
}

fn build(entries: &[(u64, u32)], ports: &[String]) -> Result<std::sync::Arc<dyn Function>, Error> {
    let mut text = String::with_capacity(entries.len() * 26);
    for (mac, port) in entries {
        let [_, _, a, b, c, d, e, f] = mac.to_be_bytes();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "1 {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x} p{port}");
    }
    let file = routes::temporary(text.as_bytes())?;
    let stanza = format!("capacity = {}\nmacs = {:?}\n", entries.len(), file.path().display().to_string());
    function::build_at("l2", &stanza, ports)
}

/// A round: its time in nanoseconds, and the sum of all ports; an address that is not there says 0xffffffff, here as in the peer.
fn round(keys: &[u64], lookup: impl Fn(&[u64], &mut [u32])) -> (f64, u64) {
    let mut ports = [0; BULK];
    let mut sum = 0;
    let started = Instant::now();
    for bulk in keys.chunks_exact(BULK) {
        lookup(bulk, &mut ports);
        sum += ports.iter().copied().map(u64::from).sum::<u64>();
    }
    (started.elapsed().as_nanos() as f64, sum)
}
