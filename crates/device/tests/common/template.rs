//! The function `template`, which swaps the MAC addresses of a packet, with the properties that a
//! device needs to run it.

use godwit_abi::{Descriptor, Outcome};
use godwit_device::Program;

/// The function declares that it reads and writes whole frames, because some tests change the
/// kernel in this way.
pub(crate) struct Template;

impl Program for Template {
    fn name(&self) -> &str {
        "template"
    }

    fn kernel(&self) -> u8 {
        godwit_kernels::TEMPLATE
    }

    fn image(&self) -> godwit_packet::ImageRef<'_> {
        [][..].into()
    }

    fn variant(&self) -> u8 {
        0
    }

    fn reads_bytes(&self) -> u16 {
        u16::MAX
    }

    fn writes_bytes(&self) -> u16 {
        u16::MAX
    }

    fn headroom_bytes(&self) -> u16 {
        0
    }

    fn tailroom_bytes(&self) -> u16 {
        0
    }

    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, _: u8, _: u64) -> Outcome {
        let frame = &mut buffer[usize::from(descriptor.head)..][..usize::from(descriptor.length)];
        if frame.len() < 14 {
            return Outcome::drop(0);
        }
        let (destination, source) = frame.split_at_mut(6);
        destination.swap_with_slice(&mut source[..6]);
        Outcome::verdict(0)
    }
}
