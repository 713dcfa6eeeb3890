//! Measures the per-packet cost of a worker. The workload is an ESP gateway from port to port,
//! without the cipher. The device does no work, but returns submissions late like a busy device.
//!
//! ```text
//! cargo run --release -p godwit-engine --example worker_cost -- \
//!     [frame bytes] [packets in flight] [packets of a chunk] [seconds] [workers] [payload]
//! ```

use std::collections::VecDeque;
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use godwit_abi::Outcome;
use godwit_device::{BinTime, Capabilities, Choice, Device, Error as DeviceError, Lane, Rejected};
use godwit_engine::config::Config;
use godwit_engine::{Engine, Opener, Options};
use godwit_packet::Region;
use godwit_sched::Chunk;

const SAS: u32 = 4096;
const FLOWS: u32 = 16_384;
const DEVICE: &str = "cuda:0";

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |default: &str| arguments.next().unwrap_or_else(|| default.to_owned());
    let (size, in_flight, chunk, seconds) = (next("60"), next("65536"), next("16384"), next("2"));
    let (workers, payload) = (next("1"), next("zero"));
    let text = configuration(&size, &in_flight, &chunk, &workers, &payload);
    let config = Config::parse(&text, "worker_cost", Path::new("."))?;
    let options = Options { opener: Some(idle_device()), ..Options::default() };
    let stop = Arc::new(AtomicBool::new(false));
    let engine = Engine::new(config, &options)?;
    let before_s = processor_s()?;
    let report = engine.run(&stop, Some(Duration::from_secs_f64(seconds.parse()?)), &mut |_| {})?;
    let used_s = processor_s()? - before_s;
    let counter = |name: &str| report.counters.iter().find(|(known, _)| known == name).map_or(0, |(_, value)| *value);
    let sent = report.conservation.sent as f64;
    println!(
        "{size} B, payload {payload}, {workers} workers, {in_flight} in flight each, chunks of {chunk}: {sent} packets, {:.1} ns of CPU time each, {:.1} ns busy, {:.2} Mpps",
        used_s * 1e9 / sent,
        counter("engine_busy_ns") as f64 / sent,
        sent / report.elapsed_s / 1e6
    );
    Ok(())
}

/// Returns the CPU time of this process in user mode, in seconds.
fn processor_s() -> Result<f64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    // Fields are counted after the command name, which may contain spaces. Field 14 is the user
    // time in ticks of 10 ms.
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    Ok(fields.split_whitespace().nth(11).unwrap_or_default().parse::<f64>()? / 100.0)
}

fn configuration(size: &str, in_flight: &str, chunk: &str, workers: &str, payload: &str) -> String {
    let (size, longest) = if size == "imix" { ("\"imix\"", 1514) } else { (size, size.parse().unwrap_or(60)) };
    let mut text = format!(
        r#"
        [engine]
        workers = {workers}
        in_flight_packets = {in_flight}
        [arena]
        layout = "dense"
        frame_bytes_max = {longest}
        align_bytes = 64
        headroom_bytes = 44
        tailroom_bytes = 29
        [[port]]
        name = "memory"
        kind = "synthetic"
        size = {size}
        flows = {FLOWS}
        destination = "10.0.0.0/12"
        payload = "{payload}"
        [[chain]]
        from = "memory"
        to = "gateway"
        [[chain]]
        from = "gateway"
        to = "memory"
        [[device]]
        name = "{DEVICE}"
        chunk_packets = {chunk}
        [[function]]
        name = "gateway"
        kind = "ipsec"
        device = "{DEVICE}"
        "#
    );
    for sa in 0..SAS {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "[[function.sa]]\nname = \"sa-{sa}\"\nspi = {}\ndirection = \"out\"\ninsecure = true\nsource = \"192.0.2.1\"\n\
             destination = \"192.0.2.2\"\nencryption = \"aes-128-cbc\"\nencryption_key = \"{sa:032x}\"\n\
             authentication = \"hmac-sha1-96\"\nauthentication_key = \"{sa:040x}\"\n\
             [[function.policy]]\naction = \"protect\"\ndestination = \"10.{}.{}.0/24\"\nsa = \"sa-{sa}\"",
            4096 + sa,
            sa >> 8,
            sa & 255
        );
    }
    text
}

fn idle_device() -> Opener {
    Opener(Arc::new(|id, programs, _, _| {
        let choice = |name: &str| Choice {
            function: name.to_owned(),
            form: "idle".to_owned(),
            measured: Vec::new(),
            turns: None,
        };
        (id == DEVICE).then(|| {
            let capabilities = Capabilities {
                id: DEVICE.to_owned(),
                name: "a device that does nothing".to_owned(),
                compute_units: 1,
                warp_packets: 32,
                memory_bytes: 1 << 30,
                features: Vec::new(),
            };
            let choices = programs.iter().map(|(program, _)| choice(program.name())).collect();
            Ok(Arc::new(IdleDevice { capabilities, choices }) as Arc<dyn Device>)
        })
    }))
}

struct IdleDevice {
    capabilities: Capabilities,
    choices: Vec<Choice>,
}

impl Device for IdleDevice {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn choices(&self) -> Vec<Choice> {
        self.choices.clone()
    }

    fn lane(self: Arc<Self>) -> Result<Box<dyn Lane>, DeviceError> {
        Ok(Box::new(IdleLane::default()))
    }
}

/// Connection to a device that returns a submission after [`IN_FLIGHT`] submissions or
/// [`POLLS_MAX`] polls.
#[derive(Default)]
struct IdleLane {
    in_flight: VecDeque<Chunk>,
    taken: usize,
    polls: u32,
}

/// Number of submissions whose outcomes are written. It exceeds the number of submissions of a
/// packer, so each one is written at least once.
const TOUCHED_CHUNKS: usize = 64;

/// The oldest submission returns when this many are in flight.
const IN_FLIGHT: usize = 3;
/// Number of polls after which a submission returns in any case.
const POLLS_MAX: u32 = 1000;

impl Lane for IdleLane {
    fn submit(&mut self, region: &mut Region, mut chunk: Chunk) -> Result<(), Box<Rejected>> {
        // This device reads each descriptor once, as real devices do.
        let (start, bytes) = region.extent();
        let (mut first, mut end, mut units) = (u32::MAX, 0, 0);
        for bin in &chunk.bins {
            for descriptor in &chunk.descriptors[chunk.range(bin)] {
                first = first.min(descriptor.buffer);
                end = end.max(descriptor.buffer + u32::from(descriptor.room));
                units += u64::from(descriptor.room);
            }
        }
        assert!(first as usize * 64 >= start && end as usize * 64 <= start + bytes);
        std::hint::black_box(units);
        if self.taken < TOUCHED_CHUNKS {
            // Each submission is written once, because pages that were never written share one
            // physical page.
            chunk.outcomes.fill(Outcome::verdict(godwit_function::ipsec::VERDICT_ENCRYPTED));
        }
        self.taken += 1;
        self.in_flight.push_back(chunk);
        self.polls = 0;
        Ok(())
    }

    fn poll(&mut self, _region: &mut Region) -> Result<Option<Chunk>, DeviceError> {
        self.polls += 1;
        let done = self.in_flight.len() >= IN_FLIGHT || self.polls > POLLS_MAX;
        Ok(if done { self.in_flight.pop_front() } else { None })
    }

    fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    fn bin_times(&self) -> &[BinTime] {
        &[]
    }
}
