//! Runs a kernel on a single packet outside the shared packet memory.

use godwit_abi::{BUFFER_UNIT_BYTES, Descriptor, Outcome};
use godwit_declare::Contract;
use godwit_kernels::{BinCall, Level};
use godwit_packet::ImageRef;

/// Memory for one packet, aligned like a packet buffer.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Unit {
    _bytes: [u8; BUFFER_UNIT_BYTES],
}

/// Runs a built-in kernel on one packet. The kernel is compiled for the lowest x86-64 level.
/// `buffer` is the packet's whole buffer, and `image` is the function's table image.
///
/// # Panics
/// Panics if the frame does not lie within the buffer, or if the machine supports no x86-64 level.
pub fn run_built_in(
    number: u8,
    image: ImageRef<'_>,
    buffer: &mut [u8],
    descriptor: &mut Descriptor,
    variant: u8,
    parameter: u64,
) -> Outcome {
    let level = godwit_kernels::levels().iter().find(|level| level.supported());
    let Some(level) = level else { panic!("this machine supports no level of the kernels") };
    run_one(level, number, image, buffer, descriptor, variant, parameter)
}

/// Runs a kernel on one packet, and discards its counters. `buffer` is the packet's whole buffer.
///
/// # Panics
/// Panics if the frame does not lie within the buffer.
pub(crate) fn run_one(
    level: &Level,
    number: u8,
    image: ImageRef<'_>,
    buffer: &mut [u8],
    descriptor: &mut Descriptor,
    variant: u8,
    parameter: u64,
) -> Outcome {
    assert!(usize::from(descriptor.head) + usize::from(descriptor.length) <= buffer.len());
    let mut units = vec![Unit { _bytes: [0; BUFFER_UNIT_BYTES] }; buffer.len().div_ceil(BUFFER_UNIT_BYTES).max(1)];
    let bytes = units.as_flattened_mut();
    bytes[..buffer.len()].copy_from_slice(buffer);
    let mut moved = Descriptor { buffer: 0, room: units.len().min(255) as u8, ..*descriptor };
    let mut outcome = Outcome::default();
    let mut counters = [0; Contract::KERNEL_COUNTERS_MAX];
    let call = BinCall {
        arena: units.as_mut_ptr().cast(),
        image: image.as_ptr(),
        descriptors: &mut moved,
        parameters: &parameter,
        outcomes: &mut outcome,
        count: 1,
        variant: variant.into(),
        group: 1,
        counters: counters.as_mut_ptr(),
    };
    // SAFETY: the only descriptor names the buffer at the start of the arena, and its frame lies
    // within it. The level is supported, because `load` takes only such levels.
    unsafe { level.run_bin(number, &call) };
    (descriptor.head, descriptor.length) = (moved.head, moved.length);
    buffer.copy_from_slice(&units.as_flattened()[..buffer.len()]);
    outcome
}

/// Converts a slice of 64-byte units to a slice of its bytes.
trait Flat {
    fn as_flattened(&self) -> &[u8];
    fn as_flattened_mut(&mut self) -> &mut [u8];
}

impl Flat for [Unit] {
    fn as_flattened(&self) -> &[u8] {
        // SAFETY: a unit is 64 bytes without padding.
        unsafe { std::slice::from_raw_parts(self.as_ptr().cast(), size_of_val(self)) }
    }

    fn as_flattened_mut(&mut self) -> &mut [u8] {
        // SAFETY: a unit is 64 bytes without padding, and every byte pattern is valid.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr().cast(), size_of_val(self)) }
    }
}
