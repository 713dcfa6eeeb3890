//! Creates the workers from a configuration, with their memory, ports, programs and packet
//! steering.

use std::iter;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use godwit_chain::Classifier;
use godwit_device::{Implementation, Mode};
use godwit_function::Function;
use godwit_packet::{ANY_WORKER, Arena, Layout, Reuse, SteerKey, Steering};
use godwit_state::State;
use godwit_wire::Parsed;

use crate::config::{Config, DeviceConfig, FunctionConfig, Idle, IoModel};
use crate::control::cores::{cores, cores_of_sender};
use crate::control::metrics::MetricsSocket;
use crate::control::ports::Ports;
use crate::control::reporter::Names;
use crate::control::socket::ControlSocket;
use crate::error::Error;
use crate::observe::observer::Observer;
use crate::observe::trace::Traces;
use crate::options::Options;
use crate::path::exchange::{Exchange, ring_packets};
use crate::path::sender::SenderConfig;
use crate::path::{Worker, WorkerConfig};
use crate::place::devices::{Devices, is_used};
use crate::place::follow::Follower;
use crate::place::meter::{Meter, MeterLayout};
use crate::place::model::Model;
use crate::place::monitor::Prepared;
use crate::plan::build::plan;
use crate::plan::chain_plan::ChainPlan;
use crate::plan::change::PlanChanges;
use crate::plan::changer::{Changer, steering_functions};
use crate::plan::grace::GracePeriods;

/// Workers that are ready to start, and the engine parts that the control thread uses.
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
    /// Name of the configuration file, as given.
    pub(crate) origin: String,
    pub(crate) metrics: Option<MetricsSocket>,
    pub(crate) pin: bool,
    pub(crate) state: Option<Arc<State>>,
    /// Placement of the functions, if one is configured.
    pub(crate) placement: Option<Prepared>,
}

/// Steering key of each traffic class, which selects the worker of a packet.
///
/// Packets of one class pass at most one function that keeps state for many flows
/// (`config/workers.rs`). This function provides the steering key of the class.
struct ClassKeys {
    classifier: Classifier,
    /// Steering key of each function that has one.
    keys: Vec<Arc<dyn SteerKey>>,
    /// Index in `keys` for each class, or `None` if the flow hash selects the worker.
    key_of_class: Vec<Option<usize>>,
}

impl SteerKey for ClassKeys {
    fn steer_key(&self, frame: &[u8], parsed: &Parsed, flow_hash: u32) -> u32 {
        match self.key_of_class[usize::from(self.classifier.classify(parsed))] {
            Some(key) => self.keys[key].steer_key(frame, parsed, flow_hash),
            None => flow_hash,
        }
    }

    fn buckets(&self, frames: &[&[u8]], buckets: &mut [u8]) {
        if let (true, [Some(key)]) = (self.classifier.is_trivial(), &self.key_of_class[..]) {
            return self.keys[*key].buckets(frames, buckets);
        }
        let classes: Vec<u8> =
            frames.iter().map(|frame| self.classifier.classify(&godwit_wire::parse(frame))).collect();
        buckets.fill(ANY_WORKER);
        for (index, key) in self.keys.iter().enumerate() {
            let is_keyed = |packet: &usize| self.key_of_class[usize::from(classes[*packet])] == Some(index);
            let keyed: Vec<usize> = (0..frames.len()).filter(is_keyed).collect();
            let keyed_frames: Vec<&[u8]> = keyed.iter().map(|&packet| frames[packet]).collect();
            let mut found = vec![ANY_WORKER; keyed.len()];
            key.buckets(&keyed_frames, &mut found);
            keyed.iter().zip(found).for_each(|(&packet, bucket)| buckets[packet] = bucket);
        }
    }
}

/// Creates the packet steering, which selects a worker for each packet. A function that keeps state
/// for many flows provides the key for its traffic classes. Other classes use the flow hash.
fn steering(config: &Config) -> Steering {
    let mut keys: Vec<Arc<dyn SteerKey>> = Vec::new();
    let mut indices: Vec<Option<usize>> = vec![None; config.functions.len()];
    let mut key_of = |function: usize| {
        if indices[function].is_none() {
            keys.push(config.functions[function].function.steer_key()?);
            indices[function] = Some(keys.len() - 1);
        }
        indices[function]
    };
    let functions = steering_functions(&config.functions, &config.chain);
    let key_of_class: Vec<_> = functions.into_iter().map(|function| function.and_then(&mut key_of)).collect();
    let classifier = config.classifier.clone();
    let keyed = !keys.is_empty();
    let key = keyed.then(|| Arc::new(ClassKeys { classifier, keys, key_of_class }) as Arc<dyn SteerKey>);
    Steering::new(config.engine.workers, key)
}

/// Allocates packet memory that the devices can access. Chooses the order in which buffers are
/// reused.
fn arena(config: &Config, has_exchange: bool) -> Result<Arena, Error> {
    let mut arena = config.arena.clone();
    if !config.has_reuse
        && config.functions.iter().flat_map(|function| &function.devices).any(|id| godwit_device::has_own_memory(id))
    {
        arena.reuse = Reuse::Oldest;
    }
    let workers = config.engine.workers;
    if has_exchange {
        // Packets in the rings to other workers need their own buffers. Two workers could otherwise
        // wait for each other, with all of their buffers in the rings. A dense region cannot
        // guarantee free buffers, because its space becomes free in the order of arrival.
        arena.layout = Layout::Slots;
        arena.packets += ring_packets(workers) * (workers - 1);
    }
    let bytes = Arena::bytes_for(&arena, workers)?;
    // A device in launch mode without separate memory can access all process memory, so it is not
    // listed.
    let ids_of = |is_wanted: &dyn Fn(&DeviceConfig) -> bool| {
        let used = config.devices.iter().filter(|device| is_used(config, &device.id) && is_wanted(device));
        used.map(|device| device.id.as_str()).collect::<Vec<_>>()
    };
    // The first device in the list allocates the memory for all packets. Devices in persistent mode
    // come first, because they can use no other memory. Devices that copy packets can use other
    // memory, but are slower.
    let mut ids = ids_of(&|device| device.mode == Mode::Persistent);
    ids.extend(ids_of(&|device| device.mode == Mode::Launch && godwit_device::has_own_memory(&device.id)));
    Ok(Arena::over(godwit_device::arena_memory(&ids, bytes)?, arena, workers)?)
}

/// Opens the state folder, which stores sequence numbers across restarts.
///
/// Returns `None` if no function has such sequence numbers, or if the run is a replay. Also returns
/// `None` if no folder is configured and the configuration does not come from a file. The keys are
/// then newly generated.
fn start_state(config: &Config, options: &Options) -> Result<Option<Arc<State>>, Error> {
    let folder = options.state.as_ref().or(config.engine.state.as_ref());
    let functions = || config.functions.iter().filter_map(|entry| Some((&entry.name, entry.function.durable()?)));
    let is_needed = options.replay.is_none() && (folder.is_some() || config.is_from_file());
    if !is_needed || functions().next().is_none() {
        return Ok(None);
    }
    config.check_state(folder.is_some()).map_err(|error| Error::Setup(error.to_string()))?;
    let state = State::open(folder.map(PathBuf::as_path)).map_err(|error| Error::Setup(error.to_string()))?;
    let state = Arc::new(state);
    for (name, durable) in functions() {
        let started = durable.start(name, &state);
        started.map_err(|error| Error::Setup(format!("function `{name}`: {error}")))?;
    }
    Ok(Some(state))
}

/// Creates an engine from a configuration. It moves no packets yet.
pub(crate) fn build(config: Config, options: &Options) -> Result<EngineParts, Error> {
    let workers = config.engine.workers;
    let prepared = placement(&config, options)?;
    let functions: Vec<(String, Arc<dyn Function>)> =
        config.functions.iter().map(|entry| (entry.name.clone(), Arc::clone(&entry.function))).collect();
    let control = options.control.as_ref().or(config.engine.control.as_ref());
    let socket = control.map(|path| ControlSocket::open(path)).transpose()?;
    let metrics = match &options.replay {
        None => config.metrics.as_ref().map(MetricsSocket::open).transpose()?,
        Some(_) => None,
    };
    let mut ports = Ports::open(&config, options, workers)?;
    let state = start_state(&config, options)?;
    let is_keyed = steering_functions(&config.functions, &config.chain).iter().any(Option::is_some);
    let has_exchange = workers > 1 && is_keyed && ports.needs_exchange();
    let arena = arena(&config, has_exchange)?;
    for (name, function) in &functions {
        let start = function.lifecycle().map_or(Ok(()), |part| part.start(!ports.is_replay()));
        start.map_err(|error| Error::Setup(format!("function `{name}`: {error}")))?;
    }
    let host_half = |worker: usize, entry: &FunctionConfig| {
        let mut half = entry.function.host_half(worker, workers)?;
        if let Some(preparing) = half.preparing() {
            preparing.set_interleaving(matches!(entry.implementation, Implementation::Gopt | Implementation::Native));
        }
        Some(half)
    };
    let mut host_halves: Vec<Vec<_>> =
        (0..workers).map(|worker| config.functions.iter().map(|entry| host_half(worker, entry)).collect()).collect();
    let devices = Arc::new(Devices::load(&config, &arena, options.opener.as_ref(), &host_halves[0])?);
    let plan = Arc::new(plan(&config, &config.chain, config.classifier.clone(), &devices, devices.chains.clone(), 0));
    let changes = PlanChanges::new(Arc::clone(&plan), workers);
    let steering = Arc::new(steering(&config));
    let cores = cores();
    let clock = Instant::now();
    let graces = GracePeriods::new(workers);
    let port_names = config.ports.iter().map(|port| port.name.clone()).collect();
    let traces = Traces::new(port_names, config.chain.classes().to_vec(), workers, !ports.is_replay());
    let handle = arena.handle();
    let regions = arena.split();
    ports.open_live(&config, &handle, &regions)?;
    let sleeps = config.engine.idle == Idle::Sleep;
    let exchanges = match has_exchange {
        true => Exchange::between(&regions, &steering, ring_packets(workers), sleeps)?,
        false => Vec::new(),
    };
    let exchanges = exchanges.into_iter().map(Some).chain(iter::repeat_with(|| None));
    let workers = regions
        .into_iter()
        .zip(exchanges)
        .enumerate()
        .map(|(index, (mut region, exchange))| {
            let workers = steering.workers();
            Ok(Worker::new(WorkerConfig {
                plan: Arc::clone(&plan),
                receivers: ports.receivers(index, &steering, &mut region)?,
                exchange,
                transmitters: ports.transmitters(index)?,
                region,
                host_halves: std::mem::take(&mut host_halves[index]),
                devices: devices.worker_devices(&plan.streams)?,
                follower: prepared.as_ref().map(|prepared| follower(prepared, &devices, &config)),
                burst_packets: config.engine.burst_packets,
                in_flight_packets: config.engine.in_flight_packets,
                sleeps,
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
    let origin = config.origin().to_owned();
    let changer = Changer::new(config, Arc::clone(&devices), changes, Arc::clone(&traces));
    Ok(EngineParts {
        plan,
        workers,
        ports,
        devices,
        functions,
        socket,
        graces,
        traces,
        changer,
        names,
        origin,
        metrics,
        pin,
        state,
        placement: prepared,
    })
}

/// Reads the profile, and creates the planner of the placement, if one is configured. The output of
/// a replay does not depend on measurements, so it has no placement.
fn placement(config: &Config, options: &Options) -> Result<Option<Prepared>, Error> {
    let Some(placement) = config.placement.as_ref().filter(|_| options.replay.is_none()) else { return Ok(None) };
    let refuse = |sentence: String| Error::Setup(format!("[placement]: {sentence}"));
    let Some(model) = Model::load(config).map_err(refuse)? else { return Ok(None) };
    Prepared::new(model, placement, config).map(Some).map_err(refuse)
}

/// Creates the part of the placement that one worker follows.
fn follower(prepared: &Prepared, devices: &Devices, config: &Config) -> Follower {
    let count = devices.configs().count();
    let meter = Meter::new(MeterLayout { functions: config.functions.len(), devices: count });
    Follower::new(prepared.cell.reader(), meter, &devices.placement, count, config.engine.burst_packets)
}
