//! Builds workers from a configuration: memory, ports, programs, steering.

use std::sync::Arc;
use std::time::{Duration, Instant};

use godwit_chain::{Chain, Classifier};
use godwit_device::{Choice, Device, DeviceChain, DeviceOptions, Implementation, Mode, Program, cpu};
use godwit_function::{Function, HostHalf};
use godwit_packet::{Arena, Reuse, SteerKey, Steering};
use godwit_sched::{Packer, Stream};
use godwit_wire::Parsed;

use crate::config::{Config, DeviceConfig, FunctionConfig, Idle, IoModel};
use crate::control::ports::Ports;
use crate::control::program::FunctionProgram;
use crate::control::run::{Names, cores, cores_of_sender};
use crate::control::socket::ControlSocket;
use crate::error::Error;
use crate::observe::observer::Observer;
use crate::observe::trace::Traces;
use crate::options::{Opener, Options};
use crate::path::{SenderConfig, Worker, WorkerParts};
use crate::place::device_chain::{ChainContext, ChainRows, HostHalfInfo, Streams, device_chain};
use crate::place::failover::{LAST_RESORT, WorkerDevice};
use crate::plan::chain_plan::{ChainPlan, Placement};
use crate::plan::change::PlanChanges;
use crate::plan::changer::{Changer, steering_functions};
use crate::plan::grace::GracePeriods;

/// Workers that are ready to start, and the parts that the control thread keeps.
pub(crate) struct EngineParts {
    pub(crate) plan: Arc<ChainPlan>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) ports: Ports,
    pub(crate) devices: Arc<Devices>,
    pub(crate) functions: Vec<(String, Arc<dyn Function>)>,
    pub(crate) socket: Option<ControlSocket>,
    pub(crate) graces: GracePeriods,
    pub(crate) traces: Arc<Traces>,
    pub(crate) changer: Changer,
    pub(crate) names: Names,
    pub(crate) pin: bool,
}

/// The CPU and all devices on which functions are placed, with their programs loaded.
pub(crate) struct Devices {
    devices: Vec<(DeviceConfig, Arc<dyn Device>)>,
    /// Devices of each function, as indices into `devices`.
    placement: Vec<Box<[usize]>>,
    /// Device chain of each device at the start. `None`: the device runs no chain.
    chains: Vec<Option<Arc<DeviceChain>>>,
    /// Whether each device was opened with a device chain.
    has_chain: Vec<bool>,
    host_half_infos: Vec<HostHalfInfo>,
    rows: ChainRows,
}

impl Devices {
    /// Opens the devices. Every device loads all programs, so that the instance number of a bin has
    /// the same meaning on each. The CPU is always opened, because it takes over when a device is
    /// lost.
    ///
    /// `host_halves` are those of one worker.
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
        let devices_of = |function: &FunctionConfig| {
            let index = |id: &String| {
                let position = used.iter().position(|device| device.id == *id);
                position.expect("the configuration contains the devices of all functions")
            };
            function.devices.iter().map(index).collect()
        };
        let placement: Vec<Box<[usize]>> = config.functions.iter().map(devices_of).collect();
        let host_half_infos: Vec<HostHalfInfo> =
            host_halves.iter().map(|half| HostHalfInfo::new(half.as_deref())).collect();
        let rows = ChainRows::new(config.chain.classes().len());
        let context = ChainContext {
            functions: &config.functions,
            placement: &placement,
            host_half_infos: &host_half_infos,
            rows,
        };
        let load = |(number, &device): (usize, &&DeviceConfig)| {
            let is_enabled = number != LAST_RESORT && device.device_chain;
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
                ..DeviceOptions::default()
            };
            let arena = arena.handle();
            let opened = opener.and_then(|Opener(open)| open(&device.id, &programs, &arena, &options));
            let opened = opened.unwrap_or_else(|| godwit_device::open(&device.id, &programs, &arena, &options))?;
            if let Some(sentence) = opened.fallback() {
                tracing::warn!("{sentence}");
                if !device.share.is_empty() {
                    tracing::warn!(
                        "device `{}`: `share` is ignored, because the device has no persistent groups",
                        device.id
                    );
                }
            }
            if !opened.runs_chain() && options.chain.as_ref().is_some_and(|chain| chain.continues_any()) {
                tracing::warn!("device `{}` runs no chain: packets return to the host after each function", device.id);
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

    /// Writes chain `number` to the devices that were opened with a device chain. Returns the part
    /// that each device executes.
    ///
    /// # Errors
    /// If a device cannot hold a second chain, or its update fails.
    pub(crate) fn take_chain(
        &self,
        functions: &[FunctionConfig],
        chain: &Chain,
        number: u64,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<Option<Arc<DeviceChain>>>, String> {
        let Self { placement, host_half_infos, rows, .. } = self;
        let context = ChainContext { functions, placement, host_half_infos, rows: *rows };
        let take = |(device, (config, opened)): (usize, &(DeviceConfig, Arc<dyn Device>))| {
            if !self.has_chain[device] {
                return Ok(None);
            }
            let id = &config.id;
            if opened.runs_chain() && !rows.can_change() {
                return Err(format!(
                    "device `{id}` runs the chain, and has no room for a second one of more than 128 classes: restart Godwit with \
                     this chain, or set device_chain = false"
                ));
            }
            if opened.runs_chain() && chain.classes().len() > rows.of_chain(number).len() {
                warnings.push(format!(
                    "device `{id}` has room for a chain of {} classes: packets return to the host after each function until \
                     Godwit is restarted",
                    rows.of_chain(number).len()
                ));
            }
            let requested = device_chain(chain, number, context, device);
            let accepted = opened.update_chain(requested.clone()).map_err(|error| error.to_string())?;
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

    /// Creates the packers and lanes of one worker, one of each per device.
    fn worker_devices(&self, streams: &[Stream]) -> Result<Vec<WorkerDevice>, Error> {
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

    /// Returns the properties of each device that the report shows.
    pub(crate) fn views(&self) -> Vec<DeviceView> {
        let view = |(config, device): &(DeviceConfig, Arc<dyn Device>)| DeviceView {
            id: device.capabilities().id.clone(),
            mode: device.mode(),
            choices: device.choices(),
            bin_packets: config.packing.bin_packets as usize,
        };
        self.devices.iter().map(view).collect()
    }

    /// Returns for each function the form that runs on the first device of the function.
    pub(crate) fn choices(&self) -> Vec<Choice> {
        let all: Vec<Vec<Choice>> = self.devices.iter().map(|(_, device)| device.choices()).collect();
        self.placement.iter().enumerate().map(|(function, devices)| all[devices[0]][function].clone()).collect()
    }
}

/// Properties of a device that the report shows.
pub(crate) struct DeviceView {
    pub(crate) id: String,
    pub(crate) mode: Mode,
    /// Form of each function on this device.
    pub(crate) choices: Vec<Choice>,
    pub(crate) bin_packets: usize,
}

/// Steering key that depends on the class of a packet. At most one function with state for many
/// flows is on the path of each class (`config/workers.rs` checks this), and that function provides
/// the key.
struct ClassKeys {
    classifier: Classifier,
    /// Steering key of each class. `None`: packets of the class are steered by flow hash.
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

/// Creates the steering of packets to workers: by flow hash, or by the key of the function that
/// keeps state for the packet's class.
fn steering(config: &Config) -> Steering {
    let key_of = |function: usize| config.functions[function].function.steer_key();
    let functions = steering_functions(&config.functions, &config.chain);
    let keys: Vec<_> = functions.into_iter().map(|function| function.and_then(key_of)).collect();
    let keyed = keys.iter().any(Option::is_some);
    let key = keyed.then(|| Arc::new(ClassKeys { classifier: config.classifier.clone(), keys }) as Arc<dyn SteerKey>);
    Steering::new(config.engine.workers, key)
}

/// Allocates the arena in memory that the devices can access, with the reuse order that suits them.
fn arena(config: &Config) -> Result<Arena, Error> {
    let mut arena = config.arena.clone();
    if !config.has_reuse
        && config.functions.iter().flat_map(|function| &function.devices).any(|id| godwit_device::has_own_memory(id))
    {
        arena.reuse = Reuse::Oldest;
    }
    let workers = config.engine.workers;
    let bytes = Arena::bytes_for(&arena, workers)?;
    // Devices in launch mode without their own memory need no special memory. They access any
    // memory of the process, including huge pages.
    let ids_of = |is_wanted: &dyn Fn(&DeviceConfig) -> bool| {
        let used = config.devices.iter().filter(|device| is_used(config, &device.id) && is_wanted(device));
        used.map(|device| device.id.as_str()).collect::<Vec<_>>()
    };
    // The first listed device that provides memory provides the arena. Persistent devices come
    // first: their groups need such memory, while copies are only slower without it.
    let mut ids = ids_of(&|device| device.mode == Mode::Persistent);
    ids.extend(ids_of(&|device| device.mode == Mode::Launch && godwit_device::has_own_memory(&device.id)));
    Ok(Arena::over(godwit_device::arena_memory(&ids, bytes)?, arena, workers)?)
}

fn is_used(config: &Config, device: &str) -> bool {
    config.functions.iter().any(|function| function.devices.iter().any(|id| id == device))
}

/// Builds the engine from a configuration. No packet moves yet.
pub(crate) fn build(config: Config, options: &Options) -> Result<EngineParts, Error> {
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
    let changes = PlanChanges::new(Arc::clone(&plan), workers);
    let steering = Arc::new(steering(&config));
    let cores = cores();
    let clock = Instant::now();
    let graces = GracePeriods::new(workers);
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
                devices: devices.worker_devices(&plan.streams)?,
                burst_packets: config.engine.burst_packets,
                in_flight_packets: config.engine.in_flight_packets,
                sleeps: config.engine.idle == Idle::Sleep,
                sender: (config.engine.io == IoModel::Dual).then(|| SenderConfig {
                    worker: index,
                    cores: config.engine.pin.then(|| cores_of_sender(&cores, workers, index).to_vec()),
                }),
                packet_clock: ports.is_replay(),
                grace: graces.of_worker(index),
                observer: Observer::new(traces.of_worker(index, clock)),
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
    Ok(EngineParts { plan, workers, ports, devices, functions, socket, graces, traces, changer, names, pin })
}

/// Creates plan `number` for the packet path. `config` provides everything except the chain.
pub(crate) fn plan(
    config: &Config,
    chain: &Chain,
    classifier: Classifier,
    devices: &Devices,
    chains: Vec<Option<Arc<DeviceChain>>>,
    number: u64,
) -> ChainPlan {
    let functions: Vec<(String, Arc<dyn Function>)> =
        config.functions.iter().map(|entry| (entry.name.clone(), Arc::clone(&entry.function))).collect();
    let mut kernels: Vec<u8> = functions.iter().map(|(_, function)| function.contract().kernel).collect();
    if kernels.is_empty() {
        // A chain from port to port fills no bins, but a packer needs at least one label, so add a
        // kernel.
        kernels.push(0);
    }
    let depends_on_class = |function: usize| {
        let function_devices = devices.placement.get(function).into_iter().flatten();
        function_devices.flat_map(|&device| &chains[device]).any(|chain| chain.distinguishes_rows(function))
    };
    let first_row = devices.rows.of_chain(number).start;
    let streams = Streams::new(&kernels, chain.classes().len(), first_row, depends_on_class);
    let placement = Placement { functions: &devices.placement, devices: &devices.ids(), chains, streams: &streams };
    let ordered = config.ports.iter().map(|port| port.ordered).collect();
    ChainPlan::new(classifier, chain.classes(), chain.decider().clone(), &functions, chain.ranks(), placement, ordered)
}
