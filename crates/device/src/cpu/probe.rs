//! Properties of this machine's CPU.

use crate::found::Capabilities;

/// Name of the device in configurations.
pub const ID: &str = "cpu";

/// Returns the properties of this machine's CPU.
pub fn probe() -> Capabilities {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let value = |text: &str, key: &str| -> Option<String> {
        let line = text.lines().find(|line| line.starts_with(key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let memory_kilobytes = value(&meminfo, "MemTotal").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    Capabilities {
        id: ID.to_owned(),
        name: value(&cpuinfo, "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        compute_units: std::thread::available_parallelism().map_or(1, usize::from),
        warp_packets: 1,
        memory_bytes: memory_kilobytes.unwrap_or(0) << 10,
        features: godwit_kernels::levels()
            .iter()
            .filter(|level| level.supported())
            .map(|level| level.name.to_owned())
            .collect(),
    }
}
