//! Measures the memory of this machine.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use godwit_device::Error;

use crate::{CHAINS_PER_CORE, CopyRates, Measure, table_word, table_words};

/// Size of the memory that copies cycle through, in bytes. It exceeds all caches.
const AROUND_BYTES: usize = 64 << 20;
/// Number of steps of each chain between two clock readings.
const STEPS: usize = 4096;

/// The CPU.
pub(crate) struct CpuMeasure {
    table: Vec<u32>,
}

impl CpuMeasure {
    pub(crate) fn new() -> Self {
        Self { table: Vec::new() }
    }
}

impl CpuMeasure {
    fn table(&mut self, bytes: usize) -> &[u32] {
        let words = table_words(bytes);
        if self.table.len() != words {
            self.table = (0..words).map(table_word).collect();
        }
        &self.table
    }
}

impl Measure for CpuMeasure {
    /// Measures one core per direction. Both directions are copies within host memory.
    fn copy(&mut self, bytes: usize, time: Duration, begin: &dyn Fn()) -> Result<CopyRates, Error> {
        begin();
        let one = copy(bytes, time);
        begin();
        let other = copy(bytes, time);
        begin();
        let both = thread::scope(|scope| {
            let other = scope.spawn(|| copy(bytes, time));
            let own = copy(bytes, time);
            // Propagate a panic of the other thread.
            own + other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        Ok(CopyRates { host_to_device: one, device_to_host: other, both })
    }

    fn launch(&mut self, _count: usize) -> Result<Option<Vec<f64>>, Error> {
        Ok(None)
    }

    fn random_reads(&mut self, bytes: usize, chains: usize, time: Duration) -> Result<f64, Error> {
        let table = self.table(bytes);
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

    /// Advances all chains by one read after another, on one core. The processor overlaps reads of
    /// different chains.
    fn lookups(&mut self, bytes: usize, headers: &mut [u32], depth: u32, time: Duration) -> Result<Vec<f64>, Error> {
        let table = self.table(bytes);
        let mask = table.len() - 1;
        let (started, mut times, mut indices) = (Instant::now(), Vec::new(), headers.to_vec());
        while times.is_empty() || started.elapsed() < time {
            indices.copy_from_slice(headers);
            let begun = Instant::now();
            for step in 0..depth {
                for index in &mut indices {
                    *index = table[*index as usize & mask].wrapping_add(step);
                }
            }
            black_box(&mut indices);
            times.push(begun.elapsed().as_nanos().max(1) as f64);
        }
        headers.copy_from_slice(&indices);
        Ok(times)
    }
}

/// Returns the copy rate of this thread, in bytes per second.
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
            if done.is_multiple_of(1 << 20) && started.elapsed() >= time {
                return done as f64 / started.elapsed().as_secs_f64();
            }
        }
        if started.elapsed() >= time {
            return done as f64 / started.elapsed().as_secs_f64();
        }
    }
}

/// Returns the number of reads per second of this thread.
fn follow(table: &[u32], chains: usize, seed: usize, time: Duration) -> f64 {
    let started = Instant::now();
    let mut indices = [0u32; CHAINS_PER_CORE];
    indices.iter_mut().enumerate().for_each(|(chain, index)| *index = table_word(seed << 8 | chain));
    let (mut reads, mut step) = (0, 0);
    // The compiler interleaves chains only if their number is a constant.
    while started.elapsed() < time {
        reads += match chains {
            1 => steps::<1>(table, &mut indices, step),
            2 => steps::<2>(table, &mut indices, step),
            3..=4 => steps::<4>(table, &mut indices, step),
            5..=8 => steps::<8>(table, &mut indices, step),
            _ => steps::<CHAINS_PER_CORE>(table, &mut indices, step),
        };
        step += STEPS as u32;
    }
    black_box(indices);
    reads as f64 / started.elapsed().as_secs_f64()
}

fn steps<const CHAINS: usize>(table: &[u32], indices: &mut [u32; CHAINS_PER_CORE], first: u32) -> usize {
    let mask = table.len() - 1;
    let mut current = [0u32; CHAINS];
    current.copy_from_slice(&indices[..CHAINS]);
    for step in 0..STEPS as u32 {
        for index in &mut current {
            *index = table[*index as usize & mask].wrapping_add(first.wrapping_add(step));
        }
    }
    indices[..CHAINS].copy_from_slice(&current);
    STEPS * CHAINS
}
