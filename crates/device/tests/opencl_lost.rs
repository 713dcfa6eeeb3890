//! Tests of an OpenCL device whose kernel hangs. The watchdog must detect the hang, and every
//! connection to the device must return its submissions. No call may block forever, and the process
//! must be able to exit.
//!
//! The kernel really hangs and occupies a core. Each test runs in its own process, which releases
//! the core when it exits.

#[path = "common/lost.rs"]
mod lost;
#[path = "common/template.rs"]
mod template;

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use godwit_device::opencl::{OpenClDevice, probe};
use godwit_device::{Device, DeviceOptions, Mode, Program, arena_memory};
use godwit_packet::{Arena, ArenaConfig, Region};
use godwit_test_support::skip;

use lost::{SILENT, assert_lost, chunk, until_lost};
use template::Template;

/// Kind of processing that makes the kernel hang.
const HANG: u8 = 99;
/// Timeout for a test process. A process that does not hang ends much earlier.
const TIMEOUT: Duration = Duration::from_secs(100);

/// Returns the source of Godwit's kernels with one change: a work-group that processes a batch with
/// the kind of processing [`HANG`] hangs.
fn hanging_kernels() -> String {
    let mut source = godwit_kernels::opencl_source().to_owned();
    for (after, bin) in [
        ("const gw_bin bin = bins[index];", "bins + index"),
        ("const gw_bin bin = *(const __global gw_bin *)slot;", "slot"),
    ] {
        assert!(source.contains(after), "the kernels do not contain: {after}");
        let spin = format!("while (((volatile __global const gw_bin *)({bin}))->variant == 99u) {{}}");
        source = source.replace(after, &format!("{after} {spin}"));
    }
    source
}

/// Returns the number of a device that runs on the processor. All other devices may be in use by
/// other processes.
fn processor() -> Option<usize> {
    probe().found.iter().position(|found| found.usable.is_ok() && found.kind == "cpu")
}

fn device(regions: usize, mode: Mode) -> (Arc<OpenClDevice>, Vec<Region>) {
    let number = processor().unwrap();
    let config = ArenaConfig { packets: 8, ..ArenaConfig::default() };
    let memory = arena_memory(&[&format!("opencl:{number}")], Arena::bytes_for(&config, regions).unwrap()).unwrap();
    let arena = Arena::over(memory, config, regions).unwrap();
    let options =
        DeviceOptions { mode, watchdog: Duration::from_millis(500), lanes: regions, ..DeviceOptions::default() };
    let programs: Vec<Arc<dyn Program>> = vec![Arc::new(Template)];
    let device = OpenClDevice::with_kernels(number, programs, &arena.handle(), &options, &hanging_kernels()).unwrap();
    assert_eq!((device.mode(), device.fallback()), (mode, None));
    (Arc::new(device), arena.split())
}

#[test]
#[ignore = "hangs a core until its process exits: run by `all_lanes_of_a_device_that_hangs_report_it_lost`"]
fn hangs_under_two_lanes() {
    let (device, mut regions) = device(3, Mode::Launch);
    let mut lanes: Vec<_> = (0..3).map(|_| Arc::clone(&device).lane().unwrap()).collect();
    // The first connection declares the device lost, and returns its submissions in their original
    // order.
    let (healthy, hanging, next) = (chunk(&mut regions[0], 0), chunk(&mut regions[0], HANG), chunk(&mut regions[0], 0));
    let buffers = [hanging.descriptors[0], next.descriptors[0]];
    lanes[0].submit(&mut regions[0], healthy).unwrap();
    while lanes[0].poll(&mut regions[0]).unwrap().is_none() {}
    lanes[0].submit(&mut regions[0], hanging).unwrap();
    lanes[0].submit(&mut regions[0], next).unwrap();
    let other = chunk(&mut regions[1], 0);
    lanes[1].submit(&mut regions[1], other).unwrap();
    let (back, chunks) = until_lost(&mut *lanes[0], &mut regions[0], SILENT);
    assert_eq!(back, 0);
    assert_eq!(chunks.iter().map(|chunk| chunk.descriptors[0]).collect::<Vec<_>>(), buffers);
    // The second connection has one submission, which the device may have finished. The third
    // connection has no submission.
    let (back, chunks) = until_lost(&mut *lanes[1], &mut regions[1], SILENT);
    assert_eq!(back + chunks.len(), 1);
    let (back, chunks) = until_lost(&mut *lanes[2], &mut regions[2], SILENT);
    assert_eq!((back, chunks.len()), (0, 0));
    for (lane, region) in lanes.iter_mut().zip(&mut regions) {
        assert_lost(&mut **lane, region);
    }
    assert!(Arc::clone(&device).lane().is_err());
    drop((lanes, device, regions));
}

#[test]
#[ignore = "hangs a core until its process exits: run by `all_lanes_of_a_device_that_hangs_report_it_lost`"]
fn hangs_under_a_lane_that_is_dropped() {
    let (device, mut regions) = device(1, Mode::Launch);
    let mut lane = Arc::clone(&device).lane().unwrap();
    let hanging = chunk(&mut regions[0], HANG);
    lane.submit(&mut regions[0], hanging).unwrap();
    drop((lane, device, regions));
    // A real program exits in the same way when its `main` returns.
    std::process::exit(0);
}

#[test]
#[ignore = "hangs a core until its process exits: run by `all_lanes_of_a_device_that_hangs_report_it_lost`"]
fn hangs_in_a_persistent_group() {
    let units = probe().found[processor().unwrap()].capabilities.compute_units;
    let (device, mut regions) = device(units.min(2), Mode::Persistent);
    let mut lanes: Vec<_> = regions.iter().map(|_| Arc::clone(&device).lane().unwrap()).collect();
    let (hanging, next) = (chunk(&mut regions[0], HANG), chunk(&mut regions[0], 0));
    let buffers = [hanging.descriptors[0], next.descriptors[0]];
    lanes[0].submit(&mut regions[0], hanging).unwrap();
    lanes[0].submit(&mut regions[0], next).unwrap();
    // A work-group that does not hang continues to work.
    if let (Some(lane), Some(region)) = (lanes.get_mut(1), regions.get_mut(1)) {
        let healthy = chunk(region, 0);
        lane.submit(region, healthy).unwrap();
        while lane.poll(region).unwrap().is_none() {}
    }
    let (back, chunks) = until_lost(&mut *lanes[0], &mut regions[0], SILENT);
    assert_eq!(back, 0);
    assert_eq!(chunks.iter().map(|chunk| chunk.descriptors[0]).collect::<Vec<_>>(), buffers);
    for (lane, region) in lanes.iter_mut().zip(&mut regions).skip(1) {
        let (back, chunks) = until_lost(&mut **lane, region, SILENT);
        assert_eq!((back, chunks.len()), (0, 0));
    }
    for (lane, region) in lanes.iter_mut().zip(&mut regions) {
        assert_lost(&mut **lane, region);
    }
    drop((lanes, device, regions));
}

#[test]
#[ignore = "hangs a core until its process exits: run by `all_lanes_of_a_device_that_hangs_report_it_lost`"]
fn hangs_in_a_persistent_group_that_is_dropped() {
    let (device, mut regions) = device(1, Mode::Persistent);
    let mut lane = Arc::clone(&device).lane().unwrap();
    let hanging = chunk(&mut regions[0], HANG);
    lane.submit(&mut regions[0], hanging).unwrap();
    drop((device, lane, regions));
}

#[test]
fn all_lanes_of_a_device_that_hangs_report_it_lost() {
    if processor().is_none() {
        skip("no usable OpenCL device runs on the processor");
        return;
    }
    let launched = ["hangs_under_two_lanes", "hangs_under_a_lane_that_is_dropped"];
    let persistent = ["hangs_in_a_persistent_group", "hangs_in_a_persistent_group_that_is_dropped"];
    let is_persistent = processor().is_some_and(|number| probe().found[number].lacks(Mode::Persistent).is_none());
    for name in launched.into_iter().chain(persistent.into_iter().filter(|_| is_persistent)) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", name, "--ignored", "--nocapture"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let started = Instant::now();
        let status = loop {
            match child.try_wait().unwrap() {
                Some(status) => break Some(status),
                None if started.elapsed() > TIMEOUT => break None,
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        let _ = child.kill();
        let output = child.wait_with_output().unwrap();
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(status.is_some_and(|status| status.success()), "{name}: {status:?}: {text}");
    }
}
