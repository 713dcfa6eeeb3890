//! CUDA text of the kernels, emulated on the CPU and compared with the CPU kernels. This tests the
//! parts that only devices have: several lanes per packet, shuffles, barriers, scratch memory.

use godwit_abi::VERDICT_DROP;

use crate::common::chunk::{Chunk, chained, parts};
use crate::common::emulation::{Emulation, Launch, Mode, Sanitizer};
use crate::common::ipsec::ipsec_parts;
use crate::common::ipsec_suites::suite_parts;
use crate::common::ipv6::ipv6_parts;
use crate::common::ndn::ndn_part;
use crate::common::whole::whole_parts;

const THREADS: u64 = godwit_kernels::CUDA_GROUP_LANES as u64;

/// Asserts that the emulation gives the result of the CPU. With a shadow of the arena, the bytes of
/// dropped packets are not compared, because they are not copied back.
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
        "bytes between the buffers were written"
    );
}

#[test]
fn a_chunk_gives_the_same_results_under_cuda_and_on_the_cpu() {
    let Some(emulation) = Emulation::build("chunk", Sanitizer::Addresses) else { return };
    let all = || {
        let ipsec = ipsec_parts(700, 5).into_iter().chain(ipsec_parts(300, 6));
        let all = parts(500).into_iter().chain(ipsec).chain(ipv6_parts(300, 7)).chain([ndn_part(900, 7)]);
        all.chain(whole_parts(150, 8)).collect()
    };
    let chunk = Chunk::new(all(), &[33, 1, 256, 2, 32, 31]);
    assert_same(&emulation, &chunk, 1, Mode::InPlace);
    assert_same(&emulation, &chunk, 2, Mode::ByGroup);
    assert_same(&emulation, &chunk, 3, Mode::Persistent { bin_packets: 256 });
    // The shared memory of a group has room for these bins.
    let small = Chunk::new(all(), &[32, 1, 64, 7]);
    assert_same(&emulation, &small, 4, Mode::Persistent { bin_packets: 64 });
}

/// The bins belong to all functions, with and without a device chain.
#[test]
fn a_bin_in_parts_gives_the_same_results_under_cuda_and_on_the_cpu() {
    let Some(emulation) = Emulation::build("parts", Sanitizer::Addresses) else { return };
    for (seed, mode) in (0..).zip([Mode::InPlace, Mode::ByGroup]) {
        let all = parts(150).into_iter().chain(suite_parts(40, seed)).collect();
        assert_same(&emulation, &Chunk::new(all, &[11, 1, 31, 2]).in_parts(seed), seed, mode);
        assert_same(&emulation, &chained(seed, &[11, 1, 31, 2]).in_parts(seed), seed, mode);
    }
}

/// The chains contain all functions: paths split and join, and lead to functions with group forms.
#[test]
fn a_chain_gives_the_same_results_under_cuda_and_on_the_cpu() {
    let Some(emulation) = Emulation::build("chain", Sanitizer::Addresses) else { return };
    for seed in 0..6 {
        let chunk = chained(seed, &[33, 1, 64, 2, 32, 31]);
        let mode = [Mode::InPlace, Mode::ByGroup, Mode::Persistent { bin_packets: 64 }][seed as usize % 3];
        assert_same(&emulation, &chunk, seed, mode);
    }
}

/// Every suite uses its group form. The bins need less than one round, or more.
#[test]
fn every_suite_gives_the_same_results_under_cuda_and_on_the_cpu() {
    let Some(emulation) = Emulation::build("suites", Sanitizer::Addresses) else { return };
    let chunk = Chunk::new(suite_parts(70, 7), &[33, 1, 7, 64, 13, 3, 32]);
    assert_same(&emulation, &chunk, 1, Mode::InPlace);
    let chunk = Chunk::new(suite_parts(70, 9), &[70]);
    assert_same(&emulation, &chunk, 2, Mode::ByGroup);
}

/// The random packets of each suite are encapsulated, decapsulated, or dropped for every reason.
#[test]
fn packets_for_every_suite_reach_every_outcome() {
    const PACKETS: usize = 400;
    let chunk = Chunk::new(suite_parts(PACKETS, 11), &[256]);
    let outcomes = chunk.run_on_cpu().outcomes;
    let mut reasons = std::collections::BTreeSet::new();
    for (part, outcomes) in chunk.parts.iter().zip(outcomes.chunks(PACKETS)) {
        let direction = (part.case.variant & 1) as u8;
        let passed = outcomes.iter().filter(|outcome| outcome.verdict == direction).count();
        assert!(passed > PACKETS / 50, "{}, direction {direction}: only {passed} pass", part.case.name);
        let dropped = outcomes.iter().filter(|outcome| outcome.verdict == VERDICT_DROP);
        reasons.extend(dropped.map(|outcome| (direction, outcome.reason)));
    }
    let expected = [(0, &[0, 1, 4, 9, 10][..]), (1, &[0, 1, 3, 5, 6, 9, 10, 11, 12])]
        .map(|(direction, list)| list.iter().map(move |reason| (direction, *reason)));
    for expected in expected.into_iter().flatten() {
        assert!(reasons.contains(&expected), "{expected:?} is missing: {reasons:?}");
    }
}

/// The random packets cause every outcome that the kernel can cause without the host half.
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
        let passed = outcomes.iter().filter(|outcome| outcome.verdict == variant as u8).count();
        assert!(passed > 200, "variant {variant}: only {passed} packets pass");
    }
}

/// The random packets cause every outcome with both forms of the table.
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

/// The random packets cause every outcome of `hash` and `aes`, except digests of the list.
#[test]
fn packets_for_whole_packets_reach_every_outcome() {
    const PACKETS: usize = 600;
    let chunk = Chunk::new(whole_parts(PACKETS, 8), &[256]);
    let outcomes = chunk.run_on_cpu().outcomes;
    for (part, outcomes) in chunk.parts.iter().zip(outcomes.chunks(PACKETS)) {
        let name = part.case.name;
        let passed = outcomes.iter().filter(|outcome| outcome.verdict == 0).count();
        assert!(passed > PACKETS / 2, "{name}: only {passed} pass");
        let reasons: &[u8] = match name {
            "chacha20, encrypt" => &[0, 2],
            "chacha20, decrypt" => &[1],
            _ => &[0],
        };
        for reason in reasons {
            assert!(outcomes.contains(&godwit_abi::Outcome::drop(*reason)), "{name}: reason {reason}");
        }
    }
}
