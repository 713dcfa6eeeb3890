//! One batch of 32 packets from submission to completion, with nothing else in flight (APUNet,
//! figure 7).
//!
//! Up to three methods are measured: `launch` and `persistent` without copies, and `+copy`. On a
//! device that uses the host's memory, `+copy` is the time of launch mode plus the time to copy the
//! buffers to a staging buffer and back. On a CUDA device with separate memory, `+copy` uses the
//! copy engines, and the kernels otherwise access host memory over the bus. For comparison, each
//! row contains the 99th percentile of waits of the same length without a device, which shows the
//! disturbance by the machine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use godwit_device::{Mode, Transfer, has_own_memory, is_synchronous};

use crate::error::Error;
use crate::load::associations::Associations;
use crate::load::frames;
use crate::progress::Progress;
use crate::run::devices::{has_transfers, modes};
use crate::run::flow::{Flow, FlowConfig};
use crate::run::lane::implementation;
use crate::run::options::{Context, LaneOptions, choice};
use crate::run::rounds::median_p99;
use crate::run::row::{Details, Row};

/// Packets of the batch, as in APUNet.
const BATCH: usize = 32;
/// Batches in the arena. The first batch of a pass is slower, because all packets were refreshed
/// before it. With this number, it does not determine the 99th percentile.
const BATCHES: usize = 512;

/// Measures each size with each method.
pub(super) fn run(context: &Context, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let options = &LaneOptions::parse(context)?;
    let device = options.device();
    let modes = options.mode.map_or_else(|| modes(device).to_vec(), |mode| vec![mode]);
    let can_choose = has_transfers(device);
    let methods: Vec<(Mode, Transfer)> = modes
        .into_iter()
        .flat_map(|mode| match options.transfer {
            None if can_choose && mode == Mode::Launch => vec![(mode, Transfer::Copy), (mode, Transfer::ZeroCopy)],
            transfer => vec![(mode, transfer.unwrap_or_default())],
        })
        .collect();
    let implementation = implementation(options)?;
    let associations = Associations::of(&choice(&context.values)?)?;
    let esp = associations.function(1)?;
    let mut rows = Vec::new();
    for &size in &options.common.sizes {
        for &(mode, transfer) in &methods {
            let config = FlowConfig {
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
                Flow::new(&config, size, &frames::filled(frames::noise), &mut |random| associations.any(random))?;
            if flow.device.mode() != mode {
                let why = flow.device.fallback().unwrap_or("it has no other mode");
                progress(&format!("{device} does not run in mode {}: {why}", mode.name()));
                continue;
            }
            flow.prepare_by_length(BATCH, config.bin_packets);
            let (verified, _) = flow.verify()?;
            let path = path(device, mode, transfer);
            progress(&format!("{device}, {}, {path}, {size}: {verified} packets compared with ref", mode.name()));
            let passes = flow.measure(options.common.time)?;
            let count = passes.latencies_ns.len();
            let frame_bytes = flow.frame_bytes();
            let mut row = |implementation: &str, latencies_ns: &mut [f64], details: Details| {
                let (p50, p99) = median_p99(latencies_ns);
                let mpps = BATCH as f64 / p50 * 1e3;
                rows.push(Row {
                    device: device.to_owned(),
                    implementation: implementation.to_owned(),
                    mode: mode.name().to_owned(),
                    size: Some(size),
                    batch: BATCH,
                    mpps,
                    gbps: mpps * frame_bytes * 8.0 / 1e3,
                    p50_us: p50 / 1e3,
                    p99_us: p99 / 1e3,
                    details: details.with("suite", associations.name()).with("batches", count),
                    ..Row::default()
                });
            };
            let (wait_ns, _) = median_p99(&mut passes.latencies_ns.clone());
            let wait_p99_us = median_p99(&mut waits_ns(wait_ns, count)).1 / 1e3;
            let form = flow.device.choices()[0].form.clone();
            let copied = if can_choose && transfer == Transfer::Copy { "+copy" } else { "" };
            row(
                &format!("{form}{copied}"),
                &mut passes.latencies_ns.clone(),
                Details::default().with("path", path).with("verified", verified).with("wait_p99_us", wait_p99_us),
            );
            if mode == Mode::Launch && !is_synchronous(device) && !has_own_memory(device) {
                let mut copied = flow.copies_ns(&passes.latencies_ns);
                row(&format!("{form}+copy"), &mut copied, Details::default().with("path", "staging buffer"));
            }
        }
    }
    Ok(rows)
}

/// Returns how packets reach the device.
fn path(device: &str, mode: Mode, transfer: Transfer) -> &'static str {
    match (has_own_memory(device), mode, transfer) {
        (false, ..) => "zero-copy",
        // Persistent groups access host memory themselves.
        (true, Mode::Persistent, _) => "zero-copy, over the bus",
        (true, Mode::Launch, Transfer::ZeroCopy) if has_transfers(device) => "zero-copy, over the bus",
        (true, Mode::Launch, Transfer::Auto) if has_transfers(device) => "copy or zero-copy",
        _ => "copy",
    }
}

/// Returns the lengths of `count` waits of `wait_ns` that only poll the clock. Timers and other
/// threads that lengthen these waits also lengthen batches.
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
    /// Adds, to each of these latencies, the time to copy a batch's buffers to a staging buffer and
    /// back.
    fn copies_ns(&mut self, latencies_ns: &[f64]) -> Vec<f64> {
        let mut staging = vec![0u8; BATCH * (16 << 10)];
        let chunks = self.prepared().1;
        (0..)
            .zip(latencies_ns)
            .map(|(turn, latency_ns)| {
                let started = Instant::now();
                let mut offset = 0;
                self.buffers_of(turn % chunks, &mut |buffer| {
                    staging[offset..offset + buffer.len()].copy_from_slice(buffer);
                    offset += buffer.len();
                });
                offset = 0;
                self.buffers_of(turn % chunks, &mut |buffer| {
                    buffer.copy_from_slice(&staging[offset..offset + buffer.len()]);
                    offset += buffer.len();
                });
                latency_ns + started.elapsed().as_nanos() as f64
            })
            .collect()
    }
}
