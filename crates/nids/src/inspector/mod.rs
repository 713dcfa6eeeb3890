//! The inspector turns frames into verdicts and log records. Each worker owns one inspector.
//!
//! | file | contents |
//! |---|---|
//! | `core.rs` | inspection of one packet: flow, stream, protocol, rules |
//! | `feed.rs` | passes stream data to protocol parsers |
//! | `raw.rs` | passes stream data to rules |
//! | `end.rs` | end of flows |
//! | `stats.rs` | counters |

mod core;
mod end;
mod feed;
mod raw;
mod stats;

use self::core::Core;
use crate::detect::{Detector, Engine};
use crate::packet::{Decoder, LinkType, Micros};
use crate::settings::Settings;
use crate::stats::Stats;
use std::sync::Arc;

/// Verdict for a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameVerdict {
    /// Forward the frame.
    Accept,
    /// Drop the frame.
    Drop(DropReason),
}

/// Reason why a packet is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// A rule with the action `drop` or `reject` matched.
    Rule,
    /// An earlier packet of the flow was dropped by a rule.
    Flow,
    /// The packet does not fit the state of its TCP connection.
    Stream,
    /// The memory for streams is used up.
    Memory,
}

/// Result of the inspection of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameResult {
    /// Verdict for the frame, which has no effect in passive mode.
    pub verdict: FrameVerdict,
    /// `sid` of the first alert, if there is one.
    pub alert: Option<u32>,
}

/// Inspector of one worker.
pub struct Inspector {
    decoder: Decoder,
    core: Core,
}

impl Inspector {
    /// Returns an inspector for compiled rules.
    pub fn new(engine: Arc<Engine>, settings: Settings) -> Self {
        let mut decoder = Decoder::default();
        decoder.check = settings.checksums;
        Self { decoder, core: Core::new(Detector::new(engine), settings) }
    }

    /// Sets the number of the next flow. Inspectors that share a log must use different flow
    /// numbers.
    pub fn number_flows_from(&mut self, number: u64) {
        self.core.flows.number_from(number);
    }

    /// Replaces the rules, but keeps flows, streams, thresholds and named bits. The new rules
    /// inspect open transactions from their start.
    pub fn replace_rules(&mut self, engine: Arc<Engine>) {
        self.core.detector.replace(engine);
    }

    /// Ends a few flows that have timed out, as [`Inspector::frame`] also does.
    pub fn expire(&mut self, now: Micros) {
        self.core.expire(now);
    }

    /// Inspects a frame.
    pub fn frame(&mut self, link: LinkType, data: &[u8], number: u64, time: Micros) -> FrameResult {
        let mut verdict = FrameVerdict::Accept;
        let core = &mut self.core;
        core.counters.frames += 1;
        core.counters.bytes += data.len() as u64;
        core.expire(time);
        core.alert = None;
        self.decoder.decode(link, data, number, time, &mut |packet| {
            let drop = core.packet(packet);
            if verdict == FrameVerdict::Accept {
                verdict = drop;
            }
        });
        let blocked = verdict != FrameVerdict::Accept && self.core.settings.stream.inline;
        self.core.counters.blocked += u64::from(blocked);
        FrameResult { verdict, alert: self.core.alert }
    }

    /// Ends all flows, as at the end of a capture.
    pub fn finish(&mut self) {
        self.core.finish_all();
    }

    /// Returns all counters.
    pub fn stats(&self) -> Stats {
        stats::collect(&self.core, self.decoder.fragments().counters())
    }

    /// Returns the log record buffer, with one JSON object per line. The caller clears the buffer.
    pub fn records(&mut self) -> &mut Vec<u8> {
        &mut self.core.records
    }

    /// Returns the detector.
    pub fn detector(&self) -> &Detector {
        &self.core.detector
    }
}
