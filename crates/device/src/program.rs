//! Configured packet functions, with the properties that a device must know to run them.

use std::ops::Range;
use std::sync::Arc;

use godwit_abi::{Descriptor, Outcome};
use godwit_kernels::custom::{CustomKernel, CustomText};
use godwit_packet::ImageRef;
use serde::Serialize;

/// Configured packet function, with the properties that a device must know to run it.
pub trait Program: Send + Sync {
    /// Configured name of the function.
    fn name(&self) -> &str;

    /// Number of the function's kernel.
    fn kernel(&self) -> u8;

    /// Returns the kernel of a function that a user wrote, or `None` for a built-in function.
    fn custom_kernel(&self) -> Option<&'static CustomKernel> {
        None
    }

    /// Returns the tables of the function as bytes, which are the same on every device.
    fn image(&self) -> ImageRef<'_>;

    /// Returns the range of the image in which the kernel counts on devices other than the CPU.
    /// Each counter has 8 bytes. The range is empty if the kernel has no counters.
    fn counter_bytes(&self) -> Range<usize> {
        0..0
    }

    /// Returns a variant that the function's tables support. Devices use it to measure which
    /// compiled version of the kernel is fastest.
    fn variant(&self) -> u8;

    /// Returns how many bytes the kernel reads, counted from the start of the frame. `u16::MAX`
    /// means the whole frame.
    fn reads_bytes(&self) -> u16;

    /// Returns how many bytes the kernel may write, counted from the start of the frame. `u16::MAX`
    /// means that the kernel may write anywhere in the packet buffer, and that it may move the
    /// start of the frame.
    fn writes_bytes(&self) -> u16;

    /// Returns the maximum number of bytes that the kernel adds before the start of a frame.
    fn headroom_bytes(&self) -> u16;

    /// Returns the maximum number of bytes that the kernel adds after the end of a frame.
    fn tailroom_bytes(&self) -> u16;

    /// Processes one packet with the same result as the kernel. This independent implementation
    /// follows the standard and serves as a reference. `buffer` is the whole buffer of the packet.
    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, variant: u8, parameter: u64) -> Outcome;
}

/// Adds the kernels of functions that users wrote to the source text `source`. Returns the
/// resulting text.
pub(crate) fn with_custom_kernels(source: &str, programs: &[Arc<dyn Program>]) -> String {
    let mut texts: Vec<CustomText<'_>> = Vec::new();
    for kernel in programs.iter().filter_map(|program| program.custom_kernel()) {
        // Several functions may have the same kernel.
        if texts.iter().all(|text| text.number != kernel.text.number) {
            texts.push(kernel.text);
        }
    }
    let is_built_in =
        |program: &Arc<dyn Program>| godwit_kernels::KERNELS.iter().any(|built_in| built_in.number == program.kernel());
    let has_built_in = programs.iter().any(is_built_in);
    godwit_kernels::custom::device_source(source, &texts, has_built_in)
}

/// The implementation of a function that the CPU runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Implementation {
    /// The slow reference implementation, which was written directly from the standard.
    Ref,
    /// The kernel without interleaving. It processes one packet after the other.
    Scalar,
    /// The kernel with interleaving. It switches between several packets, which hides memory
    /// latency if the table is larger than the cache.
    Gopt,
    /// A version of the kernel that processes several packets in parallel with the SIMD
    /// instructions of this CPU. If no such version is faster, the value means the same as `gopt`.
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

/// Bytes of a packet that a function accesses. In a function chain on the device, the numbers
/// include the bytes that later functions on the device access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AccessNeeds {
    /// Number of bytes that must be copied to the device (see [`Program::reads_bytes`]).
    pub(crate) reads_bytes: u16,
    /// Number of bytes that must be copied back (see [`Program::writes_bytes`]). The number is 0 if
    /// the host does not need the packets.
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

    /// Returns the bytes that one function needs on the device. All bytes that the function may
    /// write are copied back, even if the function leaves them unchanged. Therefore these bytes
    /// must also be copied to the device.
    pub(crate) fn of(program: &dyn Program) -> Self {
        Self {
            reads_bytes: program.reads_bytes().max(program.writes_bytes()),
            writes_bytes: program.writes_bytes(),
            headroom_bytes: program.headroom_bytes(),
            tailroom_bytes: program.tailroom_bytes(),
        }
    }

    /// Returns whether no number in `self` exceeds the one in `others`.
    pub(crate) fn are_within(&self, others: &Self) -> bool {
        self.reads_bytes <= others.reads_bytes
            && self.writes_bytes <= others.writes_bytes
            && self.headroom_bytes <= others.headroom_bytes
            && self.tailroom_bytes <= others.tailroom_bytes
    }
}
