//! Reference implementation of `template`, written from IEEE 802.3. It has no tables and shares no
//! code with the kernel.

use godwit_abi::{Descriptor, Outcome};
use godwit_wire::Ethernet;

use super::{DROP_TRUNCATED, VERDICT_FORWARD};

/// Swaps the destination address and the source address at the beginning of the frame (IEEE 802.3,
/// clause 3.2.3).
pub(super) fn run_ref(buffer: &mut [u8], descriptor: &Descriptor) -> Outcome {
    let Ok(mut ethernet) = Ethernet::new_checked(crate::frame_mut(buffer, descriptor)) else {
        return Outcome::drop(DROP_TRUNCATED);
    };
    let (destination, source) = (ethernet.destination(), ethernet.source());
    ethernet.set_destination(source);
    ethernet.set_source(destination);
    Outcome::verdict(VERDICT_FORWARD)
}
