//! Decides which device runs a function, and which part of the function chain a device executes.
//! The decisions depend only on the loads of devices and on configured values.

pub(crate) mod balance;
pub(crate) mod device_chain;
pub(crate) mod devices;
pub(crate) mod failover;

/// Index of the CPU. The CPU takes over the functions of all devices that are lost.
pub(crate) const LAST_RESORT: usize = 0;
