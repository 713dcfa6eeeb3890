//! The CUDA text of the kernels, emulated on the CPU, ends a chunk as the CPU's own kernels do. This shows what a
//! device would make of it wherever the two differ: several lanes to a packet, shuffles, barriers, scratch memory.

mod common;

use common::chunk::{Chunk, chained, parts};
use common::emulation::{Emulation, Launch, Mode, Sanitizer};
use common::ipsec::ipsec_parts;
use common::ipsec_suites::suite_parts;
use common::ipv6::ipv6_parts;
use common::ndn::ndn_part;
use godwit_abi::VERDICT_DROP;

const THREADS: u64 = godwit_kernels::CUDA_GROUP_LANES as u64;

/// Of a shadow of the arena, dropped packets are not taken back.
fn assert_same(emulation: &Emulation, chunk: &Chunk, seed: u64, mode: Mode) {
    let expected = chunk.run_on_cpu();
    let batch = emulation.run(chunk, Launch { blocks: 2, threads: THREADS, seed, mode });
    for (index, outcome) in expected.outcomes.iter().enumerate() {
        let context = format!("packet {index} of {}, seed {seed}, {mode:?}", chunk.name_of(index));
        assert_eq!(batch.outcomes[index], *outcome, "{context}");
        assert_eq!(batch.descriptors[index], expected.descriptors[index], "{context}");
        if chunk.has_chain() {
            assert_eq!(batch.trails[index], expected.trails[index], "{context}");
        }
        if mode == Mode::InPlace {
            assert!(batch.buffer(index) == expected.buffer(index), "{context}: buffers differ");
        } else if outcome.verdict != VERDICT_DROP {
            assert_eq!(batch.frame(index), expected.frame(index), "{context}");
        }
    }
    assert!(
        mode != Mode::InPlace || batch.arena.bytes() == expected.arena.bytes(),
        "something was written between buffers"
    );
}

#[test]
fn a_chunk_ends_under_cuda_as_on_the_cpu() {
    let Some(emulation) = Emulation::build("chunk", Sanitizer::Addresses) else { return };
    let all = || {
        let ipsec = ipsec_parts(700, 5).into_iter().chain(ipsec_parts(300, 6));
        parts(500).into_iter().chain(ipsec).chain(ipv6_parts(300, 7)).chain([ndn_part(900, 7)]).collect()
    };
    let chunk = Chunk::new(all(), &[33, 1, 256, 2, 32, 31]);
    assert_same(&emulation, &chunk, 1, Mode::InPlace);
    assert_same(&emulation, &chunk, 2, Mode::ByGroup);
    assert_same(&emulation, &chunk, 3, Mode::Persistent { bin_packets: 256 });
    // A group has room for these in its shared memory.
    let small = Chunk::new(all(), &[32, 1, 64, 7]);
    assert_same(&emulation, &small, 4, Mode::Persistent { bin_packets: 64 });
}

/// Parts of bins, of all functions, with chains behind them and without.
#[test]
fn a_bin_in_parts_ends_under_cuda_as_on_the_cpu() {
    let Some(emulation) = Emulation::build("parts", Sanitizer::Addresses) else { return };
    for (seed, mode) in (0..).zip([Mode::InPlace, Mode::ByGroup]) {
        let all = parts(150).into_iter().chain(suite_parts(40, seed)).collect();
        assert_same(&emulation, &Chunk::new(all, &[11, 1, 31, 2]).in_parts(seed), seed, mode);
        assert_same(&emulation, &chained(seed, &[11, 1, 31, 2]).in_parts(seed), seed, mode);
    }
}

/// Chains over all functions: packets part and meet, and go on to others that have group forms.
#[test]
fn a_chain_is_followed_under_cuda_as_on_the_cpu() {
    let Some(emulation) = Emulation::build("chain", Sanitizer::Addresses) else { return };
    for seed in 0..6 {
        let chunk = chained(seed, &[33, 1, 64, 2, 32, 31]);
        let mode = [Mode::InPlace, Mode::ByGroup, Mode::Persistent { bin_packets: 64 }][seed as usize % 3];
        assert_same(&emulation, &chunk, seed, mode);
    }
}

/// Every suite of `ipsec`, each in the group form that it has: bins of less than a round, and of more.
#[test]
fn every_suite_ends_under_cuda_as_on_the_cpu() {
    let Some(emulation) = Emulation::build("suites", Sanitizer::Addresses) else { return };
    let chunk = Chunk::new(suite_parts(70, 7), &[33, 1, 7, 64, 13, 3, 32]);
    assert_same(&emulation, &chunk, 1, Mode::InPlace);
    let chunk = Chunk::new(suite_parts(70, 9), &[70]);
    assert_same(&emulation, &chunk, 2, Mode::ByGroup);
}

/// The packets for each suite go through, and back, and are refused where something happened to them.
#[test]
fn packets_for_every_suite_reach_every_outcome() {
    const PACKETS: usize = 400;
    let chunk = Chunk::new(suite_parts(PACKETS, 8), &[256]);
    let outcomes = chunk.run_on_cpu().outcomes;
    let mut reasons = std::collections::BTreeSet::new();
    for (part, outcomes) in chunk.parts.iter().zip(outcomes.chunks(PACKETS)) {
        let direction = (part.case.variant & 1) as u8;
        let settled = outcomes.iter().filter(|outcome| outcome.verdict == direction).count();
        assert!(settled > PACKETS / 8, "{}, direction {direction}: only {settled} go through", part.case.name);
        let dropped = outcomes.iter().filter(|outcome| outcome.verdict == VERDICT_DROP);
        reasons.extend(dropped.map(|outcome| (direction, outcome.reason)));
    }
    let expected = [(0, &[0, 1, 4, 9, 10][..]), (1, &[0, 1, 3, 5, 6, 9, 10, 11, 12])]
        .map(|(direction, list)| list.iter().map(move |reason| (direction, *reason)));
    for expected in expected.into_iter().flatten() {
        assert!(reasons.contains(&expected), "{expected:?} is missing: {reasons:?}");
    }
}

/// The packets for `ipsec` come to every end that the kernel alone can bring them to.
#[test]
fn packets_for_ipsec_reach_every_outcome() {
    let chunk = Chunk::new(ipsec_parts(1000, 5), &[256]);
    let outcomes = chunk.run_on_cpu().outcomes;
    for (variant, outcomes) in outcomes.chunks(1000).enumerate() {
        let verdicts: &[u8] = if variant == 0 { &[0, 3] } else { &[1, 3] };
        for verdict in verdicts {
            assert!(outcomes.iter().any(|outcome| outcome.verdict == *verdict), "variant {variant}: verdict {verdict}");
        }
        let reasons: &[u8] = if variant == 0 { &[0, 1, 3, 4] } else { &[0, 1, 3, 5, 6, 9, 12] };
        for reason in reasons {
            let same = |outcome: &&godwit_abi::Outcome| outcome.verdict == VERDICT_DROP && outcome.reason == *reason;
            assert!(outcomes.iter().any(|outcome| same(&outcome)), "variant {variant}: reason {reason}");
        }
        let settled = outcomes.iter().filter(|outcome| outcome.verdict == variant as u8).count();
        assert!(settled > 200, "variant {variant}: only {settled} packets go through");
    }
}

/// The packets for `ipv6` come to every end, in both forms of its table.
#[test]
fn packets_for_ipv6_reach_every_outcome() {
    let chunk = Chunk::new(ipv6_parts(2000, 7), &[256]);
    let outcomes = chunk.run_on_cpu().outcomes;
    for (part, outcomes) in chunk.parts.iter().zip(outcomes.chunks(2000)) {
        for verdict in 0..10 {
            assert!(outcomes.iter().any(|outcome| outcome.verdict == verdict), "{}: verdict {verdict}", part.case.name);
        }
        for reason in 0..5 {
            let drop = godwit_abi::Outcome::drop(reason);
            assert!(outcomes.contains(&drop), "{}: reason {reason}", part.case.name);
        }
    }
}
