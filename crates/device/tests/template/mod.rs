//! The function `template`, for tests of devices whose kernels are changed.

use godwit_abi::{Descriptor, Outcome};
use godwit_device::Program;

/// As far as a device needs it.
pub(crate) struct Template;

impl Program for Template {
    fn name(&self) -> &str {
        "template"
    }

    fn kernel(&self) -> u8 {
        godwit_kernels::TEMPLATE
    }

    fn image(&self) -> &[u8] {
        &[]
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

    fn run_ref(&self, _: &mut [u8], _: &mut Descriptor, _: u8, _: u64) -> Outcome {
        unreachable!("nothing is compared")
    }
}
