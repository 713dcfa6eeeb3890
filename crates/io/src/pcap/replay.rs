//! Receive queue that reads packets from capture files, and merges them by their capture times.

use std::path::PathBuf;
use std::sync::Arc;

use godwit_packet::{Batch, Region, Stamp, Steering};

use super::reader::{Content, Reader, Record};
use crate::{Error, PortCounters, Receive, Received};

/// A capture file, and the port that receives its packets.
#[derive(Clone, Debug)]
pub struct ReplayInput {
    /// Path of the capture file. It must be a regular file, because every worker reads it
    /// separately.
    pub path: PathBuf,
    /// Index of the port on which the packets arrive.
    pub port: u8,
}

/// Receive queue of one worker that reads packets from capture files.
///
/// The records of all files form one sequence, which is ordered by time. Records with equal times
/// are in the order of the files, and records of one file keep their order. The sequence number of
/// a packet is the index of its record in this sequence, counted from 0. Every worker reads the
/// whole sequence and keeps the packets that [`Steering`] assigns to it.
///
/// If a file is truncated or malformed, its input ends at the first bad record. The queue first
/// delivers all complete packets of all files. Then one call of `receive` returns the error, and
/// the queue has ended.
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

/// Reason why a record is skipped.
enum SkipReason {
    Truncated,
    Empty,
    Oversized,
    LinkType,
}

impl Replay {
    /// Opens the capture files for one worker. `packets` is the maximum number of records to read.
    /// The value 0 means no limit.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, is not a capture file, or has a link type other
    /// than Ethernet.
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
            // The reader reports a wrong link type at the first packet. The error concerns the
            // whole file, so `open` returns it.
            Some(failure @ Error::LinkType { .. }) => Err(failure),
            failure => {
                replay.failure = failure;
                Ok(replay)
            }
        }
    }

    /// Reads the next record of a file.
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

    fn earliest(&self) -> Option<usize> {
        if self.sequence == self.sequence_end {
            return None;
        }
        let time_ns = |index: usize| self.files[index].next.as_ref().map(|record| record.time_ns);
        (0..self.files.len()).filter_map(|index| Some((time_ns(index)?, index))).min().map(|(_, index)| index)
    }

    /// Processes the next record of file `index`. If the record belongs to this worker, copies its
    /// frame into a packet buffer. Returns `false` if no buffer is free. The next call then
    /// processes the record.
    fn take(&mut self, index: usize, region: &mut Region, batch: &mut Batch) -> bool {
        let file = &self.files[index];
        let record = file.next.as_ref().expect("`earliest` returns a file that has a record");
        let frame = match check(record, &file.reader, region.frame_bytes_max()) {
            Ok(frame) => frame,
            Err(reason) => {
                // Every worker reads this record, but only the first worker counts it.
                if self.worker == 0 {
                    *self.counter(reason) += 1;
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

    fn counter(&mut self, reason: SkipReason) -> &mut u64 {
        match reason {
            SkipReason::Truncated => &mut self.counters.truncated,
            SkipReason::Empty => &mut self.counters.empty,
            SkipReason::Oversized => &mut self.counters.oversized,
            SkipReason::LinkType => &mut self.counters.skipped_link_type,
        }
    }
}

fn check<'a>(record: &Record, reader: &'a Reader, frame_bytes_max: usize) -> Result<&'a [u8], SkipReason> {
    let frame = match &record.content {
        Content::OtherLinkType => return Err(SkipReason::LinkType),
        Content::TooLong => return Err(SkipReason::Oversized),
        Content::Frame(range) => reader.frame(range),
    };
    if frame.len() < record.original_bytes {
        return Err(SkipReason::Truncated);
    }
    if frame.is_empty() {
        return Err(SkipReason::Empty);
    }
    if frame.len() > frame_bytes_max {
        return Err(SkipReason::Oversized);
    }
    Ok(frame)
}

impl Receive for Replay {
    fn receive(&mut self, region: &mut Region, batch: &mut Batch, packets_max: usize) -> Result<Received, Error> {
        let full = batch.len() + packets_max;
        // The number of records is limited, because most packets may belong to other workers.
        for _ in 0..packets_max.saturating_mul(16) {
            if batch.len() == full {
                break;
            }
            let Some(index) = self.earliest() else {
                // A call never returns both packets and an error. The next call returns the error.
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
