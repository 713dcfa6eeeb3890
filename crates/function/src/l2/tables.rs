//! Table of the switch in the format that kernels read, which `kernels/l2/l2.h` shows.

use std::ops::Range;

use godwit_kernels::image::{ALIGNMENT_BYTES, L2_LEARNS, L2_MAGIC, L2_TAGGED, L2_UNTAGGED, L2Image, L2Port, L2Vlan};
use godwit_packet::Memory;

use super::switch::{Switch, VIDS};
use super::table::Hash;
use crate::Error;
use crate::tables::exact::capacity_of;

const PORTS_OFFSET: usize = size_of::<L2Image>().next_multiple_of(ALIGNMENT_BYTES);
const VLANS_OFFSET: usize = PORTS_OFFSET + 256 * size_of::<L2Port>();
const BUCKETS_OFFSET: usize = VLANS_OFFSET + VIDS as usize * size_of::<L2Vlan>();

/// Range of possible table sizes, as the binary logarithm of the number of buckets. In a smaller
/// table, an entry would have too few bits to identify the address.
pub(super) const BUCKET_BITS: Range<u32> = 8..29;

/// Returns the binary logarithm of the number of buckets that `capacity` addresses need. Returns
/// `None` if the largest table has too few buckets.
pub(super) fn bucket_bits(capacity: u64) -> Option<u32> {
    BUCKET_BITS.into_iter().find(|bits| capacity <= capacity_of(*bits))
}

/// Builds a table without addresses.
pub(super) fn image(hash: &Hash, switch: &Switch) -> Result<Memory, Error> {
    let bytes = BUCKETS_OFFSET + ((4 * 8) << hash.geometry.bucket_bits);
    let mut header = L2Image {
        magic: L2_MAGIC,
        bucket_bits: 0,
        multipliers: [0; 4],
        addends: [0; 4],
        second: 0,
        ports_offset: PORTS_OFFSET as u64,
        vlans_offset: VLANS_OFFSET as u64,
        buckets_offset: BUCKETS_OFFSET as u64,
        bytes: bytes as u64,
    };
    hash.write(&mut header);
    let mut image = Memory::new(bytes, "the table of addresses")?;
    image[..size_of::<L2Image>()].copy_from_slice(&header.emit());
    for (number, port) in switch.ports() {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags =
            flag(port.untagged.is_some(), L2_UNTAGGED) | flag(port.is_trunk, L2_TAGGED) | flag(port.learns, L2_LEARNS);
        let entry = L2Port { vid: port.untagged.unwrap_or(0), flags, pad: 0 };
        image[PORTS_OFFSET + usize::from(number) * size_of::<L2Port>()..][..size_of::<L2Port>()]
            .copy_from_slice(&entry.emit());
    }
    for vid in 0..VIDS {
        let mut vlan = L2Vlan::default();
        for &port in switch.members(vid) {
            let (word, bit) = (usize::from(port / 32), 1 << (port % 32));
            vlan.members[word] |= bit;
            vlan.tagged[word] |= if switch.is_tagged(vid, port) { bit } else { 0 };
        }
        image[VLANS_OFFSET + usize::from(vid) * size_of::<L2Vlan>()..][..size_of::<L2Vlan>()]
            .copy_from_slice(&vlan.emit());
    }
    Ok(image)
}

/// Returns the offset of a slot in the table.
pub(super) fn offset(slot: u32) -> usize {
    BUCKETS_OFFSET + slot as usize * 8
}
