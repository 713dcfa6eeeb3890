//! Starts the workers, watches them, and builds the report. Runs outside the packet path.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use godwit_device::Choice;
use godwit_function::Function;
use godwit_io::PortCounters;

use crate::config::Config;
use crate::control::housekeeping::Housekeeper;
use crate::control::ports::Ports;
use crate::control::setup::{self, DeviceView, EngineParts};
use crate::control::socket::{Commands, ControlServer};
use crate::error::Error;
use crate::observe::counters::{
    self, BINS, BUSY_NS, BYTES, CREATED, DEVICE_CHUNKS, DEVICE_ENERGY, DEVICE_PACKETS, DROPPED, IN_FLIGHT, MERGED,
    PACKETS, RECEIVED, SENT,
};
use crate::observe::histogram::{Figures as _, Histogram};
use crate::observe::power::Power;
use crate::observe::report::{Conservation, FunctionReport, LostDevice, PortReport, Report};
use crate::observe::trace::Trace;
use crate::options::Options;
use crate::path::{Finished, Worker};
use crate::place::failover::LAST_RESORT;

/// Interval of the watch loop.
const WATCH_INTERVAL: Duration = Duration::from_millis(5);
/// Interval at which the watch loop checks live ports.
const ATTEND_INTERVAL: Duration = Duration::from_millis(100);
/// Interval at which the watch loop reports progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Engine with allocated memory and open ports. No packet moves before [`Engine::run`].
pub struct Engine {
    parts: EngineParts,
    /// Flag that requests a reload of the configuration.
    reload: Option<Arc<AtomicBool>>,
}

impl Engine {
    /// Allocates memory, opens ports, and loads programs.
    ///
    /// # Errors
    /// If the configuration does not work on this machine. No packet was sent, and no file was
    /// written.
    pub fn new(config: Config, options: &Options) -> Result<Self, Error> {
        Ok(Self { parts: setup::build(config, options)?, reload: options.reload.clone() })
    }

    /// Returns the form of each function that was chosen for this machine, with the measurements
    /// behind the choice.
    pub fn choices(&self) -> Vec<Choice> {
        self.parts.devices.choices()
    }

    /// Starts a trace before the first packet moves. `request` is a JSON object as on the control
    /// socket (`docs/trace.md`).
    ///
    /// # Errors
    /// Returns a sentence that describes the problem of the request.
    pub fn trace(&self, request: &serde_json::Value) -> Result<Trace, String> {
        self.parts.traces.start(request)
    }

    /// Runs until every source has ended, `limit` has passed or `stop` is set, then drains packets
    /// in flight. Calls `progress` about once per second on this thread.
    ///
    /// # Errors
    /// If a port failed, a replay was stopped early, or a worker panicked. Incomplete captures are
    /// removed.
    pub fn run(
        self,
        stop: &Arc<AtomicBool>,
        limit: Option<Duration>,
        progress: &mut dyn FnMut(&Report),
    ) -> Result<Report, Error> {
        let EngineParts { plan, workers, ports, pin, devices, functions, socket, graces, traces, changer, .. } =
            self.parts;
        let reporter = Reporter { names: self.parts.names, devices: devices.views(), plan };
        let mut power = Power::new(&devices.ids());
        let shared: Vec<Arc<[AtomicU64]>> = workers.iter().map(|worker| worker.counts().shared()).collect();
        // Flag that stops the workers. A failed worker sets it to stop all others. The caller's
        // `stop` flag stays unchanged.
        let halt = Arc::new(AtomicBool::new(false));
        let started = Instant::now();
        let mut threads = Vec::new();
        for (index, worker) in workers.into_iter().enumerate() {
            match spawn(index, worker, pin, &halt) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    ports.stop();
                    halt.store(true, Ordering::Relaxed);
                    threads.into_iter().for_each(|thread: WorkerThread| drop(thread.join()));
                    return Err(error);
                }
            }
        }
        let stop_requested = Arc::new(AtomicBool::new(false));
        let watched = functions.clone();
        let (reports, report_requests) = channel();
        let commands = Arc::new(Commands {
            functions,
            devices: Arc::clone(&devices),
            graces,
            traces,
            reports,
            stop: Arc::clone(&stop_requested),
            one_at_a_time: Mutex::default(),
            changer,
        });
        // These threads must end before the parts of the engine that they access are dropped, even
        // if a worker failed.
        let housekeeper = match ports.is_replay() {
            false => Housekeeper::start(Arc::clone(&commands)),
            true => Ok(None),
        };
        let housekeeper = housekeeper.inspect_err(|_| stop_requested.store(true, Ordering::Relaxed));
        let mut reloader = self.reload.map(|requested| Reloader::new(requested, Arc::clone(&commands)));
        let free_cores = cores().get(shared.len()..).filter(|_| pin).unwrap_or_default().to_vec();
        let server = socket.map(|socket| ControlServer::start(socket, commands, free_cores)).transpose();
        let server = server.inspect_err(|_| stop_requested.store(true, Ordering::Relaxed));
        let (mut last_progress, mut last_attended) = (started, started);
        while threads.iter().any(|thread| !thread.is_finished()) {
            let elapsed = started.elapsed();
            let stopped = stop.load(Ordering::Relaxed) || stop_requested.load(Ordering::Relaxed);
            if stopped || halt.load(Ordering::Relaxed) || limit.is_some_and(|limit| elapsed >= limit) {
                // Stop the ports before the workers. Workers that are stopping then drain the
                // receive queues.
                ports.stop();
                halt.store(true, Ordering::Relaxed);
            }
            if last_attended.elapsed() >= ATTEND_INTERVAL {
                last_attended = Instant::now();
                ports.attend().iter().for_each(|(port, sentence)| tracing::warn!("port `{port}`: {sentence}"));
            }
            if last_progress.elapsed() >= PROGRESS_INTERVAL {
                last_progress = Instant::now();
                progress(&reporter.report(elapsed, &shared, None, &ports, &power));
            }
            power.sample();
            log_notices(&watched);
            reloader.iter_mut().for_each(Reloader::look);
            let rest = limit.map_or(WATCH_INTERVAL, |limit| limit.saturating_sub(elapsed).min(WATCH_INTERVAL));
            let rest = rest.max(Duration::from_micros(200));
            match report_requests.recv_timeout(rest) {
                // Sending the report fails if the client has disconnected. This is not an error.
                Ok(reply) => drop(Sender::send(&reply, reporter.report(elapsed, &shared, None, &ports, &power))),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => thread::sleep(rest),
            }
        }
        log_notices(&watched);
        let elapsed = started.elapsed();
        // Close the channel. Clients that still wait for a report then learn that the run has
        // ended.
        drop(report_requests);
        drop((reloader, server?, housekeeper?));
        power.end();
        let finished = threads.into_iter().enumerate().map(|(index, thread)| match thread.join() {
            Ok(finished) => finished,
            Err(panic) => {
                let message = panic.downcast_ref::<String>().cloned();
                let message = message.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                Err(Error::Worker { worker: index, message: message.unwrap_or_default() })
            }
        });
        let finished: Vec<Finished> = finished.collect::<Result<_, _>>()?;
        if ports.is_replay() && !finished.iter().all(|worker| worker.ended) {
            return Err(Error::Interrupted);
        }
        let report = reporter.report(elapsed, &shared, Some(&finished), &ports, &power);
        ports.finish()?;
        Ok(report)
    }
}

/// Reloads the configuration when a flag is set. The reload runs on its own thread, because it
/// waits for packets in flight.
struct Reloader {
    requested: Arc<AtomicBool>,
    commands: Arc<Commands>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Reloader {
    fn new(requested: Arc<AtomicBool>, commands: Arc<Commands>) -> Self {
        Self { requested, commands, thread: None }
    }

    fn look(&mut self) {
        let is_busy = self.thread.as_ref().is_some_and(|thread| !thread.is_finished());
        if is_busy || !self.requested.swap(false, Ordering::Relaxed) {
            return;
        }
        let commands = Arc::clone(&self.commands);
        let body = move || match commands.changer.reload() {
            Ok(changed) => {
                changed.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
                tracing::info!("reloaded the configuration: {changed}");
            }
            Err(sentence) => tracing::warn!("the reload was refused, and nothing changed: {sentence}"),
        };
        match thread::Builder::new().name("reload".to_owned()).spawn(body) {
            Ok(thread) => self.thread = Some(thread),
            Err(error) => tracing::warn!("cannot reload the configuration: cannot start a thread: {error}"),
        }
    }
}

impl Drop for Reloader {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Logs the messages that functions have for the operator.
fn log_notices(functions: &[(String, Arc<dyn Function>)]) {
    for (name, function) in functions {
        function.notices().iter().for_each(|sentence| tracing::warn!("function `{name}`: {sentence}"));
    }
}

type WorkerThread = thread::JoinHandle<Result<Finished, Error>>;

fn spawn(index: usize, worker: Worker, pin: bool, halt: &Arc<AtomicBool>) -> Result<WorkerThread, Error> {
    let halt = Arc::clone(halt);
    let body = move || {
        if pin {
            pin_to(cores_of_worker(&cores(), index));
        }
        // If the worker ends early, by an error or a panic, the guard stops all other workers.
        let guard = HaltOnDrop(&halt);
        let finished = worker.run(&halt)?;
        std::mem::forget(guard);
        Ok(finished)
    };
    thread::Builder::new()
        .name(format!("worker-{index}"))
        .spawn(body)
        .map_err(|error| Error::Setup(format!("cannot start worker {index}: {error}")))
}

struct HaltOnDrop<'a>(&'a AtomicBool);

impl Drop for HaltOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns the cores on which the calling thread may run. Empty if the system does not report them.
pub(crate) fn cores() -> Vec<usize> {
    use nix::sched::{CpuSet, sched_getaffinity};
    use nix::unistd::Pid;
    let allowed = sched_getaffinity(Pid::from_raw(0));
    let is_allowed = |core: &usize| allowed.is_ok_and(|allowed| allowed.is_set(*core).unwrap_or(false));
    (0..CpuSet::count()).filter(is_allowed).collect()
}

/// Pins the calling thread to `cores`. Logs a warning and continues unpinned if the system refuses.
pub(crate) fn pin_to(cores: &[usize]) {
    use nix::sched::{CpuSet, sched_setaffinity};
    use nix::unistd::Pid;
    let mut set = CpuSet::new();
    let pinned = !cores.is_empty() && cores.iter().all(|&core| set.set(core).is_ok());
    if !pinned || sched_setaffinity(Pid::from_raw(0), &set).is_err() {
        tracing::warn!("{} runs unpinned: the system refuses to pin it", thread::current().name().unwrap_or_default());
    }
}

/// Returns the core of a worker. If there are more workers than cores, several workers share a
/// core.
fn cores_of_worker(cores: &[usize], index: usize) -> &[usize] {
    let first = index % cores.len().max(1);
    cores.get(first..=first).unwrap_or_default()
}

/// Returns the cores of a worker's sender thread: a core without a worker, or all cores if none is
/// left. A core whose worker spins has no time for the sender. The result is never empty, because a
/// new thread inherits the affinity of its parent, which is the worker's core.
pub(crate) fn cores_of_sender(cores: &[usize], workers: usize, index: usize) -> &[usize] {
    let first = workers + index;
    cores.get(first..=first).unwrap_or(cores)
}

/// Creates reports of the run from counters, names and plan.
struct Reporter {
    names: Names,
    devices: Vec<DeviceView>,
    plan: Arc<crate::plan::chain_plan::ChainPlan>,
}

/// Configured names of ports and functions, for reports.
pub(crate) struct Names {
    pub(crate) ports: Vec<(String, &'static str)>,
    pub(crate) functions: Vec<String>,
}

impl Reporter {
    fn report(
        &self,
        elapsed: Duration,
        shared: &[Arc<[AtomicU64]>],
        finished: Option<&[Finished]>,
        ports: &Ports,
        power: &Power,
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
        // If a function has several devices, the report lists all of them.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_get_the_cores_without_workers() {
        let cores = [2, 3, 5, 7, 11];
        let workers: Vec<_> = (0..6).map(|index| cores_of_worker(&cores, index)).collect();
        assert_eq!(workers, [[2], [3], [5], [7], [11], [2]]);
        let senders: Vec<_> = (0..3).map(|index| cores_of_sender(&cores, 3, index)).collect();
        assert_eq!(senders, [&[7][..], &[11], &cores]);
        assert_eq!(cores_of_sender(&cores, 8, 0), cores);
        assert!(cores_of_worker(&[], 1).is_empty() && cores_of_sender(&[], 1, 0).is_empty());
    }

    #[test]
    fn sender_does_not_keep_the_core_of_its_parent() {
        let all = cores();
        let pinned = |cores: &[usize]| {
            pin_to(cores);
            super::cores()
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(pinned(cores_of_worker(&all, 0)), all[..1]);
                let sender = |index| {
                    thread::scope(|scope| scope.spawn(|| pinned(cores_of_sender(&all, 1, index))).join().unwrap())
                };
                assert_eq!(sender(all.len()), all);
                assert_eq!(sender(0), if all.len() > 1 { &all[1..2] } else { &all[..] });
            });
        });
    }
}
