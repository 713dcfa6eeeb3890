//! A function's kernel over packets of a region, as one bin.

use godwit_abi::{Descriptor, Outcome};
use godwit_function::Function;
use godwit_kernels::{BinCall, Level};
use godwit_packet::Region;

/// What became of these packets of the region, by their function at a supported level; group: as [`BinCall::group`].
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
        variant: function.variant().into(),
        group,
    };
    // SAFETY: the level is supported; the descriptors are of a region that is borrowed mutably, the arrays have `count`
    // elements, and the image is the function's own, of this variant.
    unsafe { level.run_bin(function.contract().kernel, &call) };
    outcomes
}
