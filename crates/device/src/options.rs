//! Options of a device.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::chain::DeviceChain;
use crate::model::options::ModelOptions;
use crate::transfer::cost::TransferCosts;

/// How a device receives bins (batches of packets for one function).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The host launches the kernel once for each chunk (the bins that it submits together).
    #[default]
    Launch,
    /// Persistent work-groups stay on the device. They take bins from mailboxes, which are queues
    /// in memory that host and device share.
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

/// How the packets of a chunk in launch mode reach a device with its own memory, and how they
/// return to the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transfer {
    /// For each chunk, Godwit chooses the cheaper one of `Copy` and `ZeroCopy`.
    #[default]
    Auto,
    /// Copy engines of the device move whole buffers. This requires that the buffers of a chunk
    /// form at most two blocks without gaps.
    Copy,
    /// Zero-copy (APUNet, section 4.1): the kernel reads packets and the arrays of the chunk over
    /// the bus, and writes the results back over the bus.
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

/// Options that a device must know before it allocates memory.
#[derive(Clone, Debug)]
pub struct DeviceOptions {
    /// How the device receives work, as the operator requests. A device that does not support this
    /// mode uses [`Mode::Launch`], and gives the reason in
    /// [`Device::fallback`](crate::Device::fallback).
    pub mode: Mode,
    /// Number of lanes to open. A lane is one worker's connection to the device.
    pub lanes: usize,
    /// Maximum number of bins (batches of packets) in a chunk, which is the length of
    /// [`Chunk::bins`](godwit_sched::Chunk::bins).
    pub bins: usize,
    /// Maximum number of packets in a bin.
    pub bin_packets: usize,
    /// Timeout of the watchdog, which declares the device lost. This happens if no worker gets a
    /// finished chunk within the timeout. It also happens if one worker with chunks in flight gets
    /// none within eight times the timeout.
    pub watchdog: Duration,
    /// How packets reach the device and return, in launch mode. Some kinds of devices have only one
    /// way ([`Kind::transfers`](crate::Kind::transfers)) and ignore this option.
    pub transfer: Transfer,
    /// Costs that [`Transfer::Auto`] compares.
    pub costs: TransferCosts,
    /// Share of each packet function in the persistent work-groups of one worker, for
    /// [`Mode::Persistent`]. The work-groups of a share serve only that function. Any work-group
    /// serves a function whose share is 0 or missing. A device with fewer work-groups than shares
    /// uses [`Mode::Launch`] and gives the reason in [`Device::fallback`](crate::Device::fallback).
    pub share: Vec<u32>,
    /// The part of the function chain that the device runs without returning packets to the host.
    /// Some devices do not support this (see [`Device::runs_chain`](crate::Device::runs_chain)).
    pub chain: Option<Arc<DeviceChain>>,
    /// Costs, clock and state of a [modelled device](crate::model). Other devices ignore this
    /// option.
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
