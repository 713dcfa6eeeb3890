//! Computes rates and latencies of the last seconds for the report of a running engine.

use crate::observe::counters::{BUSY_NS, BYTES, DROPPED, PACKETS, RECEIVED, SENT, SETTLED};
use crate::observe::histogram::Figures as _;
use crate::observe::report::{RecentFunction, RecentPort, RecentReport};
use crate::observe::view::Snapshot;
use crate::plan::chain_plan::ChainPlan;

impl RecentReport {
    /// Computes the rates between two snapshots.
    pub(crate) fn new(plan: &ChainPlan, from: &Snapshot, to: &Snapshot) -> Self {
        let seconds = to.elapsed.saturating_sub(from.elapsed).as_secs_f64();
        let rate = |from: u64, to: u64| if seconds > 0.0 { to.saturating_sub(from) as f64 / seconds } else { 0.0 };
        let counted = |counter: usize| rate(from.values[counter], to.values[counter]);
        let busy = |(from, to): (&u64, &u64)| (rate(*from, *to) / 1e9).min(1.0);
        let port = |(from, to): (&_, &_)| {
            let (from, to): (&godwit_io::PortCounters, &godwit_io::PortCounters) = (from, to);
            RecentPort {
                received_pps: rate(from.received_packets, to.received_packets),
                received_bps: 8.0 * rate(from.received_bytes, to.received_bytes),
                sent_pps: rate(from.sent_packets, to.sent_packets),
                sent_bps: 8.0 * rate(from.sent_bytes, to.sent_bytes),
            }
        };
        let watts = |(from, to): (&Option<f64>, &Option<f64>)| Some((to.as_ref()? - from.as_ref()?) / seconds);
        let functions = plan.stages.iter().zip(from.function_latency.iter().zip(&to.function_latency));
        Self {
            seconds,
            received_pps: counted(RECEIVED),
            sent_pps: counted(SENT),
            dropped_pps: counted(DROPPED),
            latency: to.latency.since(&from.latency).latency(),
            worker_busy: from.worked_ns.iter().zip(&to.worked_ns).map(busy).collect(),
            ports: from.ports.iter().zip(&to.ports).map(port).collect(),
            functions: functions
                .map(|(stage, (from, to))| {
                    let drops = 0..stage.function.contract().drops.len() as u8;
                    RecentFunction {
                        pps: counted(stage.counters.plain(PACKETS)),
                        bps: 8.0 * counted(stage.counters.plain(BYTES)),
                        settled_pps: counted(stage.counters.plain(SETTLED)),
                        dropped_pps: drops.map(|reason| counted(stage.counters.drop(reason))).sum(),
                        latency: to.since(from).latency(),
                        busy: counted(stage.counters.plain(BUSY_NS)) / 1e9,
                    }
                })
                .collect(),
            watts: from.joules.iter().zip(&to.joules).map(watts).collect(),
        }
    }
}
