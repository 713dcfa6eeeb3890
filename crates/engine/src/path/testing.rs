//! Test environment for a single component of a worker.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use godwit_function::HostHalf;
use godwit_packet::{Arena, Batch, Descriptor, Steering};

use crate::config::Config;
use crate::control::ports::Ports;
use crate::observe::observer::Observer;
use crate::observe::trace::Traces;
use crate::options::Options;
use crate::path::core::Core;
use crate::path::device::WorkerDevice;
use crate::path::egress::NamedTransmit;
use crate::path::intake::NamedReceive;
use crate::place::devices::Devices;
use crate::plan::build::plan;
use crate::plan::chain_plan::ChainPlan;

/// Configuration with two functions of kind `echo`, which returns every packet to its port. The
/// function `first` gets the packets to 10.0.0.0/9, and `second` gets all others.
pub(crate) const TWO_FUNCTIONS: &str = r#"
    [engine]
    workers = 1
    in_flight_packets = 1024
    burst_packets = 64
    [[port]]
    name = "left"
    kind = "synthetic"
    packets = 64
    destination = "10.0.0.0/8"
    [[port]]
    name = "right"
    kind = "synthetic"
    [[class]]
    name = "low"
    destination = "10.0.0.0/9"
    [[function]]
    name = "first"
    kind = "echo"
    impl = "scalar"
    [[function]]
    name = "second"
    kind = "echo"
    impl = "scalar"
    [[chain]]
    from = "left"
    class = "low"
    to = "first"
    [[chain]]
    from = "left"
    to = "second"
    [[chain]]
    from = "first"
    to = "left"
    [[chain]]
    from = "second"
    to = "right"
"#;

/// Number of the function `first` in [`TWO_FUNCTIONS`].
pub(crate) const FIRST: usize = 0;
/// Number of the function `second` in [`TWO_FUNCTIONS`].
pub(crate) const SECOND: usize = 1;

/// Test environment for one worker component. It contains the state that all components share, and
/// the values from which the component is created.
pub(crate) struct Surroundings {
    pub(crate) core: Core,
    config: Config,
    devices: Devices,
    ports: Ports,
    /// Receive queues that [`Surroundings::arrive`] uses.
    sources: Vec<NamedReceive>,
}

impl Surroundings {
    /// Creates the surroundings for a configuration.
    pub(crate) fn new(configuration: &str) -> Self {
        let config = Config::parse(configuration, "test", Path::new(".")).expect("the configuration is valid");
        let arena = Arena::new(config.arena.clone(), 1).expect("the machine has memory");
        let devices = Devices::load(&config, &arena, None, &host_halves(&config)).expect("the machine has a CPU");
        let classifier = config.classifier.clone();
        let plan = Arc::new(plan(&config, &config.chain, classifier, &devices, devices.chains.clone(), 0));
        let clock = Instant::now();
        let port_names = config.ports.iter().map(|port| port.name.clone()).collect();
        let traces = Traces::new(port_names, plan.classes.clone(), 1, false);
        let observer = Observer::new(traces.of_worker(0, clock));
        let mut region = arena.split().remove(0);
        let ports = Ports::open(&config, &Options::default(), 1).expect("the ports are synthetic");
        let steering = Arc::new(Steering::new(1, None));
        let sources = ports.receivers(0, &steering, &mut region).expect("the ports are synthetic");
        let core = Core::new(plan, region, config.engine.in_flight_packets, observer, clock);
        Self { core, config, devices, ports, sources }
    }

    /// Puts one burst of packets from the first source into buffers and into the order ring, as the
    /// intake does.
    pub(crate) fn arrive(&mut self) -> Vec<Descriptor> {
        let Self { core, config, sources, .. } = self;
        let mut batch = Batch::with_capacity(config.engine.burst_packets);
        let received = sources[0].1.receive(&mut core.region, &mut batch, config.engine.burst_packets);
        received.expect("the port works");
        core.order.arrive(&mut batch.descriptors, &batch.stamps, 0);
        batch.descriptors
    }

    /// Returns the receive queues, one per source.
    pub(crate) fn receivers(&mut self) -> Vec<NamedReceive> {
        std::mem::take(&mut self.sources)
    }

    /// Returns new transmit queues, one per port.
    pub(crate) fn transmitters(&self) -> Vec<NamedTransmit> {
        self.ports.transmitters(0).expect("the ports are synthetic")
    }

    /// Returns the parts of the functions that run on the CPU of one worker.
    pub(crate) fn host_halves(&self) -> Vec<Option<HostHalf>> {
        host_halves(&self.config)
    }

    /// Returns new connections of a worker to its devices.
    pub(crate) fn devices(&self) -> Vec<WorkerDevice> {
        self.devices.worker_devices(&self.core.plan.streams).expect("the CPU accepts the batches")
    }
}

fn host_halves(config: &Config) -> Vec<Option<HostHalf>> {
    config.functions.iter().map(|entry| entry.function.host_half(0, 1)).collect()
}

/// Returns the function chain of a configuration, in the form that workers use.
pub(crate) fn chain_plan(configuration: &str) -> Arc<ChainPlan> {
    Arc::clone(&Surroundings::new(configuration).core.plan)
}
