//! Identifies the machine and the configuration for which costs are measured.

use godwit_device::{Found, found, is_synchronous};
use godwit_sched::place::Identity;

use crate::config::{Config, ConfigError};
use crate::control::cores::cores;
use crate::place::devices::is_used;

impl Config {
    /// Returns the machine, the version of Godwit and the configured functions. Measured costs are
    /// valid only where these are the same. The date is left empty.
    ///
    /// # Errors
    /// Returns an error if a file of a function cannot be read.
    pub fn identity(&self) -> Result<Identity, ConfigError> {
        let used = || self.devices.iter().filter(|device| is_used(self, &device.id) && !is_synchronous(&device.id));
        // Probing the drivers takes time, so it is left out without need.
        let all: Vec<Found> = if used().next().is_some() { found() } else { Vec::new() };
        let name = |id: &str| {
            let found = all.iter().find(|found| found.capabilities.id == id)?;
            Some(format!("{}, driver {}", found.capabilities.name, found.driver))
        };
        Ok(Identity {
            cpu: godwit_device::cpu::probe().name,
            cores: cores().len().max(1) as u32,
            devices: used().filter_map(|device| Some((device.id.clone(), name(&device.id)?))).collect(),
            config: digest(self),
            godwit: env!("CARGO_PKG_VERSION").to_owned(),
            date: String::new(),
        })
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
