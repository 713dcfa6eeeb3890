//! Kernels of all functions, built as one OpenCL program.

use opencl3::context::Context;
use opencl3::device::Device;
use opencl3::kernel::Kernel;
use opencl3::program::Program as ClProgram;

use super::driver::failed;
use crate::error::Error;
use crate::found::Found;

// Names of the kernels (`kernels/dialect/loops_opencl.h`).
const ENTRY: &str = "gw_chunk";
const ENTRY_PERSISTENT: &str = "gw_persistent";
/// Compiler option for kernels without barriers (`kernels/dialect/loops_device.h`).
const LANE_FORMS: &str = " -DGW_LANE_FORMS";
/// Minimum number of work-items in a work-group. With PoCL on two cores and submissions of 1024
/// packets, 8 to 64 work-items are equally fast.
const GROUP_LANES_MIN: usize = 32;
/// Number of work-groups per compute unit. A compute unit can then run one work-group while another
/// one waits for memory.
const GROUPS_PER_UNIT: usize = 4;

/// All kernels, compiled for one device.
pub(super) struct Kernels {
    program: ClProgram,
    entry: &'static str,
    /// Number of work-items in a work-group.
    pub(super) group_lanes: usize,
    /// Maximum number of work-groups in a launch. Each work-group takes batches of packets until
    /// none is left.
    pub(super) groups_max: usize,
    /// Whether the kernels can run a chain of functions.
    pub(super) runs_chain: bool,
}

impl Kernels {
    /// Builds the kernel that processes one submission per launch.
    pub(super) fn build(found: &Found, context: &Context, device: &Device, source: &str) -> Result<Self, Error> {
        Self::with_entry(found, context, device, source, ENTRY, "-cl-std=CL1.2")
    }

    /// Builds the kernel for persistent work-groups, which requires OpenCL C 3.0 or 2.0.
    pub(super) fn build_persistent(
        found: &Found,
        context: &Context,
        device: &Device,
        source: &str,
    ) -> Result<Self, Error> {
        let build = |standard| Self::with_entry(found, context, device, source, ENTRY_PERSISTENT, standard);
        build("-cl-std=CL3.0").or_else(|error| build("-cl-std=CL2.0").map_err(|_| error))
    }

    fn with_entry(
        found: &Found,
        context: &Context,
        device: &Device,
        source: &str,
        entry: &'static str,
        standard: &str,
    ) -> Result<Self, Error> {
        let id = &found.capabilities.id;
        let build = |log| Error::Build { id: id.clone(), driver: found.driver.clone(), log };
        let runs_chain = found.chain_lacks.is_none();
        let lane_forms = if runs_chain { "" } else { LANE_FORMS };
        let options = format!("{standard}{lane_forms}");
        let program = ClProgram::create_and_build_from_source(context, source, &options).map_err(build)?;
        let mut kernels = Self { program, entry, group_lanes: GROUP_LANES_MIN, groups_max: 1, runs_chain };
        let kernel = kernels.entry(id)?;
        let lanes_max = kernel.get_work_group_size(device.id()).map_err(failed(id, "report a work-group's size"))?;
        let warp = kernel.get_work_group_size_multiple(device.id()).unwrap_or(1);
        kernels.group_lanes = warp.max(GROUP_LANES_MIN).min(lanes_max).max(1);
        kernels.groups_max = found.capabilities.compute_units.max(1) * GROUPS_PER_UNIT;
        Ok(kernels)
    }

    /// Creates a kernel object with a separate set of arguments.
    pub(super) fn entry(&self, id: &str) -> Result<Kernel, Error> {
        Kernel::create(&self.program, self.entry).map_err(failed(id, "create a kernel"))
    }
}
