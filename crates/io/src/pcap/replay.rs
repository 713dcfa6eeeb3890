//! Captures as a source: any number of files, merged by time into one sequence.

use std::path::PathBuf;
use std::sync::Arc;

use godwit_packet::{Batch, Region, Stamp, Steering};

use super::reader::{Content, Reader, Record};
use crate::{Error, PortCounters, Receive, Received};

/// One capture to replay, and the port that its packets come in by.
#[derive(Clone, Debug)]
pub struct ReplayInput {
    /// The file: regular, since every worker reads it for itself.
    pub path: PathBuf,
    /// Number of the port.
    pub port: u8,
}

/// One worker's receive queue over captures.
///
/// The records of all files, merged by time (of equal times the file named first; a file's own order is kept),
/// make one sequence; a packet's sequence number is its place in it, counted from 0, packets passed over included.
/// Every worker reads the whole sequence and keeps the packets that [`Steering`] gives it.
///
/// A file that turns out to be cut off or malformed ends there; once all whole packets of all files were delivered, one call of
/// `receive` returns the error, and the queue has ended.
pub struct Replay {
    files: Vec<OpenFile>,
    worker: usize,
    steering: Arc<Steering>,
    sequence: u64,
    sequence_end: u64,
    failure: Option<Error>,
    counters: PortCounters,
}

struct OpenFile {
    reader: Reader,
    port: u8,
    next: Option<Record>,
}

/// Why a record is not delivered.
enum Passed {
    Truncated,
    Empty,
    Oversized,
    LinkType,
}

impl Replay {
    /// Opens the files for one worker. `packets`: stop after that many records, 0 for all.
    ///
    /// # Errors
    /// A file cannot be read, is no capture, or holds another link type than Ethernet.
    pub fn open(inputs: &[ReplayInput], packets: u64, worker: usize, steering: Arc<Steering>) -> Result<Self, Error> {
        let open = |input: &ReplayInput| Ok((Reader::open(&input.path)?, input.port));
        let readers = inputs.iter().map(open).collect::<Result<Vec<_>, Error>>()?;
        Self::new(readers, packets, worker, steering)
    }

    pub(super) fn new(
        readers: Vec<(Reader, u8)>,
        packets: u64,
        worker: usize,
        steering: Arc<Steering>,
    ) -> Result<Self, Error> {
        let sequence_end = if packets == 0 { u64::MAX } else { packets };
        let files = readers.into_iter().map(|(reader, port)| OpenFile { reader, port, next: None }).collect();
        let counters = PortCounters::default();
        let mut replay = Self { files, worker, steering, sequence: 0, sequence_end, failure: None, counters };
        for index in 0..replay.files.len() {
            replay.advance(index);
        }
        match replay.failure.take() {
            // Found out only when the first packet was read, but it is a matter of the file as a whole.
            Some(failure @ Error::LinkType { .. }) => Err(failure),
            failure => {
                replay.failure = failure;
                Ok(replay)
            }
        }
    }

    /// Reads the file's next record.
    fn advance(&mut self, index: usize) {
        let file = &mut self.files[index];
        file.next = match file.reader.next() {
            Ok(next) => next,
            Err(error) => {
                self.failure.get_or_insert(error);
                None
            }
        };
    }

    /// The file whose record is next in the sequence.
    fn earliest(&self) -> Option<usize> {
        if self.sequence == self.sequence_end {
            return None;
        }
        let time_ns = |index: usize| self.files[index].next.as_ref().map(|record| record.time_ns);
        (0..self.files.len()).filter_map(|index| Some((time_ns(index)?, index))).min().map(|(_, index)| index)
    }

    /// Places the next record of file `index` in the region when it is this worker's; false where it must wait for a free buffer.
    fn take(&mut self, index: usize, region: &mut Region, batch: &mut Batch) -> bool {
        let file = &self.files[index];
        let record = file.next.as_ref().expect("`earliest` names files that have a record");
        let frame = match check(record, &file.reader, region.frame_bytes_max()) {
            Ok(frame) => frame,
            Err(passed) => {
                // Every worker sees it, the first counts it.
                if self.worker == 0 {
                    *self.counter(passed) += 1;
                }
                return true;
            }
        };
        let parsed = godwit_wire::parse(frame);
        let flow_hash = self.steering.flow_hash(&parsed);
        if self.steering.worker(frame, &parsed, flow_hash) != self.worker {
            return true;
        }
        let Some(mut descriptor) = region.allocate(frame.len()) else { return false };
        region.frame_mut(&descriptor).copy_from_slice(frame);
        descriptor.port = file.port;
        descriptor.flow_hash = flow_hash;
        self.counters.received_packets += 1;
        self.counters.received_bytes += frame.len() as u64;
        batch.push(descriptor, Stamp { sequence: self.sequence, time_ns: record.time_ns });
        true
    }

    fn counter(&mut self, passed: Passed) -> &mut u64 {
        match passed {
            Passed::Truncated => &mut self.counters.truncated,
            Passed::Empty => &mut self.counters.empty,
            Passed::Oversized => &mut self.counters.oversized,
            Passed::LinkType => &mut self.counters.skipped_link_type,
        }
    }
}

fn check<'a>(record: &Record, reader: &'a Reader, frame_bytes_max: usize) -> Result<&'a [u8], Passed> {
    let frame = match &record.content {
        Content::OtherLinkType => return Err(Passed::LinkType),
        Content::TooLong => return Err(Passed::Oversized),
        Content::Frame(place) => reader.frame(place),
    };
    if frame.len() < record.original_bytes {
        return Err(Passed::Truncated);
    }
    if frame.is_empty() {
        return Err(Passed::Empty);
    }
    if frame.len() > frame_bytes_max {
        return Err(Passed::Oversized);
    }
    Ok(frame)
}

impl Receive for Replay {
    fn receive(&mut self, region: &mut Region, batch: &mut Batch, packets_max: usize) -> Result<Received, Error> {
        let full = batch.len() + packets_max;
        // Bounds the call where most packets are other workers'.
        for _ in 0..packets_max.saturating_mul(16) {
            if batch.len() == full {
                break;
            }
            let Some(index) = self.earliest() else {
                // Packets and an error never come from one call: the caller would have to keep both.
                if batch.len() + packets_max > full {
                    return Ok(Received::Open);
                }
                self.sequence = u64::MAX;
                self.sequence_end = u64::MAX;
                return self.failure.take().map_or(Ok(Received::Ended), Err);
            };
            if !self.take(index, region, batch) {
                break;
            }
            self.sequence += 1;
            self.advance(index);
        }
        Ok(Received::Open)
    }

    fn sequence_next(&self) -> u64 {
        self.sequence
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}
