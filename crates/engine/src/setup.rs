//! From a configuration to workers: memory, ports, programs, steering.

use std::sync::Arc;
use std::time::{Duration, Instant};

use godwit_chain::{Chain, Classifier};
use godwit_device::{Choice, Device, DeviceChain, DeviceOptions, Implementation, Mode, Program, cpu};
use godwit_function::{Function, HostHalf};
use godwit_packet::{Arena, Reuse, SteerKey, Steering};
use godwit_sched::{Packer, Stream};
use godwit_wire::Parsed;

use crate::change::Changes;
use crate::changer::{Changer, steering_functions};
use crate::config::{Config, DeviceConfig, FunctionConfig, Idle, IoModel};
use crate::control::{self, Names, cores_of_sender};
use crate::device_chain::{HostSide, Rows, Site, Streams, device_chain};
use crate::failover::{LAST_RESORT, Place};
use crate::grace::Graces;
use crate::plan::{Placed, Plan};
use crate::ports::Ports;
use crate::program::FunctionProgram;
use crate::socket::ControlSocket;
use crate::trace::Traces;
use crate::worker::{SenderPlace, Worker, WorkerParts};
use crate::{Error, Opener, Options};

/// Workers ready to start, and what the control thread keeps.
pub(crate) struct Machine {
    pub(crate) plan: Arc<Plan>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) ports: Ports,
    pub(crate) devices: Arc<Devices>,
    pub(crate) functions: Vec<(String, Arc<dyn Function>)>,
    pub(crate) socket: Option<ControlSocket>,
    pub(crate) graces: Arc<Graces>,
    pub(crate) traces: Arc<Traces>,
    pub(crate) changer: Changer,
    pub(crate) names: Names,
    pub(crate) pin: bool,
}

/// The devices that functions are placed on, and the CPU, with their programs loaded.
pub(crate) struct Devices {
    devices: Vec<(DeviceConfig, Arc<dyn Device>)>,
    /// For each function the devices that run it.
    placement: Vec<Box<[usize]>>,
    /// For each device the chain that it followed at the start.
    chains: Vec<Option<Arc<DeviceChain>>>,
    /// For each device whether it was told anything of the chain at the start.
    knows_chain: Vec<bool>,
    host_sides: Vec<HostSide>,
    rows: Rows,
}

impl Devices {
    /// Every device knows all programs, so that a bin's instance means the same on each. The CPU is among them even where
    /// nothing is placed on it: when another device is lost there is no time to load it.
    ///
    /// `host_halves`: one worker's.
    fn load(
        config: &Config,
        arena: &Arena,
        opener: Option<&Opener>,
        host_halves: &[Option<Box<dyn HostHalf>>],
    ) -> Result<Self, Error> {
        let programs: Vec<(Arc<dyn Program>, Implementation)> = config
            .functions
            .iter()
            .map(|entry| {
                let program = FunctionProgram::new(entry.name.clone(), Arc::clone(&entry.function));
                (Arc::new(program) as Arc<dyn Program>, entry.implementation)
            })
            .collect();
        let used = |device: &&DeviceConfig| device.id == cpu::ID || is_used(config, &device.id);
        let used: Vec<&DeviceConfig> = config.devices.iter().filter(used).collect();
        debug_assert_eq!(used[LAST_RESORT].id, cpu::ID);
        let places = |function: &FunctionConfig| {
            let place = |id: &String| {
                let named = used.iter().position(|device| device.id == *id);
                named.expect("the configuration has every device that a function names")
            };
            function.devices.iter().map(place).collect()
        };
        let placement: Vec<Box<[usize]>> = config.functions.iter().map(places).collect();
        let host_sides: Vec<HostSide> = host_halves.iter().map(|half| HostSide::new(half.as_deref())).collect();
        let rows = Rows::new(config.chain.classes().len());
        let site = Site { functions: &config.functions, placement: &placement, host_sides: &host_sides, rows };
        let load = |(number, &device): (usize, &&DeviceConfig)| {
            let follows = number != LAST_RESORT && device.device_chain;
            let chain = follows.then(|| device_chain(&config.chain, 0, site, number));
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
                ..DeviceOptions::default()
            };
            let arena = arena.handle();
            let opened = opener.and_then(|Opener(open)| open(&device.id, &programs, &arena, &options));
            let opened = opened.unwrap_or_else(|| godwit_device::open(&device.id, &programs, &arena, &options))?;
            if let Some(sentence) = opened.fallback() {
                tracing::warn!("{sentence}");
                if !device.share.is_empty() {
                    tracing::warn!("{}: `share` is not kept: there are no groups to split", device.id);
                }
            }
            if !opened.runs_chain() && options.chain.as_ref().is_some_and(|chain| chain.continues_any()) {
                tracing::warn!("{} follows no chain: packets come back from it after each function", device.id);
            }
            Ok(((device.clone(), opened), options.chain))
        };
        let loaded: Vec<_> = used.iter().enumerate().map(load).collect::<Result<_, Error>>()?;
        let followed =
            |((_, device), chain): &((_, Arc<dyn Device>), Option<_>)| chain.clone().filter(|_| device.runs_chain());
        let chains = loaded.iter().map(followed).collect();
        let knows_chain = loaded.iter().map(|(_, chain)| chain.is_some()).collect();
        let devices = loaded.into_iter().map(|(device, _)| device).collect();
        Ok(Self { devices, placement, chains, knows_chain, host_sides, rows })
    }

    /// Brings the chain with this number to the devices that know of one. Returns what each of them follows of it.
    pub(crate) fn take_chain(
        &self,
        functions: &[FunctionConfig],
        chain: &Chain,
        number: u64,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<Option<Arc<DeviceChain>>>, String> {
        let Self { placement, host_sides, rows, .. } = self;
        let site = Site { functions, placement, host_sides, rows: *rows };
        let take = |(device, (config, opened)): (usize, &(DeviceConfig, Arc<dyn Device>))| {
            if !self.knows_chain[device] {
                return Ok(None);
            }
            let id = &config.id;
            if opened.runs_chain() && !rows.can_change() {
                return Err(format!(
                    "device `{id}` follows the chain by itself, and with more than 128 classes it cannot follow another at the same \
                     time: start Godwit again with this chain, or set device_chain = false"
                ));
            }
            if opened.runs_chain() && chain.classes().len() > rows.of(number).len() {
                warnings.push(format!(
                    "device `{id}` has room for a chain of {} classes: packets come back from it after each function until \
                     Godwit is started again",
                    rows.of(number).len()
                ));
            }
            let wanted = device_chain(chain, number, site, device);
            let taken = opened.update_chain(wanted.clone()).map_err(|error| error.to_string())?;
            if opened.runs_chain() && taken != wanted {
                warnings.push(format!(
                    "device `{id}`: packets come back from it between functions that need more of them than those of the chain \
                     that Godwit was started with"
                ));
            }
            Ok(opened.runs_chain().then(|| Arc::new(taken)))
        };
        self.devices.iter().enumerate().map(take).collect()
    }

    /// What the operator says of each device.
    pub(crate) fn configs(&self) -> impl Iterator<Item = &DeviceConfig> {
        self.devices.iter().map(|(config, _)| config)
    }

    /// One worker's bins and lanes, one of each per device.
    fn places(&self, streams: &[Stream]) -> Result<Vec<Place>, Error> {
        let place = |(config, device): &(DeviceConfig, Arc<dyn Device>)| {
            let packer = Packer::with_streams(config.packing.clone(), streams, config.chunks)?;
            let mut lane = Arc::clone(device).lane()?;
            packer.chunks().try_for_each(|chunk| lane.reserve(chunk))?;
            Ok(Place::new(&config.id, packer, lane))
        };
        self.devices.iter().map(place).collect()
    }

    /// The name of each device.
    pub(crate) fn ids(&self) -> Vec<&str> {
        self.devices.iter().map(|(_, device)| device.capabilities().id.as_str()).collect()
    }

    /// The devices themselves.
    pub(crate) fn all(&self) -> impl Iterator<Item = &dyn Device> + Clone {
        self.devices.iter().map(|(_, device)| &**device)
    }

    /// What is said of each device.
    pub(crate) fn views(&self) -> Vec<DeviceView> {
        let view = |(config, device): &(DeviceConfig, Arc<dyn Device>)| DeviceView {
            id: device.capabilities().id.clone(),
            mode: device.mode(),
            choices: device.choices(),
            bin_packets: config.packing.bin_packets as usize,
        };
        self.devices.iter().map(view).collect()
    }

    /// For each function the form of it that runs, on the first device that it is placed on.
    pub(crate) fn choices(&self) -> Vec<Choice> {
        let all: Vec<Vec<Choice>> = self.devices.iter().map(|(_, device)| device.choices()).collect();
        self.placement.iter().enumerate().map(|(function, devices)| all[devices[0]][function].clone()).collect()
    }
}

/// What reports say of a device.
pub(crate) struct DeviceView {
    pub(crate) id: String,
    pub(crate) mode: Mode,
    /// One per function: which form of it runs here.
    pub(crate) choices: Vec<Choice>,
    pub(crate) bin_packets: usize,
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
    let key_of = |function: usize| config.functions[function].function.steer_key();
    let functions = steering_functions(&config.functions, &config.chain);
    let keys: Vec<_> = functions.into_iter().map(|function| function.and_then(key_of)).collect();
    let keyed = keys.iter().any(Option::is_some);
    let key = keyed.then(|| Arc::new(ClassKeys { classifier: config.classifier.clone(), keys }) as Arc<dyn SteerKey>);
    Steering::new(config.engine.workers, key)
}

/// The memory of packets, where the devices that work on it can reach it, and laid out as they want it.
fn arena(config: &Config) -> Result<Arena, Error> {
    let mut arena = config.arena.clone();
    if !config.says_reuse
        && config.functions.iter().flat_map(|function| &function.devices).any(|id| godwit_device::has_own_memory(id))
    {
        arena.reuse = Reuse::Oldest;
    }
    let workers = config.engine.workers;
    let bytes = Arena::bytes_for(&arena, workers)?;
    // A device that is launched and works on the host's memory reaches any of the process, which may lie on hugepages.
    let of = |wanted: &dyn Fn(&DeviceConfig) -> bool| {
        let used = config.devices.iter().filter(|device| is_used(config, &device.id) && wanted(device));
        used.map(|device| device.id.as_str()).collect::<Vec<_>>()
    };
    // The first that gives any has its way: groups cannot stay on a device without its memory, copies are merely slower.
    let mut ids = of(&|device| device.mode == Mode::Persistent);
    ids.extend(of(&|device| device.mode == Mode::Launch && godwit_device::has_own_memory(&device.id)));
    Ok(Arena::over(godwit_device::arena_memory(&ids, bytes)?, arena, workers)?)
}

fn is_used(config: &Config, device: &str) -> bool {
    config.functions.iter().any(|function| function.devices.iter().any(|id| id == device))
}

/// Builds everything; nothing moves yet.
pub(crate) fn machine(config: Config, options: &Options) -> Result<Machine, Error> {
    let workers = config.engine.workers;
    let functions: Vec<(String, Arc<dyn Function>)> =
        config.functions.iter().map(|entry| (entry.name.clone(), Arc::clone(&entry.function))).collect();
    let control = options.control.as_ref().or(config.engine.control.as_ref());
    let socket = control.map(|path| ControlSocket::open(path)).transpose()?;
    let mut ports = Ports::open(&config, options, workers)?;
    let arena = arena(&config)?;
    let mut host_halves: Vec<Vec<_>> = (0..workers)
        .map(|worker| functions.iter().map(|(_, function)| function.host_half(worker, workers)).collect())
        .collect();
    let devices = Arc::new(Devices::load(&config, &arena, options.opener.as_ref(), &host_halves[0])?);
    let plan = Arc::new(plan(&config, &config.chain, config.classifier.clone(), &devices, devices.chains.clone(), 0));
    let changes = Changes::new(Arc::clone(&plan), workers);
    let steering = Arc::new(steering(&config));
    let cores = control::cores();
    let clock = Instant::now();
    let graces = Graces::new(workers);
    let port_names = config.ports.iter().map(|port| port.name.clone()).collect();
    let traces = Traces::new(port_names, config.chain.classes().to_vec(), workers);
    let handle = arena.handle();
    let regions = arena.split();
    ports.open_live(&config, &handle, &regions)?;
    let workers = regions
        .into_iter()
        .enumerate()
        .map(|(index, mut region)| {
            let workers = steering.workers();
            Ok(Worker::new(WorkerParts {
                plan: Arc::clone(&plan),
                receivers: ports.receivers(index, &steering, &mut region)?,
                transmitters: ports.transmitters(index)?,
                region,
                host_halves: std::mem::take(&mut host_halves[index]),
                places: devices.places(&plan.streams)?,
                burst_packets: config.engine.burst_packets,
                in_flight_packets: config.engine.in_flight_packets,
                sleeps: config.engine.idle == Idle::Sleep,
                sender: (config.engine.io == IoModel::Dual).then(|| SenderPlace {
                    worker: index,
                    cores: config.engine.pin.then(|| cores_of_sender(&cores, workers, index).to_vec()),
                }),
                packet_clock: ports.is_replay(),
                grace: graces.of_worker(index),
                tracer: traces.of_worker(index, clock),
                change: changes.of_worker(index),
                clock,
            }))
        })
        .collect::<Result<_, Error>>()?;
    let names = Names {
        ports: config.ports.iter().map(|port| (port.name.clone(), ports.kind(&port.kind))).collect(),
        functions: functions.iter().map(|(name, _)| name.clone()).collect(),
    };
    let pin = config.engine.pin;
    let changer = Changer::new(config, Arc::clone(&devices), changes, Arc::clone(&traces));
    Ok(Machine { plan, workers, ports, devices, functions, socket, graces, traces, changer, names, pin })
}

/// The chain with this number, made ready for the packet path. `config`: all that is not of the chain.
pub(crate) fn plan(
    config: &Config,
    chain: &Chain,
    classifier: Classifier,
    devices: &Devices,
    chains: Vec<Option<Arc<DeviceChain>>>,
    number: u64,
) -> Plan {
    let functions: Vec<(String, Arc<dyn Function>)> =
        config.functions.iter().map(|entry| (entry.name.clone(), Arc::clone(&entry.function))).collect();
    let mut kernels: Vec<u8> = functions.iter().map(|(_, function)| function.contract().kernel).collect();
    if kernels.is_empty() {
        // A chain from port to port puts nothing into bins, but a packer has at least one label.
        kernels.push(0);
    }
    let tells_classes_apart = |function: usize| {
        let places = devices.placement.get(function).into_iter().flatten();
        places.flat_map(|&place| &chains[place]).any(|chain| chain.distinguishes_rows(function))
    };
    let first_row = devices.rows.of(number).start;
    let streams = Streams::new(&kernels, chain.classes().len(), first_row, tells_classes_apart);
    let placed = Placed { functions: &devices.placement, devices: &devices.ids(), chains, streams: &streams };
    let ordered = config.ports.iter().map(|port| port.ordered).collect();
    Plan::new(classifier, chain.classes(), chain.decider().clone(), &functions, chain.ranks(), placed, ordered)
}
