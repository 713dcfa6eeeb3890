//! Builds, starts and watches the worker threads. This code runs outside the packet path.

pub(crate) mod address;
pub(crate) mod cores;
pub(crate) mod health;
pub(crate) mod housekeeping;
pub(crate) mod metrics;
pub(crate) mod placing;
pub(crate) mod ports;
pub(crate) mod program;
pub(crate) mod reload;
pub(crate) mod reporter;
pub(crate) mod run;
pub(crate) mod running;
pub(crate) mod setup;
pub(crate) mod socket;
pub(crate) mod wiped;
