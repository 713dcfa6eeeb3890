//! Runs batches of packets on the CPU, on OpenCL devices and on CUDA devices.
//!
//! The three kinds implement the same traits, [`Device`] and [`Lane`], in files of the same names:
//!
//! | concept | `cpu/` | `opencl/` | `cuda/` |
//! |---|---|---|---|
//! | `program.rs`: kernels | fastest x86-64 level | one kernel for all functions | the same, by NVRTC |
//! | table images | read in place | one buffer for all images | copied to device memory |
//! | `tables.rs`: [`Device::update_image`] | no work: read in place | writes to the buffer | copies on its own stream |
//! | packets | in the arena | in the arena or its shadow | in the shadow of the arena |
//! | `lane.rs`: [`Lane`] | runs the chunk in `submit` | command queue | copy streams |
//! | `slot.rs`: chunk in flight | none | kernel and arrays | stream and arrays |
//! | `launch.rs`, `completion.rs`, `results.rs` | none | steps of a chunk | the same |
//! | `persistent.rs`: groups | none | shared virtual memory | page-locked memory |
//! | `driver/`: unsafe calls | none | OpenCL | driver API and NVRTC |
//! | one [bin](godwit_abi::Bin) | loop over its packets | work-group | thread block |
//!
//! `kind.rs` is the table of kinds, `transfer/` plans how submissions reach GPUs, and `mailbox/`
//! serves persistent work-groups. `probe.rs` finds devices. A fourth kind, [`model`], is for tests:
//! it takes its times from a profile. Each worker opens one connection to each device. A connection
//! returns every submitted [`Chunk`](godwit_sched::Chunk), in any order.

mod bytes;
mod chain;
mod check;
mod counters;
pub mod cpu;
pub mod cuda;
mod device;
mod error;
mod found;
mod kind;
mod mailbox;
pub mod model;
pub mod opencl;
mod options;
pub mod power;
mod program;
mod transfer;
mod watch;

pub use chain::DeviceChain;
pub use device::{BinTime, Choice, Device, Lane, Rejected};
pub use error::{Error, Unavailable};
pub use found::{Capabilities, Found, ModeFound, Probe, Svm};
pub use godwit_kernels::custom::CustomKernel;
pub use kind::{
    ChunkDefaults, KINDS, Kind, LAST_RESORT, Programs, arena_memory, found, has_own_memory, id_forms, is_id,
    is_synchronous, kind_of, open,
};
pub use options::{DeviceOptions, Mode, Transfer};
pub use program::{Implementation, Program};
pub use transfer::TransferCosts;
