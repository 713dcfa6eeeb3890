//! Structs that host and kernels share. This is the Rust half of `abi.h`.
//!
//! Both halves assert every size and offset. A test in `godwit-kernels` compares this layout with
//! the C compiler's. All fields are little-endian.
#![forbid(unsafe_code)]

use core::mem::{offset_of, size_of};

/// Bytes per unit of [`Descriptor::buffer`] and [`Descriptor::room`].
pub const BUFFER_UNIT_BYTES: usize = 64;

/// Verdict of a dropped packet; [`Outcome::reason`] holds the drop reason.
pub const VERDICT_DROP: u8 = 255;

/// Value of [`Outcome::port`] for a flooded packet: it goes to all ports of a port set except the
/// ingress port. [`Outcome::value`] is the index of the port set.
pub const PORT_FLOOD: u16 = u16::MAX;

/// Location of one packet in the arena (`gw_descriptor`).
///
/// ```text
/// buffer*64            +head              +head+length        +room*64
/// |<---- headroom ---->|<---- frame ----->|<---- tailroom --->|
/// ```
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Start of the buffer, in units of 64 bytes from the arena's base.
    pub buffer: u32,
    /// Bytes from the buffer's start to the first byte of the frame.
    pub head: u16,
    /// Length of the frame in bytes, without FCS.
    pub length: u16,
    /// Size of the buffer, in units of 64 bytes.
    pub room: u8,
    /// Ingress port.
    pub port: u8,
    /// Sequence number in the worker's arrival order, modulo 2^16.
    pub order: u16,
    /// Symmetric Toeplitz hash of the 5-tuple.
    pub flow_hash: u32,
}

impl AsRef<Self> for Descriptor {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl Descriptor {
    /// Returns the offset of the buffer from the arena's base, in bytes.
    pub fn buffer_offset(&self) -> usize {
        self.buffer as usize * BUFFER_UNIT_BYTES
    }

    /// Returns the size of the buffer in bytes.
    pub fn room_bytes(&self) -> usize {
        usize::from(self.room) * BUFFER_UNIT_BYTES
    }

    /// Returns the offset of the frame from the arena's base, in bytes.
    pub fn frame_offset(&self) -> usize {
        self.buffer_offset() + usize::from(self.head)
    }

    /// Returns the number of free bytes after the frame, or 0 if the descriptor is inconsistent.
    pub fn tailroom_bytes(&self) -> usize {
        self.room_bytes().saturating_sub(usize::from(self.head) + usize::from(self.length))
    }
}

/// Result of a function for one packet (`gw_outcome`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Index into the contract's verdicts, or [`VERDICT_DROP`].
    pub verdict: u8,
    /// Drop reason, if the verdict is [`VERDICT_DROP`]: index into the contract's drop reasons.
    pub reason: u8,
    /// Egress port, if the verdict requires one, or [`PORT_FLOOD`].
    pub port: u16,
    /// Additional result, defined by the contract.
    pub value: u32,
}

impl Outcome {
    /// Returns the outcome of a packet that is dropped for `reason`, an index into the contract's
    /// drop reasons.
    pub const fn drop(reason: u8) -> Self {
        Self { verdict: VERDICT_DROP, reason, port: 0, value: 0 }
    }

    /// Returns the outcome with `verdict`, an index into the contract's verdicts.
    pub const fn verdict(verdict: u8) -> Self {
        Self { verdict, reason: 0, port: 0, value: 0 }
    }
}

/// Up to one work-group of packets with the same function, variant, length class and row
/// (`gw_bin`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bin {
    /// Index of the first packet in the chunk's arrays.
    pub first: u32,
    /// Number of packets.
    pub count: u16,
    /// Kernel number of the function.
    pub kernel: u8,
    /// Variant of the kernel.
    pub variant: u8,
    /// Configured function: index into the table images.
    pub instance: u16,
    /// Length of the longest frame, in bytes.
    pub length_bytes: u16,
    /// Length class of all frames.
    pub length_class: u16,
    /// Row of the instance in the device chain.
    pub row: u8,
    /// Flags [`PART_MORE`] and [`PART_REST`], for a bin that has several variants.
    pub part: u8,
}

/// Flag of [`Bin::part`]: the chunk's next bin is another part of the same bin, with another
/// variant. The same group runs it next (`GW_PART_MORE`).
pub const PART_MORE: u8 = 1;
/// Flag of [`Bin::part`]: the previous bin is another part, so no other group starts here
/// (`GW_PART_REST`).
pub const PART_REST: u8 = 2;

/// Header of the device chain, the part of the chain that a device executes without the host
/// (`gw_chain`).
///
/// It is followed by a [`ChainStage`] for each instance, then by the hops: a `u32` for each
/// instance, row and verdict.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// Number of rows per instance, one for each class of packets; 0 if there is no chain.
    pub rows: u32,
    /// Columns per row; higher verdicts have no hop.
    pub verdicts: u32,
    /// Number of configured functions.
    pub instances: u32,
    /// Must be 0.
    pub reserved: [u32; 13],
}

/// Kernel and variant of an instance on the device chain (`gw_chain_stage`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainStage {
    /// Kernel number of the function.
    pub kernel: u32,
    /// Variant of all packets.
    pub variant: u32,
}

/// Hop of a packet that does not continue on the device (`GW_HOP_NONE`).
///
/// A hop is the transition of a packet to its next function on a device. The lower 16 bits hold the
/// instance of that function. The upper 16 bits hold its rank, which is lower than the rank of
/// every function that follows it.
pub const HOP_NONE: u32 = u32::MAX;
/// Trail of a packet without hops (`GW_TRAIL_NONE`).
///
/// A trail records the hops of a packet for the host. Each hop takes one byte, the first in the
/// lowest bits: the verdict that caused the hop. Unused bytes are 0xff.
pub const TRAIL_NONE: u32 = u32::MAX;
/// Maximum number of hops of a packet on a device (`GW_HOPS_MAX`).
pub const HOPS_MAX: usize = 4;
/// Size of the chain scratch per packet, in bytes (`GW_CHAIN_SCRATCH_BYTES`).
///
/// In the chain scratch, a group packs the packets that continue to the next function of the device
/// chain. Its capacity is a multiple of [`MAILBOX_SLOT_PACKETS`], and the host zeroes it once.
pub const CHAIN_SCRATCH_PACKET_BYTES: usize = 40;

/// Header of the mailbox of one persistent group (`gw_mailbox`). Its slots follow, see
/// [`MailboxSlot`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mailbox {
    /// Written by the host: slots filled, modulo 2^32.
    pub posted: u32,
    /// Stop request, written by the host: if not 0, the group ends after the last posted slot.
    pub stop: u32,
    /// Written by the host: [`extent`] of the last posted bin.
    pub extent: u64,
    /// Must be 0.
    pub reserved_host: [u32; 12],
    /// Written by the group: slots processed, modulo 2^32.
    pub finished: u32,
    /// State of the group, which writes it: [`MAILBOX_POLLING`], then [`MAILBOX_ENDED`].
    pub running: u32,
    /// Must be 0.
    pub reserved_device: [u32; 14],
}

/// Maximum length of a bin's buffers in an [`extent`], in buffer units (`GW_EXTENT_UNITS_MAX`).
pub const EXTENT_UNITS_MAX: u32 = 192;

/// Returns the [`Mailbox::extent`] of a bin: the location of its buffers if they are contiguous in
/// the order of `descriptors`, otherwise a length of 0.
///
/// `posted` is the value of [`Mailbox::posted`] that includes the bin.
pub fn extent(descriptors: &[Descriptor], posted: u32) -> u64 {
    let tag = u64::from(posted as u16) << 48;
    let Some(first) = descriptors.first() else { return tag };
    let mut end = first.buffer;
    for descriptor in descriptors {
        if descriptor.buffer != end || end - first.buffer > EXTENT_UNITS_MAX {
            return tag;
        }
        end += u32::from(descriptor.room);
    }
    let units = end - first.buffer;
    if units > EXTENT_UNITS_MAX { tag } else { tag | u64::from(units) << 32 | u64::from(first.buffer) }
}

/// Value of [`Mailbox::running`] while the group polls.
pub const MAILBOX_POLLING: u32 = 1;
/// Value of [`Mailbox::running`] after the group has ended.
pub const MAILBOX_ENDED: u32 = 2;

/// Unit of a slot's capacity, in packets. With a multiple of this, slots begin at multiples of 64
/// bytes.
pub const MAILBOX_SLOT_PACKETS: usize = 16;

/// Layout of a mailbox slot; all offsets are bytes from the start of the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MailboxSlot {
    /// Size of the slot.
    pub bytes: usize,
    /// Offset of the descriptors; the bin precedes them.
    pub descriptors: usize,
    /// Offset of the parameters.
    pub parameters: usize,
    /// Offset of the outcomes.
    pub outcomes: usize,
    /// Offset of the trails.
    pub trails: usize,
}

impl MailboxSlot {
    /// Returns the layout for bins of up to `bin_packets` packets, a multiple of
    /// [`MAILBOX_SLOT_PACKETS`].
    pub const fn new(bin_packets: usize) -> Self {
        assert!(bin_packets.is_multiple_of(MAILBOX_SLOT_PACKETS));
        Self {
            bytes: 64 + 36 * bin_packets,
            descriptors: 64,
            parameters: 64 + 16 * bin_packets,
            outcomes: 64 + 24 * bin_packets,
            trails: 64 + 32 * bin_packets,
        }
    }
}

const _: () = {
    assert!(cfg!(target_endian = "little"));
    assert!(size_of::<Mailbox>() == 128);
    assert!(offset_of!(Mailbox, stop) == 4);
    assert!(offset_of!(Mailbox, finished) == 64);
    assert!(offset_of!(Mailbox, running) == 68);
    assert!(size_of::<Descriptor>() == 16);
    assert!(offset_of!(Descriptor, head) == 4);
    assert!(offset_of!(Descriptor, length) == 6);
    assert!(offset_of!(Descriptor, room) == 8);
    assert!(offset_of!(Descriptor, port) == 9);
    assert!(offset_of!(Descriptor, order) == 10);
    assert!(offset_of!(Descriptor, flow_hash) == 12);
    assert!(size_of::<Outcome>() == 8);
    assert!(offset_of!(Outcome, reason) == 1);
    assert!(offset_of!(Outcome, port) == 2);
    assert!(offset_of!(Outcome, value) == 4);
    assert!(size_of::<Bin>() == 16);
    assert!(offset_of!(Bin, count) == 4);
    assert!(offset_of!(Bin, kernel) == 6);
    assert!(offset_of!(Bin, variant) == 7);
    assert!(offset_of!(Bin, instance) == 8);
    assert!(offset_of!(Bin, length_bytes) == 10);
    assert!(offset_of!(Bin, length_class) == 12);
    assert!(offset_of!(Bin, row) == 14);
    assert!(offset_of!(Bin, part) == 15);
    assert!(size_of::<Chain>() == 64);
    assert!(offset_of!(Chain, verdicts) == 4);
    assert!(offset_of!(Chain, instances) == 8);
    assert!(size_of::<ChainStage>() == 8);
    assert!(offset_of!(ChainStage, variant) == 4);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extent_covers_contiguous_buffers_only() {
        let buffer = |buffer, room| Descriptor { buffer, room, ..Descriptor::default() };
        let tag = 7_u64 << 48;
        let side_by_side = [buffer(1000, 2), buffer(1002, 3), buffer(1005, 2)];
        assert_eq!(extent(&side_by_side, 0x1_0007), tag | 7 << 32 | 1000);
        // A gap, a wrong order, or one unit too many gives the length 0, with the tag of `posted`.
        assert_eq!(extent(&[side_by_side[0], side_by_side[2]], 7), tag);
        assert_eq!(extent(&[side_by_side[1], side_by_side[0]], 7), tag);
        let large: Vec<_> = (0..9).map(|at| buffer(24 * at, 24)).collect();
        assert_eq!(extent(&large[..8], 7), tag | 192 << 32);
        assert_eq!(extent(&large, 7), tag);
        assert_eq!(extent(&[], 7), tag);
    }
}
