//! Standard error, written by a separate thread.
//!
//! The reader of standard error can stop reading, and a terminal can be paused. No other thread
//! waits in these cases, because lines go into a bounded queue. If the queue is full, lines are
//! dropped and counted.

use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::time::{Duration, Instant};

/// Maximum number of waiting lines.
const LINES_MAX: usize = 1024;
/// Maximum time for which [`flush`] waits.
const FLUSH_LIMIT: Duration = Duration::from_millis(300);
/// Interval at which [`flush`] retries while the queue is full.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

static LOG: OnceLock<Log> = OnceLock::new();

/// Queue to the writing thread.
struct Log {
    queue: SyncSender<Entry>,
    dropped: AtomicU64,
}

enum Entry {
    Text(Vec<u8>),
    /// The sender is told when all earlier entries are written.
    Flush(Sender<()>),
}

/// Appends text to standard error. Returns at once.
pub(crate) fn write(text: impl Into<Vec<u8>>) {
    let log = log();
    if let Err(TrySendError::Full(_)) = log.queue.try_send(Entry::Text(text.into())) {
        log.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// Appends a line to standard error. Returns at once.
pub(crate) fn line(text: impl std::fmt::Display) {
    write(format!("{text}\n"));
}

/// Waits until all lines are written, at most for [`FLUSH_LIMIT`].
pub(crate) fn flush() {
    let Some(log) = LOG.get() else { return };
    let end = Instant::now() + FLUSH_LIMIT;
    let (done, written) = channel();
    let mut entry = Entry::Flush(done);
    while let Err(TrySendError::Full(unsent)) = log.queue.try_send(entry) {
        if Instant::now() >= end {
            return;
        }
        entry = unsent;
        std::thread::sleep(RETRY_INTERVAL);
    }
    let _ = written.recv_timeout(end.saturating_duration_since(Instant::now()));
}

fn log() -> &'static Log {
    LOG.get_or_init(|| {
        let (queue, entries) = sync_channel(LINES_MAX);
        // Without the thread, log lines are lost, but the work continues.
        let _ = std::thread::Builder::new().name("log".to_owned()).spawn(move || keep(&entries));
        Log { queue, dropped: AtomicU64::new(0) }
    })
}

fn keep(entries: &Receiver<Entry>) {
    let mut stderr = std::io::stderr();
    for entry in entries {
        let dropped = LOG.get().map_or(0, |log| log.dropped.swap(0, Ordering::Relaxed));
        if dropped > 0 {
            let _ = writeln!(stderr, "godwit: {dropped} log lines were dropped, because standard error was not read");
        }
        // Errors are ignored: there is no other place to report them.
        match entry {
            Entry::Text(text) => drop(stderr.write_all(&text)),
            Entry::Flush(done) => drop(done.send(())),
        }
    }
}

/// Writer of one log event.
#[derive(Default)]
pub(crate) struct Event(Vec<u8>);

impl Write for Event {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if !self.0.is_empty() {
            write(std::mem::take(&mut self.0));
        }
    }
}
