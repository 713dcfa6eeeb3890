//! Structs that the host and the kernels share. This file is the Rust version of `abi.h`.
//!
//! Both files assert every size and offset. A test in `godwit-kernels` compares both with the C
//! compiler's layout. All fields are little-endian.
#![forbid(unsafe_code)]

use core::mem::{offset_of, size_of};

/// Size of one buffer unit, in bytes. [`Descriptor::buffer`] and [`Descriptor::room`] count in this
/// unit.
pub const BUFFER_UNIT_BYTES: usize = 64;

/// Verdict of a dropped packet. [`Outcome::reason`] then holds the reason for the drop.
pub const VERDICT_DROP: u8 = 255;

/// Value of [`Outcome::port`] for a flooded packet. The packet leaves through all ports of a port
/// set except its ingress port. [`Outcome::value`] is then the index of the port set.
pub const PORT_FLOOD: u16 = u16::MAX;

/// Descriptor of one packet (`gw_descriptor`). It locates the packet's buffer and frame in the
/// arena, the memory that holds all packets.
///
/// ```text
/// buffer*64            +head              +head+length        +room*64
/// |<---- headroom ---->|<---- frame ----->|<---- tailroom --->|
/// ```
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Start of the buffer, in units of 64 bytes from the start of the arena.
    pub buffer: u32,
    /// Number of bytes from the start of the buffer to the first byte of the frame.
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
    /// Returns the offset of the buffer from the start of the arena, in bytes.
    pub fn buffer_offset(&self) -> usize {
        self.buffer as usize * BUFFER_UNIT_BYTES
    }

    /// Returns the size of the buffer in bytes.
    pub fn room_bytes(&self) -> usize {
        usize::from(self.room) * BUFFER_UNIT_BYTES
    }

    /// Returns the offset of the frame from the start of the arena, in bytes.
    pub fn frame_offset(&self) -> usize {
        self.buffer_offset() + usize::from(self.head)
    }

    /// Returns the number of free bytes after the frame, or 0 if the frame does not fit into its
    /// buffer.
    pub fn tailroom_bytes(&self) -> usize {
        self.room_bytes().saturating_sub(usize::from(self.head) + usize::from(self.length))
    }
}

/// Result of a function for one packet (`gw_outcome`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Verdict of the packet. It is [`VERDICT_DROP`] or an index into the verdicts that the
    /// function declares.
    pub verdict: u8,
    /// Drop reason of the packet, if the verdict is [`VERDICT_DROP`]. It is an index into the drop
    /// reasons that the function declares.
    pub reason: u8,
    /// Egress port of the packet or [`PORT_FLOOD`], if the verdict requires a port.
    pub port: u16,
    /// Additional result. Its meaning depends on the function and the verdict.
    pub value: u32,
}

impl Outcome {
    /// Returns the outcome of a dropped packet. `reason` is an index into the drop reasons of the
    /// function.
    pub const fn drop(reason: u8) -> Self {
        Self { verdict: VERDICT_DROP, reason, port: 0, value: 0 }
    }

    /// Returns an outcome with the given verdict. `verdict` is an index into the verdicts of the
    /// function.
    pub const fn verdict(verdict: u8) -> Self {
        Self { verdict, reason: 0, port: 0, value: 0 }
    }
}

/// A batch of packets for one function (`gw_bin`). One work-group of a device processes the batch.
///
/// All packets of the batch need the same kind of processing, and their frames have similar
/// lengths.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bin {
    /// Index of the first packet of this batch in the packet arrays of the kernel launch.
    pub first: u32,
    /// Number of packets.
    pub count: u16,
    /// Kernel number of the function.
    pub kernel: u8,
    /// Kind of processing that all packets of the batch need.
    pub variant: u8,
    /// Index of the configured function among all configured functions.
    pub instance: u16,
    /// Length of the longest frame, in bytes.
    pub length_bytes: u16,
    /// Length class of all frames in the batch.
    pub length_class: u16,
    /// Row in the function's next-function table. Each packet class has one row.
    pub row: u8,
    /// Flags [`PART_MORE`] and [`PART_REST`] of a batch with several parts.
    pub part: u8,
}

/// Flag of [`Bin::part`] (`GW_PART_MORE`). The next [`Bin`] of the launch is another part of the
/// same batch. The same work-group runs both parts.
pub const PART_MORE: u8 = 1;
/// Flag of [`Bin::part`] (`GW_PART_REST`). The previous [`Bin`] of the launch is another part of
/// the same batch. The same work-group runs both parts.
pub const PART_REST: u8 = 2;

/// Header of the function chain on a device (`gw_chain`). With a chain, the device runs several
/// functions one after another without the host.
///
/// One [`ChainStage`] per configured function follows the header. A table of `u32` follows these.
/// It maps a packet's last function, class and verdict to the next function.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// Rows per configured function in the next-function table, one per packet class. The value is
    /// 0 if the device runs only one function at a time.
    pub rows: u32,
    /// Columns of the next-function table, one per verdict. Packets with a higher verdict return to
    /// the host.
    pub verdicts: u32,
    /// Number of configured functions.
    pub instances: u32,
    /// Must be 0.
    pub reserved: [u32; 13],
}

/// How a device runs a configured function on packets that come from another function on the device
/// (`gw_chain_stage`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainStage {
    /// Kernel number of the function.
    pub kernel: u32,
    /// Kind of processing for all packets that come from another function on the device.
    pub variant: u32,
}

/// Value for a packet that has no next function on the device (`GW_HOP_NONE`).
///
/// In any other value, bits 0 to 15 hold the index of the next function. Bits 16 to 31 hold its
/// rank in the order of execution. Functions with lower ranks run first.
pub const HOP_NONE: u32 = u32::MAX;
/// Trail of a packet that only one function has processed on a device (`GW_TRAIL_NONE`).
///
/// The trail tells the host which path a packet took. Each byte holds a verdict that led to a next
/// function. The first verdict is in the lowest byte, and unused bytes are 0xff.
pub const TRAIL_NONE: u32 = u32::MAX;
/// Maximum number of function transitions per packet on a device (`GW_HOPS_MAX`).
pub const HOPS_MAX: usize = 4;
/// Scratch memory per packet, in bytes, that a work-group needs to run a function chain
/// (`GW_CHAIN_SCRATCH_BYTES`).
///
/// The memory holds packets that continue to a next function on the device. The packet count is a
/// multiple of [`MAILBOX_SLOT_PACKETS`]. The host zeroes the memory once.
pub const CHAIN_SCRATCH_PACKET_BYTES: usize = 40;

/// Header of the queue through which the host gives batches of packets to one persistent work-group
/// (`gw_mailbox`). The slots of the queue follow the header ([`MailboxSlot`]).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mailbox {
    /// Number of slots that the host has filled, modulo 2^32. The host writes this field.
    pub posted: u32,
    /// Stop request from the host. If it is not 0, the work-group ends after the last filled slot.
    pub stop: u32,
    /// Address range of the packet buffers in the newest slot ([`extent`]). The host writes this
    /// field.
    pub extent: u64,
    /// Must be 0.
    pub reserved_host: [u32; 12],
    /// Number of slots that the work-group has processed, modulo 2^32. The work-group writes this
    /// field.
    pub finished: u32,
    /// State of the work-group: first [`MAILBOX_POLLING`], then [`MAILBOX_ENDED`]. The work-group
    /// writes this field.
    pub running: u32,
    /// Must be 0.
    pub reserved_device: [u32; 14],
}

/// Maximum length of the address range that [`extent`] returns, in units of 64 bytes
/// (`GW_EXTENT_UNITS_MAX`).
pub const EXTENT_UNITS_MAX: u32 = 192;

/// Returns the address range of the packet buffers in a batch, for [`Mailbox::extent`].
///
/// The range has length 0 if the buffers are not contiguous or not in the order of `descriptors`.
/// `posted` is the value of [`Mailbox::posted`] after the host has posted the batch.
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

/// Value of [`Mailbox::running`] while the work-group polls the queue.
pub const MAILBOX_POLLING: u32 = 1;
/// Value of [`Mailbox::running`] after the work-group has ended.
pub const MAILBOX_ENDED: u32 = 2;

/// The capacity of a queue slot must be a multiple of this number of packets. Slots then begin at
/// multiples of 64 bytes.
pub const MAILBOX_SLOT_PACKETS: usize = 16;

/// Layout of a slot in the queue from the host to a work-group. All offsets are in bytes from the
/// start of the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MailboxSlot {
    /// Size of the slot, in bytes.
    pub bytes: usize,
    /// Offset of the packet descriptors, which follow the [`Bin`].
    pub descriptors: usize,
    /// Offset of the packet parameters, which the kernel reads.
    pub parameters: usize,
    /// Offset of the outcomes, which the kernel writes.
    pub outcomes: usize,
    /// Offset of the trails, which record the path of each packet on the device.
    pub trails: usize,
}

impl MailboxSlot {
    /// Returns the layout for up to `bin_packets` packets per slot. `bin_packets` must be a
    /// multiple of [`MAILBOX_SLOT_PACKETS`].
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
        assert_eq!(extent(&[side_by_side[0], side_by_side[2]], 7), tag);
        assert_eq!(extent(&[side_by_side[1], side_by_side[0]], 7), tag);
        let large: Vec<_> = (0..9).map(|at| buffer(24 * at, 24)).collect();
        assert_eq!(extent(&large[..8], 7), tag | 192 << 32);
        assert_eq!(extent(&large, 7), tag);
        assert_eq!(extent(&[], 7), tag);
    }
}
