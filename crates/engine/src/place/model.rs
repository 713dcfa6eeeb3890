//! Creates the cost model of the placement from the configuration and the profile.

use godwit_device::{Mode, is_synchronous};
use godwit_sched::place::{
    Choice, FunctionSetup, Identity, Machine, MachineSetup, PlaceSet, PlaceSetup, Planner, PlannerConfig, Profile,
};

use crate::config::{Config, DeviceConfig, FunctionConfig, PlacementConfig};
use crate::control::cores::cores;
use crate::place::devices::is_used;

/// Cost model of the configuration, with the profile from which it was created.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) profile: Profile,
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
        profile.check_machine(&identity(config)).map_err(|error| refuse(&error))?;
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
        let model = Self { profile, machine };
        model.held(placement, config)?;
        Ok(Some(model))
    }

    /// Checks that the profile was measured with these devices. Each device has a name and its
    /// product name.
    ///
    /// # Errors
    /// Returns a sentence for the first device that differs.
    pub(crate) fn check_devices<'a>(
        &self,
        config: &Config,
        devices: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<(), String> {
        let mut here = identity(config);
        here.devices.extend(devices.map(|(id, name)| (id.to_owned(), name.to_owned())));
        let path = config.placement.as_ref().map(|placement| placement.profile.display().to_string());
        self.profile.check_machine(&here).map_err(|error| format!("profile {}: {error}", path.unwrap_or_default()))
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

/// Returns the machine and the configuration of which a profile contains the costs. The map of
/// devices is empty, because only an open device has a product name.
pub fn identity(config: &Config) -> Identity {
    Identity {
        cpu: cpu_name(),
        cores: cores().len().max(1) as u32,
        devices: Default::default(),
        config: digest(config),
        godwit: env!("CARGO_PKG_VERSION").to_owned(),
        date: String::new(),
    }
}

fn cpu_name() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split_once(':'));
    name.map_or_else(|| "unknown".to_owned(), |(_, name)| name.trim().to_owned())
}

/// Returns a digest of the functions, their kinds and implementations, and the sizes of their
/// tables. The contents of the tables do not affect it, because routes and SAs change at run time.
fn digest(config: &Config) -> String {
    // FNV-1a with 64 bits. The digest detects mistakes, not forgeries.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut feed = |text: &str| {
        for byte in text.bytes().chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    for entry in &config.functions {
        // Similar sizes share a cache level, and therefore a cost.
        let size = entry.function.image().len().next_power_of_two();
        feed(&entry.name);
        feed(entry.function.contract().kind);
        feed(&format!("{:?} {size}", entry.implementation));
    }
    format!("{hash:016x}")
}
