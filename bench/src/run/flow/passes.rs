//! Statistics of passes, for each stream of chunks.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use crate::run::rounds::median_p99;

/// Statistics of a stream over all passes.
#[derive(Default)]
pub(crate) struct Passes {
    /// Packets per nanosecond of each pass.
    pub(crate) rates: Vec<f64>,
    /// Nanoseconds from submission to completion of each chunk, in completion order.
    pub(crate) latencies_ns: Vec<f64>,
    /// Packets while the pipeline was full.
    pub(crate) packets: u64,
    /// Time while the pipeline was full.
    pub(crate) elapsed_ns: f64,
    /// Bytes copied to the device and back in all passes. The first stream counts the bytes of all
    /// streams.
    pub(crate) moved_bytes: [u64; 2],
    all_packets: u64,
    /// Completion time and size of each chunk of the last pass.
    pub(crate) completions: Vec<(Instant, u32)>,
    /// Time when the pipeline of the last pass became full.
    pub(crate) full_since: Option<Instant>,
    /// Time when the last chunk of the last pass was submitted.
    pub(crate) fed_until: Option<Instant>,
}

impl Passes {
    /// Restricts a single pass to `time`, in which its rate was `packets_per_ns`. Removes chunks
    /// that completed outside this time.
    pub(crate) fn restrict(&mut self, time: &RangeInclusive<Instant>, packets_per_ns: f64) {
        self.rates = vec![packets_per_ns];
        let mut completions = self.completions.iter();
        self.latencies_ns.retain(|_| completions.next().is_some_and(|(at, _)| time.contains(at)));
    }

    /// Adds the statistics of later passes.
    pub(crate) fn append(&mut self, later: Self) {
        self.rates.extend(later.rates);
        self.latencies_ns.extend(later.latencies_ns);
        self.packets += later.packets;
        self.elapsed_ns += later.elapsed_ns;
        self.moved_bytes.iter_mut().zip(later.moved_bytes).for_each(|(sum, bytes)| *sum += bytes);
        self.all_packets += later.all_packets;
        (self.completions, self.full_since, self.fed_until) = (later.completions, later.full_since, later.fed_until);
    }

    /// Returns the median rate in millions of packets per second.
    pub(crate) fn mpps(&mut self) -> f64 {
        median_p99(&mut self.rates).0 * 1e3
    }

    /// Returns the bytes per packet that were copied to the device and back, or `None` if the
    /// device does not count them.
    pub(crate) fn moved_per_packet(&self) -> Option<[f64; 2]> {
        let any = self.moved_bytes.iter().any(|&bytes| bytes > 0);
        any.then(|| self.moved_bytes.map(|bytes| bytes as f64 / self.all_packets.max(1) as f64))
    }
}

/// A stream during one pass.
pub(crate) struct Stream {
    /// Numbers of the chunks that are not submitted yet.
    pub(crate) waiting: VecDeque<usize>,
    pub(crate) in_flight: usize,
    /// Largest number of chunks that were in flight.
    depth: usize,
    packets: u64,
    /// Time when the pipeline became full, and packets completed before. The pipeline counts as
    /// full once as many chunks have completed as it holds. The first chunks may complete together,
    /// so they do not show the rate.
    full: Option<(Instant, u64)>,
    /// Duration of the full pipeline, and packets that completed in it.
    timed: Option<(Duration, u64)>,
    /// Time of the last completion.
    answered: Instant,
    completions: Vec<(Instant, u32)>,
    fed_until: Option<Instant>,
}

impl Stream {
    /// Starts a pass over these chunks.
    pub(crate) fn new(waiting: VecDeque<usize>, started: Instant) -> Self {
        let completions = Vec::with_capacity(waiting.len());
        let (full, timed, fed_until) = (None, None, None);
        Self { waiting, in_flight: 0, depth: 0, packets: 0, full, timed, answered: started, completions, fed_until }
    }

    /// Records the submission of a chunk.
    pub(crate) fn submitted(&mut self, at: Instant) {
        self.in_flight += 1;
        self.depth = self.depth.max(self.in_flight);
        if self.waiting.is_empty() && self.timed.is_none() {
            self.timed = self.full.map(|(since, before)| (self.answered.duration_since(since), self.packets - before));
        }
        self.fed_until = Some(at);
    }

    /// Records the completion of a chunk.
    pub(crate) fn answered(&mut self, at: Instant, packets: u32) {
        self.in_flight -= 1;
        self.answered = at;
        self.packets += u64::from(packets);
        self.completions.push((at, packets));
        if self.full.is_none() && self.completions.len() >= self.depth {
            self.full = Some((at, self.packets));
        }
    }

    /// Ends the pass that began at `started`.
    pub(crate) fn add_to(self, passes: &mut Passes, started: Instant) {
        // If there are too few chunks to keep the pipeline full, the whole pass counts.
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

    /// Returns the rate of chunks of 64 packets with four in flight, in packets per microsecond.
    fn rate(completed_us: &[u64]) -> f64 {
        let start = Instant::now();
        let mut stream = Stream::new((0..completed_us.len()).collect(), start);
        let submit = |stream: &mut Stream, at| {
            if stream.waiting.pop_front().is_some() {
                stream.submitted(at);
            }
        };
        (0..4).for_each(|_| submit(&mut stream, start));
        for us in completed_us {
            let at = start + Duration::from_micros(*us);
            stream.answered(at, 64);
            submit(&mut stream, at);
        }
        let mut passes = Passes::default();
        stream.add_to(&mut passes, start);
        passes.rates[0] * 1e3
    }

    #[test]
    fn bunched_completions_do_not_raise_the_rate() {
        let evenly: Vec<u64> = (1..=16).map(|chunk| chunk * 10).collect();
        assert!((rate(&evenly) - 6.4).abs() < 1e-9);
        let bunches: Vec<u64> = (1..=16).map(|chunk: u64| chunk.div_ceil(4) * 40 + chunk % 4).collect();
        assert!((rate(&bunches) / 6.4 - 1.0).abs() < 0.05, "{}", rate(&bunches));
        // Too few chunks for a full pipeline: the whole pass counts.
        assert!((rate(&evenly[..8]) - 6.4).abs() < 1e-9);
        assert!((rate(&[40, 41, 42, 43]) - 4.0 * 64.0 / 43.0).abs() < 1e-9);
    }
}
