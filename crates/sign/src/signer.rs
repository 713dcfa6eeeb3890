//! Signs the jobs of one thread. The policy chooses the processor for each job, and this module
//! runs the processors.

use std::sync::Arc;
use std::time::Instant;

use crate::Error;
use crate::counters::{Counters, LANES};
use crate::key::Key;
use crate::lanes::{LaneJob, Lanes, Library};
use crate::policy::{Costs, CpuCost, Effect, JobId, Policy, PolicyConfig, Processor, Refusal};
use crate::processor::{Device, DeviceJob, DeviceResult};
use crate::scheme::{Class, Scheme};

/// Maximum message length in bytes. TLS signs messages of at most about 210 bytes.
pub const MESSAGE_BYTES_MAX: usize = 1024;

/// Answer to a job.
#[derive(Clone, Debug)]
pub struct Done {
    /// Identity that [`Signer::submit`] returned.
    pub id: JobId,
    /// Signature, or the reason why there is none.
    pub result: Result<Vec<u8>, Refusal>,
}

/// Data of a job in flight.
struct Pending {
    key: Arc<Key>,
    scheme: Scheme,
    message: Arc<[u8]>,
}

/// Signs the jobs of one thread. [`Signer::turn`] signs on the calling thread.
pub struct Signer {
    policy: Policy,
    /// Data of each job. The index is the slot number of the job.
    pending: Vec<Option<Pending>>,
    lanes: Option<Lanes>,
    devices: Vec<Box<dyn Device>>,
    /// One in this many device signatures is verified with the public key.
    check_every: u64,
    results: u64,
    // Buffers that calls reuse.
    taken: Vec<JobId>,
    found: Vec<DeviceResult>,
}

impl Signer {
    /// Creates a signer. Without `library`, the CPU signs one job at a time.
    ///
    /// # Errors
    /// Returns [`Error::Memory`] if key memory cannot be locked.
    pub fn new(
        config: PolicyConfig,
        library: Option<Arc<Library>>,
        devices: Vec<Box<dyn Device>>,
    ) -> Result<Self, Error> {
        let lanes = library.map(Lanes::new).transpose()?;
        let mut costs = config.costs;
        for class in Class::ALL {
            if !lanes.as_ref().is_some_and(|lanes| lanes.works(class)) {
                costs.0[class.index()].lanes_ns = None;
            }
        }
        let specs = devices.iter().map(|device| device.spec()).collect();
        Ok(Self {
            policy: Policy::new(PolicyConfig { costs, ..config }, specs),
            pending: Vec::new(),
            lanes,
            devices,
            check_every: 1,
            results: 0,
            taken: Vec::new(),
            found: Vec::new(),
        })
    }

    /// Verifies only one in `every` device signatures with the public key. The default is 1. Higher
    /// values are safe only for devices that verify their own signatures.
    pub fn check_device_results(&mut self, every: u64) {
        self.check_every = every.max(1);
    }

    /// Adds a job, which [`Signer::turn`] signs later.
    ///
    /// # Errors
    /// Returns the reason if the job is refused. The refusal is counted.
    pub fn submit(&mut self, key: Arc<Key>, scheme: Scheme, message: &[u8]) -> Result<JobId, Refusal> {
        if !scheme.is_of(key.class()) || message.len() > MESSAGE_BYTES_MAX {
            return Err(self.policy.refuse_invalid());
        }
        let id = self.policy.submit(key.class())?;
        let slot = id.slot as usize;
        if self.pending.len() <= slot {
            self.pending.resize_with(slot + 1, || None);
        }
        self.pending[slot] = Some(Pending { key, scheme, message: message.into() });
        Ok(id)
    }

    /// Cancels a job, so that it gets no answer. Has no effect if the job is already answered.
    pub fn cancel(&mut self, id: JobId) {
        if self.policy.cancel(id) {
            self.pending[id.slot as usize] = None;
        }
    }

    /// Submits due batches to devices and collects their results. Then signs at most one batch on
    /// this thread, and appends all answers to `done`.
    ///
    /// Returns whether more jobs wait for this thread.
    pub fn turn(&mut self, now_ns: u64, done: &mut Vec<Done>) -> bool {
        self.collect(now_ns, done);
        let mut taken = std::mem::take(&mut self.taken);
        while let Some(work) = self.policy.next(now_ns, &mut taken) {
            match work.processor {
                Processor::Device(index) => {
                    self.submit_to_device(now_ns, index, work.class, &taken);
                    continue;
                }
                Processor::Single => taken.iter().for_each(|&id| self.sign_single(id, done)),
                Processor::Lanes => self.sign_in_lanes(work.class, &taken, done),
            }
            break;
        }
        self.taken = taken;
        self.policy.waiting() > 0
    }

    /// Returns the latest time for the next call to [`Signer::turn`], unless a job is submitted
    /// before.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.policy.deadline_ns()
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        self.policy.counters()
    }

    /// Counts a job that is refused without a key or a message.
    pub(crate) fn refuse_invalid(&mut self) -> Refusal {
        self.policy.refuse_invalid()
    }

    fn answer(&mut self, id: JobId, processor: Processor, signature: Option<Vec<u8>>, done: &mut Vec<Done>) {
        match self.policy.finish(id, processor, signature.is_some()) {
            Effect::Answered => {
                self.pending[id.slot as usize] = None;
                let result = signature.ok_or(Refusal::Failed);
                done.push(Done { id, result });
            }
            Effect::Refused => {
                self.pending[id.slot as usize] = None;
                done.push(Done { id, result: Err(Refusal::Failed) });
            }
            Effect::Ignored | Effect::Retried => {}
        }
    }

    fn sign_single(&mut self, id: JobId, done: &mut Vec<Done>) {
        let job = self.pending[id.slot as usize].as_ref();
        let signature = job.and_then(|job| job.key.sign(job.scheme, &job.message));
        self.answer(id, Processor::Single, signature, done);
    }

    fn sign_in_lanes(&mut self, class: Class, ids: &[JobId], done: &mut Vec<Done>) {
        let Self { pending, lanes: Some(lanes), .. } = self else {
            // Unreachable, because the policy chooses SIMD lanes only if they are available.
            return ids.iter().for_each(|&id| self.sign_single(id, done));
        };
        let job = |id: &JobId| {
            let Pending { key, scheme, message } = pending[id.slot as usize].as_ref()?;
            Some(LaneJob { key, scheme: *scheme, message })
        };
        let jobs: Vec<LaneJob<'_>> = ids.iter().filter_map(job).collect();
        debug_assert_eq!(jobs.len(), ids.len());
        let signatures = lanes.sign(class, &jobs);
        for (&id, signature) in ids.iter().zip(signatures) {
            self.answer(id, Processor::Lanes, signature, done);
        }
    }

    fn submit_to_device(&mut self, now_ns: u64, index: usize, class: Class, ids: &[JobId]) {
        let job = |&id: &JobId| {
            let Pending { key, scheme, message } = self.pending[id.slot as usize].as_ref()?;
            Some(DeviceJob { id, key: Arc::clone(key), scheme: *scheme, message: Arc::clone(message) })
        };
        let jobs = ids.iter().filter_map(job).collect();
        if self.devices[index].submit(now_ns, class, jobs).is_err() {
            self.policy.lose(index);
        }
    }

    /// Collects and checks the results of devices.
    fn collect(&mut self, now_ns: u64, done: &mut Vec<Done>) {
        let mut found = std::mem::take(&mut self.found);
        for index in 0..self.devices.len() {
            if self.policy.is_lost(index) {
                continue;
            }
            let polled = self.devices[index].poll(now_ns, &mut found);
            for DeviceResult { id, signature } in found.drain(..) {
                // An earlier wrong signature in this loop may have excluded the device.
                if self.policy.is_lost(index) {
                    continue;
                }
                self.results += 1;
                let check = self.results.is_multiple_of(self.check_every);
                // The slot of an answered job may contain another job.
                let job = self.pending.get(id.slot as usize).and_then(Option::as_ref);
                let job = job.filter(|_| self.policy.is_in_flight(id));
                let correct = |signature: &Vec<u8>| {
                    !check || job.is_none_or(|job| job.key.verifies(job.scheme, &job.message, signature))
                };
                let signature = signature.filter(correct);
                self.answer(id, Processor::Device(index), signature, done);
            }
            if polled.is_err() {
                self.policy.lose(index);
            }
        }
        self.found = found;
    }
}

/// Measures how long this thread takes to sign with each class of `keys`. Classes without a key
/// keep the times of [`Costs::default`], because no jobs use them.
///
/// # Errors
/// Returns [`Error::Memory`] if key memory cannot be locked.
pub fn measure_costs(keys: &[Arc<Key>], library: Option<&Arc<Library>>) -> Result<Costs, Error> {
    let mut costs = Costs::default();
    if library.is_none() {
        costs = costs.without_lanes();
    }
    let mut lanes = library.map(|library| Lanes::new(Arc::clone(library))).transpose()?;
    for class in Class::ALL {
        let Some(key) = keys.iter().find(|key| key.class() == class) else { continue };
        let Some(scheme) = Scheme::ALL.into_iter().rev().find(|scheme| scheme.is_of(class)) else { continue };
        let message = [0; 128];
        let single_ns = shortest_ns(|| key.sign(scheme, &message).is_some()).unwrap_or(u64::MAX / 1024);
        let jobs = [LaneJob { key, scheme, message: &message }; LANES];
        let lanes_ns = lanes
            .as_mut()
            .filter(|lanes| lanes.works(class))
            .and_then(|lanes| shortest_ns(|| lanes.sign(class, &jobs).iter().all(Option::is_some)));
        costs.0[class.index()] = CpuCost { single_ns, lanes_ns };
    }
    Ok(costs)
}

/// Returns the shortest of three call durations in nanoseconds, or `None` if a call fails.
fn shortest_ns(mut call: impl FnMut() -> bool) -> Option<u64> {
    let mut shortest = u64::MAX;
    // The first call fills caches.
    for _ in 0..4 {
        let started = Instant::now();
        if !call() {
            return None;
        }
        shortest = shortest.min(started.elapsed().as_nanos() as u64);
    }
    Some(shortest)
}
