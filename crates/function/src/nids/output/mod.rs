//! Writes EVE records (JSON events) to a file or a socket, on a separate thread.
//!
//! Workers of a live system never wait for the writer. If [`QUEUE_BYTES_MAX`] bytes are queued,
//! further records are lost and counted. In a replay of captured packets, workers wait instead.

mod target;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::Error;

use target::Open;
pub(super) use target::Target;

/// Maximum number of bytes in the queue to the writer.
const QUEUE_BYTES_MAX: usize = 64 << 20;
/// Maximum number of messages in the queue to the writer.
const QUEUE_MESSAGES_MAX: usize = 4096;
/// Interval between two connection attempts.
const RETRY: Duration = Duration::from_millis(500);

/// Message to the writer.
enum Message {
    /// Records to write, as one JSON object per line.
    Records(Vec<u8>),
    /// Asks the writer to reopen the output file. The reply contains the error, if any.
    Reopen(SyncSender<Option<std::io::Error>>),
    /// The writer must end, because no more messages follow.
    End,
}

#[derive(Default)]
struct Shared {
    queued_bytes: AtomicUsize,
    lost: AtomicU64,
    /// Message about a failed write, for the operator.
    notice: Mutex<Option<String>>,
}

/// Output of the records of one function.
pub(super) struct Output {
    target: Target,
    shared: Arc<Shared>,
    running: Mutex<Option<Writer>>,
}

struct Writer {
    sender: SyncSender<Message>,
    live: bool,
    thread: JoinHandle<()>,
}

/// Connection of one worker to the writer.
pub(super) struct Sender {
    shared: Arc<Shared>,
    /// Channel to the writer, and whether the worker waits when the channel is full. `None` until
    /// the output starts.
    channel: Option<(SyncSender<Message>, bool)>,
}

impl Sender {
    /// Passes records to the writer. Counts the records as lost if the queue has no room for them.
    pub(super) fn send(&self, records: Vec<u8>) {
        let Some((channel, waits)) = &self.channel else { return };
        let (bytes, count) = (records.len(), lines(&records));
        let queued = self.shared.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        let sent = if *waits {
            channel.send(Message::Records(records)).is_ok()
        } else {
            queued + bytes <= QUEUE_BYTES_MAX && channel.try_send(Message::Records(records)).is_ok()
        };
        if !sent {
            self.shared.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.shared.lost.fetch_add(count, Ordering::Relaxed);
        }
    }
}

/// Returns the number of records in these lines.
fn lines(records: &[u8]) -> u64 {
    records.iter().filter(|byte| **byte == b'\n').count() as u64
}

impl Output {
    pub(super) fn new(target: Target) -> Self {
        Self { target, shared: Arc::default(), running: Mutex::default() }
    }

    /// Opens the file or socket and starts the writer thread.
    ///
    /// # Errors
    /// Returns [`Error::Command`] if a file cannot be opened. A missing socket is no error, because
    /// it may appear later.
    pub(super) fn start(&self, live: bool) -> Result<(), Error> {
        let open = self.target.open().map_err(|error| self.error(&error))?;
        let (sender, receiver) = sync_channel(QUEUE_MESSAGES_MAX);
        let (target, shared) = (self.target.clone(), Arc::clone(&self.shared));
        let thread = std::thread::Builder::new()
            .name("eve".to_owned())
            .spawn(move || write(&receiver, &target, open, &shared))
            .map_err(|error| Error::Command { message: format!("cannot start the writer of records: {error}") })?;
        *self.running() = Some(Writer { sender, live, thread });
        Ok(())
    }

    fn running(&self) -> std::sync::MutexGuard<'_, Option<Writer>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, error: &std::io::Error) -> Error {
        Error::Command { message: format!("cannot write records to {}: {error}", self.target) }
    }

    /// Returns the connection of one worker to the writer.
    pub(super) fn sender(&self) -> Sender {
        let channel = self.running().as_ref().map(|writer| (writer.sender.clone(), !writer.live));
        Sender { shared: Arc::clone(&self.shared), channel }
    }

    /// Passes records of the control thread to the writer.
    pub(super) fn send(&self, records: Vec<u8>) {
        self.sender().send(records);
    }

    /// Reopens the output file, for example after log rotation.
    ///
    /// # Errors
    /// Returns [`Error::Command`] if the file cannot be opened. The old file then stays open.
    pub(super) fn reopen(&self) -> Result<(), Error> {
        let Some(sender) = self.running().as_ref().map(|writer| writer.sender.clone()) else { return Ok(()) };
        let (answer, answered) = sync_channel(1);
        // A writer that has ended needs no new file.
        if sender.send(Message::Reopen(answer)).is_err() {
            return Ok(());
        }
        match answered.recv() {
            Ok(Some(error)) => Err(self.error(&error)),
            _ => Ok(()),
        }
    }

    /// Writes the queued records and ends the writer. All workers must have ended before this call.
    pub(super) fn finish(&self) {
        if let Some(Writer { sender, thread, .. }) = self.running().take() {
            // A writer that has ended needs no message.
            drop(sender.send(Message::End));
            if thread.join().is_err() {
                *self.shared.notice.lock().unwrap_or_else(PoisonError::into_inner) =
                    Some("the writer of records stopped by a bug".to_owned());
            }
        }
    }

    /// Returns the number of lost records.
    pub(super) fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// Returns a new message for the operator.
    pub(super) fn notice(&self) -> Option<String> {
        self.shared.notice.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Writes records until a message ends the writer.
fn write(receiver: &Receiver<Message>, target: &Target, mut open: Option<Open>, shared: &Shared) {
    // After a failure, no other failure is reported until a write succeeds.
    let mut failed = false;
    loop {
        let message = match receiver.try_recv() {
            Ok(message) => message,
            Err(TryRecvError::Disconnected) => break,
            Err(TryRecvError::Empty) => {
                // The queue is empty, so the collected records are written now. Readers of the file
                // see them without delay.
                flush(&mut open, target, shared, &mut failed);
                match receiver.recv_timeout(RETRY) {
                    Ok(message) => message,
                    Err(RecvTimeoutError::Timeout) => {
                        if open.is_none() {
                            open = target.open().ok().flatten();
                        }
                        continue;
                    }
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
        };
        match message {
            Message::Records(records) => {
                shared.queued_bytes.fetch_sub(records.len(), Ordering::Relaxed);
                if open.is_none() {
                    open = target.open().ok().flatten();
                }
                let written = open.as_mut().map(|open| open.write(&records));
                report(written, &mut open, target, shared, &mut failed, lines(&records));
            }
            Message::End => break,
            Message::Reopen(answer) => {
                flush(&mut open, target, shared, &mut failed);
                let error = match target.open() {
                    Ok(new) => {
                        open = new;
                        None
                    }
                    Err(error) => Some(error),
                };
                // The requester may have stopped waiting.
                drop(answer.send(error));
            }
        }
    }
    flush(&mut open, target, shared, &mut failed);
}

fn flush(open: &mut Option<Open>, target: &Target, shared: &Shared, failed: &mut bool) {
    let flushed = open.as_mut().map(Open::flush);
    if flushed.as_ref().is_some_and(Result::is_err) {
        report(flushed, open, target, shared, failed, 0);
    }
}

/// Counts the records that a failed write loses. Reports only the first of several consecutive
/// failures.
fn report(
    written: Option<std::io::Result<()>>,
    open: &mut Option<Open>,
    target: &Target,
    shared: &Shared,
    failed: &mut bool,
    records: u64,
) {
    let error = match written {
        Some(Ok(())) => {
            *failed = false;
            return;
        }
        Some(Err(error)) => error.to_string(),
        None => "not connected".to_owned(),
    };
    shared.lost.fetch_add(records + open.as_mut().map_or(0, Open::abandon), Ordering::Relaxed);
    if target.is_socket() {
        *open = None;
    }
    if !std::mem::replace(failed, true) {
        *shared.notice.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(format!("records are lost: cannot write to {target}: {error}"));
    }
}
