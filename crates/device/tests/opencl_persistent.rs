//! Persistent groups under OpenCL: nothing stale is ever read, on either side; and where there can be no groups, the
//! device runs in launch mode and says why.

mod template;

use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use godwit_abi::{Bin, Outcome};
use godwit_device::opencl::{OpenClDevice, probe};
use godwit_device::{Device, DeviceOptions, Lane, Mode, Program, arena_memory};
use godwit_packet::{Arena, ArenaConfig, Region};
use godwit_sched::Chunk;

use template::Template;

/// The variant that reads and writes whole frames.
const WHOLE: u8 = 77;
const BIN_PACKETS: usize = 64;
const IN_FLIGHT: usize = 4;
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

/// Godwit's kernels, but `template` does something else for the variant [`WHOLE`]: it sums up what it finds in the frame,
/// which is its outcome, and inverts every byte.
fn summing_kernels() -> String {
    let before = "gw_swap_macs(gw_frame(lane, descriptor));\n    gw_verdict(outcome, GW_TEMPLATE_FORWARD, 0, 0);";
    let instead = "
        if (lane->variant == 77u) {
            GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
            gw_u32 sum = (gw_u32)lane->parameter;
            for (gw_u32 at = 0; at < descriptor->length; at += 4) {
                const gw_u32 word = gw_load_be32(frame + at);
                sum = sum * 16777619u ^ word;
                gw_store_be32(frame + at, ~word);
            }
            gw_verdict(outcome, GW_TEMPLATE_FORWARD, 0, sum);
            return;
        }";
    let source = godwit_kernels::opencl_source();
    assert!(source.contains(before), "template is another");
    source.replace(before, &format!("{instead}\n    {before}"))
}

/// Random numbers for a packet (splitmix64), from which its length and its content follow.
fn mixed(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A multiple of 4; mostly short, so that there are many.
fn length(number: u64) -> usize {
    let random = mixed(number);
    16 + 4 * (if random & 15 == 0 { random >> 32 & 255 } else { random >> 32 & 31 }) as usize
}

/// The words of its frame.
fn content(number: u64) -> impl Iterator<Item = u32> {
    let mut state = mixed(number) as u32 | 1;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state
    })
}

/// Fills the next window there is with packet `number`.
fn write(region: &mut Region, chunk: &mut Chunk, at: usize, number: u64) {
    let descriptor = region.allocate(length(number)).expect("the region has windows for all chunks in flight");
    for (bytes, word) in region.frame_mut(&descriptor).chunks_exact_mut(4).zip(content(number)) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    chunk.descriptors[at] = descriptor;
    chunk.parameters[at] = number;
    chunk.outcomes[at] = Outcome::drop(77);
}

/// A chunk of bins of any number and size, some of them empty.
fn fill(region: &mut Region, mut chunk: Chunk, next: &mut u64, end: u64) -> Chunk {
    chunk.bins.clear();
    chunk.packets = 0;
    let bins_max = chunk.descriptors.len() / BIN_PACKETS;
    let random = mixed(!*next);
    for bin in 0..1 + random as usize % bins_max {
        let first = bin * BIN_PACKETS;
        let count = (mixed(random.wrapping_add(bin as u64)) % (BIN_PACKETS as u64 + 1)).min(end - *next) as usize;
        for at in first..first + count {
            write(region, &mut chunk, at, *next);
            *next += 1;
        }
        let (count, first) = (count as u16, first as u32);
        chunk.bins.push(Bin { first, count, kernel: godwit_kernels::TEMPLATE, variant: WHOLE, ..Bin::default() });
        chunk.packets += u32::from(count);
    }
    chunk
}

/// Demands that the device has seen all of each packet, and that all that it wrote is seen here.
fn check(region: &mut Region, chunk: &Chunk) {
    for bin in &chunk.bins {
        for at in chunk.range(bin) {
            let (descriptor, number) = (chunk.descriptors[at], chunk.parameters[at]);
            let mut sum = number as u32;
            let frame = region.frame(&descriptor);
            assert_eq!(frame.len(), length(number));
            for (at, (bytes, word)) in frame.chunks_exact(4).zip(content(number)).enumerate() {
                sum = sum.wrapping_mul(16_777_619) ^ word;
                assert_eq!(bytes, (!word).to_be_bytes(), "packet {number}: word {at} is not what the device wrote");
            }
            let expected = Outcome { value: sum, ..Outcome::verdict(0) };
            assert_eq!(chunk.outcomes[at], expected, "packet {number}: the device read something else");
            region.release(&descriptor);
        }
    }
}

/// Sends packets `next..end` through a lane. Windows are used again at once: the slot freed last comes first.
fn run(lane: &mut dyn Lane, region: &mut Region, next: u64, end: u64) {
    run_programs(lane, region, next, end, 1);
}

/// The same with bins for so many programs in turn; how many bins each of them had.
fn run_programs(lane: &mut dyn Lane, region: &mut Region, mut next: u64, end: u64, programs: usize) -> Vec<u64> {
    let mut bins = vec![0; programs];
    let mut spare: Vec<_> = (0..IN_FLIGHT).map(|bins| Chunk::new(48, BIN_PACKETS * [48, 3, 17, 30][bins])).collect();
    while next < end || lane.in_flight() > 0 {
        if next < end && !spare.is_empty() {
            let chunk = spare.swap_remove(mixed(next) as usize % spare.len());
            let mut chunk = fill(region, chunk, &mut next, end);
            for (bin, program) in chunk.bins.iter_mut().zip((0..programs).cycle()) {
                bin.instance = program as u16;
                bins[program] += 1;
            }
            lane.submit(region, chunk).unwrap_or_else(|rejected| panic!("{}", rejected.error));
        }
        while let Some(chunk) = lane.poll(region).unwrap() {
            assert_eq!(lane.bin_times().len(), chunk.bins.len());
            check(region, &chunk);
            spare.push(chunk);
        }
    }
    assert_eq!(region.allocated(), 0);
    bins
}

/// Many packets, each different from all others, through windows and places that are used again and again, by several
/// workers at once: whoever reads what was there before, or half of what is there, is found out. More of them with
/// `GODWIT_STRESS_PACKETS`.
#[test]
fn nobody_ever_reads_anything_stale() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(number) = device_number() else { return };
    let packets = std::env::var("GODWIT_STRESS_PACKETS").ok().map(|text| text.parse().expect("a number"));
    let packets: u64 = packets.unwrap_or(2_000_000);
    let lanes = probe().found[number].capabilities.compute_units.min(4);
    let config = ArenaConfig { packets: 100 * BIN_PACKETS, ..ArenaConfig::default() };
    let memory = arena_memory(&[&format!("opencl:{number}")], Arena::bytes_for(&config, lanes).unwrap()).unwrap();
    let arena = Arena::over(memory, config, lanes).unwrap();
    let watchdog = Duration::from_secs(60);
    let options =
        DeviceOptions { mode: Mode::Persistent, lanes, bin_packets: BIN_PACKETS, watchdog, ..Default::default() };
    let programs: Vec<Arc<dyn Program>> = vec![Arc::new(Template)];
    let device = OpenClDevice::with_kernels(number, programs, &arena.handle(), &options, &summing_kernels()).unwrap();
    assert_eq!((device.mode(), device.fallback()), (Mode::Persistent, None));
    let device = Arc::new(device);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for (worker, mut region) in (0..).zip(arena.split()) {
            let mut lane = Arc::clone(&device).lane().unwrap();
            let share = packets / lanes as u64;
            scope.spawn(move || run(&mut *lane, &mut region, worker * share, (worker + 1) * share));
        }
    });
    println!("{packets} packets by {lanes} workers in {:.1} s", started.elapsed().as_secs_f64());
}

/// A device that cannot run in persistent mode runs launched, and does its work.
#[test]
fn without_what_groups_need_a_device_is_launched_and_says_why() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(number) = device_number() else { return };
    let units = probe().found[number].capabilities.compute_units;
    for (lanes, is_shared, reason) in [(1, false, "the arena does not lie in memory"), (units + 1, true, "workers")] {
        let config = ArenaConfig { packets: 100 * BIN_PACKETS, ..ArenaConfig::default() };
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
        let device =
            OpenClDevice::with_kernels(number, programs, &arena.handle(), &options, &summing_kernels()).unwrap();
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
        let config = ArenaConfig { packets: 100 * BIN_PACKETS, ..ArenaConfig::default() };
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
        let device = OpenClDevice::with_kernels(number, programs, &arena.handle(), &options, &summing_kernels());
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
    let config = ArenaConfig { packets: 100 * BIN_PACKETS, ..ArenaConfig::default() };
    let memory = arena_memory(&[&format!("opencl:{number}")], Arena::bytes_for(&config, 1).unwrap()).unwrap();
    let arena = Arena::over(memory, config, 1).unwrap();
    let options = DeviceOptions { mode: Mode::Persistent, bin_packets: BIN_PACKETS - 1, ..DeviceOptions::default() };
    let programs: Vec<Arc<dyn Program>> = vec![Arc::new(Template)];
    let device = OpenClDevice::with_kernels(number, programs, &arena.handle(), &options, &summing_kernels()).unwrap();
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
        let windows: Vec<_> = chunk.bins.iter().flat_map(|bin| chunk.descriptors[chunk.range(bin)].to_vec()).collect();
        lane.submit(region, chunk).unwrap();
        drop(lane);
        windows.iter().for_each(|window| region.release(window));
    }
    let mut lane = Arc::clone(&device).lane().unwrap();
    let mut large = Chunk::new(1, 2 * BIN_PACKETS);
    large.bins.push(Bin { count: 1 + BIN_PACKETS as u16, kernel: godwit_kernels::TEMPLATE, ..Bin::default() });
    large.descriptors.fill(region.allocate(64).unwrap());
    let rejected = lane.submit(region, large).unwrap_err();
    assert!(rejected.error.to_string().contains("larger than the 64 announced"), "{}", rejected.error);
}
