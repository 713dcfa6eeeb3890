//! What is counted while chunks go through a device: per stream of chunks, pass after pass.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// What a stream of chunks took, over passes.
#[derive(Default)]
pub(crate) struct Passes {
    /// Packets per nanosecond, one a pass.
    pub(crate) rates: Vec<f64>,
    /// Submit to completion of each chunk, nanoseconds, in the order in which they came back.
    pub(crate) latencies_ns: Vec<f64>,
    /// Packets and time while pipelines were full.
    pub(crate) packets: u64,
    pub(crate) elapsed_ns: f64,
    /// Bytes copied to the device and back meanwhile, over all packets of all passes; where there are several streams, the first
    /// has those of all.
    pub(crate) moved_bytes: [u64; 2],
    all_packets: u64,
    /// Of the last pass: when chunks came back, and of how many packets each was.
    pub(crate) completions: Vec<(Instant, u32)>,
    /// Of the last pass: since when its pipeline was full.
    pub(crate) full_since: Option<Instant>,
    /// Of the last pass: when the last chunk was submitted.
    pub(crate) fed_until: Option<Instant>,
}

impl Passes {
    /// Of this one pass only that time counts, in which it did so many packets per nanosecond: the rate, and chunks that came back
    /// in it.
    pub(crate) fn restrict(&mut self, time: &RangeInclusive<Instant>, packets_per_ns: f64) {
        self.rates = vec![packets_per_ns];
        let mut completions = self.completions.iter();
        self.latencies_ns.retain(|_| completions.next().is_some_and(|(at, _)| time.contains(at)));
    }

    /// Adds what passes that came later took.
    pub(crate) fn append(&mut self, later: Self) {
        self.rates.extend(later.rates);
        self.latencies_ns.extend(later.latencies_ns);
        self.packets += later.packets;
        self.elapsed_ns += later.elapsed_ns;
        self.moved_bytes.iter_mut().zip(later.moved_bytes).for_each(|(sum, bytes)| *sum += bytes);
        self.all_packets += later.all_packets;
        (self.completions, self.full_since, self.fed_until) = (later.completions, later.full_since, later.fed_until);
    }

    /// Median over passes, millions of packets per second.
    pub(crate) fn mpps(&mut self) -> f64 {
        crate::median_p99(&mut self.rates).0 * 1e3
    }

    /// Bytes copied to the device and back for each packet; `None` where the device does not count them.
    pub(crate) fn moved_per_packet(&self) -> Option<[f64; 2]> {
        let any = self.moved_bytes.iter().any(|&bytes| bytes > 0);
        any.then(|| self.moved_bytes.map(|bytes| bytes as f64 / self.all_packets.max(1) as f64))
    }
}

/// One stream in one pass.
pub(crate) struct Stream {
    /// Numbers of chunks.
    pub(crate) waiting: VecDeque<usize>,
    pub(crate) in_flight: usize,
    /// Most that were in flight.
    depth: usize,
    packets: u64,
    /// Since the pipeline is full, that is, since as many chunks came back as it holds: when, and packets done before. The first of
    /// them do not say what it does: they come back in a bunch where they wait for each other.
    full: Option<(Instant, u64)>,
    /// While it was full: how long, and packets.
    timed: Option<(Duration, u64)>,
    /// When a chunk came back last.
    answered: Instant,
    completions: Vec<(Instant, u32)>,
    fed_until: Option<Instant>,
}

impl Stream {
    pub(crate) fn new(waiting: VecDeque<usize>, started: Instant) -> Self {
        let completions = Vec::with_capacity(waiting.len());
        let (full, timed, fed_until) = (None, None, None);
        Self { waiting, in_flight: 0, depth: 0, packets: 0, full, timed, answered: started, completions, fed_until }
    }

    /// A chunk went to the device.
    pub(crate) fn submitted(&mut self, at: Instant) {
        self.in_flight += 1;
        self.depth = self.depth.max(self.in_flight);
        if self.waiting.is_empty() && self.timed.is_none() {
            self.timed = self.full.map(|(since, before)| (self.answered.duration_since(since), self.packets - before));
        }
        self.fed_until = Some(at);
    }

    /// A chunk came back.
    pub(crate) fn answered(&mut self, at: Instant, packets: u32) {
        self.in_flight -= 1;
        self.answered = at;
        self.packets += u64::from(packets);
        self.completions.push((at, packets));
        if self.full.is_none() && self.completions.len() >= self.depth {
            self.full = Some((at, self.packets));
        }
    }

    /// The pass is over, which began at `started`.
    pub(crate) fn add_to(self, passes: &mut Passes, started: Instant) {
        // Where there are too few chunks to fill the pipeline and keep it full, the whole pass counts.
        let (elapsed, counted) = match self.timed {
            Some((elapsed, counted)) if counted > 0 && !elapsed.is_zero() => (elapsed, counted),
            _ => (self.answered.duration_since(started), self.packets),
        };
        let elapsed_ns = elapsed.as_nanos().max(1) as f64;
        passes.rates.push(counted as f64 / elapsed_ns);
        passes.packets += counted;
        passes.elapsed_ns += elapsed_ns;
        passes.all_packets += self.packets;
        passes.full_since = self.full.map(|(since, _)| since);
        (passes.completions, passes.fed_until) = (self.completions, self.fed_until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chunks of 64 packets, four in flight, one submitted for each that comes back.
    fn rate(came_back_us: &[u64]) -> f64 {
        let start = Instant::now();
        let mut stream = Stream::new((0..came_back_us.len()).collect(), start);
        let submit = |stream: &mut Stream, at| {
            if stream.waiting.pop_front().is_some() {
                stream.submitted(at);
            }
        };
        (0..4).for_each(|_| submit(&mut stream, start));
        for us in came_back_us {
            let at = start + Duration::from_micros(*us);
            stream.answered(at, 64);
            submit(&mut stream, at);
        }
        let mut passes = Passes::default();
        stream.add_to(&mut passes, start);
        passes.rates[0] * 1e3
    }

    #[test]
    fn chunks_that_come_in_bunches_are_not_faster_for_it() {
        let evenly: Vec<u64> = (1..=16).map(|chunk| chunk * 10).collect();
        assert!((rate(&evenly) - 6.4).abs() < 1e-9);
        let bunches: Vec<u64> = (1..=16).map(|chunk: u64| chunk.div_ceil(4) * 40 + chunk % 4).collect();
        assert!((rate(&bunches) / 6.4 - 1.0).abs() < 0.05, "{}", rate(&bunches));
        // Too few for a full pipeline: all of the pass counts.
        assert!((rate(&evenly[..8]) - 6.4).abs() < 1e-9);
        assert!((rate(&[40, 41, 42, 43]) - 4.0 * 64.0 / 43.0).abs() < 1e-9);
    }
}
