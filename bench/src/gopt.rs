//! What hiding DRAM latency is worth: G-Opt's figure 8 and APUNet's figure 4. Peer: C++20 coroutines.
//!
//! The look-ups are C (`bench/gopt`): as one writes them, as gopt rewrites them, and by hand. All forms look the same
//! queries up in the same table, and one sum over their answers must come out.

use std::ffi::{OsStr, c_void};
use std::time::Instant;

use godwit_packet::Memory;

use crate::peer::{self, Peer};
use crate::race::Race;
use crate::{BenchOptions, Error, LITTLE, Progress, Row};

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

#[allow(unsafe_code)]
unsafe extern "C" {
    fn bench_fill(table: *mut Table);
    fn bench_ask(table: *const Table, first: u64, queries: *mut c_void, count: u64);
    safe fn bench_query_bytes(kind: u32) -> u64;
    fn bench_sum(answers: *const u32, count: u64) -> u64;
    safe fn bench_form(kind: u32, form: u32, group: u32) -> Option<Lookup>;
}

/// `bench_kind` in `bench/gopt/table.h`.
const DIAL: u32 = 3;

/// `bench_form` in `bench/gopt/forms.h`: what a row calls them.
const PLAIN: (u32, &str) = (0, "plain");
const GROUPED: [(u32, &str); 2] = [(1, "hand"), (2, "gopt")];

/// Queries handed over in one call.
const CALL: usize = 1024;
/// Sizes of a group: look-ups under way together.
const GROUPS: [usize; 9] = [1, 2, 4, 8, 12, 16, 24, 32, 64];
/// The same in `memaccess`, and how many reads a look-up has there.
const DIAL_GROUPS: [usize; 3] = [8, 16, 32];
const DIAL_DEPTH: u32 = 8;
/// Where the dial is set: rounds of a multiplication and an addition, 4 cycles each on most machines.
const DIALS: [u32; 13] = [0, 5, 10, 20, 35, 50, 75, 100, 150, 225, 350, 500, 750];

/// One of the look-ups of figure 8.
struct Case {
    kind: u32,
    name: &'static str,
    /// Reads of a look-up, where that is a matter of choice.
    depth: u32,
    queries: usize,
}

const CASES: [Case; 3] = [
    Case { kind: 0, name: "cuckoo", depth: 0, queries: 1 << 19 },
    Case { kind: 1, name: "pointer chase", depth: 100, queries: 1 << 13 },
    Case { kind: 2, name: "ipv6", depth: 0, queries: 1 << 18 },
];

/// The bench `gopt`.
pub(crate) fn run(options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let groups = options.batch.map_or(GROUPS.to_vec(), |group| vec![group]);
    let forms = wanted(options)?;
    if !groups.iter().all(|group| GROUPS.contains(group)) {
        return Err(Error::Setup(format!("--batch: groups of {GROUPS:?} look-ups are measured")));
    }
    let mut rows = Vec::new();
    for case in CASES {
        // The paper's 200,000 prefixes take less than 1 GiB; the table has as many as fill it.
        let arena = Arena::new(case.kind, table_bytes(options), case.depth, 0, queries(case.queries, options))?;
        progress(&format!("{}: {}", case.name, arena.what()));
        let mut race = Race::new("gopt", arena.queries);
        for (form, name, groups) in [(PLAIN.0, PLAIN.1, &[1][..])]
            .into_iter()
            .chain(forms.iter().map(|&(form, name)| (form, name, &groups[..])))
        {
            for &group in groups {
                if let Some(lookup) = bench_form(case.kind, form, group as u32) {
                    let arena = &arena;
                    race.ours(&format!("{} {name}", case.name), group, &arena.what(), move || {
                        Ok(arena.round(lookup, group))
                    });
                }
            }
        }
        if let Some(peer) = start(&arena, options, progress)? {
            let form = |name: &str, group: usize| (format!("{} {name}", case.name), group, format!("{name} {group}"));
            let forms = groups.iter().map(|&group| form("coroutines", group));
            race.peer("c++20", peer, forms.chain([form("plain", 1)]).collect());
        }
        let mut found = race.run(options)?;
        compare(&mut found, progress);
        rows.append(&mut found);
    }
    Ok(rows)
}

/// The bench `memaccess`: reads with more and more arithmetic after each.
pub(crate) fn memaccess(options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let groups = options.batch.map_or(DIAL_GROUPS.to_vec(), |group| vec![group]);
    let forms = wanted(options)?;
    let short = options.time < LITTLE;
    let dials = if short { &DIALS[..2] } else { &DIALS };
    let asked = queries(1 << 14, options);
    let mut arena = Arena::new(DIAL, table_bytes(options), DIAL_DEPTH, 0, asked)?;
    // The same work with a table that the L1 cache holds: what the arithmetic takes.
    let mut near = Arena::new(DIAL, 4096, DIAL_DEPTH, 0, asked)?;
    progress(&format!("{DIAL_DEPTH} dependent reads a look-up, {}", arena.what()));
    let mut peer = start(&arena, options, progress)?;
    let mut rows = Vec::new();
    for &dial in dials {
        (arena.table.dial, near.table.dial) = (dial, dial);
        let Some(plain) = bench_form(DIAL, PLAIN.0, 1) else { continue };
        let mut compute: Vec<f64> = (0..5).map(|_| near.round(plain, 1).0).collect();
        compute.sort_by(f64::total_cmp);
        let compute_ns = compute[2] / (asked * DIAL_DEPTH as usize) as f64;
        let note = format!("{dial} rounds: {compute_ns:.1} ns of arithmetic a read");
        let mut race = Race::new("memaccess", asked);
        {
            let arena = &arena;
            race.ours("plain", 1, &note, move || Ok(arena.round(plain, 1)));
            for &(form, name) in &forms {
                for &group in &groups {
                    if let Some(lookup) = bench_form(DIAL, form, group as u32) {
                        race.ours(name, group, &note, move || Ok(arena.round(lookup, group)));
                    }
                }
            }
        }
        if let Some(mut ready) = peer.take() {
            ready.ask(&format!("dial {dial}"))?;
            ready.ready.clone_from(&note);
            let forms = groups.iter().map(|&group| ("coroutines".to_owned(), group, format!("coroutines {group}")));
            race.peer("c++20", ready, forms.collect());
        }
        let (mut found, mut peers) = race.run_and_keep(options)?;
        peer = peers.pop();
        compare(&mut found, progress);
        rows.append(&mut found);
    }
    Ok(rows)
}

fn table_bytes(options: &BenchOptions) -> usize {
    options.table_bytes.unwrap_or(if options.time < LITTLE { 2 << 20 } else { 1 << 30 })
}

fn queries(wanted: usize, options: &BenchOptions) -> usize {
    options.packets.unwrap_or(if options.time < LITTLE { 2500 } else { wanted })
}

/// The forms asked for, but for the one that all are compared with.
fn wanted(options: &BenchOptions) -> Result<Vec<(u32, &'static str)>, Error> {
    let Some(name) = options.implementation.as_deref() else {
        return Ok(GROUPED.to_vec());
    };
    let found: Vec<_> = GROUPED.into_iter().filter(|form| form.1 == name).collect();
    if found.is_empty() && name != PLAIN.1 {
        let known = ["plain", "hand", "gopt"].map(str::to_owned).to_vec();
        return Err(Error::Unknown { what: "implementation", name: name.to_owned(), known });
    }
    Ok(found)
}

/// Notes how much faster each row is than the first, and says the best of each form.
fn compare(rows: &mut [Row], progress: &mut Progress<'_>) {
    let plain = rows[0].mpps;
    let mut best: Vec<(String, usize, f64)> = Vec::new();
    for row in rows {
        let ratio = row.mpps / plain;
        row.note = format!("{ratio:.2} x plain; {}", row.note);
        match best.iter_mut().find(|best| best.0 == row.implementation) {
            Some(best) if best.2 < ratio => (best.1, best.2) = (row.batch, ratio),
            Some(_) => (),
            None => best.push((row.implementation.clone(), row.batch, ratio)),
        }
    }
    let said = best.iter().skip(1).map(|(name, group, ratio)| format!("{name} {ratio:.2} x in groups of {group}"));
    progress(&format!("plain {:.2} M/s; {}", plain, said.collect::<Vec<_>>().join(", ")));
}

/// A table, queries for it, and room for their answers.
struct Arena {
    table: Table,
    _memory: Memory,
    asked: Memory,
    answers: std::cell::RefCell<Vec<u32>>,
    queries: usize,
}

impl Arena {
    /// Fills `bytes` of memory; only the kind 2 takes what is not a power of two.
    #[allow(unsafe_code)]
    fn new(kind: u32, bytes: usize, depth: u32, dial: u32, queries: usize) -> Result<Self, Error> {
        if !bytes.is_power_of_two() {
            return Err(Error::Setup(format!("--table: {bytes} bytes are no power of two")));
        }
        // The table for IPv6 begins with 64 MiB, and has at least a few prefixes.
        let bytes = if kind == 2 { bytes.max(1 << 27) } else { bytes };
        let mut memory = Memory::new(bytes, "a table of the bench").map_err(Error::setup)?;
        let mut asked = Memory::new(queries * bench_query_bytes(kind) as usize, "queries").map_err(Error::setup)?;
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
        // SAFETY: `memory` has `bytes` zeroed bytes and outlives the table; `asked` has room for all queries.
        unsafe {
            bench_fill(&raw mut table);
            bench_ask(&raw const table, 0, asked.as_mut_ptr().cast(), queries as u64);
        }
        Ok(Self { table, _memory: memory, asked, answers: vec![0; queries].into(), queries })
    }

    /// The table and its pages, in words.
    fn what(&self) -> String {
        let entries = match self.table.kind {
            0 => "keys",
            2 => "prefixes of 48 to 64 bits",
            _ => "entries",
        };
        format!("table of {} MiB, {} {entries}; {}", self.table.bytes >> 20, self.table.entries, pages())
    }

    /// All queries once, `group` under way together: the time in nanoseconds, and the sum of the answers.
    #[allow(unsafe_code)]
    fn round(&self, lookup: Lookup, group: usize) -> (f64, u64) {
        let table = Table { group: group as u32, ..self.table };
        let mut answers = self.answers.borrow_mut();
        answers.fill(0);
        let query_bytes = bench_query_bytes(self.table.kind) as usize;
        let started = Instant::now();
        for (asked, answers) in self.asked.chunks(CALL * query_bytes).zip(answers.chunks_mut(CALL)) {
            // SAFETY: the table was filled and is only read; every query has a place for its answer.
            unsafe { lookup(&raw const table, asked.as_ptr().cast(), answers.as_mut_ptr(), answers.len() as u64) };
        }
        let time_ns = started.elapsed().as_nanos() as f64;
        // SAFETY: `answers` has as many words.
        (time_ns, unsafe { bench_sum(answers.as_ptr(), answers.len() as u64) })
    }
}

/// On which pages this process lies.
fn pages() -> String {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let kilobytes = |name: &str| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix("kB"));
        line.and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    let (reserved, advised) = (kilobytes("Private_Hugetlb:") >> 10, kilobytes("AnonHugePages:") >> 10);
    format!("{reserved} MiB on reserved hugepages, {advised} on transparent ones")
}

fn start(arena: &Arena, options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Option<Peer>, Error> {
    if !options.peers {
        return Ok(None);
    }
    let Some(path) = peer::find("coroutines") else {
        progress("peer coroutines is not built (`make peers`): left out");
        return Ok(None);
    };
    let Table { kind, bytes, depth, dial, .. } = arena.table;
    let arguments = [kind.into(), bytes, depth.into(), dial.into(), arena.queries as u64, CALL as u64];
    let arguments = arguments.map(|number| number.to_string());
    let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
    Peer::start(&path, &arguments).map(Some)
}
