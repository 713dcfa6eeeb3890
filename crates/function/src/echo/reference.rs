//! Reference implementation of `echo`, which shares no code with the kernel.

use godwit_abi::{Descriptor, Outcome};
use godwit_wire::Ethernet;

use super::{DROP_TRUNCATED, NUMBER_OFFSET, VERDICT_FORWARD};

pub(super) fn run_ref(buffer: &mut [u8], descriptor: &Descriptor, ports: u32) -> Outcome {
    let frame = crate::frame_mut(buffer, descriptor);
    let Some(number) = frame.get(NUMBER_OFFSET..).and_then(|rest| rest.first_chunk()) else {
        return Outcome::drop(DROP_TRUNCATED);
    };
    let port = u32::from_be_bytes(*number) % ports;
    let Ok(mut ethernet) = Ethernet::new_checked(frame) else {
        return Outcome::drop(DROP_TRUNCATED);
    };
    let (destination, source) = (ethernet.destination(), ethernet.source());
    ethernet.set_destination(source);
    ethernet.set_source(destination);
    // The port number fits into 16 bits, because a configuration has at most 256 ports.
    Outcome { port: port as u16, ..Outcome::verdict(VERDICT_FORWARD) }
}
