//! Transfers of submissions to GPUs and back, for all kinds of GPU.
//!
//! | transfer | moves the bytes | used for |
//! |---|---|---|
//! | in place | nothing | devices that work on the host's memory |
//! | copy (`copy.rs`) | copy engines | large chunks with contiguous buffers |
//! | zero-copy (`zero_copy.rs`) | groups of the device | small chunks, few needed bytes, scattered buffers |
//! | mailbox (`crate::mailbox`) | persistent groups | persistent mode |
//!
//! `plan.rs` checks and scans the packets of a submission in one pass, and selects copy or
//! zero-copy by the costs in `cost.rs`. It plans at most two blocks per direction, because
//! consecutive buffers of a worker form one block, or two blocks if the worker's ring of buffers
//! wrapped between them.
//!
//! Each variation of a transfer exists because of a measurement on an H200:
//!
//! | variation | result |
//! |---|---|
//! | copies of rows of slots | 0.96 of the bus rate at 1408 bytes; zero-copy reaches 0.71 of the rate of copies |
//! | arrays of a zero-copy chunk by zero-copy too | 220 instead of 163 Mpps, `ipv6` in chunks of 4096 |
//! | small bins in group memory (mailbox) | packets arrive with the slot, one trip over the bus (1.5 µs) earlier |
//!
//! OpenCL kernels cannot access host memory. On OpenCL devices with separate memory, scattered
//! buffers are therefore packed by the CPU and then copied (`pack.rs`).

mod copy;
pub(crate) mod cost;
mod pack;
mod plan;
mod zero_copy;

pub(crate) use copy::{Block, Blocks, Direction};
pub use cost::TransferCosts;
pub(crate) use pack::{pack, packed_bytes, unpack};
pub(crate) use plan::{ChunkPlan, ChunkTransfer, Planner};
