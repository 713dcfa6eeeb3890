//! What a run says of itself: for tables, for JSON, for tests.

use godwit_io::synthetic::ProbeReport;
use serde::{Serialize, Serializer};

/// A whole run, or a run so far. Times in nanoseconds, sizes in bytes (frames without FCS).
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// How long packets were flowing, seconds.
    pub elapsed_s: f64,
    /// Worker threads.
    pub workers: usize,
    /// One per port, in the order of the configuration.
    pub ports: Vec<PortReport>,
    /// One per function, in the order of the configuration.
    pub functions: Vec<FunctionReport>,
    /// One for the CPU, and one for each other device that functions are placed on.
    pub power: Vec<PowerReport>,
    /// Devices that were lost while packets were flowing, with all that they had to do placed elsewhere.
    pub lost_devices: Vec<LostDevice>,
    /// From arrival to departure, over all packets sent; `None` when none was.
    pub latency: Option<Latency>,
    /// Where every packet went.
    pub conservation: Conservation,
    /// Every counter that is not zero: (name, value), names as in `docs/counters.md`.
    #[serde(serialize_with = "as_map")]
    pub counters: Vec<(String, u64)>,
}

/// What went through one port.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PortReport {
    /// Its configured name.
    pub name: String,
    /// `synthetic`, `pcap`.
    pub kind: &'static str,
    /// Packets and bytes taken in.
    pub received_packets: u64,
    /// Bytes taken in.
    pub received_bytes: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Packets that the port passed over and never brought in: (reason, count).
    #[serde(serialize_with = "as_map")]
    pub passed_over: Vec<(String, u64)>,
    /// What became of the packets that it made, where they say which they are (`probe = true`). Only at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probes: Option<ProbeReport>,
    /// Order-independent digest of all frames sent, where the port was asked for one (`digest = true`).
    pub digest: Option<u64>,
}

/// A device that was lost, or given up because it failed again and again.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LostDevice {
    /// Its name.
    pub device: String,
    /// What showed it, as the first worker found it.
    pub reason: String,
    /// Workers that had to do without it.
    pub workers: usize,
    /// Packets that were dropped with it.
    pub packets: u64,
    /// The device that its functions ran on from then on.
    pub moved_to: String,
}

/// What one function did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FunctionReport {
    /// Its configured name.
    pub name: String,
    /// Which function it is.
    pub kind: &'static str,
    /// The device that ran it at the end; several where a device was lost to some workers only, with commas.
    pub device: String,
    /// How bins came to it: `launch` or `persistent`.
    pub mode: String,
    /// The form that ran: `ref` or the level of the kernel.
    pub implementation: String,
    /// Packets that its kernel worked on.
    pub packets: u64,
    /// Their bytes before the kernel.
    pub bytes: u64,
    /// Millions of packets per second of the run.
    pub mpps: f64,
    /// Gigabits per second of the run.
    pub gbps: f64,
    /// Time in the function, waiting in bins included; `None` when it saw no packet.
    pub latency: Option<Latency>,
    /// Packets in a bin, on average, as a share of the bin's size: 0 to 1.
    pub batch_fill: f64,
    /// Nanoseconds that the device worked per packet.
    pub busy_ns_per_packet: f64,
    /// What it said: (verdict, packets), all verdicts.
    #[serde(serialize_with = "as_map")]
    pub verdicts: Vec<(String, u64)>,
    /// Why it dropped: (reason, packets), only reasons that occurred.
    #[serde(serialize_with = "as_map")]
    pub drops: Vec<(String, u64)>,
}

/// What one device took while packets were flowing: all of it, what it takes when idle and what others did there
/// included. `None` where it is not measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PowerReport {
    /// The device.
    pub device: String,
    /// What measured it: `rapl package-0`.
    pub meters: Vec<String>,
    /// Why it was not measured.
    pub not_measured: Option<String>,
    /// Energy.
    pub joules: Option<f64>,
    /// Power, on average.
    pub watts: Option<f64>,
    /// Energy for each packet that a function of this device worked on; a packet counts once for each.
    pub joules_per_packet: Option<f64>,
    /// Energy for each chunk.
    pub joules_per_chunk: Option<f64>,
}

/// Names with counts, as a map in the same order.
fn as_map<S: Serializer>(pairs: &[(String, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, count)| (name, count)))
}

/// A distribution of times, nanoseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Latency {
    /// Half of the packets took no longer.
    pub p50_ns: u64,
    /// 99 % of the packets took no longer.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// received = sent + dropped + in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Conservation {
    /// Packets that came in.
    pub received: u64,
    /// Packets that a port accepted.
    pub sent: u64,
    /// Packets dropped, each with a counted reason.
    pub dropped: u64,
    /// Packets that functions made.
    pub created: u64,
    /// Packets that functions joined to others.
    pub merged: u64,
    /// Packets that still have a buffer of the arena, or are held by a function.
    pub in_flight: u64,
}

impl Conservation {
    /// Whether every packet is accounted for.
    pub fn holds(&self) -> bool {
        self.received + self.created == self.sent + self.dropped + self.merged + self.in_flight
    }
}

impl std::fmt::Display for Conservation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { received, sent, dropped, created, merged, in_flight } = self;
        // Nearly always there are none.
        let some = |count: &u64, what: &str| if *count > 0 { format!(" + {what} {count}") } else { String::new() };
        let (created, merged) = (some(created, "created"), some(merged, "merged"));
        let verdict = if self.holds() { "conserved" } else { "NOT CONSERVED: this is a bug, please report it" };
        write!(
            f,
            "received {received}{created} = sent {sent} + dropped {dropped}{merged} + in flight {in_flight}: {verdict}"
        )
    }
}
