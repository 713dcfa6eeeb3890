//! Counters, latency, energy, traces and the report.

pub mod counters;
pub(crate) mod histogram;
pub(crate) mod observer;
pub(crate) mod openmetrics;
pub(crate) mod power;
pub(crate) mod recent;
pub(crate) mod report;
pub mod trace;
pub(crate) mod view;
