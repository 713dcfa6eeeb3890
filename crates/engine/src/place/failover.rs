//! Failover: the worker's reaction to a failed or lost device. No packet is forwarded unprocessed,
//! every packet is counted, and the functions move to another device.
//!
//! | result of the lane | packets on the device | buffers | device |
//! |---|---|---|---|
//! | rejected | move to the CPU | kept | no longer used |
//! | failed | dropped, counted | released | still used; no longer after [`FAILURES_MAX`] failures in a row |
//! | lost | dropped, counted | quarantined, because the device may still write to them | no longer used |
//!
//! Packets in the bins of a device that is no longer used move to the bins of the CPU. The CPU is
//! opened on every worker, even if no function is placed on it. A device that is no longer used
//! gets no new chunk. Its chunks in flight still return or are lost. Each worker detects failures
//! itself, because lanes share nothing on the packet path.

use godwit_device::{Error as DeviceError, Lane, Rejected};
use godwit_packet::Descriptor;
use godwit_sched::{Chunk, Insert, Packer};

use crate::error::Error;
use crate::observe::counters::{DROPPED, DROPPED_DEVICE, DROPPED_DEVICE_LOST};
use crate::path::Worker;
use crate::place::balance::Load;
use crate::plan::chain_plan::ChainPlan;

/// Index of the device that takes over from all others: the CPU.
pub(crate) const LAST_RESORT: usize = 0;
/// Number of consecutive failed chunks after which a worker stops using a device.
const FAILURES_MAX: u32 = 3;

/// A device as one worker uses it: packer, lane, and measured load.
pub(crate) struct WorkerDevice {
    /// Configured name of the device.
    pub(crate) id: String,
    pub(crate) packer: Packer,
    pub(crate) lane: Box<dyn Lane>,
    /// Number of chunks that failed since the last success.
    pub(crate) failures: u32,
    pub(crate) load: Load,
}

/// Record of a device that a worker no longer uses.
#[derive(Clone, Debug)]
pub(crate) struct DeviceLoss {
    pub(crate) device: usize,
    pub(crate) reason: String,
    /// Number of packets that this worker dropped with the device.
    pub(crate) packets: u64,
}

impl WorkerDevice {
    pub(crate) fn new(id: &str, packer: Packer, lane: Box<dyn Lane>) -> Self {
        Self { id: id.to_owned(), packer, lane, failures: 0, load: Load::default() }
    }

    /// Returns whether the filling chunk should go to the device now. If `idle` is set, a device
    /// without chunks in flight also gets a chunk that is not full. If `flush` is set, every device
    /// does.
    pub(crate) fn is_due(&self, now_ns: u64, idle: bool, flush: bool) -> bool {
        let early = flush || (idle && self.lane.in_flight() == 0);
        self.packer.ready(now_ns) || (early && self.packer.waiting() > 0)
    }
}

#[cold]
fn packets(chunk: &Chunk) -> impl Iterator<Item = &Descriptor> {
    chunk.bins.iter().flat_map(|bin| &chunk.descriptors[chunk.range(bin)])
}

impl Worker {
    /// Handles a chunk that `device` rejected. The worker stops using the device, and the packets
    /// move to the CPU.
    ///
    /// # Errors
    /// If the device is the CPU, or the chunk was invalid.
    #[cold]
    pub(crate) fn not_taken(
        &mut self,
        plan: &ChainPlan,
        device: usize,
        rejected: Rejected,
        now_ns: u64,
    ) -> Result<(), Error> {
        let Rejected { chunk, error } = rejected;
        // An invalid chunk is a bug, not a fault of the device. The CPU has no replacement.
        if device == LAST_RESORT || matches!(error, DeviceError::Chunk { .. }) {
            return Err(Error::Device(error));
        }
        self.give_up(plan, device, &reason(error), 0);
        self.observer.rejected(&self.devices[device].id, &chunk);
        self.requeue(plan, &chunk, now_ns)?;
        self.devices[device].packer.give_back(chunk);
        self.empty(plan, device, now_ns)
    }

    /// Handles chunks that `device` failed to finish, and drops their packets.
    ///
    /// # Errors
    /// If the device is the CPU, or no usable buffer remains.
    #[cold]
    pub(crate) fn not_finished(&mut self, plan: &ChainPlan, device: usize, error: DeviceError) -> Result<(), Error> {
        if device == LAST_RESORT {
            return Err(Error::Device(error));
        }
        let now_ns = self.now_ns();
        match error {
            DeviceError::Failed { reason, chunk, .. } => {
                let dropped = u64::from(chunk.packets);
                self.devices[device].load.returned(chunk.packets, now_ns);
                packets(&chunk).for_each(|descriptor| self.drop_packet(descriptor, DROPPED_DEVICE));
                let WorkerDevice { id, packer, failures, .. } = &mut self.devices[device];
                packer.give_back(*chunk);
                *failures += 1;
                if *failures < FAILURES_MAX {
                    tracing::error!(
                        "device {id} failed: {reason}; {dropped} packets are dropped, and the device stays in use"
                    );
                    return Ok(());
                }
                let reason = format!("{FAILURES_MAX} consecutive chunks failed, the last one with: {reason}");
                self.give_up(plan, device, &reason, dropped);
            }
            DeviceError::Lost { reason, chunks, .. } => {
                let mut dropped = 0;
                for chunk in chunks {
                    dropped += u64::from(chunk.packets);
                    for descriptor in packets(&chunk) {
                        self.observer.dropped(plan, descriptor, DROPPED_DEVICE_LOST);
                        self.order.leave(descriptor);
                        self.region.quarantine(descriptor);
                    }
                    self.devices[device].packer.give_back(chunk);
                }
                self.counts.add(DROPPED, dropped);
                self.counts.add(DROPPED_DEVICE_LOST, dropped);
                self.give_up(plan, device, &reason, dropped);
                if !self.region.is_usable() {
                    let device = self.devices[device].id.clone();
                    return Err(Error::ArenaLost { device, buffers: self.region.quarantined() });
                }
            }
            other => return Err(Error::Device(other)),
        }
        self.empty(plan, device, now_ns)
    }

    /// Stops using `device`, and moves its functions to other devices of these functions, or to the
    /// CPU. Logs this once per device. `dropped` is the number of packets dropped with it.
    fn give_up(&mut self, plan: &ChainPlan, device: usize, reason: &str, dropped: u64) {
        let id = &self.devices[device].id;
        if let Some(known) = self.lost.iter_mut().find(|lost| lost.device == device) {
            known.packets += dropped;
            tracing::error!("device {id}, which is no longer used, lost {dropped} more packets: {reason}");
            return;
        }
        let mut moved = Vec::new();
        let mut to = LAST_RESORT;
        for (stage, runs) in plan.stages.iter().zip(&mut self.placement) {
            if *runs == device {
                let replacement = stage
                    .devices
                    .iter()
                    .find(|&&other| other != device && !self.lost.iter().any(|lost| lost.device == other));
                *runs = replacement.copied().unwrap_or(LAST_RESORT);
                to = *runs;
                moved.push(stage.name.as_str());
            }
        }
        let (runs, to) = (if moved.len() == 1 { "runs" } else { "run" }, &self.devices[to].id);
        tracing::error!(
            "device {id} is lost: {reason}; {dropped} packets are dropped, and {} now {runs} on {to}",
            moved.join(", ")
        );
        self.lost.push(DeviceLoss { device, reason: reason.to_owned(), packets: dropped });
    }

    /// Moves packets from the bins of a device that is no longer used to the CPU. One set of bins
    /// is free: that of the chunk that reported the loss.
    fn empty(&mut self, plan: &ChainPlan, device: usize, now_ns: u64) -> Result<(), Error> {
        if !self.lost.iter().any(|lost| lost.device == device) {
            return Ok(());
        }
        while let Some(chunk) = self.devices[device].packer.take(now_ns) {
            self.requeue(plan, &chunk, now_ns)?;
            self.devices[device].packer.give_back(chunk);
        }
        debug_assert_eq!(self.devices[device].packer.waiting(), 0);
        Ok(())
    }

    /// Moves the packets of an unprocessed chunk into bins of the CPU, bin by bin. The order of the
    /// bins does not matter, because [`crate::path::order::Order`] restores the arrival order.
    fn requeue(&mut self, plan: &ChainPlan, chunk: &Chunk, now_ns: u64) -> Result<(), Error> {
        for bin in &chunk.bins {
            let range = chunk.range(bin);
            for (descriptor, parameter) in chunk.descriptors[range.clone()].iter().zip(&chunk.parameters[range]) {
                let insert = |worker: &mut Self| {
                    let packer = &mut worker.devices[LAST_RESORT].packer;
                    // The stream whose index is the function's number accepts packets of all
                    // classes.
                    packer.insert(now_ns, bin.instance, bin.variant, descriptor, *parameter)
                };
                while insert(self) == Insert::Refused {
                    // The CPU runs a chunk during its submission, so the bins have room afterwards.
                    self.submit(plan, LAST_RESORT, now_ns)?;
                    self.fetch(plan, LAST_RESORT)?;
                }
                let (function, packet) = (usize::from(bin.instance), std::slice::from_ref(descriptor));
                self.observer.binned(plan, function, &self.devices[LAST_RESORT].id, bin.variant, packet);
            }
        }
        Ok(())
    }
}

/// Returns the reason of a device error, without the name of the device.
fn reason(error: DeviceError) -> String {
    match error {
        DeviceError::Lost { reason, .. } | DeviceError::Failed { reason, .. } => reason,
        DeviceError::Unusable { reason, .. } => reason.trim_start_matches("it is lost: ").to_owned(),
        DeviceError::Driver { action, reason, .. } => format!("the driver failed to {action}: {reason}"),
        other => other.to_string(),
    }
}
