//! Chunks that are wrong are refused untouched, by any device.

use godwit_abi::{Outcome, PART_MORE, PART_REST};
use godwit_device::Lane;
use godwit_packet::Region;
use godwit_sched::Chunk;

/// Makes a chunk of eight packets wrong.
pub(crate) type Spoil = fn(&mut Chunk);

/// What refusing it says, and how to make it so.
pub(crate) const FAULTS: [(&str, Spoil); 7] = [
    ("beyond its arrays", |chunk| chunk.bins[0].first = u32::MAX - 1),
    ("names no program", |chunk| chunk.bins[0].instance = 1),
    ("names no program", |chunk| chunk.bins[0].kernel = godwit_kernels::DPI),
    ("outside its worker's region", |chunk| chunk.descriptors[3].buffer = u32::MAX),
    ("outside its worker's region", |chunk| chunk.descriptors[3].head = u16::MAX),
    ("parts of one bin", |chunk| chunk.bins[0].part = PART_REST),
    ("and is the last", |chunk| chunk.bins.last_mut().unwrap().part = PART_MORE),
];

/// Demands that the lane gives it back as it was, with this reason, and that nothing is in flight.
pub(crate) fn demand_refused(lane: &mut dyn Lane, region: &mut Region, mut wrong: Chunk, reason: &str) {
    wrong.outcomes.fill(Outcome::drop(77));
    let (bins, descriptors) = (wrong.bins.clone(), wrong.descriptors.clone());
    let rejected = lane.submit(region, wrong).unwrap_err();
    assert!(rejected.error.to_string().contains(reason), "{}", rejected.error);
    assert_eq!((rejected.chunk.bins, rejected.chunk.descriptors), (bins, descriptors));
    assert!(rejected.chunk.outcomes.iter().all(|outcome| *outcome == Outcome::drop(77)));
    assert_eq!(lane.in_flight(), 0);
    assert!(lane.poll(region).unwrap().is_none());
}
