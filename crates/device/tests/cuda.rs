//! The CUDA devices here: every function, in chunks of mixed bins, in both modes and both layouts, does what `ref` does;
//! packets are never lost; and without CUDA there is a sentence.

mod matrix;

use std::sync::Arc;

use godwit_device::cuda::{CudaDevice, probe};
use godwit_device::{Device, DeviceOptions, Error, Lane, Mode, Program};
use godwit_packet::{Arena, ArenaConfig, ArenaHandle};

use matrix::{Scope, compare_with_ref, usable};

/// How a device is tried.
struct Setup {
    number: usize,
    mode: Mode,
}

impl matrix::Setup for Setup {
    fn name(&self) -> String {
        format!("cuda:{} {}", self.number, self.mode.name())
    }

    fn copies(&self) -> bool {
        true
    }

    fn arena(&self, config: ArenaConfig) -> Arena {
        Arena::new(config, 1).unwrap()
    }

    fn lane(&self, programs: Vec<Arc<dyn Program>>, arena: &ArenaHandle) -> Box<dyn Lane> {
        let options = DeviceOptions { mode: self.mode, ..DeviceOptions::default() };
        let device = CudaDevice::new(self.number, programs, arena, &options).unwrap_or_else(|error| panic!("{error}"));
        let device = Arc::new(device);
        assert_eq!(device.mode(), self.mode);
        device.lane().unwrap()
    }
}

#[test]
fn every_function_does_what_ref_does_in_mixed_chunks() {
    let modes = |number| [Mode::Launch, Mode::Persistent].map(|mode| Setup { number, mode });
    let setups: Vec<_> = usable(&probe()).into_iter().flat_map(modes).collect();
    compare_with_ref(&setups, &Scope::ALL);
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
