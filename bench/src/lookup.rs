//! The IPv4 route table: bare look-ups, whole forwarding, loading. Peer: DPDK's rte_lpm.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use godwit_function::Function;

use crate::function::{self, Competitor, Refresh, Workload};
use crate::peer::{self, Peer};
use crate::routes::{self, NEXT_HOPS, Route};
use crate::{BenchOptions, Error, Progress, Row, frames, median_p99};

/// Addresses looked up in a round: enough that the table, not the addresses, decides what is in the cache.
const ADDRESSES: usize = 1 << 20;
/// Addresses handed over at once, as in the peer.
const BULK: usize = 64;
/// Next hop of an address without a route, in the proof.
const MISS: u64 = 0xffff_ffff;

/// The bench `ipv4-lookup`.
pub(crate) fn lookup(options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let routes = routes::prefixes_2025()?;
    progress(&format!("{} prefixes, {ADDRESSES} random addresses a round", routes.len()));
    let function = table(&routes)?;
    let addresses = random_addresses();
    let mut peer = start_peer(&routes, &addresses, options, progress)?;
    let levels: Vec<_> = godwit_kernels::levels().iter().filter(|level| level.supported()).collect();
    let mut ours: Vec<Vec<f64>> = vec![Vec::new(); levels.len()];
    let mut theirs = Vec::new();
    let mut proof = None;
    let started = Instant::now();
    while started.elapsed() < options.time || ours[0].is_empty() {
        for (level, times) in levels.iter().zip(&mut ours) {
            let (time_ns, sum) = round(level, &*function, &addresses);
            times.push(time_ns);
            check(&mut proof, sum, level.name)?;
        }
        if let Some(peer) = &mut peer {
            let (time_ns, sum) = peer.round()?;
            theirs.push(time_ns);
            check(&mut proof, sum, "rte_lpm")?;
        }
    }
    let table_bytes = function.image().len();
    let row = |device: &str, form: &str, times: &mut Vec<f64>, peer: bool, note: String| {
        let (p50, p99) = median_p99(times);
        Row {
            bench: "ipv4-lookup".to_owned(),
            device: device.to_owned(),
            implementation: form.to_owned(),
            mode: if peer { "process" } else { "call" },
            size: None,
            batch: BULK,
            mpps: ADDRESSES as f64 / p50 * 1e3,
            gbps: 0.0,
            p50_us: p50 / 1e3 / ADDRESSES as f64 * BULK as f64,
            p99_us: p99 / 1e3 / ADDRESSES as f64 * BULK as f64,
            watts: None,
            peer,
            note,
        }
    };
    let mut rows: Vec<Row> = levels
        .iter()
        .zip(&mut ours)
        .map(|(level, times)| row("cpu", level.name, times, false, format!("image of {} MB", table_bytes >> 20)))
        .collect();
    if let Some(peer) = peer {
        rows.push(row("rte_lpm", "bulk", &mut theirs, true, peer.ready.clone()));
        function::say_ratio(&rows, progress);
    }
    Ok(rows)
}

/// The bench `ipv4`: the whole function, with the bare look-ups of rte_lpm beside it.
pub(crate) fn forwarding(options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let routes = routes::prefixes_2025()?;
    let function = table(&routes)?;
    let addresses = random_addresses();
    let peer = start_peer(&routes, &addresses, options, progress)?;
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

#[allow(unsafe_code)]
fn round(level: &godwit_kernels::Level, function: &dyn Function, addresses: &[u32]) -> (f64, u64) {
    let variant = u32::from(function.variant());
    let image = function.image().as_ptr();
    let mut next_hops = [0; BULK];
    let mut sum = 0;
    let started = Instant::now();
    for bulk in addresses.chunks_exact(BULK) {
        // SAFETY: only supported levels are asked, and the image is the one that `ipv4` built for this variant.
        unsafe { level.ipv4_lookup_bulk(image, variant, bulk, &mut next_hops) };
        for hop in next_hops {
            sum += if hop < NEXT_HOPS { u64::from(hop) } else { MISS };
        }
    }
    (started.elapsed().as_nanos() as f64, sum)
}

fn check(proof: &mut Option<u64>, sum: u64, who: &str) -> Result<(), Error> {
    let expected = *proof.get_or_insert(sum);
    if sum == expected {
        return Ok(());
    }
    Err(Error::Wrong { who: who.to_owned(), what: format!("next hops sum up to {sum} instead of {expected}") })
}

fn start_peer(
    routes: &[Route],
    addresses: &[u32],
    options: &BenchOptions,
    progress: &mut Progress<'_>,
) -> Result<Option<Peer>, Error> {
    if !options.peers {
        return Ok(None);
    }
    let Some(path) = peer::find("rte_lpm") else {
        progress("peer rte_lpm is not built (`make peers`): left out");
        return Ok(None);
    };
    let words = |words: &mut dyn Iterator<Item = u32>| words.flat_map(u32::to_le_bytes).collect::<Vec<_>>();
    let records = words(&mut routes.iter().flat_map(|route| [route.prefix, u32::from(route.length), route.next_hop]));
    let table = routes::temporary(&records)?;
    let list = routes::temporary(&words(&mut addresses.iter().copied()))?;
    Peer::start(&path, &[table.path(), list.path()]).map(Some)
}
