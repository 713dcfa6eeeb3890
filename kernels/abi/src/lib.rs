//! Structs that host and kernels share: the Rust half of `abi.h` in this folder.
//!
//! Every size and offset is asserted here and there; `godwit-kernels` carries a
//! test that asks the C compiler for its layout and compares. Little-endian.
#![forbid(unsafe_code)]

use core::mem::{offset_of, size_of};

/// Bytes per unit of [`Descriptor::buffer`] and [`Descriptor::room`].
pub const BUFFER_UNIT_BYTES: usize = 64;

/// The verdict that drops a packet; [`Outcome::reason`] says why.
pub const VERDICT_DROP: u8 = 255;

/// [`Outcome::port`] of a packet that goes to all ports of a set of the function's, but the one that it came by;
/// [`Outcome::value`] is the number of the set.
pub const PORT_FLOOD: u16 = u16::MAX;

/// The place of one packet in the arena (`gw_descriptor`).
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
    /// Bytes of the frame, without FCS.
    pub length: u16,
    /// Size of the buffer, in units of 64 bytes.
    pub room: u8,
    /// Port the packet came in by.
    pub port: u8,
    /// Place in the worker's order of arrival, modulo 2^16.
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
    /// Bytes from the arena's base to the buffer.
    pub fn buffer_offset(&self) -> usize {
        self.buffer as usize * BUFFER_UNIT_BYTES
    }

    /// Size of the buffer in bytes.
    pub fn room_bytes(&self) -> usize {
        usize::from(self.room) * BUFFER_UNIT_BYTES
    }

    /// Bytes from the arena's base to the first byte of the frame.
    pub fn frame_offset(&self) -> usize {
        self.buffer_offset() + usize::from(self.head)
    }

    /// Bytes free behind the frame; 0 when the descriptor is not consistent.
    pub fn tailroom_bytes(&self) -> usize {
        self.room_bytes().saturating_sub(usize::from(self.head) + usize::from(self.length))
    }
}

/// What a function says of one packet (`gw_outcome`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Index into the contract's verdicts, or [`VERDICT_DROP`].
    pub verdict: u8,
    /// With [`VERDICT_DROP`]: index into the contract's drop reasons.
    pub reason: u8,
    /// Egress port, where the verdict says that the function chose one, or [`PORT_FLOOD`].
    pub port: u16,
    /// What else the function found; the contract says what it means.
    pub value: u32,
}

impl Outcome {
    /// A drop, for the contract's drop reason `reason`.
    pub const fn drop(reason: u8) -> Self {
        Self { verdict: VERDICT_DROP, reason, port: 0, value: 0 }
    }

    /// The verdict with this index in the contract.
    pub const fn verdict(verdict: u8) -> Self {
        Self { verdict, reason: 0, port: 0, value: 0 }
    }
}

/// Up to one work-group of packets of the same (function, variant, length class, row) (`gw_bin`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bin {
    /// Index of its first packet in the chunk's arrays.
    pub first: u32,
    /// Packets in it.
    pub count: u16,
    /// Which kernel: index into `kernels/functions.h`.
    pub kernel: u8,
    /// Which variant of it.
    pub variant: u8,
    /// Which configured function: index into the table images.
    pub instance: u16,
    /// Longest frame in it, bytes.
    pub length_bytes: u16,
    /// Its length class.
    pub length_class: u16,
    /// Row of its instance in the chain that a device follows.
    pub row: u8,
    /// [`PART_MORE`], [`PART_REST`]: of a bin of several variants; or 0.
    pub part: u8,
}

/// In [`Bin::part`]: the chunk's next bin is another part of the same bin, of another variant of the same function, which the same
/// group runs next (`GW_PART_MORE`).
pub const PART_MORE: u8 = 1;
/// The one in front is another part (`GW_PART_REST`).
pub const PART_REST: u8 = 2;

/// The part of the chain that a device follows by itself (`gw_chain`); behind it lie a [`ChainStage`] for each configured
/// function, and the hops: a `u32` for each instance, row and verdict.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// Rows of each instance, one a class of packets; 0: there is no chain.
    pub rows: u32,
    /// Columns of each row.
    pub verdicts: u32,
    /// Configured functions.
    pub instances: u32,
    /// 0.
    pub reserved: [u32; 13],
}

/// A configured function, as packets that come to it on a device are run (`gw_chain_stage`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainStage {
    /// Which kernel it has.
    pub kernel: u32,
    /// Which variant of it all packets have.
    pub variant: u32,
}

/// A hop that does not lead on (`GW_HOP_NONE`). Others: a rank in the upper 16 bits, the instance in the lower.
pub const HOP_NONE: u32 = u32::MAX;
/// A trail of a packet that no function led on (`GW_TRAIL_NONE`).
pub const TRAIL_NONE: u32 = u32::MAX;
/// Most functions that lead a packet on before it comes back to the host (`GW_HOPS_MAX`).
pub const HOPS_MAX: usize = 4;
/// Bytes of the scratch on which a device packs a packet anew (`GW_CHAIN_SCRATCH_BYTES`). A scratch is for multiples of
/// [`MAILBOX_SLOT_PACKETS`], and all zeros at first.
pub const CHAIN_SCRATCH_PACKET_BYTES: usize = 40;

/// How host and one persistent group talk (`gw_mailbox`); behind it lie its places, see [`MailboxSlot`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mailbox {
    /// Written by the host: places filled so far, modulo 2^32.
    pub posted: u32,
    /// Written by the host: not 0 when the group is to end once all is worked off.
    pub stop: u32,
    /// Written by the host, of the last place: [`extent`].
    pub extent: u64,
    /// 0.
    pub reserved_host: [u32; 12],
    /// Written by the group: places worked off so far, modulo 2^32.
    pub finished: u32,
    /// Written by the group: [`MAILBOX_POLLING`] once it polls, [`MAILBOX_ENDED`] when it has ended.
    pub running: u32,
    /// 0.
    pub reserved_device: [u32; 14],
}

/// Of buffers that a group can bring before it has seen their descriptors, so many units together at most.
pub const EXTENT_UNITS_MAX: u32 = 192;

/// [`Mailbox::extent`] of a bin, behind which `posted` are posted: where its buffers lie if they lie side by side, in the
/// order of its packets.
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

/// [`Mailbox::running`] of a group that polls.
pub const MAILBOX_POLLING: u32 = 1;
/// [`Mailbox::running`] of a group that has ended.
pub const MAILBOX_ENDED: u32 = 2;

/// Places are for multiples of so many packets, so that they begin at multiples of 64 bytes.
pub const MAILBOX_SLOT_PACKETS: usize = 16;

/// Where things lie in a mailbox's place for a bin of up to `bin_packets` packets, a multiple of [`MAILBOX_SLOT_PACKETS`]. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MailboxSlot {
    /// The whole place.
    pub bytes: usize,
    /// From its start to the descriptors; the bin lies in front of them.
    pub descriptors: usize,
    /// From its start to the parameters.
    pub parameters: usize,
    /// From its start to the outcomes.
    pub outcomes: usize,
    /// From its start to the trails.
    pub trails: usize,
}

impl MailboxSlot {
    /// The layout for bins of up to `bin_packets` packets.
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
    fn an_extent_is_of_buffers_side_by_side() {
        let buffer = |buffer, room| Descriptor { buffer, room, ..Descriptor::default() };
        let tag = 7_u64 << 48;
        let side_by_side = [buffer(1000, 2), buffer(1002, 3), buffer(1005, 2)];
        assert_eq!(extent(&side_by_side, 0x1_0007), tag | 7 << 32 | 1000);
        // One between them that is not the bin's, another order, one too many units: nothing but of which place it is.
        assert_eq!(extent(&[side_by_side[0], side_by_side[2]], 7), tag);
        assert_eq!(extent(&[side_by_side[1], side_by_side[0]], 7), tag);
        let large: Vec<_> = (0..9).map(|at| buffer(24 * at, 24)).collect();
        assert_eq!(extent(&large[..8], 7), tag | 192 << 32);
        assert_eq!(extent(&large, 7), tag);
        assert_eq!(extent(&[], 7), tag);
    }
}
