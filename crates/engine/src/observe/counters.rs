//! Defines the counters of the engine, and stores their values for each worker.
//!
//! A worker counts in memory that no other thread reads. It copies the values to shared memory once
//! per loop iteration. Packets therefore never wait for memory that other threads use.

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
    /// Counters of a worker.
    WORKER_COUNTERS:
    RECEIVED = "engine_received", Total, "packets", "Packets received by ports.";
    SENT = "engine_sent", Total, "packets", "Packets that a port accepted for transmission.";
    DROPPED = "engine_dropped", Total, "packets", "Packets dropped. Each also counts under its reason.";
    DROPPED_CHAIN = "engine_dropped_chain", Total, "packets", "Packets that the chain sends to `drop`.";
    DROPPED_UNROUTED = "engine_dropped_unrouted", Total, "packets", "Packets dropped because the chain has no entry for them.";
    DROPPED_STATION = "engine_dropped_station", Total, "packets", "Packets of frames to other stations, which a router does not forward.";
    DROPPED_OWN_SOURCE = "engine_dropped_own_source", Total, "packets", "Packets from an IP address of the router itself.";
    DROPPED_EXCHANGE = "engine_dropped_exchange", Total, "packets", "Packets for which the ring to the worker that owns their state had no room.";
    DROPPED_PORT = "engine_dropped_port", Total, "packets", "Packets dropped because their egress port does not exist or does not transmit.";
    DROPPED_REFUSED = "engine_dropped_refused", Total, "packets", "Packets that a port refused to transmit.";
    DROPPED_FLOOD = "engine_dropped_flood", Total, "packets", "Copies of flooded packets for which no buffer was free, and flooded packets whose port set contains only their ingress port.";
    DROPPED_DEVICE = "engine_dropped_device", Total, "packets", "Packets dropped because a device failed to finish their chunk.";
    DROPPED_DEVICE_LOST = "engine_dropped_device_lost", Total, "packets", "Packets dropped because their device was lost.";
    EXCHANGED = "engine_exchanged", Total, "packets", "Packets that a worker passed to the worker that owns their state, such as an SA.";
    CREATED = "engine_created", Total, "packets", "Packets created: fragments after the first, keepalives, copies of flooded packets.";
    MERGED = "engine_merged", Total, "packets", "Packets joined to others: all fragments of a packet except one.";
    HELD = "engine_held", Level, "packets", "Packets that a function holds until others arrive.";
    IN_FLIGHT = "engine_in_flight", Level, "packets", "Packets in a buffer of the arena or held by a function.";
    LOOPS = "engine_loops", Total, "loops", "Iterations of the worker's loop.";
    IDLE_LOOPS = "engine_idle_loops", Total, "loops", "Iterations that moved no packet.";
    WORKED_NS = "engine_busy_ns", Total, "nanoseconds", "Time of the iterations that moved a packet, including time in which the operating system ran other threads on the core.";
}

table! {
    /// Counters of every packet function. Counters for verdicts and drop reasons follow.
    FUNCTION_COUNTERS:
    PACKETS = "packets", Total, "packets", "Packets that the kernel processed.";
    BYTES = "bytes", Total, "bytes", "Bytes of these packets before the kernel, without FCS.";
    SETTLED = "settled", Total, "packets", "Packets that the host half completed without the kernel.";
    BINS = "bins", Total, "bins", "Bins that a device finished.";
    BUSY_NS = "busy_ns", Total, "nanoseconds", "Time that devices worked on the bins. CPU, and CUDA in launch mode: the time of each bin, even if bins overlap. OpenCL in launch mode: the bin's share of its chunk's time. Persistent mode: the time from the earliest possible start of the bin until the worker sees it finished.";
}

table! {
    /// Counters of every device that runs functions.
    DEVICE_COUNTERS:
    DEVICE_PACKETS = "packets", Total, "packets", "Packets submitted to the device, once for each function that it ran on them.";
    DEVICE_CHUNKS = "chunks", Total, "chunks", "Chunks submitted to the device.";
    DEVICE_MOVED_TO = "moved_to", Total, "bytes", "Bytes copied to the device, including all metadata of chunks. Absent if the device works on the host's memory.";
    DEVICE_MOVED_BACK = "moved_back", Total, "bytes", "Bytes copied back from the device.";
    DEVICE_ENERGY = "energy", Total, "microjoules", "Energy of the device during the run, including its idle energy and the work of other programs. Absent if it is not measured.";
}

/// Layout of a worker's counters. It assigns an array index to each counter.
#[derive(Debug)]
pub(crate) struct CounterLayout {
    names: Vec<String>,
    functions: Vec<FunctionLayout>,
    /// Index of the first counter of the first device.
    devices: usize,
}

/// Indices of the counters of one packet function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FunctionLayout {
    base: usize,
    verdicts: usize,
    drops: usize,
}

impl FunctionLayout {
    /// Returns the index of a counter in [`FUNCTION_COUNTERS`] for this function.
    pub(crate) fn plain(&self, counter: usize) -> usize {
        self.base + counter
    }

    /// Returns the index of a verdict's counter. An undeclared verdict is a kernel bug, and counts
    /// as the last declared verdict.
    #[inline]
    pub(crate) fn verdict(&self, verdict: u8) -> usize {
        self.base + FUNCTION_COUNTERS.len() + usize::from(verdict).min(self.verdicts - 1)
    }

    /// Returns the index of the counter of a drop reason.
    #[inline]
    pub(crate) fn drop(&self, reason: u8) -> usize {
        debug_assert!(usize::from(reason) < self.drops, "drop reason {reason} is not in the contract");
        self.base + FUNCTION_COUNTERS.len() + self.verdicts + usize::from(reason).min(self.drops.saturating_sub(1))
    }
}

impl CounterLayout {
    /// Creates the layout of the counters. `functions` contains the name and contract of each
    /// function. `devices` contains the name of each device.
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
            names.extend(contract.verdicts.iter().map(|verdict| label(&format!("verdict_{}", verdict.name))));
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

    /// Returns the index of a counter in [`DEVICE_COUNTERS`] for a device.
    #[inline]
    pub(crate) fn device(&self, index: usize, counter: usize) -> usize {
        self.devices + index * DEVICE_COUNTERS.len() + counter
    }

    /// Returns the name of a counter.
    pub(crate) fn name(&self, counter: usize) -> &str {
        &self.names[counter]
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns the names and values of all counters. Optional device counters are omitted while
    /// they are zero.
    pub(crate) fn named(&self, values: &[u64]) -> Vec<(String, u64)> {
        let is_present = |index: usize| index < self.devices || !self.may_be_absent(index);
        let pairs = self.names.iter().zip(values).enumerate();
        let present = pairs.filter(|(index, (_, value))| **value > 0 || is_present(*index));
        present.map(|(_, (name, value))| (name.clone(), *value)).collect()
    }

    fn may_be_absent(&self, index: usize) -> bool {
        let counter = (index - self.devices) % DEVICE_COUNTERS.len();
        [DEVICE_MOVED_TO, DEVICE_MOVED_BACK, DEVICE_ENERGY].contains(&counter)
    }
}

/// Counters of one worker. The worker increments `local`, and other threads read `shared`.
#[derive(Debug)]
pub(crate) struct Counts {
    local: Vec<u64>,
    shared: Arc<[AtomicU64]>,
}

impl Counts {
    pub(crate) fn new(len: usize) -> Self {
        Self { local: vec![0; len], shared: (0..len).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Returns the copy of the counters that other threads read.
    pub(crate) fn shared(&self) -> Arc<[AtomicU64]> {
        Arc::clone(&self.shared)
    }

    #[inline]
    pub(crate) fn add(&mut self, counter: usize, value: u64) {
        self.local[counter] += value;
    }

    /// Returns the worker's own value of a counter.
    pub(crate) fn value(&self, counter: usize) -> u64 {
        self.local[counter]
    }

    pub(crate) fn set(&mut self, counter: usize, value: u64) {
        self.local[counter] = value;
    }

    /// Copies the worker's counters to the memory that other threads read. Values read together may
    /// come from different loop iterations.
    pub(crate) fn publish(&self) {
        for (shared, local) in self.shared.iter().zip(&self.local) {
            shared.store(*local, Ordering::Relaxed);
        }
    }
}

/// Returns the sum of each counter over all workers.
pub(crate) fn sum(workers: &[Arc<[AtomicU64]>], len: usize) -> Vec<u64> {
    let mut total = vec![0; len];
    for worker in workers {
        for (total, value) in total.iter_mut().zip(worker.iter()) {
            *total += value.load(Ordering::Relaxed);
        }
    }
    total
}

/// Returns the text of `docs/counters.md`, which describes all counters.
pub fn document() -> String {
    let mut page = String::from(
        "# Counters\n\nThis page is generated from the tables in the code, and `make test` compares both. Every count is exact and\nbelongs to one entry of the configuration.\n",
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
        all.extend(contract.verdicts.iter().map(|v| (format!("{prefix}verdict_{}", v.name), "packets", v.sentence)));
        all.extend(contract.drops.iter().map(|d| (format!("{prefix}dropped_{}", d.name), "packets", d.sentence)));
        all.extend(contract.counters.iter().map(|c| (format!("{prefix}{}", c.name), c.unit, c.sentence)));
        table(&format!("Function `{}`", contract.kind), all);
    }
    page
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn layout() -> CounterLayout {
        let contract = |name: &str| godwit_function::kind(name).expect("the kind exists").contract;
        let functions = [("first", contract("echo")), ("second", contract("ipv4"))];
        CounterLayout::new(functions.into_iter(), ["cpu", "cuda:0"].into_iter())
    }

    #[test]
    fn every_counter_of_a_function_or_a_device_has_its_own_index_and_name() {
        let layout = layout();
        let (first, second) = (layout.function(0), layout.function(1));
        assert_eq!(layout.name(first.plain(BINS)), "echo_bins{function=\"first\"}");
        assert_eq!(layout.name(second.drop(0)), "ipv4_dropped_truncated{function=\"second\"}");
        assert_eq!(layout.name(layout.device(1, DEVICE_CHUNKS)), "device_chunks{device=\"cuda:0\"}");
        let names: BTreeSet<&str> = (0..layout.len()).map(|counter| layout.name(counter)).collect();
        assert_eq!(names.len(), layout.len());
        // A verdict that the function does not declare counts as its last one.
        assert_eq!(second.verdict(u8::MAX), second.drop(0) - 1);
    }

    #[test]
    fn counters_that_a_device_lacks_are_absent_while_they_are_zero() {
        let layout = layout();
        let mut values = vec![0; layout.len()];
        let has =
            |values: &[u64], counter: usize| layout.named(values).iter().any(|(name, _)| name == layout.name(counter));
        let moved = layout.device(1, DEVICE_MOVED_TO);
        assert!(!has(&values, moved) && has(&values, layout.device(1, DEVICE_CHUNKS)) && has(&values, DROPPED));
        values[moved] = 1;
        assert!(has(&values, moved) && !has(&values, layout.device(0, DEVICE_MOVED_TO)));
    }

    #[test]
    fn counts_reach_other_threads_when_they_are_published() {
        let (mut one, two) = (Counts::new(3), Counts::new(3));
        let shared = [one.shared(), two.shared()];
        one.add(1, 5);
        one.set(2, 7);
        assert_eq!((one.value(1), sum(&shared, 3)), (5, vec![0; 3]));
        one.publish();
        two.publish();
        assert_eq!(sum(&shared, 3), [0, 5, 7]);
    }
}
