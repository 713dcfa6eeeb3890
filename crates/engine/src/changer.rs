//! Changes the chain of a running engine: reads another one, sees whether this machine can take it as it stands, brings it to
//! the devices that follow it, and asks the workers to go by it. Never on the packet path.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use godwit_chain::{Chain, Classifier};
use godwit_sched::Packer;
use serde::Serialize;

use crate::change::Changes;
use crate::config::{ChainConfig, Config, ConfigError, FunctionConfig};
use crate::plan::Plan;
use crate::setup::{Devices, plan};
use crate::trace::Traces;

/// Far longer than any packet stays; a device that does not answer is given up much earlier.
const DRAIN_LIMIT: Duration = Duration::from_secs(60);

/// For each class the function whose state says which worker its packets go to.
pub(crate) fn steering_functions(functions: &[FunctionConfig], chain: &Chain) -> Vec<Option<usize>> {
    let keyed = |class: usize| {
        let reached = |index: &usize| chain.is_reached_by(*index, class);
        (0..functions.len()).filter(reached).find(|&index| functions[index].function.steer_key().is_some())
    };
    (0..chain.classes().len()).map(keyed).collect()
}

/// What is needed to change the chain, and what it is now.
pub(crate) struct Changer {
    config: Config,
    devices: Arc<Devices>,
    changes: Arc<Changes>,
    traces: Arc<Traces>,
    /// One change at a time.
    current: Mutex<Current>,
}

struct Current {
    number: u64,
    classifier: Classifier,
    steering: Vec<Option<usize>>,
}

/// What is said of a change.
#[derive(Debug, Serialize)]
pub(crate) struct Changed {
    /// How many changes there were since the start, this one included.
    change: u64,
    /// From when it was asked for until all new packets took the new chain, microseconds.
    took_us: u64,
    /// The longest time of that in which a worker held new packets, until its last of the old chain was gone, microseconds.
    held_us: u64,
    /// What is probably not meant, and what devices do not do of it.
    warnings: Vec<String>,
}

impl Changed {
    /// What is probably not meant.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

impl std::fmt::Display for Changed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { took_us, held_us, .. } = self;
        write!(
            f,
            "packets take the new chain since {took_us} us after it was asked for, and waited for {held_us} us of it"
        )
    }
}

impl Changer {
    pub(crate) fn new(config: Config, devices: Arc<Devices>, changes: Arc<Changes>, traces: Arc<Traces>) -> Self {
        let current = Current {
            number: 0,
            classifier: config.classifier.clone(),
            steering: steering_functions(&config.functions, &config.chain),
        };
        Self { config, devices, changes, traces, current: Mutex::new(current) }
    }

    /// Takes the chain of `text`, which has classes and edges only.
    pub(crate) fn take(&self, text: &str, origin: &str, directory: &Path) -> Result<Changed, String> {
        self.change(|config| config.read_chain(text, origin, directory))
    }

    /// Takes the chain that the configuration's file has now; nothing else in it may have changed.
    pub(crate) fn reload(&self) -> Result<Changed, String> {
        self.change(Config::read_again)
    }

    /// Nothing has changed where it is refused, except for what the last sentence says.
    fn change(&self, read: impl FnOnce(&Config) -> Result<ChainConfig, ConfigError>) -> Result<Changed, String> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let started = Instant::now();
        let ChainConfig { classifier, chain, mut warnings } = read(&self.config).map_err(|error| error.to_string())?;
        let steering = steering_functions(&self.config.functions, &chain);
        self.check_steering(&current, &classifier, &steering)?;
        // A device's rows of the plan before this one are free once all workers have this one.
        if !self.changes.wait(current.number, DRAIN_LIMIT) {
            return Err("packets of the chain before are still in flight".to_owned());
        }
        let number = current.number + 1;
        let chains = self.devices.take_chain(&self.config.functions, &chain, number, &mut warnings)?;
        let plan = plan(&self.config, &chain, classifier.clone(), &self.devices, chains, number);
        self.check_streams(&plan)?;
        *current = Current { number, classifier, steering };
        self.traces.name_classes(chain.classes());
        self.changes.ask(number, Arc::new(plan));
        if !self.changes.wait(number, DRAIN_LIMIT) {
            return Err(format!(
                "packets of {} s ago are still in flight: workers that wait for them take the new chain when these are gone",
                DRAIN_LIMIT.as_secs()
            ));
        }
        let micros = |time: Duration| time.as_micros() as u64;
        let (took_us, held_us) = (micros(started.elapsed()), micros(self.changes.held()));
        Ok(Changed { change: number, took_us, held_us, warnings })
    }

    /// Packets go to the workers that they went to: what functions keep of them is there.
    fn check_steering(
        &self,
        current: &Current,
        classifier: &Classifier,
        steering: &[Option<usize>],
    ) -> Result<(), String> {
        let workers = self.config.engine.workers;
        let one = |steering: &[Option<usize>]| {
            let first = steering.first().copied().flatten();
            steering.iter().all(|&function| function == first).then_some(first)
        };
        // Where all packets go by the same function, classes do not matter.
        let alike = match (one(&current.steering), one(steering)) {
            (Some(before), Some(now)) => before == now,
            _ => current.steering == steering && current.classifier == *classifier,
        };
        if workers == 1 || alike {
            return Ok(());
        }
        let keyed = current.steering.iter().chain(steering).flatten().next();
        let name = keyed.map_or("", |&function| &self.config.functions[function].name);
        Err(format!(
            "function `{name}` keeps state for many flows at once, and with this chain packets that need it would go to other \
             workers than the one of {workers} that has it: start Godwit again with this chain, or set workers = 1"
        ))
    }

    fn check_streams(&self, plan: &Plan) -> Result<(), String> {
        for device in self.devices.configs() {
            let said = Packer::check_streams(&device.packing, &plan.streams);
            said.map_err(|error| format!("device `{}`: {error}", device.id))?;
        }
        Ok(())
    }
}
