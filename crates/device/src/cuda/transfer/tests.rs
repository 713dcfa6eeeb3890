use std::sync::Arc;

use godwit_abi::{Bin, Descriptor, Outcome};
use godwit_packet::{Arena, ArenaConfig, Layout, Region};
use proptest::prelude::*;

use super::*;
use crate::{DeviceChain, Program};

/// A function with the given access limits.
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

/// Returns a chunk with one bin per program. Packet `i` is in bin `bin_of(i)`.
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

fn planned(
    region: &Region,
    pitch: Option<usize>,
    chunk: &Chunk,
    programs: &[Arc<dyn Program>],
    transfer: Transfer,
) -> ChunkPlan {
    plan(chunk, &DeviceChain::needs(None, programs), region, pitch, transfer).unwrap()
}

proptest! {
    /// The copied ranges are exactly the buffers of the chunk, also if the ring of the region
    /// wraps.
    #[test]
    fn ranges_are_exactly_the_buffers_of_the_chunk(
        before in prop::collection::vec(60usize..1518, 0..200),
        lengths in prop::collection::vec(60usize..1518, 1..100),
        missing in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let (mut region, pitch) = region(Layout::Dense, 100);
        // Moves the head of the ring to an arbitrary position.
        for length in before {
            let descriptor = region.allocate(length).unwrap();
            region.release(&descriptor);
        }
        let mut descriptors: Vec<Descriptor> =
            lengths.iter().map_while(|&length| region.allocate(length)).collect();
        if let Some(missing) = missing {
            descriptors.remove(missing.index(descriptors.len()));
        }
        if descriptors.is_empty() {
            return Ok(());
        }
        let programs = programs(&[(u16::MAX, u16::MAX), (u16::MAX, 0)]);
        let chunk = chunk(&descriptors, 2, |index| index % 2);
        let mut buffers: Vec<(usize, usize)> = descriptors
            .iter()
            .map(|descriptor| (descriptor.buffer_offset(), descriptor.buffer_offset() + descriptor.room_bytes()))
            .collect();
        buffers.sort_unstable();
        match planned(&region, pitch, &chunk, &programs, Transfer::Copy).transfer {
            ChunkTransfer::Ranges(mut ranges) => {
                ranges.sort_by_key(|range| range.offset);
                let mut merged: Vec<(usize, usize)> = Vec::new();
                for (first, end) in buffers {
                    match merged.last_mut() {
                        Some(last) if last.1 == first => last.1 = end,
                        _ => merged.push((first, end)),
                    }
                }
                // One range may be split in two.
                let mut copied: Vec<(usize, usize)> = Vec::new();
                for range in ranges {
                    match copied.last_mut() {
                        Some(last) if last.1 == range.offset => last.1 += range.bytes,
                        _ => copied.push((range.offset, range.offset + range.bytes)),
                    }
                }
                prop_assert_eq!(copied, merged);
            }
            ChunkTransfer::ZeroCopy => {}
            transfer => prop_assert!(false, "the dense layout has no slots: {transfer:?}"),
        }
    }

    /// The columns to the device contain every frame. The columns back contain only frame bytes
    /// that were copied to it.
    #[test]
    fn rows_copy_back_only_frame_bytes_that_were_copied_to_the_device(
        lengths in prop::collection::vec(60usize..1518, 1..60),
        accessed in prop::sample::select(vec![
            vec![(u16::MAX, u16::MAX)],
            vec![(78, 30), (u16::MAX, u16::MAX)],
            vec![(46, 12), (u16::MAX, 0)],
        ]),
    ) {
        let (mut region, pitch) = region(Layout::Slots, 64);
        let descriptors: Vec<Descriptor> = lengths.iter().map(|&length| region.allocate(length).unwrap()).collect();
        let programs = programs(&accessed);
        let chunk = chunk(&descriptors, programs.len(), |index| index % programs.len());
        let plan = planned(&region, pitch, &chunk, &programs, Transfer::Copy);
        if let ChunkTransfer::Rows { ranges, pitch, columns_in, columns_out } = plan.transfer {
            let rows: usize = ranges.iter().map(|range| range.bytes / pitch).sum();
            prop_assert_eq!(rows, descriptors.len());
            for descriptor in &descriptors {
                let (head, end) = (usize::from(descriptor.head), usize::from(descriptor.head + descriptor.length));
                let within = ranges.iter().any(|range| {
                    (range.offset..range.offset + range.bytes).contains(&descriptor.buffer_offset())
                        && (descriptor.buffer_offset() - range.offset).is_multiple_of(pitch)
                });
                prop_assert!(within);
                prop_assert!(columns_in.first <= head && columns_in.end >= end);
                let back = (head.max(columns_out.first), end.min(columns_out.end));
                prop_assert!(back.0 >= back.1 || columns_in.first <= back.0 && columns_in.end >= back.1);
                prop_assert!(columns_out.end <= descriptor.room_bytes() || !plan.writes);
            }
        }
    }
}

#[test]
fn uses_zero_copy_when_functions_read_few_bytes_of_long_frames() {
    let (mut region, pitch) = region(Layout::Dense, 8192);
    let descriptors: Vec<Descriptor> = (0..8192).map(|_| region.allocate(1500).unwrap()).collect();
    let planned = |programs: &[Arc<dyn Program>]| {
        planned(&region, pitch, &chunk(&descriptors, 1, |_| 0), programs, Transfer::Auto).transfer
    };
    assert_eq!(planned(&programs(&[(78, 30)])), ChunkTransfer::ZeroCopy);
    let all = planned(&programs(&[(u16::MAX, u16::MAX)]));
    assert!(matches!(all, ChunkTransfer::Ranges(ranges) if ranges.len() <= 2));
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
        // 22 or 23 packets per bin: whole blocks of eight, as the scan processes them, and a
        // remainder.
        let good = chunk(&descriptors, 4, |index| index % 4);
        let beyond = Descriptor { length: u16::MAX, ..descriptors[0] };
        let far = Descriptor { buffer: u32::MAX, ..descriptors[0] };
        for wrong in [others.allocate(100).unwrap(), beyond, far] {
            for bin in &good.bins {
                for index in good.range(bin) {
                    let mut chunk = chunk(&descriptors, 4, |index| index % 4);
                    chunk.descriptors[index] = wrong;
                    let error =
                        plan(&chunk, &DeviceChain::needs(None, &programs), &region, pitch, Transfer::Auto).unwrap_err();
                    assert_eq!(error.to_string(), outside(bin).to_string());
                }
            }
        }
    }
}

/// `Auto` copies adjacent packets, unless they have few bytes. `Copy` and `ZeroCopy` override this.
#[test]
fn the_transfer_option_selects_the_transfer() {
    let (mut region, pitch) = region(Layout::Dense, 1000);
    let descriptors: Vec<Descriptor> = (0..1000).map(|_| region.allocate(1000).unwrap()).collect();
    let programs = programs(&[(u16::MAX, u16::MAX)]);
    let planned = |descriptors: &[Descriptor], transfer| {
        planned(&region, pitch, &chunk(descriptors, 1, |_| 0), &programs, transfer).transfer
    };
    assert!(matches!(planned(&descriptors, Transfer::Auto), ChunkTransfer::Ranges(_)));
    assert!(matches!(planned(&descriptors, Transfer::Copy), ChunkTransfer::Ranges(_)));
    assert_eq!(planned(&descriptors, Transfer::ZeroCopy), ChunkTransfer::ZeroCopy);
    let few = &descriptors[..100];
    assert_eq!(planned(few, Transfer::Auto), ChunkTransfer::ZeroCopy);
    assert!(matches!(planned(few, Transfer::Copy), ChunkTransfer::Ranges(_)));
    // Scattered buffers form neither ranges nor rows, so even `Copy` uses zero-copy.
    let scattered: Vec<Descriptor> = descriptors.iter().copied().step_by(2).collect();
    assert_eq!(planned(&scattered, Transfer::Copy), ChunkTransfer::ZeroCopy);
    for transfer in Transfer::ALL {
        assert!(matches!(planned(&[], transfer), ChunkTransfer::Ranges(ranges) if ranges.is_empty()));
    }
}
