//! Options of a run that override the configuration.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use godwit_device::{Device, DeviceOptions, Implementation, Program};
use godwit_packet::ArenaHandle;

/// Options of a run that override the configuration.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Capture files that replace all ports.
    pub replay: Option<Replay>,
    /// Path of the control socket. Replaces the configured path.
    pub control: Option<PathBuf>,
    /// State folder. Replaces the configured folder.
    pub state: Option<PathBuf>,
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
