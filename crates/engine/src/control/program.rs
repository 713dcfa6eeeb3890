//! Adapter that lets devices run a packet function.

use std::ops::Range;
use std::sync::Arc;

use godwit_abi::{Descriptor, Outcome};
use godwit_device::{CustomKernel, Program};
use godwit_function::{Function, Properties};
use godwit_packet::ImageRef;

/// Adapter with which devices run a packet function. [`Function`] does not depend on devices, and
/// [`Program`] does not depend on functions.
pub struct FunctionProgram {
    name: String,
    function: Arc<dyn Function>,
    properties: Properties,
}

impl FunctionProgram {
    /// Creates the program with which devices run `function`. `name` is the configured name of the
    /// function.
    pub fn new(name: String, function: Arc<dyn Function>) -> Self {
        Self { name, properties: function.properties(), function }
    }
}

impl Program for FunctionProgram {
    fn name(&self) -> &str {
        &self.name
    }

    fn kernel(&self) -> u8 {
        self.function.contract().bin_kernel()
    }

    fn custom_kernel(&self) -> Option<&'static CustomKernel> {
        self.properties.custom_kernel
    }

    fn image(&self) -> ImageRef<'_> {
        self.function.image()
    }

    fn counter_bytes(&self) -> Range<usize> {
        self.function.contract().kernel_counters.bytes()
    }

    fn variant(&self) -> u8 {
        self.properties.variant
    }

    fn reads_bytes(&self) -> u16 {
        self.function.contract().reads_bytes
    }

    fn writes_bytes(&self) -> u16 {
        self.function.contract().writes_bytes
    }

    fn headroom_bytes(&self) -> u16 {
        self.properties.headroom_bytes
    }

    fn tailroom_bytes(&self) -> u16 {
        self.properties.tailroom_bytes
    }

    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, variant: u8, parameter: u64) -> Outcome {
        self.function.run_ref(buffer, descriptor, variant, parameter)
    }
}
