//! Configured functions, as devices need them.

use std::sync::Arc;

use godwit_abi::{Descriptor, Outcome};
use godwit_kernels::custom::{CustomKernel, CustomText};
use godwit_packet::ImageRef;
use serde::Serialize;

/// A configured function, as devices need it.
pub trait Program: Send + Sync {
    /// Configured name of the function.
    fn name(&self) -> &str;

    /// Number of the function's kernel.
    fn kernel(&self) -> u8;

    /// Kernel of a function of a user. `None`: the kernel is one of Godwit's.
    fn custom_kernel(&self) -> Option<&'static CustomKernel> {
        None
    }

    /// Table image of the function. Its bytes are the same on every device.
    fn image(&self) -> ImageRef<'_>;

    /// A variant that the image supports. Devices use it to measure the forms of the kernel.
    fn variant(&self) -> u8;

    /// Number of bytes that the kernel reads from the start of the frame; `u16::MAX` means the
    /// whole frame.
    fn reads_bytes(&self) -> u16;

    /// Number of bytes that the kernel may write from the start of the frame. 0 means none.
    /// `u16::MAX` means anywhere in the buffer; with any other value, the start of the frame does
    /// not move.
    fn writes_bytes(&self) -> u16;

    /// Maximum number of bytes that the kernel prepends to a frame.
    fn headroom_bytes(&self) -> u16;

    /// Maximum number of bytes that the kernel appends to a frame.
    fn tailroom_bytes(&self) -> u16;

    /// Processes one packet like the kernel, by an independent implementation that follows the
    /// standard. `buffer` is the whole buffer of the packet.
    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, variant: u8, parameter: u64) -> Outcome;
}

/// Returns a source text with the kernels of users' functions added.
pub(crate) fn with_custom_kernels(source: &str, programs: &[Arc<dyn Program>]) -> String {
    let mut texts: Vec<CustomText<'_>> = Vec::new();
    for kernel in programs.iter().filter_map(|program| program.custom_kernel()) {
        // Several programs may have the same kernel.
        if texts.iter().all(|text| text.number != kernel.text.number) {
            texts.push(kernel.text);
        }
    }
    godwit_kernels::custom::device_source(source, &texts)
}

/// The implementation of a function that the CPU runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Implementation {
    /// The slow reference implementation, written directly from the standard.
    Ref,
    /// The kernel as the system's compiler translates it, one packet after the other.
    Scalar,
    /// The kernel with interleaved packets, which hides memory latency when the table exceeds the
    /// cache.
    Gopt,
    /// A form for whole bins and one CPU type, if this machine has one that is faster; otherwise
    /// the same as `gopt`.
    #[default]
    Native,
}

impl Implementation {
    /// All implementations.
    pub const ALL: [Self; 4] = [Self::Native, Self::Gopt, Self::Scalar, Self::Ref];

    /// Returns the name used in configurations and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ref => "ref",
            Self::Scalar => "scalar",
            Self::Gopt => "gopt",
            Self::Native => "native",
        }
    }
}

/// Bytes of a packet that a function accesses, or that all functions of a device chain access
/// together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AccessNeeds {
    /// Bytes that the device needs, see [`Program::reads_bytes`].
    pub(crate) reads_bytes: u16,
    /// See [`Program::writes_bytes`]; 0 also if packets need not be copied back.
    pub(crate) writes_bytes: u16,
    /// See [`Program::headroom_bytes`].
    pub(crate) headroom_bytes: u16,
    /// See [`Program::tailroom_bytes`].
    pub(crate) tailroom_bytes: u16,
}

impl AccessNeeds {
    /// Access to all bytes, for a device that copies nothing.
    pub(crate) const ALL: Self =
        Self { reads_bytes: u16::MAX, writes_bytes: u16::MAX, headroom_bytes: u16::MAX, tailroom_bytes: u16::MAX };

    /// Returns the needs of one function. A function need not write all bytes that it may write,
    /// and all of them are copied back. So the device needs these bytes as well.
    pub(crate) fn of(program: &dyn Program) -> Self {
        Self {
            reads_bytes: program.reads_bytes().max(program.writes_bytes()),
            writes_bytes: program.writes_bytes(),
            headroom_bytes: program.headroom_bytes(),
            tailroom_bytes: program.tailroom_bytes(),
        }
    }

    /// Returns whether copies that are sufficient for `others` are sufficient for `self`.
    pub(crate) fn are_within(&self, others: &Self) -> bool {
        self.reads_bytes <= others.reads_bytes
            && self.writes_bytes <= others.writes_bytes
            && self.headroom_bytes <= others.headroom_bytes
            && self.tailroom_bytes <= others.tailroom_bytes
    }
}
