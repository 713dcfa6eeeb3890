//! Counters, latency, energy, traces and the report.

pub mod counters;
pub(crate) mod histogram;
pub(crate) mod observer;
pub(crate) mod power;
pub(crate) mod report;
pub mod trace;
