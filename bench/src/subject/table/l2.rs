//! The table of `l2`: lookups without packets. The peer is DPDK's rte_hash.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::time::Instant;

use godwit_function::Function;

use crate::error::Error;
use crate::load::build::build_with_ports;
use crate::load::frames::Random;
use crate::load::routes;
use crate::progress::Progress;
use crate::run::options::{Common, Context};
use crate::run::peer;
use crate::run::rounds::{self, Race};
use crate::run::row::{Details, Row};

/// Address counts of the tables. A large L2 cache nearly holds the first table, and the second
/// exceeds most caches.
const ADDRESSES: [usize; 2] = [1_000_000, 8_000_000];
/// Lookups of a round.
const LOOKUPS: usize = 1 << 19;
/// Lookups of a call.
const BULK: usize = 256;
/// Lookups per call to the peer, which supports no more.
const PEER_BULK: usize = 64;
/// Number of lookups per lookup of an unknown address.
const UNKNOWN_EVERY: usize = 16;

/// Measures lookups in tables of both sizes.
pub(in crate::subject) fn lookup(context: &Context, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let common = &context.common;
    let mut rows = Vec::new();
    for addresses in if common.brief() { vec![1000] } else { ADDRESSES.to_vec() } {
        rows.append(&mut table(addresses, if common.brief() { 4096 } else { LOOKUPS }, common, progress)?);
    }
    Ok(rows)
}

fn table(addresses: usize, lookups: usize, common: &Common, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let ports: Vec<String> = (0..64).map(|port| format!("p{port}")).collect();
    let mut random = Random::new(62);
    let stations = stations(&mut random, addresses + addresses / UNKNOWN_EVERY);
    let (known, unknown) = stations.split_at(addresses);
    let entries: Vec<(u64, u32)> = known.iter().map(|&mac| (mac, random.below(ports.len() as u32))).collect();
    let function = build(&entries, &ports)?;
    let query = |number: usize| {
        let list = if number.is_multiple_of(UNKNOWN_EVERY) { unknown } else { known };
        key(list[random.below(list.len() as u32) as usize])
    };
    let keys: Vec<u64> = (0..lookups).map(query).collect();
    progress(&format!("{addresses} addresses, {lookups} lookups per round, one of {UNKNOWN_EVERY} for an unknown one"));

    let mut race = Race::new(keys.len());
    let table_mib = function.image().len() as f64 / f64::from(1 << 20);
    let details = Details::default().with("addresses", addresses);
    let ours = details.clone().with("table_mib", table_mib);
    for level in godwit_kernels::levels().iter().filter(|level| level.supported()) {
        let (image, keys) = (function.image(), &keys);
        race.ours(&format!("{addresses} {}", level.name), BULK, &ours, move || {
            Ok(round(keys, |keys, ports| {
                // SAFETY: this CPU supports the level, and `l2` built the image.
                #[allow(unsafe_code, reason = "the entry is C")]
                unsafe {
                    level.l2_lookup_bulk(image.as_ptr(), keys, ports);
                }
            }))
        });
    }
    let records: Vec<u8> =
        entries.iter().flat_map(|&(mac, port)| [key(mac), port.into()]).flat_map(u64::to_le_bytes).collect();
    let list: Vec<u8> = keys.iter().copied().flat_map(u64::to_le_bytes).collect();
    if let Some(ready) = peer::over("rte_hash", &records, &[&list], common.peers, progress)? {
        race.peer("rte_hash", ready, &details, vec![(format!("{addresses} bulk"), PEER_BULK, "bulk".to_owned())]);
    }
    let rows = race.run(common)?;
    rounds::report_ratio(&rows, progress);
    Ok(rows)
}

/// Returns distinct local unicast addresses.
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

/// Returns the key of an address in VLAN 1.
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
    build_with_ports("l2", &stanza, ports)
}

/// Runs a round. Returns its time in nanoseconds and the sum of all ports. An unknown address has
/// the port 0xffffffff, as in the peer.
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
