//! Builds reports of a run.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use godwit_io::PortCounters;

use crate::control::health::Health;
use crate::control::ports::Ports;
use crate::observe::counters::{
    self, BINS, BUSY_NS, BYTES, CREATED, DEVICE_CHUNKS, DEVICE_ENERGY, DEVICE_PACKETS, DROPPED, IN_FLIGHT, MERGED,
    PACKETS, RECEIVED, SENT,
};
use crate::observe::histogram::{Figures as _, Histogram};
use crate::observe::power::Power;
use crate::observe::report::{Conservation, FunctionReport, LostDevice, PortReport, Report};
use crate::path::Finished;
use crate::place::LAST_RESORT;
use crate::place::devices::DeviceView;
use crate::plan::chain_plan::ChainPlan;

/// Creates reports of the run from counters, names and plan.
pub(crate) struct Reporter {
    pub(crate) names: Names,
    pub(crate) devices: Vec<DeviceView>,
    pub(crate) plan: Arc<ChainPlan>,
}

/// Configured names of ports and functions, for reports.
pub(crate) struct Names {
    pub(crate) ports: Vec<(String, &'static str)>,
    pub(crate) functions: Vec<String>,
}

impl Reporter {
    /// Returns the report of the run. If `finished` contains the results of the workers, the report
    /// covers the complete run.
    pub(crate) fn report(
        &self,
        elapsed: Duration,
        shared: &[Arc<[AtomicU64]>],
        finished: Option<&[Finished]>,
        ports: &Ports,
        power: &Power,
        health: &Health,
    ) -> Report {
        let layout = &self.plan.layout;
        let mut values = counters::sum(shared, layout.len());
        for (device, joules) in power.joules().enumerate() {
            // The energy counter has the unit microjoule.
            values[layout.device(device, DEVICE_ENERGY)] = (joules.unwrap_or(0.0) * 1e6) as u64;
        }
        let elapsed_s = elapsed.as_secs_f64();
        let mut latency = Histogram::default();
        finished.unwrap_or_default().iter().for_each(|worker| latency.merge(&worker.latency));
        let port_counters = ports.counters(finished);
        let mut counters = layout.named(&values);
        for (stage, name) in self.plan.stages.iter().zip(&self.names.functions) {
            let contract = stage.function.contract();
            let counted = contract.counters.iter().zip(stage.function.counts()).filter(|(_, count)| *count > 0);
            counters.extend(
                counted.map(|(counter, count)| {
                    (format!("{}_{}{{function=\"{name}\"}}", contract.kind, counter.name), count)
                }),
            );
        }
        for ((name, _), port) in self.names.ports.iter().zip(&port_counters) {
            let shown = port.iter().filter(|(_, value)| *value > 0);
            counters.extend(shown.map(|(spec, value)| (format!("port_{}{{port=\"{name}\"}}", spec.name), value)));
        }
        Report {
            elapsed_s,
            workers: shared.len(),
            ports: self.ports(&port_counters, ports),
            functions: (0..self.plan.stages.len())
                .map(|function| self.function(function, elapsed_s, &values, finished))
                .collect(),
            power: power.reports(elapsed_s, |device| {
                [DEVICE_PACKETS, DEVICE_CHUNKS].map(|counter| values[layout.device(device, counter)])
            }),
            lost_devices: self.lost_devices(finished.unwrap_or_default()),
            health: health.report(),
            latency: latency.latency(),
            conservation: Conservation {
                received: values[RECEIVED],
                sent: values[SENT],
                dropped: values[DROPPED],
                created: values[CREATED],
                merged: values[MERGED],
                in_flight: values[IN_FLIGHT],
            },
            counters,
        }
    }

    fn lost_devices(&self, finished: &[Finished]) -> Vec<LostDevice> {
        let loss_of = |device: usize| {
            let lost: Vec<_> =
                finished.iter().flat_map(|worker| &worker.lost).filter(|lost| lost.device == device).collect();
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

    fn function(
        &self,
        function: usize,
        elapsed_s: f64,
        values: &[u64],
        finished: Option<&[Finished]>,
    ) -> FunctionReport {
        let stage = &self.plan.stages[function];
        let contract = stage.function.contract();
        let mut devices: Vec<usize> =
            finished.unwrap_or_default().iter().map(|worker| worker.placement[function]).collect();
        devices.sort_unstable_by(|one, other| other.cmp(one));
        devices.dedup();
        // The report of a function with several devices lists all of them, even those without a
        // packet.
        if devices.is_empty() || stage.devices.len() > 1 {
            devices.extend(stage.devices.iter().rev().filter(|&device| !devices.contains(device)).collect::<Vec<_>>());
        }
        let describe = |text: &dyn Fn(&DeviceView) -> String| {
            devices.iter().map(|&device| text(&self.devices[device])).collect::<Vec<_>>().join(", ")
        };
        let at = |counter| values[stage.counters.plain(counter)];
        let (packets, bytes, bins) = (at(PACKETS), at(BYTES), at(BINS));
        let mut latency = Histogram::default();
        finished.unwrap_or_default().iter().for_each(|worker| latency.merge(&worker.function_latency[function]));
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
            bytes,
            mpps: ratio(packets as f64, elapsed_s) / 1e6,
            gbps: ratio(bytes as f64 * 8.0, elapsed_s) / 1e9,
            latency: latency.latency(),
            batch_fill: ratio(packets as f64, bins as f64 * self.devices[stage.devices[0]].bin_packets as f64),
            busy_ns_per_packet: ratio(at(BUSY_NS) as f64, packets as f64),
            verdicts: verdicts
                .map(|(number, verdict)| (verdict.name.to_owned(), values[stage.counters.verdict(number as u8)]))
                .collect(),
            drops: drops
                .map(|(number, drop)| (drop.name.to_owned(), values[stage.counters.drop(number as u8)]))
                .filter(|(_, count)| *count > 0)
                .collect(),
        }
    }
}
