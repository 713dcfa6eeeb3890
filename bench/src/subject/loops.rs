//! Lookup loops that hide memory latency (G-Opt, figure 8; APUNet, figure 4). The peer uses C++20
//! coroutines.
//!
//! The loops are in C (`bench/gopt`): plain, transformed by gopt, and transformed by hand. All
//! forms look up the same queries in the same table, and their results must have the same sum.

use std::ffi::{OsStr, c_void};
use std::time::Instant;

use godwit_packet::Memory;

use crate::error::Error;
use crate::progress::Progress;
use crate::run::options::{BATCH, Common, Context, PACKETS};
use crate::run::peer::{self, Peer};
use crate::run::rounds::Race;
use crate::run::row::{Details, Row};

/// `bench_table` in `bench/gopt/table.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Table {
    memory: *mut u8,
    bytes: u64,
    kind: u32,
    depth: u32,
    dial: u32,
    entries: u32,
    shift: u32,
    mask: u32,
    group: u32,
    pad: u32,
}

/// `bench_lookup` in `bench/gopt/forms.h`.
type Lookup = unsafe extern "C" fn(*const Table, *const c_void, *mut u32, u64);

#[allow(unsafe_code, reason = "the loops are C")]
unsafe extern "C" {
    fn bench_fill(table: *mut Table);
    fn bench_make_queries(table: *const Table, first: u64, queries: *mut c_void, count: u64);
    safe fn bench_query_bytes(kind: u32) -> u64;
    fn bench_sum(answers: *const u32, count: u64) -> u64;
    safe fn bench_form(kind: u32, form: u32, group: u32) -> Option<Lookup>;
}

/// `bench_kind` in `bench/gopt/table.h`.
const DIAL: u32 = 3;

/// `bench_form` in `bench/gopt/forms.h`, and the name in rows.
const PLAIN: (u32, &str) = (0, "plain");
/// Forms with groups of lookups in flight.
const GROUPED: [(u32, &str); 2] = [(1, "hand"), (2, "gopt")];

/// Queries of a call.
const CALL: usize = 1024;
/// Sizes of a group: the lookups in flight together.
const GROUPS: [usize; 9] = [1, 2, 4, 8, 12, 16, 24, 32, 64];
/// Sizes of a group for loops with arithmetic.
const DIAL_GROUPS: [usize; 3] = [8, 16, 32];
/// Dependent reads of a lookup with arithmetic.
const DIAL_DEPTH: u32 = 8;
/// Amounts of arithmetic after each read. A round consists of a multiplication and an addition, and
/// takes 4 cycles on most machines.
const DIALS: [u32; 13] = [0, 5, 10, 20, 35, 50, 75, 100, 150, 225, 350, 500, 750];

/// A kind of lookup.
struct Case {
    kind: u32,
    name: &'static str,
    /// Reads of a lookup, if they are configurable.
    depth: u32,
    queries: usize,
}

const CASES: [Case; 3] = [
    Case { kind: 0, name: "cuckoo", depth: 0, queries: 1 << 19 },
    Case { kind: 1, name: "pointer chase", depth: 100, queries: 1 << 13 },
    Case { kind: 2, name: "ipv6", depth: 0, queries: 1 << 18 },
];

/// The settings of both benches.
struct Settings<'a> {
    common: &'a Common,
    /// Size of a group, if the request gives one.
    group: Option<usize>,
    queries: Option<usize>,
    table_bytes: usize,
}

impl<'a> Settings<'a> {
    fn parse(context: &'a Context) -> Result<Self, Error> {
        let Context { common, values } = context;
        let mib = values.get::<usize>("table_mib")?.unwrap_or(1024);
        Ok(Self {
            common,
            group: values.get(BATCH.name)?,
            queries: values.get(PACKETS.name)?,
            table_bytes: if common.brief() { 2 << 20 } else { mib << 20 },
        })
    }

    fn queries(&self, default: usize) -> usize {
        self.queries.unwrap_or(if self.common.brief() { 2500 } else { default })
    }
}

/// Measures the three kinds of lookups by group size.
pub(super) fn lookups(context: &Context, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let settings = Settings::parse(context)?;
    let groups = settings.group.map_or(GROUPS.to_vec(), |group| vec![group]);
    let forms = requested_forms(settings.common)?;
    if !groups.iter().all(|group| GROUPS.contains(group)) {
        return Err(Error::Setup(format!("--batch: expected the size of a group, one of {GROUPS:?}")));
    }
    let mut rows = Vec::new();
    for case in CASES {
        // The paper's 200,000 prefixes do not fill the table, so more prefixes are added.
        let queries = settings.queries(case.queries);
        let arena = Arena::new(case.kind, settings.table_bytes, case.depth, 0, queries)?;
        let details = arena.details().with("lookup", case.name);
        progress(&format!("{}: {}", case.name, arena.describe()));
        let mut race = Race::new(arena.queries);
        for (form, name, groups) in [(PLAIN.0, PLAIN.1, &[1][..])]
            .into_iter()
            .chain(forms.iter().map(|&(form, name)| (form, name, &groups[..])))
        {
            for &group in groups {
                if let Some(lookup) = bench_form(case.kind, form, group as u32) {
                    let arena = &arena;
                    race.ours(
                        &format!("{} {name}", case.name),
                        group,
                        &details,
                        move || Ok(arena.round(lookup, group)),
                    );
                }
            }
        }
        if let Some(peer) = start(&arena, settings.common, progress)? {
            let form = |name: &str, group: usize| (format!("{} {name}", case.name), group, format!("{name} {group}"));
            let forms = groups.iter().map(|&group| form("coroutines", group));
            let details = Details::default().with("lookup", case.name);
            race.peer("c++20", peer, &details, forms.chain([form("plain", 1)]).collect());
        }
        let mut found = race.run(settings.common)?;
        compare(&mut found, progress);
        rows.append(&mut found);
    }
    Ok(rows)
}

/// Measures reads with increasing amounts of arithmetic after each read.
pub(super) fn arithmetic(context: &Context, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let settings = Settings::parse(context)?;
    let common = settings.common;
    let groups = settings.group.map_or(DIAL_GROUPS.to_vec(), |group| vec![group]);
    let forms = requested_forms(common)?;
    let dials = if common.brief() { &DIALS[..2] } else { &DIALS };
    let queries = settings.queries(1 << 14);
    let mut arena = Arena::new(DIAL, settings.table_bytes, DIAL_DEPTH, 0, queries)?;
    // A table in the L1 cache shows the time of the arithmetic alone.
    let mut near = Arena::new(DIAL, 4096, DIAL_DEPTH, 0, queries)?;
    progress(&format!("{DIAL_DEPTH} dependent reads per lookup, {}", arena.describe()));
    let mut peer = start(&arena, common, progress)?;
    let mut rows = Vec::new();
    for &dial in dials {
        (arena.table.dial, near.table.dial) = (dial, dial);
        let Some(plain) = bench_form(DIAL, PLAIN.0, 1) else { continue };
        let mut compute: Vec<f64> = (0..5).map(|_| near.round(plain, 1).0).collect();
        compute.sort_by(f64::total_cmp);
        let compute_ns = compute[2] / (queries * DIAL_DEPTH as usize) as f64;
        let details = Details::default().with("arithmetic_rounds", u64::from(dial)).with("arithmetic_ns", compute_ns);
        let mut race = Race::new(queries);
        {
            let arena = &arena;
            race.ours("plain", 1, &details, move || Ok(arena.round(plain, 1)));
            for &(form, name) in &forms {
                for &group in &groups {
                    if let Some(lookup) = bench_form(DIAL, form, group as u32) {
                        race.ours(name, group, &details, move || Ok(arena.round(lookup, group)));
                    }
                }
            }
        }
        if let Some(mut ready) = peer.take() {
            ready.ask(&format!("dial {dial}"))?;
            let forms = groups.iter().map(|&group| ("coroutines".to_owned(), group, format!("coroutines {group}")));
            race.peer("c++20", ready, &details, forms.collect());
        }
        let (mut found, mut peers) = race.run_and_keep(common)?;
        peer = peers.pop();
        compare(&mut found, progress);
        rows.append(&mut found);
    }
    Ok(rows)
}

/// Returns the requested forms besides the plain loop, which is always measured.
fn requested_forms(common: &Common) -> Result<Vec<(u32, &'static str)>, Error> {
    let Some(name) = common.implementation.as_deref() else {
        return Ok(GROUPED.to_vec());
    };
    let found: Vec<_> = GROUPED.into_iter().filter(|form| form.1 == name).collect();
    if found.is_empty() && name != PLAIN.1 {
        let known = ["plain", "hand", "gopt"].map(str::to_owned).to_vec();
        return Err(Error::Unknown { what: "implementation", name: name.to_owned(), known });
    }
    Ok(found)
}

/// Adds each row's ratio to the first row, and reports the best group size of each form.
fn compare(rows: &mut [Row], progress: &mut Progress<'_>) {
    let plain = rows[0].mpps;
    let mut best: Vec<(String, usize, f64)> = Vec::new();
    for row in rows {
        let ratio = row.mpps / plain;
        let form = row.implementation.rsplit(' ').next().unwrap_or_default();
        row.details = std::mem::take(&mut row.details).with("ratio_to_plain", ratio).with("form", form);
        match best.iter_mut().find(|best| best.0 == row.implementation) {
            Some(best) if best.2 < ratio => (best.1, best.2) = (row.batch, ratio),
            Some(_) => (),
            None => best.push((row.implementation.clone(), row.batch, ratio)),
        }
    }
    let best = best.iter().skip(1).map(|(name, group, ratio)| format!("{name} {ratio:.2} x in groups of {group}"));
    progress(&format!("plain {plain:.2} M/s; {}", best.collect::<Vec<_>>().join(", ")));
}

/// A table, its queries, and memory for their results.
struct Arena {
    table: Table,
    _memory: Memory,
    input: Memory,
    results: std::cell::RefCell<Vec<u32>>,
    queries: usize,
}

impl Arena {
    /// Fills a table of `bytes`, which must be a power of two.
    #[allow(unsafe_code, reason = "the loops are C")]
    fn new(kind: u32, bytes: usize, depth: u32, dial: u32, queries: usize) -> Result<Self, Error> {
        if !bytes.is_power_of_two() {
            return Err(Error::Setup(format!("table_mib: {} is not a power of two", bytes >> 20)));
        }
        // The table for IPv6 begins with an index of 64 MiB.
        let bytes = if kind == 2 { bytes.max(1 << 27) } else { bytes };
        let mut memory = Memory::new(bytes, "a table of the bench").map_err(Error::setup)?;
        let mut input = Memory::new(queries * bench_query_bytes(kind) as usize, "queries").map_err(Error::setup)?;
        let mut table = Table {
            memory: memory.as_mut_ptr(),
            bytes: bytes as u64,
            kind,
            depth,
            dial,
            entries: 0,
            shift: 0,
            mask: 0,
            group: 0,
            pad: 0,
        };
        // SAFETY: `memory` has `bytes` zeroed bytes and outlives the table; `input` has room for
        // all queries.
        unsafe {
            bench_fill(&raw mut table);
            bench_make_queries(&raw const table, 0, input.as_mut_ptr().cast(), queries as u64);
        }
        Ok(Self { table, _memory: memory, input, results: vec![0; queries].into(), queries })
    }

    fn describe(&self) -> String {
        let [reserved, transparent] = huge_pages_mib();
        format!(
            "table of {} MiB with {} entries; {reserved} MiB on reserved hugepages, {transparent} MiB on transparent ones",
            self.table.bytes >> 20,
            self.table.entries
        )
    }

    fn details(&self) -> Details {
        let [reserved, transparent] = huge_pages_mib();
        Details::default()
            .with("table_mib", self.table.bytes >> 20)
            .with("table_entries", u64::from(self.table.entries))
            .with("reserved_hugepages_mib", reserved)
            .with("transparent_hugepages_mib", transparent)
    }

    /// Looks up all queries with `group` in flight. Returns the time in nanoseconds, and the sum of
    /// the results.
    #[allow(unsafe_code, reason = "the loops are C")]
    fn round(&self, lookup: Lookup, group: usize) -> (f64, u64) {
        let table = Table { group: group as u32, ..self.table };
        let mut results = self.results.borrow_mut();
        results.fill(0);
        let query_bytes = bench_query_bytes(self.table.kind) as usize;
        let started = Instant::now();
        for (input, results) in self.input.chunks(CALL * query_bytes).zip(results.chunks_mut(CALL)) {
            // SAFETY: the table is filled and only read; `results` has a word for every query.
            unsafe { lookup(&raw const table, input.as_ptr().cast(), results.as_mut_ptr(), results.len() as u64) };
        }
        let time_ns = started.elapsed().as_nanos() as f64;
        // SAFETY: `results` has as many words.
        (time_ns, unsafe { bench_sum(results.as_ptr(), results.len() as u64) })
    }
}

/// Returns this process's memory on reserved and on transparent hugepages.
fn huge_pages_mib() -> [u64; 2] {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let kilobytes = |name: &str| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix("kB"));
        line.and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    [kilobytes("Private_Hugetlb:") >> 10, kilobytes("AnonHugePages:") >> 10]
}

/// Starts the peer with the same table and queries.
fn start(arena: &Arena, common: &Common, progress: &mut Progress<'_>) -> Result<Option<Peer>, Error> {
    if !common.peers {
        return Ok(None);
    }
    let Some(path) = peer::find_or_report("coroutines", progress) else { return Ok(None) };
    let Table { kind, bytes, depth, dial, .. } = arena.table;
    let arguments = [kind.into(), bytes, depth.into(), dial.into(), arena.queries as u64, CALL as u64];
    let arguments = arguments.map(|number| number.to_string());
    let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
    Peer::start(&path, &arguments).map(Some)
}
