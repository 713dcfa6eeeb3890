//! Creates the cost model of the placement from the configuration and the profile.

use godwit_device::{Mode, is_synchronous};
use godwit_sched::place::{
    Choice, FunctionSetup, Machine, MachineSetup, PlaceSet, PlaceSetup, Planner, PlannerConfig, Profile,
};

use crate::config::{Config, DeviceConfig, FunctionConfig, PlacementConfig};
use crate::place::devices::is_used;

/// Cost model of a configuration.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) machine: Machine,
}

impl Model {
    /// Reads the profile of a configuration, and creates the cost model. Returns `None` if the
    /// configuration has no placement.
    ///
    /// # Errors
    /// Returns a sentence if the profile cannot be used.
    pub(crate) fn load(config: &Config) -> Result<Option<Self>, String> {
        let Some(placement) = &config.placement else { return Ok(None) };
        let path = placement.profile.display();
        let text = std::fs::read_to_string(&placement.profile).map_err(|error| {
            format!("cannot read the profile {path}: {error}; `godwit profile CONFIG -o {path}` measures one")
        })?;
        let refuse = |error: &dyn std::fmt::Display| format!("profile {path}: {error}");
        let profile = Profile::parse(&text).map_err(|error| refuse(&error))?;
        let here = config.identity();
        profile.check_machine(&here).map_err(|error| refuse(&error))?;
        let setup = machine_setup(config);
        for function in &setup.functions {
            let missing = function.places.iter().map(|place| &setup.places[place]).find(|place| {
                let curve = profile.curve(&function.name, &place.device, mode_name(place.persistent));
                curve.is_none_or(|curve| curve.fit.is_none())
            });
            if let Some(place) = missing {
                let mode = mode_name(place.persistent);
                let message = format!(
                    "it has no measurement of function `{}` on device `{}` in mode {mode}: measure it with `godwit profile`, \
                     or remove the device from the function",
                    function.name, place.device
                );
                return Err(refuse(&message));
            }
        }
        let machine = Machine::new(&profile, &setup).map_err(|error| refuse(&error))?;
        placement.goal.check_meter(machine.measures_power()).map_err(|error| refuse(&error))?;
        let model = Self { machine };
        model.held(placement, config)?;
        Ok(Some(model))
    }

    /// Returns the placement that the policy `hold` keeps. Without a text, each function is on its
    /// first device.
    fn held(&self, placement: &PlacementConfig, config: &Config) -> Result<Choice, String> {
        let planner = Planner::new(self.machine.clone(), placement.goal, PlannerConfig::default());
        let first = |function: &FunctionConfig| format!("{}={}", function.name, function.devices[0]);
        let first: Vec<String> = config.functions.iter().map(first).collect();
        let text = format!("{} {}", first.join(" "), placement.hold.as_deref().unwrap_or_default());
        Choice::parse(&self.machine, &text, planner.burst()).map_err(|error| format!("hold: {error}"))
    }

    /// Returns the placement that is held from the start, if the policy is `hold`.
    ///
    /// # Errors
    /// Returns a sentence if the placement is invalid.
    pub(crate) fn held_at_start(&self, config: &Config) -> Result<Option<Choice>, String> {
        let placement = config.placement.as_ref().filter(|placement| placement.goal.policy.holds);
        placement.map(|placement| self.held(placement, config)).transpose()
    }
}

/// Returns the name of a device mode in profiles.
fn mode_name(persistent: bool) -> &'static str {
    if persistent { "persistent" } else { "launch" }
}

/// Returns the part of a configuration that the cost model needs. The places are the devices in the
/// order of [`Devices`](crate::place::devices::Devices), each in its configured mode.
fn machine_setup(config: &Config) -> MachineSetup {
    let is_opened = |device: &&DeviceConfig| is_synchronous(&device.id) || is_used(config, &device.id);
    let devices: Vec<&DeviceConfig> = config.devices.iter().filter(is_opened).collect();
    let place = |device: &&DeviceConfig| PlaceSetup {
        id: device.id.clone(),
        device: device.id.clone(),
        persistent: device.mode == Mode::Persistent,
        chunk_packets: device.packing.chunk_packets,
        bin_packets: device.packing.bin_packets,
        deadline_ns: device.packing.deadline_ns,
        // A worker fills one submission while the others are in flight.
        chunks: (device.chunks - 1).clamp(1, usize::from(u8::MAX)) as u8,
    };
    let functions = config.functions.iter().map(|function| FunctionSetup {
        name: function.name.clone(),
        places: PlaceSet::of((0..devices.len()).filter(|&index| function.devices.contains(&devices[index].id))),
    });
    MachineSetup {
        workers: config.engine.workers as u16,
        functions: functions.collect(),
        places: devices.iter().map(place).collect(),
    }
}
