//! Contracts describe packet functions to the other parts of Godwit.

use std::ops::Range;

use crate::HostUse;

/// Contract of a packet function, generated from its declaration. It states what the function reads
/// and writes, and lists its verdicts, drop reasons and counters. The function chain, the counters
/// and the documentation use it.
#[derive(Clone, Copy, Debug)]
pub struct Contract {
    /// Name of the function, and prefix of its counters. Its folders, test vectors, benchmark and
    /// documentation page share this name.
    pub kind: &'static str,
    /// Summary of the function, in one sentence.
    pub summary: &'static str,
    /// Number of the function's kernel, or `None` if all work runs on the CPU.
    pub kernel: Option<u8>,
    /// Verdicts that the function can return. `Outcome::verdict` is an index into this slice.
    pub verdicts: &'static [Verdict],
    /// Reasons why the function can drop a packet. `Outcome::reason` is an index into this slice.
    pub drops: &'static [Drop],
    /// Names of the function's variants, such as encapsulation with a certain cipher. A variant's
    /// number is its index.
    pub variants: &'static [&'static str],
    /// Whether the function must see packets in arrival order on the CPU, for example to assign
    /// sequence numbers.
    pub in_order: bool,
    /// Properties of the function's CPU code, which runs before and after the kernel.
    pub host: HostUse,
    /// Number of bytes at the start of the frame that the function may read, or [`Contract::ALL`]
    /// for the whole frame. A device with separate memory gets a copy of these bytes.
    pub reads_bytes: u16,
    /// Number of bytes at the start of the frame that the function may write. They are copied back
    /// from devices with separate memory. The value is at most `reads_bytes`, and 0 if the function
    /// writes nothing. It is [`Contract::ALL`] if the function moves the start of the frame.
    pub writes_bytes: u16,
    /// Maximum number of bytes that the function prepends to a frame.
    pub headroom_bytes: u16,
    /// Maximum number of bytes that the function appends to a frame.
    pub tailroom_bytes: u16,
    /// Counters besides those of verdicts and drop reasons. The counters that the kernel increments
    /// come first. The function returns the values of the others in this order.
    pub counters: &'static [Counter],
    /// Counters that the kernel increments.
    pub kernel_counters: KernelCounters,
    /// Standard or paper that the function implements.
    pub spec: &'static str,
}

/// Result that a function can return for a packet.
#[derive(Debug)]
pub struct Verdict {
    /// Name of the verdict in function chains.
    pub name: &'static str,
    /// Condition for this verdict, in one sentence.
    pub sentence: &'static str,
    /// Whether the function selects the egress port (`Outcome::port`) for this verdict.
    pub chooses_port: bool,
}

/// A reason for which a function drops a packet.
#[derive(Debug)]
pub struct Drop {
    /// Name of the drop reason. Its counter is `<kind>_dropped_<name>`.
    pub name: &'static str,
    /// Condition for this drop, in one sentence.
    pub sentence: &'static str,
}

/// Position of a kernel's counters in the table image. The CPU counts in memory of each worker.
/// Other devices count in their copy of the image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCounters {
    /// Offset of the first counter in the table image, in bytes. It is a multiple of 64.
    pub offset: usize,
    /// Number of counters. Each one has 8 bytes.
    pub count: usize,
}

impl KernelCounters {
    /// Returns the byte range of the counters in the table image.
    pub fn bytes(&self) -> Range<usize> {
        self.offset..self.offset + 8 * self.count
    }
}

/// A counter of a function. Its value is the sum over all workers.
#[derive(Debug)]
pub struct Counter {
    /// Name of the counter, without the prefix `<kind>_`.
    pub name: &'static str,
    /// Unit of the counter.
    pub unit: &'static str,
    /// Description for the operator, in one sentence.
    pub sentence: &'static str,
}

impl Contract {
    /// Value of `reads_bytes` or `writes_bytes` that means the whole frame.
    pub const ALL: u16 = u16::MAX;

    /// Maximum number of counters that a kernel increments.
    pub const KERNEL_COUNTERS_MAX: usize = 64;

    /// Kernel number of packet batches for functions without a kernel. Devices ignore such batches.
    pub const NO_KERNEL: u8 = u8::MAX;

    /// Returns the kernel number, or [`Contract::NO_KERNEL`].
    pub fn bin_kernel(&self) -> u8 {
        self.kernel.unwrap_or(Self::NO_KERNEL)
    }

    /// Returns whether the function may change the length of frames.
    pub fn changes_length(&self) -> bool {
        self.headroom_bytes > 0 || self.tailroom_bytes > 0 || self.writes_bytes == Self::ALL
    }

    /// Returns the number of the verdict called `name`.
    pub fn verdict(&self, name: &str) -> Option<u8> {
        let index = self.verdicts.iter().position(|verdict| verdict.name == name)?;
        u8::try_from(index).ok()
    }
}
