//! `godwit bench`

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Args, FromArgMatches};
use godwit_bench::definition::definitions;
use godwit_bench::{Manifest, Outcome, Record, Request, Row, Size};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{self, Json};
use crate::progress::Progress;
use crate::table::{Align, Table};

/// Measure Godwit and its peers in the same run.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Bench to run. `list` prints all benches, `all` runs the suite, and `report` writes the page
    /// of results from stored rows.
    name: String,
    /// Device: cpu, opencl:0, cuda:0. Some benches measure several devices at once: cuda:0,cuda:1.
    #[arg(long, value_name = "D")]
    device: Option<String>,
    /// Implementation on the CPU: ref, scalar, gopt or native; all for functions alone.
    #[arg(long = "impl", value_name = "I")]
    implementation: Option<String>,
    /// Frame size: bytes without FCS, a range such as 60-1276, imix, imix-pipsea or random. May be
    /// repeated.
    #[arg(long = "size", value_name = "SIZE")]
    sizes: Vec<Size>,
    /// Time for each figure. Default: as in the definition of the bench.
    #[arg(long, value_name = "N", value_parser = super::parse_seconds, allow_negative_numbers = true)]
    seconds: Option<Duration>,
    /// Do not measure peers.
    #[arg(long)]
    no_peers: bool,
    /// Write the rows as JSON; - is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Store the rows and a machine description in DIR/MACHINE/DATE-COMMIT.json.
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Machine name in the record. Default: derived from the cores, CPU and GPU.
    #[arg(long, value_name = "NAME", requires = "record")]
    machine: Option<String>,
    /// Folder of stored rows that `report` reads.
    #[arg(long, value_name = "DIR", default_value = "bench/results")]
    results: PathBuf,
    /// Folder to which `report` writes the page and the figures.
    #[arg(long, value_name = "DIR", default_value = "docs/benchmarks")]
    output: PathBuf,
    #[command(flatten)]
    options: Options,
}

/// Values of the options that only some benches accept.
#[derive(Default)]
struct Options(BTreeMap<String, Vec<String>>);

impl FromArgMatches for Options {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let values = |option: &godwit_bench::OptionSpec| match option.value {
            None => matches.get_flag(option.name).then(|| vec!["true".to_owned()]),
            Some(_) => matches.get_many::<String>(option.name).map(|values| values.cloned().collect()),
        };
        let options = godwit_bench::options();
        Ok(Self(options.into_iter().filter_map(|option| Some((option.name.to_owned(), values(option)?))).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Options {
    fn augment_args(command: clap::Command) -> clap::Command {
        godwit_bench::options().into_iter().fold(command, |command, option| {
            let argument =
                Arg::new(option.name).long(option.name).help(option.help).help_heading("Options of some benches");
            command.arg(match option.value {
                None => argument.action(ArgAction::SetTrue),
                Some(value) => argument.action(ArgAction::Append).value_name(value),
            })
        })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl Arguments {
    fn request(&self) -> Request {
        let names = |devices: &String| devices.split(',').map(|device| device.trim().to_owned()).collect();
        Request {
            devices: self.device.as_ref().map(names).unwrap_or_default(),
            implementation: self.implementation.clone(),
            sizes: self.sizes.clone(),
            time: self.seconds,
            peers: !self.no_peers,
            options: self.options.0.clone(),
        }
    }
}

/// Runs one bench or the suite, or lists all benches.
pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let json = Json::open(arguments.json.as_deref())?;
    if arguments.name == "list" {
        return list(json);
    }
    if arguments.name == "report" {
        return report(arguments);
    }
    if let Some(folder) = &arguments.record {
        std::fs::create_dir_all(folder).map_err(|error| cannot_record(folder, &error))?;
    }
    let outcomes = if arguments.name == "all" { suite(arguments)? } else { vec![single(arguments)?] };
    let mut rows = Vec::new();
    let mut failures = Vec::new();
    let mut seconds = BTreeMap::new();
    for Outcome { name, device, elapsed, result } in outcomes {
        let title = device.map_or_else(|| name.to_owned(), |device| format!("{name} on {device}"));
        match result {
            Ok(found) => rows.extend(found),
            Err(error) => failures.push(format!("{title}: {error}")),
        }
        seconds.insert(title, elapsed.as_secs_f64());
    }
    output::print_text(&json, &text(&rows))?;
    json.write(&rows)?;
    if let Some(folder) = &arguments.record {
        let manifest = Manifest { seconds, ..Manifest::of_this_machine(arguments.machine.as_deref()) };
        record(folder, Record::new(manifest, &rows))?;
    }
    if failures.is_empty() {
        return Ok(());
    }
    Err(Failure::Bug(format!("{} of the benches failed: {}", failures.len(), failures.join("; "))))
}

/// Writes the page of results and its figures.
fn report(arguments: &Arguments) -> Result<(), Failure> {
    let written = godwit_bench::report(&arguments.results, &arguments.output)?;
    output::print(&format!("{} files written to {}\n", written.len(), arguments.output.display()))
}

/// Runs the bench that the arguments name.
fn single(arguments: &Arguments) -> Result<Outcome, Failure> {
    let name = &godwit_bench::find(&arguments.name)?.name;
    let mut progress = Progress::new();
    let started = std::time::Instant::now();
    let rows = godwit_bench::run(name, &arguments.request(), &mut |line| progress.show(line));
    progress.clear();
    Ok(Outcome { name, device: arguments.device.clone(), elapsed: started.elapsed(), result: Ok(rows?) })
}

/// Runs all benches of the suite.
fn suite(arguments: &Arguments) -> Result<Vec<Outcome>, Failure> {
    if let Some(option) = arguments.options.0.keys().next() {
        return Err(Failure::User(format!(
            "`bench all` does not accept --{option}; it runs each bench with its defaults"
        )));
    }
    let progress = std::cell::RefCell::new(Progress::new());
    let mut outcomes = Vec::new();
    godwit_bench::run_all(&arguments.request(), &mut |line| progress.borrow_mut().show(line), &mut |outcome| {
        let device = outcome.device.as_deref().unwrap_or("all devices");
        let result = match &outcome.result {
            Ok(rows) => format!("{} rows", rows.len()),
            Err(error) => format!("failed: {error}"),
        };
        progress.borrow_mut().clear();
        eprintln!("{} on {device}: {result}, {:.1} s", outcome.name, outcome.elapsed.as_secs_f64());
        outcomes.push(outcome);
    });
    progress.borrow_mut().clear();
    Ok(outcomes)
}

/// Writes a record. Keeps the rows of other benches from an older record of the same machine, day
/// and commit.
fn record(folder: &Path, record: Record) -> Result<(), Failure> {
    let path = record.path(folder);
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(|error| cannot_record(parent, &error))?;
    }
    let older = std::fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Record>(&text).ok());
    let record = match older {
        Some(older) => record.merged_with(older),
        None => record,
    };
    Json::open(Some(&path))?.write(&record)?;
    eprintln!("recorded in {}", path.display());
    Ok(())
}

fn cannot_record(folder: &Path, error: &std::io::Error) -> Failure {
    Failure::User(format!("--record {}: cannot create the folder: {error}", folder.display()))
}

/// Prints all definitions.
fn list(json: Json) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Entry<'a> {
        name: &'a str,
        why: &'a str,
        paper: &'a [String],
        peers: &'a [String],
        devices: &'a [String],
        options: &'a [String],
        suite: bool,
    }
    let mut table =
        Table::new(&[("bench", Align::Left), ("purpose", Align::Left), ("paper", Align::Left), ("peers", Align::Left)]);
    for bench in definitions() {
        table.row(vec![bench.name.clone(), bench.why.clone(), bench.paper.join(", "), bench.peers.join(", ")]);
    }
    output::print_text(&json, &table.text())?;
    let entry = |bench: &'static godwit_bench::definition::Definition| Entry {
        name: &bench.name,
        why: &bench.why,
        paper: &bench.paper,
        peers: &bench.peers,
        devices: &bench.devices,
        options: &bench.options,
        suite: bench.suite,
    };
    json.write(&definitions().iter().map(entry).collect::<Vec<_>>())
}

/// Returns the rows as a table.
fn text(rows: &[Row]) -> String {
    let mut table = Table::new(&[
        ("bench", Align::Left),
        ("device", Align::Left),
        ("impl", Align::Left),
        ("mode", Align::Left),
        ("size", Align::Right),
        ("batch", Align::Right),
        ("Mpps", Align::Right),
        ("ns", Align::Right),
        ("Gbps", Align::Right),
        ("p50 µs", Align::Right),
        ("p99 µs", Align::Right),
        ("watts", Align::Right),
        ("details", Align::Left),
    ]);
    for row in rows {
        let details = row.details.iter().map(|(name, value)| format!("{name} {value}"));
        let peer = row.peer.then(|| "peer".to_owned());
        table.row(vec![
            row.bench.clone(),
            row.device.clone(),
            row.implementation.clone(),
            row.mode.clone(),
            row.size.map_or("-".to_owned(), |size| size.to_string()),
            row.batch.to_string(),
            format!("{:.2}", row.mpps),
            if row.mpps > 0.0 { format!("{:.1}", 1000.0 / row.mpps) } else { "-".to_owned() },
            format!("{:.2}", row.gbps),
            format!("{:.2}", row.p50_us),
            format!("{:.2}", row.p99_us),
            row.watts.map_or("not measured".to_owned(), |watts| format!("{watts:.1}")),
            peer.into_iter().chain(details).collect::<Vec<_>>().join("; "),
        ]);
    }
    table.text()
}
