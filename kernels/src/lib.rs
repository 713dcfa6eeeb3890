//! Kernels of the packet functions. They are compiled for the CPU at several x86-64 levels, and
//! embedded as source text for each device language.
//!
//! Each folder with a declaration contains one function. Its kernel is C source in the dialect of
//! `dialect/README.md`. The build generates headers and contracts from the declarations. It
//! compiles `cpu.c` once per [`Level`]. It also expands the includes of `opencl.cl` and `cuda.cu`,
//! so that a device needs no include path.

pub mod custom;
#[allow(clippy::identity_op, reason = "the generator also writes offset 0")]
pub mod image;
mod level;
mod native;

pub use level::{BinCall, GOPT_KERNELS, GROUP_MAX, Level, PROBE_READS, levels};
pub use native::{Native, natives};

/// Kernel of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelInfo {
    /// Kernel number, as in [`godwit_abi::Bin::kernel`].
    pub number: u8,
    /// Name of the function and of its folder.
    pub name: &'static str,
}

include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

/// Properties and kernel numbers of the packet functions, generated from their declarations.
pub mod declared {
    include!(concat!(env!("OUT_DIR"), "/declared.rs"));
}

/// Returns the source text of all kernels in OpenCL C 1.2, with the entry point `gw_chunk`
/// (`dialect/loops_opencl.h`). OpenCL C 2.0 and later have a second entry point, `gw_persistent`.
pub const fn opencl_source() -> &'static str {
    include_str!(concat!(env!("OUT_DIR"), "/kernels.cl"))
}

/// Returns the CUDA source text of all kernels, for the run-time compiler NVRTC. The entry points
/// are `gw_chunk` and `gw_persistent` in `dialect/loops_cuda.h`.
pub const fn cuda_source() -> &'static str {
    include_str!(concat!(env!("OUT_DIR"), "/kernels.cu"))
}

/// Threads per CUDA block (`GW_GROUP_LANES` in `dialect/cuda.h`). CUDA kernels require this number,
/// while an OpenCL work-group may have any number of work-items.
pub const CUDA_GROUP_LANES: u32 = include!(concat!(env!("OUT_DIR"), "/cuda_group_lanes.rs"));

/// Returns a digest of all kernel sources, which identifies their version in caches and profiles.
/// The digest is not cryptographic.
pub const fn source_digest() -> u64 {
    include!(concat!(env!("OUT_DIR"), "/digest.rs"))
}
