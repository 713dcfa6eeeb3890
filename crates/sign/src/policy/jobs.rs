//! Table of the jobs in flight. A job keeps its slot until it is answered.

use crate::scheme::Class;

/// Identity of a job in flight. Identities are never reused, so a late result cannot be assigned to
/// another job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId {
    pub(crate) slot: u32,
    generation: u32,
}

impl JobId {
    /// Converts a number to the identity of a job outside the table.
    pub(crate) fn from_number(number: u64) -> Self {
        Self { slot: number as u32, generation: (number >> 32) as u32 }
    }
}

/// Processors that may still sign a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allowed {
    /// Any processor may sign the job.
    Any,
    /// The CPU must sign the job after a device was late or returned a wrong result.
    Cpu,
    /// AWS-LC must sign the job after the SIMD lanes returned a wrong result.
    Single,
}

/// State of a job in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) class: Class,
    pub(super) allowed: Allowed,
    /// Number in order of submission.
    pub(super) number: u64,
    /// Whether the job waits in the queue of its class. If a device is late, the job waits again,
    /// but the device may still sign it.
    pub(super) waits: bool,
}

/// Table of jobs in flight.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    /// Table slots, each with a generation number that changes when the slot becomes free.
    slots: Vec<(u32, Option<Job>)>,
    free: Vec<u32>,
}

impl Jobs {
    pub(super) fn insert(&mut self, job: Job) -> JobId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            (self.slots.len() - 1) as u32
        });
        let entry = &mut self.slots[slot as usize];
        entry.1 = Some(job);
        JobId { slot, generation: entry.0 }
    }

    pub(super) fn get_mut(&mut self, id: JobId) -> Option<&mut Job> {
        let (generation, job) = self.slots.get_mut(id.slot as usize)?;
        job.as_mut().filter(|_| *generation == id.generation)
    }

    pub(super) fn get(&self, id: JobId) -> Option<&Job> {
        let (generation, job) = self.slots.get(id.slot as usize)?;
        job.as_ref().filter(|_| *generation == id.generation)
    }

    pub(super) fn remove(&mut self, id: JobId) -> Option<Job> {
        self.get(id)?;
        let entry = &mut self.slots[id.slot as usize];
        entry.0 = entry.0.wrapping_add(1);
        self.free.push(id.slot);
        entry.1.take()
    }

    pub(super) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
