//! Interface of devices that sign batches.

use std::sync::Arc;

use crate::key::Key;
use crate::policy::{DeviceSpec, JobId};
use crate::scheme::{Class, Scheme};

/// Job of a device batch.
#[derive(Clone, Debug)]
pub struct DeviceJob {
    /// Identity, which the result repeats.
    pub id: JobId,
    /// Key to sign with.
    pub key: Arc<Key>,
    /// Scheme of the signature.
    pub scheme: Scheme,
    /// Message to sign.
    pub message: Arc<[u8]>,
}

/// Result of a job on a device.
#[derive(Clone, Debug)]
pub struct DeviceResult {
    /// Identity of the job.
    pub id: JobId,
    /// Signature, or `None` if the device found a fault itself.
    pub signature: Option<Vec<u8>>,
}

/// The device does not work any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLost;

/// Device that signs batches of jobs for a signer.
///
/// The signer verifies each signature with the job's public key. If no result arrives in time, the
/// CPU signs the job too. A device may therefore lose jobs.
pub trait Device: Send {
    /// Returns costs and limits.
    fn spec(&self) -> DeviceSpec;

    /// Submits a batch of jobs of one class, and returns without waiting.
    ///
    /// # Errors
    /// Returns [`DeviceLost`] if the device accepts no more work.
    fn submit(&mut self, now_ns: u64, class: Class, jobs: Vec<DeviceJob>) -> Result<(), DeviceLost>;

    /// Appends all available results to `results`, and returns without waiting.
    ///
    /// # Errors
    /// Returns [`DeviceLost`] if the device returns no more results.
    fn poll(&mut self, now_ns: u64, results: &mut Vec<DeviceResult>) -> Result<(), DeviceLost>;
}
