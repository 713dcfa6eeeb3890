//! Progress on standard error: one line that is overwritten on a terminal, a line per message elsewhere.

use std::io::{IsTerminal, Write};

use godwit_engine::Report;

use crate::table::grouped;

/// Says how long work goes.
pub(crate) struct Progress {
    terminal: bool,
    /// Whether a line stands on the terminal that must be overwritten.
    pending: bool,
    /// What the last report said: seconds and packets received.
    last: (f64, u64),
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), pending: false, last: (0.0, 0) }
    }

    /// Says one line.
    pub(crate) fn say(&mut self, line: &str) {
        let mut stderr = std::io::stderr().lock();
        // Progress that cannot be shown is no reason to stop.
        let _ = if self.terminal { write!(stderr, "\r\x1b[K{line}") } else { writeln!(stderr, "{line}") };
        let _ = stderr.flush();
        self.pending = self.terminal;
    }

    /// Says how a run goes.
    pub(crate) fn report(&mut self, report: &Report) {
        let conservation = &report.conservation;
        let (last_s, last_packets) = std::mem::replace(&mut self.last, (report.elapsed_s, conservation.received));
        let seconds = (report.elapsed_s - last_s).max(1e-9);
        let mpps = conservation.received.saturating_sub(last_packets) as f64 / seconds / 1e6;
        let line = format!(
            "{:5.1} s  received {} ({mpps:.2} Mpps)  sent {}  dropped {}",
            report.elapsed_s,
            grouped(conservation.received),
            grouped(conservation.sent),
            grouped(conservation.dropped),
        );
        self.say(&line);
    }

    /// Makes room for what follows.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.pending) {
            let mut stderr = std::io::stderr().lock();
            let _ = write!(stderr, "\r\x1b[K");
            let _ = stderr.flush();
        }
    }
}
