//! What this machine's memory gives its cores.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use crate::Error;
use crate::measure::{CHAINS_PER_CORE, CopyRates, Measure, table_word, table_words};

/// Memory that copies go around in: more than the caches hold.
const AROUND_BYTES: usize = 64 << 20;
/// Steps of each chain between two looks at the clock.
const STEPS: usize = 4096;

/// See [`crate::measure`].
pub(crate) struct CpuMeasure {
    table: Vec<u32>,
}

impl CpuMeasure {
    pub(crate) fn new() -> Self {
        Self { table: Vec::new() }
    }
}

impl Measure for CpuMeasure {
    /// A device that works on the host's memory: both directions are the same, and both at once take two cores.
    fn copy(&mut self, bytes: usize, time: Duration, begin: &dyn Fn()) -> Result<CopyRates, Error> {
        begin();
        let one = copy(bytes, time);
        begin();
        let other = copy(bytes, time);
        begin();
        let both = thread::scope(|scope| {
            let other = scope.spawn(|| copy(bytes, time));
            let own = copy(bytes, time);
            // A panic of the other thread is this one's.
            own + other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        Ok(CopyRates { host_to_device: one, device_to_host: other, both })
    }

    fn launch(&mut self, _count: usize) -> Result<Option<Vec<f64>>, Error> {
        Ok(None)
    }

    fn random_reads(&mut self, bytes: usize, chains: usize, time: Duration) -> Result<f64, Error> {
        let words = table_words(bytes);
        if self.table.len() != words {
            self.table = (0..words).map(table_word).collect();
        }
        let table = self.table.as_slice();
        let cores = chains.div_ceil(CHAINS_PER_CORE).max(1);
        let each = chains.div_ceil(cores).max(1);
        let rate = thread::scope(|scope| {
            let others: Vec<_> = (1..cores).map(|core| scope.spawn(move || follow(table, each, core, time))).collect();
            let own = follow(table, each, 0, time);
            let other = |thread: thread::ScopedJoinHandle<'_, f64>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            own + others.into_iter().map(other).sum::<f64>()
        });
        Ok(rate)
    }
}

/// Bytes copied per second by this thread.
fn copy(bytes: usize, time: Duration) -> f64 {
    let bytes = bytes.max(1);
    let copies = (AROUND_BYTES / bytes).max(1);
    let from = vec![1u8; copies * bytes];
    let mut to = vec![2u8; copies * bytes];
    let started = Instant::now();
    let mut done = 0;
    loop {
        for (to, from) in to.chunks_exact_mut(bytes).zip(from.chunks_exact(bytes)) {
            black_box(&mut *to).copy_from_slice(black_box(from));
            done += bytes;
            // Large copies look at the clock each time, small ones now and then.
            if done.is_multiple_of(1 << 20) && started.elapsed() >= time {
                return done as f64 / started.elapsed().as_secs_f64();
            }
        }
        if started.elapsed() >= time {
            return done as f64 / started.elapsed().as_secs_f64();
        }
    }
}

/// Reads per second of this thread.
fn follow(table: &[u32], chains: usize, seed: usize, time: Duration) -> f64 {
    let started = Instant::now();
    let mut places = [0u32; CHAINS_PER_CORE];
    places.iter_mut().enumerate().for_each(|(chain, place)| *place = table_word(seed << 8 | chain));
    let (mut reads, mut step) = (0, 0);
    // The compiler interleaves chains only where it knows how many there are.
    while started.elapsed() < time {
        reads += match chains {
            1 => steps::<1>(table, &mut places, step),
            2 => steps::<2>(table, &mut places, step),
            3..=4 => steps::<4>(table, &mut places, step),
            5..=8 => steps::<8>(table, &mut places, step),
            _ => steps::<CHAINS_PER_CORE>(table, &mut places, step),
        };
        step += STEPS as u32;
    }
    black_box(places);
    reads as f64 / started.elapsed().as_secs_f64()
}

fn steps<const CHAINS: usize>(table: &[u32], places: &mut [u32; CHAINS_PER_CORE], first: u32) -> usize {
    let mask = table.len() - 1;
    let mut now = [0u32; CHAINS];
    now.copy_from_slice(&places[..CHAINS]);
    for step in 0..STEPS as u32 {
        for place in &mut now {
            *place = table[*place as usize & mask].wrapping_add(first.wrapping_add(step));
        }
    }
    places[..CHAINS].copy_from_slice(&now);
    STEPS * CHAINS
}
