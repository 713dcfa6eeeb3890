//! Capture file of the port `pcap`. It merges the packets of all workers in arrival order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use godwit_packet::Outgoing;

use super::output::Output;
use super::{Format, writer};
use crate::{Departure, Error, PortCounters, Transmit};

/// Maximum total length in bytes of the frames that wait. Above this limit, workers that are ahead
/// of the slowest worker wait.
const HELD_BYTES_MAX: usize = 256 << 20;

/// A capture file to which several workers and several ports write packets.
///
/// Packets are written in the order of sequence number and receive port. A packet is written after
/// all workers have reported that they sent or dropped all earlier packets
/// ([`settled`](Transmit::settled)). The content of the file therefore does not depend on the
/// number or the speed of the workers.
///
/// Memory is limited. A worker waits in `transmit` if it is 256 MiB of frames ahead of the slowest
/// worker. Each worker must therefore run on a separate thread.
///
/// The file appears under its name only when [`Sink::finish`] returns without an error. Until then,
/// it is a temporary file in the same folder.
///
/// A write may fail, for example because the disk is full. All transmit queues then return an
/// error. A [tolerant](Sink::tolerant) sink instead completes the file with the packets that were
/// written, and counts the remaining packets.
///
/// All transmit queues must be created before the first packet is sent. A worker without a transmit
/// queue delays all packets until `finish`.
#[derive(Debug)]
pub struct Sink {
    shared: Arc<Shared>,
    interfaces: usize,
    workers: usize,
}

/// Statistics of a capture file that was written completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkReport {
    /// Number of packets in the file.
    pub packets: u64,
    /// Total length of the frames, in bytes.
    pub frame_bytes: u64,
    /// Size of the file, in bytes.
    pub file_bytes: u64,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    format: Format,
    held_bytes_max: usize,
    merge: Mutex<Merge>,
    progress: Condvar,
    /// Whether a failed write ends only the capture file, and not the program.
    is_tolerant: bool,
    /// Message for the operator about a failed write. It has a separate lock, because `merge` may
    /// stay locked during a slow write.
    notice: Mutex<Option<String>>,
}

#[derive(Debug)]
struct Merge {
    /// Output file, or `None` after its end or a failed write.
    output: Option<Output>,
    /// Kind and text of the first error, which all later calls return.
    failure: Option<(std::io::ErrorKind, String)>,
    held: BinaryHeap<Reverse<Held>>,
    held_bytes: usize,
    /// For each transmit queue of each worker, the sequence number below which all packets were
    /// sent or dropped.
    settled: Vec<Vec<u64>>,
    /// Buffers of written frames, which are kept for later frames.
    spare: Vec<Vec<u8>>,
    packets: u64,
    frame_bytes: u64,
    /// Numbers of packets and bytes that are not yet written to the file.
    buffered: (u64, u64),
    /// Number of accepted packets that could not be written. A transmit queue later counts them as
    /// refused.
    lost: u64,
}

/// A frame that waits until all earlier frames are written. The derived ordering is the order of
/// frames in the file.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    sequence: u64,
    port: u8,
    /// Index of the packet in its transmit queue. It orders copies of one packet, which have the
    /// same sequence number and port.
    nth: u64,
    worker: usize,
    interface: u32,
    time_ns: u64,
    frame: Vec<u8>,
}

impl Sink {
    /// Creates the file for packets of `workers` workers. `interfaces` contains the interface names
    /// for a pcapng file. A pcap file contains no names.
    ///
    /// # Errors
    /// Returns an error if the folder does not exist or cannot be written.
    pub fn create(path: &Path, format: Format, interfaces: &[String], workers: usize) -> Result<Self, Error> {
        Self::create_with_limit(path, format, interfaces, workers, HELD_BYTES_MAX)
    }

    /// Makes the program continue after a failed write. The file then ends with the last complete
    /// packet. The caller must call this method before it creates a transmit queue.
    pub fn tolerant(mut self) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.is_tolerant = true;
        }
        self
    }

    /// Returns the message about a failed write, if there is one. Returns each message once.
    pub fn notice(&self) -> Option<String> {
        self.shared.notice.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn create_with_limit(
        path: &Path,
        format: Format,
        interfaces: &[String],
        workers: usize,
        held_bytes_max: usize,
    ) -> Result<Self, Error> {
        let mut output = Output::create(path)?;
        writer::emit_header(format, interfaces, output.buffer());
        let merge = Merge {
            output: Some(output),
            failure: None,
            held: BinaryHeap::new(),
            held_bytes: 0,
            settled: vec![Vec::new(); workers],
            spare: Vec::new(),
            packets: 0,
            frame_bytes: 0,
            buffered: (0, 0),
            lost: 0,
        };
        let (path, merge, progress) = (path.to_owned(), Mutex::new(merge), Condvar::new());
        let (is_tolerant, notice) = (false, Mutex::default());
        let shared = Shared { path, format, held_bytes_max, merge, progress, is_tolerant, notice };
        Ok(Self { shared: Arc::new(shared), interfaces: interfaces.len(), workers })
    }

    /// Creates the transmit queue of `worker`. `interface` is the index of the interface in the
    /// file.
    ///
    /// # Panics
    /// If the file has no such worker or interface.
    pub fn transmitter(&self, worker: usize, interface: usize) -> Box<dyn Transmit> {
        assert!(worker < self.workers && interface < self.interfaces, "worker {worker}, interface {interface}");
        let mut merge = self.shared.lock();
        let slots = &mut merge.settled[worker];
        slots.push(0);
        let slot = slots.len() - 1;
        drop(merge);
        Box::new(Transmitter {
            shared: Arc::clone(&self.shared),
            worker,
            slot,
            interface: interface as u32,
            settled: 0,
            nth: 0,
            burst: Vec::new(),
            spare: Vec::new(),
            counters: PortCounters::default(),
        })
    }

    /// Writes all waiting packets to the disk without giving the file its name. No transmit queue
    /// may send packets afterwards.
    ///
    /// With several output files, the caller calls this method for all files before
    /// [`Sink::finish`]. After a failed write, none of the files appears.
    ///
    /// # Errors
    /// Returns an error if this write or an earlier write failed.
    pub fn sync(&self) -> Result<(), Error> {
        let mut merge = self.shared.lock();
        merge.settled.clear();
        self.shared.write_settled(&mut merge)?;
        match merge.output.as_mut().map(Output::sync) {
            Some(Err(error)) => {
                let output = merge.output.take();
                self.shared.fail(&mut merge, output, error)
            }
            // After a tolerated failure, the file is already complete.
            Some(Ok(())) | None => Ok(()),
        }
    }

    /// Writes all waiting packets and gives the file its name. Transmit queues refuse packets
    /// afterwards.
    ///
    /// # Errors
    /// Returns an error if this write or an earlier write failed. In this case, the file does not
    /// appear.
    pub fn finish(self) -> Result<SinkReport, Error> {
        self.sync()?;
        let mut merge = self.shared.lock();
        let file_bytes = match merge.output.take() {
            Some(output) => output.finish()?,
            None => std::fs::metadata(&self.shared.path).map_or(0, |file| file.len()),
        };
        Ok(SinkReport { packets: merge.packets, frame_bytes: merge.frame_bytes, file_bytes })
    }
}

impl Drop for Sink {
    /// Removes the temporary file unless the sink was finished.
    fn drop(&mut self) {
        self.shared.lock().output = None;
        self.shared.progress.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Merge> {
        // The data behind a poisoned lock is valid, because no change is incomplete when a panic
        // can occur.
        self.merge.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes each waiting frame if no worker can send an earlier frame any more.
    fn write_settled(&self, merge: &mut Merge) -> Result<(), Error> {
        let Some(mut output) = merge.output.take() else {
            if self.is_tolerant && merge.failure.is_some() {
                return Ok(());
            }
            let (kind, text) = match &merge.failure {
                Some((kind, text)) => (*kind, text.clone()),
                None => (std::io::ErrorKind::BrokenPipe, "the capture is already finished".to_owned()),
            };
            return Err(Error::write(&self.path, std::io::Error::new(kind, text)));
        };
        let watermark = merge.watermark();
        let mut wrote = false;
        while let Some(Reverse(first)) = merge.held.peek() {
            if first.sequence >= watermark && watermark != u64::MAX {
                break;
            }
            let Some(Reverse(mut held)) = merge.held.pop() else { break };
            wrote = true;
            merge.held_bytes -= held.frame.len();
            merge.packets += 1;
            merge.frame_bytes += held.frame.len() as u64;
            merge.buffered = (merge.buffered.0 + 1, merge.buffered.1 + held.frame.len() as u64);
            writer::emit_packet(self.format, held.interface, held.time_ns, &held.frame, output.buffer());
            held.frame.clear();
            merge.spare.push(held.frame);
            if let Err(error) = output.flush_if_full() {
                return self.fail(merge, Some(output), error);
            }
            if output.buffer().is_empty() {
                merge.buffered = (0, 0);
            }
        }
        merge.output = Some(output);
        if wrote {
            self.progress.notify_all();
        }
        Ok(())
    }
}

impl Shared {
    /// Ends the capture file after a failed write.
    fn fail(&self, merge: &mut Merge, output: Option<Output>, error: Error) -> Result<(), Error> {
        if let Error::Write { source, .. } = &error {
            merge.failure = Some((source.kind(), source.to_string()));
        }
        let (packets, bytes) = std::mem::take(&mut merge.buffered);
        merge.packets -= packets;
        merge.frame_bytes -= bytes;
        merge.lost += packets + merge.held.len() as u64;
        merge.held.clear();
        merge.held_bytes = 0;
        self.progress.notify_all();
        if !self.is_tolerant {
            // Dropping the output removes the incomplete file.
            return Err(error);
        }
        let written = output.map_or(Ok(()), Output::finish_written);
        let fate = match written {
            Ok(()) => format!("the capture ends after {} packets", merge.packets),
            Err(error) => format!("the capture is lost ({error})"),
        };
        let notice = format!("{error}: {fate}, and the run continues without it");
        *self.notice.lock().unwrap_or_else(PoisonError::into_inner) = Some(notice);
        Ok(())
    }
}

impl Merge {
    /// Returns the sequence number up to which all workers have sent or dropped their packets.
    fn watermark(&self) -> u64 {
        // A worker without a transmit queue may create one later.
        let worker_watermark = |slots: &Vec<u64>| slots.iter().copied().min().unwrap_or(0);
        self.settled.iter().map(worker_watermark).min().unwrap_or(u64::MAX)
    }
}

struct Transmitter {
    shared: Arc<Shared>,
    worker: usize,
    slot: usize,
    interface: u32,
    settled: u64,
    nth: u64,
    /// Frames of one `transmit` call. They are copied before the lock is taken, which keeps the
    /// locked time short.
    burst: Vec<Held>,
    spare: Vec<Vec<u8>>,
    counters: PortCounters,
}

impl Transmit for Transmitter {
    fn transmit(&mut self, buffers: &mut Outgoing<'_>, packets: &[Departure]) -> Result<usize, Error> {
        let mut bytes = 0;
        for departure in packets {
            let mut frame = self.spare.pop().unwrap_or_default();
            frame.extend_from_slice(buffers.frame(&departure.descriptor));
            bytes += frame.len();
            buffers.release(&departure.descriptor);
            self.nth += 1;
            self.burst.push(Held {
                sequence: departure.stamp.sequence,
                port: departure.descriptor.port,
                nth: self.nth,
                worker: self.worker,
                interface: self.interface,
                time_ns: departure.stamp.time_ns,
                frame,
            });
        }
        let mut merge = self.shared.lock();
        // The slowest worker never waits here, so at least one worker always makes progress.
        while merge.output.is_some()
            && merge.held_bytes > self.shared.held_bytes_max
            && self.settled > merge.watermark()
        {
            merge = self.shared.progress.wait(merge).unwrap_or_else(PoisonError::into_inner);
        }
        if merge.output.is_none() {
            self.burst.clear();
            self.counters.refused += packets.len() as u64;
            self.counters.unsent += std::mem::take(&mut merge.lost);
            return self.shared.write_settled(&mut merge).map(|()| 0);
        }
        merge.held_bytes += bytes;
        merge.held.extend(self.burst.drain(..).map(Reverse));
        let take = packets.len().min(merge.spare.len());
        let kept = merge.spare.len() - take;
        self.spare.extend(merge.spare.drain(kept..));
        self.counters.sent_packets += packets.len() as u64;
        self.counters.sent_bytes += bytes as u64;
        Ok(packets.len())
    }

    fn settled(&mut self, sequence: u64) -> Result<(), Error> {
        if sequence <= self.settled {
            return Ok(());
        }
        self.settled = sequence;
        let mut merge = self.shared.lock();
        let Some(slots) = merge.settled.get_mut(self.worker) else { return Ok(()) };
        slots[self.slot] = sequence;
        // The slowest worker may be one of the waiting workers now.
        self.shared.progress.notify_all();
        self.shared.write_settled(&mut merge)?;
        self.counters.unsent += std::mem::take(&mut merge.lost);
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

impl Drop for Transmitter {
    /// Other workers' packets no longer wait for this transmit queue.
    fn drop(&mut self) {
        let mut merge = self.shared.lock();
        if let Some(slots) = merge.settled.get_mut(self.worker) {
            slots[self.slot] = u64::MAX;
        }
        self.shared.progress.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::time::Duration;

    use godwit_packet::{Arena, ArenaConfig, Region, Stamp};

    use super::*;

    const FRAME_BYTES: usize = 100;

    fn send(queue: &mut dyn Transmit, region: &mut Region, sequence: u64) {
        let mut descriptor = region.allocate(FRAME_BYTES).unwrap();
        descriptor.port = 0;
        let departure = Departure { descriptor, stamp: Stamp { sequence, time_ns: sequence } };
        assert_eq!(queue.transmit(&mut region.into(), &[departure]).unwrap(), 1);
        queue.settled(sequence + 1).unwrap();
    }

    /// Checks that a worker that is far ahead waits for the slowest worker, which limits memory
    /// use.
    #[test]
    fn worker_far_ahead_waits_for_the_slowest() {
        let path = std::env::temp_dir().join(format!("godwit-io-ahead-{}.pcap", std::process::id()));
        let limit = 20 * FRAME_BYTES;
        let sink = Sink::create_with_limit(&path, Format::Pcap, &["x".to_owned()], 2, limit).unwrap();
        let mut regions = Arena::new(ArenaConfig { packets: 16, ..ArenaConfig::default() }, 2).unwrap().split();
        let (mut fast_region, mut slow_region) = (regions.remove(0), regions.remove(0));
        let (mut fast, mut slow) = (sink.transmitter(0, 0), sink.transmitter(1, 0));
        let start = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                (0..1000).for_each(|at| send(fast.as_mut(), &mut fast_region, 2 * at));
                fast.settled(u64::MAX).unwrap();
            });
            start.wait();
            for at in 0..1000 {
                if at % 100 == 0 {
                    std::thread::sleep(Duration::from_millis(5));
                }
                send(slow.as_mut(), &mut slow_region, 2 * at + 1);
                let held_bytes = sink.shared.lock().held_bytes;
                // Each worker may exceed the limit by the frames of one call.
                assert!(held_bytes <= limit + 2 * FRAME_BYTES, "{held_bytes} bytes held");
            }
            slow.settled(u64::MAX).unwrap();
        });
        let report = sink.finish();
        let bytes = std::fs::read(&path);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(report.unwrap().packets, 2000);
        // The time of each packet, in nanoseconds, equals its sequence number.
        let records =
            bytes.unwrap()[24..].chunks(16 + FRAME_BYTES).map(|record| record[4..8].to_vec()).collect::<Vec<_>>();
        assert!(
            records.iter().map(|time| u64::from(u32::from_le_bytes([time[0], time[1], time[2], time[3]]))).eq(0..2000)
        );
    }
}
