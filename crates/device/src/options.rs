//! Options of a device.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::chain::DeviceChain;
use crate::model::options::ModelOptions;
use crate::transfer::cost::TransferCosts;

/// How a device receives bins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// One launch of the kernel for each chunk.
    #[default]
    Launch,
    /// Persistent groups stay on the device and take bins from mailboxes.
    Persistent,
}

impl Mode {
    /// Returns the name used in configurations and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Launch => "launch",
            Self::Persistent => "persistent",
        }
    }
}

/// How the packets of a launched chunk reach a device with its own memory, and return.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transfer {
    /// The cheaper of the two transfers, chosen for each chunk.
    #[default]
    Auto,
    /// Copy engines move whole buffers, if the positions of the buffers allow this.
    Copy,
    /// The kernel reads packets and chunk arrays over the bus and writes the results back:
    /// zero-copy (APUNet, section 4.1).
    ZeroCopy,
}

impl Transfer {
    /// All transfers.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Copy, Self::ZeroCopy];

    /// Returns the name used in options and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Copy => "copy",
            Self::ZeroCopy => "zero_copy",
        }
    }
}

/// Options that a device needs before it allocates anything.
#[derive(Clone, Debug)]
pub struct DeviceOptions {
    /// Requested mode. A device that does not support it uses [`Mode::Launch`] and gives the reason
    /// in [`Device::fallback`](crate::Device::fallback).
    pub mode: Mode,
    /// Number of lanes to open, one per worker.
    pub lanes: usize,
    /// Maximum number of bins in a chunk: entries of [`Chunk::bins`](godwit_sched::Chunk::bins).
    pub bins: usize,
    /// Maximum number of packets in a bin.
    pub bin_packets: usize,
    /// Watchdog timeout. The device is lost if no lane completes a chunk within this time. It is
    /// also lost if one lane with chunks in flight completes none within eight times this time.
    pub watchdog: Duration,
    /// Transfer of packets in launch mode. Kinds with a fixed transfer ignore this option
    /// ([`Kind::transfers`](crate::Kind::transfers)).
    pub transfer: Transfer,
    /// Costs by which [`Transfer::Auto`] chooses.
    pub costs: TransferCosts,
    /// Share of each program in the groups of a lane, for [`Mode::Persistent`]. Groups of a share
    /// serve only that program. Any group serves a program whose share is 0 or missing. A device
    /// with fewer groups than shares uses [`Mode::Launch`] and gives the reason in
    /// [`Device::fallback`](crate::Device::fallback).
    pub share: Vec<u32>,
    /// The device chain to run, if the device supports it (see
    /// [`Device::runs_chain`](crate::Device::runs_chain)).
    pub chain: Option<Arc<DeviceChain>>,
    /// Costs, clock and state of a [modelled device](crate::model).
    pub model: ModelOptions,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self {
            mode: Mode::Launch,
            lanes: 1,
            bins: 256,
            bin_packets: 256,
            watchdog: Duration::from_secs(2),
            transfer: Transfer::Auto,
            costs: TransferCosts::default(),
            share: Vec::new(),
            chain: None,
            model: ModelOptions::default(),
        }
    }
}
