//! State of one device: the batches that wait for more jobs, the batches in flight, and the faults.

use super::costs::DeviceCost;
use super::jobs::JobId;
use crate::scheme::Class;

/// Capabilities of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSpec {
    /// Signing times for each class of jobs, or `None` if the device does not support the class.
    pub costs: [Option<DeviceCost>; Class::ALL.len()],
    /// Maximum number of jobs in a batch.
    pub batch_max: usize,
    /// Largest number of batches in flight.
    pub batches_max: usize,
}

/// Batch that waits for more jobs.
#[derive(Debug, Default)]
pub(super) struct Filling {
    pub(super) jobs: Vec<JobId>,
    /// Time at which the first job joined the batch.
    pub(super) opened_ns: u64,
}

/// Batch on the device.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) submitted_ns: u64,
    /// Jobs without a result.
    pub(super) jobs: Vec<JobId>,
    /// Whether the batch is late. The CPU then also signs its jobs.
    pub(super) late: bool,
}

#[derive(Debug)]
pub(super) struct Device {
    pub(super) spec: DeviceSpec,
    pub(super) filling: [Filling; Class::ALL.len()],
    pub(super) in_flight: Vec<InFlight>,
    /// Time until which submitted jobs occupy the device.
    pub(super) busy_until_ns: u64,
    pub(super) faults: u32,
    pub(super) lost: bool,
}

impl Device {
    pub(super) fn new(spec: DeviceSpec) -> Self {
        let filling = std::array::from_fn(|_| Filling::default());
        Self { spec, filling, in_flight: Vec::new(), busy_until_ns: 0, faults: 0, lost: false }
    }

    /// Returns the time at which the device will probably finish `jobs` more jobs of `class`.
    /// Returns `None` if it cannot accept them.
    pub(super) fn end_ns(&self, now_ns: u64, class: Class, jobs: usize, fill_ns: u64) -> Option<u64> {
        let cost = self.spec.costs[class.index()].filter(|_| !self.lost)?;
        let filling = &self.filling[class.index()];
        let waiting = filling.jobs.len();
        if self.in_flight.len() >= self.spec.batches_max {
            return None;
        }
        let opened_ns = if waiting == 0 { now_ns } else { filling.opened_ns };
        let full = waiting + jobs >= self.spec.batch_max;
        let submitted_ns = if full { now_ns } else { now_ns.max(opened_ns + fill_ns) };
        let jobs = (waiting + jobs).min(self.spec.batch_max) as u64;
        Some(submitted_ns.max(self.busy_until_ns) + jobs * cost.job_ns + cost.latency_ns)
    }

    /// Returns whether the batch of `class` is full or has waited long enough.
    pub(super) fn is_due(&self, now_ns: u64, class: Class, fill_ns: u64) -> bool {
        let filling = &self.filling[class.index()];
        !filling.jobs.is_empty()
            && self.in_flight.len() < self.spec.batches_max
            && (filling.jobs.len() >= self.spec.batch_max || now_ns >= filling.opened_ns + fill_ns)
    }
}
