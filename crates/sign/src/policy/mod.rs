//! Decides which processor signs which jobs, and when. The policy has no side effects. The caller
//! passes the time and runs the work, so tests can use virtual time.
//!
//! The processor that would finish a job first signs the job. One or two RSA-2048 jobs are signed
//! one at a time, because the SIMD lanes take the same time for one job as for eight. More jobs are
//! signed in SIMD lanes at once. No timer waits for a full batch, because jobs that arrive during a
//! batch fill the next one. A device takes the waiting jobs of a class if it is expected to finish
//! them before the CPU.
//!
//! ```text
//!            +--> single (AWS-LC)  ------------------+--> answered
//! submit --> queue of a class --> lanes  --check--+--+
//!            +--> filling batch --> device --check-+ |
//!                                     | late       | | fault
//!                                     +--> front of the queue, CPU only
//! ```

mod costs;
mod device;
mod jobs;

use std::collections::VecDeque;

pub use costs::{Costs, CpuCost, DeviceCost};
pub use device::DeviceSpec;
pub use jobs::JobId;

use crate::counters::{Counters, LANES};
use crate::scheme::Class;
use device::{Device, InFlight};
use jobs::{Allowed, Job, Jobs};

/// Settings of the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyConfig {
    /// Costs of the CPU.
    pub costs: Costs,
    /// Largest number of jobs in flight. Further jobs are refused.
    pub jobs_max: usize,
    /// Maximum time for which a device batch waits for more jobs, in nanoseconds.
    pub fill_ns: u64,
    /// Time after which a batch on a device is late, in nanoseconds. The CPU then also signs its
    /// jobs.
    pub deadline_ns: u64,
    /// Time without a result after which a device is declared lost, in nanoseconds.
    pub lost_ns: u64,
    /// Number of wrong results that ends the use of a processor.
    pub faults_max: u32,
}

impl Default for PolicyConfig {
    fn default() -> Self {
        Self {
            costs: Costs::default(),
            jobs_max: 4096,
            fill_ns: 500_000,
            deadline_ns: 20_000_000,
            lost_ns: 1_000_000_000,
            faults_max: 3,
        }
    }
}

/// Processor that signs a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processor {
    /// AWS-LC, one job at a time, on the thread of the signer.
    Single,
    /// Eight SIMD lanes on the thread of the signer.
    Lanes,
    /// Device with this index.
    Device(usize),
}

/// Work that the caller must run now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Processor of the jobs.
    pub processor: Processor,
    /// Class of the jobs.
    pub class: Class,
}

/// Reason why a job is answered without a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Too many jobs are in flight.
    Backlog,
    /// The signature scheme does not fit the key, or the message is too long.
    Invalid,
    /// AWS-LC reported an error.
    Failed,
    /// The process of the signer ended, or is not running.
    Lost,
}

/// Effect of a result on its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The job is answered with this result.
    Answered,
    /// The result is ignored, because the job was cancelled or already signed.
    Ignored,
    /// The result was wrong. Another processor signs the job.
    Retried,
    /// The result was wrong, and no other processor can sign the job, so it is refused.
    Refused,
}

/// Chooses processors for jobs.
#[derive(Debug)]
pub struct Policy {
    config: PolicyConfig,
    jobs: Jobs,
    queues: [VecDeque<JobId>; Class::ALL.len()],
    /// Number of unsigned jobs in each queue. The queues may also contain answered jobs.
    waiting: [usize; Class::ALL.len()],
    devices: Vec<Device>,
    lanes_faults: u32,
    counters: Counters,
}

impl Policy {
    /// Creates a policy for the CPU and `devices`.
    pub fn new(config: PolicyConfig, devices: Vec<DeviceSpec>) -> Self {
        Self {
            config,
            jobs: Jobs::default(),
            queues: std::array::from_fn(|_| VecDeque::new()),
            waiting: [0; Class::ALL.len()],
            devices: devices.into_iter().map(Device::new).collect(),
            lanes_faults: 0,
            counters: Counters::default(),
        }
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        Counters { in_flight: self.jobs.count() as u64, ..self.counters.clone() }
    }

    /// Returns the number of jobs that wait for the CPU.
    pub fn waiting(&self) -> usize {
        self.waiting.iter().sum()
    }

    /// Adds a job to the queue of `class`.
    ///
    /// # Errors
    /// Returns [`Refusal::Backlog`] if too many jobs are in flight.
    pub fn submit(&mut self, class: Class) -> Result<JobId, Refusal> {
        self.counters.received += 1;
        if self.jobs.count() >= self.config.jobs_max {
            self.counters.refused += 1;
            self.counters.refused_backlog += 1;
            return Err(Refusal::Backlog);
        }
        let id = self.jobs.insert(Job { class, allowed: Allowed::Any, number: self.counters.received, waits: true });
        self.queues[class.index()].push_back(id);
        self.waiting[class.index()] += 1;
        Ok(id)
    }

    /// Counts a job that is refused before it enters a queue.
    pub fn refuse_invalid(&mut self) -> Refusal {
        self.counters.received += 1;
        self.counters.refused += 1;
        self.counters.refused_invalid += 1;
        Refusal::Invalid
    }

    /// Removes a job whose client has disconnected. Later results are ignored. Returns false if the
    /// job is not in flight.
    pub fn cancel(&mut self, id: JobId) -> bool {
        let removed = self.remove(id);
        self.counters.refused += u64::from(removed);
        self.counters.refused_cancelled += u64::from(removed);
        removed
    }

    /// Returns whether the job waits or is on a processor.
    pub fn is_in_flight(&self, id: JobId) -> bool {
        self.jobs.get(id).is_some()
    }

    /// Returns the next work for a processor, and writes its jobs to `jobs`. Returns `None` if
    /// there is no work before [`Policy::deadline_ns`] or the next event.
    pub fn next(&mut self, now_ns: u64, jobs: &mut Vec<JobId>) -> Option<Work> {
        jobs.clear();
        self.expire(now_ns);
        for class in Class::ALL {
            self.offer(now_ns, class);
        }
        if let Some(work) = self.due_batch(now_ns, jobs) {
            return Some(work);
        }
        // The class of the job that waits longest goes first.
        let class = self.oldest_class()?;
        Some(self.take_for_cpu(class, jobs))
    }

    /// Returns the latest time for the next call to [`Policy::next`], unless another event occurs
    /// before.
    pub fn deadline_ns(&self) -> Option<u64> {
        let config = &self.config;
        let devices = self.devices.iter().filter(|device| !device.lost);
        let times = devices.flat_map(|device| {
            let free = device.in_flight.len() < device.spec.batches_max;
            let filling = device.filling.iter().filter(|filling| !filling.jobs.is_empty());
            let wait_to_fill_ns = if free { config.fill_ns } else { config.deadline_ns };
            let filling = filling.map(move |filling| filling.opened_ns + wait_to_fill_ns);
            let wait_ns = |batch: &InFlight| if batch.late { config.lost_ns } else { config.deadline_ns };
            filling.chain(device.in_flight.iter().map(move |batch| batch.submitted_ns + wait_ns(batch)))
        });
        times.min()
    }

    /// Reports the result of a job. `correct` is false if the processor reported an error, or if
    /// the signature is invalid under the public key.
    pub fn finish(&mut self, id: JobId, processor: Processor, correct: bool) -> Effect {
        if let Processor::Device(index) = processor {
            let device = &mut self.devices[index];
            device.in_flight.iter_mut().for_each(|batch| batch.jobs.retain(|&job| job != id));
            device.in_flight.retain(|batch| !batch.jobs.is_empty());
        }
        if !correct {
            return self.fault(id, processor);
        }
        if !self.remove(id) {
            self.counters.results_ignored += 1;
            return Effect::Ignored;
        }
        self.counters.signed += 1;
        match processor {
            Processor::Single => self.counters.signed_single += 1,
            Processor::Lanes => self.counters.signed_lanes += 1,
            Processor::Device(_) => self.counters.signed_device += 1,
        }
        Effect::Answered
    }

    /// Declares a device lost. The CPU signs its jobs.
    pub fn lose(&mut self, index: usize) {
        let device = &mut self.devices[index];
        if std::mem::replace(&mut device.lost, true) {
            return;
        }
        self.counters.devices_lost += 1;
        let filling = device.filling.iter_mut().flat_map(|filling| std::mem::take(&mut filling.jobs));
        let mut jobs: Vec<JobId> = filling.collect();
        jobs.extend(device.in_flight.drain(..).flat_map(|batch| batch.jobs));
        self.return_to_cpu(&jobs);
    }

    /// Returns whether a device is lost.
    pub fn is_lost(&self, index: usize) -> bool {
        self.devices[index].lost
    }

    /// Removes a job in flight. Returns false if there is none.
    fn remove(&mut self, id: JobId) -> bool {
        let Some(job) = self.jobs.remove(id) else { return false };
        self.waiting[job.class.index()] -= usize::from(job.waits);
        true
    }

    /// Returns jobs to the front of their queues, in their original order. Only the CPU may sign
    /// these jobs afterwards. Queued and answered jobs are unchanged.
    fn return_to_cpu(&mut self, jobs: &[JobId]) {
        for &id in jobs.iter().rev() {
            let Some(job) = self.jobs.get_mut(id) else { continue };
            if !std::mem::replace(&mut job.waits, true) {
                if job.allowed == Allowed::Any {
                    job.allowed = Allowed::Cpu;
                }
                self.waiting[job.class.index()] += 1;
                self.queues[job.class.index()].push_front(id);
            }
        }
    }

    fn fault(&mut self, id: JobId, processor: Processor) -> Effect {
        let allowed = match processor {
            Processor::Single => return self.refuse_failed(id),
            Processor::Lanes => {
                self.counters.faults_lanes += 1;
                self.lanes_faults += 1;
                if self.lanes_faults == self.config.faults_max {
                    self.counters.lanes_lost = 1;
                    self.config.costs = self.config.costs.clone().without_lanes();
                }
                Allowed::Single
            }
            Processor::Device(index) => {
                self.counters.faults_device += 1;
                self.devices[index].faults += 1;
                if self.devices[index].faults == self.config.faults_max {
                    self.lose(index);
                }
                Allowed::Cpu
            }
        };
        match self.jobs.get_mut(id) {
            None => Effect::Ignored,
            Some(job) => {
                job.allowed = allowed;
                self.return_to_cpu(&[id]);
                Effect::Retried
            }
        }
    }

    fn refuse_failed(&mut self, id: JobId) -> Effect {
        if !self.remove(id) {
            return Effect::Ignored;
        }
        self.counters.refused += 1;
        self.counters.refused_failed += 1;
        Effect::Refused
    }

    /// Gives the jobs of late devices to the CPU. Devices that do not answer are declared lost.
    fn expire(&mut self, now_ns: u64) {
        for index in 0..self.devices.len() {
            let (deadline_ns, lost_ns) = (self.config.deadline_ns, self.config.lost_ns);
            let device = &mut self.devices[index];
            if device.in_flight.iter().any(|batch| now_ns >= batch.submitted_ns + lost_ns) {
                self.lose(index);
                continue;
            }
            let mut jobs = Vec::new();
            // A device that accepts no batches also delays the batches that wait for more jobs.
            for filling in &mut device.filling {
                if now_ns >= filling.opened_ns + deadline_ns {
                    jobs.append(&mut filling.jobs);
                }
            }
            let late = |batch: &&mut InFlight| !batch.late && now_ns >= batch.submitted_ns + deadline_ns;
            for batch in device.in_flight.iter_mut().filter(late) {
                batch.late = true;
                jobs.extend_from_slice(&batch.jobs);
            }
            jobs.retain(|&id| self.jobs.get(id).is_some());
            self.counters.late += jobs.len() as u64;
            self.return_to_cpu(&jobs);
        }
    }

    /// Moves waiting jobs of `class` to the device that would finish them first. If the CPU would
    /// be faster, the jobs stay in their queue.
    fn offer(&mut self, now_ns: u64, class: Class) {
        let waiting = self.waiting[class.index()];
        if waiting == 0 || self.devices.is_empty() {
            return;
        }
        let backlog_ns = Class::ALL.iter().map(|class| self.cpu_time_ns(*class));
        let cpu_end_ns = now_ns + backlog_ns.sum::<u64>();
        let end_ns = |index: usize| self.devices[index].end_ns(now_ns, class, waiting, self.config.fill_ns);
        let ends = (0..self.devices.len()).filter_map(|index| Some((end_ns(index)?, index)));
        let Some((end_ns, index)) = ends.min() else { return };
        if end_ns >= cpu_end_ns {
            return;
        }
        let device = &mut self.devices[index];
        let filling = &mut device.filling[class.index()];
        if filling.jobs.is_empty() {
            filling.opened_ns = now_ns;
        }
        let queue = &mut self.queues[class.index()];
        let (jobs, moved) = (&mut self.jobs, &mut self.waiting[class.index()]);
        queue.retain(|&id| {
            let Some(job) = jobs.get_mut(id).filter(|job| job.waits) else { return false };
            let moves = job.allowed == Allowed::Any && filling.jobs.len() < device.spec.batch_max;
            if moves {
                job.waits = false;
                *moved -= 1;
                filling.jobs.push(id);
            }
            !moves
        });
    }

    fn cpu_time_ns(&self, class: Class) -> u64 {
        self.config.costs.of(class).time_ns(self.waiting[class.index()])
    }

    /// Takes a device batch that is full or has waited long enough.
    fn due_batch(&mut self, now_ns: u64, jobs: &mut Vec<JobId>) -> Option<Work> {
        for (index, device) in self.devices.iter_mut().enumerate().filter(|(_, device)| !device.lost) {
            for class in Class::ALL {
                if !device.is_due(now_ns, class, self.config.fill_ns) {
                    continue;
                }
                // Jobs that were cancelled meanwhile are not signed.
                let filled = std::mem::take(&mut device.filling[class.index()].jobs);
                jobs.extend(filled.into_iter().filter(|&id| self.jobs.get(id).is_some()));
                if jobs.is_empty() {
                    continue;
                }
                let job_ns = device.spec.costs[class.index()].map_or(0, |cost| cost.job_ns);
                device.busy_until_ns = device.busy_until_ns.max(now_ns) + jobs.len() as u64 * job_ns;
                let in_flight = InFlight { submitted_ns: now_ns, jobs: jobs.clone(), late: false };
                device.in_flight.push(in_flight);
                self.counters.device_batches += 1;
                return Some(Work { processor: Processor::Device(index), class });
            }
        }
        None
    }

    /// Returns the class of the job that has waited longest. Removes answered jobs from the front
    /// of all queues.
    fn oldest_class(&mut self) -> Option<Class> {
        let jobs = &self.jobs;
        for queue in &mut self.queues {
            while queue.front().is_some_and(|&id| jobs.get(id).is_none_or(|job| !job.waits)) {
                queue.pop_front();
            }
        }
        let heads = Class::ALL.into_iter().filter_map(|class| Some((*self.queues[class.index()].front()?, class)));
        heads.min_by_key(|(id, _)| self.jobs.get(*id).map(|job| job.number)).map(|(_, class)| class)
    }

    /// Takes the jobs of `class` that the CPU signs now.
    fn take_for_cpu(&mut self, class: Class, jobs: &mut Vec<JobId>) -> Work {
        let lanes = self.config.costs.of(class).prefers_lanes(self.waiting[class.index()].min(LANES));
        let mut processor = if lanes { Processor::Lanes } else { Processor::Single };
        while jobs.len() < if processor == Processor::Lanes { LANES } else { 1 } {
            let Some(&id) = self.queues[class.index()].front() else { break };
            let Some(job) = self.jobs.get_mut(id).filter(|job| job.waits) else {
                self.queues[class.index()].pop_front();
                continue;
            };
            if job.allowed == Allowed::Single {
                if !jobs.is_empty() {
                    break;
                }
                processor = Processor::Single;
            }
            job.waits = false;
            self.waiting[class.index()] -= 1;
            self.queues[class.index()].pop_front();
            jobs.push(id);
        }
        if processor == Processor::Lanes {
            self.counters.batches_by_fill[jobs.len() - 1] += 1;
        }
        Work { processor, class }
    }
}
