//! Client of a signer in another process. It sends jobs to the signer and receives the answers.

use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::unistd::getuid;

use super::handover::{self, Answer, RemoteError};
use super::ring::{self, Reader, Sleeper, Writer};
use super::shared::Shared;
use super::slot::{ANSWER_WORDS, AnswerSlot, JobSlot, Outcome};
use super::statement;
use super::wake::{drain, wake};
use crate::counters::Counters;
use crate::key::Key;
use crate::policy::{JobId, Processor, Refusal};
use crate::scheme::Scheme;
use crate::signer::Done;

/// Connection to a signer.
#[derive(Debug)]
pub struct Connection {
    /// Socket of the signer, which does not block.
    socket: UnixStream,
    writer: Writer,
    reader: Reader,
    slots: usize,
    /// Number of jobs without an answer, including cancelled jobs.
    unanswered: usize,
    lanes: String,
    keys: Vec<Arc<Key>>,
}

impl Connection {
    /// Connects to the signer that listens on `socket`. Waits at most a few seconds.
    ///
    /// # Errors
    /// Returns an error if no signer answers, or if it refuses this user.
    pub fn open(socket: &Path) -> Result<Self, RemoteError> {
        let fail = |source| RemoteError::Socket { socket: socket.to_owned(), source };
        let invalid = |reason| RemoteError::Protocol { socket: socket.to_owned(), reason };
        let mut stream = UnixStream::connect(socket).map_err(fail)?;
        let (description, memory) = match handover::greet(&mut stream).map_err(fail)? {
            Answer::Accepted(description, memory) => (description, memory),
            Answer::Refused => {
                return Err(RemoteError::User { socket: socket.to_owned(), uid: getuid().as_raw() });
            }
            Answer::Invalid(reason) => return Err(invalid(reason)),
        };
        let slots = description.slots;
        let shared = Shared::open(&memory, ring::words(slots));
        let shared = shared.map_err(|_| invalid("its shared memory has another size"))?;
        let (writer, reader) = ring::client(&Arc::new(shared), slots);
        stream.set_nonblocking(true).map_err(fail)?;
        let (lanes, keys) = (description.lanes, description.keys);
        Ok(Self { socket: stream, writer, reader, slots, unanswered: 0, lanes, keys })
    }

    /// Returns the public halves of the signer's keys.
    pub fn keys(&self) -> &[Arc<Key>] {
        &self.keys
    }

    /// Returns the signer's version of crypto_mb, or the reason why the library is not used.
    pub fn lanes(&self) -> &str {
        &self.lanes
    }
}

/// Sends the jobs of one thread to a signer. It has the same interface as [`crate::Signer`].
#[derive(Debug)]
pub struct Remote {
    socket: PathBuf,
    connection: Option<Connection>,
    jobs_max: usize,
    /// Jobs without an answer.
    jobs: HashMap<JobId, ()>,
    /// Number of jobs sent so far, over all connections.
    sent: u64,
    counters: Counters,
}

impl Remote {
    /// Creates the client of one thread. At most `jobs_max` jobs are in flight.
    pub fn new(socket: &Path, connection: Connection, jobs_max: usize) -> Self {
        let (jobs, counters) = (HashMap::new(), Counters::default());
        Self { socket: socket.to_owned(), connection: Some(connection), jobs_max, jobs, sent: 0, counters }
    }

    /// Returns the path of the signer's socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Sends a job to the signer.
    ///
    /// # Errors
    /// Returns the reason if the job is refused. The refusal is counted.
    pub fn submit(&mut self, key: &Key, scheme: Scheme, message: &[u8]) -> Result<JobId, Refusal> {
        self.counters.received += 1;
        let sent = self.send(key, scheme, message);
        if let Err(refusal) = sent {
            self.refuse(refusal);
        }
        sent
    }

    fn send(&mut self, key: &Key, scheme: Scheme, message: &[u8]) -> Result<JobId, Refusal> {
        let id = JobId::from_number(self.sent);
        let statement = statement::reduce(message).filter(|_| scheme.is_of(key.class()));
        let (kind, bytes) = statement.ok_or(Refusal::Invalid)?;
        let job = JobSlot { id: self.sent, key: key.id(), scheme, kind, bytes: bytes.to_vec() };
        let words = job.to_words().ok_or(Refusal::Invalid)?;
        let connection = self.connection.as_mut().ok_or(Refusal::Lost)?;
        if self.jobs.len() >= self.jobs_max || connection.unanswered >= connection.slots {
            return Err(Refusal::Backlog);
        }
        if !connection.writer.push(&words) {
            return Err(Refusal::Backlog);
        }
        if connection.writer.must_wake(Sleeper::Signer) {
            wake(&connection.socket);
        }
        connection.unanswered += 1;
        self.sent += 1;
        self.jobs.insert(id, ());
        Ok(id)
    }

    fn refuse(&mut self, refusal: Refusal) {
        self.counters.refused += 1;
        *match refusal {
            Refusal::Backlog => &mut self.counters.refused_backlog,
            Refusal::Invalid => &mut self.counters.refused_invalid,
            Refusal::Failed => &mut self.counters.refused_failed,
            Refusal::Lost => &mut self.counters.refused_lost,
        } += 1;
    }

    /// Cancels a job, so that it gets no answer. Has no effect if the job is already answered.
    pub fn cancel(&mut self, id: JobId) {
        if self.jobs.remove(&id).is_some() {
            self.counters.refused += 1;
            self.counters.refused_cancelled += 1;
        }
    }

    /// Appends the signer's answers to `done`. If the signer has ended, all jobs are refused.
    pub fn poll(&mut self, done: &mut Vec<Done>) {
        let mut words = [0; ANSWER_WORDS];
        while let Some(connection) = &mut self.connection {
            match connection.reader.take(&mut words) {
                Ok(true) => {
                    connection.unanswered = connection.unanswered.saturating_sub(1);
                    let Some(answer) = AnswerSlot::from_words(&words) else { return self.lose(done) };
                    self.answer(answer, done);
                }
                Ok(false) if !drain(&connection.socket) => {
                    // The signer may have answered between the two calls.
                    let more = matches!(connection.reader.take(&mut words), Ok(true));
                    if let Some(answer) = AnswerSlot::from_words(&words).filter(|_| more) {
                        self.answer(answer, done);
                        continue;
                    }
                    return self.lose(done);
                }
                Ok(false) => return,
                Err(ring::Broken) => return self.lose(done),
            }
        }
    }

    fn answer(&mut self, AnswerSlot { id, outcome }: AnswerSlot, done: &mut Vec<Done>) {
        let id = JobId::from_number(id);
        if self.jobs.remove(&id).is_none() {
            self.counters.results_ignored += 1;
            return;
        }
        let refusal = match outcome {
            Outcome::Signed(processor, signature) => {
                self.counters.signed += 1;
                *match processor {
                    Processor::Single => &mut self.counters.signed_single,
                    Processor::Lanes => &mut self.counters.signed_lanes,
                    Processor::Device(_) => &mut self.counters.signed_device,
                } += 1;
                return done.push(Done { id, result: Ok(signature) });
            }
            Outcome::Backlog => Refusal::Backlog,
            Outcome::Invalid => Refusal::Invalid,
            Outcome::Failed => Refusal::Failed,
        };
        self.refuse(refusal);
        done.push(Done { id, result: Err(refusal) });
    }

    /// Closes the connection and refuses all jobs.
    fn lose(&mut self, done: &mut Vec<Done>) {
        self.connection = None;
        self.counters.signers_lost += 1;
        for (id, ()) in std::mem::take(&mut self.jobs) {
            self.refuse(Refusal::Lost);
            done.push(Done { id, result: Err(Refusal::Lost) });
        }
    }

    /// Returns whether a signer is connected. A recent disconnection may be unnoticed.
    pub fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Continues with a new connection after the signer was lost.
    pub fn resume(&mut self, connection: Connection) {
        self.connection = Some(connection);
    }

    /// Returns a non-blocking copy of the socket. The socket becomes readable when answers arrive
    /// or the signer ends. Returns `None` without a connection.
    pub fn wake_up(&self) -> Option<io::Result<UnixStream>> {
        self.connection.as_ref().map(|connection| connection.socket.try_clone())
    }

    /// Tells the signer that this thread will wait for the socket. If this returns false, the
    /// thread must first call [`Remote::poll`].
    pub fn announce_sleep(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.reader.announce_sleep(Sleeper::Client))
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        Counters { in_flight: self.jobs.len() as u64, ..self.counters.clone() }
    }
}
