//! Identifies the machine and the configuration for which costs are measured.

use std::collections::BTreeMap;

use godwit_device::{Found, found, kind_of};
use godwit_sched::place::Identity;

use crate::config::{Config, DeviceConfig};
use crate::control::cores::cores;
use crate::place::devices::is_used;

impl Config {
    /// Returns the machine, the version of Godwit and the configured functions. Measured costs are
    /// valid only where these are the same. The date is empty.
    pub fn identity(&self) -> Identity {
        let used: Vec<&DeviceConfig> = self.devices.iter().filter(|device| is_used(self, &device.id)).collect();
        // Probing the drivers takes time, so it is left out without need.
        let is_probed = |device: &&DeviceConfig| !godwit_device::is_synchronous(&device.id) && device.times.is_empty();
        let all: Vec<Found> = if used.iter().any(is_probed) { found() } else { Vec::new() };
        let devices = used.iter().filter_map(|device| Some((device.id.clone(), name_of(device, &all)?)));
        Identity {
            cpu: godwit_device::cpu::probe().name,
            cores: cores().len().max(1) as u32,
            devices: devices.collect::<BTreeMap<_, _>>(),
            config: digest(self),
            godwit: env!("CARGO_PKG_VERSION").to_owned(),
            date: String::new(),
        }
    }
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

/// Returns a device's product name and driver. For a modelled device, returns its times. Returns
/// `None` for the CPU, and for a device that this machine does not have.
fn name_of(device: &DeviceConfig, all: &[Found]) -> Option<String> {
    if kind_of(&device.id).is_some_and(|kind| kind.is_for_tests()) {
        let times = device.times.iter().map(|(function, times)| {
            let [chunk, packet, byte, trip] = [times.chunk_ns, times.packet_ns, times.byte_ns, times.trip_ns];
            format!("{function} {chunk} {packet} {byte} {trip}")
        });
        return Some(format!("model, {}", times.collect::<Vec<_>>().join(", ")));
    }
    let found = all.iter().find(|found| found.capabilities.id == device.id)?;
    Some(format!("{}, driver {}", found.capabilities.name, found.driver))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::path::testing::TWO_FUNCTIONS;

    fn identity(text: &str) -> Identity {
        Config::parse(text, "test", Path::new(".")).expect("valid").identity()
    }

    #[test]
    fn identity_changes_with_the_functions_and_the_times_of_models() {
        let model = |packet_ns: u32| {
            let device =
                format!("[[device]]\nname = \"model:0\"\ntimes = {{ first = {{ packet_ns = {packet_ns} }} }}\n");
            TWO_FUNCTIONS.replacen("impl = \"scalar\"", "device = \"model:0\"", 1) + &device
        };
        let (plain, one, two) = (identity(TWO_FUNCTIONS), identity(&model(10)), identity(&model(20)));
        assert!(plain.cores > 0 && !plain.cpu.is_empty() && plain.devices.is_empty());
        assert_eq!(one.devices["model:0"], "model, first 0 10 0 0");
        assert_ne!(one.devices, two.devices);
        assert_eq!(one.config, two.config);
        assert_ne!(plain.config, one.config, "the implementation of a function matters");
    }
}
