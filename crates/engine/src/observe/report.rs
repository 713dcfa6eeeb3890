//! Report of a run, for tables, JSON output and tests.

use godwit_io::synthetic::ProbeReport;
use serde::{Serialize, Serializer};

/// Report of a run, which may still continue. Times are in nanoseconds unless stated otherwise.
/// Frame sizes are in bytes without FCS.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Duration of the run, in seconds.
    pub elapsed_s: f64,
    /// Number of worker threads.
    pub workers: usize,
    /// Ports, in the order of the configuration.
    pub ports: Vec<PortReport>,
    /// Functions, in the order of the configuration.
    pub functions: Vec<FunctionReport>,
    /// Energy of the CPU, and of every other device that runs packet functions.
    pub power: Vec<PowerReport>,
    /// Devices that were lost during the run.
    pub lost_devices: Vec<LostDevice>,
    /// Placement of the functions. The value is `None` if the configuration has no placement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<PlacementReport>,
    /// Threads that have stopped working.
    pub health: HealthReport,
    /// Time from a packet's arrival to its departure, over all sent packets. The value is `None` if
    /// no packet was sent.
    pub latency: Option<Latency>,
    /// Totals that account for every packet of the run.
    pub conservation: Conservation,
    /// Numbers of packets by latency.
    #[serde(skip)]
    pub distribution: Distribution,
    /// Fraction of the run in which each worker was busy, 0 to 1. A worker is busy in loop
    /// iterations that move a packet.
    pub worker_busy: Vec<f64>,
    /// Rates and latencies of the last seconds, for each period. The list is empty in the first
    /// second and at the end of the run.
    pub recent: Vec<RecentReport>,
    /// Name and value of every counter. The names are listed in `docs/counters.md`.
    #[serde(serialize_with = "as_map")]
    pub counters: Vec<(String, u64)>,
}

/// Threads that have stopped working.
#[derive(Clone, Debug, Default, Serialize)]
pub struct HealthReport {
    /// Numbers of the workers that completed no loop iteration in the last ten seconds.
    pub hung_workers: Vec<usize>,
    /// Names of the functions whose periodic work ended because of a bug. The routes, neighbours
    /// and addresses of these functions no longer change.
    pub disabled_housekeeping: Vec<String>,
}

impl HealthReport {
    /// Returns whether all threads work.
    pub fn is_well(&self) -> bool {
        self.hung_workers.is_empty() && self.disabled_housekeeping.is_empty()
    }
}

/// Counts of packets and bytes of one port.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PortReport {
    /// Configured name of the port.
    pub name: String,
    /// Kind of the port, such as `synthetic` or `pcap`. In a replay, all ports are of kind `pcap`.
    pub kind: &'static str,
    /// Whether the link is up. The value is `None` if the port has no link.
    pub is_up: Option<bool>,
    /// Number of packets received.
    pub received_packets: u64,
    /// Number of bytes received.
    pub received_bytes: u64,
    /// Number of packets sent.
    pub sent_packets: u64,
    /// Number of bytes sent.
    pub sent_bytes: u64,
    /// Number of packets that the port skipped, for each reason.
    #[serde(serialize_with = "as_map")]
    pub passed_over: Vec<(String, u64)>,
    /// Statistics of the probe packets that the port generates (`probe = true`). They exist only at
    /// the end of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probes: Option<ProbeReport>,
    /// Digest of all sent frames, independent of their order. It requires the port setting `digest
    /// = true`.
    pub digest: Option<u64>,
}

/// A device that workers no longer use, because it was lost or failed repeatedly.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LostDevice {
    /// Configured name of the device.
    pub device: String,
    /// Reason for the loss of the device, as the first worker reported it.
    pub reason: String,
    /// Number of workers that lost the device.
    pub workers: usize,
    /// Number of packets that were dropped because the device was lost.
    pub packets: u64,
    /// Name of the device that took over the functions.
    pub moved_to: String,
}

/// Placement of the functions, and the decisions that led to it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PlacementReport {
    /// Name of the policy.
    pub policy: &'static str,
    /// Limit of the policy, as the operator wrote it.
    pub under: Option<String>,
    /// Rule by which placements are chosen: `gain` or `thesis`.
    pub rule: &'static str,
    /// Number of the placement. It counts the changes since the start.
    pub number: u64,
    /// The placement as text, as `godwit policy hold` accepts it.
    pub placement: String,
    /// Shares of the devices, for each function.
    pub functions: Vec<PlacedFunction>,
    /// Prediction for the placement under the present load.
    pub predicted: Option<PlacementPredicted>,
    /// Measurements of the last 100 ms.
    pub measured: PlacementMeasured,
    /// Latest decision, in one sentence. The planner decides every 10 ms.
    pub latest: String,
    /// The last changes of the placement, the oldest first.
    pub decisions: Vec<PlacementDecision>,
}

/// Devices of one function.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PlacedFunction {
    /// Configured name of the function.
    pub name: String,
    /// Devices with a share.
    pub devices: Vec<PlacedShare>,
    /// Names of the devices that only overloaded workers use.
    pub overflow: Vec<String>,
}

/// Share of a device in the packets of a function.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PlacedShare {
    /// Configured name of the device.
    pub device: String,
    /// Fraction of the function's packets, 0 to 1.
    pub share: f32,
}

/// Predicted effect of a placement.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PlacementPredicted {
    /// Used fraction of the fullest resource. A value above 1 means an overload.
    pub load: f64,
    /// Name of this resource, such as `the cores`.
    pub limit: String,
    /// Number of cores that packets keep busy.
    pub cores: f64,
    /// 99th percentile of the latency.
    pub p99_ns: Option<u64>,
    /// Power of all devices with a meter, in watts.
    pub watts: Option<f64>,
}

/// Measured effect of a placement.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct PlacementMeasured {
    /// Packets per second, counted once for each function.
    pub pps: f64,
    /// Number of cores that packets keep busy.
    pub cores: f64,
    /// Largest 99th percentile of the latency in a function. The value is `None` if there were too
    /// few packets.
    pub p99_ns: Option<u64>,
}

/// A change of the placement.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PlacementDecision {
    /// Time since the start of the run, in seconds.
    pub at_s: f64,
    /// Number of the new placement.
    pub number: u64,
    /// Change and reason in one sentence.
    pub sentence: String,
}

/// Counts and times of one packet function.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FunctionReport {
    /// Configured name of the function.
    pub name: String,
    /// Kind of the function.
    pub kind: &'static str,
    /// Names of the function's devices at the end of the run, separated by commas. After a device
    /// is lost, workers may use different devices.
    pub device: String,
    /// Mode in which the device runs kernels: `launch` or `persistent`.
    pub mode: String,
    /// Name of the compiled kernel version that ran, or `ref` for the reference implementation.
    pub implementation: String,
    /// Number of packets that the kernel processed.
    pub packets: u64,
    /// Number of packets that the function completed on the CPU without its kernel.
    pub settled: u64,
    /// Total length of the frames that the kernel processed, in bytes. Each length is measured
    /// before the kernel runs.
    pub bytes: u64,
    /// Packet rate of the function over the run, in millions of packets per second.
    pub mpps: f64,
    /// Bit rate of the function over the run, in gigabits per second.
    pub gbps: f64,
    /// Time from a packet's arrival at the function to its completion. It includes the wait for a
    /// full batch. The value is `None` if the function processed no packet.
    pub latency: Option<Latency>,
    /// Numbers of packets by latency.
    #[serde(skip)]
    pub distribution: Distribution,
    /// Average fraction of a batch that contains packets, 0 to 1.
    pub batch_fill: f64,
    /// Average processing time of the device per packet, in nanoseconds.
    pub busy_ns_per_packet: f64,
    /// Number of packets for each verdict of the function. Verdicts without packets have the value
    /// 0.
    #[serde(serialize_with = "as_map")]
    pub verdicts: Vec<(String, u64)>,
    /// Number of dropped packets for each drop reason that occurred.
    #[serde(serialize_with = "as_map")]
    pub drops: Vec<(String, u64)>,
    /// Number of entries in each table of the function, such as routes and SAs.
    #[serde(serialize_with = "as_map")]
    pub tables: Vec<(String, u64)>,
}

/// Energy of one device during the run. It includes the idle energy of the device and the energy of
/// other programs. A value is `None` if it is not measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PowerReport {
    /// Configured name of the device.
    pub device: String,
    /// Names of the energy meters, such as `rapl package-0`.
    pub meters: Vec<String>,
    /// Reason why the energy was not measured.
    pub not_measured: Option<String>,
    /// Energy, in joules.
    pub joules: Option<f64>,
    /// Average power, in watts.
    pub watts: Option<f64>,
    /// Energy per processed packet, in joules. A packet counts once for each function that
    /// processed it.
    pub joules_per_packet: Option<f64>,
    /// Energy per submission to the device, in joules.
    pub joules_per_chunk: Option<f64>,
}

fn as_map<S: Serializer>(pairs: &[(String, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, count)| (name, count)))
}

/// Numbers of packets by latency.
#[derive(Clone, Debug, Default)]
pub struct Distribution {
    /// Pairs of a latency in nanoseconds and the number of packets with at most this latency.
    pub buckets: Vec<(u64, u64)>,
    /// Number of packets.
    pub total: u64,
    /// Sum of the latencies, in nanoseconds.
    pub sum_ns: u64,
}

/// Latency figures, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Latency {
    /// Median latency.
    pub p50_ns: u64,
    /// 99th percentile of the latency.
    pub p99_ns: u64,
    /// Maximum latency.
    pub max_ns: u64,
}

/// Packet totals of a run. At any time, received + created = sent + dropped + merged + in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Conservation {
    /// Number of packets that ports received.
    pub received: u64,
    /// Number of packets that ports accepted for transmission.
    pub sent: u64,
    /// Number of dropped packets.
    pub dropped: u64,
    /// Number of packets that functions created, such as fragments after the first one.
    pub created: u64,
    /// Number of packets that functions merged into other packets. Reassembly merges all fragments
    /// except one.
    pub merged: u64,
    /// Number of packets in the engine now: in a packet buffer, or held by a function.
    pub in_flight: u64,
}

impl Conservation {
    /// Returns whether every packet is accounted for.
    pub fn holds(&self) -> bool {
        self.received + self.created == self.sent + self.dropped + self.merged + self.in_flight
    }
}

impl std::fmt::Display for Conservation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { received, sent, dropped, created, merged, in_flight } = self;
        // These two terms are usually zero and are then omitted.
        let some = |count: &u64, what: &str| if *count > 0 { format!(" + {what} {count}") } else { String::new() };
        let (created, merged) = (some(created, "created"), some(merged, "merged"));
        let verdict = if self.holds() { "conserved" } else { "NOT CONSERVED: this is a bug, please report it" };
        write!(
            f,
            "received {received}{created} = sent {sent} + dropped {dropped}{merged} + in flight {in_flight}: {verdict}"
        )
    }
}

/// Rates and latencies of the last seconds. Rates are per second.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RecentReport {
    /// Length of the period, in seconds.
    pub seconds: f64,
    /// Packets that ports received.
    pub received_pps: f64,
    /// Packets that ports accepted for transmission.
    pub sent_pps: f64,
    /// Packets that were dropped.
    pub dropped_pps: f64,
    /// Time from arrival to departure of the packets that departed in the period. The value is
    /// `None` if no packet departed.
    pub latency: Option<Latency>,
    /// Fraction of the period in which each worker was busy, 0 to 1.
    pub worker_busy: Vec<f64>,
    /// Ports, in the order of the configuration.
    pub ports: Vec<RecentPort>,
    /// Functions, in the order of the configuration.
    pub functions: Vec<RecentFunction>,
    /// Average power of each device in watts. The devices have the same order as in the field
    /// `power` of the full report. An element is `None` if the power is not measured.
    pub watts: Vec<Option<f64>>,
}

/// Rates of one port.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RecentPort {
    /// Packets received.
    pub received_pps: f64,
    /// Bits received.
    pub received_bps: f64,
    /// Packets sent.
    pub sent_pps: f64,
    /// Bits sent.
    pub sent_bps: f64,
}

/// Rates and latencies of one packet function.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RecentFunction {
    /// Packets that the kernel processed.
    pub pps: f64,
    /// Bits of these packets.
    pub bps: f64,
    /// Packets that the function completed on the CPU without its kernel.
    pub settled_pps: f64,
    /// Packets that the function dropped.
    pub dropped_pps: f64,
    /// Time from a packet's arrival at the function to its completion. The value is `None` if the
    /// function processed no packet.
    pub latency: Option<Latency>,
    /// Time for which devices worked on the function, as a fraction of the period. The sum over
    /// several devices can exceed 1.
    pub busy: f64,
}
