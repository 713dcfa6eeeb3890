//! CUDA text of the kernels, emulated on the CPU under the thread sanitizer. It reports two lanes
//! that access the same memory without a barrier in between, if one of them writes.

use crate::common::chunk::{Chunk, chained, parts};
use crate::common::emulation::{Emulation, Launch, Mode, Sanitizer};
use crate::common::ipsec::ipsec_parts;
use crate::common::ipsec_suites::suite_parts;
use crate::common::ipv6::ipv6_parts;
use crate::common::ndn::ndn_part;

const THREADS: u64 = godwit_kernels::CUDA_GROUP_LANES as u64;
const MODES: [Mode; 3] = [Mode::InPlace, Mode::ByGroup, Mode::Persistent { bin_packets: 64 }];

fn races(emulation: &Emulation, chunk: &Chunk, seed: u64, mode: Mode) -> Vec<String> {
    emulation.races(chunk, Launch { blocks: 2, threads: THREADS, seed, mode })
}

fn all_functions(packets: usize) -> Chunk {
    let ipsec = ipsec_parts(packets, 5);
    let all = parts(packets).into_iter().chain(ipsec).chain(ipv6_parts(packets, 7)).chain([ndn_part(packets, 7)]);
    Chunk::new(all.collect(), &[33, 1, 64, 7, 32])
}

#[test]
fn the_kernels_have_no_data_race() {
    let Some(emulation) = Emulation::build("races", Sanitizer::Races) else { return };
    let suites = || suite_parts(40, 9);
    let chunks = [
        ("all functions", all_functions(150)),
        ("every suite", Chunk::new(suites(), &[33, 7, 40])),
        ("bins in parts", Chunk::new(suites(), &[11, 1, 31, 2]).in_parts(4)),
        ("chains", chained(3, &[33, 1, 64, 2, 32, 31])),
        ("chains after bins in parts", chained(5, &[11, 1, 31, 2]).in_parts(6)),
    ];
    for (seed, (name, chunk)) in (1..).zip(&chunks) {
        // Persistent groups get no bins in parts.
        let modes =
            MODES.iter().filter(|mode| !name.contains("parts") || matches!(mode, Mode::InPlace | Mode::ByGroup));
        for &mode in modes {
            let found = races(&emulation, chunk, seed, mode);
            assert!(found.is_empty(), "{name}, {mode:?}: {} data races, the first:\n{}", found.len(), found[0]);
        }
    }
}

/// Barriers in the source text, with the following statement, and the text without the barrier.
/// Without them, the emulation still gives the correct packets in most runs.
const BARRIERS: [(&str, &str); 5] = [
    // All buffers are in the memory of the group.
    (
        "gw_barrier();\n        const gw_u32 count = gw_uniform(steps.bin.count);",
        "const gw_u32 count = gw_uniform(steps.bin.count);",
    ),
    // The function has processed all packets.
    (
        "gw_barrier();\n            gw_return(device.shadow, device.host, descriptors + first",
        "gw_return(device.shadow, device.host, descriptors + first",
    ),
    // All outcomes are in the memory of the device.
    (
        "gw_barrier();\n        if (host_arrays != 0) {\n            gw_return_arrays(",
        "if (host_arrays != 0) {\n            gw_return_arrays(",
    ),
    // All descriptors have arrived.
    (
        "gw_barrier();\n            gw_fetch(device.shadow, device.host, descriptors + steps",
        "gw_fetch(device.shadow, device.host, descriptors + steps",
    ),
    ("gw_barrier();\n            steps--;", "steps--;"),
];

#[test]
fn a_missing_barrier_is_a_data_race() {
    let chunk = all_functions(70);
    for (index, (barrier, none)) in BARRIERS.iter().enumerate() {
        let source = godwit_kernels::cuda_source();
        assert!(source.contains(barrier), "the source does not contain: {barrier}");
        let text = source.replacen(barrier, none, 1);
        let Some(emulation) = Emulation::build_text(&format!("missing-{index}"), Sanitizer::Races, &text) else {
            return;
        };
        let found = MODES.into_iter().any(|mode| !races(&emulation, &chunk, 1, mode).is_empty());
        assert!(found, "no data race without the barrier before `{none}`");
    }
}
