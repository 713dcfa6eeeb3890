//! `godwit bench`

mod figures;

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use godwit_bench::{BENCHES, BenchOptions, Layout, Mode, Row, Size, Transfer};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{self, Json};
use crate::progress::Progress;
use crate::table::{Align, Table};

/// Measure something, and its peers in the same run.
#[derive(Args)]
pub(crate) struct Arguments {
    /// What to measure; `list` names all.
    name: String,
    /// This device: cpu, opencl:0, cuda:0. The bench `devices` measures all that are here unless one is named. Several at
    /// once, where a bench can: cuda:0,cuda:1.
    #[arg(long, value_name = "D")]
    device: Option<String>,
    /// Only this implementation: ref, scalar (at the level that is fastest here), or native. all: each, where a function is
    /// measured alone.
    #[arg(long = "impl", value_name = "I")]
    implementation: Option<String>,
    /// How chunks are handed to the device. Without it the CPU is called with bins, host half included, and other
    /// devices launch.
    #[arg(long, value_name = "MODE", value_parser = parse_mode)]
    mode: Option<Mode>,
    /// How packets lie in the arena: dense or slots.
    #[arg(long, value_name = "LAYOUT", value_parser = parse_layout, default_value = "dense")]
    layout: Layout,
    /// How packets of launched chunks come to a CUDA device and back: copied, by copy engines; reached, by the kernel over the bus; auto, as is
    /// cheaper for each chunk. Without it auto, and in the bench latency one after the other.
    #[arg(long, value_name = "BUFFERS", value_parser = parse_transfer)]
    transfer: Option<Transfer>,
    /// Packets of a chunk; without it what suits the device.
    #[arg(long, value_name = "PACKETS")]
    batch: Option<NonZeroU32>,
    /// Packets of a bin; without it what suits the device.
    #[arg(long, value_name = "PACKETS")]
    bin: Option<NonZeroU32>,
    /// Chunks in flight, of each thread that feeds the device; without it what suits the device.
    #[arg(long, value_name = "CHUNKS")]
    in_flight: Option<NonZeroU32>,
    /// Packets in the arena; without it more than the caches hold, and where `--seconds` is less than 0.1 no more than 2048, whatever
    /// chunks are to hold.
    #[arg(long, value_name = "PACKETS")]
    packets: Option<NonZeroU32>,
    /// Workers, where the bench runs the engine; without it as many as there are cores. Where a function goes through the lane
    /// of a device that is not the CPU: threads that feed it, without it one. Given more than once, one after the other is
    /// measured.
    #[arg(long, value_name = "N")]
    workers: Vec<NonZeroU32>,
    /// Suite of ipsec: cbc128_sha1, gcm128, chacha20_poly1305 and so on, or mix: these three in turn.
    #[arg(long, value_name = "SUITE")]
    suite: Option<String>,
    /// SAs that packets are spread over; without it 4096.
    #[arg(long, value_name = "N")]
    sas: Option<NonZeroU32>,
    /// Open packets, where ipsec is measured through a device's lane.
    #[arg(long)]
    decrypt: bool,
    /// In the benches ipsec and gateway: the CPU's cores alone, the device alone, and both at once, in the same run.
    #[arg(long)]
    together: bool,
    /// In the bench ipsec: PIPSEA's figures 8 and 12 and APUNet's figure 9(a), on the CPU and on every device that is here.
    #[arg(long, conflicts_with_all = ["suite", "decrypt", "together"])]
    figures: bool,
    /// In apps and lookup-latency: only this function. Given more than once, each of them.
    #[arg(long = "app", value_name = "NAME")]
    apps: Vec<String>,
    /// Size of the tables of gopt and memaccess in MiB, a power of two; without it 1024. In ipv6, l2, ndn, apps and lookup-latency about that of the tables of ipv6, l2 and ndn; without it as many entries as networks have
    #[arg(long, value_name = "MIB")]
    table: Option<NonZeroU32>,
    /// Frame size: bytes without FCS, two of them such as 60-1276 (random between), imix, imix-pipsea, or random. Given more than once, one after the other is measured.
    #[arg(long = "size", value_name = "SIZE")]
    sizes: Vec<Size>,
    /// Time for each figure.
    #[arg(long, value_name = "N", value_parser = super::parse_seconds, allow_negative_numbers = true, default_value = "2")]
    seconds: Duration,
    /// Leave the peers out.
    #[arg(long)]
    no_peers: bool,
    /// Write the rows as JSON; - is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs one bench, or lists all.
pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let json = Json::open(arguments.json.as_deref())?;
    if arguments.name == "list" {
        return list(json);
    }
    let options = BenchOptions {
        device: arguments.device.clone(),
        implementation: arguments.implementation.clone(),
        sizes: arguments.sizes.clone(),
        time: arguments.seconds,
        peers: !arguments.no_peers,
        mode: arguments.mode,
        layout: arguments.layout,
        transfer: arguments.transfer,
        batch: number(arguments.batch),
        bin_packets: number(arguments.bin),
        in_flight: number(arguments.in_flight),
        packets: number(arguments.packets),
        workers: arguments.workers.iter().map(|workers| workers.get() as usize).collect(),
        suite: arguments.suite.clone(),
        sas: arguments.sas.map(NonZeroU32::get),
        decrypt: arguments.decrypt,
        together: arguments.together,
        figures: arguments.figures,
        apps: arguments.apps.clone(),
        table_bytes: number(arguments.table).map(|mib| mib << 20),
    };
    let mut progress = Progress::new();
    let rows = godwit_bench::run(&arguments.name, &options, &mut |line| progress.say(line));
    progress.clear();
    let rows = rows?;
    let shown = if arguments.figures { figures::text(&rows) } else { text(&rows) };
    output::print_beside(&json, &shown)?;
    json.write(&rows)
}

fn number(number: Option<NonZeroU32>) -> Option<usize> {
    number.map(|number| number.get() as usize)
}

fn parse_mode(text: &str) -> Result<Mode, String> {
    let known = [Mode::Launch, Mode::Persistent];
    let found = known.into_iter().find(|mode| mode.name() == text);
    found.ok_or_else(|| format!("expected launch or persistent, not {text}"))
}

fn parse_transfer(text: &str) -> Result<Transfer, String> {
    let found = Transfer::ALL.into_iter().find(|transfer| transfer.name() == text);
    found.ok_or_else(|| format!("expected auto, copied or reached, not {text}"))
}

fn parse_layout(text: &str) -> Result<Layout, String> {
    match text {
        "dense" => Ok(Layout::Dense),
        "slots" => Ok(Layout::Slots),
        _ => Err(format!("expected dense or slots, not {text}")),
    }
}

fn list(json: Json) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Entry {
        name: &'static str,
        what: &'static str,
    }
    let mut table = Table::new(&[("bench", Align::Left), ("measures", Align::Left)]);
    for bench in BENCHES {
        table.row(vec![bench.name.to_owned(), bench.what.to_owned()]);
    }
    output::print_beside(&json, &table.text())?;
    json.write(&BENCHES.iter().map(|bench| Entry { name: bench.name, what: bench.what }).collect::<Vec<_>>())
}

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
        ("", Align::Left),
    ]);
    for row in rows {
        let peer = if row.peer { "peer" } else { "" };
        let note = [peer, row.note.as_str()].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ");
        table.row(vec![
            row.bench.clone(),
            row.device.clone(),
            row.implementation.clone(),
            row.mode.to_owned(),
            row.size.map_or("-".to_owned(), |size| size.to_string()),
            row.batch.to_string(),
            format!("{:.2}", row.mpps),
            if row.mpps > 0.0 { format!("{:.1}", 1000.0 / row.mpps) } else { "-".to_owned() },
            format!("{:.2}", row.gbps),
            format!("{:.2}", row.p50_us),
            format!("{:.2}", row.p99_us),
            row.watts.map_or("not measured".to_owned(), |watts| format!("{watts:.1}")),
            note,
        ]);
    }
    table.text()
}
