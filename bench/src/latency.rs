//! One batch of 32 packets, submit to completion, nothing else in flight (APUNet figure 7).
//!
//! Three ways, as far as the device has them: `launch` and `persistent` where packets lie, and `+copy`. On a device that works on the
//! host's memory that is what launch mode takes plus copying the batch's buffers to a staging memory and back; on a CUDA device with
//! memory of its own copy engines bring buffers there and back, where otherwise its kernels reach over the bus for them. Beside
//! each is how long the same thread takes to wait as long with no device: what the machine adds to the 99th percentile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use godwit_device::{Mode, Transfer, cpu, cuda, has_own_memory};

use crate::flow::{Flow, Site};
use crate::suites::Associations;
use crate::throughput::implementation;
use crate::{BenchOptions, Error, Progress, Row, Size, frames, function, median_p99};

/// Packets of the batch: APUNet's group.
const BATCH: usize = 32;
/// Batches in the arena, taken in turn. The first of each turn comes after all were made anew, and is not to decide what 99 of
/// 100 take.
const BATCHES: usize = 512;

/// The bench `latency`.
pub(crate) fn run(options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let device = options.device();
    let sizes = [Size::Bytes(60), Size::Bytes(1408)];
    let sizes = if options.sizes.is_empty() { &sizes[..] } else { &options.sizes };
    let both = if device == cpu::ID { vec![Mode::Launch] } else { vec![Mode::Launch, Mode::Persistent] };
    let modes = options.mode.map_or(both, |mode| vec![mode]);
    let has_ways = cuda::number(device).is_some() && has_own_memory(device);
    let ways: Vec<(Mode, Transfer)> = modes
        .into_iter()
        .flat_map(|mode| match options.transfer {
            None if has_ways && mode == Mode::Launch => vec![(mode, Transfer::Copy), (mode, Transfer::ZeroCopy)],
            transfer => vec![(mode, transfer.unwrap_or_default())],
        })
        .collect();
    let implementation = implementation(options)?;
    let associations = Associations::asked(options)?;
    let esp = function::many_sas(&associations, 1)?;
    let mut rows = Vec::new();
    for &size in sizes {
        for &(mode, transfer) in &ways {
            let site = Site {
                device,
                mode,
                implementation,
                resident: false,
                layout: options.layout,
                transfer,
                functions: &[Arc::clone(&esp)],
                packets: BATCH * BATCHES,
                bins: BATCH,
                bin_packets: options.bin_packets.unwrap_or(BATCH),
                in_flight: 1,
                share: &[],
                chain: None,
            };
            let mut flow =
                Flow::new(&site, size, &frames::filled(frames::noise), &mut |random| associations.any(random))?;
            if flow.device.mode() != mode {
                let why = flow.device.fallback().unwrap_or("it has no other mode");
                progress(&format!("{device} does not run in mode {}: {why}", mode.name()));
                continue;
            }
            flow.prepare_by_length(BATCH, site.bin_packets);
            let (verified, _) = flow.verify()?;
            let way = way(device, mode, transfer);
            progress(&format!("{device}, {}, {way}, {size}: {verified} packets compared with ref", mode.name()));
            let passes = flow.measure(options.time)?;
            let count = passes.latencies_ns.len();
            let frame_bytes = flow.frame_bytes();
            let mut row = |implementation: &str, latencies_ns: &mut [f64], note: String| {
                let (p50, p99) = median_p99(latencies_ns);
                let mpps = BATCH as f64 / p50 * 1e3;
                rows.push(Row {
                    bench: "latency".to_owned(),
                    device: device.to_owned(),
                    implementation: implementation.to_owned(),
                    mode: mode.name(),
                    size: Some(size),
                    batch: BATCH,
                    mpps,
                    gbps: mpps * frame_bytes * 8.0 / 1e3,
                    p50_us: p50 / 1e3,
                    p99_us: p99 / 1e3,
                    watts: None,
                    peer: false,
                    note,
                });
            };
            let (wait_ns, _) = median_p99(&mut passes.latencies_ns.clone());
            let alone_us = median_p99(&mut waits_ns(wait_ns, count)).1 / 1e3;
            let form = flow.device.choices()[0].form.clone();
            let copied = if has_ways && transfer == Transfer::Copy { "+copy" } else { "" };
            row(
                &format!("{form}{copied}"),
                &mut passes.latencies_ns.clone(),
                format!(
                    "ESP, {way}, {count} batches, {verified} compared with ref; \
                     a wait as long as the median, with no device: p99 {alone_us:.2} us"
                ),
            );
            if mode == Mode::Launch && device != cpu::ID && !has_own_memory(device) {
                let mut copied = flow.copies_ns(&passes.latencies_ns);
                row(
                    &format!("{form}+copy"),
                    &mut copied,
                    "ESP, buffers copied to a staging memory and back".to_owned(),
                );
            }
        }
    }
    Ok(rows)
}

/// How packets come to the device and back, for people.
fn way(device: &str, mode: Mode, transfer: Transfer) -> &'static str {
    let is_cuda = cuda::number(device).is_some();
    match (has_own_memory(device), mode, transfer) {
        (false, ..) => "zero-copy",
        (true, Mode::Persistent, _) | (true, Mode::Launch, Transfer::ZeroCopy) if is_cuda => "zero-copy, over the bus",
        (true, Mode::Launch, Transfer::Auto) if is_cuda => "as is cheaper",
        _ => "copies to the device and back",
    }
}

/// How long so many waits of `wait_ns` take this thread, which does nothing but look at the clock: what the machine takes from it
/// now and then, with timers and what else it runs, it takes from the batches too.
fn waits_ns(wait_ns: f64, count: usize) -> Vec<f64> {
    let wait = Duration::from_nanos(wait_ns as u64);
    (0..count)
        .map(|_| {
            let started = Instant::now();
            loop {
                let waited = started.elapsed();
                if waited >= wait {
                    return waited.as_nanos() as f64;
                }
            }
        })
        .collect()
}

impl Flow {
    /// These latencies, each with the time that it takes to copy a batch's buffers somewhere and back.
    fn copies_ns(&mut self, latencies_ns: &[f64]) -> Vec<f64> {
        let mut staging = vec![0u8; BATCH * (16 << 10)];
        let chunks = self.prepared().1;
        (0..)
            .zip(latencies_ns)
            .map(|(turn, latency_ns)| {
                let started = Instant::now();
                let mut at = 0;
                self.buffers_of(turn % chunks, &mut |buffer| {
                    staging[at..at + buffer.len()].copy_from_slice(buffer);
                    at += buffer.len();
                });
                at = 0;
                self.buffers_of(turn % chunks, &mut |buffer| {
                    buffer.copy_from_slice(&staging[at..at + buffer.len()]);
                    at += buffer.len();
                });
                latency_ns + started.elapsed().as_nanos() as f64
            })
            .collect()
    }
}
