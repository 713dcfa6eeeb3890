//! Functions of users: a copy of a built-in function, large tables and their changes, flows, and
//! the start.

pub(super) mod flows;

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use godwit_abi::Descriptor;
use godwit_function::custom::{self, Origin};
use godwit_function::{BuildContext, Function, Running};
use serde_json::json;
use toml::de::DeTable;

use crate::error::Error;
use crate::load::lookups::{self, Extent, Lookups};
use crate::load::routes;
use crate::progress::Progress;
use crate::run::call::measure;
use crate::run::options::{Context, LaneOptions};
use crate::run::rounds::median_p99;
use crate::run::row::{Details, Row};
use crate::run::workload::{Refresh, Workload};

/// A copy of `ipv4` that is compiled at start.
const IPV4: &str = include_str!("ipv4.c");
/// Function with two large tables.
const CHANGE: &str = include_str!("change.c");
/// Function with an exact table, which looks up the addresses that `l2` looks up.
const EXACT: &str = include_str!("exact.c");
/// The first lesson.
const LESSON: &str = include_str!("../../../../examples/functions/police/police.c");
/// Rows of a large table.
const ROWS: usize = 1_000_000;
/// Smallest number of changes or starts.
const ROUNDS_MIN: usize = 5;

/// Builds a user's function from its text. `keys` are additional keys of its stanza.
fn build(folder: &Path, text: &str, keys: &str) -> Result<Arc<dyn Function>, Error> {
    let source = folder.join("bench.c");
    std::fs::write(&source, text).map_err(Error::setup)?;
    let stanza = format!("source = {:?}\n{keys}", source.display().to_string());
    let context = BuildContext { name: "bench", ports: &lookups::PORTS.map(str::to_owned), directory: folder };
    let stanza = DeTable::parse(&stanza).map_err(Error::setup)?;
    godwit_function::build(custom::KIND_NAME, stanza, &context).map_err(Error::setup)
}

/// Measures `ipv4` and then its copy with the table of 2025, in the same run.
pub(super) fn copy(context: &Context, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let options = LaneOptions::parse(context)?;
    let routes = routes::prefixes_2025()?;
    let folder = tempfile::tempdir().map_err(Error::setup)?;
    let mut rows = String::from("prefix,to,from,hop\n");
    for route in &routes {
        let (prefix, hop) = (Ipv4Addr::from(route.prefix), route.next_hop);
        // Both words of a next hop of `ipv4`, with port 0 and an MTU of 1500 bytes.
        let (to, from) = ((0x0200_0000_0000 | u64::from(hop)) << 16, 0x0200_0000_0001_u64 << 16 | 1500);
        writeln!(rows, "{prefix}/{},{to},{from},{hop}", route.length).map_err(Error::setup)?;
    }
    std::fs::write(folder.path().join("routes.csv"), rows).map_err(Error::setup)?;
    let copied = build(folder.path(), IPV4, "tables.routes = \"routes.csv\"\n")?;
    let mut rows = Vec::new();
    for (kind, function) in [("built-in", routes::ipv4(&routes)?), ("custom", copied)] {
        let details = Details::default().with("kind", kind);
        let workload = Workload { refresh: Refresh::Addresses, details, ..Workload::new(function) };
        rows.extend(measure(workload, &options, progress)?);
    }
    Ok(rows)
}

/// Measures `l2` and a function with an exact table of the same stations, one after the other in
/// the same run.
pub(super) fn exact(context: &Context, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let options = LaneOptions::parse(context)?;
    let extent = Extent { brief: context.common.brief(), table_bytes: None };
    let folder = tempfile::tempdir().map_err(Error::setup)?;
    let mut stations = String::from("address,port\n");
    for (address, port) in lookups::stations(&extent) {
        writeln!(stations, "{address},{}", lookups::PORTS[usize::from(port)]).map_err(Error::setup)?;
    }
    std::fs::write(folder.path().join("stations.csv"), stations).map_err(Error::setup)?;
    let custom = build(folder.path(), EXACT, "tables.table = \"stations.csv\"\n")?;
    let Lookups { function: built_in, frame, .. } = lookups::l2(&extent)?;
    let mut rows = Vec::new();
    for (kind, function) in [("built-in", built_in), ("custom", custom)] {
        let table_mib = function.image().len() as f64 / f64::from(1 << 20);
        let details = Details::default().with("kind", kind).with("table_mib", table_mib);
        let workload = Workload { frame: &*frame, refresh: Refresh::Made, details, ..Workload::new(function) };
        rows.extend(measure(workload, &options, progress)?);
    }
    Ok(rows)
}

/// Measures the time until the libraries of the first lesson are ready: compiled, and from the
/// cache.
pub(super) fn start(context: &Context, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let folder = tempfile::tempdir().map_err(Error::setup)?;
    let source = folder.path().join("bench.c");
    let rounds = if context.common.brief() { 1 } else { ROUNDS_MIN };
    let (mut compiled, mut cached) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        // A new comment makes the text new for the cache.
        let nonce = format!("{LESSON}\n/* {} {round} {:?} */\n", std::process::id(), Instant::now());
        std::fs::write(&source, nonce).map_err(Error::setup)?;
        for (times, origin) in [(&mut compiled, Origin::Compiler), (&mut cached, Origin::Cache)] {
            let started = Instant::now();
            let found = custom::prepare(&source).map_err(Error::setup)?;
            times.push(started.elapsed().as_nanos() as f64);
            if found != origin {
                return Err(Error::Wrong { who: "the cache of functions".to_owned(), what: format!("{found:?}") });
            }
        }
    }
    let row = |implementation: &str, times: &mut Vec<f64>, progress: &mut Progress<'_>| {
        let (p50, p99) = median_p99(times);
        progress(&format!("{implementation}: {:.1} ms, median of {}", p50 / 1e6, times.len()));
        time_row(implementation, p50, p99, Details::default())
    };
    Ok(vec![row("compiled", &mut compiled, progress), row("cached", &mut cached, progress)])
}

/// Returns the row of a measured time in nanoseconds.
fn time_row(implementation: &str, p50: f64, p99: f64, details: Details) -> Row {
    Row {
        device: "cpu".to_owned(),
        implementation: implementation.to_owned(),
        mode: "call".to_owned(),
        batch: 1,
        mpps: 1e3 / p50,
        p50_us: p50 / 1e3,
        p99_us: p99 / 1e3,
        details,
        ..Row::default()
    }
}

/// No engine runs, so changes copy nothing to devices and do not wait for packets.
struct Idle;

impl Running for Idle {
    fn image_changed(&self, _: Range<usize>) -> Result<(), godwit_function::Error> {
        Ok(())
    }

    fn quiesce(&self) -> Result<(), godwit_function::Error> {
        Ok(())
    }
}

/// A packet that looks up the first row of both tables.
struct Probe {
    buffer: Vec<u8>,
}

impl Probe {
    fn new() -> Self {
        let mut buffer = vec![0; 128];
        buffer[..6].copy_from_slice(&station(0).to_be_bytes()[2..]);
        buffer[14..18].copy_from_slice(&prefix(0).octets());
        Self { buffer }
    }

    /// Returns the sum of both values that the kernel finds.
    fn sum(&mut self, function: &dyn Function) -> u32 {
        let mut descriptor = Descriptor { length: 64, room: 2, ..Descriptor::default() };
        function.run_ref(&mut self.buffer, &mut descriptor, 0, 0).value
    }
}

fn station(index: u64) -> u64 {
    2 << 40 | index
}

fn prefix(index: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0000 + (index << 4))
}

/// Measures the time from a row change until a packet finds the new row.
pub(super) fn change(context: &Context, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let common = &context.common;
    let count = if common.brief() { 1000 } else { ROWS };
    let folder = tempfile::tempdir().map_err(Error::setup)?;
    let (mut stations, mut prefixes) = (String::from("address,value\n"), String::from("prefix,value\n"));
    for index in 0..count {
        let [_, _, a, b, c, d, e, f] = station(index as u64).to_be_bytes();
        writeln!(stations, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x},{}", index % 1000).map_err(Error::setup)?;
        writeln!(prefixes, "{}/28,{}", prefix(index as u32), index % 1000).map_err(Error::setup)?;
    }
    std::fs::write(folder.path().join("stations.csv"), stations).map_err(Error::setup)?;
    std::fs::write(folder.path().join("prefixes.csv"), prefixes).map_err(Error::setup)?;
    let keys = "tables.stations = \"stations.csv\"\ntables.prefixes = \"prefixes.csv\"\n";
    let function = build(folder.path(), CHANGE, keys)?;
    let commands = function.operate().ok_or_else(|| Error::Setup("the function takes no commands".to_owned()))?;
    let mut probe = Probe::new();
    let mut values = [0; 2];
    let mut rows = Vec::new();
    let tables =
        [("exact", "stations", "02:00:00:00:00:00".to_owned()), ("lpm4", "prefixes", format!("{}/28", prefix(0)))];
    for (index, (shape, table, key)) in tables.into_iter().enumerate() {
        let mut times = Vec::new();
        let measuring = Instant::now();
        while times.len() < ROUNDS_MIN || measuring.elapsed() < common.time.max(Duration::from_millis(1)) {
            values[index] = times.len() as u32 % 60_000 + 1;
            let request =
                json!({ "command": "add", "table": table, "rows": [[key, format!("value={}", values[index])]] });
            let started = Instant::now();
            commands.command(&request, &Idle).map_err(Error::setup)?;
            let seen = probe.sum(&*function);
            times.push(started.elapsed().as_nanos() as f64);
            if seen != values[0] + values[1] {
                let what = format!("a packet finds {seen} instead of {}", values[0] + values[1]);
                return Err(Error::Wrong { who: shape.to_owned(), what });
            }
        }
        let (p50, p99) = median_p99(&mut times);
        progress(&format!(
            "{shape}, {count} rows: a change is seen after {:.1} µs (p99 {:.1} µs)",
            p50 / 1e3,
            p99 / 1e3
        ));
        rows.push(time_row(shape, p50, p99, Details::default().with("rows", count)));
    }
    Ok(rows)
}
