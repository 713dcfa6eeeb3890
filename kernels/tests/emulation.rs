//! The CUDA text of the kernels, emulated on the CPU, ends a chunk as the CPU's own kernels do. This shows what a
//! device would make of it wherever the two differ: several lanes to a packet, shuffles, barriers, scratch memory.

mod common;

use std::io::Write as _;

use common::CASES;
use common::chunk::Chunk;
use common::emulation::{Emulation, Launch};

/// Threads of a block: `GW_GROUP_LANES` of cuda.h.
const THREADS: u64 = 160;

/// Says so when there is no g++.
fn emulation(name: &str) -> Option<Emulation> {
    let emulation = Emulation::build(name);
    if emulation.is_none() {
        // Past the test harness, which shows nothing of a test that passes.
        std::io::stderr().write_all(b"skipped: no g++ here to emulate CUDA with\n").unwrap();
    }
    emulation
}

#[test]
fn a_chunk_ends_under_cuda_as_on_the_cpu() {
    let Some(emulation) = emulation("chunk") else { return };
    let chunk = Chunk::of(&CASES, 500, &[33, 1, 256, 2, 32, 31]);
    let expected = chunk.run_on_cpu(&CASES);
    for (seed, by_group) in [(1, false), (2, false), (3, true)] {
        let launch = Launch { blocks: 2, threads: THREADS, seed, by_group };
        let batch = emulation.run(&chunk, launch);
        assert_eq!(batch.outcomes, expected.outcomes, "{launch:?}");
        assert_eq!(batch.descriptors, expected.descriptors, "{launch:?}");
        for (index, outcome) in expected.outcomes.iter().enumerate() {
            // Of a dropped packet nothing is taken back.
            if !by_group || outcome.verdict != godwit_abi::VERDICT_DROP {
                assert_eq!(batch.frame(index), expected.frame(index), "{launch:?}: packet {index}");
            }
        }
        assert!(by_group || batch.arena.bytes() == expected.arena.bytes(), "{launch:?}: windows differ");
    }
}
