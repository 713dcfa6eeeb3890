//! Decides which device runs a function, and which part of the chain a device runs. The decisions
//! depend on loads and configured values, not on a worker.

pub(crate) mod balance;
pub(crate) mod device_chain;
pub(crate) mod devices;
pub(crate) mod failover;

/// Index of the device that takes over from all others: the CPU.
pub(crate) const LAST_RESORT: usize = 0;
