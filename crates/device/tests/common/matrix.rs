//! Compares every device with the reference implementations of all functions. The comparison covers
//! all combinations of devices, modes, arena layouts, batch sizes and orders. Each submission
//! contains batches of several functions, and every packet must be returned exactly once.
//!
//! [`godwit_test_cases::cases`] provides the functions and the frames.

use std::io::Write as _;
use std::ops::Range;
use std::sync::{Arc, Once};

use godwit_abi::{Bin, Descriptor, Outcome, VERDICT_DROP};
use godwit_device::{Lane, Probe, Program};
use godwit_function::{Function, HostHalf, Work};
use godwit_packet::{Arena, ArenaConfig, ArenaHandle, ImageRef, Layout, Region};
use godwit_sched::{Chunk, Grouping, Insert, Packer, PackerConfig};
use godwit_test_cases::Case;
use godwit_test_support::Random;

/// Maximum number of batches in a submission.
const BINS: usize = 48;
/// Maximum number of submissions in flight.
pub(crate) const IN_FLIGHT: usize = 4;

/// A device in one of its modes.
pub(crate) trait Setup {
    /// Returns the name used in messages.
    fn name(&self) -> String;

    /// Returns whether packets are copied to the device and back. With copies, only the frames of
    /// packets that are not dropped are compared. Without copies, the headroom and tailroom of the
    /// buffers are compared too.
    fn copies(&self) -> bool;

    /// Returns packet memory that the device can access.
    fn arena(&self, config: ArenaConfig) -> Arena;

    /// Opens the device with these functions, and opens the only connection to it.
    fn lane(&self, programs: Vec<Arc<dyn Program>>, arena: &ArenaHandle) -> Box<dyn Lane>;
}

/// The order of packets and batches in submissions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Order {
    /// The buffers of a submission are adjacent.
    Neighbours,
    /// Batches are in random order.
    Random,
    /// Packets are put into batches in random order. Each batch therefore has packets with several
    /// kinds of processing and lengths.
    Arrival,
}

/// Selects which combinations are compared.
pub(crate) struct Scope {
    pub(crate) layouts: &'static [Layout],
    /// Numbers of packets per batch.
    pub(crate) batches: &'static [usize],
    pub(crate) orders: &'static [Order],
    /// Returns whether a packet is compared.
    pub(crate) picks: fn(&Packet) -> bool,
}

impl Scope {
    /// Selects all combinations. A batch has one packet, about as many packets as a warp has
    /// threads, or the maximum number.
    pub(crate) const ALL: Self = Self {
        layouts: &[Layout::Dense, Layout::Slots],
        batches: &[1, 2, 31, 32, 33, 256],
        orders: &[Order::Neighbours, Order::Random, Order::Arrival],
        picks: |_| true,
    };
}

/// Returns the numbers of the devices that Godwit can use. Prints the reason if there is none.
pub(crate) fn usable(probe: &Probe) -> Vec<usize> {
    let usable: Vec<_> = (0..probe.found.len()).filter(|&number| probe.found[number].usable.is_ok()).collect();
    if usable.is_empty() {
        let why = probe.reason.as_ref().map(ToString::to_string).unwrap_or_else(|| {
            let reasons = probe.found.iter().filter_map(|found| {
                Some(format!("{} is unusable: {}", found.capabilities.id, found.usable.as_ref().err()?))
            });
            reasons.collect::<Vec<_>>().join("; ")
        });
        print_once(&format!("skipped: {why}"));
    }
    usable
}

/// Prints a line directly, because the test harness hides the output of tests that pass.
pub(crate) fn print_once(line: &str) {
    static PRINTED: Once = Once::new();
    PRINTED.call_once(|| std::io::stderr().write_all(format!("{line}\n").as_bytes()).unwrap());
}

/// A configured function as a [`Program`].
pub(crate) struct FunctionProgram(pub(crate) &'static str, pub(crate) Arc<dyn Function>);

impl Program for FunctionProgram {
    fn name(&self) -> &str {
        self.0
    }

    fn kernel(&self) -> u8 {
        self.1.contract().bin_kernel()
    }

    fn image(&self) -> ImageRef<'_> {
        self.1.image()
    }

    fn variant(&self) -> u8 {
        self.1.properties().variant
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

    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, variant: u8, parameter: u64) -> Outcome {
        self.1.run_ref(buffer, descriptor, variant, parameter)
    }
}

fn programs(cases: &[Case]) -> Vec<Arc<dyn Program>> {
    let program = |case: &Case| Arc::new(FunctionProgram(case.name, Arc::clone(&case.function))) as Arc<dyn Program>;
    cases.iter().map(program).collect()
}

/// A packet before and after the reference implementation processes it. Its flow hash is its index
/// in the list.
pub(crate) struct Packet {
    instance: usize,
    variant: u8,
    parameter: u64,
    pub(crate) before: Descriptor,
    buffer: Vec<u8>,
    after: Descriptor,
    buffer_after: Vec<u8>,
    outcome: Outcome,
}

impl Packet {
    /// Returns the ranges of a buffer that are compared. They include the frame, unless the packet
    /// is dropped. They also include all bytes outside the frame, which must not change. If packets
    /// are copied, only the frame is compared.
    fn compared(&self, copies: bool) -> Vec<Range<usize>> {
        let [before, after] = [&self.before, &self.after].map(|descriptor| {
            let head = usize::from(descriptor.head);
            head..head + usize::from(descriptor.length)
        });
        let mut compared = Vec::new();
        if !copies {
            compared.push(0..before.start.min(after.start));
            compared.push(before.end.max(after.end)..self.before.room_bytes());
        }
        if self.outcome.verdict != VERDICT_DROP {
            compared.push(after);
        }
        compared
    }
}

/// Copies all frames to adjacent buffers, so that a write beyond the end of a buffer changes the
/// next buffer.
fn prepare(cases: &[Case], region: &mut Region) -> Vec<Packet> {
    let mut packets = Vec::new();
    for (instance, case) in cases.iter().enumerate() {
        let mut descriptors = Vec::new();
        for (order, frame) in case.frames.iter().enumerate() {
            let allocated = region.allocate(frame.len()).expect("the arena has a buffer for each frame");
            let descriptor = Descriptor { order: order as u16, port: 3, ..allocated };
            region.buffer_mut(&descriptor).fill((order as u8).wrapping_mul(37));
            region.frame_mut(&descriptor).copy_from_slice(frame);
            descriptors.push(descriptor);
        }
        let mut work = Vec::new();
        match case.function.host_half(0, 1).as_mut().and_then(HostHalf::preparing) {
            Some(host_half) => host_half.prepare(region, &descriptors, &mut work),
            None => {
                work.resize(descriptors.len(), Work::Run { variant: case.function.properties().variant, parameter: 0 })
            }
        }
        let first = packets.len();
        for (before, work) in descriptors.into_iter().zip(work) {
            let Work::Run { variant, parameter } = work else { continue };
            let before = Descriptor { flow_hash: packets.len() as u32, ..before };
            let buffer = region.buffer_mut(&before).to_vec();
            let (mut after, mut buffer_after) = (before, buffer.clone());
            let outcome = case.function.run_ref(&mut buffer_after, &mut after, variant, parameter);
            packets.push(Packet { instance, variant, parameter, before, buffer, after, buffer_after, outcome });
        }
        assert!(packets.len() - first > 1000, "{}: too few frames reach the kernel", case.name);
    }
    packets
}

/// Returns all packets in submissions. A submission has up to [`BINS`] batches, and a batch has up
/// to `batch` packets.
fn chunks(cases: &[Case], packets: &[&Packet], batch: usize, order: Order, random: &mut Random) -> Vec<Chunk> {
    let mut packets = packets.to_vec();
    if order == Order::Arrival {
        shuffle(&mut packets, random);
        return arrivals(cases, &packets, batch);
    }
    // All packets of a batch need the same kind of processing by the same function.
    packets.sort_by_key(|packet| (packet.instance, packet.variant));
    let mut bins: Vec<&[&Packet]> = packets
        .chunk_by(|a, b| (a.instance, a.variant) == (b.instance, b.variant))
        .flat_map(|same| same.chunks(batch))
        .collect();
    if order == Order::Random {
        shuffle(&mut bins, random);
    }
    bins.chunks(BINS).map(|bins| chunk(cases, bins, batch)).collect()
}

fn shuffle<T>(list: &mut [T], random: &mut Random) {
    for at in (1..list.len()).rev() {
        list.swap(at, random.below(at + 1));
    }
}

/// Returns submissions in which one batch contains packets with different kinds of processing and
/// lengths.
fn arrivals(cases: &[Case], packets: &[&Packet], batch: usize) -> Vec<Chunk> {
    let config = PackerConfig {
        chunk_packets: (BINS * batch) as u32,
        bins: BINS as u32,
        bin_packets: batch as u32,
        grouping: Grouping::None,
        ..PackerConfig::default()
    };
    let kernels: Vec<u8> = cases.iter().map(|case| case.function.contract().bin_kernel()).collect();
    let mut packer = Packer::new(config.clone(), &kernels, 2).unwrap();
    let mut chunks: Vec<Chunk> = Vec::new();
    let mut take = |packer: &mut Packer| {
        let taken = packer.take(0);
        // The device keeps the submission, so the packer gets a new one.
        taken.iter().for_each(|_| packer.give_back(Chunk::new(config.entries_max(), BINS * batch)));
        let any = taken.is_some();
        chunks.extend(taken);
        any
    };
    for packet in packets {
        let (instance, variant) = (packet.instance as u16, packet.variant);
        while packer.insert(0, instance, variant, packet.before, packet.parameter) == Insert::Refused {
            take(&mut packer);
        }
    }
    while take(&mut packer) {}
    assert!(
        batch < 31 || packets.len() < 1000 || chunks.iter().flat_map(|chunk| &chunk.bins).any(|bin| bin.part != 0),
        "no bin has several variants"
    );
    for chunk in &mut chunks {
        chunk.outcomes.fill(Outcome { verdict: 77, reason: 77, port: 7777, value: 7777 });
    }
    chunks
}

fn chunk(cases: &[Case], bins: &[&[&Packet]], batch: usize) -> Chunk {
    let mut chunk = Chunk::new(bins.len(), bins.len() * batch);
    chunk.outcomes.fill(Outcome { verdict: 77, reason: 77, port: 7777, value: 7777 });
    for (index, packets) in bins.iter().enumerate() {
        // The packets of a batch may lie anywhere in the arrays of the submission. Unused entries
        // lie between the batches, as in the submissions of the engine.
        let first = (bins.len() - 1 - index) * batch;
        for (at, packet) in (first..).zip(*packets) {
            chunk.descriptors[at] = packet.before;
            chunk.parameters[at] = packet.parameter;
        }
        chunk.bins.push(Bin {
            first: first as u32,
            count: packets.len() as u16,
            kernel: cases[packets[0].instance].function.contract().bin_kernel(),
            variant: packets[0].variant,
            instance: packets[0].instance as u16,
            length_bytes: packets.iter().map(|packet| packet.before.length).max().unwrap(),
            ..Bin::default()
        });
        chunk.packets += packets.len() as u32;
    }
    chunk
}

/// Runs the packets on all devices in `setups`, in all combinations that `scope` selects. Compares
/// the results with the results of the reference implementation.
pub(crate) fn compare_with_ref(setups: &[impl Setup], scope: &Scope) {
    if setups.is_empty() {
        return;
    }
    let cases = godwit_test_cases::cases();
    let frames = cases.iter().map(|case| case.frames.len()).sum::<usize>();
    let mut random = Random::new(7);
    for (setup, &layout) in setups.iter().flat_map(|setup| scope.layouts.iter().map(move |layout| (setup, layout))) {
        // The dense layout of packet memory has room for frames of the maximum length, but most
        // frames are shorter.
        let packets = if layout == Layout::Dense { frames / 2 } else { frames };
        let arena = setup.arena(ArenaConfig { layout, packets, align_bytes: 64, ..Default::default() });
        let handle = arena.handle();
        let mut region = arena.split().remove(0);
        let packets = prepare(&cases, &mut region);
        let picked: Vec<_> = packets.iter().filter(|packet| (scope.picks)(packet)).collect();
        let mut round = Round { cases: &cases, packets: &packets, copies: setup.copies(), seen: Vec::new() };
        let mut lane = setup.lane(programs(&cases), &handle);
        for (&batch, &order) in
            scope.batches.iter().flat_map(|batch| scope.orders.iter().map(move |order| (batch, order)))
        {
            for packet in &packets {
                region.buffer_mut(&packet.before).copy_from_slice(&packet.buffer);
            }
            round.seen = packets.iter().map(|packet| !(scope.picks)(packet)).collect();
            for chunk in chunks(&cases, &picked, batch, order, &mut random) {
                while lane.in_flight() == IN_FLIGHT {
                    round.poll_one(&mut *lane, &mut region);
                }
                lane.submit(&mut region, chunk).unwrap_or_else(|rejected| panic!("{}", rejected.error));
            }
            while lane.in_flight() > 0 {
                round.poll_one(&mut *lane, &mut region);
            }
            let missing = round.seen.iter().position(|seen| !seen);
            assert_eq!(missing, None, "{}: {layout:?}, {order:?}, bins of {batch}: a packet is missing", setup.name());
        }
    }
}

/// One pass over all packets.
struct Round<'a> {
    cases: &'a [Case],
    packets: &'a [Packet],
    copies: bool,
    /// Whether each packet was returned or does not belong to this pass.
    seen: Vec<bool>,
}

impl Round<'_> {
    /// Polls the device, and compares the packets of a finished submission with the reference.
    fn poll_one(&mut self, lane: &mut dyn Lane, region: &mut Region) {
        let Some(chunk) = lane.poll(region).unwrap() else {
            std::thread::yield_now();
            return;
        };
        assert_eq!(lane.bin_times().len(), chunk.bins.len());
        for entry in chunk.bins.iter().flat_map(|bin| chunk.range(bin)) {
            let descriptor = chunk.descriptors[entry];
            let index = descriptor.flow_hash as usize;
            let packet = &self.packets[index];
            let name = self.cases[packet.instance].name;
            assert!(!std::mem::replace(&mut self.seen[index], true), "{name}: packet {index} was returned twice");
            assert_eq!(chunk.outcomes[entry], packet.outcome, "{name}: packet {index}: {:02x?}", packet.buffer);
            assert_eq!(descriptor, packet.after, "{name}: packet {index}: {:02x?}", packet.buffer);
            let buffer = &region.buffer_mut(&packet.before);
            for compared in packet.compared(self.copies) {
                let (buffer, expected) = (&buffer[compared.clone()], &packet.buffer_after[compared.clone()]);
                assert!(
                    buffer == expected,
                    "{name}: packet {index}: bytes {compared:?} of its buffer differ: {buffer:02x?} from {:02x?}",
                    packet.buffer
                );
            }
        }
        // Array entries between two batches may have any content after copies.
        if !self.copies {
            let named: usize = chunk.bins.iter().map(|bin| usize::from(bin.count)).sum();
            let untouched = Outcome { verdict: 77, reason: 77, port: 7777, value: 7777 };
            assert_eq!(chunk.outcomes.iter().filter(|outcome| **outcome != untouched).count(), named);
        }
    }
}
