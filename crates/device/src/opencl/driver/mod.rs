//! Calls the OpenCL driver. Most of the unsafe code for OpenCL is in this folder. The files create
//! the following objects:
//!
//! | file | objects |
//! |---|---|
//! | `buffer.rs` | buffers in device memory, and over host memory |
//! | `error.rs` | errors |
//! | `kernel.rs` | kernels, their arguments and launches |
//! | `pinned.rs` | page-locked host memory |
//! | `queue.rs` | command queues and copies |
//! | `svm.rs` | shared virtual memory, and contexts |

mod buffer;
mod error;
mod kernel;
mod pinned;
mod queue;
pub(super) mod svm;

pub(super) use buffer::{PAGE_BYTES, buffer, check_buffer_size, over, over_read_only, parts};
pub use error::failed;
pub(super) use kernel::{launch, set_address, set_buffer, set_shared, set_word};
pub(super) use pinned::pinned;
pub(super) use queue::{copy_block, copy_to_device, copy_to_host, queue, wait_for};
