use std::sync::Arc;

use godwit_abi::{Bin, Descriptor, Outcome};
use godwit_packet::{Arena, ArenaConfig, Layout, Region};
use proptest::prelude::*;

use super::*;
use crate::{DeviceChain, Program};

/// A function that reads and writes so far.
struct Reach {
    reads: u16,
    writes: u16,
}

impl Program for Reach {
    fn name(&self) -> &str {
        "reach"
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
        unreachable!("nothing runs here")
    }
}

fn programs(reaches: &[(u16, u16)]) -> Vec<Arc<dyn Program>> {
    reaches.iter().map(|&(reads, writes)| Arc::new(Reach { reads, writes }) as Arc<dyn Program>).collect()
}

/// One bin for each program; packet `i` goes into bin `bin_of(i)`.
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
) -> Plan {
    plan(chunk, &DeviceChain::needs(None, programs), region, pitch, transfer).unwrap()
}

proptest! {
    /// Whatever is copied are buffers of the chunk and nothing else, and all of them: also around the end of the ring.
    #[test]
    fn runs_are_exactly_the_chunks_buffers(
        before in prop::collection::vec(60usize..1518, 0..200),
        lengths in prop::collection::vec(60usize..1518, 1..100),
        missing in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let (mut region, pitch) = region(Layout::Dense, 100);
        // Moves the ring's head to anywhere.
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
        match planned(&region, pitch, &chunk, &programs, Transfer::Copy).carriage {
            Carriage::Runs(mut runs) => {
                runs.sort_by_key(|run| run.offset);
                let mut merged: Vec<(usize, usize)> = Vec::new();
                for (first, end) in buffers {
                    match merged.last_mut() {
                        Some(last) if last.1 == first => last.1 = end,
                        _ => merged.push((first, end)),
                    }
                }
                // A run may be told in two halves.
                let mut told: Vec<(usize, usize)> = Vec::new();
                for run in runs {
                    match told.last_mut() {
                        Some(last) if last.1 == run.offset => last.1 += run.bytes,
                        _ => told.push((run.offset, run.offset + run.bytes)),
                    }
                }
                prop_assert_eq!(told, merged);
            }
            Carriage::Reached => {}
            carriage => prop_assert!(false, "there are no slots: {carriage:?}"),
        }
    }

    /// Rows hold every frame on the way in, and on the way out nothing of a frame that was not on the way in.
    #[test]
    fn rows_bring_back_only_what_they_brought(
        lengths in prop::collection::vec(60usize..1518, 1..60),
        reaches in prop::sample::select(vec![
            vec![(u16::MAX, u16::MAX)],
            vec![(78, 30), (u16::MAX, u16::MAX)],
            vec![(46, 12), (u16::MAX, 0)],
        ]),
    ) {
        let (mut region, pitch) = region(Layout::Slots, 64);
        let descriptors: Vec<Descriptor> = lengths.iter().map(|&length| region.allocate(length).unwrap()).collect();
        let programs = programs(&reaches);
        let chunk = chunk(&descriptors, programs.len(), |index| index % programs.len());
        let plan = planned(&region, pitch, &chunk, &programs, Transfer::Copy);
        if let Carriage::Rows { runs, pitch, columns_in, columns_out } = plan.carriage {
            let rows: usize = runs.iter().map(|run| run.bytes / pitch).sum();
            prop_assert_eq!(rows, descriptors.len());
            for descriptor in &descriptors {
                let (head, end) = (usize::from(descriptor.head), usize::from(descriptor.head + descriptor.length));
                let within = runs.iter().any(|run| {
                    (run.offset..run.offset + run.bytes).contains(&descriptor.buffer_offset())
                        && (descriptor.buffer_offset() - run.offset).is_multiple_of(pitch)
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
fn a_function_that_reads_little_of_long_frames_reaches_for_them_however_many_there_are() {
    let (mut region, pitch) = region(Layout::Dense, 8192);
    let descriptors: Vec<Descriptor> = (0..8192).map(|_| region.allocate(1500).unwrap()).collect();
    let planned = |programs: &[Arc<dyn Program>]| {
        planned(&region, pitch, &chunk(&descriptors, 1, |_| 0), programs, Transfer::Auto).carriage
    };
    assert_eq!(planned(&programs(&[(78, 30)])), Carriage::Reached);
    let all = planned(&programs(&[(u16::MAX, u16::MAX)]));
    assert!(matches!(all, Carriage::Runs(runs) if runs.len() <= 2));
}

#[test]
fn a_packet_outside_the_region_is_found_in_whichever_bin_it_is() {
    for layout in [Layout::Dense, Layout::Slots] {
        let arena = Arena::new(ArenaConfig { layout, packets: 256, ..ArenaConfig::default() }, 2).unwrap();
        let pitch = arena.handle().slot_pitch_bytes();
        let mut regions = arena.split();
        let mut others = regions.pop().unwrap();
        let mut region = regions.pop().unwrap();
        let descriptors: Vec<Descriptor> = (0..90).map(|_| region.allocate(100).unwrap()).collect();
        let programs = programs(&[(u16::MAX, u16::MAX); 4]);
        // 22 or 23 in a bin: some that are looked at eight at a time, and some that are left.
        let good = chunk(&descriptors, 4, |index| index % 4);
        let beyond = Descriptor { length: u16::MAX, ..descriptors[0] };
        let far = Descriptor { buffer: u32::MAX, ..descriptors[0] };
        for wrong in [others.allocate(100).unwrap(), beyond, far] {
            for bin in &good.bins {
                for place in good.range(bin) {
                    let mut chunk = chunk(&descriptors, 4, |index| index % 4);
                    chunk.descriptors[place] = wrong;
                    let error =
                        plan(&chunk, &DeviceChain::needs(None, &programs), &region, pitch, Transfer::Auto).unwrap_err();
                    assert_eq!(error.to_string(), outside(bin).to_string());
                }
            }
        }
    }
}

/// Packets that lie side by side are copied, unless there are few bytes of them or somebody says otherwise.
#[test]
fn how_buffers_travel_can_be_said() {
    let (mut region, pitch) = region(Layout::Dense, 1000);
    let descriptors: Vec<Descriptor> = (0..1000).map(|_| region.allocate(1000).unwrap()).collect();
    let programs = programs(&[(u16::MAX, u16::MAX)]);
    let planned = |descriptors: &[Descriptor], buffers| {
        planned(&region, pitch, &chunk(descriptors, 1, |_| 0), &programs, buffers).carriage
    };
    assert!(matches!(planned(&descriptors, Transfer::Auto), Carriage::Runs(_)));
    assert!(matches!(planned(&descriptors, Transfer::Copy), Carriage::Runs(_)));
    assert_eq!(planned(&descriptors, Transfer::ZeroCopy), Carriage::Reached);
    let few = &descriptors[..100];
    assert_eq!(planned(few, Transfer::Auto), Carriage::Reached);
    assert!(matches!(planned(few, Transfer::Copy), Carriage::Runs(_)));
    // Copy engines are told of runs, or rows.
    let scattered: Vec<Descriptor> = descriptors.iter().copied().step_by(2).collect();
    assert_eq!(planned(&scattered, Transfer::Copy), Carriage::Reached);
    for buffers in Transfer::ALL {
        assert!(matches!(planned(&[], buffers), Carriage::Runs(runs) if runs.is_empty()));
    }
}
