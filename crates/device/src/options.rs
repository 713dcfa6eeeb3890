//! Options of a device.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::chain::DeviceChain;
use crate::model::options::ModelOptions;
use crate::transfer::cost::TransferCosts;

/// Way in which a device receives batches of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The host launches the kernel once for each submission of batches.
    #[default]
    Launch,
    /// Persistent work-groups stay on the device. They take batches from mailboxes, which are
    /// queues in memory that host and device share.
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

/// How launch mode moves packets to a device with separate memory, and back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transfer {
    /// Godwit chooses the cheaper transfer for each submission.
    #[default]
    Auto,
    /// The device's copy engines move whole packet buffers. The buffers of a submission must form
    /// at most two blocks without gaps.
    Copy,
    /// The kernel reads packets over the bus, and writes the results back (zero-copy; APUNet,
    /// section 4.1).
    ZeroCopy,
}

impl Transfer {
    /// All ways of packet transfer.
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
    /// Mode that the operator requests. A device that does not support this mode uses
    /// [`Mode::Launch`] and returns the reason in [`Device::fallback`](crate::Device::fallback).
    pub mode: Mode,
    /// Number of connections to open. Each worker has one connection to the device.
    pub lanes: usize,
    /// Maximum number of batches in a submission.
    pub bins: usize,
    /// Maximum number of packets in a batch.
    pub bin_packets: usize,
    /// Timeout of the watchdog. The watchdog declares the device lost if no worker gets a result
    /// within the timeout, or if one worker waits for eight times the timeout.
    pub watchdog: Duration,
    /// How packets reach the device and return in launch mode. Kinds of devices with a single
    /// transfer ([`Kind::transfers`](crate::Kind::transfers)) ignore this option.
    pub transfer: Transfer,
    /// Costs that [`Transfer::Auto`] compares.
    pub costs: TransferCosts,
    /// Weight of each packet function, for [`Mode::Persistent`]. The weights divide the persistent
    /// work-groups of a worker between the functions. A function with the weight 0 or without an
    /// entry uses any work-group. A device with too few work-groups uses [`Mode::Launch`] and
    /// returns the reason in [`Device::fallback`](crate::Device::fallback).
    pub share: Vec<u32>,
    /// The part of the function chain that the device runs without returning packets to the host.
    /// [`Device::runs_chain`](crate::Device::runs_chain) tells whether the device supports this
    /// option.
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
