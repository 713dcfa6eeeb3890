//! Persistent groups under OpenCL: nothing stale is ever read, on either side; and where there can be no groups, the
//! device runs in launch mode and says why.

mod stress;
mod template;

use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use godwit_abi::Bin;
use godwit_device::opencl::{OpenClDevice, probe};
use godwit_device::{Device, DeviceOptions, Mode, Program, arena_memory};
use godwit_packet::{Arena, ArenaConfig};
use godwit_sched::Chunk;

use stress::{BIN_PACKETS, BUFFERS, by_workers, fill, packets, run, run_programs, summing_kernels};
use template::Template;

/// Groups of a processor take cores for themselves: one test at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A device with a persistent mode; says so when there is none.
fn device_number() -> Option<usize> {
    let able = |found: &godwit_device::Found| found.usable.is_ok() && found.lacks(Mode::Persistent).is_none();
    let number = probe().found.iter().position(able);
    if number.is_none() {
        // Past the test harness, which shows nothing of a test that passes.
        std::io::stderr().write_all(b"skipped: no OpenCL device here has a persistent mode\n").unwrap();
    }
    number
}

fn kernels() -> String {
    summing_kernels(godwit_kernels::opencl_source())
}

/// See [`by_workers`].
#[test]
fn nobody_ever_reads_anything_stale() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(number) = device_number() else { return };
    let lanes = probe().found[number].capabilities.compute_units.min(4);
    let config = ArenaConfig { packets: BUFFERS, ..ArenaConfig::default() };
    let memory = arena_memory(&[&format!("opencl:{number}")], Arena::bytes_for(&config, lanes).unwrap()).unwrap();
    let arena = Arena::over(memory, config, lanes).unwrap();
    let watchdog = Duration::from_secs(60);
    let options =
        DeviceOptions { mode: Mode::Persistent, lanes, bin_packets: BIN_PACKETS, watchdog, ..Default::default() };
    let programs: Vec<Arc<dyn Program>> = vec![Arc::new(Template)];
    let device = OpenClDevice::with_kernels(number, programs, &arena.handle(), &options, &kernels()).unwrap();
    assert_eq!((device.mode(), device.fallback()), (Mode::Persistent, None));
    by_workers(Arc::new(device), arena.split(), packets());
}

/// A device that cannot run in persistent mode runs launched, and does its work.
#[test]
fn without_what_groups_need_a_device_is_launched_and_says_why() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(number) = device_number() else { return };
    let units = probe().found[number].capabilities.compute_units;
    for (lanes, is_shared, reason) in [(1, false, "the arena does not lie in memory"), (units + 1, true, "workers")] {
        let config = ArenaConfig { packets: BUFFERS, ..ArenaConfig::default() };
        let arena = match is_shared {
            false => Arena::new(config, 1).unwrap(),
            true => {
                let bytes = Arena::bytes_for(&config, 1).unwrap();
                let memory = arena_memory(&["cpu", "nonsense", &format!("opencl:{number}")], bytes).unwrap();
                Arena::over(memory, config, 1).unwrap()
            }
        };
        let options = DeviceOptions { mode: Mode::Persistent, lanes, ..DeviceOptions::default() };
        let programs: Vec<Arc<dyn Program>> = vec![Arc::new(Template)];
        let device = OpenClDevice::with_kernels(number, programs, &arena.handle(), &options, &kernels()).unwrap();
        assert_eq!(device.mode(), Mode::Launch);
        let said = device.fallback().unwrap();
        assert!(said.contains("runs in launch mode") && said.contains(reason), "{said}");
        let mut lane = Arc::new(device).lane().unwrap();
        run(&mut *lane, &mut arena.split()[0], 0, 10_000);
    }
}

/// Groups that a function has by share serve no other, those without a share are served by all, and what each does is right.
#[test]
fn groups_are_split_between_functions_by_share() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(number) = device_number() else { return };
    let units = probe().found[number].capabilities.compute_units;
    for (share, lanes) in [(vec![1, 0, 1], 1), (vec![0, 5, 0], 1), (vec![1; units + 1], 1), (vec![1, 1, 0], units)] {
        let config = ArenaConfig { packets: BUFFERS, ..ArenaConfig::default() };
        let memory = arena_memory(&[&format!("opencl:{number}")], Arena::bytes_for(&config, 1).unwrap()).unwrap();
        let arena = Arena::over(memory, config, 1).unwrap();
        let options = DeviceOptions {
            mode: Mode::Persistent,
            lanes,
            bin_packets: BIN_PACKETS,
            watchdog: Duration::from_secs(60),
            share: share.clone(),
            ..DeviceOptions::default()
        };
        let count = share.len();
        let programs: Vec<Arc<dyn Program>> = (0..count).map(|_| Arc::new(Template) as Arc<dyn Program>).collect();
        let device = OpenClDevice::with_kernels(number, programs, &arena.handle(), &options, &kernels());
        let device = Arc::new(device.unwrap());
        let named = share.iter().filter(|share| **share > 0).count();
        let mut lane = Arc::clone(&device).lane().unwrap();
        let bins = run_programs(&mut *lane, &mut arena.split()[0], 0, 100_000, count);
        let by_group = lane.bins_by_group();
        if named * lanes > units {
            // Too few of them: launched, which does as well.
            let said = device.fallback().unwrap();
            assert!(said.contains(&format!("{named} functions have a share")), "{said}");
            assert_eq!((device.mode(), by_group.len()), (Mode::Launch, 0));
            continue;
        }
        assert_eq!((device.mode(), device.fallback()), (Mode::Persistent, None), "{share:?}");
        assert!(by_group.len() >= named, "{by_group:?}");
        for (program, share) in share.iter().enumerate() {
            let given: Vec<u64> = by_group.iter().map(|group| group[program]).collect();
            assert_eq!(given.iter().sum::<u64>(), bins[program], "{by_group:?}");
            let others = |group: &&Vec<u64>| {
                group
                    .iter()
                    .zip(&options.share)
                    .enumerate()
                    .any(|(other, (bins, share))| other != program && *share > 0 && *bins > 0)
            };
            // A group that serves it by share has nothing of another function that has a share.
            let mixed = by_group.iter().filter(|group| *share > 0 && group[program] > 0).filter(others).count();
            assert_eq!(mixed, 0, "{share:?}: {by_group:?}");
        }
    }
}

/// Groups outlive lanes: a lane that is dropped makes room for the next, and there are no more than were asked for.
#[test]
fn a_lane_that_is_dropped_makes_room_for_another() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(number) = device_number() else { return };
    let config = ArenaConfig { packets: BUFFERS, ..ArenaConfig::default() };
    let memory = arena_memory(&[&format!("opencl:{number}")], Arena::bytes_for(&config, 1).unwrap()).unwrap();
    let arena = Arena::over(memory, config, 1).unwrap();
    let options = DeviceOptions { mode: Mode::Persistent, bin_packets: BIN_PACKETS - 1, ..DeviceOptions::default() };
    let programs: Vec<Arc<dyn Program>> = vec![Arc::new(Template)];
    let device = OpenClDevice::with_kernels(number, programs, &arena.handle(), &options, &kernels()).unwrap();
    let device = Arc::new(device);
    let region = &mut arena.split()[0];
    for round in 0..20 {
        let mut lane = Arc::clone(&device).lane().unwrap();
        let Err(error) = Arc::clone(&device).lane() else { panic!("there is one lane") };
        assert!(error.to_string().contains("all of them are taken"), "{error}");
        run(&mut *lane, region, round * 1000, round * 1000 + 1000);
        // With something in flight, which is waited for.
        let mut next = 0;
        let chunk = fill(region, Chunk::new(3, 3 * BIN_PACKETS), &mut next, 100);
        let buffers: Vec<_> = chunk.bins.iter().flat_map(|bin| chunk.descriptors[chunk.range(bin)].to_vec()).collect();
        lane.submit(region, chunk).unwrap();
        drop(lane);
        buffers.iter().for_each(|buffer| region.release(buffer));
    }
    let mut lane = Arc::clone(&device).lane().unwrap();
    let mut large = Chunk::new(1, 2 * BIN_PACKETS);
    large.bins.push(Bin { count: 1 + BIN_PACKETS as u16, kernel: godwit_kernels::TEMPLATE, ..Bin::default() });
    large.descriptors.fill(region.allocate(64).unwrap());
    let rejected = lane.submit(region, large).unwrap_err();
    assert!(rejected.error.to_string().contains("larger than the 64 announced"), "{}", rejected.error);
}
