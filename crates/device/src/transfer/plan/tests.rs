use std::sync::Arc;

use godwit_abi::{Bin, Descriptor, Outcome};
use godwit_packet::{Arena, ArenaConfig, Layout, Region};
use proptest::prelude::*;

use super::*;
use crate::bytes::{bytes_of, bytes_of_mut};
use crate::chain::DeviceChain;
use crate::program::Program;
use crate::transfer::{Block, pack, packed_bytes, unpack};

struct Accessing {
    reads: u16,
    writes: u16,
}

impl Program for Accessing {
    fn name(&self) -> &str {
        "accessing"
    }

    fn kernel(&self) -> u8 {
        0
    }

    fn image(&self) -> godwit_packet::ImageRef<'_> {
        [][..].into()
    }

    fn variant(&self) -> u8 {
        0
    }

    fn reads_bytes(&self) -> u16 {
        self.reads
    }

    fn writes_bytes(&self) -> u16 {
        self.writes
    }

    fn headroom_bytes(&self) -> u16 {
        44
    }

    fn tailroom_bytes(&self) -> u16 {
        29
    }

    fn run_ref(&self, _: &mut [u8], _: &mut Descriptor, _: u8, _: u64) -> Outcome {
        unreachable!("no test runs this function")
    }
}

fn programs(accessed: &[(u16, u16)]) -> Vec<Arc<dyn Program>> {
    accessed.iter().map(|&(reads, writes)| Arc::new(Accessing { reads, writes }) as Arc<dyn Program>).collect()
}

fn chunk(descriptors: &[Descriptor], programs: usize, bin_of: impl Fn(usize) -> usize) -> Chunk {
    let mut chunk = Chunk::new(programs, descriptors.len());
    let mut first = 0;
    for instance in 0..programs {
        let mine = descriptors.iter().enumerate().filter(|(index, _)| bin_of(*index) == instance);
        let mine: Vec<Descriptor> = mine.map(|(_, descriptor)| *descriptor).collect();
        chunk.descriptors[first..first + mine.len()].copy_from_slice(&mine);
        chunk.bins.push(Bin {
            first: first as u32,
            count: mine.len() as u16,
            instance: instance as u16,
            ..Bin::default()
        });
        first += mine.len();
    }
    chunk.packets = first as u32;
    chunk
}

fn region(layout: Layout, packets: usize) -> (Region, Option<usize>) {
    let arena = Arena::new(ArenaConfig { layout, packets, ..ArenaConfig::default() }, 1).unwrap();
    let pitch = arena.handle().slot_pitch_bytes();
    (arena.split().remove(0), pitch)
}

fn planner(programs: &[Arc<dyn Program>], pitch: Option<usize>, transfer: Transfer) -> Planner {
    let (needs, costs) = (DeviceChain::needs(None, programs), TransferCosts::default());
    Planner { needs, pitch, transfer, costs, otherwise: ChunkTransfer::Pack }
}

/// Returns the byte ranges of all blocks in ascending order. Adjacent ranges are joined.
fn ranges(blocks: &Blocks) -> Vec<(usize, usize)> {
    let rows = |block: Block| {
        let start = move |row| block.offset + row * block.pitch;
        (0..block.rows).map(move |row| (start(row), start(row) + block.bytes))
    };
    joined(blocks.iter().flat_map(rows).collect())
}

fn joined(mut ranges: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
    ranges.sort_unstable();
    let mut joined: Vec<(usize, usize)> = Vec::new();
    for (start, end) in ranges {
        match joined.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => joined.push((start, end)),
        }
    }
    joined
}

/// Sets of packet functions for the tests. Each function is given by the numbers of bytes that it
/// reads and writes.
const FUNCTIONS: [&[(u16, u16)]; 6] = [
    &[(u16::MAX, u16::MAX)],
    &[(u16::MAX, 0)],
    &[(78, 30), (u16::MAX, u16::MAX)],
    &[(46, 12), (u16::MAX, 0)],
    &[(0, 0), (12, 300)],
    &[(0, 0)],
];

/// Allocates packets of the given `lengths` from a ring of buffers. First allocates and releases
/// packets of the lengths `before`, which moves the start of the ring.
fn allocate(region: &mut Region, before: &[usize], lengths: &[usize]) -> Vec<Descriptor> {
    for &length in before {
        let descriptor = region.allocate(length).unwrap();
        region.release(&descriptor);
    }
    lengths.iter().map_while(|&length| region.allocate(length)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// Checks that exactly the packet buffers of the submission are copied, even if the ring of
    /// buffers wraps between them.
    #[test]
    fn blocks_are_exactly_the_buffers_of_the_chunk(
        before in prop::collection::vec(60usize..1518, 0..200),
        lengths in prop::collection::vec(60usize..1518, 1..100),
        missing in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let (mut region, pitch) = region(Layout::Dense, 100);
        let mut descriptors = allocate(&mut region, &before, &lengths);
        if let Some(missing) = missing {
            descriptors.remove(missing.index(descriptors.len()));
        }
        let programs = programs(&[(u16::MAX, u16::MAX), (u16::MAX, 0)]);
        let chunk = chunk(&descriptors, 2, |index| index % 2);
        let buffers = descriptors
            .iter()
            .map(|descriptor| (descriptor.buffer_offset(), descriptor.buffer_offset() + descriptor.room_bytes()));
        let plan = planner(&programs, pitch, Transfer::Copy).plan(&region, &chunk).unwrap();
        if plan.transfer == ChunkTransfer::Copy {
            prop_assert_eq!(ranges(&plan.to_device), joined(buffers.collect()));
        } else {
            prop_assert!(joined(buffers.collect()).len() > 1, "contiguous buffers are not copied");
        }
    }

    /// Transfers a submission to a simulated device, lets the functions write some bytes, and
    /// transfers it back. Checks that every frame has the written bytes. Also checks that no byte
    /// of another packet changes on the host or on the device.
    #[test]
    fn transfers_have_the_same_effect_as_work_in_place(
        is_dense in any::<bool>(),
        before in prop::collection::vec(60usize..1518, 0..50),
        lengths in prop::collection::vec(60usize..1518, 1..60),
        // Packets without a function do not belong to the submission.
        function_of in prop_oneof![
            3 => prop::collection::vec(Just(Some(0)), 60),
            1 => prop::collection::vec(prop::option::weighted(0.9, 0..2usize), 60),
        ],
        functions in prop::sample::select(FUNCTIONS.to_vec()),
    ) {
        let (mut region, pitch) = region(if is_dense { Layout::Dense } else { Layout::Slots }, 64);
        let descriptors = allocate(&mut region, &before, &lengths);
        let arena_bytes = descriptors.iter().map(|packet| packet.buffer_offset() + 4096).max().unwrap_or(0);
        // All bytes in host memory are below 64. All bytes in device memory are 200 before the
        // transfer.
        for packet in &descriptors {
            region.buffer_mut(packet).iter_mut().enumerate().for_each(|(at, byte)| *byte = (at % 61) as u8);
        }
        let function_of: Vec<Option<usize>> = (0..descriptors.len())
            .map(|packet| function_of[packet].map(|function| function % functions.len()))
            .collect();
        let selected: Vec<usize> = (0..descriptors.len()).filter(|&packet| function_of[packet].is_some()).collect();
        let packets: Vec<Descriptor> = selected.iter().map(|&packet| descriptors[packet]).collect();
        let mut chunk = chunk(&packets, functions.len(), |index| function_of[selected[index]].unwrap());
        chunk.outcomes.iter_mut().for_each(|outcome| *outcome = Outcome::default());
        let planner = planner(&programs(functions), pitch, Transfer::Copy);
        let plan = planner.plan(&region, &chunk).unwrap();

        let is_packed = plan.transfer == ChunkTransfer::Pack;
        let (mut staging, mut shadow) = (vec![100_u8; packed_bytes(&chunk)], vec![200_u8; arena_bytes]);
        let mut on_device = bytes_of(&chunk.descriptors[..]).to_vec();
        if is_packed {
            pack(&chunk, &region, &planner.needs, &mut staging, &mut on_device);
            shadow.clone_from(&staging);
        }
        let host = |region: &mut Region, start: usize, end: usize| -> *mut [u8] {
            std::ptr::slice_from_raw_parts_mut(region.arena_base().wrapping_add(start), end - start)
        };
        for (start, end) in ranges(&plan.to_device) {
            // SAFETY: the range lies in buffers of the chunk.
            shadow[start..end].copy_from_slice(unsafe { &*host(&mut region, start, end) });
        }
        // The simulated functions write 150 to all bytes that they may write, except to every third
        // byte.
        let mut written = chunk.descriptors.clone();
        bytes_of_mut(&mut written[..]).copy_from_slice(&on_device);
        let mut expected: Vec<Vec<u8>> = descriptors.iter().map(|packet| region.buffer_mut(packet).to_vec()).collect();
        for bin in &chunk.bins {
            let (reads, writes) = functions[usize::from(bin.instance)];
            for index in chunk.range(bin) {
                let (packet, at) = (written[index], written[index].buffer_offset());
                let own = descriptors.iter().position(|other| other.buffer == chunk.descriptors[index].buffer).unwrap();
                let (head, length) = (usize::from(packet.head), usize::from(packet.length));
                let read = head..head + length.min(reads.into());
                prop_assert_eq!(&shadow[at + read.start..at + read.end], &expected[own][read], "{:?}", plan);
                let limit = if writes == u16::MAX { head + length } else { head + length.min(writes.into()) };
                for byte in (head..limit).filter(|byte| byte % 3 != 0) {
                    shadow[at + byte] = 150;
                    expected[own][byte] = 150;
                }
            }
        }
        for (start, end) in ranges(&plan.to_host) {
            // SAFETY: the range lies in buffers of the chunk, and the region is borrowed mutably.
            unsafe { &mut *host(&mut region, start, end) }.copy_from_slice(&shadow[start..end]);
        }
        if is_packed {
            let buffers: Vec<u32> =
                chunk.bins.iter().flat_map(|bin| chunk.range(bin)).map(|index| chunk.descriptors[index].buffer).collect();
            bytes_of_mut(&mut chunk.descriptors[..]).copy_from_slice(&on_device);
            unpack(&mut chunk, &mut region, &planner.needs, &shadow, &buffers);
        }
        for ((packet, expected), function) in descriptors.iter().zip(&expected).zip(&function_of) {
            let frame = usize::from(packet.head)..usize::from(packet.head + packet.length);
            let buffer = &*region.buffer_mut(packet);
            match function {
                // If no function processes a packet, its whole buffer must be unchanged. Otherwise,
                // only the bytes of its frame matter.
                None => prop_assert_eq!(buffer, &expected[..]),
                Some(_) => prop_assert_eq!(&buffer[frame.clone()], &expected[frame], "{:?}", plan),
            }
        }
    }
}

#[test]
fn uses_zero_copy_when_functions_read_few_bytes_of_long_frames() {
    let (mut region, pitch) = region(Layout::Dense, 8192);
    let descriptors: Vec<Descriptor> = (0..8192).map(|_| region.allocate(1500).unwrap()).collect();
    let chunk = chunk(&descriptors, 1, |_| 0);
    let planned = |programs: &[Arc<dyn Program>]| {
        let planner = Planner { otherwise: ChunkTransfer::ZeroCopy, ..planner(programs, pitch, Transfer::Auto) };
        planner.plan(&region, &chunk).unwrap()
    };
    let plan = planned(&programs(&[(78, 30)]));
    assert_eq!((plan.transfer, plan.bytes), (ChunkTransfer::ZeroCopy, [8192 * 78, 8192 * 30]));
    let plan = planned(&programs(&[(u16::MAX, u16::MAX)]));
    assert_eq!(plan.transfer, ChunkTransfer::Copy);
    assert!(plan.to_device.iter().count() <= 2 && plan.to_device == plan.to_host);
}

/// Checks that packets are not copied if their function neither reads nor writes them.
#[test]
fn copies_no_packets_that_no_function_accesses() {
    for layout in [Layout::Dense, Layout::Slots] {
        let (mut region, pitch) = region(layout, 256);
        let descriptors: Vec<Descriptor> = (0..100).map(|_| region.allocate(100).unwrap()).collect();
        let programs = programs(&[(0, 0)]);
        let plan = planner(&programs, pitch, Transfer::Copy).plan(&region, &chunk(&descriptors, 1, |_| 0)).unwrap();
        assert_eq!((plan.transfer, plan.bytes), (ChunkTransfer::Copy, [0, 0]));
        assert_eq!((plan.to_device, plan.to_host), (Blocks::NONE, Blocks::NONE));
    }
}

#[test]
fn rejects_a_packet_outside_the_region_in_any_bin() {
    for layout in [Layout::Dense, Layout::Slots] {
        let arena = Arena::new(ArenaConfig { layout, packets: 256, ..ArenaConfig::default() }, 2).unwrap();
        let pitch = arena.handle().slot_pitch_bytes();
        let mut regions = arena.split();
        let mut others = regions.pop().unwrap();
        let mut region = regions.pop().unwrap();
        let descriptors: Vec<Descriptor> = (0..90).map(|_| region.allocate(100).unwrap()).collect();
        let programs = programs(&[(u16::MAX, u16::MAX); 4]);
        // Each batch has 22 or 23 packets. The scan processes eight packets at a time, and
        // therefore also sees an incomplete group.
        let good = chunk(&descriptors, 4, |index| index % 4);
        let beyond = Descriptor { length: u16::MAX, ..descriptors[0] };
        let far = Descriptor { buffer: u32::MAX, ..descriptors[0] };
        for wrong in [others.allocate(100).unwrap(), beyond, far] {
            for bin in &good.bins {
                for index in good.range(bin) {
                    let mut chunk = chunk(&descriptors, 4, |index| index % 4);
                    chunk.descriptors[index] = wrong;
                    let error = planner(&programs, pitch, Transfer::Auto).plan(&region, &chunk).unwrap_err();
                    assert_eq!(error.to_string(), outside(bin).to_string());
                }
            }
        }
    }
}

#[test]
fn the_transfer_option_selects_the_transfer() {
    let (mut region, pitch) = region(Layout::Dense, 1000);
    let descriptors: Vec<Descriptor> = (0..1000).map(|_| region.allocate(1000).unwrap()).collect();
    let programs = programs(&[(u16::MAX, u16::MAX)]);
    let planned = |descriptors: &[Descriptor], transfer| {
        let planner = Planner { otherwise: ChunkTransfer::ZeroCopy, ..planner(&programs, pitch, transfer) };
        planner.plan(&region, &chunk(descriptors, 1, |_| 0)).unwrap().transfer
    };
    assert_eq!(planned(&descriptors, Transfer::Auto), ChunkTransfer::Copy);
    assert_eq!(planned(&descriptors, Transfer::Copy), ChunkTransfer::Copy);
    assert_eq!(planned(&descriptors, Transfer::ZeroCopy), ChunkTransfer::ZeroCopy);
    let few = &descriptors[..100];
    assert_eq!(planned(few, Transfer::Auto), ChunkTransfer::ZeroCopy);
    assert_eq!(planned(few, Transfer::Copy), ChunkTransfer::Copy);
    // Every second buffer is unused. The packets lie in too many separate blocks, so even the
    // option `Copy` does not copy them.
    let scattered: Vec<Descriptor> = descriptors.iter().copied().step_by(2).collect();
    assert_eq!(planned(&scattered, Transfer::Copy), ChunkTransfer::ZeroCopy);
    for transfer in Transfer::ALL {
        assert_eq!(planned(&[], transfer), ChunkTransfer::Copy);
    }
}
