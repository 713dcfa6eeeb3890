//! The CUDA devices here: every function, in chunks of mixed bins, in both modes and both layouts, does what `ref` does;
//! packets are never lost; and without CUDA there is a sentence.
//!
//! The rows of functions and their frames are those of the matrix in `crates/function/tests`.

#[path = "../../function/tests/matrix/frames.rs"]
mod frames;
#[path = "../../function/tests/matrix/functions.rs"]
mod functions;

use std::io::Write as _;
use std::sync::{Arc, Once};

use godwit_abi::{Bin, Descriptor, Outcome, VERDICT_DROP};
use godwit_device::cuda::{CudaDevice, probe};
use godwit_device::{Device, DeviceOptions, Error, Lane, Mode, Program};
use godwit_function::{Function, Work};
use godwit_packet::{Arena, ArenaConfig, ArenaHandle, Layout, Region};
use godwit_sched::Chunk;

use frames::Random;

/// Packets per bin: alone, around a warp, and the largest.
const BATCHES: [usize; 6] = [1, 2, 31, 32, 33, 256];
/// Chunks in flight at most.
const IN_FLIGHT: usize = 4;

/// A row of the matrix: a function with its configuration, and what it is to be tried with.
struct Case {
    /// The function, and what is special about this row.
    name: &'static str,
    function: Arc<dyn Function>,
    frames: Vec<Vec<u8>>,
}

/// A function as a device sees it.
struct FunctionProgram(&'static str, Arc<dyn Function>);

impl Program for FunctionProgram {
    fn name(&self) -> &str {
        self.0
    }

    fn kernel(&self) -> u8 {
        self.1.contract().kernel
    }

    fn image(&self) -> &[u8] {
        self.1.image()
    }

    fn variant(&self) -> u8 {
        self.1.variant()
    }

    fn reads_bytes(&self) -> u16 {
        self.1.contract().reads_bytes
    }

    fn writes_bytes(&self) -> u16 {
        self.1.contract().writes_bytes
    }

    fn headroom_bytes(&self) -> u16 {
        self.1.contract().headroom_bytes
    }

    fn tailroom_bytes(&self) -> u16 {
        self.1.contract().tailroom_bytes
    }

    fn run_ref(&self, window: &mut [u8], descriptor: &mut Descriptor, variant: u8, parameter: u64) -> Outcome {
        self.1.run_ref(window, descriptor, variant, parameter)
    }
}

fn programs(cases: &[Case]) -> Vec<Arc<dyn Program>> {
    let program = |case: &Case| Arc::new(FunctionProgram(case.name, Arc::clone(&case.function))) as Arc<dyn Program>;
    cases.iter().map(program).collect()
}

/// The numbers of the devices that can be used; says so when there is none.
fn usable() -> Vec<usize> {
    let probe = probe();
    let usable: Vec<_> = (0..probe.found.len()).filter(|&number| probe.found[number].usable.is_ok()).collect();
    if usable.is_empty() {
        let why = probe.reason.unwrap_or_else(|| {
            let reasons = probe.found.iter().filter_map(|found| {
                Some(format!("{} is not used: {}", found.capabilities.id, found.usable.as_ref().err()?))
            });
            reasons.collect::<Vec<_>>().join("; ")
        });
        // Once, and past the test harness, which shows nothing of a test that passes.
        static SAID: Once = Once::new();
        SAID.call_once(|| std::io::stderr().write_all(format!("skipped: {why}\n").as_bytes()).unwrap());
    }
    usable
}

fn lane(number: usize, mode: Mode, programs: Vec<Arc<dyn Program>>, arena: &ArenaHandle) -> Box<dyn Lane> {
    let options = DeviceOptions { mode, ..DeviceOptions::default() };
    let device = CudaDevice::new(number, programs, arena, &options).unwrap_or_else(|error| panic!("{error}"));
    let device = Arc::new(device);
    assert_eq!(device.mode(), mode);
    device.lane().unwrap()
}

/// A packet, what a kernel is to do with it, and what it becomes. Its place in the list is its flow hash.
struct Packet {
    instance: usize,
    variant: u8,
    parameter: u64,
    before: Descriptor,
    window: Vec<u8>,
    after: Descriptor,
    window_after: Vec<u8>,
    outcome: Outcome,
}

/// Puts all frames of all rows into windows that lie back to back, so that writing beyond one shows in the next.
fn prepare(cases: &[Case], region: &mut Region) -> Vec<Packet> {
    let mut packets = Vec::new();
    for (instance, case) in cases.iter().enumerate() {
        let mut descriptors = Vec::new();
        for (order, frame) in case.frames.iter().enumerate() {
            let allocated = region.allocate(frame.len()).expect("the arena has a window for each frame");
            let descriptor = Descriptor { order: order as u16, port: 3, ..allocated };
            region.window_mut(&descriptor).fill((order as u8).wrapping_mul(37));
            region.frame_mut(&descriptor).copy_from_slice(frame);
            descriptors.push(descriptor);
        }
        let mut work = Vec::new();
        match case.function.host_half(0, 1) {
            Some(mut host_half) => host_half.prepare(region, &descriptors, &mut work),
            None => work.resize(descriptors.len(), Work::Run { variant: case.function.variant(), parameter: 0 }),
        }
        let first = packets.len();
        for (before, work) in descriptors.into_iter().zip(work) {
            let Work::Run { variant, parameter } = work else { continue };
            let before = Descriptor { flow_hash: packets.len() as u32, ..before };
            let window = region.window_mut(&before).to_vec();
            let (mut after, mut window_after) = (before, window.clone());
            let outcome = case.function.run_ref(&mut window_after, &mut after, variant, parameter);
            packets.push(Packet { instance, variant, parameter, before, window, after, window_after, outcome });
        }
        assert!(packets.len() - first > 1000, "{}: too few frames get to the kernel", case.name);
    }
    packets
}

/// All packets in chunks of up to 48 bins of up to `batch` packets, the bins in random order.
fn chunks(cases: &[Case], packets: &[Packet], batch: usize, random: Option<&mut Random>) -> Vec<Chunk> {
    let mut order: Vec<&Packet> = packets.iter().collect();
    // A bin is of one function and one variant.
    order.sort_by_key(|packet| (packet.instance, packet.variant));
    let mut bins: Vec<&[&Packet]> = order
        .chunk_by(|a, b| (a.instance, a.variant) == (b.instance, b.variant))
        .flat_map(|same| same.chunks(batch))
        .collect();
    if let Some(random) = random {
        for at in (1..bins.len()).rev() {
            bins.swap(at, random.below(at as u32 + 1) as usize);
        }
    }
    bins.chunks(48).map(|bins| chunk(cases, bins, batch)).collect()
}

fn chunk(cases: &[Case], bins: &[&[&Packet]], batch: usize) -> Chunk {
    let mut chunk = Chunk::new(bins.len(), bins.len() * batch);
    chunk.outcomes.fill(Outcome { verdict: 77, reason: 77, port: 7777, value: 7777 });
    for (index, packets) in bins.iter().enumerate() {
        // As a packer leaves them: bins anywhere in the arrays, and places between them that no bin names.
        let first = (bins.len() - 1 - index) * batch;
        for (at, packet) in (first..).zip(*packets) {
            chunk.descriptors[at] = packet.before;
            chunk.parameters[at] = packet.parameter;
        }
        chunk.bins.push(Bin {
            first: first as u32,
            count: packets.len() as u16,
            kernel: cases[packets[0].instance].function.contract().kernel,
            variant: packets[0].variant,
            instance: packets[0].instance as u16,
            length_bytes: packets.iter().map(|packet| packet.before.length).max().unwrap(),
            ..Bin::default()
        });
        chunk.packets += packets.len() as u32;
    }
    chunk
}

#[test]
fn every_function_does_what_ref_does_in_mixed_chunks() {
    let numbers = usable();
    if numbers.is_empty() {
        return;
    }
    let cases = functions::cases();
    let frames = cases.iter().map(|case| case.frames.len()).sum::<usize>();
    for (layout, packets) in [(Layout::Dense, frames / 2), (Layout::Slots, frames)] {
        let arena = Arena::new(ArenaConfig { layout, packets, align_bytes: 64, ..Default::default() }, 1).unwrap();
        let handle = arena.handle();
        let mut region = arena.split().remove(0);
        let packets = prepare(&cases, &mut region);
        for number in &numbers {
            for mode in [Mode::Launch, Mode::Persistent] {
                let mut lane = lane(*number, mode, programs(&cases), &handle);
                for (batch, in_order) in BATCHES.into_iter().flat_map(|batch| [(batch, false), (batch, true)]) {
                    round(&cases, &packets, &mut region, &mut *lane, batch, in_order);
                }
            }
        }
    }
}

/// Runs all packets once. `in_order`: chunks of neighbours, which copy engines carry; otherwise the bins come in random
/// order.
fn round(cases: &[Case], packets: &[Packet], region: &mut Region, lane: &mut dyn Lane, batch: usize, in_order: bool) {
    let mut random = Random::new(if in_order { 0 } else { 7 });
    for packet in packets {
        region.window_mut(&packet.before).copy_from_slice(&packet.window);
    }
    let mut seen = vec![false; packets.len()];
    for chunk in chunks(cases, packets, batch, (!in_order).then_some(&mut random)) {
        while lane.in_flight() == IN_FLIGHT {
            poll_one(lane, region, cases, packets, &mut seen);
        }
        lane.submit(region, chunk).unwrap_or_else(|rejected| panic!("{}", rejected.error));
    }
    while lane.in_flight() > 0 {
        poll_one(lane, region, cases, packets, &mut seen);
    }
    assert_eq!(seen.iter().position(|seen| !seen), None, "bins of {batch}: a packet did not come back");
}

/// Takes a chunk from the lane, if one is done, and compares its packets.
fn poll_one(lane: &mut dyn Lane, region: &mut Region, cases: &[Case], packets: &[Packet], seen: &mut [bool]) {
    let Some(chunk) = lane.poll(region).unwrap() else {
        std::thread::yield_now();
        return;
    };
    assert_eq!(lane.bin_times().len(), chunk.bins.len());
    for bin in &chunk.bins {
        for at in chunk.range(bin) {
            let descriptor = chunk.descriptors[at];
            let place = descriptor.flow_hash as usize;
            let packet = &packets[place];
            let name = cases[packet.instance].name;
            assert!(!std::mem::replace(&mut seen[place], true), "{name}: packet {place} came back twice");
            assert_eq!(chunk.outcomes[at], packet.outcome, "{name}: packet {place}: {:02x?}", packet.window);
            assert_eq!(descriptor, packet.after, "{name}: packet {place}: {:02x?}", packet.window);
            // What was dropped nobody looks at; outside the frame is nobody's.
            if packet.outcome.verdict != VERDICT_DROP {
                let (first, end) = (usize::from(descriptor.head), usize::from(descriptor.head + descriptor.length));
                let frame = &region.window_mut(&packet.before)[first..end];
                assert!(
                    frame == &packet.window_after[first..end],
                    "{name}: packet {place}: its frame differs: {frame:02x?}"
                );
            }
        }
    }
}

#[test]
fn a_device_that_is_not_there_is_an_error() {
    let arena = Arena::new(ArenaConfig { packets: 1, ..ArenaConfig::default() }, 1).unwrap();
    let Err(error) = CudaDevice::new(4711, Vec::new(), &arena.handle(), &DeviceOptions::default()) else {
        panic!("there is no such device")
    };
    match error {
        Error::Absent { id } => assert_eq!(id, "cuda:4711"),
        Error::Unusable { reason, .. } => assert_eq!(Some(reason), probe().reason),
        error => panic!("{error}"),
    }
}
