//! OpenCL text of the kernels, compiled for and run on every OpenCL device of this machine.

use crate::common::chunk::{Chunk, chained, parts};
use crate::common::ipsec::ipsec_parts;
use crate::common::ipsec_suites::suite_parts;
use crate::common::ipv6::ipv6_parts;
use crate::common::ndn::ndn_part;
use crate::common::opencl::{Bench, devices};
use crate::common::whole::whole_parts;

const GROUP_LANES: usize = 32;
const GROUPS: usize = 2;

#[test]
fn a_chunk_gives_the_same_results_on_every_opencl_device() {
    let ipsec = ipsec_parts(600, 5).into_iter().chain(suite_parts(40, 9));
    let all = parts(500)
        .into_iter()
        .chain(ipsec)
        .chain(ipv6_parts(400, 7))
        .chain([ndn_part(600, 8)])
        .chain(whole_parts(200, 10))
        .collect();
    let chunk = Chunk::new(all, &[GROUP_LANES + 1, 1, 256, 2]);
    let expected = chunk.run_on_cpu();
    let assert_same = |bench: &Bench, chunk: &Chunk| {
        let batch = bench.run(chunk, GROUPS, GROUP_LANES);
        assert_eq!(batch.outcomes, expected.outcomes, "{}", bench.name);
        assert_eq!(batch.descriptors, expected.descriptors, "{}", bench.name);
        assert!(batch.arena.bytes() == expected.arena.bytes(), "{}: frames differ", bench.name);
    };
    let benches: Vec<Bench> = devices().iter().map(|device| Bench::new(device, "-cl-std=CL1.2 -Werror")).collect();
    benches.iter().for_each(|bench| assert_same(bench, &chunk));
    let in_parts = chunk.in_parts(3);
    assert!(in_parts.bins.iter().any(|bin| bin.part != 0));
    benches.iter().for_each(|bench| assert_same(bench, &in_parts));
}

#[test]
fn a_chain_gives_the_same_results_on_every_opencl_device() {
    for device in devices() {
        let bench = Bench::new(&device, "-cl-std=CL1.2 -Werror");
        for seed in 0..4 {
            let chunk = chained(seed, &[GROUP_LANES + 1, 1, 256, 2]);
            let expected = chunk.run_on_cpu();
            let batch = bench.run(&chunk, GROUPS, GROUP_LANES);
            assert_eq!(batch.trails, expected.trails, "{}, seed {seed}", bench.name);
            assert_eq!(batch.outcomes, expected.outcomes, "{}, seed {seed}", bench.name);
            assert_eq!(batch.descriptors, expected.descriptors, "{}, seed {seed}", bench.name);
            assert!(batch.arena.bytes() == expected.arena.bytes(), "{}, seed {seed}: frames differ", bench.name);
        }
    }
}

/// The kernels need no generic address space, although some devices enable it by default.
#[test]
fn every_kernel_compiles_for_every_version_of_opencl_c() {
    for device in devices() {
        for options in ["", "-cl-std=CL3.0"] {
            Bench::new(&device, options);
        }
    }
}
