//! Matrix of functions, implementations and batch sizes: every implementation gives the result of
//! `ref` for every packet.
//!
//! A new function needs one entry in [`godwit_test_cases::cases`], a new implementation one entry
//! in [`implementations`](implementations::implementations). The tests compare outcomes,
//! descriptors, and all defined bytes of the buffers, with headroom and tailroom. The buffers are
//! adjacent, so a write beyond one buffer changes the next.
//!
//! A second test checks that no implementation reads or writes more bytes of a packet than its
//! contract states, because devices with their own memory copy only these bytes.

use std::ops::Range;

use godwit_abi::{Bin, Descriptor, Outcome, VERDICT_DROP};
use godwit_function::{Contract, Function, HostHalf, Work};
use godwit_packet::{Arena, ArenaConfig, Layout, Region};
use godwit_test_cases::{Case, cases};
use godwit_test_support::{Random, skip};

use super::implementations::{self, Implementation, Job};

/// Sizes of batches, in packets: one packet, about as many as a warp has threads, and the maximum.
const BATCHES: [usize; 6] = [1, 2, 31, 32, 33, 256];

struct Prepared {
    region: Region,
    packets: Vec<Packet>,
}

struct Packet {
    descriptor: Descriptor,
    variant: u8,
    parameter: u64,
    buffer: Vec<u8>,
}

#[test]
fn every_implementation_gives_the_results_of_ref() {
    let cases = cases();
    let implementations = implementations::implementations();
    for case in &cases {
        let mut prepared = prepare(case);
        let expected: Vec<_> = prepared.packets.iter().map(|packet| run_ref(&*case.function, packet)).collect();
        assert_variety(case, &expected);
        for implementation in &implementations {
            if implementation.available.is_err() {
                continue;
            }
            for batch in BATCHES {
                check(case, &mut prepared, &expected, implementation, batch);
            }
        }
    }
    for implementation in &implementations {
        if let Err(reason) = &implementation.available {
            skip(format_args!("{}: {reason}", implementation.name));
        }
    }
    assert!(implementations.iter().any(|implementation| implementation.available.is_ok()), "nothing was compared");
}

/// Copies the frames to buffers, and runs the CPU part of the function.
fn prepare(case: &Case) -> Prepared {
    // Buffers have the minimum size, so the tailroom differs between packets.
    let config =
        ArenaConfig { layout: Layout::Dense, packets: case.frames.len() + 1, align_bytes: 64, ..Default::default() };
    let mut region = Arena::new(config, 1).unwrap().split().remove(0);
    let mut descriptors = Vec::new();
    for (order, frame) in case.frames.iter().enumerate() {
        let mut allocated = region.allocate(frame.len()).expect("the arena has a buffer for each frame");
        // Some packets have too little headroom if only the kernel checks it.
        if order % 16 == 15 && case.function.contract().headroom_bytes > 0 && case.function.host_half(0, 1).is_none() {
            allocated.head = 8;
        }
        let descriptor = Descriptor { order: order as u16, port: (order % 7) as u8, flow_hash: 0x5eed, ..allocated };
        let stale = (order as u8).wrapping_mul(37);
        region.buffer_mut(&descriptor).fill(stale);
        region.frame_mut(&descriptor).copy_from_slice(frame);
        descriptors.push(descriptor);
    }
    let mut work = Vec::new();
    match case.function.host_half(0, 1).as_mut().and_then(HostHalf::preparing) {
        Some(host_half) => host_half.prepare(&region, &descriptors, &mut work),
        None => {
            work.resize(descriptors.len(), Work::Run { variant: case.function.properties().variant, parameter: 0 });
        }
    }
    assert_eq!(work.len(), descriptors.len(), "{}: the host half must return work for every packet", case.name);
    let mut packets = Vec::new();
    for (descriptor, work) in descriptors.into_iter().zip(work) {
        if let Work::Run { variant, parameter } = work {
            let buffer = region.buffer_mut(&descriptor).to_vec();
            packets.push(Packet { descriptor, variant, parameter, buffer });
        }
    }
    // All packets of a batch need the same kind of processing.
    packets.sort_by_key(|packet| packet.variant);
    Prepared { region, packets }
}

struct Expected {
    outcome: Outcome,
    descriptor: Descriptor,
    buffer: Vec<u8>,
}

impl Expected {
    /// Returns the buffer ranges to compare. They are the frame of a packet that is not dropped,
    /// and all bytes outside the frame before and after processing.
    fn compared(&self, before: &Descriptor) -> Vec<Range<usize>> {
        let [before, after] = [before, &self.descriptor].map(|descriptor| {
            let head = usize::from(descriptor.head);
            head..head + usize::from(descriptor.length)
        });
        let mut compared = vec![0..before.start.min(after.start), before.end.max(after.end)..self.buffer.len()];
        if self.outcome.verdict != VERDICT_DROP {
            compared.push(after);
        }
        compared
    }
}

fn run_ref(function: &dyn Function, packet: &Packet) -> Expected {
    let (mut descriptor, mut buffer) = (packet.descriptor, packet.buffer.clone());
    let outcome = function.run_ref(&mut buffer, &mut descriptor, packet.variant, packet.parameter);
    Expected { outcome, descriptor, buffer }
}

/// Checks that the frames cause every verdict and drop reason of the kernel.
fn assert_variety(case: &Case, expected: &[Expected]) {
    let contract = case.function.contract();
    let occurs = |other: Outcome| {
        expected
            .iter()
            .any(|Expected { outcome, .. }| (outcome.verdict, outcome.reason) == (other.verdict, other.reason))
    };
    let has_host_half = case.function.host_half(0, 1).is_some();
    // Only the CPU part of a configured filter returns `reverse_path`. Only variants of `aes` with
    // a tag return the others.
    let is_of_some = |name: &str| matches!(name, "reverse_path" | "forged" | "no_room");
    for (number, verdict) in (0..).zip(contract.verdicts) {
        // Some verdicts and drop reasons come only from the CPU part of the function.
        assert!(has_host_half || occurs(Outcome::verdict(number)), "{}: no frame is {}", case.name, verdict.name);
    }
    for (number, drop) in (0..).zip(contract.drops) {
        let is_optional = has_host_half || is_of_some(drop.name);
        assert!(is_optional || occurs(Outcome::drop(number)), "{}: no frame is dropped as {}", case.name, drop.name);
    }
    assert!(expected.len() > 1000, "{}: only {} frames reach the kernel", case.name, expected.len());
}

fn check(case: &Case, prepared: &mut Prepared, expected: &[Expected], implementation: &Implementation, batch: usize) {
    let buffers: Vec<_> = prepared.packets.iter().map(|packet| packet.buffer.clone()).collect();
    let results = run(case, prepared, &buffers, implementation, batch);
    for (index, (result, expected)) in results.iter().zip(expected).enumerate() {
        let at = format!("{}: {}: bins of {batch}: packet {index}", case.name, implementation.name);
        let before = || format!("\nframe {:02x?}", frame_of(&prepared.packets[index]));
        assert_eq!(result.outcome, expected.outcome, "{at}{}", before());
        assert_eq!(result.descriptor, expected.descriptor, "{at}{}", before());
        for compared in expected.compared(&prepared.packets[index].descriptor) {
            let differs = first_difference(&result.buffer[compared.clone()], &expected.buffer[compared.clone()]);
            assert_eq!(differs, None, "{at}: first different byte of {compared:?} of the buffer{}", before());
        }
    }
}

fn run(
    case: &Case,
    prepared: &mut Prepared,
    buffers: &[Vec<u8>],
    implementation: &Implementation,
    batch: usize,
) -> Vec<Expected> {
    let Prepared { region, packets } = prepared;
    for (packet, buffer) in packets.iter().zip(buffers) {
        region.buffer_mut(&packet.descriptor).copy_from_slice(buffer);
    }
    let mut descriptors: Vec<_> = packets.iter().map(|packet| packet.descriptor).collect();
    let parameters: Vec<_> = packets.iter().map(|packet| packet.parameter).collect();
    let mut outcomes = vec![Outcome { verdict: 77, reason: 77, port: 7777, value: 7777 }; packets.len()];
    let bins: Vec<Bin> = bins(case, packets, batch);
    (implementation.run)(Job {
        region: &mut *region,
        image: case.function.image(),
        bins: &bins,
        descriptors: &mut descriptors,
        parameters: &parameters,
        outcomes: &mut outcomes,
    });
    let results = packets.iter().zip(descriptors).zip(outcomes).map(|((packet, descriptor), outcome)| {
        let buffer = region.buffer_mut(&packet.descriptor).to_vec();
        Expected { outcome, descriptor, buffer }
    });
    results.collect()
}

fn first_difference(a: &[u8], b: &[u8]) -> Option<usize> {
    a.iter().zip(b).position(|(a, b)| a != b)
}

/// The contract of a function declares the bytes that its kernel reads and writes. The result must
/// not depend on other bytes, and the kernel must not change other bytes. A device that copies only
/// the declared bytes then gives the same result.
#[test]
fn an_implementation_accesses_only_the_bytes_of_its_contract() {
    let mut random = Random::new(9);
    let implementations = implementations::implementations();
    for case in &cases() {
        let contract = case.function.contract();
        let writes = contract.writes_bytes;
        // A device would otherwise copy back bytes that it never received.
        assert!(
            writes == Contract::ALL || writes <= contract.reads_bytes,
            "{}: writes bytes that it does not read",
            case.name
        );
        let mut prepared = prepare(case);
        let expected: Vec<_> = prepared.packets.iter().map(|packet| run_ref(&*case.function, packet)).collect();
        for implementation in implementations.iter().filter(|implementation| implementation.available.is_ok()) {
            let garbled: Vec<_> =
                prepared.packets.iter().map(|packet| garble(&mut random, packet, contract.reads_bytes)).collect();
            let results = run(case, &mut prepared, &garbled, implementation, 33);
            for (index, (result, expected)) in results.iter().zip(&expected).enumerate() {
                let at = format!("{}: {}: packet {index}", case.name, implementation.name);
                let before = || format!("\nframe {:02x?}", frame_of(&prepared.packets[index]));
                assert_eq!(result.outcome, expected.outcome, "{at}: reads more{}", before());
                assert_eq!(result.descriptor, expected.descriptor, "{at}: reads more{}", before());
                if result.outcome.verdict != VERDICT_DROP {
                    let written = written(&result.descriptor, writes);
                    let differs = first_difference(&result.buffer[written.clone()], &expected.buffer[written]);
                    assert_eq!(
                        differs,
                        None,
                        "{at}: reads more: first different byte of those that it wrote{}",
                        before()
                    );
                }
                if writes != Contract::ALL {
                    let written = written(&result.descriptor, writes);
                    let changed = |at: &usize| !written.contains(at) && result.buffer[*at] != garbled[index][*at];
                    let changed = (0..result.buffer.len()).find(changed);
                    assert_eq!(changed, None, "{at}: writes more: byte of the buffer{}", before());
                }
            }
        }
    }
}

/// Changes all bytes in the buffer of a packet that the kernel must not read. They are the bytes
/// outside the frame, and after the first `reads` bytes of the frame.
fn garble(random: &mut Random, packet: &Packet, reads: u16) -> Vec<u8> {
    let head = usize::from(packet.descriptor.head);
    let read = head..head + usize::from(packet.descriptor.length.min(reads));
    let garbled = packet.buffer.iter().enumerate().map(|(at, &byte)| match read.contains(&at) {
        true => byte,
        // The new value always differs from the old value.
        false => byte.wrapping_add(1 + random.below(255)),
    });
    garbled.collect()
}

/// Returns the range of the buffer that a kernel may have written.
fn written(descriptor: &Descriptor, writes: u16) -> Range<usize> {
    let head = usize::from(descriptor.head);
    head..head + usize::from(descriptor.length.min(writes))
}

/// Returns batches of at most `batch` packets. All packets of a batch need the same kind of
/// processing.
fn bins(case: &Case, packets: &[Packet], batch: usize) -> Vec<Bin> {
    let mut bins = Vec::new();
    let mut first = 0;
    for same in packets.chunk_by(|a, b| a.variant == b.variant) {
        for part in same.chunks(batch) {
            bins.push(Bin {
                first,
                count: part.len() as u16,
                kernel: case.function.contract().bin_kernel(),
                variant: part[0].variant,
                length_bytes: part.iter().map(|packet| packet.descriptor.length).max().unwrap_or(0),
                ..Bin::default()
            });
            first += part.len() as u32;
        }
    }
    bins
}

fn frame_of(packet: &Packet) -> &[u8] {
    &packet.buffer[usize::from(packet.descriptor.head)..][..usize::from(packet.descriptor.length)]
}
