//! What a worker does when a device fails: nothing is forwarded unprocessed, every packet is accounted for, and the
//! functions go on somewhere else.
//!
//! | what the lane says | packets in the device's hands | buffers | the device |
//! |---|---|---|---|
//! | rejected | go to the CPU | kept | given up |
//! | failed | dropped, counted | released | goes on; given up after [`FAILURES_MAX`] in a row |
//! | lost | dropped, counted | never used again: the device may still write to them | given up |
//!
//! Packets that wait in the bins of a device that is given up go into those of the CPU, which every worker has at hand,
//! loaded, whether a function is placed there or not. A device that is given up gets no chunk any more; chunks that it
//! still has come back, or are lost, as before. Each worker finds out by itself: lanes share nothing on the packet path.

use godwit_device::{Error as DeviceError, Lane, Rejected};
use godwit_packet::Descriptor;
use godwit_sched::{Chunk, Insert, Packer};

use crate::Error;
use crate::balance::Load;
use crate::counters::{DROPPED, DROPPED_DEVICE, DROPPED_DEVICE_LOST};
use crate::plan::Plan;
use crate::worker::Worker;

/// The place that takes over: the CPU's.
pub(crate) const LAST_RESORT: usize = 0;
/// After so many failed chunks, none finished in between, a device is given up.
const FAILURES_MAX: u32 = 3;

/// A worker's bins for one device, and its way there.
pub(crate) struct Place {
    /// The device's name.
    pub(crate) id: String,
    pub(crate) packer: Packer,
    pub(crate) lane: Box<dyn Lane>,
    /// Chunks failed since one was finished.
    pub(crate) failures: u32,
    pub(crate) load: Load,
}

/// A device that a worker has given up.
#[derive(Clone, Debug)]
pub(crate) struct LostPlace {
    pub(crate) place: usize,
    pub(crate) reason: String,
    /// Packets dropped because of it, here.
    pub(crate) packets: u64,
}

impl Place {
    pub(crate) fn new(id: &str, packer: Packer, lane: Box<dyn Lane>) -> Self {
        Self { id: id.to_owned(), packer, lane, failures: 0, load: Load::default() }
    }

    /// Whether the filling chunk is to go to the device now.
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
    /// A chunk was handed back untouched: its packets go on elsewhere.
    #[cold]
    pub(crate) fn not_taken(
        &mut self,
        plan: &Plan,
        place: usize,
        rejected: Rejected,
        now_ns: u64,
    ) -> Result<(), Error> {
        let Rejected { chunk, error } = rejected;
        // A chunk that is wrong is a bug, not the device's fault; and there is nothing behind the last resort.
        if place == LAST_RESORT || matches!(error, DeviceError::Chunk { .. }) {
            return Err(Error::Device(error));
        }
        self.give_up(plan, place, &reason(error), 0);
        if self.tracer.follows() {
            self.tracer.not_taken(&self.places[place].id, &chunk);
        }
        self.requeue(plan, &chunk, now_ns)?;
        self.places[place].packer.give_back(chunk);
        self.empty(plan, place, now_ns)
    }

    /// A device did not finish what it had: its packets are dropped.
    #[cold]
    pub(crate) fn not_finished(&mut self, plan: &Plan, place: usize, error: DeviceError) -> Result<(), Error> {
        if place == LAST_RESORT {
            return Err(Error::Device(error));
        }
        let now_ns = self.now_ns();
        match error {
            DeviceError::Failed { reason, chunk, .. } => {
                let dropped = u64::from(chunk.packets);
                self.places[place].load.back(chunk.packets, now_ns);
                packets(&chunk).for_each(|descriptor| self.drop_packet(descriptor, DROPPED_DEVICE));
                let Place { id, packer, failures, .. } = &mut self.places[place];
                packer.give_back(*chunk);
                *failures += 1;
                if *failures < FAILURES_MAX {
                    tracing::error!("device {id} failed: {reason}; {dropped} packets are dropped, and it goes on");
                    return Ok(());
                }
                let reason = format!("{FAILURES_MAX} chunks in a row failed, the last because {reason}");
                self.give_up(plan, place, &reason, dropped);
            }
            DeviceError::Lost { reason, chunks, .. } => {
                let mut dropped = 0;
                for chunk in chunks {
                    dropped += u64::from(chunk.packets);
                    for descriptor in packets(&chunk) {
                        if self.tracer.follows() {
                            self.tracer.dropped(plan, descriptor, DROPPED_DEVICE_LOST);
                        }
                        self.order.leave(descriptor);
                        self.region.quarantine(descriptor);
                    }
                    self.places[place].packer.give_back(chunk);
                }
                self.counts.add(DROPPED, dropped);
                self.counts.add(DROPPED_DEVICE_LOST, dropped);
                self.give_up(plan, place, &reason, dropped);
                if !self.region.is_usable() {
                    let device = self.places[place].id.clone();
                    return Err(Error::ArenaLost { device, buffers: self.region.quarantined() });
                }
            }
            other => return Err(Error::Device(other)),
        }
        self.empty(plan, place, now_ns)
    }

    /// Places the device's functions on the last resort, and says so once; `dropped` packets are gone with it.
    fn give_up(&mut self, plan: &Plan, place: usize, reason: &str, dropped: u64) {
        let id = &self.places[place].id;
        if let Some(known) = self.lost.iter_mut().find(|lost| lost.place == place) {
            known.packets += dropped;
            tracing::error!("device {id}, which was given up, lost {dropped} more packets: {reason}");
            return;
        }
        let mut moved = Vec::new();
        let mut to = LAST_RESORT;
        for (stage, runs) in plan.stages.iter().zip(&mut self.placement) {
            if *runs == place {
                let others = stage
                    .places
                    .iter()
                    .find(|&&other| other != place && !self.lost.iter().any(|lost| lost.place == other));
                *runs = others.copied().unwrap_or(LAST_RESORT);
                to = *runs;
                moved.push(stage.name.as_str());
            }
        }
        let (runs, to) = (if moved.len() == 1 { "runs" } else { "run" }, &self.places[to].id);
        tracing::error!(
            "device {id} is lost: {reason}; {dropped} packets in its hands are dropped, and {} {runs} on {to} from now on",
            moved.join(", ")
        );
        self.lost.push(LostPlace { place, reason: reason.to_owned(), packets: dropped });
    }

    /// Moves what waits in the bins of a place that was given up. There is a free set of bins: the one of the chunk
    /// that told of the loss was just given back.
    fn empty(&mut self, plan: &Plan, place: usize, now_ns: u64) -> Result<(), Error> {
        if !self.lost.iter().any(|lost| lost.place == place) {
            return Ok(());
        }
        while let Some(chunk) = self.places[place].packer.take(now_ns) {
            self.requeue(plan, &chunk, now_ns)?;
            self.places[place].packer.give_back(chunk);
        }
        debug_assert_eq!(self.places[place].packer.waiting(), 0);
        Ok(())
    }

    /// Puts the packets of a chunk that no device has touched into bins of the last resort, bin by bin in their order.
    /// Which bin comes first does not matter: whoever needs the order of arrival asks [`crate::order::Order`] for it.
    fn requeue(&mut self, plan: &Plan, chunk: &Chunk, now_ns: u64) -> Result<(), Error> {
        for bin in &chunk.bins {
            let range = chunk.range(bin);
            for (descriptor, parameter) in chunk.descriptors[range.clone()].iter().zip(&chunk.parameters[range]) {
                let insert = |worker: &mut Self| {
                    let packer = &mut worker.places[LAST_RESORT].packer;
                    // The stream of all classes together has the function's number.
                    packer.insert(now_ns, bin.instance, bin.variant, descriptor, *parameter)
                };
                while insert(self) == Insert::Refused {
                    // The CPU has done a chunk when it has taken it, so this makes room.
                    self.submit(plan, LAST_RESORT, now_ns)?;
                    self.fetch(plan, LAST_RESORT)?;
                }
                if self.tracer.follows() {
                    let (function, packet) = (usize::from(bin.instance), std::slice::from_ref(descriptor));
                    self.tracer.binned(plan, function, &self.places[LAST_RESORT].id, bin.variant, packet);
                }
            }
        }
        Ok(())
    }
}

/// What a device says of itself, without its name in front.
fn reason(error: DeviceError) -> String {
    match error {
        DeviceError::Lost { reason, .. } | DeviceError::Failed { reason, .. } => reason,
        DeviceError::Unusable { reason, .. } => reason.trim_start_matches("it is lost: ").to_owned(),
        DeviceError::Driver { action, reason, .. } => format!("the driver failed to {action}: {reason}"),
        other => other.to_string(),
    }
}
