//! The engine: connects ports, packers, devices, functions and the chain, and runs the workers.
//!
//! | file | content |
//! |---|---|
//! | `config/` | reads and checks the configuration |
//! | `setup.rs` | builds workers from a configuration: memory, ports, programs, steering |
//! | `program.rs` | presents a function to a device as a program |
//! | `ports.rs` | opens the ports of a run or of a replay |
//! | `plan.rs` | the chain in the form that workers use on the packet path |
//! | `worker.rs` | the main loop of a worker |
//! | `bins.rs` | moves packets through a function: preparation, bins, device, completion |
//! | `onward.rs` | sends packets to the next function, to a port, or drops them |
//! | `parting.rs` | groups the packets of a batch by their next step |
//! | `change.rs`, `changer.rs` | changes the chain at run time: the worker's part, the control thread's part |
//! | `arrange.rs` | host halves that hold, split, join and create packets |
//! | `device_chain.rs` | the part of the chain that a device executes without the host |
//! | `balance.rs` | divides the packets of a function between several devices |
//! | `failover.rs` | handles failed and lost devices |
//! | `trace/` | records each step of selected packets |
//! | `flood.rs` | copies packets that leave by several ports |
//! | `egress.rs`, `sender.rs` | transmits packets, on the worker or on a separate sender thread |
//! | `order.rs` | restores the arrival order of packets |
//! | `grace.rs`, `running.rs` | grace periods; the running engine as the commands of a function see it |
//! | `control.rs` | starts and watches the workers, and builds the report |
//! | `socket.rs`, `housekeeping.rs` | the control socket; the periodic work of functions |
//! | `power.rs` | measures the energy that devices consume |
//! | `counters.rs`, `histogram.rs`, `report.rs` | counters, latency figures and the report |
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

/// Options of a run that override the configuration.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Capture files that replace all ports.
    pub replay: Option<Replay>,
    /// Path of the control socket. Replaces the configured path.
    pub control: Option<PathBuf>,
    /// Flag that requests a reload: the engine reads the configuration file again, applies the new
    /// classes and edges, and clears the flag.
    pub reload: Option<Arc<AtomicBool>>,
    /// Function that opens devices in tests, in place of [`godwit_device::open`].
    #[doc(hidden)]
    pub opener: Option<Opener>,
}

/// Function that opens a device in tests. It takes the arguments of [`godwit_device::open`]. If it
/// returns `None`, the engine calls [`godwit_device::open`].
#[doc(hidden)]
#[derive(Clone)]
pub struct Opener(pub Arc<OpenDevice>);

/// Signature of the function in [`Opener`], which opens a device in tests.
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

/// Capture files that replace all ports of a run. The output depends only on the captures and the
/// configuration.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Input captures, each with the name of its port. A capture without a name replaces the first
    /// port that feeds the chain.
    pub inputs: Vec<(Option<String>, PathBuf)>,
    /// Output captures, each with the name of its port. A capture without a name receives the
    /// packets of all ports that have no capture.
    pub outputs: Vec<(Option<String>, PathBuf)>,
}
