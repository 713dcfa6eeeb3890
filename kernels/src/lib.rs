//! Packet functions as kernels: compiled for the CPU at several levels, and
//! carried as one source text per device language.
//!
//! A kernel is written once, in the dialect that `dialect/README.md` describes;
//! `functions.h` lists them all. The build compiles `cpu.c` once per [`Level`]
//! and resolves the includes of `opencl.cl` and `cuda.cu`, so that a device
//! needs no include path.

pub mod image;
mod level;
mod native;

pub use level::{BinCall, GOPT_KERNELS, GROUP_MAX, Level, PROBE_READS, levels};
pub use native::{Native, natives};

/// What `functions.h` says of a function that has a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelInfo {
    /// Its number, in [`godwit_abi::Bin::kernel`].
    pub number: u8,
    /// Its name, also that of its folder.
    pub name: &'static str,
}

include!(concat!(env!("OUT_DIR"), "/registry.rs"));

/// Number of the kernel `template`.
pub const TEMPLATE: u8 = 0;
/// Number of the kernel `echo`.
pub const ECHO: u8 = 1;
/// Number of the kernel `ipv4`.
pub const IPV4: u8 = 2;
/// Number of the kernel `ipsec`.
pub const IPSEC: u8 = 3;
/// Number of the kernel `dpi`.
pub const DPI: u8 = 4;
/// Number of the kernel `ipv6`.
pub const IPV6: u8 = 5;
/// Number of the kernel `l2`.
pub const L2: u8 = 6;
/// Number of the kernel `ndn`.
pub const NDN: u8 = 7;

/// All kernels as one OpenCL C 1.2 source text; the entry is `gw_chunk` in `dialect/loops_opencl.h`, and from 2.0 on
/// `gw_persistent` besides.
pub const fn opencl_source() -> &'static str {
    include_str!(concat!(env!("OUT_DIR"), "/kernels.cl"))
}

/// All kernels as one CUDA source text for NVRTC; the entry is `gw_chunk` in `dialect/loops_cuda.h`.
pub const fn cuda_source() -> &'static str {
    include_str!(concat!(env!("OUT_DIR"), "/kernels.cu"))
}

/// Threads of a block under CUDA, no more and no fewer: `GW_GROUP_LANES` in `dialect/cuda.h`. Under OpenCL a group may
/// have any number of lanes.
pub const CUDA_GROUP_LANES: u32 = include!(concat!(env!("OUT_DIR"), "/cuda_group_lanes.rs"));

/// Names this version of the kernels, of all languages: for caches and profiles. Not cryptographic.
pub const fn source_digest() -> u64 {
    include!(concat!(env!("OUT_DIR"), "/digest.rs"))
}
