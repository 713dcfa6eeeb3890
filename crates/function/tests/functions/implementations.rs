//! Implementations of kernels that the test matrix compares.

use godwit_abi::{Bin, Descriptor, Outcome};
use godwit_kernels::{BinCall, Level, Native, levels, natives};
use godwit_packet::{ImageRef, Region};

/// One implementation of all kernels.
pub(crate) struct Implementation {
    pub(crate) name: String,
    /// Reason why this CPU cannot run the implementation, or `Ok`.
    pub(crate) available: Result<(), String>,
    pub(crate) run: Box<dyn Fn(Job<'_>)>,
}

/// Input of an implementation: batches, and arrays with one entry per packet.
pub(crate) struct Job<'a> {
    pub(crate) region: &'a mut Region,
    pub(crate) image: ImageRef<'a>,
    pub(crate) bins: &'a [Bin],
    pub(crate) descriptors: &'a mut [Descriptor],
    pub(crate) parameters: &'a [u64],
    pub(crate) outcomes: &'a mut [Outcome],
}

/// Returns every CPU level, the interleaved kernels with several group sizes, and the native
/// kernels.
pub(crate) fn implementations() -> Vec<Implementation> {
    let highest = levels().iter().rfind(|level| level.supported());
    let gopt = highest.into_iter().flat_map(|level| [1, 3, 64].map(|group| cpu(level, group)));
    levels().iter().map(|level| cpu(level, 0)).chain(gopt).chain(natives().iter().map(native)).collect()
}

/// Returns the kernels of a native form. The highest CPU level processes packets that this form
/// does not cover.
fn native(native: &'static Native) -> Implementation {
    let available = match native.supported() {
        true => Ok(()),
        false => Err(format!("this CPU lacks some of {:?}", native.features)),
    };
    let level = levels().iter().rfind(|level| level.supported());
    let run = move |kernel: u8, call: &BinCall| {
        // SAFETY: the caller meets the conditions of `Run`. The CPU supports both forms.
        unsafe {
            match native.covers(kernel, call.variant as u8) {
                true => native.run_bin(kernel, call),
                false => level.expect("a CPU with a native form has a level").run_bin(kernel, call),
            }
        }
    };
    Implementation { name: format!("native {}", native.name), available, run: Box::new(move |job| run_cpu(&run, job)) }
}

/// Returns the kernels of one CPU level. With a group size above 0, kernels interleave packets if
/// they can.
fn cpu(level: &'static Level, group: u32) -> Implementation {
    let available = match level.supported() {
        true => Ok(()),
        false => Err(format!("this CPU lacks some of {:?}", level.features)),
    };
    // SAFETY: the caller meets the conditions of `Run`. The CPU supports the level.
    let run = move |kernel: u8, call: &BinCall| unsafe { level.run_bin(kernel, &BinCall { group, ..*call }) };
    let name = if group == 0 { format!("cpu {}", level.name) } else { format!("gopt {group}, {}", level.name) };
    Implementation { name, available, run: Box::new(move |job| run_cpu(&run, job)) }
}

/// Runs a kernel on one batch. The caller must ensure three conditions. All descriptors belong to a
/// region that is borrowed exclusively. All arrays have `count` elements. The image belongs to a
/// function with this kernel.
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
            counters: std::ptr::null_mut(),
        };
        run(bin.kernel, &call);
    }
}
