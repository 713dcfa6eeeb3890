//! Creates workers for tests of their components.

use std::path::Path;
use std::sync::Arc;

use godwit_packet::Descriptor;

use crate::config::Config;
use crate::control::setup::build;
use crate::options::Options;
use crate::path::Worker;
use crate::plan::chain_plan::ChainPlan;

/// Configuration with two functions. The function `first` gets the packets to 10.0.0.0/9, and
/// `second` gets all others. Both are of kind `echo`, which returns every packet to its port.
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

/// Returns a worker that has not started, for a configuration.
pub(crate) fn worker(configuration: &str) -> Worker {
    let config = Config::parse(configuration, "test", Path::new(".")).expect("the configuration is valid");
    build(config, &Options::default()).expect("the machine has a CPU and memory").workers.remove(0)
}

/// Returns the function chain of a configuration, in the form that workers use.
pub(crate) fn plan(configuration: &str) -> Arc<ChainPlan> {
    Arc::clone(&worker(configuration).core.plan)
}

impl Worker {
    /// Receives one burst of packets, and returns it. The worker does not process the packets.
    pub(crate) fn receive_burst(&mut self) -> Vec<Descriptor> {
        let batch = self.intake.receive(&mut self.core, 0, 0, false).expect("the port works");
        batch.descriptors.clone()
    }
}
