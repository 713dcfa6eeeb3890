//! Opens the devices of the engine and loads the programs of all functions into them.

use std::sync::Arc;
use std::time::Duration;

use godwit_chain::Chain;
use godwit_device::model::ModelOptions;
use godwit_device::{Choice, Device, DeviceChain, DeviceOptions, Implementation, Mode, Program, is_synchronous};
use godwit_function::HostHalf;
use godwit_packet::Arena;
use godwit_sched::{Packer, Stream};

use crate::config::{Config, DeviceConfig, FunctionConfig};
use crate::control::program::FunctionProgram;
use crate::error::Error;
use crate::options::Opener;
use crate::path::device::WorkerDevice;
use crate::place::LAST_RESORT;
use crate::place::device_chain::{ChainContext, ChainRows, HostHalfInfo, device_chain};

/// The opened devices, with the programs of all functions. They include the CPU and every device on
/// which a function may run.
pub(crate) struct Devices {
    devices: Vec<(DeviceConfig, Arc<dyn Device>)>,
    /// Devices on which each function may run, as indices into `devices`.
    pub(crate) placement: Vec<Box<[usize]>>,
    /// For each device, the part of the function chain that it executes at the start, or `None` if
    /// it returns packets after each function.
    pub(crate) chains: Vec<Option<Arc<DeviceChain>>>,
    has_chain: Vec<bool>,
    host_half_infos: Vec<HostHalfInfo>,
    pub(crate) rows: ChainRows,
}

impl Devices {
    /// Opens the devices and loads all functions into each one. A function therefore has the same
    /// number on every device. The CPU is always opened, because it replaces lost devices.
    ///
    /// `host_halves` contains the CPU parts of the functions of one worker.
    pub(crate) fn load(
        config: &Config,
        arena: &Arena,
        opener: Option<&Opener>,
        host_halves: &[Option<HostHalf>],
    ) -> Result<Self, Error> {
        let programs: Vec<(Arc<dyn Program>, Implementation)> = config
            .functions
            .iter()
            .map(|entry| {
                let program = FunctionProgram::new(entry.name.clone(), Arc::clone(&entry.function));
                (Arc::new(program) as Arc<dyn Program>, entry.implementation)
            })
            .collect();
        let used = |device: &&DeviceConfig| is_synchronous(&device.id) || is_used(config, &device.id);
        let used: Vec<&DeviceConfig> = config.devices.iter().filter(used).collect();
        debug_assert!(is_synchronous(&used[LAST_RESORT].id));
        let devices_of = |function: &FunctionConfig| {
            let index = |id: &String| {
                let position = used.iter().position(|device| device.id == *id);
                position.expect("the configuration contains the devices of all functions")
            };
            function.devices.iter().map(index).collect()
        };
        let placement: Vec<Box<[usize]>> = config.functions.iter().map(devices_of).collect();
        let info =
            |(entry, half): (&FunctionConfig, &Option<_>)| HostHalfInfo::new(half.is_some(), entry.function.contract());
        let host_half_infos: Vec<HostHalfInfo> = config.functions.iter().zip(host_halves).map(info).collect();
        let rows = ChainRows::new(config.chain.classes().len());
        let context = ChainContext {
            functions: &config.functions,
            placement: &placement,
            host_half_infos: &host_half_infos,
            rows,
        };
        let load = |(number, &device): (usize, &&DeviceConfig)| {
            // Packets that continue on a device would not follow the shares of their next function.
            let is_enabled = number != LAST_RESORT && device.device_chain && config.placement.is_none();
            let chain = is_enabled.then(|| device_chain(&config.chain, 0, context, number));
            let chain = chain.filter(DeviceChain::is_needed);
            let options = DeviceOptions {
                mode: device.mode,
                transfer: device.transfer,
                lanes: config.engine.workers,
                bins: device.packing.entries_max(),
                bin_packets: device.packing.bin_packets as usize,
                watchdog: Duration::from_millis(device.watchdog_ms),
                share: config.functions.iter().map(|function| device.share_of(&function.name)).collect(),
                chain: chain.map(Arc::new),
                model: model_options(config, device),
                ..DeviceOptions::default()
            };
            let arena = arena.handle();
            let opened = opener.and_then(|Opener(open)| open(&device.id, &programs, &arena, &options));
            let opened = opened.unwrap_or_else(|| godwit_device::open(&device.id, &programs, &arena, &options))?;
            if let Some(sentence) = opened.fallback() {
                tracing::warn!(event = "device_limited", device = device.id, "{sentence}");
                if !device.share.is_empty() {
                    tracing::warn!(
                        event = "device_limited",
                        device = device.id,
                        "device `{}`: `share` is ignored, because the device has no persistent groups",
                        device.id
                    );
                }
            }
            if !opened.runs_chain() && options.chain.as_ref().is_some_and(|chain| chain.continues_any()) {
                tracing::warn!(
                    event = "device_limited",
                    device = device.id,
                    "device `{}` runs no chain: packets return to the host after each function",
                    device.id
                );
            }
            Ok(((device.clone(), opened), options.chain))
        };
        let loaded: Vec<_> = used.iter().enumerate().map(load).collect::<Result<_, Error>>()?;
        let active_chain =
            |((_, device), chain): &((_, Arc<dyn Device>), Option<_>)| chain.clone().filter(|_| device.runs_chain());
        let chains = loaded.iter().map(active_chain).collect();
        let has_chain = loaded.iter().map(|(_, chain)| chain.is_some()).collect();
        let devices = loaded.into_iter().map(|(device, _)| device).collect();
        Ok(Self { devices, placement, chains, has_chain, host_half_infos, rows })
    }

    /// Writes the function chain with this `number` to the devices. Returns the part of the chain
    /// that each device executes.
    ///
    /// # Errors
    /// Returns an error if a device cannot hold a second chain, or its update fails.
    pub(crate) fn take_chain(
        &self,
        functions: &[FunctionConfig],
        chain: &Chain,
        number: u64,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<Option<Arc<DeviceChain>>>, Error> {
        let Self { placement, host_half_infos, rows, .. } = self;
        let context = ChainContext { functions, placement, host_half_infos, rows: *rows };
        let take = |(device, (config, opened)): (usize, &(DeviceConfig, Arc<dyn Device>))| {
            if !self.has_chain[device] {
                return Ok(None);
            }
            let id = &config.id;
            if opened.runs_chain() && !rows.can_change() {
                return Err(Error::request(format_args!(
                    "device `{id}` runs the chain, and has no room for a second one of more than 128 classes: restart Godwit with \
                     this chain, or set device_chain = false"
                )));
            }
            if opened.runs_chain() && chain.classes().len() > rows.of_chain(number).len() {
                warnings.push(format!(
                    "device `{id}` has room for a chain of {} classes: packets return to the host after each function until \
                     Godwit is restarted",
                    rows.of_chain(number).len()
                ));
            }
            let requested = device_chain(chain, number, context, device);
            let accepted = opened.update_chain(requested.clone())?;
            if opened.runs_chain() && accepted != requested {
                warnings.push(format!(
                    "device `{id}`: packets return to the host between functions that need more bytes of a packet than the \
                     chain at the start"
                ));
            }
            Ok(opened.runs_chain().then(|| Arc::new(accepted)))
        };
        self.devices.iter().enumerate().map(take).collect()
    }

    /// Returns the configuration of each device.
    pub(crate) fn configs(&self) -> impl Iterator<Item = &DeviceConfig> {
        self.devices.iter().map(|(config, _)| config)
    }

    /// Creates the connections of one worker to all devices. A connection puts packets into batches
    /// and submits them to its device.
    pub(crate) fn worker_devices(&self, streams: &[Stream]) -> Result<Vec<WorkerDevice>, Error> {
        let worker_device = |(config, device): &(DeviceConfig, Arc<dyn Device>)| {
            let packer = Packer::with_streams(config.packing.clone(), streams, config.chunks)?;
            let mut lane = Arc::clone(device).lane()?;
            packer.chunks().try_for_each(|chunk| lane.reserve(chunk))?;
            Ok(WorkerDevice::new(&config.id, packer, lane))
        };
        self.devices.iter().map(worker_device).collect()
    }

    /// Returns the name of each device.
    pub(crate) fn ids(&self) -> Vec<&str> {
        self.devices.iter().map(|(_, device)| device.capabilities().id.as_str()).collect()
    }

    /// Returns the opened devices.
    pub(crate) fn all(&self) -> impl Iterator<Item = &dyn Device> + Clone {
        self.devices.iter().map(|(_, device)| &**device)
    }

    pub(crate) fn views(&self) -> Vec<DeviceView> {
        let view = |(config, device): &(DeviceConfig, Arc<dyn Device>)| DeviceView {
            id: device.capabilities().id.clone(),
            mode: device.mode(),
            choices: device.choices(),
            bin_packets: config.packing.bin_packets as usize,
            opened: Arc::clone(device),
        };
        self.devices.iter().map(view).collect()
    }

    /// Returns the compiled kernel version that each function uses on its first device.
    pub(crate) fn choices(&self) -> Vec<Choice> {
        let all: Vec<Vec<Choice>> = self.devices.iter().map(|(_, device)| device.choices()).collect();
        self.placement.iter().enumerate().map(|(function, devices)| all[devices[0]][function].clone()).collect()
    }
}

/// Returns the options of a modelled device, and default options for any other device.
fn model_options(config: &Config, device: &DeviceConfig) -> ModelOptions {
    let costs = |function: &FunctionConfig| {
        let times = device.times.iter().find(|(name, _)| *name == function.name);
        times.map(|(_, times)| times.costs()).unwrap_or_default()
    };
    let costs = if device.times.is_empty() { Vec::new() } else { config.functions.iter().map(costs).collect() };
    ModelOptions { costs, fails_after_chunks: device.fails_after_chunks, ..ModelOptions::default() }
}

/// Properties of a device that appear in the report.
pub(crate) struct DeviceView {
    pub(crate) id: String,
    pub(crate) mode: Mode,
    /// Compiled kernel version of each function on this device.
    pub(crate) choices: Vec<Choice>,
    pub(crate) bin_packets: usize,
    /// The device itself, for the counters of kernels.
    pub(crate) opened: Arc<dyn Device>,
}

/// Returns whether a function is placed on a device.
pub(crate) fn is_used(config: &Config, device: &str) -> bool {
    config.functions.iter().any(|function| function.devices.iter().any(|id| id == device))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use godwit_packet::Descriptor;

    use super::*;
    use crate::path::testing::{FIRST, SECOND, TWO_FUNCTIONS};

    #[test]
    fn functions_without_a_device_run_on_the_cpu() {
        let config = Config::parse(TWO_FUNCTIONS, "test", Path::new(".")).unwrap();
        assert!(is_used(&config, "cpu") && !is_used(&config, "cuda:0"));
        let arena = Arena::new(config.arena.clone(), 1).unwrap();
        let devices = Devices::load(&config, &arena, None, &[None, None]).unwrap();
        assert_eq!((devices.ids(), devices.views().len()), (vec!["cpu"], 1));
        assert!(devices.placement.iter().all(|devices| **devices == [LAST_RESORT]));
        assert_eq!((devices.choices().len(), devices.views()[LAST_RESORT].choices.len()), (2, 2));
        assert!(devices.chains.iter().all(Option::is_none), "the CPU executes no part of the chain");
        let mut warnings = Vec::new();
        let chains = devices.take_chain(&config.functions, &config.chain, 1, &mut warnings).unwrap();
        assert!(chains == [None] && warnings.is_empty());
    }

    #[test]
    fn every_worker_has_its_own_batches() {
        let config = Config::parse(TWO_FUNCTIONS, "test", Path::new(".")).unwrap();
        let arena = Arena::new(config.arena.clone(), 1).unwrap();
        let devices = Devices::load(&config, &arena, None, &[None, None]).unwrap();
        let kernel = config.functions[FIRST].function.contract().bin_kernel();
        let streams = [FIRST, SECOND].map(|function| Stream { instance: function as u16, kernel, row: 0 });
        let mut workers = [(), ()].map(|()| devices.worker_devices(&streams).unwrap().remove(LAST_RESORT));
        workers[0].packer.insert(0, SECOND as u16, 0, Descriptor::default(), 0);
        assert_eq!((workers[0].packer.waiting(), workers[1].packer.waiting()), (1, 0));
        assert!(!workers[0].is_empty() && workers[1].is_empty());
        assert!(!workers[0].is_due(0, false, false) && workers[0].is_due(0, true, false));
    }
}
