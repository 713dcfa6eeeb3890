//! The loop that joins ports, bins, devices, functions and chains.
//!
//! | file | holds |
//! |---|---|
//! | `config/` | what the operator writes, checked |
//! | `setup.rs` | from a configuration to workers: memory, ports, programs, steering |
//! | `program.rs` | a function, as a device sees it |
//! | `ports.rs` | opening ports, for a run or for a replay |
//! | `plan.rs` | the chain, made ready for the packet path |
//! | `worker.rs` | the loop of one worker |
//! | `bins.rs` | the way through a function: prepared, in bins, to a device and back |
//! | `onward.rs` | where packets go next, also out or nowhere |
//! | `change.rs`, `changer.rs` | from one chain to the next while packets flow: in a worker, and for all of them |
//! | `arrange.rs` | host halves that take packets apart, hold, join and make them |
//! | `follow.rs` | chains that a device follows by itself |
//! | `spread.rs` | functions that run on several devices |
//! | `failover.rs` | what a worker does when a device fails or is lost |
//! | `trace/` | every step of chosen packets, for an operator |
//! | `flood.rs` | packets that leave by several ports |
//! | `egress.rs`, `sender.rs` | the way out: sent by the worker, or by a thread beside it |
//! | `order.rs` | order of arrival, restored |
//! | `grace.rs`, `running.rs` | when packets in flight are gone; the engine as a function's commands see it |
//! | `control.rs` | starts workers, watches them, adds up what they did |
//! | `socket.rs`, `housekeeping.rs` | take requests while packets flow; have functions keep their tables in order |
//! | `power.rs` | what devices took while packets were flowing |
//! | `counters.rs`, `histogram.rs`, `report.rs` | what is counted and said |
#![forbid(unsafe_code)]

mod arrange;
mod balance;
mod bins;
mod change;
mod changer;
pub mod config;
mod control;
pub mod counters;
mod device_chain;
mod egress;
mod error;
mod failover;
mod flood;
#[doc(hidden)]
pub mod fuzz;
mod grace;
mod histogram;
mod housekeeping;
mod onward;
mod order;
mod parting;
mod plan;
mod ports;
mod power;
mod program;
mod report;
mod running;
mod sender;
mod setup;
mod socket;
pub mod trace;
mod worker;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use godwit_device::{Device, DeviceOptions, Implementation, Program};
use godwit_packet::ArenaHandle;

pub use control::Engine;
pub use error::Error;
pub use godwit_io::{pcap, synthetic};
pub use program::FunctionProgram;
pub use report::{Conservation, FunctionReport, Latency, LostDevice, PortReport, PowerReport, Report};
pub use socket::wipe_texts;

/// How a run differs from what the configuration says.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Captures in the place of all ports.
    pub replay: Option<Replay>,
    /// The control socket, in the place of the configured one.
    pub control: Option<PathBuf>,
    /// Whoever sets it has the configuration's file read again, once for each time: its classes and edges may have changed.
    pub reload: Option<Arc<AtomicBool>>,
    /// Devices in the place of those that this machine has.
    #[doc(hidden)]
    pub opener: Option<Opener>,
}

/// What makes a device ready, as [`godwit_device::open`] does; `None`: that function is to do it. For tests.
#[doc(hidden)]
#[derive(Clone)]
pub struct Opener(pub Arc<OpenDevice>);

/// See [`Opener`].
#[doc(hidden)]
pub type OpenDevice = dyn Fn(
        &str,
        &[(Arc<dyn Program>, Implementation)],
        &ArenaHandle,
        &DeviceOptions,
    ) -> Option<Result<Arc<dyn Device>, godwit_device::Error>>
    + Send
    + Sync;

impl std::fmt::Debug for Opener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Opener")
    }
}

/// A replay: captures in the place of ports. The same captures and configuration give the same output, byte for byte.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Port and capture. Without a name: the first port that the chain takes packets from.
    pub inputs: Vec<(Option<String>, PathBuf)>,
    /// Port and capture. Without a name: all ports that are not named, in one capture.
    pub outputs: Vec<(Option<String>, PathBuf)>,
}
