//! The CPU as a device. The worker that submits packets also processes them, on the same thread.

mod counters;
mod interleaving;
mod lane;
mod probe;
mod program;

use std::sync::{Arc, Mutex, PoisonError};

use crate::device::{Choice, Device, Lane};
use crate::error::Error;
use crate::found::Capabilities;
use crate::program::{Implementation, Program};

use counters::{Counters, Published};
use lane::CpuLane;
pub use probe::{ID, probe};
use program::Loaded;

/// The CPU with loaded packet functions.
pub struct CpuDevice {
    capabilities: Capabilities,
    programs: Arc<[Loaded]>,
    /// Counters of all workers.
    counters: Mutex<Vec<Published>>,
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
        Ok(Self { capabilities: probe(), programs, counters: Mutex::default() })
    }
}

impl Device for CpuDevice {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn choices(&self) -> Vec<Choice> {
        self.programs.iter().map(Loaded::choice).collect()
    }

    fn counters(&self, program: usize) -> Vec<u64> {
        let workers = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        counters::sum(&workers, program, self.programs[program].counter_count())
    }

    fn lane(self: Arc<Self>) -> Result<Box<dyn Lane>, Error> {
        let counters = Counters::new(self.programs.iter().map(Loaded::counter_count));
        self.counters.lock().unwrap_or_else(PoisonError::into_inner).push(counters.published());
        Ok(Box::new(CpuLane::new(Arc::clone(&self.programs), counters)))
    }
}
