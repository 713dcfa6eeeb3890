//! What the kernel does, straight from IEEE 802.3: no table, no trick, no code shared with the kernel.

use godwit_abi::{Descriptor, Outcome};
use godwit_wire::Ethernet;

use super::{DROP_TRUNCATED, VERDICT_FORWARD};

/// Swaps the frame's addresses (IEEE 802.3, clause 3.2.3: destination first, then source).
pub(super) fn run_ref(buffer: &mut [u8], descriptor: &Descriptor) -> Outcome {
    let Ok(mut ethernet) = Ethernet::new_checked(crate::frame_mut(buffer, descriptor)) else {
        return Outcome::drop(DROP_TRUNCATED);
    };
    let (destination, source) = (ethernet.destination(), ethernet.source());
    ethernet.set_destination(source);
    ethernet.set_source(destination);
    Outcome::verdict(VERDICT_FORWARD)
}
