//! The CUDA devices here: every function, in chunks of mixed bins, in both modes and both layouts, does what `ref` does;
//! packets are never lost, and nothing stale is ever read, on either side; and without CUDA there is a sentence.

mod cuda_suite;
mod matrix;
mod stress;
mod template;

use godwit_device::cuda::{CudaDevice, probe};
use godwit_device::{DeviceOptions, Error};
use godwit_packet::{Arena, ArenaConfig};

use matrix::Scope;
use stress::packets;

#[test]
fn every_function_does_what_ref_does_in_mixed_chunks() {
    cuda_suite::compare(&Scope::ALL);
}

#[test]
fn nobody_ever_reads_anything_stale() {
    cuda_suite::read_nothing_stale(packets());
}

#[test]
fn chunks_come_and_go_both_ways_at_once() {
    let _turn = cuda_suite::turn();
    cuda_suite::bring_chunks_both_ways(300);
}

#[test]
fn groups_have_a_device_for_themselves_in_a_process() {
    cuda_suite::leave_a_device_to_groups();
}

#[test]
fn a_device_that_is_not_there_is_an_error() {
    let arena = Arena::new(ArenaConfig { packets: 1, ..ArenaConfig::default() }, 1).unwrap();
    let Err(error) = CudaDevice::new(4711, Vec::new(), &arena.handle(), &DeviceOptions::default()) else {
        panic!("there is no such device")
    };
    match error {
        Error::Absent { id } => assert_eq!(id, "cuda:4711"),
        Error::Unusable { reason, .. } => assert_eq!(Some(reason), probe().reason),
        error => panic!("{error}"),
    }
}
