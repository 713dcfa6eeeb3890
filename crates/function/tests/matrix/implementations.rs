//! The rows of implementations.

use godwit_abi::{Bin, Descriptor, Outcome};
use godwit_kernels::{BinCall, Level, levels};
use godwit_packet::{ImageRef, Region};

/// A way to run kernels.
pub(crate) struct Implementation {
    pub(crate) name: String,
    /// Why it cannot run here, if so.
    pub(crate) available: Result<(), String>,
    pub(crate) run: Box<dyn Fn(Job<'_>)>,
}

/// What a device gets: bins, and one entry per packet in each array.
pub(crate) struct Job<'a> {
    pub(crate) region: &'a mut Region,
    pub(crate) image: ImageRef<'a>,
    pub(crate) bins: &'a [Bin],
    pub(crate) descriptors: &'a mut [Descriptor],
    pub(crate) parameters: &'a [u64],
    pub(crate) outcomes: &'a mut [Outcome],
}

/// The rows: every level that the kernels were compiled for.
pub(crate) fn implementations() -> Vec<Implementation> {
    levels().iter().map(cpu).collect()
}

fn cpu(level: &'static Level) -> Implementation {
    let available = match level.supported() {
        true => Ok(()),
        false => Err(format!("this CPU lacks some of {:?}", level.features)),
    };
    Implementation { name: format!("cpu {}", level.name), available, run: Box::new(|job| run_cpu(level, job)) }
}

fn run_cpu(level: &Level, job: Job<'_>) {
    assert!(job.descriptors.iter().all(|descriptor| job.region.contains(descriptor)));
    assert_eq!(job.descriptors.len(), job.parameters.len());
    assert_eq!(job.descriptors.len(), job.outcomes.len());
    for bin in job.bins {
        let packets = bin.first as usize..bin.first as usize + usize::from(bin.count);
        let call = BinCall {
            arena: job.region.arena_base(),
            image: job.image.as_ptr(),
            descriptors: job.descriptors[packets.clone()].as_mut_ptr(),
            parameters: job.parameters[packets.clone()].as_ptr(),
            outcomes: job.outcomes[packets].as_mut_ptr(),
            count: u32::from(bin.count),
            variant: u32::from(bin.variant),
        };
        // SAFETY: the level is supported; the slices have `count` elements; every descriptor is of the region, which is
        // borrowed mutably; the image is the one that the function built for this kernel.
        unsafe { level.run_bin(bin.kernel, &call) };
    }
}
