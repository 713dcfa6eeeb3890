//! Access log in JSON, with one line per request. A separate thread writes the log.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// Maximum number of queued lines. Further lines are discarded and counted.
const LINES_MAX: usize = 16 << 10;
/// Maximum time until a line is written to the file.
const FLUSH: Duration = Duration::from_millis(200);

/// Sender of lines to the thread that writes the access log.
#[derive(Clone)]
pub(crate) struct AccessLog {
    lines: SyncSender<String>,
    reopen: Arc<AtomicBool>,
}

impl AccessLog {
    /// Opens the access log. The path `-` means standard output. The writer thread ends when all
    /// copies of the log handle are dropped.
    pub(crate) fn open(path: &Path) -> io::Result<(Self, std::thread::JoinHandle<()>)> {
        let mut file = open(path)?;
        let (lines, received) = sync_channel(LINES_MAX);
        let reopen = Arc::new(AtomicBool::new(false));
        let (path, flag) = (path.to_owned(), Arc::clone(&reopen));
        let thread = std::thread::Builder::new().name("access-log".to_owned()).spawn(move || {
            while write(&received, &mut file, &flag) {
                // Open the path again, because logrotate has renamed the old file.
                reopen_file(&path, &mut file);
            }
        })?;
        Ok((Self { lines, reopen }, thread))
    }

    /// Adds a line to the log. `line` must not contain a line break. Returns false if the line is
    /// discarded.
    pub(crate) fn line(&self, line: String) -> bool {
        self.lines.try_send(line).is_ok()
    }

    /// Opens the file again before the next line.
    pub(crate) fn reopen(&self) {
        self.reopen.store(true, Ordering::Relaxed);
    }
}

type Output = BufWriter<Box<dyn Write + Send>>;

fn open(path: &Path) -> io::Result<Output> {
    if path == Path::new("-") {
        return Ok(BufWriter::new(Box::new(io::stdout())));
    }
    Ok(BufWriter::new(Box::new(File::options().create(true).append(true).open(path)?)))
}

fn reopen_file(path: &Path, file: &mut Output) {
    match open(path) {
        Ok(opened) => *file = opened,
        Err(error) => {
            let path = path.display();
            tracing::warn!(event = "reopen_failed", "{path}: {error}; the access log continues in the old file");
        }
    }
}

/// Writes lines to the log file. Returns true if the file must be reopened, or false after the last
/// line.
fn write(lines: &Receiver<String>, file: &mut Output, reopen: &AtomicBool) -> bool {
    let mut failed = false;
    loop {
        let written = match lines.recv_timeout(FLUSH) {
            Ok(line) => writeln!(file, "{line}"),
            Err(RecvTimeoutError::Timeout) => file.flush(),
            Err(RecvTimeoutError::Disconnected) => {
                report(file.flush(), &mut failed);
                return false;
            }
        };
        report(written, &mut failed);
        if reopen.swap(false, Ordering::Relaxed) {
            report(file.flush(), &mut failed);
            return true;
        }
    }
}

/// Reports the first write error.
fn report(result: io::Result<()>, failed: &mut bool) {
    if let Err(error) = result
        && !std::mem::replace(failed, true)
    {
        tracing::warn!(event = "records_lost", "the access log cannot be written: {error}");
    }
}
