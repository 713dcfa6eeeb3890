//! Tests of the host code for CUDA, and of the CUDA kernels, on an emulated device. They need no
//! GPU.

#[path = "common/cuda_suite.rs"]
mod cuda_suite;
#[path = "common/matrix.rs"]
mod matrix;
#[path = "common/stress.rs"]
mod stress;
#[path = "common/template.rs"]
mod template;
#[path = "common/turn.rs"]
mod turn;

use std::sync::Arc;

use godwit_device::cuda::CudaDevice;
use godwit_device::{Device, DeviceOptions, Program, Transfer};
use godwit_packet::Arena;
use godwit_sched::Chunk;
use godwit_test_support::cuda::{self, Emulation};

use matrix::Scope;
use stress::{BIN_PACKETS, check, fill_up, summing_kernels};
use template::Template;
use turn::turn;

/// Number of packets in the stress test. An emulated device is some thousand times slower than a
/// GPU.
const STRESS_PACKETS: u64 = 50_000;

/// Loads the emulated CUDA driver with one device.
fn emulation() -> Option<&'static Emulation> {
    cuda::emulation(env!("CARGO_TARGET_TMPDIR"), 1)
}

#[test]
fn every_function_matches_ref_in_mixed_chunks() {
    let Some(_emulation) = emulation() else { return };
    cuda_suite::compare(&Scope { picks: |packet| packet.before.flow_hash % 32 == 3, ..Scope::ALL });
}

#[test]
fn no_stale_data_is_read() {
    let Some(_emulation) = emulation() else { return };
    cuda_suite::check_for_stale_data(STRESS_PACKETS);
}

#[test]
fn persistent_groups_use_a_device_exclusively() {
    let Some(_emulation) = emulation() else { return };
    cuda_suite::refuse_engines_next_to_groups();
}

/// Checks that a submission needs few driver calls, because the driver has one lock for all
/// threads. If the arrays of a submission cannot be page-locked, copies of the arrays need the same
/// number of calls. Submissions that use zero-copy need no copies at all.
#[test]
fn a_large_chunk_needs_one_copy_call_per_direction() {
    const BINS: usize = 64;
    const CALLS: [&std::ffi::CStr; 6] = [
        c"cuMemcpyBatchAsync_v2",
        c"cuMemcpyAsync",
        c"cuMemcpy2DAsync_v2",
        c"cuLaunchKernel",
        c"cuGraphLaunch",
        c"cuMemHostRegister_v2",
    ];
    let _turn = turn();
    let Some(emulation) = emulation() else { return };
    let setups =
        [(Transfer::Copy, true), (Transfer::Copy, false), (Transfer::ZeroCopy, true), (Transfer::ZeroCopy, false)];
    for (transfer, locks) in setups {
        let (copies, launches, repeated) = if transfer == Transfer::ZeroCopy { (0, 0, 1) } else { (2, 1, 0) };
        let arena = Arena::new(cuda_suite::dense_arena(BINS * BIN_PACKETS), 1).unwrap();
        let programs: Vec<Arc<dyn Program>> = vec![Arc::new(Template)];
        let kernels = summing_kernels(godwit_kernels::cuda_source());
        let options = DeviceOptions { bins: BINS, bin_packets: BIN_PACKETS, transfer, ..DeviceOptions::default() };
        let device = CudaDevice::with_kernels(0, programs, &arena.handle(), &options, &kernels).unwrap();
        let mut lane = Arc::new(device).lane().unwrap();
        let mut region = arena.split().remove(0);
        let mut chunk = Chunk::new(BINS, BINS * BIN_PACKETS);
        if !locks {
            emulation.break_call(c"cuMemHostRegister_v2", 0, 719);
        }
        for round in 0..3 {
            let before = CALLS.map(|call| emulation.calls(call));
            fill_up(&mut region, &mut chunk, round * 1_000_000);
            lane.submit(&mut region, chunk).unwrap();
            chunk = loop {
                if let Some(chunk) = lane.poll(&mut region).unwrap() {
                    break chunk;
                }
                std::thread::yield_now();
            };
            check(&mut region, &chunk);
            let calls: Vec<u64> =
                CALLS.iter().zip(before).map(|(call, before)| emulation.calls(call) - before).collect();
            // In the first round, the device also tries to lock the pages of the arrays.
            let transfer = transfer.name();
            let expected = [copies, 0, 0, launches, repeated, u64::from(round == 0)];
            assert_eq!(calls, expected, "{transfer}, round {round}, locks: {locks}");
        }
        emulation.repair();
    }
}

#[test]
fn copied_and_zero_copy_chunks_run_at_the_same_time() {
    let _turn = turn();
    let Some(emulation) = emulation() else { return };
    let calls = [c"cuLaunchKernel", c"cuGraphLaunch"];
    let before = calls.map(|call| emulation.calls(call));
    cuda_suite::mix_transfers(2);
    // Each round makes three calls of each kind. Opening the device makes one more launch.
    let made = |index: usize| emulation.calls(calls[index]) - before[index];
    assert_eq!((made(0), made(1)), (2 * 3 + 1, 2 * 3));
}
