//! Starts the workers, watches them, and creates the report. This code does not handle packets.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use godwit_device::Choice;
use godwit_function::{Function, Lifecycle};
use godwit_state::Keeper;

use crate::config::Config;
use crate::control::cores::{cores, cores_of_worker, pin_to};
use crate::control::health::{Disabled, Health};
use crate::control::housekeeping::Housekeeper;
use crate::control::metrics::MetricsServer;
use crate::control::placing::PlacementThread;
use crate::control::reload::Reloader;
use crate::control::reporter::Reporter;
use crate::control::setup::{self, EngineParts};
use crate::control::socket::{Commands, ControlServer};
use crate::error::Error;
use crate::observe::power::Power;
use crate::observe::report::Report;
use crate::observe::trace::Trace;
use crate::observe::view::{HISTORY_INTERVAL, History, WorkerView};
use crate::options::{Options, Recorder};
use crate::path::{Finished, Worker};
use crate::place::monitor::Monitor;

/// Advice for an operator who sees a hung worker.
const REPORT_A_HANG: &str = "`gdb -p PID -batch -ex 'thread apply all bt'` shows where, for a bug report";
/// Interval of the watch loop.
const WATCH_INTERVAL: Duration = Duration::from_millis(5);
/// Interval at which the watch loop checks live ports.
const ATTEND_INTERVAL: Duration = Duration::from_millis(100);
/// Time that a run waits at its end for a worker that hangs.
const HUNG_GRACE: Duration = Duration::from_millis(500);
/// Default interval at which the watch loop reports progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Engine with allocated memory and open ports. It moves no packets until [`Engine::run`] is
/// called.
pub struct Engine {
    parts: EngineParts,
    /// Flag that requests a reload of the configuration.
    reload: Option<Arc<AtomicBool>>,
    /// Flag that requests the next policy of the placement.
    next_policy: Option<Arc<AtomicBool>>,
    recorder: Option<Recorder>,
    progress_interval: Duration,
}

impl Engine {
    /// Allocates memory, opens ports, and loads programs.
    ///
    /// # Errors
    ///
    /// Returns an error if the configuration does not work on this machine. The engine has then
    /// sent no packet and written no file.
    pub fn new(config: Config, options: &Options) -> Result<Self, Error> {
        let Options { reload, next_policy, recorder, progress_interval, .. } = options.clone();
        let progress_interval = progress_interval.unwrap_or(PROGRESS_INTERVAL);
        Ok(Self { parts: setup::build(config, options)?, reload, next_policy, recorder, progress_interval })
    }

    /// Returns the compiled version that the engine chose for each function on this machine. The
    /// result includes the measurements behind each choice.
    pub fn choices(&self) -> Vec<Choice> {
        self.parts.devices.choices()
    }

    /// Starts a trace before the first packet moves. `request` is a JSON object as on the control
    /// socket (`docs/trace.md`).
    ///
    /// # Errors
    /// Returns an error if the request is invalid.
    pub fn trace(&self, request: &serde_json::Value) -> Result<Trace, Error> {
        self.parts.traces.start(request)
    }

    /// Runs until every source has ended, `limit` has passed or `stop` is set. Then waits until the
    /// packets in flight have left. Calls `progress` about once per second on this thread.
    ///
    /// # Errors
    /// Returns an error if a port failed, a replay was stopped early, or a worker panicked.
    /// Incomplete capture files are removed.
    pub fn run(
        self,
        stop: &Arc<AtomicBool>,
        limit: Option<Duration>,
        progress: &mut dyn FnMut(&Report),
    ) -> Result<Report, Error> {
        let EngineParts {
            plan,
            workers,
            ports,
            pin,
            devices,
            functions,
            socket,
            graces,
            traces,
            changer,
            state,
            placement,
            ..
        } = self.parts;
        let views: Vec<WorkerView> = workers.iter().map(Worker::view).collect();
        let shared: Vec<Arc<[AtomicU64]>> = views.iter().map(|view| Arc::clone(&view.counters)).collect();
        // The first placement is published before the workers start.
        let start = |prepared| Monitor::start(prepared, &views, Instant::now(), self.recorder);
        let placement = placement.map(start);
        let reporter = Reporter {
            names: self.parts.names,
            devices: devices.views(),
            plan,
            workers: views,
            placement: placement.clone(),
        };
        let mut power = Power::new(&devices.ids());
        let keeper = state.map(|state| state.start()).transpose();
        let keeper = keeper.map_err(|error| Error::Setup(error.to_string()))?;
        // This flag stops the workers. A worker that fails sets it for all others. The caller's
        // flag `stop` stays unchanged.
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
            origin: self.parts.origin,
            devices: Arc::clone(&devices),
            graces,
            traces,
            reports,
            stop: Arc::clone(&stop_requested),
            one_at_a_time: Mutex::default(),
            changer,
            placement: placement.clone(),
        });
        // These threads borrow parts of the engine. They must end before the engine is dropped,
        // even if a worker failed.
        let disabled = Disabled::default();
        let housekeeper = match ports.is_replay() {
            false => Housekeeper::start(Arc::clone(&commands), disabled.clone()),
            true => Ok(None),
        };
        let housekeeper = housekeeper.inspect_err(|_| stop_requested.store(true, Ordering::Relaxed));
        let mut reloader = self.reload.map(|requested| Reloader::new(requested, Arc::clone(&commands)));
        let free_cores = cores().get(shared.len()..).filter(|_| pin).unwrap_or_default().to_vec();
        let placing = placement.clone().map(|monitor| PlacementThread::start(monitor, free_cores.clone())).transpose();
        let placing = placing.inspect_err(|_| stop_requested.store(true, Ordering::Relaxed));
        let metrics =
            self.parts.metrics.map(|socket| MetricsServer::start(socket, Arc::clone(&commands), free_cores.clone()));
        let metrics = metrics.transpose().inspect_err(|_| stop_requested.store(true, Ordering::Relaxed));
        let server = socket.map(|socket| ControlServer::start(socket, commands, free_cores)).transpose();
        let server = server.inspect_err(|_| stop_requested.store(true, Ordering::Relaxed));
        let (mut last_progress, mut last_attended) = (started, started);
        let mut health = Health::new(shared.len(), disabled);
        let mut history = History::default();
        history.add(reporter.snapshot(Duration::ZERO, None, &ports, &power));
        let mut last_snapshot = started;
        let mut halted_at = None;
        while threads.iter().any(|thread| !thread.is_finished()) {
            let elapsed = started.elapsed();
            let stopped = stop.load(Ordering::Relaxed) || stop_requested.load(Ordering::Relaxed);
            if stopped || halt.load(Ordering::Relaxed) || limit.is_some_and(|limit| elapsed >= limit) {
                // The ports stop first, because the workers must still drain the receive queues.
                ports.stop();
                halt.store(true, Ordering::Relaxed);
                let since: Instant = *halted_at.get_or_insert_with(Instant::now);
                if let Some(worker) = health.hung_worker()
                    && since.elapsed() >= HUNG_GRACE
                {
                    // The hung worker may never end, and may hold locks of these values. They are
                    // therefore never dropped.
                    std::mem::forget((ports, devices, server, metrics, housekeeper, reloader, placing));
                    return Err(Error::Hung { worker });
                }
            }
            if last_attended.elapsed() >= ATTEND_INTERVAL {
                last_attended = Instant::now();
                ports.attend();
                let has_ended = |worker: usize| threads.get(worker).is_none_or(WorkerThread::is_finished);
                for (worker, is_hung) in health.check(&shared, has_ended, Instant::now()) {
                    match is_hung {
                        true => tracing::error!(
                            event = "worker_hung",
                            worker,
                            "worker {worker} hangs: its packets wait; {REPORT_A_HANG}"
                        ),
                        false => tracing::warn!(event = "worker_continues", worker, "worker {worker} continues"),
                    }
                }
            }
            if last_snapshot.elapsed() >= HISTORY_INTERVAL {
                // The next interval starts at a fixed time, because delays must not add up.
                last_snapshot += HISTORY_INTERVAL;
                history.add(reporter.snapshot(started.elapsed(), None, &ports, &power));
            }
            if last_progress.elapsed() >= self.progress_interval {
                last_progress = Instant::now();
                progress(&reporter.report(elapsed, None, &ports, &power, &health, &history));
            }
            power.sample();
            log_notices(&watched);
            reloader.iter_mut().for_each(Reloader::look);
            if self.next_policy.as_ref().is_some_and(|requested| requested.swap(false, Ordering::Relaxed)) {
                select_next_policy(placement.as_deref());
            }
            let rest = limit.map_or(WATCH_INTERVAL, |limit| limit.saturating_sub(elapsed).min(WATCH_INTERVAL));
            let rest = rest.max(Duration::from_micros(200));
            match report_requests.recv_timeout(rest) {
                // It is not an error if the client has disconnected.
                Ok(reply) => {
                    drop(Sender::send(&reply, reporter.report(elapsed, None, &ports, &power, &health, &history)))
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => thread::sleep(rest),
            }
        }
        let elapsed = started.elapsed();
        // The closed channel tells waiting clients that the run has ended.
        drop(report_requests);
        drop((reloader, server?, metrics?, housekeeper?, placing?));
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
        if let Some(Err(error)) = keeper.map(Keeper::finish) {
            tracing::warn!(event = "state_failed", "{error}: the next start skips the reserved sequence numbers");
        }
        if ports.is_replay() && !finished.iter().all(|worker| worker.ended) {
            return Err(Error::Interrupted);
        }
        watched.iter().filter_map(|(_, function)| function.lifecycle()).for_each(Lifecycle::finish);
        log_notices(&watched);
        let report = reporter.report(elapsed, Some(&finished), &ports, &power, &health, &history);
        ports.finish()?;
        Ok(report)
    }
}

/// Selects the next policy of the placement, as SIGUSR1 requests it.
fn select_next_policy(placement: Option<&Monitor>) {
    match placement {
        Some(monitor) => monitor.select_next(),
        None => tracing::warn!(
            event = "policy_refused",
            "SIGUSR1 has no effect, because the configuration has no [placement]"
        ),
    }
}

/// Logs the events of functions.
fn log_notices(functions: &[(String, Arc<dyn Function>)]) {
    for (function, implementation) in functions {
        for (event, sentence) in implementation.operate().map(|part| part.notices()).unwrap_or_default() {
            match event {
                "sa_added" | "sa_rekeyed" | "sa_deleted" | "policies_replaced" | "rules_reloaded" => {
                    tracing::info!(event, function, "function `{function}`: {sentence}");
                }
                _ => tracing::warn!(event, function, "function `{function}`: {sentence}"),
            }
        }
    }
}

type WorkerThread = thread::JoinHandle<Result<Finished, Error>>;

fn spawn(index: usize, worker: Worker, pin: bool, halt: &Arc<AtomicBool>) -> Result<WorkerThread, Error> {
    let halt = Arc::clone(halt);
    let body = move || {
        if pin {
            pin_to(cores_of_worker(&cores(), index));
        }
        // If the worker fails or panics, this guard stops all other workers.
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
