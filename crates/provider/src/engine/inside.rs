//! Engine in this process. The thread itself signs when a job is resumed.
//!
//! A job makes its event readable at once. The event loop of the program resumes the job in its
//! next turn, after it has served the other connections of this turn. The first resumed job then
//! signs the jobs of all of them in batches.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use godwit_sign::{Costs, Counters, Done, JobId, Key, PolicyConfig, Refusal, Scheme, Signer};
use nix::sys::eventfd::EventFd;

use super::{Answer, on_large_stack};
use crate::entry::Provider;

pub(super) struct Inside {
    state: Mutex<State>,
    started: Instant,
}

struct State {
    signer: Signer,
    /// Answers of jobs that are not resumed yet.
    answers: HashMap<JobId, Answer>,
    done: Vec<Done>,
}

impl Inside {
    pub(super) fn new(provider: &Provider) -> Result<Self, String> {
        // The default costs fit all CPUs with AVX-512 IFMA. A measurement would delay handshakes.
        let policy =
            PolicyConfig { costs: Costs::default(), jobs_max: provider.settings.jobs_max, ..PolicyConfig::default() };
        let signer = Signer::new(policy, provider.library.clone(), Vec::new()).map_err(|error| error.to_string())?;
        let state = State { signer, answers: HashMap::new(), done: Vec::new() };
        Ok(Self { state: Mutex::new(state), started: Instant::now() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn submit(
        &self,
        key: &Arc<Key>,
        scheme: Scheme,
        message: &[u8],
        event: Option<&Arc<EventFd>>,
    ) -> Result<JobId, Refusal> {
        let id = self.state().signer.submit(Arc::clone(key), scheme, message)?;
        if let Some(event) = event {
            // The write fails only if the event is already readable.
            let _ = event.write(1);
        }
        Ok(id)
    }

    pub(super) fn cancel(&self, id: JobId) {
        let mut state = self.state();
        state.answers.remove(&id);
        state.signer.cancel(id);
    }

    /// Signs until the job has an answer.
    pub(super) fn answer(&self, id: JobId) -> Answer {
        let now_ns = self.started.elapsed().as_nanos() as u64;
        let mut state = self.state();
        loop {
            if let Some(answer) = state.answers.remove(&id) {
                return answer;
            }
            let State { signer, done, answers } = &mut *state;
            let more = on_large_stack(|| signer.turn(now_ns, done));
            if done.is_empty() && !more {
                // The job is not in the signer.
                return Err(Refusal::Failed);
            }
            answers.extend(done.drain(..).map(|done| (done.id, done.result)));
        }
    }

    pub(super) fn counters(&self) -> Counters {
        self.state().signer.counters()
    }
}
