//! What is measured, and the peers it is measured against.
//!
//! A bench is data plus proof: a workload, what every implementation must answer, and peers that answer the same in
//! the same run. Rounds of all competitors alternate, and each figure is the median of its rounds.
//!
//! | file | measures |
//! |---|---|
//! | `engine.rs` | the whole engine around `echo`, memory to memory; peer: dpdk-testpmd |
//! | `gateway.rs` | the whole engine around ESP encryption on a device, port to port |
//! | `apps.rs` | whole functions in the engine by number of workers, and their latency against load; `dpi` by how packets are sorted |
//! | `several.rs` | several devices at once, and what each does alone |
//! | `sharing.rs` | one device for two functions, and for several threads |
//! | `size.rs` | lengths of frames to measure at |
//! | `traffic.rs` | the port that they get frames from |
//! | `function.rs` | each function alone on packets in memory |
//! | `figures.rs` | PIPSEA's and APUNet's figures of IPsec, by the other files |
//! | `ipsec.rs` | ESP tunnels alone, and on CPU cores beside a device; peer: Intel ipsec-mb |
//! | `throughput.rs` | the same through a device's lane, prepared chunks in flight |
//! | `devices.rs` | what a device can do with no packets: copies, launches, mailboxes, random reads |
//! | `chain.rs` | decryption, patterns and route one after the other on a device, with and without coming back in between |
//! | `latency.rs` | one batch of 32 packets, submit to completion |
//! | `scheduling.rs` | what the packer's knobs are worth |
//! | `flow.rs` | packets in an arena, and prepared chunks of them through a lane |
//! | `passes.rs` | what is counted while they go through |
//! | `cores.rs` | cores that threads stay on |
//! | `gopt.rs` | forms of look-ups that hide latency, and the dial of arithmetic; peer: C++20 coroutines |
//! | `lookup.rs` | the route table alone, and loading it; peer: DPDK's rte_lpm |
//! | `lookup6.rs` | the table of ipv6 alone; peers: rte_fib6, rte_lpm6 |
//! | `lookup_mac.rs` | the table of l2 alone; peer: rte_hash |
//! | `lookups.rs` | `ipv6`, `l2` and `ndn` on packets in memory, and the tables and frames of theirs that others measure |
//! | `race.rs` | competitors that look up the same things in the same table, in turn |
//! | `peer.rs` | peers that are programs of their own |
#![warn(unsafe_code)]

mod apps;
mod chain;
mod cores;
mod devices;
mod engine;
mod error;
mod figures;
mod flow;
mod frames;
mod function;
mod gateway;
mod gopt;
mod ipsec;
mod latency;
mod lookup;
mod lookup6;
mod lookup_mac;
mod lookups;
mod passes;
mod peer;
mod power;
mod race;
mod routes;
mod scheduling;
mod several;
mod sharing;
mod size;
mod suites;
mod throughput;
mod traffic;

use std::time::Duration;

use godwit_device::cpu;
use serde::Serialize;

pub use error::Error;
pub use godwit_device::{Mode, Transfer};
pub use godwit_packet::Layout;
pub use size::Size;

/// One line of results. `gbps` counts frame bytes without FCS.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The bench.
    pub bench: String,
    /// `cpu`, or the peer's name.
    pub device: String,
    /// `ref`, a level of the kernel, or the peer's function.
    #[serde(rename = "impl")]
    pub implementation: String,
    /// How work was handed over: `call` (bins straight to the function), `launch` and `persistent` (prepared chunks through
    /// the device's lane, in that mode), `engine` (all of Godwit around it), `process` (a peer, in its own way).
    pub mode: &'static str,
    /// Frame size; `None` where there are no frames.
    pub size: Option<Size>,
    /// Packets handed over at once.
    pub batch: usize,
    /// Millions of packets (or look-ups) per second, median of the rounds.
    pub mpps: f64,
    /// Gigabits of frames per second; 0 where there are no frames.
    pub gbps: f64,
    /// Time of a batch, median, microseconds.
    pub p50_us: f64,
    /// Time of a batch, 99th percentile, microseconds.
    pub p99_us: f64,
    /// Power; `None`: not measured.
    pub watts: Option<f64>,
    /// Whether this is a peer and not Godwit.
    pub peer: bool,
    /// What the row is worth knowing beside the figures.
    pub note: String,
}

/// Less time than this for each figure: small tables, few packets and rounds.
const LITTLE: Duration = Duration::from_millis(100);

/// What the user asked for; the default measures what the bench is for.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// Only this device; or several, with commas between them, all at once.
    pub device: Option<String>,
    /// Only this implementation: `ref`, `scalar`, `gopt`, `native` or a level such as `x86-64-v3`.
    pub implementation: Option<String>,
    /// Frame sizes; empty: the bench's own.
    pub sizes: Vec<Size>,
    /// Time for each figure.
    pub time: Duration,
    /// Whether to measure peers too.
    pub peers: bool,
    /// How chunks are handed over; `None`: the bench's own way.
    pub mode: Option<Mode>,
    /// How packets lie in the arena, where the bench fills one.
    pub layout: Layout,
    /// How packets of launched chunks come to a CUDA device and back; `None`: as is cheaper, and in `latency` both ways.
    pub transfer: Option<Transfer>,
    /// Packets of a chunk.
    pub batch: Option<usize>,
    /// Packets of a bin.
    pub bin_packets: Option<usize>,
    /// Chunks in flight, of each thread that feeds the device.
    pub in_flight: Option<usize>,
    /// Packets in the arena, of all threads: more than the caches hold, unless little time is given.
    pub packets: Option<usize>,
    /// Workers, where the bench runs the engine; empty: as many as there are cores. Where a function goes through the lane of a device
    /// that is not the CPU, threads that feed it; empty: one.
    pub workers: Vec<usize>,
    /// The suite of `ipsec`, or `mix`; `None`: AES-128-CBC with HMAC-SHA1-96.
    pub suite: Option<String>,
    /// SAs that packets are spread over; `None`: 4096.
    pub sas: Option<u32>,
    /// Whether packets are opened, where a function is measured through a device's lane.
    pub decrypt: bool,
    /// Whether the benches `ipsec` and `gateway` measure the CPU beside the device.
    pub together: bool,
    /// Only these functions, in `apps` and `lookup-latency`; empty: all.
    pub apps: Vec<String>,
    /// Whether the bench `ipsec` draws PIPSEA's figures 8 and 12 and APUNet's 9(a).
    pub figures: bool,
    /// Bytes of the tables that look-ups go over in `gopt` and `memaccess`; `None`: 1 GiB, or little where little time is given. Also about
    /// those of `ipv6`, `l2` and `ndn`, in `apps` and `lookup-latency` too; `None`: with as many entries as networks have.
    pub table_bytes: Option<usize>,
}

impl BenchOptions {
    /// The device to measure.
    fn device(&self) -> &str {
        self.device.as_deref().unwrap_or(cpu::ID)
    }

    /// The devices to measure at once.
    fn devices(&self) -> Vec<&str> {
        self.device().split(',').map(str::trim).collect()
    }

    /// Whether prepared chunks are sent through a lane, and not bins straight to the function.
    fn through_lane(&self) -> bool {
        self.mode.is_some() || self.device() != cpu::ID
    }
}

impl Default for BenchOptions {
    fn default() -> Self {
        Self {
            device: None,
            implementation: None,
            sizes: Vec::new(),
            time: Duration::from_secs(2),
            peers: true,
            mode: None,
            layout: Layout::Dense,
            transfer: None,
            batch: None,
            bin_packets: None,
            in_flight: None,
            packets: None,
            workers: Vec::new(),
            suite: None,
            sas: None,
            decrypt: false,
            together: false,
            apps: Vec::new(),
            figures: false,
            table_bytes: None,
        }
    }
}

/// A bench: its name, what it is for, how to run it.
pub struct Bench {
    /// Its name on the command line.
    pub name: &'static str,
    /// One sentence.
    pub what: &'static str,
    /// What it can measure.
    on: On,
    run: fn(&BenchOptions, &mut Progress<'_>) -> Result<Vec<Row>, Error>,
}

/// Which devices a bench can measure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    Cpu,
    AnyDevice,
    /// Also several at once.
    Devices,
}

/// Told what is being measured, a line at a time.
pub type Progress<'a> = dyn FnMut(&str) + 'a;

/// All benches.
pub const BENCHES: &[Bench] = &[
    Bench {
        name: "engine",
        what: "the whole engine around echo, memory to memory, one worker; peer: dpdk-testpmd macswap between net_null devices",
        on: On::Cpu,
        run: engine::run,
    },
    Bench {
        name: "gateway",
        what: "the whole engine around ESP tunnel encryption by 4096 SAs on a device, port to port, all cores",
        on: On::Devices,
        run: gateway::run,
    },
    Bench {
        name: "template",
        what: "the template function on packets in memory",
        on: On::Devices,
        run: function::template,
    },
    Bench { name: "echo", what: "G-Opt's echo on packets in memory", on: On::Devices, run: function::echo },
    Bench {
        name: "ipv4",
        what: "IPv4 forwarding of uniformly random addresses over the 901,899 prefixes of 2025; peer: rte_lpm, lookup only",
        on: On::Devices,
        run: lookup::forwarding,
    },
    Bench {
        name: "ipv6",
        what: "IPv6 forwarding of addresses below 200,000 random prefixes, on packets in memory",
        on: On::Devices,
        run: lookups::forwarding6,
    },
    Bench {
        name: "l2",
        what: "switching to a million stations, on packets in memory",
        on: On::Devices,
        run: lookups::switching,
    },
    Bench {
        name: "ndn",
        what: "forwarding of Interests by ten million names, on packets in memory",
        on: On::Devices,
        run: lookups::names,
    },
    Bench {
        name: "ipv4-lookup",
        what: "the IPv4 route table alone, addresses drawn from all and below prefixes; peers: rte_lpm and rte_fib bulk lookup",
        on: On::Cpu,
        run: lookup::lookup,
    },
    Bench {
        name: "ipv6-lookup",
        what: "the IPv6 route table alone, 160,147 prefixes of 2025 and 200,000 random ones; peers: rte_fib6 and rte_lpm6 bulk lookup",
        on: On::Cpu,
        run: lookup6::lookup,
    },
    Bench {
        name: "l2-lookup",
        what: "the table of l2 alone, 1,000,000 and 8,000,000 addresses; peer: rte_hash bulk lookup",
        on: On::Cpu,
        run: lookup_mac::lookup,
    },
    Bench {
        name: "ipv4-load",
        what: "reading a file of 1,000,000 random routes and building the table",
        on: On::Cpu,
        run: lookup::load,
    },
    Bench {
        name: "gopt",
        what: "hiding DRAM latency: cuckoo look-up, pointer chase, IPv6 look-up, as written, by gopt, by hand; peer: C++20 coroutines",
        on: On::Cpu,
        run: gopt::run,
    },
    Bench {
        name: "apps",
        what: "whole functions in the engine by number of workers: echo and look-ups, on the CPU and on each device here",
        on: On::Devices,
        run: apps::run,
    },
    Bench {
        name: "patterns",
        what: "23,331 patterns in one automaton and in 60, in the engine: few packets in order, many, sorted by automaton and by length, with and without gopt",
        on: On::Cpu,
        run: apps::patterns,
    },
    Bench {
        name: "lookup-latency",
        what: "from arrival to departure against the load offered, for the functions of apps",
        on: On::Devices,
        run: apps::lookup_latency,
    },
    Bench {
        name: "memaccess",
        what: "what hiding latency is worth by the arithmetic done for each read; peer: C++20 coroutines",
        on: On::Cpu,
        run: gopt::memaccess,
    },
    Bench {
        name: "ipsec",
        what: "ipsec in tunnel mode on packets in memory: any suite (--suite), any number of SAs (--sas), both directions (--decrypt)",
        on: On::Devices,
        run: function::ipsec,
    },
    Bench {
        name: "dpi",
        what: "Aho-Corasick over 10,000 patterns on packets in memory; peer: the aho-corasick crate's DFA",
        on: On::Devices,
        run: function::dpi,
    },
    Bench {
        name: "chain",
        what: "ESP decryption, 10,000 patterns and the route: led from one to the next on the device, or a trip for each, and on all cores",
        on: On::Devices,
        run: chain::run,
    },
    Bench {
        name: "sharing",
        what: "one device for ipsec and dpi, alone, at once, and with groups split between them; and for several threads that feed it",
        on: On::AnyDevice,
        run: sharing::run,
    },
    Bench {
        name: "devices",
        what: "what devices can do with no packets: copy rates by size, launch and mailbox latency, random reads by chains",
        on: On::Devices,
        run: devices::run,
    },
    Bench {
        name: "latency",
        what: "one batch of 32 packets, submit to completion: ESP encryption, and copying them alone",
        on: On::AnyDevice,
        run: latency::run,
    },
    Bench {
        name: "scheduling",
        what: "PIPSEA's bins: grouping, sorting, chunk size by number of bins, length granularity, of six variants at random, against none of it",
        on: On::AnyDevice,
        run: scheduling::run,
    },
];

/// Runs the bench called `name`.
///
/// # Errors
/// There is no such bench or device, or a competitor gave a wrong answer.
pub fn run(name: &str, options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let bench = BENCHES.iter().find(|bench| bench.name == name).ok_or_else(|| Error::Unknown {
        what: "bench",
        name: name.to_owned(),
        known: BENCHES.iter().map(|bench| bench.name.to_owned()).collect(),
    })?;
    let devices = options.devices();
    if let Some(device) = devices.iter().find(|device| !godwit_device::is_id(device)) {
        return Err(Error::Setup(format!("device `{device}`: a device is `cpu`, `opencl:0`, `cuda:0` or the like")));
    }
    if let Some(twice) = devices.iter().enumerate().find(|(at, device)| devices[..*at].contains(device)) {
        return Err(Error::Setup(format!("device `{}` is named twice", twice.1)));
    }
    let refused = match bench.on {
        On::Cpu => options.device() != cpu::ID,
        On::AnyDevice => devices.len() > 1,
        On::Devices => false,
    };
    if refused {
        let where_it_runs =
            if bench.on == On::Cpu { format!("the CPU only ({})", cpu::ID) } else { "one device at a time".to_owned() };
        let device = options.device();
        return Err(Error::Setup(format!("device `{device}`: the bench `{name}` runs on {where_it_runs}")));
    }
    if options.figures && name != "ipsec" {
        return Err(Error::Setup(format!("the bench `{name}` draws no figures: --figures is for the bench ipsec")));
    }
    if options.together && !["ipsec", "gateway"].contains(&name) {
        return Err(Error::Setup(format!(
            "the bench `{name}` has no CPU beside a device: --together is for the benches ipsec and gateway"
        )));
    }
    (bench.run)(options, progress)
}

/// The median and the 99th percentile of times in nanoseconds, both in the unit given.
fn median_p99(times_ns: &mut [f64]) -> (f64, f64) {
    if times_ns.is_empty() {
        return (0.0, 0.0);
    }
    times_ns.sort_by(f64::total_cmp);
    let at = |share: f64| times_ns[((times_ns.len() - 1) as f64 * share).round() as usize];
    (at(0.5), at(0.99))
}
