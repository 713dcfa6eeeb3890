//! Tests of the CUDA devices of this machine, in both modes and with both layouts of packet memory.
//! They cover every function in mixed submissions, lost packets, stale data, and absent devices.

use godwit_device::cuda::{CudaDevice, probe};
use godwit_device::{DeviceOptions, Error};
use godwit_packet::{Arena, ArenaConfig};

use crate::cuda_suite;
use crate::matrix::Scope;
use crate::stress_packets;
use crate::turn::turn;

#[test]
fn every_function_matches_ref_in_mixed_chunks() {
    cuda_suite::compare(&Scope::ALL);
}

#[test]
fn no_stale_data_is_read() {
    cuda_suite::check_for_stale_data(stress_packets());
}

#[test]
fn copied_and_zero_copy_chunks_run_at_the_same_time() {
    let _turn = turn();
    cuda_suite::mix_transfers(300);
}

#[test]
fn persistent_groups_use_a_device_exclusively() {
    cuda_suite::refuse_engines_next_to_groups();
}

#[test]
fn reports_an_absent_device() {
    let arena = Arena::new(ArenaConfig { packets: 1, ..ArenaConfig::default() }, 1).unwrap();
    let Err(error) = CudaDevice::new(4711, Vec::new(), &arena.handle(), &DeviceOptions::default()) else {
        panic!("opened an absent device")
    };
    match error {
        Error::Absent { id } => assert_eq!(id, "cuda:4711"),
        Error::Unusable { reason, .. } => assert_eq!(Some(reason), probe().reason),
        error => panic!("{error}"),
    }
}
