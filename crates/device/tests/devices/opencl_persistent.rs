//! Tests of persistent work-groups on OpenCL devices. They cover stale data, the weights of
//! functions, and the fallback to launch mode.

use std::sync::Arc;
use std::time::Duration;

use godwit_abi::Bin;
use godwit_device::opencl::{OpenClDevice, probe};
use godwit_device::{Device, DeviceOptions, Mode, Program, arena_memory};
use godwit_packet::{Arena, ArenaConfig};
use godwit_sched::Chunk;
use godwit_test_support::skip;

use crate::stress::{BIN_PACKETS, BUFFERS, by_workers, fill, run, run_programs, summing_kernels};
use crate::stress_packets;
use crate::template::Template;
use crate::turn::turn;

/// Returns the number of a device that supports persistent mode. Prints a message if there is none.
fn device_number() -> Option<usize> {
    let able = |found: &godwit_device::Found| found.usable.is_ok() && found.lacks(Mode::Persistent).is_none();
    let number = probe().found.iter().position(able);
    if number.is_none() {
        skip("no OpenCL device has a persistent mode");
    }
    number
}

fn kernels() -> String {
    summing_kernels(godwit_kernels::opencl_source())
}

#[test]
fn no_stale_data_is_read() {
    let _turn = turn();
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
    by_workers(Arc::new(device), arena.split(), stress_packets());
}

#[test]
fn falls_back_to_launch_mode_with_a_reason() {
    let _turn = turn();
    let Some(number) = device_number() else { return };
    let units = probe().found[number].capabilities.compute_units;
    for (lanes, is_shared, reason) in [(1, false, "shared virtual memory"), (units + 1, true, "workers")] {
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
        let fallback = device.fallback().unwrap();
        assert!(fallback.contains("launch mode") && fallback.contains(reason), "{fallback}");
        let mut lane = Arc::new(device).lane().unwrap();
        run(&mut *lane, &mut arena.split()[0], 0, 10_000);
    }
}

/// Checks the weights of functions. A work-group that is reserved for one function serves no other
/// function with a weight. Any work-group serves functions without a weight.
#[test]
fn divides_groups_between_functions_by_share() {
    let _turn = turn();
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
            // The device has too few work-groups for the weights, and uses launch mode.
            let fallback = device.fallback().unwrap();
            assert!(fallback.contains(&format!("{named} shares")), "{fallback}");
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
            // The work-group that is reserved for this function has received no batch of another
            // function with a weight.
            let mixed = by_group.iter().filter(|group| *share > 0 && group[program] > 0).filter(others).count();
            assert_eq!(mixed, 0, "{share:?}: {by_group:?}");
        }
    }
}

/// Checks that work-groups live longer than the connections of workers. The number of connections
/// is limited, and dropping one allows another one.
#[test]
fn a_dropped_lane_makes_room_for_another() {
    let _turn = turn();
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
        let Err(error) = Arc::clone(&device).lane() else { panic!("opened a second lane") };
        assert!(error.to_string().contains("1 lanes"), "{error}");
        run(&mut *lane, region, round * 1000, round * 1000 + 1000);
        // The connection is dropped while a submission is in flight. The drop waits until the
        // submission is finished.
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
    assert!(rejected.error.to_string().contains("limit of 64 packets"), "{}", rejected.error);
}
