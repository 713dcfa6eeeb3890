//! Tests of the OpenCL devices of this machine. They cover every function in mixed submissions,
//! lost packets, defective submissions, and machines without OpenCL.

use std::process::Command;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use godwit_abi::{Bin, Descriptor, VERDICT_DROP};
use godwit_device::opencl::{ID, OpenClDevice, probe};
use godwit_device::{Device, DeviceOptions, Error, Lane, Mode, Program, arena_memory};
use godwit_packet::{Arena, ArenaConfig, ArenaHandle, Backing, Layout, Region};
use godwit_sched::{Chunk, Insert, Packer, PackerConfig};
use godwit_test_cases::build;
use godwit_test_support::{Folder, Random, skip};

use crate::defective::{FAULTS, assert_rejected};
use crate::matrix::{self, FunctionProgram, IN_FLIGHT, Order, Packet, Scope, compare_with_ref, print_once, usable};
use crate::turn::turn;

/// A device with its mode and its kind of memory.
#[derive(Clone, Copy, Debug)]
struct Setup {
    number: usize,
    mode: Mode,
    /// Whether packets are copied to the device's own memory and back.
    own: bool,
}

/// Returns every device that Godwit can use, in each of its modes. The test has exclusive use of
/// the devices. Prints a message if there is none.
fn setups() -> (Vec<Setup>, MutexGuard<'static, ()>) {
    let turn = turn();
    let probe = probe();
    let usable = usable(&probe);
    if usable.is_empty() {
        return (Vec::new(), turn);
    }
    let setups_of = |&number: &usize| {
        let found = &probe.found[number];
        let modes = [Mode::Launch, Mode::Persistent].into_iter().filter(|mode| found.lacks(*mode).is_none());
        let setups = modes.map(move |mode| Setup { number, mode, own: !found.host_memory });
        // Devices that work on host memory are also tested with copies.
        setups.chain(found.host_memory.then_some(Setup { number, mode: Mode::Launch, own: true }))
    };
    let setups: Vec<_> = usable.iter().flat_map(setups_of).collect();
    let names: Vec<_> = setups.iter().map(matrix::Setup::name).collect();
    print_once(&format!("OpenCL tests run on: {}", names.join(", ")));
    (setups, turn)
}

impl Setup {
    fn arena(self, config: ArenaConfig, workers: usize) -> Arena {
        match self.mode {
            Mode::Launch => Arena::new(config, workers).unwrap(),
            Mode::Persistent => {
                let bytes = Arena::bytes_for(&config, workers).unwrap();
                let memory = arena_memory(&[&format!("{ID}:{}", self.number)], bytes).unwrap();
                assert_eq!(memory.backing(), Backing::Device);
                Arena::over(memory, config, workers).unwrap()
            }
        }
    }

    fn small_arena(self, packets: usize, workers: usize) -> (ArenaHandle, Vec<Region>) {
        let arena = self.arena(ArenaConfig { packets, ..ArenaConfig::default() }, workers);
        (arena.handle(), arena.split())
    }

    /// Returns the number of workers, limited to the number that the device supports. In persistent
    /// mode, each worker needs a work-group, and each work-group needs a compute unit.
    fn workers(self, requested: usize) -> usize {
        match self.mode {
            Mode::Launch => requested,
            Mode::Persistent => requested.min(probe().found[self.number].capabilities.compute_units),
        }
    }

    fn device(self, programs: Vec<Arc<dyn Program>>, arena: &ArenaHandle, lanes: usize) -> Arc<OpenClDevice> {
        // The timeout is long, so that a busy test machine does not trigger the watchdog.
        let options = DeviceOptions { mode: self.mode, lanes, watchdog: Duration::from_secs(60), ..Default::default() };
        let device = match self.own {
            true => OpenClDevice::with_own_memory(self.number, programs, arena, &options),
            false => OpenClDevice::new(self.number, programs, arena, &options),
        };
        let device = device.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((device.mode(), device.fallback()), (self.mode, None));
        Arc::new(device)
    }

    fn lane(self, programs: Vec<Arc<dyn Program>>, arena: &ArenaHandle) -> Box<dyn Lane> {
        self.device(programs, arena, 1).lane().unwrap()
    }
}

impl matrix::Setup for Setup {
    fn name(&self) -> String {
        let copies = if self.own { " with copies" } else { "" };
        format!("{} {}{copies}", probe().found[self.number].capabilities.name, self.mode.name())
    }

    fn copies(&self) -> bool {
        self.own
    }

    fn arena(&self, config: ArenaConfig) -> Arena {
        Self::arena(*self, config, 1)
    }

    fn lane(&self, programs: Vec<Arc<dyn Program>>, arena: &ArenaHandle) -> Box<dyn Lane> {
        Self::lane(*self, programs, arena)
    }
}

#[test]
fn every_function_matches_ref_in_mixed_chunks() {
    let (setups, _turn) = setups();
    compare_with_ref(&setups, &Scope::ALL);
}

/// The test `kernels_pass_oclgrind` runs this test under oclgrind, a simulator that checks memory
/// accesses.
#[test]
#[ignore = "only useful in the environment of `kernels_pass_oclgrind`: too slow elsewhere, and too few packets"]
fn a_few_packets_under_oclgrind() {
    // The test uses about ten short packets of each kind, because oclgrind is a slow simulator.
    let picks = |packet: &Packet| packet.before.flow_hash.is_multiple_of(97) && packet.before.length <= 200;
    let (setups, _turn) = setups();
    let scope = Scope { layouts: &[Layout::Dense], batches: &[33], orders: &[Order::Random, Order::Arrival], picks };
    compare_with_ref(&setups, &scope);
}

/// The test `kernels_pass_oclgrind` runs this test under oclgrind. The simulator must report a
/// race, because all work-items write the same byte.
#[test]
#[ignore = "contains a race; only useful in the environment of `kernels_pass_oclgrind`"]
fn a_race_under_oclgrind() {
    let before = "gw_verdict(outcome, GW_ECHO_FORWARD";
    let source = godwit_kernels::opencl_source();
    assert!(source.contains(before), "the kernel of echo has changed");
    let race = "((GW_GLOBAL gw_u8 *)lane->image)[1] = (gw_u8)gw_lane_id();";
    let handle_and_regions = Arena::new(ArenaConfig { packets: 64, ..ArenaConfig::default() }, 1).unwrap();
    let handle = handle_and_regions.handle();
    let region = &mut handle_and_regions.split()[0];
    let source = source.replace(before, &format!("{race} {before}"));
    let device = OpenClDevice::with_kernels(0, echo(), &handle, &DeviceOptions::default(), &source).unwrap();
    let mut lane = Arc::new(device).lane().unwrap();
    let chunk = echo_chunk(region, 8);
    lane.submit(region, chunk).unwrap();
    while lane.in_flight() > 0 {
        lane.poll(region).unwrap();
    }
}

/// Runs the kernels of all functions under oclgrind, which is installed as an OpenCL driver. It
/// checks every memory access for races and bounds. Compiler optimizations are off, because they
/// generate instructions that oclgrind does not support.
#[test]
fn kernels_pass_oclgrind() {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let driver = std::env::split_paths(&paths)
        .filter(|folder| folder.join("oclgrind").is_file())
        .map(|folder| folder.join("../lib/oclgrind/liboclgrind-rt-icd.so"))
        .find(|driver| driver.is_file());
    let Some(driver) = driver else {
        skip("oclgrind is not installed");
        return;
    };
    let folder = Folder::new();
    folder.write("oclgrind.icd", driver.canonicalize().unwrap().to_str().unwrap());
    let log = folder.join("log");
    let run = |name: &str| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", name, "--ignored", "--nocapture"]).env("OCL_ICD_VENDORS", folder.path());
        command.env_remove("OCL_ICD_FILENAMES");
        command.env("OCLGRIND_DATA_RACES", "1").env("OCLGRIND_MAX_ERRORS", "10").env("OCLGRIND_LOG", &log);
        command.env("OCLGRIND_BUILD_OPTIONS", "-cl-opt-disable");
        // The limit is twice the default, because the tables need more memory.
        command.env("OCLGRIND_GLOBAL_MEM_SIZE", (256 << 20).to_string());
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        (output.status.success(), text, std::fs::read_to_string(&log).unwrap_or_default())
    };
    let (_, text, found) = run("opencl::a_race_under_oclgrind");
    assert!(found.contains("data race"), "oclgrind finds no race: {found}{text}");
    std::fs::remove_file(&log).unwrap();
    let (success, text, found) = run("opencl::a_few_packets_under_oclgrind");
    assert!(success && text.contains("Oclgrind") && found.trim().is_empty(), "{found}{text}");
}

fn echo() -> Vec<Arc<dyn Program>> {
    let function = build("echo", "ports = 7", 256);
    vec![Arc::new(FunctionProgram("echo", function))]
}

/// Checks a device that several workers use at the same time. Each worker makes submissions of all
/// sizes through a separate connection, and polls at random times.
#[test]
fn every_packet_of_every_worker_is_returned_once() {
    const WORKERS: usize = 3;
    const PACKETS: u32 = 60_000;
    let (setups, _turn) = setups();
    for setup in setups {
        let workers = setup.workers(WORKERS);
        let (handle, regions) = setup.small_arena(2048, workers);
        let device = setup.device(echo(), &handle, workers);
        std::thread::scope(|scope| {
            for (worker, mut region) in regions.into_iter().enumerate() {
                let mut lane = Arc::clone(&device).lane().unwrap();
                scope.spawn(move || {
                    let mut random = Random::new(worker as u64);
                    let config = PackerConfig { bins: 8, bin_packets: 64, ..PackerConfig::default() };
                    let mut packer = Packer::new(config, &[godwit_kernels::ECHO], IN_FLIGHT + 1).unwrap();
                    let (mut sent, mut back) = (0, vec![false; PACKETS as usize]);
                    while sent < PACKETS || packer.waiting() > 0 || lane.in_flight() > 0 {
                        for _ in 0..random.below(200) {
                            let length = random.below(1500);
                            let Some(descriptor) = (sent < PACKETS).then(|| region.allocate(length)).flatten() else {
                                break;
                            };
                            let frame = region.frame_mut(&descriptor);
                            frame.fill(sent as u8);
                            frame.iter_mut().take(6).for_each(|byte| *byte = !*byte);
                            let descriptor = Descriptor { flow_hash: sent, ..descriptor };
                            if packer.insert(0, 0, 0, descriptor, 0) == Insert::Refused {
                                region.release(&descriptor);
                                break;
                            }
                            sent += 1;
                        }
                        if packer.waiting() > 0 && packer.has_free_set() {
                            let chunk = packer.take(0).expect("packets wait and a set is free");
                            lane.submit(&mut region, chunk).unwrap_or_else(|rejected| panic!("{}", rejected.error));
                        }
                        while let Some(chunk) = lane.poll(&mut region).unwrap() {
                            for bin in &chunk.bins {
                                for index in chunk.range(bin) {
                                    let descriptor = &chunk.descriptors[index];
                                    let mark = descriptor.flow_hash;
                                    assert!(
                                        !std::mem::replace(&mut back[mark as usize], true),
                                        "{mark} returned twice"
                                    );
                                    // `echo` swaps the addresses of the packets that it returns,
                                    // and drops short packets.
                                    let echoed = descriptor.length >= 46;
                                    assert_eq!(chunk.outcomes[index].verdict != VERDICT_DROP, echoed);
                                    let inverted = if echoed { 6..12 } else { 0..6 };
                                    let fine = |(at, &byte): (usize, &u8)| {
                                        byte == (mark as u8) ^ (255 * u8::from(inverted.contains(&at)))
                                    };
                                    assert!(region.frame(descriptor).iter().enumerate().all(fine), "{mark}");
                                    region.release(descriptor);
                                }
                            }
                            packer.give_back(chunk);
                        }
                    }
                    assert!(back.iter().all(|&back| back));
                    assert_eq!(region.allocated(), 0);
                });
            }
        });
    }
}

/// Returns a submission of `packets` packets for the function `echo`.
fn echo_chunk(region: &mut Region, packets: usize) -> Chunk {
    let mut packer = Packer::new(PackerConfig::default(), &[godwit_kernels::ECHO], 2).unwrap();
    for mark in 0..packets {
        let descriptor = region.allocate(64).unwrap();
        region.frame_mut(&descriptor).fill(mark as u8);
        packer.insert(0, 0, 0, descriptor, 0);
    }
    packer.take(0).unwrap()
}

#[test]
fn rejects_defective_chunks_unchanged() {
    let (setups, _turn) = setups();
    for setup in setups {
        let (handle, mut regions) = setup.small_arena(64, 1);
        let mut lane = setup.lane(echo(), &handle);
        let region = &mut regions[0];
        for (reason, damage) in FAULTS {
            let mut wrong = echo_chunk(region, 8);
            damage(&mut wrong);
            assert_rejected(&mut *lane, region, wrong, reason);
        }
        // This region belongs to memory that the device does not use. The buffers in it could be
        // confused with buffers in the device's packet memory.
        let (_other, mut others) = setup.small_arena(64, 1);
        let wrong = echo_chunk(&mut others[0], 8);
        assert_rejected(&mut *lane, &mut others[0], wrong, "not in the arena");
        // The connection to the device still works after the rejected submission.
        let fine = echo_chunk(region, 8);
        lane.submit(region, fine).unwrap();
        while lane.in_flight() > 0 {
            lane.poll(region).unwrap();
        }
    }
}

#[test]
fn returns_chunks_without_packets() {
    let (setups, _turn) = setups();
    for setup in setups {
        let (handle, mut regions) = setup.small_arena(1, 1);
        let mut lane = setup.lane(echo(), &handle);
        let mut empty_bin = Chunk::new(1, 1);
        empty_bin.bins.push(Bin { kernel: godwit_kernels::ECHO, ..Bin::default() });
        for chunk in [empty_bin, Chunk::new(1, 1), Chunk::new(0, 0)] {
            lane.submit(&mut regions[0], chunk).unwrap();
        }
        let mut back = 0;
        while lane.in_flight() > 0 {
            back += usize::from(lane.poll(&mut regions[0]).unwrap().is_some());
        }
        assert_eq!(back, 3);
    }
}

/// Checks that the device finishes its work in a memory region before this memory is freed.
#[test]
fn dropping_a_lane_waits_for_its_chunks_in_flight() {
    let (setups, _turn) = setups();
    for setup in setups {
        for _ in 0..20 {
            let (handle, mut regions) = setup.small_arena(1024, 1);
            let mut lane = setup.lane(echo(), &handle);
            for _ in 0..IN_FLIGHT {
                let chunk = echo_chunk(&mut regions[0], 256);
                lane.submit(&mut regions[0], chunk).unwrap();
            }
            drop((regions, handle));
            drop(lane);
        }
    }
}

#[test]
fn reports_an_absent_device() {
    let handle = Arena::new(ArenaConfig::default(), 1).unwrap().handle();
    let Err(error) = OpenClDevice::new(4711, Vec::new(), &handle, &DeviceOptions::default()) else {
        panic!("opened an absent device")
    };
    let is_absent = matches!(error, Error::Absent { .. }) || probe().found.is_empty();
    assert!(is_absent && error.to_string().contains("`opencl:4711`"), "{error}");
}

#[test]
fn a_probe_returns_devices_or_a_reason() {
    let probe = probe();
    assert_eq!(probe.found.is_empty(), probe.reason.is_some());
    for (number, found) in probe.found.iter().enumerate() {
        let capabilities = &found.capabilities;
        assert_eq!(capabilities.id, format!("opencl:{number}"));
        assert!(capabilities.compute_units > 0 && capabilities.warp_packets > 0 && capabilities.memory_bytes > 0);
        assert!(!capabilities.name.is_empty() && !found.platform.is_empty() && !found.driver.is_empty());
        assert!(capabilities.features.iter().any(|feature| feature.starts_with("OpenCL C")), "{capabilities:?}");
    }
}

/// The test `reports_why_opencl_is_unavailable` runs this test in another process, with another
/// environment.
#[test]
#[ignore = "only useful in the environment of `reports_why_opencl_is_unavailable`"]
fn prints_why_opencl_is_unavailable() {
    let probe = probe();
    let reason = probe.reason.expect("the probe found a device");
    let handle = Arena::new(ArenaConfig::default(), 1).unwrap().handle();
    let Err(error) = OpenClDevice::new(0, Vec::new(), &handle, &DeviceOptions::default()) else {
        panic!("opened an absent device")
    };
    println!("reason: {reason}\nerror: {error}");
}

#[test]
fn reports_why_opencl_is_unavailable() {
    let folder = Folder::new();
    // The dynamic loader stops its search at the first file with the name of the library, even if
    // it cannot load this file.
    for name in ["libOpenCL.so.1", "libOpenCL.so"] {
        folder.write(name, "not a library");
    }
    let run = |name: &str, value: &std::path::Path| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "opencl::prints_why_opencl_is_unavailable", "--ignored", "--nocapture"])
            .env(name, value);
        // This variable could name additional drivers.
        command.env_remove("OCL_ICD_FILENAMES");
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        text
    };
    let no_loader = run("LD_LIBRARY_PATH", folder.path());
    // An OpenCL loader, if one is installed, searches for drivers only in this folder.
    let is_loader_here = probe().reason.is_none_or(|reason| !reason.to_string().contains("libOpenCL.so.1"));
    let no_driver = run("OCL_ICD_VENDORS", folder.path());
    let lines: Vec<&str> = no_loader.lines().filter(|line| line.contains("libOpenCL.so.1")).collect();
    assert!(lines.iter().any(|line| line.contains("reason: ")), "{no_loader}");
    assert!(lines.iter().any(|line| line.contains("error: ") && line.contains("`opencl:0`")), "{no_loader}");
    let expected = if is_loader_here { "no driver" } else { "libOpenCL.so.1" };
    assert!(no_driver.contains(expected), "{no_driver}");
}
