//! Decides which device runs a function, and which part of the function chain a device executes.
//! The decisions depend only on device loads and configured values.
//!
//! With a configured placement, the planner of `sched/src/place/` decides, and these files connect
//! it to the workers:
//!
//! ```text
//! worker ── meter ──> look ──> monitor (10 ms, planner) ── cell ──> follow ── worker
//! ```

pub(crate) mod balance;
pub(crate) mod cell;
pub(crate) mod device_chain;
pub(crate) mod devices;
pub(crate) mod failover;
pub(crate) mod follow;
mod identity;
pub(crate) mod look;
pub(crate) mod meter;
pub(crate) mod model;
pub(crate) mod monitor;

/// Index of the CPU, which replaces lost devices.
pub(crate) const LAST_RESORT: usize = 0;
