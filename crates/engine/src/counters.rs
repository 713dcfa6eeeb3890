//! What the engine counts: declared once here, per worker and per function, kept per worker, read by the control thread.
//!
//! A worker counts in plain memory and publishes now and then; nothing is shared on the packet path.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use godwit_function::Contract;
use godwit_io::{CounterKind, CounterSpec};

macro_rules! table {
    ($(#[$doc:meta])* $table:ident: $($constant:ident = $name:literal, $kind:ident, $unit:literal, $sentence:literal;)*) => {
        table!(@index 0usize; $($constant)*);
        $(#[$doc])*
        pub const $table: &[CounterSpec] = &[
            $(CounterSpec { name: $name, kind: CounterKind::$kind, unit: $unit, sentence: $sentence },)*
        ];
    };
    (@index $next:expr; $constant:ident $($rest:ident)*) => {
        pub(crate) const $constant: usize = $next;
        table!(@index $next + 1; $($rest)*);
    };
    (@index $next:expr;) => {};
}

table! {
    /// What a worker counts.
    WORKER_COUNTERS:
    RECEIVED = "engine_received", Total, "packets", "Packets that came in.";
    SENT = "engine_sent", Total, "packets", "Packets that a port accepted.";
    DROPPED = "engine_dropped", Total, "packets", "Packets dropped, for whatever reason; each also counts under its reason.";
    DROPPED_CHAIN = "engine_dropped_chain", Total, "packets", "Packets that the chain sends to `drop`.";
    DROPPED_UNROUTED = "engine_dropped_unrouted", Total, "packets", "Packets for which the chain names nothing.";
    DROPPED_PORT = "engine_dropped_port", Total, "packets", "Packets for a port that is not there or does not send.";
    DROPPED_REFUSED = "engine_dropped_refused", Total, "packets", "Packets that a port did not accept.";
    DROPPED_FLOOD = "engine_dropped_flood", Total, "packets", "Copies of flooded packets that no buffer was left for, and packets flooded to no port but the one that they came by.";
    DROPPED_DEVICE = "engine_dropped_device", Total, "packets", "Packets that a device took and failed to finish.";
    DROPPED_DEVICE_LOST = "engine_dropped_device_lost", Total, "packets", "Packets in the hands of a device that was lost.";
    CREATED = "engine_created", Total, "packets", "Packets that a function made: fragments but for the first, keepalives; copies of flooded packets.";
    MERGED = "engine_merged", Total, "packets", "Packets that a function joined to others: fragments but for one of each packet.";
    HELD = "engine_held", Level, "packets", "Packets that a function keeps until others come.";
    IN_FLIGHT = "engine_in_flight", Level, "packets", "Packets that have a buffer of the arena, or are held.";
    LOOPS = "engine_loops", Total, "loops", "Turns of the worker's loop.";
    IDLE_LOOPS = "engine_idle_loops", Total, "loops", "Turns that moved no packet.";
    WORKED_NS = "engine_busy_ns", Total, "nanoseconds", "Time that workers spent in turns that moved a packet: what others take of their cores in such a turn included.";
}

table! {
    /// What is counted for every function, besides its verdicts and drop reasons.
    FUNCTION_COUNTERS:
    PACKETS = "packets", Total, "packets", "Packets that the kernel has finished.";
    BYTES = "bytes", Total, "bytes", "Their bytes before the kernel, without FCS.";
    SETTLED = "settled", Total, "packets", "Packets that the host half settled without the kernel.";
    BINS = "bins", Total, "bins", "Bins that were finished.";
    BUSY_NS = "busy_ns", Total, "nanoseconds", "Time that the device worked on them. On the CPU and on CUDA, launched, every bin's own, side by side or not; on OpenCL, launched, its share of its chunk's; in persistent mode the time from when its group could begin with it until the worker saw it finished.";
}

table! {
    /// What is counted for every device that runs functions.
    DEVICE_COUNTERS:
    DEVICE_PACKETS = "packets", Total, "packets", "Packets that were submitted to it, once for each function that it ran on them.";
    DEVICE_CHUNKS = "chunks", Total, "chunks", "Chunks that were submitted to it.";
    DEVICE_MOVED_TO = "moved_to", Total, "bytes", "Bytes that were copied to it, all that chunks need included; absent where it works on the host's memory.";
    DEVICE_MOVED_BACK = "moved_back", Total, "bytes", "Bytes that were copied back from it.";
    DEVICE_ENERGY = "energy", Total, "microjoules", "Energy that it took while packets were flowing, with what it takes when idle and what others did there; absent where it is not measured.";
}

/// Where each counter of a configuration lies in a worker's array.
#[derive(Debug)]
pub(crate) struct CounterLayout {
    names: Vec<String>,
    functions: Vec<FunctionLayout>,
    /// Place of the first counter of the first device.
    devices: usize,
}

/// Where a function's counters lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FunctionLayout {
    base: usize,
    verdicts: usize,
    drops: usize,
}

impl FunctionLayout {
    /// Place of one of [`FUNCTION_COUNTERS`].
    pub(crate) fn plain(&self, counter: usize) -> usize {
        self.base + counter
    }

    /// Place of the count of a verdict. A number beyond the contract is a bug of the kernel and counts as the last.
    #[inline]
    pub(crate) fn verdict(&self, verdict: u8) -> usize {
        self.base + FUNCTION_COUNTERS.len() + usize::from(verdict).min(self.verdicts - 1)
    }

    /// Place of the count of a drop reason.
    #[inline]
    pub(crate) fn drop(&self, reason: u8) -> usize {
        debug_assert!(usize::from(reason) < self.drops, "drop reason {reason} is not in the contract");
        self.base + FUNCTION_COUNTERS.len() + self.verdicts + usize::from(reason).min(self.drops.saturating_sub(1))
    }
}

impl CounterLayout {
    /// `functions`: configured name and contract of each. `devices`: the name of each.
    pub(crate) fn new<'a>(
        functions: impl Iterator<Item = (&'a str, &'static Contract)>,
        devices: impl Iterator<Item = &'a str>,
    ) -> Self {
        let mut names: Vec<String> = WORKER_COUNTERS.iter().map(|spec| spec.name.to_owned()).collect();
        let mut layouts = Vec::new();
        for (name, contract) in functions {
            let kind = contract.kind;
            let base = names.len();
            let label = |counter: &str| format!("{kind}_{counter}{{function=\"{name}\"}}");
            names.extend(FUNCTION_COUNTERS.iter().map(|spec| label(spec.name)));
            names.extend(contract.verdicts.iter().map(|verdict| label(&format!("said_{}", verdict.name))));
            names.extend(contract.drops.iter().map(|drop| label(&format!("dropped_{}", drop.name))));
            layouts.push(FunctionLayout { base, verdicts: contract.verdicts.len(), drops: contract.drops.len() });
        }
        let first = names.len();
        for device in devices {
            names.extend(DEVICE_COUNTERS.iter().map(|spec| format!("device_{}{{device=\"{device}\"}}", spec.name)));
        }
        Self { names, functions: layouts, devices: first }
    }

    pub(crate) fn function(&self, index: usize) -> FunctionLayout {
        self.functions[index]
    }

    /// Place of one of [`DEVICE_COUNTERS`] of a device.
    #[inline]
    pub(crate) fn device(&self, index: usize, counter: usize) -> usize {
        self.devices + index * DEVICE_COUNTERS.len() + counter
    }

    /// The name of the counter at this place.
    pub(crate) fn name(&self, counter: usize) -> &str {
        &self.names[counter]
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// Names with values, zeros left out.
    pub(crate) fn named(&self, values: &[u64]) -> Vec<(String, u64)> {
        let pairs = self.names.iter().zip(values).filter(|(_, value)| **value > 0);
        pairs.map(|(name, value)| (name.clone(), *value)).collect()
    }
}

/// One worker's counters: `counts[i] += n` on the worker, `shared` for everybody else.
#[derive(Debug)]
pub(crate) struct Counts {
    local: Vec<u64>,
    shared: Arc<[AtomicU64]>,
}

impl Counts {
    pub(crate) fn new(len: usize) -> Self {
        Self { local: vec![0; len], shared: (0..len).map(|_| AtomicU64::new(0)).collect() }
    }

    /// What others may read.
    pub(crate) fn shared(&self) -> Arc<[AtomicU64]> {
        Arc::clone(&self.shared)
    }

    #[inline]
    pub(crate) fn add(&mut self, counter: usize, value: u64) {
        self.local[counter] += value;
    }

    /// What was counted so far, here.
    pub(crate) fn value(&self, counter: usize) -> u64 {
        self.local[counter]
    }

    pub(crate) fn set(&mut self, counter: usize, value: u64) {
        self.local[counter] = value;
    }

    /// Shows the current values to the others. Each counter by itself is exact; together they may be of different moments.
    pub(crate) fn publish(&self) {
        for (shared, local) in self.shared.iter().zip(&self.local) {
            shared.store(*local, Ordering::Relaxed);
        }
    }
}

/// The sum over workers of what they published.
pub(crate) fn sum(workers: &[Arc<[AtomicU64]>], len: usize) -> Vec<u64> {
    let mut total = vec![0; len];
    for worker in workers {
        for (total, value) in total.iter_mut().zip(worker.iter()) {
            *total += value.load(Ordering::Relaxed);
        }
    }
    total
}

/// All counters there are, as a page of documentation (`docs/counters.md`).
pub fn document() -> String {
    let mut page = String::from(
        "# Counters\n\nMade from the tables in the code; `make test` compares. Every count is exact and per configuration entry.\n",
    );
    let mut table = |title: &str, rows: Vec<(String, &str, &str)>| {
        page.push_str(&format!("\n## {title}\n\n| counter | unit | meaning |\n|---|---|---|\n"));
        for (name, unit, sentence) in rows {
            page.push_str(&format!("| `{name}` | {unit} | {sentence} |\n"));
        }
    };
    let rows = |specs: &[CounterSpec], prefix: &str| {
        specs.iter().map(|spec| (format!("{prefix}{}", spec.name), spec.unit, spec.sentence)).collect::<Vec<_>>()
    };
    table("Engine", rows(WORKER_COUNTERS, ""));
    table("Devices", rows(DEVICE_COUNTERS, "device_"));
    table("Ports, receiving", rows(godwit_io::RECEIVE_COUNTERS, "port_"));
    table("Ports, sending", rows(godwit_io::TRANSMIT_COUNTERS, "port_"));
    for kind in godwit_function::KINDS {
        let contract = kind.contract;
        let prefix = format!("{}_", contract.kind);
        let mut all = rows(FUNCTION_COUNTERS, &prefix);
        all.extend(contract.verdicts.iter().map(|v| (format!("{prefix}said_{}", v.name), "packets", v.sentence)));
        all.extend(contract.drops.iter().map(|d| (format!("{prefix}dropped_{}", d.name), "packets", d.sentence)));
        all.extend(contract.counters.iter().map(|c| (format!("{prefix}{}", c.name), c.unit, c.sentence)));
        table(&format!("Function `{}`", contract.kind), all);
    }
    page
}
