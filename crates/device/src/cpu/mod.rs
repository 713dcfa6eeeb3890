//! The CPU. A lane runs each chunk at once, on the thread of the worker that submits it.

mod group;
mod lane;
mod measure;
mod program;

use std::sync::Arc;

use crate::{Capabilities, Choice, Device, Error, Implementation, Lane, Program};

use lane::CpuLane;
pub(crate) use measure::CpuMeasure;
use program::Loaded;

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

/// The CPU with loaded programs.
pub struct CpuDevice {
    capabilities: Capabilities,
    programs: Vec<Loaded>,
}

impl CpuDevice {
    /// Loads programs, and measures which x86-64 level runs each kernel fastest. `Bin::instance` is
    /// an index into `programs`.
    ///
    /// # Errors
    /// Returns [`Error::Memory`] if there is no memory for the measurements.
    pub fn new(programs: Vec<(Arc<dyn Program>, Implementation)>) -> Result<Self, Error> {
        let programs = programs
            .into_iter()
            .map(|(program, implementation)| Loaded::new(program, implementation))
            .collect::<Result<_, _>>()?;
        Ok(Self { capabilities: probe(), programs })
    }
}

impl Device for CpuDevice {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn choices(&self) -> Vec<Choice> {
        self.programs.iter().map(Loaded::choice).collect()
    }

    fn lane(self: Arc<Self>) -> Result<Box<dyn Lane>, Error> {
        Ok(Box::new(CpuLane::new(self)))
    }
}
