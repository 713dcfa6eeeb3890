//! Reports of the counters. Each process appends lines of JSON to a file, which it opens at its
//! start and keeps open, because many servers change their user or root folder later.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use godwit_sign::Counters;
use serde::Serialize;

use crate::engine::Engines;

/// Least time between two lines of a process that signs.
const INTERVAL: Duration = Duration::from_secs(60);

#[derive(Serialize)]
struct Line<'a> {
    pid: u32,
    elapsed_s: f64,
    lanes: &'a str,
    /// Number of signatures for which an asynchronous job paused.
    paused: u64,
    /// Largest number of asynchronous jobs of a thread that were paused at once.
    paused_most: u64,
    signer: &'a Counters,
}

/// Counters of a provider, and the file with reports.
pub(crate) struct Statistics {
    pub(crate) engines: Engines,
    /// Number of signatures for which an asynchronous job paused.
    pub(crate) paused: AtomicU64,
    /// Largest number of asynchronous jobs of a thread that were paused at once.
    pub(crate) paused_most: AtomicU64,
    /// Version of crypto_mb, or the reason why it is not used.
    lanes: String,
    file: Option<File>,
    started: Instant,
    written: Mutex<Written>,
}

/// Last line of this process.
struct Written {
    at: Instant,
    received: u64,
}

impl Statistics {
    /// Opens the file of the reports, or creates it.
    pub(crate) fn new(lanes: String, path: Option<&Path>) -> Result<Self, String> {
        let open = |path: &Path| {
            let file = File::options().append(true).create(true).open(path);
            file.map_err(|error| format!("report = {}: cannot be opened: {error}", path.display()))
        };
        let started = Instant::now();
        Ok(Self {
            engines: Engines::default(),
            paused: AtomicU64::new(0),
            paused_most: AtomicU64::new(0),
            lanes,
            file: path.map(open).transpose()?,
            started,
            written: Mutex::new(Written { at: started, received: 0 }),
        })
    }

    /// Appends a line if the time has come.
    pub(crate) fn report(&self) {
        if self.file.is_none() {
            return;
        }
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if written.at.elapsed() >= INTERVAL {
            self.write(&mut written);
        }
    }

    /// Appends a line if the last one is old. A process without signatures, such as the master of
    /// HAProxy, appends nothing.
    pub(crate) fn finish(&self) {
        self.write(&mut self.written.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn write(&self, written: &mut Written) {
        let (Some(mut file), counters) = (self.file.as_ref(), self.engines.counters()) else { return };
        if counters.received == written.received {
            return;
        }
        *written = Written { at: Instant::now(), received: counters.received };
        let elapsed_s = self.started.elapsed().as_secs_f64();
        let (paused, paused_most) = (self.paused.load(Ordering::Relaxed), self.paused_most.load(Ordering::Relaxed));
        let (pid, lanes) = (std::process::id(), self.lanes.as_str());
        let line = Line { pid, elapsed_s, lanes, paused, paused_most, signer: &counters };
        let Ok(mut text) = serde_json::to_vec(&line) else { return };
        text.push(b'\n');
        // A full disk must not stop handshakes. The next line contains all counts again.
        let _ = file.write_all(&text);
    }
}
