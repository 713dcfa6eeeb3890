//! Tests for real and emulated CUDA devices.

use std::sync::Arc;
use std::time::Duration;

use godwit_device::cuda::{CudaDevice, probe};
use godwit_device::{Device, DeviceOptions, Error, Lane, Mode, Program, Transfer};
use godwit_packet::{Arena, ArenaConfig, ArenaHandle, Layout};
use godwit_sched::Chunk;

use super::matrix::{self, Scope, compare_with_ref, usable};
use super::stress::{BIN_PACKETS, BUFFERS, by_workers, check, fill_up, summing_kernels};
use super::template::Template;
use super::turn::turn;

const MODES: [Mode; 2] = [Mode::Launch, Mode::Persistent];
/// All modes of a CUDA device. Launch mode is listed with both ways of packet transfer.
const SETUPS: [(Mode, Transfer); 3] =
    [(Mode::Launch, Transfer::Copy), (Mode::Launch, Transfer::ZeroCopy), (Mode::Persistent, Transfer::Auto)];

/// A device with its mode and its way of packet transfer.
struct Setup {
    number: usize,
    mode: Mode,
    transfer: Transfer,
}

impl matrix::Setup for Setup {
    fn name(&self) -> String {
        format!("cuda:{} {}, transfer {}", self.number, self.mode.name(), self.transfer.name())
    }

    fn copies(&self) -> bool {
        true
    }

    fn arena(&self, config: ArenaConfig) -> Arena {
        Arena::new(config, 1).unwrap()
    }

    fn lane(&self, programs: Vec<Arc<dyn Program>>, arena: &ArenaHandle) -> Box<dyn Lane> {
        // Emulated devices are slow on machines with few processors.
        let watchdog = Duration::from_secs(60);
        let options = DeviceOptions { mode: self.mode, transfer: self.transfer, watchdog, ..DeviceOptions::default() };
        let device = CudaDevice::new(self.number, programs, arena, &options).unwrap_or_else(|error| panic!("{error}"));
        let device = Arc::new(device);
        assert_eq!(device.mode(), self.mode);
        device.lane().unwrap()
    }
}

/// Checks that every function gives the same results as its reference implementation. Each
/// submission contains batches of several functions.
pub(crate) fn compare(scope: &Scope) {
    let _turn = turn();
    let modes = |number| SETUPS.map(|(mode, transfer)| Setup { number, mode, transfer });
    let setups: Vec<_> = usable(&probe()).into_iter().flat_map(modes).collect();
    compare_with_ref(&setups, scope);
}

/// Runs the stress test [`by_workers`] in all modes. Each worker has several work-groups, and every
/// packet buffer is reused at once.
pub(crate) fn check_for_stale_data(packets: u64) {
    let _turn = turn();
    let workers = 4;
    for (number, mode) in usable(&probe()).into_iter().flat_map(|number| MODES.map(|mode| (number, mode))) {
        let arena = Arena::new(ArenaConfig { packets: BUFFERS, ..ArenaConfig::default() }, workers).unwrap();
        let options = DeviceOptions {
            mode,
            lanes: workers,
            bin_packets: BIN_PACKETS,
            watchdog: Duration::from_secs(60),
            ..DeviceOptions::default()
        };
        let programs: Vec<Arc<dyn Program>> = vec![Arc::new(Template)];
        let kernels = summing_kernels(godwit_kernels::cuda_source());
        let device = CudaDevice::with_kernels(number, programs, &arena.handle(), &options, &kernels).unwrap();
        assert_eq!((device.mode(), device.fallback()), (mode, None));
        by_workers(Arc::new(device), arena.split(), packets);
    }
}

/// Returns packet memory whose buffers are adjacent and little longer than their frames, so that
/// copies by copy engines are worthwhile.
pub(crate) fn dense_arena(packets: usize) -> ArenaConfig {
    ArenaConfig {
        layout: Layout::Dense,
        packets,
        headroom_bytes: 0,
        tailroom_bytes: 0,
        align_bytes: 64,
        ..ArenaConfig::default()
    }
}

/// Runs large and small submissions at the same time through one connection to the device. Large
/// submissions are copied, and small submissions use zero-copy. The caller must have exclusive use
/// of the devices.
pub(crate) fn mix_transfers(rounds: u64) {
    const BINS: [usize; 6] = [128, 4, 128, 1, 4, 128];
    for number in usable(&probe()) {
        let arena = Arena::new(dense_arena(2 * BINS.iter().sum::<usize>() * BIN_PACKETS), 1).unwrap();
        let options =
            DeviceOptions { bin_packets: BIN_PACKETS, watchdog: Duration::from_secs(60), ..DeviceOptions::default() };
        let programs: Vec<Arc<dyn Program>> = vec![Arc::new(Template)];
        let kernels = summing_kernels(godwit_kernels::cuda_source());
        let device = CudaDevice::with_kernels(number, programs, &arena.handle(), &options, &kernels).unwrap();
        let mut lane = Arc::new(device).lane().unwrap();
        let mut region = arena.split().remove(0);
        let mut chunks = Vec::from(BINS.map(|bins| Chunk::new(bins, bins * BIN_PACKETS)));
        for round in 0..rounds {
            // In each round, a different submission is submitted first.
            chunks.rotate_left(1);
            for (index, mut chunk) in (0..).zip(std::mem::take(&mut chunks)) {
                fill_up(&mut region, &mut chunk, (round * BINS.len() as u64 + index) * 1_000_000);
                lane.submit(&mut region, chunk).unwrap_or_else(|rejected| panic!("{}", rejected.error));
            }
            while chunks.len() < BINS.len() {
                let Some(chunk) = lane.poll(&mut region).unwrap() else { continue };
                check(&mut region, &chunk);
                chunks.push(chunk);
            }
        }
        assert_eq!(region.allocated(), 0);
    }
}

/// Opens the same device a second time while persistent work-groups run on it. The second device
/// must be refused or use launch mode, because otherwise it would block.
pub(crate) fn refuse_engines_next_to_groups() {
    let _turn = turn();
    for number in usable(&probe()) {
        let arena = Arena::new(ArenaConfig { packets: BUFFERS, ..ArenaConfig::default() }, 1).unwrap().handle();
        let open = |mode| {
            let programs: Vec<Arc<dyn Program>> = vec![Arc::new(Template)];
            CudaDevice::new(number, programs, &arena, &DeviceOptions { mode, ..DeviceOptions::default() })
        };
        let first = open(Mode::Persistent).unwrap();
        assert_eq!(first.mode(), Mode::Persistent);
        for mode in MODES {
            let Err(Error::Unusable { reason, .. }) = open(mode) else { panic!("opened a device with groups") };
            assert!(reason.to_string().contains("another engine of this process"), "{reason}");
        }
        drop(first);
        let first = open(Mode::Launch).unwrap();
        let second = open(Mode::Persistent).unwrap();
        assert_eq!((first.mode(), second.mode()), (Mode::Launch, Mode::Launch));
        assert!(second.fallback().unwrap().contains("another engine of this process"), "{:?}", second.fallback());
        drop(first);
        drop(second);
        assert_eq!(open(Mode::Persistent).unwrap().mode(), Mode::Persistent);
    }
}
