//! Calls to the CUDA driver. Most of the unsafe code for CUDA is in this folder.
//!
//! Each owner frees its resource on drop, and keeps the context alive.
//!
//! | file | owners |
//! |---|---|
//! | `context.rs` | context of a device |
//! | `memory.rs` | device memory, page-locked host memory, page locks |
//! | `stream.rs` | streams and events |
//! | `copies.rs` | copies that are submitted in one call |
//! | `module.rs` | compiled kernels and their launches |
//! | `compiler.rs` | NVRTC, with a cache on disk |

mod compiler;
mod context;
mod copies;
mod memory;
mod module;
mod stream;

pub(crate) use compiler::available;
pub use compiler::cubin;
pub(crate) use context::text;
pub use context::{Context, failed};
pub(crate) use copies::Copies;
pub use memory::{DeviceMemory, DevicePointer, PinnedMemory};
pub(crate) use memory::{PageLock, Registration};
pub(crate) use module::Repeated;
pub use module::{Function, Module};
pub(crate) use stream::Event;
pub use stream::Stream;
