//! The engine: connects ports, packers, devices, functions and the chain, and runs the workers.
//!
//! | folder | content |
//! |---|---|
//! | `config/` | reads and checks the configuration |
//! | `path/` | the worker: its loop, and the parts that a packet passes in this order |
//! | `place/` | decides which device runs a function, and which part of the chain a device runs |
//! | `plan/` | the chain in the form that workers use, its changes, and requests to all workers |
//! | `control/` | builds the workers, starts and watches them, and answers the control socket |
//! | `observe/` | counters, latency, energy, traces and the report |
#![forbid(unsafe_code)]

pub mod config;
mod control;
mod error;
#[doc(hidden)]
pub mod fuzz;
mod observe;
mod options;
mod path;
mod place;
mod plan;

pub use control::program::FunctionProgram;
pub use control::run::Engine;
pub use control::wiped::wipe_texts;
pub use error::Error;
pub use godwit_io::{pcap, synthetic};
pub use observe::report::{
    Conservation, FunctionReport, HealthReport, Latency, LostDevice, PlacedFunction, PlacedShare, PlacementDecision,
    PlacementMeasured, PlacementPredicted, PlacementReport, PortReport, PowerReport, RecentFunction, RecentPort,
    RecentReport, Report,
};
pub use observe::{counters, trace};
pub use options::{OpenDevice, Opener, Options, Recorded, Recorder, Replay};
