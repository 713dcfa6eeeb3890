//! Failover: the reaction of a worker to a failed or lost device. No packet is forwarded
//! unprocessed, every packet is counted, and the functions of the device move to another device.
//!
//! | result of the submission | packets on the device | buffers | device |
//! |---|---|---|---|
//! | rejected | move to the CPU | kept | no longer used |
//! | failed | dropped, counted | released | still used; no longer after [`FAILURES_MAX`] failures in a row |
//! | lost | dropped, counted | quarantined, because the device may still write to them | no longer used |
//!
//! Packets in the batches for a device that is no longer used move to the batches for the CPU. The
//! CPU is opened on every worker, even if no function is placed on it. A device that is no longer
//! used gets no new packets, but its packets in flight still return or are lost. Each worker
//! detects failures itself, because the workers share nothing while they process packets.
//!
//! This file decides which device runs a function. `path/collect.rs` moves the packets.

use crate::place::LAST_RESORT;

/// Number of consecutive failed submissions after which a worker stops using a device.
const FAILURES_MAX: u32 = 3;

/// Assigns functions to devices and records device failures, for one worker.
#[derive(Debug)]
pub(crate) struct Placement {
    /// Device that currently runs each function.
    current: Vec<usize>,
    /// Configured devices of each function. Lost devices stay in the list.
    allowed: Vec<Box<[usize]>>,
    /// Number of consecutive failed submissions of each device.
    failures: Vec<u32>,
    /// Devices that this worker no longer uses.
    lost: Vec<DeviceLoss>,
}

/// Record of a device that a worker no longer uses.
#[derive(Clone, Debug)]
pub(crate) struct DeviceLoss {
    pub(crate) device: usize,
    pub(crate) reason: String,
    /// Number of packets that this worker dropped because of the lost device.
    pub(crate) packets: u64,
}

/// Result of [`Placement::give_up`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum GivenUp {
    /// The worker stops using the device, and `functions` moved to other devices. `to` is the new
    /// device of the last function in the list.
    Moved { functions: Vec<usize>, to: usize },
    /// The worker had stopped using the device before.
    Again,
}

impl Placement {
    /// Assigns each function to the first device in its list. `allowed` contains the nonempty
    /// device list of each function.
    pub(crate) fn new(allowed: Vec<Box<[usize]>>, devices: usize) -> Self {
        let current = allowed.iter().map(|devices| devices[0]).collect();
        Self { current, allowed, failures: vec![0; devices], lost: Vec::new() }
    }

    /// Returns the device that runs `function`.
    #[inline]
    pub(crate) fn device_of(&self, function: usize) -> usize {
        self.current[function]
    }

    /// Returns the devices on which `function` may run.
    #[inline]
    pub(crate) fn allowed(&self, function: usize) -> &[usize] {
        &self.allowed[function]
    }

    /// Returns whether the worker no longer uses `device`.
    #[inline]
    pub(crate) fn is_lost(&self, device: usize) -> bool {
        self.lost.iter().any(|lost| lost.device == device)
    }

    /// Assigns `function` to `device`. Returns whether the device changed.
    pub(crate) fn place(&mut self, function: usize, device: usize) -> bool {
        std::mem::replace(&mut self.current[function], device) != device
    }

    /// Records that `device` finished a submission.
    #[inline]
    pub(crate) fn succeeded(&mut self, device: usize) {
        self.failures[device] = 0;
    }

    /// Records that `device` failed to finish a submission. Returns whether the worker still uses
    /// the device.
    pub(crate) fn failed(&mut self, device: usize) -> bool {
        self.failures[device] += 1;
        self.failures[device] < FAILURES_MAX
    }

    /// Stops using `device`. Its functions move to other configured devices, or else to the CPU.
    /// `dropped` is the number of packets dropped because of the failure.
    pub(crate) fn give_up(&mut self, device: usize, reason: &str, dropped: u64) -> GivenUp {
        if let Some(known) = self.lost.iter_mut().find(|lost| lost.device == device) {
            known.packets += dropped;
            return GivenUp::Again;
        }
        self.lost.push(DeviceLoss { device, reason: reason.to_owned(), packets: dropped });
        let (mut functions, mut to) = (Vec::new(), LAST_RESORT);
        for function in 0..self.current.len() {
            if self.current[function] == device {
                let replacement = self.allowed[function].iter().find(|&&other| !self.is_lost(other));
                to = replacement.copied().unwrap_or(LAST_RESORT);
                self.current[function] = to;
                functions.push(function);
            }
        }
        GivenUp::Moved { functions, to }
    }

    /// Returns the devices that are no longer used.
    pub(crate) fn lost(&self) -> &[DeviceLoss] {
        &self.lost
    }

    /// Returns the device that runs each function.
    pub(crate) fn finish(self) -> Vec<usize> {
        self.current
    }
}

/// Returns the explanation for giving up a device after [`FAILURES_MAX`] consecutive failures.
/// `reason` explains the last failure.
pub(crate) fn repeated_failure(reason: &str) -> String {
    format!("{FAILURES_MAX} consecutive chunks failed, the last one with: {reason}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_a_lost_device_move_to_their_other_devices_or_the_cpu() {
        let allowed = vec![[1, 2].into(), [1].into(), [2, 1].into()];
        let mut placement = Placement::new(allowed, 3);
        assert_eq!(placement.give_up(1, "gone", 5), GivenUp::Moved { functions: vec![0, 1], to: LAST_RESORT });
        assert_eq!([0, 1, 2].map(|function| placement.device_of(function)), [2, LAST_RESORT, 2]);
        assert_eq!(placement.give_up(1, "gone again", 7), GivenUp::Again);
        assert_eq!(placement.give_up(2, "gone too", 0), GivenUp::Moved { functions: vec![0, 2], to: LAST_RESORT });
        let lost: Vec<_> = placement.lost().iter().map(|lost| (lost.device, &*lost.reason, lost.packets)).collect();
        assert_eq!(lost, [(1, "gone", 12), (2, "gone too", 0)]);
        assert_eq!(placement.finish(), [LAST_RESORT; 3]);
    }

    #[test]
    fn device_stays_in_use_until_several_chunks_in_a_row_failed() {
        let mut placement = Placement::new(vec![[1].into()], 2);
        assert!(placement.failed(1) && placement.failed(1));
        placement.succeeded(1);
        assert!(placement.failed(1) && placement.failed(1) && !placement.failed(1));
    }
}
