//! The IPv4 route table: bare look-ups, whole forwarding, loading. Peer: DPDK's rte_lpm.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use godwit_function::Function;
use godwit_kernels::image::IPV4_NO_ROUTE;

use crate::function::{self, Competitor, Refresh, Workload};
use crate::peer::{self, Peer};
use crate::race::{self, Race};
use crate::routes::{self, Route};
use crate::{BenchOptions, Error, Progress, Row, frames, median_p99};

/// Addresses looked up in a round: enough that the table, not the addresses, decides what is in the cache.
const ADDRESSES: usize = 1 << 20;
/// Addresses handed over at once, as in the peers: as many as a bin has packets.
const BULK: usize = 256;
/// How many addresses before they are read entries may be fetched; what is fastest here is measured.
const AHEAD: [usize; 5] = [0, 16, 32, 64, 128];
/// Rounds of each while that is measured, of which the fastest counts.
const AHEAD_ROUNDS: usize = 3;

/// The bench `ipv4-lookup`.
pub(crate) fn lookup(options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let routes = routes::prefixes_2025()?;
    let function = table(&routes)?;
    let lists = [("random", random_addresses()), ("routed", routed_addresses(&routes))];
    let addresses: Vec<&[u32]> = lists.iter().map(|(_, addresses)| &addresses[..]).collect();
    // Started once: rte_lpm takes more than a minute to get its routes.
    let mut peers = Vec::new();
    for kind in [&RTE_LPM, &RTE_FIB] {
        peers.extend(start_peer(kind.name, &routes, &addresses, options, progress)?.map(|peer| (kind, peer)));
    }
    let mut rows = Vec::new();
    for (number, (name, addresses)) in lists.iter().enumerate() {
        progress(&format!("{name}: {} prefixes, {ADDRESSES} addresses a round", routes.len()));
        let mut race = Race::new("ipv4-lookup", ADDRESSES);
        enter_ours(&mut race, name, &*function, addresses);
        let kinds: Vec<&Kind> = peers.iter().map(|(kind, _)| *kind).collect();
        for (kind, peer) in peers {
            let form = |(form, ask): &(&str, &str)| (format!("{name}, {form}"), BULK, format!("{ask} {number}"));
            race.peer(kind.name, peer, kind.forms.iter().map(form).collect());
        }
        let (mut found, kept) = race.run_and_keep(options)?;
        race::say_ratio(&found, progress);
        rows.append(&mut found);
        peers = kinds.into_iter().zip(kept).collect();
    }
    Ok(rows)
}

/// A peer and its forms: what a row calls each, and what asks for it.
struct Kind {
    name: &'static str,
    forms: &'static [(&'static str, &'static str)],
}

const RTE_LPM: Kind = Kind { name: "rte_lpm", forms: &[("bulk", "go")] };
const RTE_FIB: Kind = Kind {
    name: "rte_fib",
    forms: &[
        ("dir24-8, scalar macro", "macro"),
        ("dir24-8, scalar inline", "inline"),
        ("dir24-8, scalar uni", "uni"),
        ("dir24-8, avx512", "avx512"),
    ],
};

/// All forms that this CPU has, over these addresses.
fn enter_ours<'a>(race: &mut Race<'a>, name: &str, function: &'a dyn Function, addresses: &'a [u32]) {
    let image = format!("image of {} MB", function.image().len() >> 20);
    for level in godwit_kernels::levels().iter().filter(|level| level.supported()) {
        let lookup = move |image, variant, addresses: &[u32], next_hops: &mut [u32], ahead| {
            // SAFETY: only supported levels are asked, and the image is the one that `ipv4` built for this variant.
            #[allow(unsafe_code)]
            unsafe {
                level.ipv4_lookup_bulk(image, variant, addresses, next_hops, ahead);
            }
        };
        enter(race, &format!("{name}, {}", level.name), &image, Box::new(lookup), function, addresses);
    }
    for native in godwit_kernels::natives().iter().filter(|native| native.supported()) {
        let lookup = move |image, variant, addresses: &[u32], next_hops: &mut [u32], ahead| {
            // SAFETY: as above, for native forms.
            #[allow(unsafe_code)]
            unsafe {
                native.ipv4_lookup_bulk(image, variant, addresses, next_hops, ahead);
            }
        };
        enter(race, &format!("{name}, {}", native.name), &image, Box::new(lookup), function, addresses);
    }
}

/// The bench `ipv4`: the whole function, with the bare look-ups of rte_lpm beside it.
pub(crate) fn forwarding(options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let routes = routes::prefixes_2025()?;
    let function = table(&routes)?;
    let addresses = random_addresses();
    let peer = start_peer(RTE_LPM.name, &routes, &[&addresses], options, progress)?;
    let competitor = peer.map(|mut peer| Competitor {
        device: "rte_lpm",
        implementation: "bulk",
        mode: "process",
        note: format!("lookup only, no packets; {}", peer.ready),
        packets: ADDRESSES,
        round: Box::new(move |_| Ok(peer.round()?.0)),
    });
    // Every pass gets new addresses: a table that is not in the cache is what a router has.
    let workload = Workload { refresh: Refresh::Addresses, competitor, ..Workload::new("ipv4", function) };
    function::measure(workload, options, progress)
}

/// The bench `ipv4-load`.
pub(crate) fn load(options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    let rounds = if options.time < Duration::from_secs(1) { 1 } else { 5 };
    for (what, routes) in
        [("1,000,000 random routes", routes::random_routes(1_000_000)), ("the table of 2025", routes::prefixes_2025()?)]
    {
        let file = routes::write_file(&routes)?;
        let mut times = Vec::new();
        for _ in 0..rounds {
            let started = Instant::now();
            let function = build(file.path())?;
            times.push(started.elapsed().as_nanos() as f64);
            drop(function);
        }
        let (p50, p99) = median_p99(&mut times);
        progress(&format!("{what}: {:.0} ms from file to table, median of {}", p50 / 1e6, times.len()));
        rows.push(Row {
            bench: "ipv4-load".to_owned(),
            device: "cpu".to_owned(),
            implementation: "dir-24-8".to_owned(),
            mode: "call",
            size: None,
            batch: routes.len(),
            mpps: routes.len() as f64 / p50 * 1e3,
            gbps: 0.0,
            p50_us: p50 / 1e3,
            p99_us: p99 / 1e3,
            watts: None,
            peer: false,
            note: what.to_owned(),
        });
    }
    Ok(rows)
}

fn table(routes: &[Route]) -> Result<Arc<dyn Function>, Error> {
    let file = routes::write_file(routes)?;
    build(file.path())
}

fn build(file: &Path) -> Result<Arc<dyn Function>, Error> {
    function::build("ipv4", &routes::stanza(file))
}

fn random_addresses() -> Vec<u32> {
    let mut random = frames::Random::new(99);
    (0..ADDRESSES).map(|_| frames::address(&mut random)).collect()
}

/// Addresses below prefixes drawn uniformly, the other bits at random: what a router is asked for, rather than all that there is.
fn routed_addresses(routes: &[Route]) -> Vec<u32> {
    let mut random = frames::Random::new(98);
    let address = |_| {
        let route = &routes[random.below(routes.len() as u32) as usize];
        route.prefix | random.next_u32().checked_shr(route.length.into()).unwrap_or(0)
    };
    (0..ADDRESSES).map(address).collect()
}

/// A bulk look-up: the image, its variant, addresses, where next hops go, and how far ahead entries are fetched.
type Bulk<'a> = Box<dyn Fn(*const u8, u32, &[u32], &mut [u32], usize) + 'a>;

/// Enters a form for the race, entries fetched as far ahead as is fastest here; its note says so, and why.
fn enter<'a>(
    race: &mut Race<'a>,
    name: &str,
    image: &str,
    lookup: Bulk<'a>,
    function: &'a dyn Function,
    addresses: &'a [u32],
) {
    let fastest_ns = |ahead| {
        let times = (0..AHEAD_ROUNDS).map(|_| round(&lookup, function, addresses, ahead).0);
        times.fold(f64::INFINITY, f64::min) / addresses.len() as f64
    };
    let measured = AHEAD.map(|ahead| (ahead, fastest_ns(ahead)));
    let (ahead, _) = measured.into_iter().fold((0, f64::INFINITY), |best, now| if now.1 < best.1 { now } else { best });
    let times = measured.map(|(ahead, ns)| format!("{ns:.1} at {ahead}")).join(", ");
    let note = format!("{image}; entries fetched {ahead} ahead: {times} ns");
    race.ours(name, BULK, &note, move || Ok(round(&lookup, function, addresses, ahead)));
}

fn round(lookup: &Bulk<'_>, function: &dyn Function, addresses: &[u32], ahead: usize) -> (f64, u64) {
    let variant = u32::from(function.variant());
    let image = function.image().as_ptr();
    let mut next_hops = [0; BULK];
    let mut sum = 0;
    let started = Instant::now();
    for bulk in addresses.chunks_exact(BULK) {
        lookup(image, variant, bulk, &mut next_hops, ahead);
        sum += race::sum(&next_hops, IPV4_NO_ROUTE);
    }
    (started.elapsed().as_nanos() as f64, sum)
}

fn start_peer(
    name: &str,
    routes: &[Route],
    lists: &[&[u32]],
    options: &BenchOptions,
    progress: &mut Progress<'_>,
) -> Result<Option<Peer>, Error> {
    let words = |words: &mut dyn Iterator<Item = u32>| words.flat_map(u32::to_le_bytes).collect::<Vec<_>>();
    let records = words(&mut routes.iter().flat_map(|route| [route.prefix, u32::from(route.length), route.next_hop]));
    let lists: Vec<Vec<u8>> = lists.iter().map(|list| words(&mut list.iter().copied())).collect();
    let lists: Vec<&[u8]> = lists.iter().map(|list| &list[..]).collect();
    peer::over(name, &records, &lists, options, progress)
}
