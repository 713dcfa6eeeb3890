//! Changes the function chain of a running engine.
//!
//! [`Changer`] checks the new chain, writes it to the devices, and asks the workers to take it.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use godwit_chain::{Chain, Classifier};
use godwit_sched::Packer;
use serde::Serialize;

use crate::config::{ChainConfig, Config, ConfigError, FunctionConfig};
use crate::error::Error;
use crate::observe::trace::Traces;
use crate::place::devices::Devices;
use crate::plan::build::plan;
use crate::plan::chain_plan::ChainPlan;
use crate::plan::change::PlanChanges;

/// Longest wait for the packets of the old chain. They normally leave much earlier.
const DRAIN_LIMIT: Duration = Duration::from_secs(60);

/// Returns the function whose state determines the worker of a packet, for each traffic class. An
/// entry is `None` if the flow hash determines the worker.
pub(crate) fn steering_functions(functions: &[FunctionConfig], chain: &Chain) -> Vec<Option<usize>> {
    let keyed = |class: usize| {
        let reached = |index: &usize| chain.is_reached_by(*index, class);
        (0..functions.len()).filter(reached).find(|&index| functions[index].function.steer_key().is_some())
    };
    (0..chain.classes().len()).map(keyed).collect()
}

/// Changes the function chain of a running engine.
pub(crate) struct Changer {
    config: Config,
    devices: Arc<Devices>,
    changes: Arc<PlanChanges>,
    traces: Arc<Traces>,
    /// Properties of the current chain. The lock ensures that only one change runs at a time.
    current: Mutex<Current>,
}

struct Current {
    number: u64,
    classifier: Classifier,
    steering: Vec<Option<usize>>,
}

/// Result of a change of the chain.
#[derive(Debug, Serialize)]
pub(crate) struct ChangeResult {
    /// Number of changes since the start, including this one.
    change: u64,
    /// Time from the request until all new packets followed the new chain, in microseconds.
    took_us: u64,
    /// Longest time for which a worker held back new packets, in microseconds.
    held_us: u64,
    /// Warnings about probable mistakes, and about chain parts that a device cannot execute.
    warnings: Vec<String>,
}

impl ChangeResult {
    fn log(&self) {
        self.warnings.iter().for_each(|warning| tracing::warn!(event = "configuration_warning", "{warning}"));
        tracing::info!(event = "chain_changed", change = self.change, "{self}");
    }
}

impl std::fmt::Display for ChangeResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { took_us, held_us, .. } = self;
        write!(f, "all new packets take the new chain after {took_us} us, and were held for up to {held_us} us")
    }
}

impl Changer {
    pub(crate) fn new(config: Config, devices: Arc<Devices>, changes: Arc<PlanChanges>, traces: Arc<Traces>) -> Self {
        let current = Current {
            number: 0,
            classifier: config.classifier.clone(),
            steering: steering_functions(&config.functions, &config.chain),
        };
        Self { config, devices, changes, traces, current: Mutex::new(current) }
    }

    /// Replaces the engine's chain with the one in `text`, which contains only classes and edges.
    pub(crate) fn take(&self, text: &str, origin: &str, directory: &Path) -> Result<ChangeResult, Error> {
        self.change(|config| config.read_chain(text, origin, directory))
    }

    /// Replaces the engine's chain with the one in the current configuration file. All other
    /// stanzas of the file must be unchanged.
    pub(crate) fn reload(&self) -> Result<ChangeResult, Error> {
        self.change(Config::read_again)
    }

    /// Reads a chain and gives it to the engine. A refused chain has no effect.
    ///
    /// If packets of the old chain do not leave in time, the function returns an error. The change
    /// still continues.
    fn change(&self, read: impl FnOnce(&Config) -> Result<ChainConfig, ConfigError>) -> Result<ChangeResult, Error> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let started = Instant::now();
        let ChainConfig { classifier, chain, mut warnings } = read(&self.config).map_err(Error::request)?;
        let steering = steering_functions(&self.config.functions, &chain);
        self.check_steering(&current, &classifier, &steering)?;
        // The new plan may reuse device memory of an old plan. This memory is free once all workers
        // use the current plan.
        if !self.changes.wait(current.number, DRAIN_LIMIT) {
            return Err(Error::request("packets of the previous chain are still in flight: try again later"));
        }
        let number = current.number + 1;
        let chains = self.devices.take_chain(&self.config.functions, &chain, number, &mut warnings)?;
        let plan = plan(&self.config, &chain, classifier.clone(), &self.devices, chains, number);
        self.check_streams(&plan)?;
        *current = Current { number, classifier, steering };
        self.traces.name_classes(chain.classes());
        self.changes.ask(number, Arc::new(plan));
        if !self.changes.wait(number, DRAIN_LIMIT) {
            return Err(Error::request(format_args!(
                "packets are still in flight after {} s: each worker takes the new chain when its packets are gone",
                DRAIN_LIMIT.as_secs()
            )));
        }
        let micros = |time: Duration| time.as_micros() as u64;
        let (took_us, held_us) = (micros(started.elapsed()), micros(self.changes.held()));
        let result = ChangeResult { change: number, took_us, held_us, warnings };
        result.log();
        Ok(result)
    }

    /// Checks that the new chain sends each flow to the same worker. The state of a flow stays on
    /// its worker.
    fn check_steering(
        &self,
        current: &Current,
        classifier: &Classifier,
        steering: &[Option<usize>],
    ) -> Result<(), Error> {
        let workers = self.config.engine.workers;
        let one = |steering: &[Option<usize>]| {
            let first = steering.first().copied().flatten();
            steering.iter().all(|&function| function == first).then_some(first)
        };
        // If one function determines the worker of all packets, the traffic classes are irrelevant.
        let alike = match (one(&current.steering), one(steering)) {
            (Some(old), Some(new)) => old == new,
            _ => current.steering == steering && current.classifier == *classifier,
        };
        if workers == 1 || alike {
            return Ok(());
        }
        let keyed = current.steering.iter().chain(steering).flatten().next();
        let name = keyed.map_or("", |&function| &self.config.functions[function].name);
        Err(Error::request(format_args!(
            "function `{name}` keeps state for many flows, and this chain would send their packets to other workers \
             of the {workers} than before: restart Godwit with this chain, or set workers = 1"
        )))
    }

    fn check_streams(&self, plan: &ChainPlan) -> Result<(), Error> {
        for device in self.devices.configs() {
            let result = Packer::check_streams(&device.packing, &plan.streams);
            result.map_err(|error| Error::request(format_args!("device `{}`: {error}", device.id)))?;
        }
        Ok(())
    }
}
