//! Builds reports of a run.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use godwit_io::PortCounters;

use crate::control::health::Health;
use crate::control::ports::Ports;
use crate::observe::counters::{
    BINS, BUSY_NS, BYTES, CREATED, DEVICE_CHUNKS, DEVICE_ENERGY, DEVICE_PACKETS, DROPPED, IN_FLIGHT, MERGED, PACKETS,
    RECEIVED, SENT, SETTLED,
};
use crate::observe::histogram::Figures as _;
use crate::observe::power::Power;
use crate::observe::report::{Conservation, FunctionReport, LostDevice, PortReport, RecentReport, Report};
use crate::observe::view::{History, RECENT_INTERVALS, Snapshot, WorkerView};
use crate::path::Finished;
use crate::place::LAST_RESORT;
use crate::place::devices::DeviceView;
use crate::place::failover::DeviceLoss;
use crate::place::monitor::Monitor;
use crate::plan::chain_plan::ChainPlan;

pub(crate) struct Reporter {
    pub(crate) names: Names,
    pub(crate) devices: Vec<DeviceView>,
    pub(crate) plan: Arc<ChainPlan>,
    pub(crate) workers: Vec<WorkerView>,
    pub(crate) placement: Option<Arc<Monitor>>,
}

/// Configured names of ports and functions, for reports.
pub(crate) struct Names {
    pub(crate) ports: Vec<(String, &'static str)>,
    pub(crate) functions: Vec<String>,
}

impl Reporter {
    /// Reads the current values of all workers. After the run, `finished` contains their results.
    pub(crate) fn snapshot(
        &self,
        elapsed: Duration,
        finished: Option<&[Finished]>,
        ports: &Ports,
        power: &Power,
    ) -> Snapshot {
        let counted = ports.counters(&self.workers, finished.is_some());
        Snapshot::new(elapsed, &self.workers, counted, power.joules().collect())
    }

    /// Returns the report of the run. After the run, `finished` contains the results of the
    /// workers. During the run, `history` provides the data of the last seconds.
    pub(crate) fn report(
        &self,
        elapsed: Duration,
        finished: Option<&[Finished]>,
        ports: &Ports,
        power: &Power,
        health: &Health,
        history: &History,
    ) -> Report {
        let layout = &self.plan.layout;
        let mut now = self.snapshot(elapsed, finished, ports, power);
        for (device, joules) in now.joules.iter().enumerate() {
            // The energy counter has the unit microjoule.
            now.values[layout.device(device, DEVICE_ENERGY)] = (joules.unwrap_or(0.0) * 1e6) as u64;
        }
        let values = &now.values;
        let elapsed_s = elapsed.as_secs_f64();
        let recent = RECENT_INTERVALS.iter().filter(|_| finished.is_none()).filter_map(|&intervals| {
            let (from, to) = history.recent(intervals)?;
            Some(RecentReport::new(&self.plan, from, to))
        });
        Report {
            elapsed_s,
            workers: self.workers.len(),
            ports: self.ports(&now.ports, ports),
            functions: (0..self.plan.stages.len()).map(|function| self.function(function, &now, finished)).collect(),
            power: power.reports(elapsed_s, |device| {
                [DEVICE_PACKETS, DEVICE_CHUNKS].map(|counter| values[layout.device(device, counter)])
            }),
            lost_devices: self.lost_devices(),
            placement: self.placement.as_ref().map(|monitor| monitor.report()),
            health: health.report(),
            latency: now.latency.latency(),
            distribution: now.latency.distribution(),
            conservation: Conservation {
                received: values[RECEIVED],
                sent: values[SENT],
                dropped: values[DROPPED],
                created: values[CREATED],
                merged: values[MERGED],
                in_flight: values[IN_FLIGHT],
            },
            worker_busy: now.worked_ns.iter().map(|&ns| (ns as f64 / 1e9 / elapsed_s.max(1e-9)).min(1.0)).collect(),
            recent: recent.collect(),
            counters: self.counters(&now),
        }
    }

    /// Returns the names and values of all counters.
    fn counters(&self, now: &Snapshot) -> Vec<(String, u64)> {
        let mut counters = self.plan.layout.named(&now.values);
        for (index, (stage, name)) in self.plan.stages.iter().zip(&self.names.functions).enumerate() {
            let contract = stage.function.contract();
            let own_counts = stage.function.operate().map(|part| part.counts()).unwrap_or_default();
            let counts = self.kernel_counts(index).into_iter().chain(own_counts);
            let counted = contract.counters.iter().zip(counts);
            counters.extend(
                counted.map(|(counter, count)| {
                    (format!("{}_{}{{function=\"{name}\"}}", contract.kind, counter.name), count)
                }),
            );
        }
        for ((name, _), port) in self.names.ports.iter().zip(&now.ports) {
            counters.extend(port.iter().map(|(spec, value)| (format!("port_{}{{port=\"{name}\"}}", spec.name), value)));
        }
        counters
    }

    /// Returns the kernel counters of a function, summed over all devices.
    fn kernel_counts(&self, function: usize) -> Vec<u64> {
        let mut sums = vec![0; self.plan.stages[function].function.contract().kernel_counters.count];
        if !sums.is_empty() {
            for device in &self.devices {
                sums.iter_mut().zip(device.opened.counters(function)).for_each(|(sum, count)| *sum += count);
            }
        }
        sums
    }

    fn lost_devices(&self) -> Vec<LostDevice> {
        let lists: Vec<Vec<DeviceLoss>> = self
            .workers
            .iter()
            .map(|worker| worker.lost.lock().unwrap_or_else(PoisonError::into_inner).clone())
            .collect();
        let loss_of = |device: usize| {
            let lost: Vec<_> = lists.iter().flatten().filter(|lost| lost.device == device).collect();
            let first = lost.first()?;
            Some(LostDevice {
                device: self.devices[device].id.clone(),
                reason: first.reason.clone(),
                workers: lost.len(),
                packets: lost.iter().map(|lost| lost.packets).sum(),
                moved_to: self.devices[LAST_RESORT].id.clone(),
            })
        };
        (0..self.devices.len()).filter_map(loss_of).collect()
    }

    fn ports(&self, counters: &[PortCounters], ports: &Ports) -> Vec<PortReport> {
        let named = self.names.ports.iter().enumerate();
        named
            .map(|(index, (name, kind))| {
                let count = counters.get(index).copied().unwrap_or_default();
                let received = ["received_packets", "received_bytes"];
                let missing = godwit_io::RECEIVE_COUNTERS
                    .iter()
                    .zip(count.receive_values())
                    .filter(|(spec, value)| *value > 0 && !received.contains(&spec.name));
                PortReport {
                    name: name.clone(),
                    kind,
                    is_up: ports.is_up(index),
                    received_packets: count.received_packets,
                    received_bytes: count.received_bytes,
                    sent_packets: count.sent_packets,
                    sent_bytes: count.sent_bytes,
                    digest: ports.digest(index),
                    probes: ports.probes(index),
                    passed_over: missing.map(|(spec, value)| (spec.name.to_owned(), value)).collect(),
                }
            })
            .collect()
    }

    fn function(&self, function: usize, now: &Snapshot, finished: Option<&[Finished]>) -> FunctionReport {
        let (elapsed_s, values) = (now.elapsed.as_secs_f64(), &now.values);
        let stage = &self.plan.stages[function];
        let contract = stage.function.contract();
        let mut devices: Vec<usize> =
            finished.unwrap_or_default().iter().map(|worker| worker.placement[function]).collect();
        devices.sort_unstable_by(|one, other| other.cmp(one));
        devices.dedup();
        // The report lists all devices of the function, even those that processed no packet.
        if devices.is_empty() || stage.devices.len() > 1 {
            devices.extend(stage.devices.iter().rev().filter(|&device| !devices.contains(device)).collect::<Vec<_>>());
        }
        let describe = |text: &dyn Fn(&DeviceView) -> String| {
            devices.iter().map(|&device| text(&self.devices[device])).collect::<Vec<_>>().join(", ")
        };
        let at = |counter| values[stage.counters.plain(counter)];
        let (packets, bytes, bins) = (at(PACKETS), at(BYTES), at(BINS));
        let ratio = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let verdicts = contract.verdicts.iter().enumerate();
        let drops = contract.drops.iter().enumerate();
        FunctionReport {
            name: self.names.functions[function].clone(),
            kind: contract.kind,
            device: describe(&|device| device.id.clone()),
            mode: describe(&|device| device.mode.name().to_owned()),
            implementation: describe(&|device| device.choices[function].form.clone()),
            packets,
            settled: at(SETTLED),
            bytes,
            mpps: ratio(packets as f64, elapsed_s) / 1e6,
            gbps: ratio(bytes as f64 * 8.0, elapsed_s) / 1e9,
            latency: now.function_latency[function].latency(),
            distribution: now.function_latency[function].distribution(),
            batch_fill: ratio(packets as f64, bins as f64 * self.devices[stage.devices[0]].bin_packets as f64),
            busy_ns_per_packet: ratio(at(BUSY_NS) as f64, packets as f64),
            verdicts: verdicts
                .map(|(number, verdict)| (verdict.name.to_owned(), values[stage.counters.verdict(number as u8)]))
                .collect(),
            drops: drops
                .map(|(number, drop)| (drop.name.to_owned(), values[stage.counters.drop(number as u8)]))
                .filter(|(_, count)| *count > 0)
                .collect(),
            tables: stage.function.operate().map(|part| part.tables()).unwrap_or_default(),
        }
    }
}
