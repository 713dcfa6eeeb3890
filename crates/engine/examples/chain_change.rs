//! Measures the duration of a chain change at run time. For each change, it prints the time from
//! the command to the first packet on the new chain, the time from the command to the answer, and
//! the time for which workers held new packets.
//!
//! ```text
//! cargo run --release -p godwit-engine --example chain_change \
//!     [DEVICE] [RATE] [WORKERS] [CHANGES] [IN_FLIGHT] [MODE]
//! ```
//! Without RATE, or with `full`, packets arrive as fast as the workers accept them. The chains
//! differ in their first function. The first packet at that function is therefore the first on the
//! new chain.

#[path = "../tests/engine/recorder.rs"]
mod recorder;

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use godwit_engine::config::Config;
use godwit_engine::{Engine, Options};
use recorder::Record;
use serde_json::{Value, json};

const FIRST_FUNCTIONS: [&str; 2] = ["one", "two"];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |default: &str| arguments.next().unwrap_or_else(|| default.to_owned());
    let (device, rate, workers, changes) = (next("cpu"), next("full"), next("1"), next("1000").parse()?);
    let (in_flight, mode) = (next("4096"), next("launch"));
    let text = configuration(&device, &rate, &workers, &in_flight, &mode) + &chain(0);
    let mut config = Config::parse(&text, "chain_change", Path::new("."))?;
    let record = recorder::install(&mut config, &[("one", false), ("two", false)], 0);
    let path = std::env::temp_dir().join(format!("chain_change-{}", std::process::id()));
    let engine = Engine::new(config, &Options { control: Some(path.clone()), ..Options::default() })?;
    let stop = Arc::new(AtomicBool::new(false));
    let (report, mut times) = std::thread::scope(|scope| {
        let changing = scope.spawn(|| {
            let times = change(&path, &record, changes).map_err(|error| error.to_string());
            stop.store(true, Ordering::Relaxed);
            times
        });
        let report = engine.run(&stop, None, &mut |_| {});
        (report, changing.join())
    });
    let (report, times) = (report?, times.as_mut().map_err(|_| "the thread that changes the chain panicked")?.as_mut());
    let times = times.map_err(|error| error.clone())?;
    let probes = report.ports[0].probes.ok_or("the port has no statistics of probes")?;
    println!(
        "{device} {mode}, {workers} workers, {in_flight} in flight each, {:.2} Mpps: {changes} changes, {} packets, lost {}, \
duplicated {}, reordered {}, dropped {}",
        report.conservation.received as f64 / report.elapsed_s / 1e6,
        report.conservation.received,
        report.conservation.received - probes.received,
        probes.duplicates,
        probes.reordered,
        report.conservation.dropped,
    );
    for (name, column) in ["first packet on the new chain", "answer", "packets held"].iter().zip(times) {
        column.sort_unstable();
        let at = |share: f64| column[((column.len() - 1) as f64 * share) as usize];
        println!("{name:>28}: median {} us, 99 % {} us, longest {} us", at(0.5), at(0.99), at(1.0));
    }
    Ok(())
}

/// Changes the function chain `changes` times, and returns three lists of times in microseconds:
/// from the request to the first packet on the new chain, from the request to the reply, and the
/// time for which packets were held.
///
/// An additional change at the start is not counted, because the first packets and the device's
/// kernels are not ready yet.
fn change(path: &Path, record: &Record, changes: usize) -> Result<[Vec<u64>; 3], Box<dyn Error>> {
    let mut stream = BufReader::new(UnixStream::connect(path)?);
    let mut times = [const { Vec::new() }; 3];
    for number in 1..=changes + 1 {
        let packets = &record.received[number % FIRST_FUNCTIONS.len()];
        // No packets of the old chain are left, so all packets at this function follow the new
        // chain.
        let packets_before = packets.load(Ordering::Acquire);
        let request = format!("{}\n", json!({ "command": "chain", "text": chain(number) }));
        let started = Instant::now();
        stream.get_mut().write_all(request.as_bytes())?;
        while packets.load(Ordering::Acquire) == packets_before {
            // The sleep leaves the core to the control socket's thread for about 60 us.
            std::thread::sleep(Duration::from_micros(10));
        }
        times[0].push(started.elapsed().as_micros() as u64);
        let mut reply = String::new();
        stream.read_line(&mut reply)?;
        times[1].push(started.elapsed().as_micros() as u64);
        let reply: Value = serde_json::from_str(&reply)?;
        let held = reply["result"]["held_us"].as_u64();
        times[2].push(held.ok_or_else(|| format!("change {number} was refused: {reply}"))?);
        if number == 1 {
            println!("first change, including the wait for the first packets: {} us", times[0][0]);
            times.iter_mut().for_each(Vec::clear);
        }
    }
    Ok(times)
}

fn chain(number: usize) -> String {
    let function = FIRST_FUNCTIONS[number % FIRST_FUNCTIONS.len()];
    format!(
        "[[chain]]\nfrom = \"net\"\nto = \"{function}\"\n[[chain]]\nfrom = \"{function}\"\nto = \"both\"\n\
         [[chain]]\nfrom = \"both\"\nto = \"net\"\n"
    )
}

fn configuration(device: &str, rate: &str, workers: &str, in_flight: &str, mode: &str) -> String {
    let rate = if rate == "full" { String::new() } else { format!("rate = \"{rate}\"") };
    let stanza =
        if device == "cpu" { String::new() } else { format!("[[device]]\nname = \"{device}\"\nmode = \"{mode}\"\n") };
    let mut text = format!(
        r#"
        [engine]
        workers = {workers}
        in_flight_packets = {in_flight}
        {stanza}
        [[port]]
        name = "net"
        kind = "synthetic"
        size = 128
        flows = 10000
        probe = true
        {rate}
        "#
    );
    for name in ["one", "two", "both"] {
        text += &format!("[[function]]\nname = \"{name}\"\nkind = \"template\"\ndevice = \"{device}\"\n");
    }
    text
}
