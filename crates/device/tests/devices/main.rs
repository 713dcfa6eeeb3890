//! Tests of the devices of this machine: CPU, OpenCL and CUDA.

#[path = "../common/cuda_suite.rs"]
mod cuda_suite;
#[path = "../common/defective.rs"]
mod defective;
#[path = "../common/matrix.rs"]
mod matrix;
#[path = "../common/stress.rs"]
mod stress;
#[path = "../common/template.rs"]
mod template;
#[path = "../common/turn.rs"]
mod turn;

mod cpu;
mod cuda;
mod model;
mod opencl;
mod opencl_persistent;

/// Returns the number of packets in a stress test. The environment variable `GODWIT_STRESS_PACKETS`
/// replaces the default.
fn stress_packets() -> u64 {
    let packets = std::env::var("GODWIT_STRESS_PACKETS").ok().map(|text| text.parse().expect("a number"));
    packets.unwrap_or(2_000_000)
}
