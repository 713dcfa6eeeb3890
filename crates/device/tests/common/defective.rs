//! Defective submissions, which every device must reject unchanged.

use godwit_abi::{Outcome, PART_MORE, PART_REST};
use godwit_device::Lane;
use godwit_packet::Region;
use godwit_sched::Chunk;

/// Changes a submission of eight packets so that it is defective.
pub(crate) type Damage = fn(&mut Chunk);

/// The tested defects. Each entry has a part of the expected error message, and the function that
/// makes the defect.
pub(crate) const FAULTS: [(&str, Damage); 7] = [
    ("exceeds the array lengths", |chunk| chunk.bins[0].first = u32::MAX - 1),
    ("names no program", |chunk| chunk.bins[0].instance = 1),
    ("names no program", |chunk| chunk.bins[0].kernel = godwit_kernels::DPI),
    ("outside its worker's region", |chunk| chunk.descriptors[3].buffer = u32::MAX),
    ("outside its worker's region", |chunk| chunk.descriptors[3].head = u16::MAX),
    ("parts of one bin", |chunk| chunk.bins[0].part = PART_REST),
    ("requires another part", |chunk| chunk.bins.last_mut().unwrap().part = PART_MORE),
];

/// Checks that the device rejects the submission unchanged and gives this reason. Also checks that
/// no submission is in flight afterwards.
pub(crate) fn assert_rejected(lane: &mut dyn Lane, region: &mut Region, mut wrong: Chunk, reason: &str) {
    wrong.outcomes.fill(Outcome::drop(77));
    let (bins, descriptors) = (wrong.bins.clone(), wrong.descriptors.clone());
    let rejected = lane.submit(region, wrong).unwrap_err();
    assert!(rejected.error.to_string().contains(reason), "{}", rejected.error);
    assert_eq!((rejected.chunk.bins, rejected.chunk.descriptors), (bins, descriptors));
    assert!(rejected.chunk.outcomes.iter().all(|outcome| *outcome == Outcome::drop(77)));
    assert_eq!(lane.in_flight(), 0);
    assert!(lane.poll(region).unwrap().is_none());
}
