//! Options of a run that override the configuration.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use godwit_device::{Device, DeviceOptions, Implementation, Program};
use godwit_packet::ArenaHandle;
use godwit_sched::place::{Choice, Decision, Goal, Observation};

/// Options of a run that override the configuration.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Capture files that replace all ports, for a replay.
    pub replay: Option<Replay>,
    /// Path of the control socket. It overrides the configured path.
    pub control: Option<PathBuf>,
    /// Folder for the state that survives a restart. It overrides the configured folder.
    pub state: Option<PathBuf>,
    /// Flag that requests a reload of the configuration file. The engine applies changes to packet
    /// classes and edges, and clears the flag.
    pub reload: Option<Arc<AtomicBool>>,
    /// Flag that requests the next policy of the placement. The engine clears the flag.
    pub next_policy: Option<Arc<AtomicBool>>,
    /// Record of all decisions of the placement, for tests.
    #[doc(hidden)]
    pub recorder: Option<Recorder>,
    /// Interval at which a run reports its progress, or `None` for one second.
    pub progress_interval: Option<Duration>,
    /// Function that opens devices in tests, instead of [`godwit_device::open`].
    #[doc(hidden)]
    pub opener: Option<Opener>,
}

/// Function that opens a device in tests. If it returns `None`, the engine calls
/// [`godwit_device::open`] with the same arguments.
#[doc(hidden)]
#[derive(Clone)]
pub struct Opener(pub Arc<OpenDevice>);

/// Record of a placement in tests.
#[doc(hidden)]
pub type Recorder = Arc<Mutex<Vec<Recorded>>>;

/// Input of the planner, with its decision.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub enum Recorded {
    Goal(Goal),
    Pin(Choice),
    Look(Observation, Box<Decision>),
}

/// Signature of the function in [`Opener`].
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

/// Capture files for a replay, which replace all configured ports. The output of the replay then
/// depends only on the capture files and on the configuration.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Input capture files, each with the name of the port that it replaces. A file without a name
    /// replaces the first port whose packets enter the function chain.
    pub inputs: Vec<(Option<String>, PathBuf)>,
    /// Output capture files, each with the name of the port that it replaces. A file without a name
    /// receives the packets of all ports that have no file.
    pub outputs: Vec<(Option<String>, PathBuf)>,
}
