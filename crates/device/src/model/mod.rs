//! Modelled device for tests. It runs the kernels on the CPU, and returns each submission as late
//! as a device with the costs of a profile would.
//!
//! ```text
//! submit ── CPU runs the kernel ──> chunk waits ──────────────────────────────> poll returns it
//!                                   device busy until `free_ns` + chunk's time     + trip time
//! ```
//!
//! All workers share one device, which processes one submission at a time. With a virtual clock,
//! every run is the same. A test can slow the device down or make it fail while packets flow.

mod lane;
pub(crate) mod options;

use std::sync::Arc;

use godwit_abi::Bin;
use godwit_sched::Chunk;
use godwit_sched::place::Fit;

use crate::cpu::CpuDevice;
use crate::device::{Choice, Device, Lane};
use crate::error::Error;
use crate::found::Capabilities;
use crate::options::{DeviceOptions, Mode};
use crate::program::{Implementation, Program};

use lane::ModelLane;
pub use options::{ModelClock, ModelOptions, ModelState};

/// Name of this kind in device names, as in `model:0`.
pub const ID: &str = "model";

/// Default costs of a packet function. They are typical of a small GPU.
const DEFAULT_COSTS: Fit = Fit {
    chunk_ns: 5_000.0,
    packet_ns: 10.0,
    byte_ns: 0.05,
    floor_ns: 0.0,
    bin_ns: 20.0,
    host_ns: 0.0,
    submit_ns: 0.0,
    trip_ns: 60_000.0,
    trip_byte_ns: 0.0,
    tail: 1.0,
    error_median: 0.0,
    error_max: 0.0,
};

/// A modelled device with loaded programs.
pub struct ModelDevice {
    cpu: Arc<CpuDevice>,
    capabilities: Capabilities,
    options: ModelOptions,
    mode: Mode,
}

impl ModelDevice {
    /// Creates the modelled device with the number `number`.
    ///
    /// # Errors
    /// Returns an error under the same conditions as [`CpuDevice::new`].
    pub fn new(
        number: usize,
        programs: Vec<(Arc<dyn Program>, Implementation)>,
        options: &DeviceOptions,
    ) -> Result<Self, Error> {
        let cpu = Arc::new(CpuDevice::new(programs)?);
        let capabilities = Capabilities {
            id: format!("{ID}:{number}"),
            name: "modelled device on the CPU".to_owned(),
            compute_units: 1,
            features: vec!["modelled".to_owned()],
            ..cpu.capabilities().clone()
        };
        Ok(Self { cpu, capabilities, options: options.model.clone(), mode: options.mode })
    }

    fn costs(&self, program: u16) -> &Fit {
        self.options.costs.get(usize::from(program)).unwrap_or(&DEFAULT_COSTS)
    }

    /// Counts a submission. Returns whether the device fails at this submission, and makes it fail.
    fn has_failed(&self) -> bool {
        let has_failed = self.options.fails_after_chunks.is_some_and(|chunks| self.options.state.count() >= chunks);
        if has_failed {
            self.options.state.lose();
        }
        has_failed
    }

    /// Returns the modelled processing time of one batch in nanoseconds. Its frames have `bytes`
    /// bytes in total. The fixed time of the submission is not included.
    fn bin_ns(&self, bin: &Bin, bytes: u64) -> f64 {
        let (costs, packets) = (self.costs(bin.instance), f64::from(bin.count));
        let linear = costs.packet_ns * packets + costs.byte_ns * bytes as f64;
        costs.bin_ns + linear.max(costs.floor_ns * packets)
    }

    /// Returns the delay in nanoseconds until the worker can see that a submission is finished.
    fn trip_ns(&self, chunk: &Chunk) -> f64 {
        let trip = |bin: &Bin| {
            let costs = self.costs(bin.instance);
            costs.trip_ns + costs.trip_byte_ns * f64::from(bin.length_bytes)
        };
        chunk.bins.iter().map(trip).fold(0.0, f64::max)
    }
}

impl Device for ModelDevice {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn mode(&self) -> Mode {
        self.mode
    }

    fn choices(&self) -> Vec<Choice> {
        self.cpu.choices()
    }

    fn counters(&self, program: usize) -> Vec<u64> {
        self.cpu.counters(program)
    }

    fn lane(self: Arc<Self>) -> Result<Box<dyn Lane>, Error> {
        let cpu = Arc::clone(&self.cpu).lane()?;
        Ok(Box::new(ModelLane::new(self, cpu)))
    }
}
