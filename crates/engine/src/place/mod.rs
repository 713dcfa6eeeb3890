//! Decides which device runs a function, and which part of the function chain a device executes.
//! The decisions depend only on device loads and configured values.

pub(crate) mod balance;
pub(crate) mod device_chain;
pub(crate) mod devices;
pub(crate) mod failover;

/// Index of the CPU, which replaces lost devices.
pub(crate) const LAST_RESORT: usize = 0;
