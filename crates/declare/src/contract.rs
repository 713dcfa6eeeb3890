//! Contract of a function, as data for the rest of Godwit.

use crate::HostUse;

/// Contract of a function: what it reads and writes, its verdicts and its drop reasons.
///
/// It is generated from the declaration. The chain, the counters and the documentation use it.
#[derive(Clone, Copy, Debug)]
pub struct Contract {
    /// Name of the function. It is also the name of its folders, vectors, benchmark and page, and
    /// the prefix of its counters.
    pub kind: &'static str,
    /// Summary of the function, in one sentence.
    pub summary: &'static str,
    /// Kernel number. `None` if the host half settles every packet.
    pub kernel: Option<u8>,
    /// Verdicts of the function. `Outcome::verdict` is an index into this slice.
    pub verdicts: &'static [Verdict],
    /// Drop reasons of the function. `Outcome::reason` is an index into this slice.
    pub drops: &'static [Drop],
    /// Names of the variants. The number of a variant is its index.
    pub variants: &'static [&'static str],
    /// Whether the host half must see packets in arrival order, for example because it assigns
    /// sequence numbers.
    pub in_order: bool,
    /// Capabilities of the host half.
    pub host: HostUse,
    /// Number of bytes from the start of the frame that the function may read. A device with its
    /// own memory needs this part of the frame. [`Contract::ALL`] is the whole frame.
    pub reads_bytes: u16,
    /// Number of bytes from the start of the frame that the function may write. A device with its
    /// own memory must copy this part back.
    ///
    /// The value is 0 if the function writes nothing. It is [`Contract::ALL`] if the function moves
    /// the start of the frame, and it may then write anywhere in the buffer. It is at most
    /// `reads_bytes`, because such a device has no other bytes of the frame to copy back.
    pub writes_bytes: u16,
    /// Maximum number of bytes that the function prepends to a frame.
    pub headroom_bytes: u16,
    /// Maximum number of bytes that the function appends to a frame.
    pub tailroom_bytes: u16,
    /// Counters of the function in addition to verdicts and drops. The function returns their
    /// values in this order.
    pub counters: &'static [Counter],
    /// Standard or paper that the function implements.
    pub spec: &'static str,
}

/// A verdict of a function.
#[derive(Debug)]
pub struct Verdict {
    /// Name of the verdict in chains.
    pub name: &'static str,
    /// Condition of the verdict, in one sentence.
    pub sentence: &'static str,
    /// Whether the function chooses the egress port (`Outcome::port`).
    pub chooses_port: bool,
}

/// A drop reason of a function.
#[derive(Debug)]
pub struct Drop {
    /// Name of the reason in counters: `<kind>_dropped_<name>`.
    pub name: &'static str,
    /// Condition of the drop, in one sentence.
    pub sentence: &'static str,
}

/// A counter of a function, over all workers.
#[derive(Debug)]
pub struct Counter {
    /// Name of the counter: `<kind>_<name>`.
    pub name: &'static str,
    /// Unit of the counter.
    pub unit: &'static str,
    /// Description of the counter for the operator, in one sentence.
    pub sentence: &'static str,
}

impl Contract {
    /// Value for the whole frame, of any length.
    pub const ALL: u16 = u16::MAX;

    /// Number in bins of a function without a kernel. Devices do nothing for it.
    pub const NO_KERNEL: u8 = u8::MAX;

    /// Returns the kernel number in bins of the function.
    pub fn bin_kernel(&self) -> u8 {
        self.kernel.unwrap_or(Self::NO_KERNEL)
    }

    /// Returns whether the function may change the length of frames.
    pub fn changes_length(&self) -> bool {
        self.headroom_bytes > 0 || self.tailroom_bytes > 0 || self.writes_bytes == Self::ALL
    }

    /// Returns the number of the verdict with this name.
    pub fn verdict(&self, name: &str) -> Option<u8> {
        let index = self.verdicts.iter().position(|verdict| verdict.name == name)?;
        u8::try_from(index).ok()
    }
}
