//! All of the host's side of CUDA, and the kernels' CUDA text, on a device that is emulated: for machines without a GPU.

mod cuda_suite;
mod emulated;
mod matrix;
mod stress;
mod template;

use std::sync::Arc;
use std::time::Duration;

use godwit_device::cuda::CudaDevice;
use godwit_device::{Device, DeviceOptions, Program, Transfer, measure};
use godwit_packet::Arena;
use godwit_sched::Chunk;

use emulated::emulation;
use matrix::Scope;
use stress::{BIN_PACKETS, check, fill_up, summing_kernels};
use template::Template;

/// An emulated lane is some thousand times slower than one of a GPU.
const STRESS_PACKETS: u64 = 50_000;

#[test]
fn every_function_does_what_ref_does_in_mixed_chunks() {
    let Some(_emulation) = emulation(1) else { return };
    cuda_suite::compare(&Scope { picks: |packet| packet.before.flow_hash % 32 == 3, ..Scope::ALL });
}

#[test]
fn nobody_ever_reads_anything_stale() {
    let Some(_emulation) = emulation(1) else { return };
    cuda_suite::read_nothing_stale(STRESS_PACKETS);
}

#[test]
fn groups_have_a_device_for_themselves_in_a_process() {
    let Some(_emulation) = emulation(1) else { return };
    cuda_suite::leave_a_device_to_groups();
}

/// The driver is asked as little as can be: it has one lock for all threads. Where the chunk's arrays cannot be page-locked they
/// go by way of the slot's, in as many calls. Where the kernel reaches for all, nothing is copied.
#[test]
fn a_large_chunk_takes_one_call_for_its_copies_each_way() {
    const BINS: usize = 64;
    const CALLS: [&std::ffi::CStr; 6] = [
        c"cuMemcpyBatchAsync_v2",
        c"cuMemcpyAsync",
        c"cuMemcpy2DAsync_v2",
        c"cuLaunchKernel",
        c"cuGraphLaunch",
        c"cuMemHostRegister_v2",
    ];
    let _turn = cuda_suite::turn();
    let Some(emulation) = emulation(1) else { return };
    let ways =
        [(Transfer::Copy, true), (Transfer::Copy, false), (Transfer::ZeroCopy, true), (Transfer::ZeroCopy, false)];
    for (transfer, locks) in ways {
        let (copies, launches, repeated) = if transfer == Transfer::ZeroCopy { (0, 0, 1) } else { (2, 1, 0) };
        let arena = Arena::new(cuda_suite::worth_copying(BINS * BIN_PACKETS), 1).unwrap();
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
            // Its pages are locked once, or tried to be.
            let transfer = transfer.name();
            let expected = [copies, 0, 0, launches, repeated, u64::from(round == 0)];
            assert_eq!(calls, expected, "{transfer}, round {round}, locks: {locks}");
        }
        emulation.mend();
    }
}

#[test]
fn chunks_come_and_go_both_ways_at_once() {
    let _turn = cuda_suite::turn();
    let Some(emulation) = emulation(1) else { return };
    let ways = [c"cuLaunchKernel", c"cuGraphLaunch"];
    let before = ways.map(|call| emulation.calls(call));
    cuda_suite::bring_chunks_both_ways(2);
    // Three of each in a round; one more where the lane is made.
    let made = |way: usize| emulation.calls(ways[way]) - before[way];
    assert_eq!((made(0), made(1)), (2 * 3 + 1, 2 * 3));
}

/// That the numbers are right only a GPU can show; that there are any shows here.
#[test]
fn what_a_device_is_worth_can_be_measured() {
    let _turn = cuda_suite::turn();
    let Some(_emulation) = emulation(1) else { return };
    let time = Duration::from_millis(5);
    for rates in measure::copy_at_once(&["cuda:0", "cuda:0"], 10_000, time).unwrap() {
        assert!(rates.host_to_device > 0.0 && rates.device_to_host > 0.0 && rates.both > 0.0, "{rates:?}");
    }
    let mut device = measure::open("cuda:0").unwrap();
    for times in [device.launch(20), device.mailbox(20)] {
        let times = times.unwrap().unwrap();
        assert!(times.len() == 20 && times.iter().all(|time| *time > 0.0), "{times:?}");
    }
    assert!(device.random_reads(100_000, 300, time).unwrap() > 0.0);
}
