//! From a configuration to workers: memory, ports, programs, steering.

use std::sync::Arc;
use std::time::Instant;

use godwit_chain::Classifier;
use godwit_device::{Choice, Device, DeviceOptions, Implementation, Program};
use godwit_function::Function;
use godwit_packet::{Arena, SteerKey, Steering};
use godwit_sched::{Packer, PackerConfig};
use godwit_wire::Parsed;

use crate::config::Config;
use crate::control::Names;
use crate::plan::Plan;
use crate::ports::Ports;
use crate::program::FunctionProgram;
use crate::worker::{Place, Worker, WorkerParts};
use crate::{Error, Options};

/// Chunks per worker: one filling while others are on the device.
const CHUNKS: usize = 4;

/// Workers ready to start, and what the control thread keeps.
pub(crate) struct Machine {
    pub(crate) plan: Arc<Plan>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) ports: Ports,
    pub(crate) devices: Devices,
    pub(crate) names: Names,
    pub(crate) bin_packets: usize,
    pub(crate) pin: bool,
}

/// The devices that functions are placed on, with their programs loaded.
pub(crate) struct Devices {
    devices: Vec<Arc<dyn Device>>,
    /// For each function the device that runs it.
    placement: Vec<usize>,
}

impl Devices {
    /// Every device knows all programs, so that a bin's instance means the same on each.
    fn load(config: &Config, arena: &Arena) -> Result<Self, Error> {
        let programs: Vec<(Arc<dyn Program>, Implementation)> = config
            .functions
            .iter()
            .map(|entry| {
                let program = FunctionProgram::new(entry.name.clone(), Arc::clone(&entry.function));
                (Arc::new(program) as Arc<dyn Program>, entry.implementation)
            })
            .collect();
        let mut ids: Vec<&str> = Vec::new();
        let mut placement = Vec::new();
        for entry in &config.functions {
            let known = ids.iter().position(|id| *id == entry.device);
            placement.push(known.unwrap_or(ids.len()));
            if known.is_none() {
                ids.push(&entry.device);
            }
        }
        let load = |id: &&str| -> Result<Arc<dyn Device>, Error> {
            let packing = &config.packing;
            let options = DeviceOptions {
                lanes: config.engine.workers,
                bins: packing.bins as usize,
                bin_packets: packing.bin_packets as usize,
                ..DeviceOptions::default()
            };
            Ok(godwit_device::open(id, &programs, &arena.handle(), &options)?)
        };
        let devices = ids.iter().map(load).collect::<Result<_, _>>()?;
        Ok(Self { devices, placement })
    }

    /// One worker's bins and lanes, one of each per device.
    fn places(&self, packing: &PackerConfig, kernels: &[u8]) -> Result<Vec<Place>, Error> {
        let place = |device: &Arc<dyn Device>| {
            let packer = Packer::new(packing.clone(), kernels, CHUNKS)?;
            Ok(Place { packer, lane: Arc::clone(device).lane()? })
        };
        self.devices.iter().map(place).collect()
    }

    /// For each function the device that runs it, and in which form.
    pub(crate) fn choices(&self) -> Vec<(String, Choice)> {
        let all: Vec<Vec<Choice>> = self.devices.iter().map(|device| device.choices()).collect();
        let choice = |(function, &device): (usize, &usize)| {
            (self.devices[device].capabilities().id.clone(), all[device][function].clone())
        };
        self.placement.iter().enumerate().map(choice).collect()
    }
}

/// Steers by the state that a packet's class leads to: no class leads to more than one function with such state
/// (`config/workers.rs` checked that).
struct ClassKeys {
    classifier: Classifier,
    /// For each class the key of the function that it leads to.
    keys: Vec<Option<Arc<dyn SteerKey>>>,
}

impl SteerKey for ClassKeys {
    fn steer_key(&self, frame: &[u8], parsed: &Parsed, flow_hash: u32) -> u32 {
        match &self.keys[usize::from(self.classifier.classify(parsed))] {
            Some(key) => key.steer_key(frame, parsed, flow_hash),
            None => flow_hash,
        }
    }
}

/// Where packets go: by flow, or by the state that their class leads to.
fn steering(config: &Config) -> Steering {
    let of_class = |class: usize| {
        let mut reached =
            config.functions.iter().enumerate().filter(|(index, _)| config.chain.is_reached_by(*index, class));
        reached.find_map(|(_, entry)| entry.function.steer_key())
    };
    let keys: Vec<_> = (0..config.chain.classes().len()).map(of_class).collect();
    let keyed = keys.iter().any(Option::is_some);
    let key = keyed.then(|| Arc::new(ClassKeys { classifier: config.classifier.clone(), keys }) as Arc<dyn SteerKey>);
    Steering::new(config.engine.workers, key)
}

/// Builds everything; nothing moves yet.
pub(crate) fn machine(config: Config, options: &Options) -> Result<Machine, Error> {
    let workers = config.engine.workers;
    let functions: Vec<(String, Arc<dyn Function>)> =
        config.functions.iter().map(|entry| (entry.name.clone(), Arc::clone(&entry.function))).collect();
    let ports = Ports::open(&config, options, workers)?;
    let arena = Arena::new(config.arena.clone(), workers)?;
    let devices = Devices::load(&config, &arena)?;
    let ordered = config.ports.iter().map(|port| port.ordered).collect();
    let plan = Arc::new(Plan::new(
        config.classifier.clone(),
        config.chain.decider().clone(),
        &functions,
        config.chain.ranks(),
        &devices.placement,
        ordered,
    ));
    let steering = Arc::new(steering(&config));
    let mut kernels: Vec<u8> = functions.iter().map(|(_, function)| function.contract().kernel).collect();
    if kernels.is_empty() {
        // A chain from port to port puts nothing into bins, but a packer has at least one label.
        kernels.push(0);
    }
    let clock = Instant::now();
    let workers = arena
        .split()
        .into_iter()
        .enumerate()
        .map(|(index, region)| {
            let workers = steering.workers();
            Ok(Worker::new(WorkerParts {
                plan: Arc::clone(&plan),
                region,
                receivers: ports.receivers(index, &steering)?,
                transmitters: ports.transmitters(index),
                host_halves: functions.iter().map(|(_, function)| function.host_half(index, workers)).collect(),
                places: devices.places(&config.packing, &kernels)?,
                burst_packets: config.engine.burst_packets,
                in_flight_packets: config.engine.in_flight_packets,
                clock,
            }))
        })
        .collect::<Result<_, Error>>()?;
    let names = Names {
        ports: config.ports.iter().map(|port| (port.name.clone(), ports.kind(&port.kind))).collect(),
        functions: functions.into_iter().map(|(name, _)| name).collect(),
    };
    let bin_packets = config.packing.bin_packets as usize;
    Ok(Machine { plan, workers, ports, devices, names, bin_packets, pin: config.engine.pin })
}
