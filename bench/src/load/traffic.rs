//! A port that replays prepared frames in a loop and discards outgoing packets. It costs as little
//! as a port can.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use godwit_io::live::{ArenaNeeds, Live, LiveContext, LivePort, SharedCounters};
use godwit_io::{Clock, Departure, Error, PortCounters, QueueContext, Receive, Received, Transmit};
use godwit_packet::{Batch, Outgoing, Region, Stamp, Steering};

/// Bytes per line. Frames are stored and copied in whole lines, which avoids calls to `memcpy`.
const LINE_BYTES: usize = 64;
/// Frames of more lines than this are copied by `memcpy`.
const LINES_MAX: usize = 4;
/// Packets that are allocated together.
const BLOCK_PACKETS: usize = 32;
/// Prefetch distance, in packets. A NIC would have written the frames to the cache.
const FETCHED_AHEAD_PACKETS: usize = 64;

/// Frames in contiguous memory, so that the hardware prefetcher finds the next ones.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    lines: Vec<[u8; LINE_BYTES]>,
    frames: Vec<Frame>,
    bytes_max: usize,
    bytes_mean: f64,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    /// Index of the first line.
    first: u32,
    flow_hash: u32,
    length: u16,
}

impl Frames {
    /// Stores frames, each with the flow hash that a NIC would compute.
    pub(crate) fn new(frames: impl Iterator<Item = Vec<u8>>) -> Self {
        let steering = Steering::new(1, None);
        let mut all = Self::default();
        let mut bytes = 0;
        for frame in frames {
            let flow_hash = steering.flow_hash(&godwit_wire::parse(&frame));
            all.frames.push(Frame { first: all.lines.len() as u32, flow_hash, length: frame.len() as u16 });
            bytes += frame.len();
            all.bytes_max = all.bytes_max.max(frame.len());
            for part in frame.chunks(LINE_BYTES) {
                let mut line = [0; LINE_BYTES];
                line[..part.len()].copy_from_slice(part);
                all.lines.push(line);
            }
        }
        all.bytes_mean = bytes as f64 / all.frames.len() as f64;
        all
    }

    /// Returns the number of frames.
    pub(crate) fn count(&self) -> usize {
        self.frames.len()
    }

    /// Returns the mean length.
    pub(crate) fn bytes_mean(&self) -> f64 {
        self.bytes_mean
    }

    /// Returns the length of the longest frame.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Prefetches frame `at`, if it exists. The hardware prefetcher stops at page boundaries.
    #[inline(always)]
    fn fetch(&self, at: usize) {
        #[cfg(target_arch = "x86_64")]
        if let Some(frame) = self.frames.get(at) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let line = self.lines.as_ptr().wrapping_add(frame.first as usize);
            // SAFETY: a prefetch has no effect that the program can observe, whatever the address.
            #[allow(unsafe_code)]
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(line.cast());
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }

    /// Writes a frame to the start of `out`. The bytes after it may be overwritten.
    #[inline(always)]
    fn write(&self, frame: Frame, out: &mut [u8]) {
        let length = usize::from(frame.length);
        let lines = &self.lines[frame.first as usize..][..length.div_ceil(LINE_BYTES)];
        if lines.len() <= LINES_MAX && out.len() >= lines.len() * LINE_BYTES {
            let (out, _) = out.as_chunks_mut::<LINE_BYTES>();
            out.iter_mut().zip(lines).for_each(|(out, line)| *out = *line);
        } else {
            out[..length].copy_from_slice(&lines.as_flattened()[..length]);
        }
    }
}

/// Port that replays frames. Worker `i` of `n` receives every `n`th frame, starting with frame `i`.
#[derive(Clone, Debug)]
pub(crate) struct Traffic {
    pub(crate) frames: Arc<Frames>,
    /// Packets per second over all workers, or `None` for as fast as possible.
    pub(crate) rate: Option<f64>,
    /// Number of packets, or `None` for no limit.
    pub(crate) packets: Option<u64>,
    /// Sum of the hashes of all sent frames, valid if `packets` is set.
    pub(crate) digest: Arc<AtomicU64>,
    /// Delays of packets from their due time to their departure, valid if `rate` is set.
    pub(crate) latencies: Arc<Latencies>,
}

/// Histogram of times with sixteen classes per octave.
#[derive(Debug, Default)]
pub(crate) struct Latencies(Mutex<Vec<u64>>);

const CLASSES: usize = 16 * 64;

fn class(time_ns: u64) -> usize {
    match time_ns.checked_ilog2() {
        Some(octave @ 4..) => (octave as usize - 3) * 16 + (time_ns >> (octave - 4) & 15) as usize,
        _ => time_ns as usize,
    }
}

/// Returns the shortest time of a class.
fn shortest_ns(class: usize) -> u64 {
    match class / 16 {
        0 => class as u64,
        octave => (16 + class as u64 % 16) << (octave - 1),
    }
}

impl Latencies {
    /// Returns the quantile `share` of all times, or `None` without any times.
    pub(crate) fn ns(&self, share: f64) -> Option<f64> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all: u64 = counts.iter().sum();
        let mut below = (all as f64 * share).ceil() as u64;
        for (class, &count) in counts.iter().enumerate() {
            if count >= below && all > 0 {
                return Some(shortest_ns(class) as f64);
            }
            below -= count.min(below);
        }
        None
    }

    fn merge(&self, others: &[u64]) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.resize(CLASSES, 0);
        counts.iter_mut().zip(others).for_each(|(count, other)| *count += other);
    }
}

/// Maximum number of waiting packets per worker, as in a NIC ring. If more packets wait, the port
/// counts the oldest as missed. Applies to ports with a rate.
const QUEUE_PACKETS: u64 = 4096;

impl Traffic {
    /// Returns a port without rate or limit.
    pub(crate) fn new(frames: &Arc<Frames>) -> Self {
        Self {
            frames: Arc::clone(frames),
            rate: None,
            packets: None,
            digest: Arc::default(),
            latencies: Arc::default(),
        }
    }
}

impl Live for Traffic {
    fn needs(&self) -> ArenaNeeds {
        ArenaNeeds::default()
    }

    fn open(&self, context: &LiveContext<'_>) -> Result<Arc<dyn LivePort>, Error> {
        let (traffic, workers) = (self.clone(), context.workers);
        let counters = (0..2 * workers).map(|_| Arc::default()).collect();
        Ok(Arc::new(Open { traffic, workers, stop: Arc::default(), counters }))
    }
}

struct Open {
    traffic: Traffic,
    workers: usize,
    stop: Arc<AtomicBool>,
    /// Counters of each worker's receive queue, then of each worker's transmit queue.
    counters: Vec<Arc<SharedCounters>>,
}

impl LivePort for Open {
    fn receiver(&self, context: QueueContext, _region: &mut Region) -> Result<Box<dyn Receive>, Error> {
        let Traffic { frames, rate, packets, .. } = self.traffic.clone();
        let (worker, workers) = (context.worker, self.workers);
        Ok(Box::new(Queue {
            frames,
            at: worker,
            workers,
            port: context.port,
            rate: rate.map(|rate| rate / workers as f64),
            // This worker's part of the packets 0 to `packets`.
            left: packets.map(|packets| (packets + workers as u64 - 1 - worker as u64) / workers as u64),
            start_ns: None,
            passed: 0,
            sequence: worker as u64,
            stop: Arc::clone(&self.stop),
            shared: Arc::clone(&self.counters[worker]),
            counters: PortCounters::default(),
        }))
    }

    fn transmitter(&self, worker: usize) -> Result<Box<dyn Transmit>, Error> {
        let digest = self.traffic.packets.map(|_| Arc::clone(&self.traffic.digest));
        let shared = Arc::clone(&self.counters[self.workers + worker]);
        let timed = self.traffic.rate.map(|_| (Arc::clone(&self.traffic.latencies), vec![0; CLASSES]));
        Ok(Box::new(Sink { digest, timed, shared, counters: PortCounters::default() }))
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn counters(&self) -> PortCounters {
        let mut sum = PortCounters::default();
        self.counters.iter().for_each(|counters| sum += counters.read());
        sum
    }
}

struct Queue {
    frames: Arc<Frames>,
    /// Index of the next frame.
    at: usize,
    workers: usize,
    port: u8,
    /// Packets per second of this worker.
    rate: Option<f64>,
    left: Option<u64>,
    start_ns: Option<u64>,
    /// Packets received or missed.
    passed: u64,
    sequence: u64,
    stop: Arc<AtomicBool>,
    shared: Arc<SharedCounters>,
    counters: PortCounters,
}

impl Queue {
    /// Returns the index of this worker's frame after frame `at`.
    #[inline(always)]
    fn after(&self, at: usize) -> usize {
        let next = at + self.workers;
        if next < self.frames.frames.len() { next } else { next % self.workers }
    }

    /// Returns the number of waiting packets. If the ring is full, counts the oldest packets as
    /// missed.
    fn due(&mut self, now_ns: u64) -> u64 {
        let start_ns = *self.start_ns.get_or_insert(now_ns);
        let Some(rate) = self.rate else { return u64::MAX };
        let due = ((now_ns - start_ns) as f64 * (rate / 1e9)) as u64;
        let waiting = due.saturating_sub(self.passed);
        let missed = waiting.saturating_sub(QUEUE_PACKETS);
        self.counters.missed += missed;
        self.passed += missed;
        waiting - missed
    }

    /// Returns the due time of a packet. Both received and missed packets count.
    #[inline(always)]
    fn time_ns(&self, packet: u64, now_ns: u64) -> u64 {
        match (self.rate, self.start_ns) {
            (Some(rate), Some(start_ns)) => start_ns + (packet as f64 * (1e9 / rate)) as u64,
            _ => now_ns,
        }
    }
}

impl Receive for Queue {
    fn receive(&mut self, region: &mut Region, batch: &mut Batch, packets_max: usize) -> Result<Received, Error> {
        if self.stop.load(Ordering::Relaxed) || self.left == Some(0) {
            return Ok(Received::Ended);
        }
        let now_ns = Clock::Machine.now_ns();
        let limit = self.due(now_ns).min(self.left.unwrap_or(u64::MAX)).min(packets_max as u64);
        let (frames, port) = (Arc::clone(&self.frames), self.port);
        let mut left = limit as usize;
        while left > 0 {
            let count = left.min(BLOCK_PACKETS);
            let (mut block, mut lengths) = ([frames.frames[self.at]; BLOCK_PACKETS], [0; BLOCK_PACKETS]);
            let mut at = self.at;
            for (frame, length) in block.iter_mut().zip(&mut lengths).take(count) {
                *frame = frames.frames[at];
                *length = frame.length;
                frames.fetch(at + FETCHED_AHEAD_PACKETS * self.workers);
                at = self.after(at);
            }
            let mut written = block.iter();
            let made = region.allocate_each(&lengths[..count], &[], &mut batch.descriptors, |_, packet, out| {
                // `allocate_each` calls this once for each frame of the block.
                let Some(&frame) = written.next() else { return };
                frames.write(frame, out);
                (packet.port, packet.flow_hash) = (port, frame.flow_hash);
            });
            let (sequence, passed) = (self.sequence, self.passed);
            batch.stamps.extend((0..made as u64).map(|packet| Stamp {
                sequence: sequence + packet * self.workers as u64,
                time_ns: self.time_ns(passed + packet, now_ns),
            }));
            self.sequence += (made * self.workers) as u64;
            self.passed += made as u64;
            self.counters.received_packets += made as u64;
            self.counters.received_bytes += lengths[..made].iter().map(|&bytes| u64::from(bytes)).sum::<u64>();
            self.left = self.left.map(|left| left - made as u64);
            self.at = if made == count { at } else { (0..made).fold(self.at, |at, _| self.after(at)) };
            if made < count {
                break;
            }
            left -= made;
        }
        self.shared.publish(&self.counters);
        Ok(Received::Open)
    }

    fn sequence_next(&self) -> u64 {
        if self.left == Some(0) { u64::MAX } else { self.sequence }
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }

    fn is_live(&self) -> bool {
        self.left.is_none()
    }
}

struct Sink {
    digest: Option<Arc<AtomicU64>>,
    /// Times of this queue, and the histogram that finally receives them.
    timed: Option<(Arc<Latencies>, Vec<u64>)>,
    shared: Arc<SharedCounters>,
    counters: PortCounters,
}

impl Transmit for Sink {
    fn transmit(&mut self, buffers: &mut Outgoing<'_>, packets: &[Departure]) -> Result<usize, Error> {
        if let Some(digest) = &self.digest {
            let sum = packets.iter().map(|packet| hash(buffers.frame(&packet.descriptor))).fold(0, u64::wrapping_add);
            digest.fetch_add(sum, Ordering::Relaxed);
        }
        if let Some((_, counts)) = &mut self.timed {
            let now_ns = Clock::Machine.now_ns();
            packets.iter().for_each(|packet| counts[class(now_ns.saturating_sub(packet.stamp.time_ns))] += 1);
        }
        self.counters.sent_bytes += packets.iter().map(|packet| u64::from(packet.descriptor.length)).sum::<u64>();
        buffers.release_all(packets);
        self.counters.sent_packets += packets.len() as u64;
        self.shared.publish(&self.counters);
        Ok(packets.len())
    }

    fn settled(&mut self, _sequence: u64) -> Result<(), Error> {
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if let Some((all, counts)) = &self.timed {
            all.merge(counts);
        }
    }
}

/// Returns the FNV-1a hash of a frame, folded so that two equal frames do not cancel in a sum.
fn hash(frame: &[u8]) -> u64 {
    let sum = frame
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    sum ^ sum >> 29
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_exact_to_a_sixteenth() {
        for time_ns in [0, 1, 15, 16, 17, 31, 32, 1000, 123_456, u64::MAX] {
            let shortest = shortest_ns(class(time_ns));
            assert!(shortest <= time_ns && time_ns - shortest <= time_ns / 16, "{time_ns}: {shortest}");
            assert!(class(time_ns) < CLASSES);
        }
        let latencies = Latencies::default();
        assert_eq!(latencies.ns(0.5), None);
        let mut counts = vec![0; CLASSES];
        (0..100).for_each(|time_ns| counts[class(time_ns)] += 1);
        latencies.merge(&counts);
        assert_eq!((latencies.ns(0.1), latencies.ns(1.0)), (Some(9.0), Some(96.0)));
    }
}
