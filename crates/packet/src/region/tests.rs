use proptest::prelude::*;

use super::*;
use crate::Arena;

fn regions(layout: Layout, packets: usize, workers: usize) -> Vec<Region> {
    let config = ArenaConfig { layout, packets, ..ArenaConfig::default() };
    Arena::new(config, workers).unwrap().split()
}

fn kinds() -> impl Strategy<Value = (Layout, Reuse)> {
    prop::sample::select(vec![
        (Layout::Slots, Reuse::Last),
        (Layout::Slots, Reuse::Oldest),
        (Layout::Dense, Reuse::Last),
    ])
}

fn region(packets: usize, (layout, reuse): (Layout, Reuse)) -> Region {
    let config = ArenaConfig { layout, reuse, packets, ..ArenaConfig::default() };
    Arena::new(config, 2).unwrap().split().remove(1)
}

proptest! {
    #[test]
    fn contains_all_equals_contains_of_each(
        lends: bool,
        packets in prop::collection::vec((0u32..=205, 0u16..900, 0u16..900, 0u8..12), 0..4),
    ) {
        let config = ArenaConfig { packets: 5, slot_bytes: Some(2048), ..ArenaConfig::default() };
        let mut region = Arena::new(config, 2).unwrap().split().remove(1);
        let (start, bytes) = region.extent();
        prop_assert_eq!((start, bytes), (12288, 64 * 192), "the offsets below cover both ends of the region");
        if lends {
            let packet = region.allocate(60).unwrap();
            region.lend([&packet]);
        }
        let first = (start / 64) as u32 - 5;
        let packets: Vec<Descriptor> = packets
            .into_iter()
            .map(|(at, head, length, room)| Descriptor { buffer: first + at, head, length, room, ..Descriptor::default() })
            .collect();
        prop_assert_eq!(region.contains_all(&packets), packets.iter().all(|packet| region.contains(packet)));
    }
}

#[test]
fn region_refuses_buffers_that_ports_hold() {
    for reuse in [Reuse::Last, Reuse::Oldest] {
        let config = ArenaConfig { reuse, packets: 5, slot_bytes: Some(2048), ..ArenaConfig::default() };
        let mut region = Arena::new(config, 2).unwrap().split().remove(1);
        assert_eq!(region.extent(), (12288, 12288), "whole pages");
        let posted = [(); 5].map(|()| region.post().unwrap());
        assert!(region.post().is_none() && region.allocate(60).is_none());
        assert_eq!((region.in_ports(), region.allocated()), (5, 0));
        let offset = |buffer: u32| buffer as usize * 64 + 128;
        // These frames are invalid. They lie in another region, after the last buffer, or beyond
        // the end of a buffer.
        assert!(region.arrived(128, 60).is_none());
        assert!(region.arrived(12288 + 5 * 2048, 60).is_none());
        assert!(region.arrived(offset(posted[0]), 1665).is_none());
        let packet = region.arrived(offset(posted[0]), 1600).unwrap();
        assert_eq!((packet.head, packet.length, packet.buffer), (128, 1600, posted[0]));
        assert!(region.arrived(offset(posted[0]), 60).is_none(), "the buffer is a packet already");
        assert_eq!((region.in_ports(), region.allocated()), (4, 1));
        region.frame_mut(&packet).fill(1);
        region.hand_over(&packet);
        assert!(!region.contains(&packet));
        assert_eq!((region.in_ports(), region.allocated()), (5, 0));
        region.reclaim(packet.buffer);
        let next = region.allocate(60).unwrap();
        assert_eq!(next.buffer, packet.buffer);
        // A thread borrows the buffer and passes it to the port. The port returns the buffer before
        // or after the thread reports the transfer.
        let mut borrower = region.borrower();
        for early in [true, false] {
            let packet = if early { next } else { region.allocate(60).unwrap() };
            borrower.accept(region.lend([&packet]));
            borrower.hand_over(&packet);
            if early {
                borrower.reclaim(packet.buffer);
            }
            let loan = borrower.returned();
            assert!(loan.is_empty());
            region.take_back(loan);
            assert_eq!((region.in_ports(), region.allocated()), (if early { 4 } else { 5 }, 0));
            if !early {
                borrower.reclaim(packet.buffer);
                region.take_back(borrower.returned());
            }
            assert_eq!(region.in_ports(), 4);
        }
    }
}

/// Layouts with fixed distances between buffers: a power of two, and an odd multiple of the
/// alignment. The second layout also reserves memory for a driver before each buffer.
fn slots() -> impl Strategy<Value = ArenaConfig> {
    let two = ArenaConfig { packets: 5, slot_bytes: Some(2048), ..ArenaConfig::default() };
    let odd = ArenaConfig { packets: 9, prefix_bytes: 256, ..ArenaConfig::default() };
    prop::sample::select(vec![two, odd])
}

proptest! {
    #[test]
    fn finds_the_buffer_of_a_byte(config in slots(), at: prop::sample::Index) {
        let stride_bytes = config.slot_stride_bytes();
        let region = Arena::new(config.clone(), 2).unwrap().split().remove(1);
        let (start, bytes) = region.extent();
        let inside = at.index(bytes);
        let buffer = start + inside / stride_bytes * stride_bytes + config.prefix_bytes;
        let expected = (inside % stride_bytes >= config.prefix_bytes).then_some((buffer / 64) as u32);
        prop_assert_eq!(region.buffer_at(start + inside), expected);
        prop_assert_eq!(region.buffer_at(start + bytes + inside), None);
    }

    /// Checks that a frame becomes a packet only once, and only in a buffer that a port holds. The
    /// region then accepts this packet's descriptor, but refuses buffers that ports still hold.
    #[test]
    fn only_posted_buffers_arrive(
        config in slots(),
        frames in prop::collection::vec((any::<prop::sample::Index>(), -1i64..2, 0u16..1900, 0u16..1900), 1..9),
    ) {
        let mut region = Arena::new(config.clone(), 2).unwrap().split().remove(1);
        let mut posted: Vec<u32> = (0..3).map_while(|_| region.post()).collect();
        let kept = region.allocate(60).unwrap();
        let known = [&posted[..], &[kept.buffer]].concat();
        for (at, shift, head, length) in frames {
            // Most random buffer numbers belong to the region, and most random frames fit into the
            // buffer.
            let buffer = (i64::from(known[at.index(known.len())]) + if head % 8 == 0 { shift } else { 0 }) as u32;
            let arrives = posted.contains(&buffer) && usize::from(head) + usize::from(length) <= config.buffer_bytes();
            let mut packets = Vec::new();
            let arrived = region.arrived_each(&[()], |()| (buffer, head, length), |(), packet, frame| {
                assert_eq!(frame.len(), usize::from(length));
                packets.push(packet);
            });
            prop_assert_eq!((arrived, packets.len()), (usize::from(arrives), usize::from(arrives)));
            if arrives {
                posted.retain(|other| *other != buffer);
                prop_assert!(region.contains_all(&packets));
            }
            prop_assert_eq!((region.in_ports(), region.allocated()), (posted.len(), 4 - posted.len()));
            for &buffer in &posted {
                let packet = Descriptor { buffer, ..kept };
                prop_assert!(!region.contains(&packet) && !region.contains_all(&[packet]));
            }
            prop_assert!(region.contains(&kept));
        }
    }
}

#[test]
fn stops_at_the_first_frame_that_is_invalid() {
    let mut region =
        Arena::new(ArenaConfig { prefix_bytes: 256, ..ArenaConfig::default() }, 1).unwrap().split().remove(0);
    let buffers = [(); 3].map(|()| region.post().unwrap());
    let frames = [buffers[2], buffers[0], buffers[2], buffers[1]];
    assert_eq!(region.arrived_each(&frames, |buffer| (*buffer, 128, 60), |_, _, _| {}), 2);
    assert_eq!((region.in_ports(), region.allocated()), (1, 2));
}

#[test]
#[should_panic(expected = "outside its region")]
fn panics_if_a_packet_is_handed_over_twice() {
    let mut region = region(3, (Layout::Slots, Reuse::Last));
    let packet = region.allocate(60).unwrap();
    region.hand_over_all([packet, packet].iter());
}

#[test]
#[should_panic(expected = "outside its region")]
fn panics_if_a_buffer_is_longer_than_a_slot() {
    let mut region = region(3, (Layout::Slots, Reuse::Last));
    let packet = region.allocate(60).unwrap();
    region.frame(&Descriptor { room: packet.room + 1, ..packet });
}

#[test]
#[should_panic(expected = "no port holds buffer")]
fn panics_if_a_buffer_is_reclaimed_that_no_port_held() {
    let config = ArenaConfig { slot_bytes: Some(2048), ..ArenaConfig::default() };
    let mut region = Arena::new(config, 1).unwrap().split().remove(0);
    region.post().unwrap();
    let packet = region.allocate(60).unwrap();
    region.reclaim(packet.buffer);
}

#[test]
fn reuse_selects_the_newest_or_the_oldest_slot() {
    let buffers = |reuse| {
        let mut region = region(3, (Layout::Slots, reuse));
        let first = [(); 2].map(|()| region.allocate(64).unwrap());
        first.iter().for_each(|descriptor| region.release(descriptor));
        let next = [(); 3].map(|()| region.allocate(64).unwrap().buffer);
        next.map(|buffer| first.iter().position(|descriptor| descriptor.buffer == buffer))
    };
    assert_eq!(buffers(Reuse::Last), [Some(1), Some(0), None]);
    assert_eq!(buffers(Reuse::Oldest), [None, Some(0), Some(1)]);
}

/// Frame lengths in the tests: short, equal, or too long.
fn frame_bytes() -> impl Strategy<Value = u16> {
    prop_oneof![1 => 0u16..1600, 4 => 0u16..200, 2 => Just(60)]
}

proptest! {
    #[test]
    fn allocating_together_equals_one_by_one(
        kind in kinds(),
        steps in prop::collection::vec(
            (prop::collection::vec(frame_bytes(), 0..40), any::<prop::sample::Index>(), 0usize..40, 0u8..20),
            1..200,
        ),
        // The lengths in `next` only control prefetching, so the result must not depend on them.
        next in prop::collection::vec(any::<u16>(), 0..20),
    ) {
        let (mut one, mut other) = (region(9, kind), region(9, kind));
        let mut live: Vec<Descriptor> = Vec::new();
        for (lengths, first, count, quarantine) in steps {
            let expected: Vec<_> = lengths.iter().map_while(|&length| one.allocate(length.into())).collect();
            let (mut found, mut written) = (Vec::new(), 0);
            let allocated = other.allocate_each(&lengths, &next, &mut found, |number, descriptor, frame| {
                assert_eq!((number, lengths[number]), (usize::from(written), descriptor.length));
                assert_eq!(frame.len(), descriptor.room_bytes() - usize::from(descriptor.head));
                frame.fill(written);
                written += 1;
            });
            prop_assert_eq!(allocated, expected.len());
            prop_assert_eq!(&found, &expected);
            for (index, descriptor) in found.iter().enumerate() {
                prop_assert!(other.frame(descriptor).iter().all(|&byte| byte == index as u8));
            }
            live.extend(found);
            let first = first.index(live.len() + 1);
            let gone: Vec<_> = live.drain(first..live.len().min(first + count)).collect();
            if quarantine == 0 {
                for descriptor in &gone {
                    one.quarantine(descriptor);
                    other.quarantine(descriptor);
                }
            } else if !gone.is_empty() {
                gone.iter().for_each(|descriptor| one.release(descriptor));
                other.release_all(&gone);
            }
            prop_assert_eq!((one.allocated(), other.allocated()), (live.len(), live.len()));
        }
    }
}

#[test]
fn empty_ring_accepts_any_frame_at_any_head() {
    let mut region = region(1, (Layout::Dense, Reuse::Last));
    for length in [1518, 700, 1518, 60, 60, 1518] {
        let descriptor = region.allocate(length).unwrap();
        region.release(&descriptor);
    }
}

#[test]
fn region_is_unusable_if_all_buffers_are_quarantined() {
    for kind in [(Layout::Slots, Reuse::Last), (Layout::Slots, Reuse::Oldest), (Layout::Dense, Reuse::Last)] {
        let mut region = region(5, kind);
        let all: Vec<_> = std::iter::from_fn(|| region.allocate(1518)).collect();
        for (index, descriptor) in all.iter().enumerate() {
            assert!(region.is_usable(), "{kind:?} after {index}");
            region.quarantine(descriptor);
        }
        assert!(!region.is_usable() && region.allocate(1518).is_none());
        assert_eq!((region.allocated(), region.quarantined()), (0, all.len()));
    }
}

#[test]
fn slots_hold_the_configured_number_of_packets() {
    let mut region = regions(Layout::Slots, 5, 1).remove(0);
    let taken: Vec<_> = (0..5).map(|_| region.allocate(64).unwrap()).collect();
    assert!(region.allocate(64).is_none());
    taken.iter().for_each(|descriptor| region.release(descriptor));
    assert_eq!(region.allocated(), 0);
    assert!(region.allocate(1518).is_some());
}

#[test]
fn duplicate_copies_the_frame_to_a_new_buffer() {
    for kind in [(Layout::Slots, Reuse::Last), (Layout::Slots, Reuse::Oldest), (Layout::Dense, Reuse::Last)] {
        let mut region = region(3, kind);
        // The cases are an unchanged frame, a frame that is longer than any received frame, a frame
        // with a shortened front, and an empty frame.
        for (length, before, after) in [(60i32, 0, 0), (1518, 32, 16), (1518, -100, 0), (0, 0, 0), (64, 20, 40)] {
            let mut packet = region.allocate(length as usize).unwrap();
            packet.head = (i32::from(packet.head) - before) as u16;
            packet.length = (length + before + after) as u16;
            (packet.port, packet.order, packet.flow_hash) = (3, 500, 77);
            region.frame_mut(&packet).iter_mut().zip(1..).for_each(|(byte, value)| *byte = value as u8);
            let copy = region.duplicate(&packet).unwrap();
            assert_ne!(copy.buffer, packet.buffer);
            let same = Descriptor { buffer: packet.buffer, room: packet.room, head: packet.head, ..copy };
            assert_eq!(same, packet);
            assert_eq!(region.frame(&copy), region.frame(&packet));
            region.frame_mut(&copy).fill(0);
            assert!(length == 0 || region.frame(&packet)[0] == 1);
            [packet, copy].iter().for_each(|one| region.release(one));
        }
        let all: Vec<_> = std::iter::from_fn(|| region.allocate(1518)).collect();
        assert!(region.duplicate(&all[0]).is_none());
    }
}

#[test]
fn rejects_a_frame_longer_than_the_maximum() {
    for layout in [Layout::Slots, Layout::Dense] {
        let mut region = regions(layout, 5, 1).remove(0);
        assert!(region.allocate(1519).is_none());
        assert!(region.allocate(0).is_some());
    }
}

#[test]
#[should_panic(expected = "outside its region")]
fn panics_on_a_descriptor_of_another_worker() {
    let mut regions = regions(Layout::Slots, 5, 2);
    let foreign = regions[0].allocate(64).unwrap();
    regions[1].frame(&foreign);
}

proptest! {
    #[test]
    fn buffers_are_exclusive(
        kind in kinds(),
        quarantines in 0usize..12,
        steps in prop::collection::vec((0usize..1519, 0u8..8, any::<prop::sample::Index>()), 1..600),
    ) {
        let mut region = region(16, kind);
        let mut live: Vec<(Descriptor, u8)> = Vec::new();
        let mut lost: Vec<(Descriptor, u8)> = Vec::new();
        for (step, (length, action, index)) in steps.into_iter().enumerate() {
            let mark = step as u8;
            if action < 4 {
                if let Some(descriptor) = region.allocate(length) {
                    prop_assert!(region.contains(&descriptor));
                    prop_assert_eq!(usize::from(descriptor.length), length);
                    prop_assert!(descriptor.tailroom_bytes() >= 64);
                    region.buffer_mut(&descriptor).fill(mark);
                    live.push((descriptor, mark));
                }
            } else if !live.is_empty() {
                let (descriptor, mark) = live.swap_remove(index.index(live.len()));
                prop_assert!(region.buffer_mut(&descriptor).iter().all(|&byte| byte == mark));
                if action == 4 && lost.len() < quarantines {
                    region.quarantine(&descriptor);
                    lost.push((descriptor, mark));
                } else {
                    region.release(&descriptor);
                }
            }
            prop_assert_eq!(region.allocated(), live.len());
            prop_assert_eq!(region.quarantined(), lost.len());
        }
        for (descriptor, mark) in live.drain(..) {
            prop_assert!(region.buffer_mut(&descriptor).iter().all(|&byte| byte == mark));
            region.release(&descriptor);
        }
        // Fill the region twice, which uses all freed buffers and no quarantined buffer.
        let usable = region.is_usable();
        for _ in 0..2 {
            let full: Vec<_> = std::iter::from_fn(|| region.allocate(1518)).collect();
            prop_assert_eq!(!full.is_empty(), usable);
            if lost.is_empty() {
                prop_assert!(full.len() >= 15, "only {} of 16 buffers are free again", full.len());
            } else if kind.0 == Layout::Slots {
                prop_assert_eq!(full.len() + lost.len(), 16);
            }
            full.iter().for_each(|descriptor| region.buffer_mut(descriptor).fill(0xee));
            full.iter().for_each(|descriptor| region.release(descriptor));
        }
        for (descriptor, mark) in lost {
            prop_assert!(region.buffer_mut(&descriptor).iter().all(|&byte| byte == mark));
        }
    }

    #[test]
    fn ring_skips_quarantined_buffers(
        lengths in prop::collection::vec(0usize..1519, 60),
        quarantined in prop::collection::btree_set(0usize..60, 0..8),
    ) {
        let mut region = region(8, (Layout::Dense, Reuse::Last));
        let buffers: Vec<_> = lengths.iter().map_while(|length| region.allocate(*length)).collect();
        for (index, descriptor) in buffers.iter().enumerate() {
            if quarantined.contains(&index) { region.quarantine(descriptor) } else { region.release(descriptor) }
        }
        for length in lengths.into_iter().chain([1518]) {
            let descriptor = region.allocate(length);
            prop_assert!(descriptor.is_some() || !region.is_usable());
            if let Some(descriptor) = descriptor {
                region.release(&descriptor);
            }
        }
        prop_assert_eq!(region.allocated(), 0);
    }
}
