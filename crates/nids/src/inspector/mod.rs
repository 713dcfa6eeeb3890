//! Inspector: from frames to verdicts and records. One worker owns one inspector.
//!
//! | file | contents |
//! |---|---|
//! | `core.rs` | one packet: flow, stream, protocol, rules |
//! | `feed.rs` | data of streams to parsers |
//! | `raw.rs` | data of streams to rules |
//! | `end.rs` | the end of flows |

mod core;
mod end;
mod feed;
mod raw;

use self::core::Core;
use crate::detect::{Detector, Engine};
use crate::flow::TableCounters;
use crate::packet::{Decoder, FragmentCounters, LinkType, Micros};
use crate::settings::Settings;
use std::sync::Arc;

pub use self::core::Counters;

/// Verdict for a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameVerdict {
    /// Forward.
    Accept,
    /// Drop.
    Drop,
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

    /// Inspects a frame. Without `inline`, the verdict is for information.
    pub fn frame(&mut self, link: LinkType, data: &[u8], number: u64, time: Micros) -> FrameVerdict {
        let mut verdict = FrameVerdict::Accept;
        let core = &mut self.core;
        core.counters.frames += 1;
        core.counters.bytes += data.len() as u64;
        core.expire(time);
        self.decoder.decode(link, data, number, time, &mut |packet| {
            if core.packet(packet) == FrameVerdict::Drop {
                verdict = FrameVerdict::Drop;
            }
        });
        self.core.counters.blocked += u64::from(verdict == FrameVerdict::Drop && self.core.settings.stream.inline);
        verdict
    }

    /// Ends all flows, as at the end of a capture.
    pub fn finish(&mut self) {
        self.core.finish_all();
    }

    /// Writes a record of all counters.
    pub fn record_stats(&mut self, now: Micros) {
        let mut records = std::mem::take(&mut self.core.records);
        crate::eve::stats::stats(self, now, &mut records);
        self.core.records = records;
    }

    /// Returns the counters of the reassembly of fragments.
    pub fn fragment_counters(&self) -> FragmentCounters {
        self.decoder.fragments().counters()
    }

    /// Takes the records since the last call: JSON objects, one per line.
    pub fn take_records(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.core.records)
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        self.core.counters
    }

    /// Returns the counters of the flow table.
    pub fn flow_counters(&self) -> TableCounters {
        self.core.flows.counters()
    }

    /// Returns the detector.
    pub fn detector(&self) -> &Detector {
        &self.core.detector
    }
}
