//! One batch of 32 packets, submit to completion, nothing else in flight (APUNet figure 7).
//!
//! Three ways, as far as the device has them: `launch` and `persistent` where packets lie; on a device that works on the host's
//! memory, `copy` besides: what launch mode takes plus copying the batch's windows to a staging memory and back.

use std::sync::Arc;
use std::time::Instant;

use godwit_device::{Mode, cpu, has_own_memory};

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
    let implementation = implementation(options)?;
    let associations = Associations::asked(options)?;
    let esp = function::many_sas(&associations, 1)?;
    let copy = if has_own_memory(device) { "copies to the device and back" } else { "zero-copy" };
    let mut rows = Vec::new();
    for &size in sizes {
        for &mode in &modes {
            let site = Site {
                device,
                mode,
                implementation,
                resident: false,
                layout: options.layout,
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
            progress(&format!("{device}, {}, {size}: {verified} packets compared with ref", mode.name()));
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
            let form = flow.device.choices()[0].form.clone();
            row(
                &form,
                &mut passes.latencies_ns.clone(),
                format!("ESP, {copy}, {count} batches, {verified} compared with ref"),
            );
            if mode == Mode::Launch && device != cpu::ID && !has_own_memory(device) {
                let mut copied = flow.copies_ns(&passes.latencies_ns);
                row(
                    &format!("{form}+copy"),
                    &mut copied,
                    "ESP, windows copied to a staging memory and back".to_owned(),
                );
            }
        }
    }
    Ok(rows)
}

impl Flow {
    /// These latencies, each with the time that it takes to copy a batch's windows somewhere and back.
    fn copies_ns(&mut self, latencies_ns: &[f64]) -> Vec<f64> {
        let mut staging = vec![0u8; BATCH * (16 << 10)];
        let chunks = self.prepared().1;
        (0..)
            .zip(latencies_ns)
            .map(|(turn, latency_ns)| {
                let started = Instant::now();
                let mut at = 0;
                self.windows_of(turn % chunks, &mut |window| {
                    staging[at..at + window.len()].copy_from_slice(window);
                    at += window.len();
                });
                at = 0;
                self.windows_of(turn % chunks, &mut |window| {
                    window.copy_from_slice(&staging[at..at + window.len()]);
                    at += window.len();
                });
                latency_ns + started.elapsed().as_nanos() as f64
            })
            .collect()
    }
}
