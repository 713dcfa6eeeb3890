//! The CPU device by itself: chunks come back finished, and a chunk that is wrong is refused untouched.

use std::sync::Arc;

use godwit_abi::{Bin, Descriptor, Outcome, VERDICT_DROP};
use godwit_device::cpu::CpuDevice;
use godwit_device::{Device, Implementation, Lane, Program};
use godwit_packet::{Arena, ArenaConfig, Region};
use godwit_sched::{Chunk, Packer, PackerConfig};

/// The `template` function: swaps the Ethernet addresses.
struct MacSwap;

impl Program for MacSwap {
    fn name(&self) -> &str {
        "swap"
    }

    fn kernel(&self) -> u8 {
        godwit_kernels::TEMPLATE
    }

    fn image(&self) -> &[u8] {
        &[]
    }

    fn variant(&self) -> u8 {
        0
    }

    fn reads_bytes(&self) -> u16 {
        12
    }

    fn writes_bytes(&self) -> u16 {
        12
    }

    fn headroom_bytes(&self) -> u16 {
        0
    }

    fn tailroom_bytes(&self) -> u16 {
        0
    }

    fn run_ref(&self, window: &mut [u8], descriptor: &mut Descriptor, _variant: u8, _parameter: u64) -> Outcome {
        let frame = &mut window[usize::from(descriptor.head)..][..usize::from(descriptor.length)];
        if frame.len() < 14 {
            return Outcome::drop(0);
        }
        let (destination, source) = frame.split_at_mut(6);
        destination.swap_with_slice(&mut source[..6]);
        Outcome::verdict(0)
    }
}

fn lane(implementation: Implementation) -> Box<dyn Lane> {
    Arc::new(CpuDevice::new(vec![(Arc::new(MacSwap), implementation)]).unwrap()).lane().unwrap()
}

fn region(packets: usize) -> Region {
    Arena::new(ArenaConfig { packets, ..ArenaConfig::default() }, 1).unwrap().split().remove(0)
}

fn chunk(region: &mut Region, packets: usize, length: usize) -> Chunk {
    let config = PackerConfig { chunk_packets: 512, ..PackerConfig::default() };
    let mut packer = Packer::new(config, &[godwit_kernels::TEMPLATE], 2).unwrap();
    for mark in 0..packets {
        let descriptor = region.allocate(length).unwrap();
        let frame = region.frame_mut(&descriptor);
        frame.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at + mark) as u8);
        packer.insert(0, 0, 0, descriptor, 0);
    }
    packer.take(0).unwrap()
}

#[test]
fn every_form_runs_batches_of_any_size() {
    for implementation in [Implementation::Ref, Implementation::Scalar] {
        for packets in [1, 2, 31, 32, 33, 256, 300] {
            for length in [0, 13, 14, 64, 1518] {
                let mut region = region(packets);
                let mut lane = lane(implementation);
                let sent = chunk(&mut region, packets, length);
                lane.submit(&mut region, sent).unwrap();
                assert_eq!(lane.in_flight(), 1);
                let done = lane.poll(&mut region).unwrap().unwrap();
                assert_eq!(lane.in_flight(), 0);
                assert_eq!(lane.bin_times().len(), done.bins.len());
                let mut seen = 0;
                for bin in &done.bins {
                    for at in done.range(bin) {
                        let frame = region.frame(&done.descriptors[at]);
                        if length < 14 {
                            assert_eq!(done.outcomes[at], Outcome::drop(0));
                        } else {
                            assert_eq!(done.outcomes[at].verdict, 0);
                            let mark = frame[6];
                            let expected = |at: usize| (at + usize::from(mark)) as u8;
                            assert!((0..6).all(|at| frame[at + 6] == expected(at) && frame[at] == expected(at + 6)));
                            assert!((14..length).all(|at| frame[at] == expected(at)));
                        }
                        seen += 1;
                    }
                }
                assert_eq!(seen, packets);
            }
        }
    }
}

#[test]
fn a_wrong_chunk_comes_back_untouched() {
    type Spoil = fn(&mut Chunk);
    let faults: [(&str, Spoil); 5] = [
        ("beyond its arrays", |chunk| chunk.bins[0].first = u32::MAX - 1),
        ("names no program", |chunk| chunk.bins[0].instance = 1),
        ("names no program", |chunk| chunk.bins[0].kernel = godwit_kernels::DPI),
        ("outside its worker's region", |chunk| chunk.descriptors[3].window = u32::MAX),
        ("outside its worker's region", |chunk| chunk.descriptors[3].head = u16::MAX),
    ];
    for (reason, spoil) in faults {
        let mut region = region(8);
        let mut lane = lane(Implementation::Scalar);
        let mut wrong = chunk(&mut region, 8, 64);
        wrong.outcomes.fill(Outcome::drop(77));
        spoil(&mut wrong);
        let (bins, descriptors) = (wrong.bins.clone(), wrong.descriptors.clone());
        let rejected = lane.submit(&mut region, wrong).unwrap_err();
        assert!(rejected.error.to_string().contains(reason), "{}", rejected.error);
        assert_eq!((rejected.chunk.bins, rejected.chunk.descriptors), (bins, descriptors));
        assert!(rejected.chunk.outcomes.iter().all(|outcome| outcome.verdict == VERDICT_DROP && outcome.reason == 77));
        assert!(lane.poll(&mut region).unwrap().is_none());
    }
}

#[test]
fn an_empty_bin_is_nothing() {
    let mut region = region(1);
    let mut lane = lane(Implementation::Scalar);
    let mut empty = Chunk::new(1, 1);
    empty.bins.push(Bin { kernel: godwit_kernels::TEMPLATE, ..Bin::default() });
    lane.submit(&mut region, empty).unwrap();
    assert!(lane.poll(&mut region).unwrap().is_some());
}
