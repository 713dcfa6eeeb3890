//! Model of a device. It creates real signatures after a delay in virtual time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use godwit_sign::{Class, Device, DeviceCost, DeviceJob, DeviceLost, DeviceResult, DeviceSpec};

/// Behaviour of the device, which a test can change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mood {
    Good,
    /// One bit of every signature is flipped.
    Flipped,
    /// The device accepts jobs and never answers.
    Silent,
    /// The device reports that it is lost.
    Lost,
}

pub(crate) struct Model {
    pub(crate) mood: Arc<Mutex<Mood>>,
    pub(crate) latency_ns: u64,
    jobs: VecDeque<(u64, DeviceJob)>,
}

impl Model {
    pub(crate) fn new(mood: &Arc<Mutex<Mood>>) -> Self {
        Self { mood: Arc::clone(mood), latency_ns: 1_000, jobs: VecDeque::new() }
    }
}

impl Device for Model {
    fn spec(&self) -> DeviceSpec {
        let cost = Some(DeviceCost { latency_ns: self.latency_ns, job_ns: 1 });
        DeviceSpec { costs: [cost; Class::ALL.len()], batch_max: 64, batches_max: 2 }
    }

    fn submit(&mut self, now_ns: u64, class: Class, jobs: Vec<DeviceJob>) -> Result<(), DeviceLost> {
        assert!(jobs.iter().all(|job| job.key.class() == class));
        let end_ns = now_ns + self.latency_ns;
        self.jobs.extend(jobs.into_iter().map(|job| (end_ns, job)));
        if *self.mood.lock().unwrap() == Mood::Lost { Err(DeviceLost) } else { Ok(()) }
    }

    fn poll(&mut self, now_ns: u64, results: &mut Vec<DeviceResult>) -> Result<(), DeviceLost> {
        let mood = *self.mood.lock().unwrap();
        match mood {
            Mood::Lost => return Err(DeviceLost),
            Mood::Silent => self.jobs.clear(),
            Mood::Good | Mood::Flipped => {}
        }
        while self.jobs.front().is_some_and(|(end_ns, _)| *end_ns <= now_ns) {
            let Some((_, DeviceJob { id, key, scheme, message })) = self.jobs.pop_front() else { break };
            let mut signature = key.sign(scheme, &message);
            if let (Mood::Flipped, Some(bytes)) = (mood, &mut signature) {
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
            }
            results.push(DeviceResult { id, signature });
        }
        Ok(())
    }
}
