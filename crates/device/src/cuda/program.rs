//! Kernels of all functions, loaded as one CUDA module.

use std::sync::Arc;

use cudarc::driver::sys::CUdevice_attribute as Attribute;

use super::driver::{Context, Function, Module, cubin, failed};
use super::probe;
use crate::error::Error;

/// All kernels, compiled for one device.
pub(super) struct Kernels {
    pub(super) chunk: Function,
    pub(super) persistent: Function,
    /// Maximum number of work-groups in a launch. Each work-group takes batches of packets until
    /// none is left.
    pub(super) groups_max: usize,
    /// Number of work-groups that can run at the same time on an idle device. It limits the number
    /// of persistent work-groups.
    pub(super) groups_resident: usize,
    /// Clock rate of the cycle counter, in cycles per microsecond.
    pub(super) cycles_per_us: f64,
}

impl Kernels {
    pub(super) fn load(context: &Arc<Context>, source: &str) -> Result<Self, Error> {
        let id = &context.id;
        let cubin = cubin(id, source, &probe::architecture_of(context))?;
        let module = Arc::new(Module::new(context, &cubin).map_err(failed(id, "load the kernels"))?);
        let scratch_bytes = module.number("gw_scratch_bytes")?;
        let function = |name| {
            let small = failed(id, "provide the shared memory that the kernels need");
            module.function(name)?.with_scratch(scratch_bytes).map_err(small)
        };
        let (chunk, persistent) = (function("gw_chunk")?, function("gw_persistent")?);
        let units = context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT).max(1) as usize;
        let khz = context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE).max(1);
        Ok(Self {
            groups_max: units * chunk.groups_per_unit(GROUP_LANES),
            groups_resident: units * persistent.groups_per_unit(GROUP_LANES),
            cycles_per_us: f64::from(khz) / 1000.0,
            chunk,
            persistent,
        })
    }
}

/// Number of threads in a block.
pub(super) const GROUP_LANES: u32 = godwit_kernels::CUDA_GROUP_LANES;
