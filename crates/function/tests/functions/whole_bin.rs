//! Runs all packets of a region as one batch.

use godwit_abi::{Descriptor, Outcome};
use godwit_function::Function;
use godwit_kernels::{BinCall, Level};
use godwit_packet::Region;

/// Runs the kernel of a function on packets, and returns their outcomes.
pub(crate) fn run_bin(
    level: &Level,
    group: u32,
    function: &dyn Function,
    region: &mut Region,
    descriptors: &mut [Descriptor],
) -> Vec<Outcome> {
    assert!(level.supported() && descriptors.iter().all(|descriptor| region.contains(descriptor)));
    let parameters = vec![0; descriptors.len()];
    let mut outcomes = vec![Outcome::default(); descriptors.len()];
    let call = BinCall {
        arena: region.arena_base(),
        image: function.image().as_ptr(),
        descriptors: descriptors.as_mut_ptr(),
        parameters: parameters.as_ptr(),
        outcomes: outcomes.as_mut_ptr(),
        count: descriptors.len() as u32,
        variant: function.properties().variant.into(),
        group,
        counters: std::ptr::null_mut(),
    };
    // SAFETY: the CPU supports the level. The descriptors belong to the region, which is borrowed
    // exclusively. The arrays have `count` elements. The image and the variant belong to the
    // function.
    unsafe { level.run_bin(function.contract().bin_kernel(), &call) };
    outcomes
}
