//! Builds plans from a configuration and a chain.

use std::sync::Arc;

use godwit_chain::{Chain, Classifier};
use godwit_device::DeviceChain;
use godwit_function::Function;

use crate::config::Config;
use crate::place::device_chain::Streams;
use crate::place::devices::Devices;
use crate::plan::chain_plan::{ChainPlan, Placement, PortPlans};
use crate::plan::stations::port_stations;

/// Creates the plan that describes the function chain to the workers. `config` provides everything
/// except the chain.
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
    let mut kernels: Vec<u8> = functions.iter().map(|(_, function)| function.contract().bin_kernel()).collect();
    if kernels.is_empty() {
        // The packer needs at least one kernel, even if the chain has no functions.
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
    let ports = PortPlans { ordered, stations: port_stations(config, chain.decider()) };
    ChainPlan::new(classifier, chain.classes(), chain.decider().clone(), &functions, chain.ranks(), placement, ports)
}
