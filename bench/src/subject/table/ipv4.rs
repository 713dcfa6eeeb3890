//! The IPv4 route table: lookups without packets, and loading. The peers are DPDK's rte_lpm and
//! rte_fib.

use std::time::{Duration, Instant};

use godwit_function::Function;
use godwit_kernels::image::IPV4_NONE;

use crate::error::Error;
use crate::load::routes;
use crate::progress::Progress;
use crate::run::options::Context;
use crate::run::peer;
use crate::run::rounds::{self, Race, median_p99};
use crate::run::row::{Details, Row};

/// Addresses per round. The number is large enough that table entries, rather than addresses,
/// determine the content of the caches.
const ADDRESSES: usize = 1 << 20;
/// Addresses per call, as in the peers. A bin has as many packets.
const BULK: usize = 256;
/// Prefetch distances that are tried, in addresses.
const AHEAD: [usize; 5] = [0, 16, 32, 64, 128];
/// Rounds of each prefetch distance. The fastest counts.
const AHEAD_ROUNDS: usize = 3;

/// Measures lookups of random addresses, and of addresses below random routes.
pub(in crate::subject) fn lookup(context: &Context, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let common = &context.common;
    let routes = routes::prefixes_2025()?;
    let function = routes::ipv4(&routes)?;
    let lists =
        [("random", routes::random_addresses(ADDRESSES)), ("routed", routes::routed_addresses(&routes, ADDRESSES))];
    let files: Vec<Vec<u8>> = lists.iter().map(|(_, addresses)| routes::address_list(addresses)).collect();
    let files: Vec<&[u8]> = files.iter().map(Vec::as_slice).collect();
    // Peers start once, because rte_lpm takes more than a minute to load its routes.
    let mut peers = Vec::new();
    for kind in [&RTE_LPM, &RTE_FIB] {
        let peer = peer::over(kind.name, &routes::records(&routes), &files, common.peers, progress)?;
        peers.extend(peer.map(|peer| (kind, peer)));
    }
    let mut rows = Vec::new();
    for (number, (name, addresses)) in lists.iter().enumerate() {
        progress(&format!("{name}: {} prefixes, {ADDRESSES} addresses per round", routes.len()));
        let mut race = Race::new(ADDRESSES);
        enter_ours(&mut race, name, &*function, addresses);
        let kinds: Vec<&Kind> = peers.iter().map(|(kind, _)| *kind).collect();
        for (kind, peer) in peers {
            let form = |(form, ask): &(&str, &str)| (format!("{name}, {form}"), BULK, format!("{ask} {number}"));
            let details = Details::default().with("addresses", *name);
            race.peer(kind.name, peer, &details, kind.forms.iter().map(form).collect());
        }
        let (mut found, kept) = race.run_and_keep(common)?;
        rounds::report_ratio(&found, progress);
        rows.append(&mut found);
        peers = kinds.into_iter().zip(kept).collect();
    }
    Ok(rows)
}

/// A peer, and the name and request of each of its forms.
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

/// Adds all forms that this CPU supports.
fn enter_ours<'a>(race: &mut Race<'a>, name: &str, function: &'a dyn Function, addresses: &'a [u32]) {
    let image = function.image().len() as f64 / f64::from(1 << 20);
    let details = Details::default().with("addresses", name).with("table_mib", image);
    for level in godwit_kernels::levels().iter().filter(|level| level.supported()) {
        let lookup = move |image, variant, addresses: &[u32], next_hops: &mut [u32], ahead| {
            // SAFETY: this CPU supports the level, and `ipv4` built the image for this variant.
            #[allow(unsafe_code, reason = "the entry is C")]
            unsafe {
                level.ipv4_lookup_bulk(image, variant, addresses, next_hops, ahead);
            }
        };
        enter(race, &format!("{name}, {}", level.name), &details, Box::new(lookup), function, addresses);
    }
    for native in godwit_kernels::natives().iter().filter(|native| native.supported() && native.looks_up()) {
        let lookup = move |image, variant, addresses: &[u32], next_hops: &mut [u32], ahead| {
            // SAFETY: this CPU supports the form, and `ipv4` built the image for this variant.
            #[allow(unsafe_code, reason = "the entry is C")]
            unsafe {
                native.ipv4_lookup_bulk(image, variant, addresses, next_hops, ahead);
            }
        };
        enter(race, &format!("{name}, {}", native.name), &details, Box::new(lookup), function, addresses);
    }
}

/// Measures the time from a file of routes to a table.
pub(in crate::subject) fn load(context: &Context, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    let rounds = if context.common.time < Duration::from_secs(1) { 1 } else { 5 };
    for (name, routes) in [("random", routes::random_routes(1_000_000)), ("2025", routes::prefixes_2025()?)] {
        let file = routes::write_file(&routes)?;
        let mut times = Vec::new();
        for _ in 0..rounds {
            let started = Instant::now();
            let function = routes::ipv4_from(file.path())?;
            times.push(started.elapsed().as_nanos() as f64);
            drop(function);
        }
        let (p50, p99) = median_p99(&mut times);
        progress(&format!("{name} routes: {:.0} ms from file to table, median of {}", p50 / 1e6, times.len()));
        rows.push(Row {
            device: "cpu".to_owned(),
            implementation: "dir-24-8".to_owned(),
            mode: "call".to_owned(),
            batch: routes.len(),
            mpps: routes.len() as f64 / p50 * 1e3,
            p50_us: p50 / 1e3,
            p99_us: p99 / 1e3,
            details: Details::default().with("routes", name),
            ..Row::default()
        });
    }
    Ok(rows)
}

/// Bulk lookup. The arguments are image, variant, addresses, output for next hops, and prefetch
/// distance.
type Bulk<'a> = Box<dyn Fn(*const u8, u32, &[u32], &mut [u32], usize) + 'a>;

/// Adds a form with the fastest prefetch distance on this machine.
fn enter<'a>(
    race: &mut Race<'a>,
    name: &str,
    details: &Details,
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
    let details = details.clone().with("prefetch_ahead", ahead);
    race.ours(name, BULK, &details, move || Ok(round(&lookup, function, addresses, ahead)));
}

/// Runs a round. Returns its time in nanoseconds and the sum of its results.
fn round(lookup: &Bulk<'_>, function: &dyn Function, addresses: &[u32], ahead: usize) -> (f64, u64) {
    let variant = u32::from(function.properties().variant);
    let image = function.image().as_ptr();
    let mut next_hops = [0; BULK];
    let mut sum = 0;
    let started = Instant::now();
    for bulk in addresses.chunks_exact(BULK) {
        lookup(image, variant, bulk, &mut next_hops, ahead);
        sum += rounds::sum(&next_hops, IPV4_NONE);
    }
    (started.elapsed().as_nanos() as f64, sum)
}
