//! The rows of implementations.

use godwit_abi::{Bin, Descriptor, Outcome};
use godwit_kernels::{BinCall, Level, Native, levels, natives};
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

/// The rows: every level that the kernels were compiled for, packets that take turns in groups of several sizes, and the forms for whole bins.
pub(crate) fn implementations() -> Vec<Implementation> {
    let best = levels().iter().rfind(|level| level.supported());
    let turns = best.into_iter().flat_map(|level| [1, 3, 64].map(|group| cpu(level, group)));
    levels().iter().map(|level| cpu(level, 0)).chain(turns).chain(natives().iter().map(native)).collect()
}

/// What it does not cover is run as the CPU device runs it: by a level.
fn native(native: &'static Native) -> Implementation {
    let available = match native.supported() {
        true => Ok(()),
        false => Err(format!("this CPU lacks some of {:?}", native.features)),
    };
    let level = levels().iter().rfind(|level| level.supported());
    let run = move |kernel: u8, call: &BinCall| {
        // SAFETY: as `Run` demands; both are supported.
        unsafe {
            match native.covers(kernel, call.variant as u8) {
                true => native.run_bin(kernel, call),
                false => level.expect("a CPU with a native form has a level").run_bin(kernel, call),
            }
        }
    };
    Implementation { name: format!("native {}", native.name), available, run: Box::new(move |job| run_cpu(&run, job)) }
}

/// A level; with a group, gopt's form of the kernels that have one.
fn cpu(level: &'static Level, group: u32) -> Implementation {
    let available = match level.supported() {
        true => Ok(()),
        false => Err(format!("this CPU lacks some of {:?}", level.features)),
    };
    // SAFETY: as `Run` demands; the level is supported.
    let run = move |kernel: u8, call: &BinCall| unsafe { level.run_bin(kernel, &BinCall { group, ..*call }) };
    let name = if group == 0 { format!("cpu {}", level.name) } else { format!("gopt {group}, {}", level.name) };
    Implementation { name, available, run: Box::new(move |job| run_cpu(&run, job)) }
}

/// Runs one bin of a kernel. Every descriptor is of a region that is borrowed mutably, all arrays have `count`
/// elements, and the image is the one that the function built for this kernel.
type Run<'a> = &'a dyn Fn(u8, &BinCall);

fn run_cpu(run: Run<'_>, job: Job<'_>) {
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
            group: 0,
        };
        run(bin.kernel, &call);
    }
}
