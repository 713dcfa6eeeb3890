//! Submits batches of packets to the devices, and completes the submissions that return. Moves
//! packets away from failed devices.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use godwit_device::{Error as DeviceError, Rejected, Unavailable};
use godwit_function::Complete;
use godwit_packet::Descriptor;
use godwit_sched::{Bin, Chunk, Insert, Stream};

use crate::error::Error;
use crate::observe::counters::{
    BINS, BUSY_NS, BYTES, DEVICE_CHUNKS, DEVICE_MOVED_BACK, DEVICE_MOVED_TO, DEVICE_PACKETS, DROPPED_DEVICE,
    DROPPED_DEVICE_LOST, PACKETS,
};
use crate::observe::histogram::SharedHistogram;
use crate::path::chained::{ChainScratch, Completion};
use crate::path::core::{Core, Iteration};
use crate::path::device::WorkerDevice;
use crate::place::LAST_RESORT;
use crate::place::balance::choose;
use crate::place::failover::{DeviceLoss, GivenUp, Placement, repeated_failure};
use crate::place::follow::{Follower, Turn};

/// Devices of a worker, and the functions that they run.
pub(crate) struct Collect {
    /// Devices. The index of the CPU is [`LAST_RESORT`].
    devices: Vec<WorkerDevice>,
    placement: Placement,
    completion: Completion,
    scratch: ChainScratch,
    /// Packets whose device is no longer used. They wait for room in the CPU's batches.
    stranded: VecDeque<(Bin, Descriptor, u64)>,
    /// List of the lost devices. Other threads read it.
    lost: Arc<Mutex<Vec<DeviceLoss>>>,
    /// The placement that the worker follows. If it is `None`, the worker balances on its own.
    follower: Option<Follower>,
}

/// Result of [`Collect::poll`].
pub(crate) enum Polled {
    /// The device has finished no further submission.
    Nothing,
    Finished(Chunk),
    /// The device failed to finish some submissions, and their packets are dropped.
    Failed,
}

impl Collect {
    /// Creates a collector for the devices of a worker. `allowed` contains the devices on which
    /// each function may run.
    pub(crate) fn new(devices: Vec<WorkerDevice>, allowed: Vec<Box<[usize]>>, follower: Option<Follower>) -> Self {
        Self {
            completion: Completion {
                latency: allowed.iter().map(|_| Arc::default()).collect(),
                ..Completion::default()
            },
            placement: Placement::new(allowed, devices.len()),
            devices,
            scratch: ChainScratch::default(),
            stranded: VecDeque::new(),
            lost: Arc::default(),
            follower,
        }
    }

    /// Returns the number of devices.
    pub(crate) fn devices(&self) -> usize {
        self.devices.len()
    }

    /// Returns the index of the device that runs `function`.
    pub(crate) fn device_of(&self, function: usize) -> usize {
        self.placement.device_of(function)
    }

    /// Returns a device.
    pub(crate) fn device(&mut self, device: usize) -> &mut WorkerDevice {
        &mut self.devices[device]
    }

    /// Returns whether the waiting batches for `device` must now be submitted. If `flush` is set,
    /// they are submitted before they are full.
    pub(crate) fn is_due(&self, device: usize, iteration: &Iteration, flush: bool) -> bool {
        self.devices[device].is_due(iteration.now_ns, iteration.is_idle, flush)
    }

    /// Returns whether no packet waits for a device or is on a device.
    pub(crate) fn is_empty(&self) -> bool {
        self.devices.iter().all(WorkerDevice::is_empty)
    }

    /// Replaces the inputs of all packers, which put packets into batches. All batches must be
    /// empty.
    ///
    /// # Errors
    /// Returns an error if a packer cannot support this number of inputs.
    pub(crate) fn set_streams(&mut self, streams: &[Stream]) -> Result<(), Error> {
        self.devices.iter_mut().try_for_each(|device| Ok(device.packer.set_streams(streams)?))
    }

    /// Chooses the device for the next submission of `function`. Returns whether the choice
    /// changed.
    pub(crate) fn balance(&mut self, core: &Core, function: usize) -> bool {
        if self.follower.is_some() {
            return self.follow(core, function);
        }
        let allowed = self.placement.allowed(function);
        if allowed.len() < 2 {
            return false;
        }
        let alive = allowed.iter().filter(|&&device| device == LAST_RESORT || !self.placement.is_lost(device));
        let offers = alive.map(|&device| self.devices[device].offer(device));
        let Some(device) = choose(offers, core.order.capacity()) else { return false };
        if device == LAST_RESORT {
            let others = allowed.iter().filter(|&&device| device != LAST_RESORT);
            others.for_each(|&device| self.devices[device].load.skipped());
        }
        self.placement.place(function, device)
    }

    /// Chooses the device for the next submission of `function` by its placement. Returns whether
    /// the choice changed.
    ///
    /// The device that lacks most packets of its share is the first choice. If it has no room, the
    /// other devices of the function take the submission. An overloaded worker takes the device
    /// with the shortest expected wait, including the overflow devices.
    fn follow(&mut self, core: &Core, function: usize) -> bool {
        let Some(follower) = &self.follower else { return false };
        let is_alive = |device: usize| device == LAST_RESORT || !self.placement.is_lost(device);
        let has_room = |device: usize| device == LAST_RESORT || self.devices[device].offer(device).has_room;
        let wanted = follower.next(function, is_alive);
        let usable = follower.usable(function);
        let chosen = if follower.is_overloaded() && usable.len() > 1 {
            let offered = (0..self.devices.len()).filter(|&device| usable.contains(device) && is_alive(device));
            let offers = offered.map(|device| self.devices[device].offer(device));
            choose(offers, core.order.capacity()).or(wanted)
        } else {
            let free = follower.next(function, |device| is_alive(device) && has_room(device));
            wanted.filter(|&device| has_room(device)).or(free).or(wanted)
        };
        if chosen == Some(LAST_RESORT) {
            usable
                .iter()
                .filter(|&device| device != LAST_RESORT)
                .for_each(|device| self.devices[device].load.skipped());
        }
        // If all devices of the placement are lost, the function stays where the failover moved it.
        chosen.is_some_and(|device| self.placement.place(function, device))
    }

    /// Takes a new placement, if there is one, and the limits of its devices. Returns whether the
    /// placement changed. The worker calls this method once per loop iteration. `received` is the
    /// number of packets that the iteration received.
    #[inline]
    pub(crate) fn turn(&mut self, core: &Core, now_ns: u64, received: usize) -> bool {
        let Some(follower) = &mut self.follower else { return false };
        let (in_flight, capacity) = (core.order.in_flight(), core.order.capacity());
        let Some(placement) = follower.turn(Turn { now_ns, received, in_flight, capacity }) else { return false };
        for (device, limits) in self.devices.iter_mut().zip(&placement.places) {
            device.packer.set_limits(limits.chunk_packets, limits.deadline_ns);
        }
        true
    }

    /// Returns whether packets wait for a device that the placement no longer uses.
    pub(crate) fn must_close(&self, device: usize) -> bool {
        let is_unused = self.follower.as_ref().is_some_and(|follower| follower.is_unused(device));
        is_unused && self.devices[device].packer.waiting() > 0
    }

    /// Returns the counts for the monitor of the placement.
    pub(crate) fn meter(&self) -> Option<Arc<[AtomicU64]>> {
        self.follower.as_ref().map(|follower| follower.meter.shared())
    }

    /// Submits the waiting batches to `device`. Returns false if no packets wait, or if no memory
    /// is free for the next batches. If the device rejects the batches, the worker no longer uses
    /// it, and the packets wait for the CPU.
    ///
    /// # Errors
    /// Returns an error if the CPU rejected the batches, or the submission was invalid.
    pub(crate) fn submit(&mut self, core: &mut Core, device: usize, now_ns: u64) -> Result<bool, Error> {
        let Core { plan, region, counts, observer, .. } = core;
        let WorkerDevice { id, packer, lane, load } = &mut self.devices[device];
        let Some(chunk) = packer.take(now_ns) else {
            return Ok(false);
        };
        let packets = chunk.packets;
        let chunks = plan.layout.device(device, DEVICE_CHUNKS);
        observer.submitted(id, counts.value(chunks) + 1, &chunk);
        if let Some(follower) = &mut self.follower {
            follower.submitted(device, &chunk, now_ns);
        }
        match lane.submit(region, chunk) {
            Ok(()) => {
                load.submitted(packets, now_ns);
                counts.add(plan.layout.device(device, DEVICE_PACKETS), packets.into());
                counts.add(chunks, 1);
            }
            Err(rejected) => self.reject(core, device, *rejected, now_ns)?,
        }
        Ok(true)
    }

    /// Returns the next submission that `device` has finished, and counts its processing time. If
    /// the device failed to finish submissions, their packets are dropped.
    ///
    /// # Errors
    /// Returns an error if the CPU failed, or the worker has no usable buffer left.
    pub(crate) fn poll(&mut self, core: &mut Core, device: usize) -> Result<Polled, Error> {
        match self.devices[device].lane.poll(&mut core.region) {
            Ok(None) => Ok(Polled::Nothing),
            Err(error) => {
                self.fail(core, device, error)?;
                Ok(Polled::Failed)
            }
            Ok(Some(chunk)) => {
                let WorkerDevice { id, packer, lane, load } = &mut self.devices[device];
                let now_ns = core.now_ns();
                load.returned(chunk.packets, now_ns);
                self.completion.elapsed_ns = now_ns.saturating_sub(chunk.opened_ns);
                self.placement.succeeded(device);
                for time in lane.bin_times() {
                    let bin = &chunk.bins[time.bin as usize];
                    let counters = core.plan.stages[usize::from(bin.instance)].counters;
                    core.counts.add(counters.plain(BUSY_NS), time.elapsed_ns);
                    packer.observe(bin, time.elapsed_ns);
                }
                if let Some(Follower { meter, .. }) = &mut self.follower {
                    for time in lane.bin_times() {
                        meter.finished(device, &chunk.bins[time.bin as usize], time.elapsed_ns);
                    }
                    if load.is_idle() {
                        meter.idles(device, now_ns);
                    }
                }
                core.observer.returned(id, &chunk);
                Ok(Polled::Finished(chunk))
            }
        }
    }

    /// Completes the batch with this `index` in the last submission that [`Collect::poll`]
    /// returned. The function of the batch finishes its packets on the CPU. Afterwards,
    /// [`Collect::done`] returns the packets.
    pub(crate) fn complete(
        &mut self,
        core: &mut Core,
        device: usize,
        chunk: &mut Chunk,
        index: usize,
        host_half: Option<&mut dyn Complete>,
    ) {
        let (bin, bytes) = (chunk.bins[index], chunk.bin_bytes[index]);
        let function = usize::from(bin.instance);
        let counters = core.plan.stages[function].counters;
        core.counts.add(counters.plain(PACKETS), bin.count.into());
        core.counts.add(counters.plain(BYTES), bytes);
        core.counts.add(counters.plain(BINS), 1);
        self.completion.record(function, bin.count.into());
        self.completion.done.clear();
        let chain = core.plan.chains[device].as_deref().filter(|_| chunk.ran_chain);
        if chain.is_some_and(|chain| chain.continues(function)) {
            self.scratch.complete_bin(core, device, chunk, index, host_half, &mut self.completion);
            return;
        }
        let range = chunk.range(&bin);
        if let Some(host_half) = host_half {
            let (packets, outcomes) = (&mut chunk.descriptors[range.clone()], &mut chunk.outcomes[range.clone()]);
            host_half.complete(bin.variant, packets, &chunk.parameters[range.clone()], outcomes);
            host_half.finish(&mut core.region, packets, outcomes);
        }
        self.completion.done.push((function, range));
    }

    /// Returns a run of packets from the completed batch that all ended at the same function. The
    /// result contains this function and the packets' indices in the submission. Returns `None` if
    /// there is no run with this index.
    pub(crate) fn done(&self, index: usize) -> Option<(usize, Range<usize>)> {
        self.completion.done.get(index).cloned()
    }

    /// Takes back a completed submission, which can then be filled again.
    pub(crate) fn give_back(&mut self, core: &mut Core, device: usize, chunk: Chunk) {
        let WorkerDevice { packer, lane, .. } = &mut self.devices[device];
        packer.give_back(chunk);
        let [to, back] = lane.moved_bytes();
        core.counts.set(core.plan.layout.device(device, DEVICE_MOVED_TO), to);
        core.counts.set(core.plan.layout.device(device, DEVICE_MOVED_BACK), back);
    }

    /// Returns whether packets wait for room in the CPU's batches because their device is no longer
    /// used.
    pub(crate) fn has_stranded(&self) -> bool {
        !self.stranded.is_empty()
    }

    /// Moves packets whose device is no longer used into batches for the CPU. Returns false if the
    /// batches are full and packets remain. Their sequence does not matter, because
    /// [`Order`](crate::path::order::Order) restores the arrival order.
    #[cold]
    pub(crate) fn requeue(&mut self, core: &mut Core, now_ns: u64) -> bool {
        let WorkerDevice { id, packer, .. } = &mut self.devices[LAST_RESORT];
        while let Some((bin, packet, parameter)) = self.stranded.front() {
            if packer.insert(now_ns, bin.instance, bin.variant, packet, *parameter) == Insert::Refused {
                return false;
            }
            let function = usize::from(bin.instance);
            core.observer.binned(&core.plan, function, id, bin.variant, std::slice::from_ref(packet));
            self.stranded.pop_front();
        }
        true
    }

    /// Returns a shared histogram for each function, with the time that packets spend in it. The
    /// worker continues to update the histograms.
    pub(crate) fn latency(&self) -> Vec<Arc<SharedHistogram>> {
        self.completion.latency.clone()
    }

    /// Returns the shared list of devices that are no longer used. The worker continues to update
    /// it.
    pub(crate) fn lost(&self) -> Arc<Mutex<Vec<DeviceLoss>>> {
        Arc::clone(&self.lost)
    }

    /// Returns the device that ran each function at the end.
    pub(crate) fn finish(self) -> Vec<usize> {
        self.placement.finish()
    }
}

/// Handles failed and lost devices. The table in `place/failover.rs` lists all cases.
impl Collect {
    /// Handles a submission that `device` rejected. The worker no longer uses the device, and the
    /// packets wait for the CPU.
    ///
    /// # Errors
    /// Returns an error if the device is the CPU, or the submission was invalid.
    #[cold]
    fn reject(&mut self, core: &mut Core, device: usize, rejected: Rejected, now_ns: u64) -> Result<(), Error> {
        let Rejected { chunk, error } = rejected;
        // An invalid submission is a bug. A CPU fault is an error, because nothing can replace the
        // CPU.
        if device == LAST_RESORT || matches!(error, DeviceError::Chunk { .. }) {
            return Err(Error::Device(error));
        }
        self.give_up(core, device, &reason(error), 0);
        core.observer.rejected(&self.devices[device].id, &chunk);
        self.strand(&chunk);
        self.devices[device].packer.give_back(chunk);
        self.strand_bins(device, now_ns);
        Ok(())
    }

    /// Handles submissions that `device` failed to finish, and drops their packets.
    ///
    /// # Errors
    /// Returns an error if the device is the CPU, or the worker has no usable buffer left.
    #[cold]
    fn fail(&mut self, core: &mut Core, device: usize, error: DeviceError) -> Result<(), Error> {
        if device == LAST_RESORT {
            return Err(Error::Device(error));
        }
        let now_ns = core.now_ns();
        match error {
            DeviceError::Failed { reason, chunk, .. } => {
                let dropped = u64::from(chunk.packets);
                packets(&chunk).for_each(|(_, packet, _)| core.drop_packet(&packet, DROPPED_DEVICE));
                let WorkerDevice { id, packer, load, .. } = &mut self.devices[device];
                load.returned(chunk.packets, now_ns);
                if let Some(Follower { meter, .. }) = self.follower.as_mut().filter(|_| load.is_idle()) {
                    meter.idles(device, now_ns);
                }
                packer.give_back(*chunk);
                if self.placement.failed(device) {
                    tracing::error!(
                        event = "device_failed",
                        device = id,
                        dropped,
                        "device {id} failed: {reason}; {dropped} packets are dropped, and the device stays in use"
                    );
                    return Ok(());
                }
                self.give_up(core, device, &repeated_failure(&reason), dropped);
            }
            DeviceError::Lost { reason, chunks, .. } => {
                let dropped = chunks.iter().map(|chunk| u64::from(chunk.packets)).sum();
                for chunk in chunks {
                    packets(&chunk).for_each(|(_, packet, _)| core.lose_packet(&packet, DROPPED_DEVICE_LOST));
                    self.devices[device].packer.give_back(chunk);
                }
                self.give_up(core, device, &reason, dropped);
                if !core.region.is_usable() {
                    let device = self.devices[device].id.clone();
                    return Err(Error::ArenaLost { device, buffers: core.region.quarantined() });
                }
            }
            other => return Err(Error::Device(other)),
        }
        self.strand_bins(device, now_ns);
        Ok(())
    }

    /// Stops using `device`, and logs the functions that move to another device.
    fn give_up(&mut self, core: &Core, device: usize, reason: &str, dropped: u64) {
        let id = &self.devices[device].id;
        let given_up = self.placement.give_up(device, reason, dropped);
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = self.placement.lost().to_vec();
        match given_up {
            GivenUp::Again => {
                tracing::error!(
                    event = "device_lost",
                    device = id,
                    dropped,
                    "device {id}, which is no longer used, lost {dropped} more packets: {reason}"
                );
            }
            GivenUp::Moved { functions, to } => {
                let names: Vec<&str> =
                    functions.iter().map(|&function| core.plan.stages[function].name.as_str()).collect();
                let (run, to) = (if names.len() == 1 { "runs" } else { "run" }, &self.devices[to].id);
                tracing::error!(
                    event = "device_lost",
                    device = id,
                    dropped,
                    "device {id} is lost: {reason}; {dropped} packets are dropped, and {} now {run} on {to}",
                    names.join(", ")
                );
            }
        }
    }

    /// Empties the batches for a device that is no longer used. Their packets then wait for the
    /// CPU.
    fn strand_bins(&mut self, device: usize, now_ns: u64) {
        while self.placement.is_lost(device)
            && let Some(chunk) = self.devices[device].packer.take(now_ns)
        {
            self.strand(&chunk);
            self.devices[device].packer.give_back(chunk);
        }
    }

    fn strand(&mut self, chunk: &Chunk) {
        self.stranded.extend(packets(chunk));
    }
}

fn packets(chunk: &Chunk) -> impl Iterator<Item = (Bin, Descriptor, u64)> {
    chunk.bins.iter().flat_map(|bin| {
        let range = chunk.range(bin);
        let pairs = chunk.descriptors[range.clone()].iter().zip(&chunk.parameters[range]);
        pairs.map(|(&packet, &parameter)| (*bin, packet, parameter))
    })
}

/// Returns the text of a device error without the device name.
fn reason(error: DeviceError) -> String {
    match error {
        DeviceError::Lost { reason, .. } | DeviceError::Failed { reason, .. } => reason,
        DeviceError::Unusable { reason: Unavailable::Lost(reason), .. } => reason,
        DeviceError::Unusable { reason, .. } => reason.to_string(),
        DeviceError::Driver { action, reason, .. } => format!("the driver failed to {action}: {reason}"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use godwit_abi::VERDICT_DROP;

    use super::*;
    use crate::path::testing::{FIRST, SECOND, Surroundings, TWO_FUNCTIONS};

    /// Creates a collect component, and one burst of packets.
    fn collect(configuration: &str) -> (Core, Collect, Vec<Descriptor>) {
        let mut surroundings = Surroundings::new(configuration);
        let packets = surroundings.arrive();
        let allowed = surroundings.core.plan.stages.iter().map(|stage| stage.devices.clone()).collect();
        let collect = Collect::new(surroundings.devices(), allowed, None);
        (surroundings.core, collect, packets)
    }

    #[test]
    fn submitted_packets_return_with_outcomes_and_are_counted() {
        let (mut core, mut collect, packets) = collect(TWO_FUNCTIONS);
        let core = &mut core;
        assert!(!collect.submit(core, LAST_RESORT, 0).unwrap(), "no packet waits");
        for (function, packets) in [(FIRST, &packets[..20]), (SECOND, &packets[20..])] {
            for packet in packets {
                collect.device(LAST_RESORT).packer.insert(0, function as u16, 0, packet, 0);
            }
        }
        assert!(collect.submit(core, LAST_RESORT, 0).unwrap() && !collect.is_empty());
        let Polled::Finished(mut chunk) = collect.poll(core, LAST_RESORT).unwrap() else { panic!("the CPU works") };
        let mut seen = Vec::new();
        for index in 0..chunk.bins.len() {
            collect.complete(core, LAST_RESORT, &mut chunk, index, None);
            for (function, range) in (0..).map_while(|run| collect.done(run)) {
                assert!(chunk.outcomes[range.clone()].iter().all(|outcome| outcome.verdict != VERDICT_DROP));
                seen.push((function, chunk.descriptors[range].to_vec()));
            }
        }
        seen.sort_by_key(|(function, _)| *function);
        assert_eq!(seen, [(FIRST, packets[..20].to_vec()), (SECOND, packets[20..].to_vec())]);
        collect.give_back(core, LAST_RESORT, chunk);
        assert!(collect.is_empty());
        let count = |function: usize, counter| core.counts.value(core.plan.stages[function].counters.plain(counter));
        assert_eq!((count(FIRST, PACKETS), count(SECOND, PACKETS), count(SECOND, BINS)), (20, 44, 1));
        assert_eq!(core.counts.value(core.plan.layout.device(LAST_RESORT, DEVICE_CHUNKS)), 1);
    }

    #[test]
    fn stranded_packets_move_to_the_bins_of_the_cpu() {
        let packing = "[packing]\nchunk_packets = 40\nleftover_packets = 1\n";
        let (mut core, mut collect, packets) = collect(&format!("{packing}{TWO_FUNCTIONS}"));
        let core = &mut core;
        let bin = Bin { instance: SECOND as u16, ..Bin::default() };
        collect.stranded.extend(packets.iter().map(|&packet| (bin, packet, 7)));
        assert!(!collect.requeue(core, 0), "the bins are full");
        let chunk = collect.device(LAST_RESORT).packer.take(0).expect("the chunk is full");
        assert_eq!((&chunk.descriptors[..40], chunk.parameters[39]), (&packets[..40], 7));
        assert!(collect.requeue(core, 0) && !collect.has_stranded());
        assert_eq!(collect.device(LAST_RESORT).packer.waiting(), 24);
    }
}
