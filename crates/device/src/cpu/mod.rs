//! The CPU as a device. Submitted packets are processed at once, on the thread of the worker that
//! submits them.

mod interleaving;
mod lane;
mod probe;
mod program;

use std::sync::Arc;

use crate::device::{Choice, Device, Lane};
use crate::error::Error;
use crate::found::Capabilities;
use crate::program::{Implementation, Program};

use lane::CpuLane;
pub use probe::{ID, probe};
use program::Loaded;

/// The CPU with loaded programs.
pub struct CpuDevice {
    capabilities: Capabilities,
    programs: Arc<[Loaded]>,
}

impl CpuDevice {
    /// Loads the packet functions `programs`, and measures which x86-64 level is fastest for each
    /// kernel. `Bin::instance` is an index into `programs`.
    ///
    /// # Errors
    /// Returns [`Error::Memory`] if the measurements cannot allocate memory.
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
        Ok(Box::new(CpuLane::new(Arc::clone(&self.programs))))
    }
}
