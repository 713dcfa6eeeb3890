//! An OpenCL device whose kernel hangs: the watchdog finds it, every lane gives its chunks back, nothing waits for the
//! kernel for ever, and the process can end.
//!
//! The kernel really hangs, in a process of its own: a core goes with it until that process ends.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use godwit_abi::{Bin, Descriptor, Outcome};
use godwit_device::opencl::{OpenClDevice, probe};
use godwit_device::{Device, DeviceOptions, Error, Lane, Program};
use godwit_packet::{Arena, ArenaConfig, Region};
use godwit_sched::Chunk;

/// The variant that makes the kernel hang.
const HANG: u8 = 99;
/// Far more than a process that ends takes.
const PATIENCE: Duration = Duration::from_secs(100);

/// The function `template`, as far as a device needs it.
struct Template;

impl Program for Template {
    fn name(&self) -> &str {
        "template"
    }

    fn kernel(&self) -> u8 {
        godwit_kernels::TEMPLATE
    }

    fn image(&self) -> &[u8] {
        &[]
    }

    fn variant(&self) -> u8 {
        0
    }

    fn reads_bytes(&self) -> u16 {
        u16::MAX
    }

    fn writes_bytes(&self) -> u16 {
        u16::MAX
    }

    fn headroom_bytes(&self) -> u16 {
        0
    }

    fn tailroom_bytes(&self) -> u16 {
        0
    }

    fn run_ref(&self, _: &mut [u8], _: &mut Descriptor, _: u8, _: u64) -> Outcome {
        unreachable!("nothing is compared")
    }
}

/// Godwit's kernels, but a group that comes to a bin of the variant [`HANG`] stays there.
fn hanging_kernels() -> String {
    let source = godwit_kernels::opencl_source();
    let after = "const gw_bin bin = chunk.bins[index];";
    let spin = "while (((volatile __global const gw_bin *)bins)[index].variant == 99u) {}";
    assert!(source.contains(after), "gw_chunk no longer reads its bin so");
    source.replace(after, &format!("{after} {spin}"))
}

fn chunk(region: &mut Region, variant: u8) -> Chunk {
    let mut chunk = Chunk::new(1, 1);
    chunk.bins.push(Bin { count: 1, kernel: godwit_kernels::TEMPLATE, variant, ..Bin::default() });
    chunk.descriptors[0] = region.allocate(64).unwrap();
    chunk.packets = 1;
    chunk
}

/// A device that is the processor itself: others may be somebody else's too.
fn processor() -> Option<usize> {
    probe().found.iter().position(|found| found.usable.is_ok() && found.kind == "cpu")
}

fn device(regions: usize) -> Option<(Arc<OpenClDevice>, Vec<Region>)> {
    let number = processor()?;
    let arena = Arena::new(ArenaConfig { packets: 8, ..ArenaConfig::default() }, regions).unwrap();
    let options = DeviceOptions { watchdog: Duration::from_millis(500), lanes: regions, ..DeviceOptions::default() };
    let programs: Vec<Arc<dyn Program>> = vec![Arc::new(Template)];
    let device = OpenClDevice::with_kernels(number, programs, &arena.handle(), &options, &hanging_kernels()).unwrap();
    Some((Arc::new(device), arena.split()))
}

/// What the lane gives back until it says that the device is lost, and what it hands back then.
fn until_lost(lane: &mut dyn Lane, region: &mut Region) -> (usize, Vec<Chunk>) {
    let mut back = 0;
    loop {
        match lane.poll(region) {
            Ok(Some(_)) => back += 1,
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
            Err(Error::Lost { id, reason, chunks }) => {
                assert!(id.starts_with("opencl:") && reason.contains("no chunk back"), "{id}: {reason}");
                return (back, chunks);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
#[ignore = "hangs a core until its process ends: run by `a_device_that_hangs_is_lost_to_all_its_lanes`"]
fn hangs_under_two_lanes() {
    let (device, mut regions) = device(3).unwrap();
    let mut lanes: Vec<_> = (0..3).map(|_| Arc::clone(&device).lane().unwrap()).collect();
    // The first lane finds the device lost. Its chunks come back in the order in which they went.
    let (healthy, hanging, behind) =
        (chunk(&mut regions[0], 0), chunk(&mut regions[0], HANG), chunk(&mut regions[0], 0));
    let windows = [hanging.descriptors[0], behind.descriptors[0]];
    lanes[0].submit(&mut regions[0], healthy).unwrap();
    while lanes[0].poll(&mut regions[0]).unwrap().is_none() {}
    lanes[0].submit(&mut regions[0], hanging).unwrap();
    lanes[0].submit(&mut regions[0], behind).unwrap();
    let other = chunk(&mut regions[1], 0);
    lanes[1].submit(&mut regions[1], other).unwrap();
    let (back, chunks) = until_lost(&mut *lanes[0], &mut regions[0]);
    assert_eq!(back, 0);
    assert_eq!(chunks.iter().map(|chunk| chunk.descriptors[0]).collect::<Vec<_>>(), windows);
    // The second had a chunk, which the device may have finished; the third had none.
    let (back, chunks) = until_lost(&mut *lanes[1], &mut regions[1]);
    assert_eq!(back + chunks.len(), 1);
    let (back, chunks) = until_lost(&mut *lanes[2], &mut regions[2]);
    assert_eq!((back, chunks.len()), (0, 0));
    for (lane, region) in lanes.iter_mut().zip(&mut regions) {
        assert_eq!(lane.in_flight(), 0);
        assert!(lane.poll(region).unwrap().is_none(), "a device is lost once");
        let late = chunk(region, 0);
        let window = late.descriptors[0];
        let rejected = lane.submit(region, late).unwrap_err();
        assert!(matches!(rejected.error, Error::Unusable { .. }), "{}", rejected.error);
        assert_eq!(rejected.chunk.descriptors[0], window);
    }
    assert!(Arc::clone(&device).lane().is_err());
    drop((lanes, device, regions));
}

#[test]
#[ignore = "hangs a core until its process ends: run by `a_device_that_hangs_is_lost_to_all_its_lanes`"]
fn hangs_under_a_lane_that_is_dropped() {
    let (device, mut regions) = device(1).unwrap();
    let mut lane = Arc::clone(&device).lane().unwrap();
    let hanging = chunk(&mut regions[0], HANG);
    lane.submit(&mut regions[0], hanging).unwrap();
    drop((lane, device, regions));
    // What a program does that has no `main` to return from.
    std::process::exit(0);
}

#[test]
fn a_device_that_hangs_is_lost_to_all_its_lanes() {
    if processor().is_none() {
        // Past the test harness, which shows nothing of a test that passes.
        std::io::stderr().write_all(b"skipped: no OpenCL device here is a processor and can be used\n").unwrap();
        return;
    }
    for name in ["hangs_under_two_lanes", "hangs_under_a_lane_that_is_dropped"] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", name, "--ignored", "--nocapture"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let started = Instant::now();
        let status = loop {
            match child.try_wait().unwrap() {
                Some(status) => break Some(status),
                None if started.elapsed() > PATIENCE => break None,
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        let _ = child.kill();
        let output = child.wait_with_output().unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(status.is_some_and(|status| status.success()), "{name}: {status:?}: {said}");
    }
}
