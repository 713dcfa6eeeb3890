//! Decides which device runs a function, and which part of the chain a device runs.

pub(crate) mod balance;
pub(crate) mod device_chain;
pub(crate) mod failover;
