//! One function on packets in memory. Bins go directly to the function, or prepared chunks go
//! through a device lane.

use std::time::Instant;

use crate::error::Error;
use crate::load::build::build;
use crate::load::lookups::{self, Extent, Lookups};
use crate::load::{frames, patterns, routes};
use crate::progress::Progress;
use crate::run::call::{PACKETS, measure};
use crate::run::options::{BATCH, Context, IN_FLIGHT, LaneOptions};
use crate::run::peer;
use crate::run::row::{Details, Row};
use crate::run::workload::{Competitor, Refresh, Workload};

/// Addresses of a round of rte_lpm.
const ADDRESSES: usize = 1 << 20;

/// Measures the function of the definition, for each combination of chunk size and number of chunks
/// in flight.
pub(super) fn run(context: &Context, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let or_default = |values: Vec<usize>| match values.len() {
        0 => vec![None],
        _ => values.into_iter().map(Some).collect(),
    };
    let mut rows = Vec::new();
    for batch in or_default(context.values.list(BATCH.name)?) {
        for in_flight in or_default(context.values.list(IN_FLIGHT.name)?) {
            let options = LaneOptions { batch, in_flight, ..LaneOptions::parse(context)? };
            rows.extend(combination(context, options, progress)?);
        }
    }
    Ok(rows)
}

fn combination(context: &Context, options: LaneOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let extent = Extent {
        brief: options.common.brief(),
        table_bytes: context.values.get::<usize>("table_mib")?.map(|mib| mib << 20),
    };
    match context.values.parameter("function")?.as_str() {
        "ipv4" => ipv4(&options, progress),
        "ipv6" => lookup(lookups::ipv6(&extent)?, &options, progress),
        "l2" => lookup(lookups::l2(&extent)?, &options, progress),
        "ndn" => lookup(lookups::ndn(&extent)?, &options, progress),
        "dpi" => dpi(&options, progress),
        kind => measure(Workload::new(build(kind, "")?), &options, progress),
    }
}

/// Measures `ipv4` with the table of 2025. The peer rte_lpm looks up addresses without packets.
fn ipv4(options: &LaneOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let routes = routes::prefixes_2025()?;
    let function = routes::ipv4(&routes)?;
    let use_peer = options.common.peers && !options.through_lane();
    let addresses = routes::address_list(&routes::random_addresses(ADDRESSES));
    let peer = peer::over("rte_lpm", &routes::records(&routes), &[&addresses], use_peer, progress)?;
    let competitor = peer.map(|mut peer| Competitor {
        device: "rte_lpm",
        implementation: "bulk",
        mode: "process",
        details: Details::default().with("work", "lookup only").with("peer_ready", peer.ready.as_str()),
        packets: ADDRESSES,
        round: Box::new(move |_| Ok(peer.round()?.0)),
    });
    // Every pass gets new addresses, because a router's table does not stay in the cache.
    let workload = Workload { refresh: Refresh::Addresses, competitor, ..Workload::new(function) };
    measure(workload, options, progress)
}

/// Measures a function that looks up its frames in a large table.
fn lookup(lookups: Lookups, options: &LaneOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let Lookups { function, frame, .. } = lookups;
    let table_mib = function.image().len() as f64 / f64::from(1 << 20);
    progress(&format!("{}: tables of {table_mib:.1} MiB", function.contract().kind));
    // Every pass looks up other entries.
    let details = Details::default().with("table_mib", table_mib);
    measure(Workload { frame: &*frame, refresh: Refresh::Made, details, ..Workload::new(function) }, options, progress)
}

/// Measures `dpi` with 10,000 patterns. 30 % of the packets contain a pattern.
fn dpi(options: &LaneOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let patterns = patterns::patterns();
    let function = patterns::inspection(&patterns, progress)?;
    let frame = frames::filled(|random, payload| patterns::plant(&patterns, random, payload));
    let use_peer = options.common.peers && !options.through_lane();
    let peer = use_peer.then(|| aho_corasick::dfa::DFA::new(&patterns)).transpose().map_err(Error::setup)?;
    let competitor = peer.map(|peer| Competitor {
        device: "aho-corasick",
        implementation: "dfa",
        details: Details::default().with("work", "counts all overlapping matches"),
        mode: "call",
        packets: PACKETS,
        round: Box::new(move |frames| Ok(scan(&peer, frames))),
    });
    measure(Workload { frame: &frame, competitor, ..Workload::new(function) }, options, progress)
}

/// Counts all matches in the payloads. Returns the time in nanoseconds.
fn scan(dfa: &aho_corasick::dfa::DFA, packets: &[Vec<u8>]) -> f64 {
    use aho_corasick::automaton::{Automaton, OverlappingState};
    let started = Instant::now();
    let mut matches = 0u64;
    for frame in packets {
        let input = aho_corasick::Input::new(&frame[frames::HEADER_BYTES..]);
        let mut state = OverlappingState::start();
        while dfa.try_find_overlapping(&input, &mut state).is_ok() && state.get_match().is_some() {
            matches += 1;
        }
    }
    std::hint::black_box(matches);
    started.elapsed().as_nanos() as f64
}
