//! Functions × devices, modes, layouts of the arena, batch sizes and orders: every device does to every packet what `ref`
//! does, in chunks of mixed bins, and every packet comes back once.
//!
//! The rows of functions and their frames are those of the matrix in `crates/function/tests`.

#[path = "../../../function/tests/matrix/frames.rs"]
pub(crate) mod frames;
#[path = "../../../function/tests/matrix/functions.rs"]
pub(crate) mod functions;

use std::io::Write as _;
use std::ops::Range;
use std::sync::{Arc, Once};

use godwit_abi::{Bin, Descriptor, Outcome, VERDICT_DROP};
use godwit_device::{Lane, Probe, Program};
use godwit_function::{Function, Work};
use godwit_packet::{Arena, ArenaConfig, ArenaHandle, ImageRef, Layout, Region};
use godwit_sched::{Chunk, Grouping, Insert, Packer, PackerConfig};

use frames::Random;
use functions::Case;

/// Bins of a chunk at most.
const BINS: usize = 48;
/// Chunks in flight at most.
pub(crate) const IN_FLIGHT: usize = 4;

/// A device in one of its modes.
pub(crate) trait Setup {
    /// For messages.
    fn name(&self) -> String;

    /// Whether packets are copied to the device and back. Then only frames come back, and nothing where the packet is
    /// dropped; otherwise head and tail room are compared too.
    fn copies(&self) -> bool;

    /// An arena that the device can reach.
    fn arena(&self, config: ArenaConfig) -> Arena;

    /// The only lane of a device with these programs.
    fn lane(&self, programs: Vec<Arc<dyn Program>>, arena: &ArenaHandle) -> Box<dyn Lane>;
}

/// The order of bins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Order {
    /// The buffers of a chunk lie side by side.
    Neighbours,
    /// They lie anywhere.
    Random,
    /// As packets arrive that nobody sorts: bins of any variants of a function, and any lengths.
    Arrival,
}

/// What is compared.
pub(crate) struct Scope {
    pub(crate) layouts: &'static [Layout],
    /// Packets per bin.
    pub(crate) batches: &'static [usize],
    pub(crate) orders: &'static [Order],
    /// The packets.
    pub(crate) picks: fn(&Packet) -> bool,
}

impl Scope {
    /// Everything. Bins: of a packet alone, around a warp, and the largest.
    pub(crate) const ALL: Self = Self {
        layouts: &[Layout::Dense, Layout::Slots],
        batches: &[1, 2, 31, 32, 33, 256],
        orders: &[Order::Neighbours, Order::Random, Order::Arrival],
        picks: |_| true,
    };
}

/// The numbers of the devices that can be used; says why when there is none.
pub(crate) fn usable(probe: &Probe) -> Vec<usize> {
    let usable: Vec<_> = (0..probe.found.len()).filter(|&number| probe.found[number].usable.is_ok()).collect();
    if usable.is_empty() {
        let why = probe.reason.clone().unwrap_or_else(|| {
            let reasons = probe.found.iter().filter_map(|found| {
                Some(format!("{} is not used: {}", found.capabilities.id, found.usable.as_ref().err()?))
            });
            reasons.collect::<Vec<_>>().join("; ")
        });
        say_once(&format!("skipped: {why}"));
    }
    usable
}

/// Says it past the test harness, which shows nothing of a test that passes.
pub(crate) fn say_once(line: &str) {
    static SAID: Once = Once::new();
    SAID.call_once(|| std::io::stderr().write_all(format!("{line}\n").as_bytes()).unwrap());
}

/// A function as a device sees it.
pub(crate) struct FunctionProgram(pub(crate) &'static str, pub(crate) Arc<dyn Function>);

impl Program for FunctionProgram {
    fn name(&self) -> &str {
        self.0
    }

    fn kernel(&self) -> u8 {
        self.1.contract().kernel
    }

    fn image(&self) -> ImageRef<'_> {
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

    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, variant: u8, parameter: u64) -> Outcome {
        self.1.run_ref(buffer, descriptor, variant, parameter)
    }
}

fn programs(cases: &[Case]) -> Vec<Arc<dyn Program>> {
    let program = |case: &Case| Arc::new(FunctionProgram(case.name, Arc::clone(&case.function))) as Arc<dyn Program>;
    cases.iter().map(program).collect()
}

/// A packet, what a kernel is to do with it, and what it becomes. Its place in the list is its flow hash.
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
    /// The bytes of the buffer that have a meaning: the frame, unless it is dropped, and everything that the packet
    /// never lay in, which is nobody's to write. Copies bring back the frame alone.
    fn compared(&self, copies: bool) -> Vec<Range<usize>> {
        let [before, after] = [&self.before, &self.after].map(|place| {
            let head = usize::from(place.head);
            head..head + usize::from(place.length)
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

/// Puts all frames of all rows into buffers that lie back to back, so that writing beyond one shows in the next.
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
        match case.function.host_half(0, 1) {
            Some(mut host_half) => host_half.prepare(region, &descriptors, &mut work),
            None => work.resize(descriptors.len(), Work::Run { variant: case.function.variant(), parameter: 0 }),
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
        assert!(packets.len() - first > 1000, "{}: too few frames get to the kernel", case.name);
    }
    packets
}

/// All packets in chunks of up to [`BINS`] bins of up to `batch` packets.
fn chunks(cases: &[Case], packets: &[&Packet], batch: usize, order: Order, random: &mut Random) -> Vec<Chunk> {
    let mut packets = packets.to_vec();
    if order == Order::Arrival {
        shuffle(&mut packets, random);
        return arrivals(cases, &packets, batch);
    }
    // A bin is of one function and one variant.
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
        list.swap(at, random.below(at as u32 + 1) as usize);
    }
}

/// The chunks that a packer makes which looks at neither variants nor lengths.
fn arrivals(cases: &[Case], packets: &[&Packet], batch: usize) -> Vec<Chunk> {
    let config = PackerConfig {
        chunk_packets: (BINS * batch) as u32,
        bins: BINS as u32,
        bin_packets: batch as u32,
        grouping: Grouping::None,
        ..PackerConfig::default()
    };
    let kernels: Vec<u8> = cases.iter().map(|case| case.function.contract().kernel).collect();
    let mut packer = Packer::new(config.clone(), &kernels, 2).unwrap();
    let mut chunks: Vec<Chunk> = Vec::new();
    let mut take = |packer: &mut Packer| {
        let taken = packer.take(0);
        // The device gets this one, and the packer another in its place.
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

/// Runs the packets in all of `scope` on all of `setups`, and compares.
pub(crate) fn compare_with_ref(setups: &[impl Setup], scope: &Scope) {
    if setups.is_empty() {
        return;
    }
    let cases = functions::cases();
    let frames = cases.iter().map(|case| case.frames.len()).sum::<usize>();
    let mut random = Random::new(7);
    for (setup, &layout) in setups.iter().flat_map(|setup| scope.layouts.iter().map(move |layout| (setup, layout))) {
        // A dense arena is made for frames of the largest size, and most are shorter.
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

/// All packets, once.
struct Round<'a> {
    cases: &'a [Case],
    packets: &'a [Packet],
    copies: bool,
    /// Which of them have come back, or are not sent.
    seen: Vec<bool>,
}

impl Round<'_> {
    /// Takes a chunk from the lane, if one is done, and compares its packets.
    fn poll_one(&mut self, lane: &mut dyn Lane, region: &mut Region) {
        let Some(chunk) = lane.poll(region).unwrap() else {
            std::thread::yield_now();
            return;
        };
        assert_eq!(lane.bin_times().len(), chunk.bins.len());
        for at in chunk.bins.iter().flat_map(|bin| chunk.range(bin)) {
            let descriptor = chunk.descriptors[at];
            let place = descriptor.flow_hash as usize;
            let packet = &self.packets[place];
            let name = self.cases[packet.instance].name;
            assert!(!std::mem::replace(&mut self.seen[place], true), "{name}: packet {place} came back twice");
            assert_eq!(chunk.outcomes[at], packet.outcome, "{name}: packet {place}: {:02x?}", packet.buffer);
            assert_eq!(descriptor, packet.after, "{name}: packet {place}: {:02x?}", packet.buffer);
            let buffer = &region.buffer_mut(&packet.before);
            for compared in packet.compared(self.copies) {
                let (buffer, expected) = (&buffer[compared.clone()], &packet.buffer_after[compared.clone()]);
                assert!(
                    buffer == expected,
                    "{name}: packet {place}: bytes {compared:?} of its buffer differ: {buffer:02x?} from {:02x?}",
                    packet.buffer
                );
            }
        }
        // Between bins, copies may bring anything back.
        if !self.copies {
            let named: usize = chunk.bins.iter().map(|bin| usize::from(bin.count)).sum();
            let untouched = Outcome { verdict: 77, reason: 77, port: 7777, value: 7777 };
            assert_eq!(chunk.outcomes.iter().filter(|outcome| **outcome != untouched).count(), named);
        }
    }
}
