//! Tests of the CPU as a device. They cover the results of all compiled versions of kernels,
//! batches with several kinds of processing, and defective submissions.

use std::sync::Arc;

use godwit_abi::{Bin, Descriptor, Outcome};
use godwit_device::cpu::CpuDevice;
use godwit_device::{Device, Implementation, Lane, Program};
use godwit_packet::{Arena, ArenaConfig, ArenaHandle, Layout, Region};
use godwit_sched::{Chunk, Packer, PackerConfig};

use crate::defective::{FAULTS, assert_rejected};
use crate::matrix::{self, Order, Scope, compare_with_ref};
use crate::template::Template;

fn lane(implementation: Implementation) -> Box<dyn Lane> {
    Arc::new(CpuDevice::new(vec![(Arc::new(Template), implementation)]).unwrap()).lane().unwrap()
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
fn ref_and_scalar_process_batches_of_any_size() {
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

/// The implementation of the function that is tested.
struct Setup(Implementation);

impl matrix::Setup for Setup {
    fn name(&self) -> String {
        format!("cpu {}", self.0.name())
    }

    fn copies(&self) -> bool {
        false
    }

    fn arena(&self, config: ArenaConfig) -> Arena {
        Arena::new(config, 1).unwrap()
    }

    fn lane(&self, programs: Vec<Arc<dyn Program>>, _arena: &ArenaHandle) -> Box<dyn Lane> {
        let programs = programs.into_iter().map(|program| (program, self.0)).collect();
        Arc::new(CpuDevice::new(programs).unwrap()).lane().unwrap()
    }
}

#[test]
fn bins_with_several_variants_match_ref() {
    let setups = Implementation::ALL.map(Setup);
    let orders = &[Order::Arrival];
    compare_with_ref(&setups, &Scope { layouts: &[Layout::Dense], batches: &[1, 33, 256], orders, picks: |_| true });
}

#[test]
fn rejects_defective_chunks_unchanged() {
    for (reason, damage) in FAULTS {
        let mut region = region(8);
        let mut lane = lane(Implementation::Scalar);
        let mut wrong = chunk(&mut region, 8, 64);
        damage(&mut wrong);
        assert_rejected(&mut *lane, &mut region, wrong, reason);
    }
}

#[test]
fn returns_a_chunk_with_an_empty_bin() {
    let mut region = region(1);
    let mut lane = lane(Implementation::Scalar);
    let mut empty = Chunk::new(1, 1);
    empty.bins.push(Bin { kernel: godwit_kernels::TEMPLATE, ..Bin::default() });
    lane.submit(&mut region, empty).unwrap();
    assert!(lane.poll(&mut region).unwrap().is_some());
}

/// The function `ipsec` without security associations (SAs), which drops every packet at once.
struct Empty;

impl Program for Empty {
    fn name(&self) -> &str {
        "empty"
    }

    fn kernel(&self) -> u8 {
        godwit_kernels::IPSEC
    }

    fn image(&self) -> godwit_packet::ImageRef<'_> {
        static IMAGE: [u8; 64] = [0; 64];
        IMAGE[..].into()
    }

    fn variant(&self) -> u8 {
        0
    }

    fn reads_bytes(&self) -> u16 {
        u16::MAX
    }

    fn writes_bytes(&self) -> u16 {
        u16::MAX
    }

    fn headroom_bytes(&self) -> u16 {
        0
    }

    fn tailroom_bytes(&self) -> u16 {
        0
    }

    fn run_ref(&self, _: &mut [u8], _: &mut Descriptor, _: u8, _: u64) -> Outcome {
        Outcome::drop(3)
    }
}

#[test]
fn selects_the_highest_form_if_every_sample_is_dropped() {
    let Some(level) = godwit_kernels::levels().iter().rfind(|level| level.supported()) else {
        return;
    };
    let native = godwit_kernels::natives().iter().rfind(|native| native.supported());
    let expected = native.map_or(level.name.to_owned(), |native| format!("{}, {}", native.name, level.name));
    let device = CpuDevice::new(vec![(Arc::new(Empty) as Arc<dyn Program>, Implementation::Native)]).unwrap();
    assert_eq!(device.choices()[0].form, expected);
}
