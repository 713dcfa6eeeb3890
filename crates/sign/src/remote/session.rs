//! Serves one client of the signer on a separate thread.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::handover::{self, Description};
use super::host::KeyRing;
use super::ring::{self, Broken, Reader, Sleeper, Writer};
use super::shared::Shared;
use super::slot::{AnswerSlot, JOB_WORDS, JobSlot, Outcome};
use super::statement;
use super::wake::{drain, wake};
use crate::counters::Counters;
use crate::policy::{JobId, Processor, Refusal};
use crate::signer::{Done, Signer};

/// Connection of one client.
pub(super) struct Session {
    socket: UnixStream,
    writer: Writer,
    reader: Reader,
    signer: Signer,
    keys: Arc<KeyRing>,
    /// Identities that the client chose for the jobs in flight.
    ids: HashMap<JobId, u64>,
    slots: usize,
}

/// The client violated the ring protocol, or does not read its answers.
struct Misbehaved;

impl From<Broken> for Misbehaved {
    fn from(_: Broken) -> Self {
        Self
    }
}

impl Session {
    /// Gives a client access to the ring buffers after its greeting.
    pub(super) fn start(
        mut socket: UnixStream,
        signer: Signer,
        keys: Arc<KeyRing>,
        slots: usize,
        lanes: &str,
    ) -> io::Result<Self> {
        let (shared, memory) = Shared::create(ring::words(slots))?;
        let (writer, reader) = ring::signer(&Arc::new(shared), slots);
        let description = Description { slots, lanes: lanes.to_owned(), keys: keys.current() };
        handover::send(&mut socket, &description, &memory)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, writer, reader, signer, keys, ids: HashMap::new(), slots })
    }

    /// Signs the client's jobs until the client disconnects. Writes the current counters to
    /// `published`.
    pub(super) fn run(mut self, published: &Mutex<Counters>) {
        let started = Instant::now();
        let mut done = Vec::new();
        loop {
            let now_ns = started.elapsed().as_nanos() as u64;
            let Ok(more) = self.turn(now_ns, &mut done) else { break };
            *published.lock().unwrap_or_else(PoisonError::into_inner) = self.signer.counters();
            if !more && !self.sleep() {
                break;
            }
        }
        for id in self.ids.into_keys() {
            self.signer.cancel(id);
        }
        *published.lock().unwrap_or_else(PoisonError::into_inner) = self.signer.counters();
    }

    /// Takes all new jobs, signs at most one batch, and sends the answers. Returns whether more
    /// jobs wait.
    fn turn(&mut self, now_ns: u64, done: &mut Vec<Done>) -> Result<bool, Misbehaved> {
        let mut words = [0; JOB_WORDS];
        let before = self.signer.counters().signed_lanes;
        while self.reader.take(&mut words)? {
            let (id, job) = JobSlot::from_words(&words);
            if self.ids.len() >= self.slots {
                return Err(Misbehaved);
            }
            match job.ok_or(Refusal::Invalid).and_then(|job| self.submit(&job)) {
                Ok(job) => {
                    self.ids.insert(job, id);
                }
                Err(refusal) => self.send(&AnswerSlot { id, outcome: refused(refusal) })?,
            }
        }
        let more = self.signer.turn(now_ns, done);
        let lanes = self.signer.counters().signed_lanes > before;
        for Done { id, result } in done.drain(..) {
            let Some(id) = self.ids.remove(&id) else { continue };
            let processor = if lanes { Processor::Lanes } else { Processor::Single };
            let outcome = result.map_or_else(refused, |signature| Outcome::Signed(processor, signature));
            self.send(&AnswerSlot { id, outcome })?;
        }
        Ok(more)
    }

    fn submit(&mut self, job: &JobSlot) -> Result<JobId, Refusal> {
        let (key, message) = (self.keys.find(job.key), statement::build(job.kind, &job.bytes));
        match (key, message) {
            (Some(key), Some(message)) => self.signer.submit(key, job.scheme, &message),
            _ => Err(self.signer.refuse_invalid()),
        }
    }

    fn send(&mut self, answer: &AnswerSlot) -> Result<(), Misbehaved> {
        if !self.writer.push(&answer.to_words()) {
            return Err(Misbehaved);
        }
        if self.writer.must_wake(Sleeper::Client) {
            wake(&self.socket);
        }
        Ok(())
    }

    /// Waits for jobs. Returns false if the client has disconnected.
    fn sleep(&self) -> bool {
        if !drain(&self.socket) {
            return false;
        }
        if self.reader.announce_sleep(Sleeper::Signer) {
            let mut events = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            // A signal interrupts the call, and the next turn repeats it.
            let _ = poll(&mut events, PollTimeout::NONE);
        }
        true
    }
}

fn refused(refusal: Refusal) -> Outcome {
    match refusal {
        Refusal::Backlog => Outcome::Backlog,
        Refusal::Invalid => Outcome::Invalid,
        Refusal::Failed | Refusal::Lost => Outcome::Failed,
    }
}
