//! Tests of an emulated CUDA device that hangs, and of a driver that fails. Every connection to the
//! device must return its submissions, no call may block forever, and memory that the device may
//! still write must stay allocated. Each test uses separate devices, because lost devices are never
//! freed.

#[path = "common/lost.rs"]
mod lost;
#[path = "common/template.rs"]
mod template;

use std::ffi::CStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use godwit_abi::Outcome;
use godwit_device::cuda::CudaDevice;
use godwit_device::{Device, DeviceOptions, Error, Lane, Mode, Program, Transfer};
use godwit_packet::{Arena, ArenaConfig, Region};
use godwit_test_support::cuda::{self, Emulation};

use lost::{SILENT, assert_lost, chunk, chunk_of, until_lost};
use template::Template;

/// Driver calls of a submission that may fail. Each entry has the device number, the way of packet
/// transfer, the name of the call, and the number of successful calls before the failure.
const CALLS: [(usize, Transfer, &CStr, u64); 11] = [
    (4, Transfer::Copy, c"cuMemcpyAsync", 0),
    (5, Transfer::Copy, c"cuLaunchKernel", 0),
    (6, Transfer::Copy, c"cuEventRecord", 0),
    (7, Transfer::Copy, c"cuEventQuery", 0),
    (12, Transfer::ZeroCopy, c"cuGraphExecKernelNodeSetParams_v2", 0),
    (13, Transfer::ZeroCopy, c"cuGraphLaunch", 0),
    (14, Transfer::Copy, c"cuStreamWaitEvent", 0),
    (15, Transfer::Copy, c"cuEventRecord", 1),
    (16, Transfer::Copy, c"cuStreamWaitEvent", 1),
    (17, Transfer::Copy, c"cuMemcpyAsync", 1),
    (18, Transfer::Copy, c"cuEventRecord", 2),
];
/// The driver error `CUDA_ERROR_LAUNCH_FAILED`.
const LAUNCH_FAILED: i32 = 719;
/// The driver error `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: i32 = 2;

/// Exclusive access to the emulated driver, because its settings apply to the whole process.
/// Dropping this value resets the settings.
struct Turn {
    driver: &'static Emulation,
    _turn: MutexGuard<'static, ()>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.driver.hold(false);
        self.driver.repair();
    }
}

fn turn() -> Option<Turn> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    Some(Turn { driver: cuda::emulation(env!("CARGO_TARGET_TMPDIR"), 19)?, _turn: turn })
}

fn open(number: usize, lanes: usize, mode: Mode) -> Result<(Arc<CudaDevice>, Vec<Region>), Error> {
    open_with(number, 16, &DeviceOptions { mode, lanes, ..DeviceOptions::default() })
}

fn open_with(number: usize, packets: usize, options: &DeviceOptions) -> Result<(Arc<CudaDevice>, Vec<Region>), Error> {
    let arena = Arena::new(ArenaConfig { packets, ..ArenaConfig::default() }, options.lanes).unwrap();
    let options = DeviceOptions { watchdog: Duration::from_millis(500), ..options.clone() };
    let programs: Vec<Arc<dyn Program>> = vec![Arc::new(Template)];
    let device = CudaDevice::new(number, programs, &arena.handle(), &options)?;
    assert_eq!((device.mode(), device.fallback()), (options.mode, None));
    Ok((Arc::new(device), arena.split()))
}

fn lanes(device: &Arc<CudaDevice>, regions: &[Region]) -> Vec<Box<dyn Lane>> {
    regions.iter().map(|_| Arc::clone(device).lane().unwrap()).collect()
}

#[test]
fn all_lanes_of_a_device_that_hangs_report_it_lost() {
    let Some(turn) = turn() else { return };
    for (number, mode) in [Mode::Launch, Mode::Persistent].into_iter().enumerate() {
        let (device, mut regions) = open(number, 3, mode).unwrap();
        let mut lanes = lanes(&device, &regions);
        let healthy = chunk(&mut regions[0], 0);
        lanes[0].submit(&mut regions[0], healthy).unwrap();
        while lanes[0].poll(&mut regions[0]).unwrap().is_none() {}
        turn.driver.hold(true);
        // A persistent work-group may still be in its last poll of the mailbox.
        std::thread::sleep(Duration::from_millis(10));
        let (first, second, other) = (chunk(&mut regions[0], 0), chunk(&mut regions[0], 0), chunk(&mut regions[1], 0));
        let buffers = [first.descriptors[0], second.descriptors[0]];
        lanes[0].submit(&mut regions[0], first).unwrap();
        lanes[0].submit(&mut regions[0], second).unwrap();
        lanes[1].submit(&mut regions[1], other).unwrap();
        let (back, chunks) = until_lost(&mut *lanes[0], &mut regions[0], SILENT);
        assert_eq!(back, 0, "{mode:?}");
        assert_eq!(chunks.iter().map(|chunk| chunk.descriptors[0]).collect::<Vec<_>>(), buffers);
        let (back, chunks) = until_lost(&mut *lanes[1], &mut regions[1], SILENT);
        assert_eq!((back, chunks.len()), (0, 1), "{mode:?}");
        let (back, chunks) = until_lost(&mut *lanes[2], &mut regions[2], SILENT);
        assert_eq!((back, chunks.len()), (0, 0), "{mode:?}");
        for (lane, region) in lanes.iter_mut().zip(&mut regions) {
            assert_lost(&mut **lane, region);
        }
        assert!(Arc::clone(&device).lane().is_err());
        drop((lanes, device, regions));
        // The hanging kernel now continues, and writes to its packet buffers.
        turn.driver.hold(false);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Checks that a lost device returns a submission with new arrays. The submission is so large that
/// the device uses the arrays of the submission itself, and may still write to them.
#[test]
fn a_device_that_hangs_never_writes_to_returned_chunks() {
    const PACKETS: u16 = 2048;
    let Some(turn) = turn() else { return };
    for (number, transfer) in [Transfer::Copy, Transfer::ZeroCopy].into_iter().enumerate() {
        let options = DeviceOptions { transfer, ..DeviceOptions::default() };
        let (device, mut regions) = open_with(9 + number, PACKETS.into(), &options).unwrap();
        let mut lane = Arc::clone(&device).lane().unwrap();
        turn.driver.hold(true);
        let large = chunk_of(&mut regions[0], 0, PACKETS);
        let (arrays, buffers_before) = (large.outcomes.pages().base(), large.descriptors.to_vec());
        lane.submit(&mut regions[0], large).unwrap();
        let (_, mut chunks) = until_lost(&mut *lane, &mut regions[0], SILENT);
        let back = &mut chunks[0];
        assert_eq!(*back.descriptors, *buffers_before);
        assert_ne!(back.outcomes.pages().base(), arrays);
        let mark = Outcome { verdict: 0xee, reason: 0xee, port: 0xeeee, value: 0xeeee_eeee };
        back.outcomes.fill(mark);
        drop(lane);
        turn.driver.hold(false);
        std::thread::sleep(Duration::from_millis(50));
        assert!(back.outcomes.iter().all(|outcome| *outcome == mark), "transfer {}", transfer.name());
        assert_eq!(*back.descriptors, *buffers_before);
    }
}

#[test]
fn drops_a_lane_with_chunks_on_a_device_that_hangs() {
    let Some(turn) = turn() else { return };
    for (number, mode) in [Mode::Launch, Mode::Persistent].into_iter().enumerate() {
        let (device, mut regions) = open(2 + number, 1, mode).unwrap();
        let mut lanes = lanes(&device, &regions);
        turn.driver.hold(true);
        let waiting = chunk(&mut regions[0], 0);
        lanes[0].submit(&mut regions[0], waiting).unwrap();
        drop((lanes, device, regions));
        turn.driver.hold(false);
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_failing_driver_loses_the_device_but_no_chunk() {
    let Some(turn) = turn() else { return };
    for (number, transfer, call, calls_before) in CALLS {
        let options = DeviceOptions { transfer, lanes: 2, ..DeviceOptions::default() };
        let (device, mut regions) = open_with(number, 16, &options).unwrap();
        let mut lanes = lanes(&device, &regions);
        let healthy = chunk(&mut regions[0], 0);
        lanes[0].submit(&mut regions[0], healthy).unwrap();
        while lanes[0].poll(&mut regions[0]).unwrap().is_none() {}
        turn.driver.break_call(call, calls_before, LAUNCH_FAILED);
        let failing = chunk(&mut regions[0], 0);
        let buffer = failing.descriptors[0];
        lanes[0].submit(&mut regions[0], failing).unwrap();
        let (back, chunks) = until_lost(&mut *lanes[0], &mut regions[0], "CUDA_ERROR_LAUNCH_FAILED");
        assert_eq!((back, chunks.len(), chunks[0].descriptors[0]), (0, 1, buffer), "{call:?}");
        let (back, chunks) = until_lost(&mut *lanes[1], &mut regions[1], "CUDA_ERROR_LAUNCH_FAILED");
        assert_eq!((back, chunks.len()), (0, 0), "{call:?}");
        for (lane, region) in lanes.iter_mut().zip(&mut regions) {
            assert_lost(&mut **lane, region);
        }
        turn.driver.repair();
    }
}

/// Checks that the driver is queried for errors. Work-groups that signal the completion of a
/// submission do not signal errors.
#[test]
fn a_failing_zero_copy_kernel_loses_the_device_but_no_chunk() {
    let Some(turn) = turn() else { return };
    let options = DeviceOptions { transfer: Transfer::ZeroCopy, ..DeviceOptions::default() };
    let (device, mut regions) = open_with(11, 16, &options).unwrap();
    let mut lane = Arc::clone(&device).lane().unwrap();
    turn.driver.hold(true);
    let failing = chunk(&mut regions[0], 0);
    let buffer = failing.descriptors[0];
    lane.submit(&mut regions[0], failing).unwrap();
    turn.driver.break_call(c"cuStreamQuery", 0, LAUNCH_FAILED);
    let (back, chunks) = until_lost(&mut *lane, &mut regions[0], "CUDA_ERROR_LAUNCH_FAILED");
    assert_eq!((back, chunks.len(), chunks[0].descriptors[0]), (0, 1, buffer));
}

/// Checks every driver call that is made while a device is opened. If the call fails, opening must
/// return an error and free all resources. The same device can then be opened again.
#[test]
fn reports_driver_errors_while_a_device_is_opened() {
    let Some(turn) = turn() else { return };
    let number = 8;
    drop(open(number, 1, Mode::Launch).unwrap());
    let memory = [c"cuMemAlloc_v2", c"cuMemHostAlloc", c"cuMemHostRegister_v2"];
    let module = [c"cuModuleLoadData", c"cuModuleGetFunction", c"cuFuncSetAttribute", c"cuStreamCreate"];
    let graph = [c"cuGraphCreate", c"cuGraphAddKernelNode_v2", c"cuGraphInstantiateWithFlags"];
    for call in memory.into_iter().chain(module).chain(graph).chain([c"cuLaunchKernel"]) {
        for calls_before in 0..3 {
            let result = if call == c"cuMemAlloc_v2" { OUT_OF_MEMORY } else { LAUNCH_FAILED };
            turn.driver.break_call(call, calls_before, result);
            // A driver function that is called at most `calls_before` times does not fail, so
            // opening may succeed.
            match open(number, 1, Mode::Launch) {
                Err(Error::TooLarge { bytes, bytes_max, .. }) if result == OUT_OF_MEMORY => assert!(bytes < bytes_max),
                Err(Error::Driver { reason, .. }) => assert!(reason.contains("LAUNCH_FAILED"), "{call:?}: {reason}"),
                Err(error) => panic!("{call:?}: {error}"),
                Ok(_) => assert!(calls_before > 0, "{call:?} is never called"),
            }
            turn.driver.repair();
            let (device, mut regions) = open(number, 1, Mode::Persistent).unwrap();
            let mut lane = device.lane().unwrap();
            let healthy = chunk(&mut regions[0], 0);
            lane.submit(&mut regions[0], healthy).unwrap();
            while lane.poll(&mut regions[0]).unwrap().is_none() {}
        }
    }
}
