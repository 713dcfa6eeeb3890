//! Progress on standard error: a single line that is overwritten on a terminal, and one line per
//! message elsewhere.

use std::io::IsTerminal;

use godwit_engine::Report;

use crate::log;
use crate::table::grouped;

/// Reporter of progress.
pub(crate) struct Progress {
    terminal: bool,
    /// Whether the terminal shows a line that must be overwritten.
    pending: bool,
    /// Seconds and received packets of the last report.
    last: (f64, u64),
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), pending: false, last: (0.0, 0) }
    }

    /// Shows a line.
    pub(crate) fn show(&mut self, line: &str) {
        log::write(if self.terminal { format!("\r\x1b[K{line}") } else { format!("{line}\n") });
        self.pending = self.terminal;
    }

    /// Shows a line that changes often. A log does not contain it.
    pub(crate) fn show_on_terminal(&mut self, line: &str) {
        if self.terminal {
            self.show(line);
        }
    }

    /// Shows time, packets and rate of a run on a terminal. A log would grow by a line per second,
    /// and `godwit status` shows the same.
    pub(crate) fn report(&mut self, report: &Report) {
        if !self.terminal {
            return;
        }
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
        self.show(&line);
    }

    /// Erases the line, so that other output can follow.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.pending) {
            log::write("\r\x1b[K");
        }
    }
}
