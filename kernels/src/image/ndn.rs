//! Structs of the table image of `ndn`, as in `kernels/ndn/image.h`.

use super::concat;

/// Header of the `ndn` image (`gw_ndn_image`). `kernels/ndn/image.h` draws the rest of the image.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NdnImage {
    /// Must be [`NDN_MAGIC`].
    pub magic: u32,
    /// Capacity for [`NdnNextHop`] structs. Each next hop has two.
    pub next_hops: u32,
    /// Number of [`NdnBucket`] structs that a hash can select.
    pub buckets: u32,
    /// Number of overflow buckets, which follow them.
    pub overflow: u32,
    /// Size of the records, in units of [`NDN_UNIT_BYTES`]. The first unit is unused.
    pub records: u32,
    /// Next hop of the name `/`, or [`NDN_NONE`].
    pub default_next_hop: u32,
    /// Lengths of the prefixes in the table: bit `i` is set for `i + 1` components.
    pub depths: u32,
    /// Number of components of a guide, 1 to [`NDN_DEPTHS`].
    pub guide: u32,
    /// Destination port of NDN over UDP.
    pub udp_port: u32,
    /// Must be 0.
    pub pad: u32,
    /// First half of the SipHash key.
    pub key0: u64,
    /// Second half of the SipHash key.
    pub key1: u64,
    /// Offset of the next hops.
    pub next_hops_offset: u64,
    /// Offset of the buckets.
    pub buckets_offset: u64,
    /// Offset of the records.
    pub records_offset: u64,
    /// Size of the image.
    pub bytes: u64,
}

/// Value of [`NdnImage::magic`].
pub const NDN_MAGIC: u32 = u32::from_le_bytes(*b"ndn ");
/// Number of slots in a bucket.
pub const NDN_SLOTS: usize = 7;
/// Maximum number of buckets in a chain.
pub const NDN_CHAIN: usize = 16;
/// Index without a next hop.
pub const NDN_NONE: u32 = u32::MAX;
/// Maximum number of components of a name in the table.
pub const NDN_DEPTHS: u32 = 32;
/// Unit of record sizes, and size of a bucket, in bytes.
pub const NDN_UNIT_BYTES: usize = 64;
/// Flag of [`NdnNextHop::flags`]: the destination is this machine.
pub const NDN_LOCAL: u8 = 1;
/// Flag of [`NdnNextHop::flags`]: the route discards packets.
pub const NDN_BLACKHOLE: u8 = 2;
/// Value of [`NdnNextHop::carrier`]: Ethernet.
pub const NDN_ETHERNET: u8 = 0;
/// Value of [`NdnNextHop::carrier`]: UDP over IPv4.
pub const NDN_UDP4: u8 = 1;
/// Value of [`NdnNextHop::carrier`]: UDP over IPv6.
pub const NDN_UDP6: u8 = 2;

impl NdnImage {
    /// Returns the bytes of the struct in the image.
    pub fn emit(&self) -> [u8; size_of::<Self>()] {
        concat([
            &self.magic.to_le_bytes()[..],
            &self.next_hops.to_le_bytes(),
            &self.buckets.to_le_bytes(),
            &self.overflow.to_le_bytes(),
            &self.records.to_le_bytes(),
            &self.default_next_hop.to_le_bytes(),
            &self.depths.to_le_bytes(),
            &self.guide.to_le_bytes(),
            &self.udp_port.to_le_bytes(),
            &self.pad.to_le_bytes(),
            &self.key0.to_le_bytes(),
            &self.key1.to_le_bytes(),
            &self.next_hops_offset.to_le_bytes(),
            &self.buckets_offset.to_le_bytes(),
            &self.records_offset.to_le_bytes(),
            &self.bytes.to_le_bytes(),
        ])
    }
}

/// Slot of a bucket, for one name (`gw_ndn_slot`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NdnSlot {
    /// Upper half of the name's hash.
    pub fingerprint: u32,
    /// Location of the record, in units of [`NDN_UNIT_BYTES`]; 0 if the slot is free.
    pub record: u32,
}

/// Bucket of names with similar hashes (`gw_ndn_bucket`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NdnBucket {
    /// Slots, in any order.
    pub slots: [NdnSlot; NDN_SLOTS],
    /// Index of the next bucket in the chain; 0 if there is none.
    pub next: u32,
    /// Must be 0.
    pub pad: u32,
}

/// Record of a name prefix (`gw_ndn_record`). The name follows.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NdnRecord {
    /// Index of its next hop, or [`NDN_NONE`] if the record is only a guide.
    pub next_hop: u32,
    /// Lengths of the names below a guide: bit `i` is set for `i + 1` more components.
    pub deeper: u32,
    /// Number of names that use the record as a guide.
    pub below: u32,
    /// Length of the name in bytes.
    pub name_bytes: u32,
}

impl NdnRecord {
    /// Returns the bytes of the struct in the image.
    pub fn emit(&self) -> [u8; size_of::<Self>()] {
        concat([
            &self.next_hop.to_le_bytes(),
            &self.deeper.to_le_bytes(),
            &self.below.to_le_bytes(),
            &self.name_bytes.to_le_bytes(),
        ])
    }
}

/// A next hop of `ndn` (`gw_ndn_next_hop`). The image has two copies of each.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NdnNextHop {
    /// Destination MAC address of forwarded frames.
    pub destination_mac: [u8; 6],
    /// Source MAC address of forwarded frames.
    pub source_mac: [u8; 6],
    /// Egress port.
    pub port: u16,
    /// [`NDN_LOCAL`] and [`NDN_BLACKHOLE`].
    pub flags: u8,
    /// [`NDN_ETHERNET`], [`NDN_UDP4`] or [`NDN_UDP6`].
    pub carrier: u8,
    /// Source address of UDP datagrams. An IPv4 address is in the first 4 bytes.
    pub source_address: [u8; 16],
    /// Destination address of UDP datagrams. An IPv4 address is in the first 4 bytes.
    pub destination_address: [u8; 16],
    /// Source port of UDP datagrams.
    pub source_port: u16,
    /// Destination port of UDP datagrams.
    pub destination_port: u16,
    /// In the first copy: index of the valid copy, 0 or 1.
    pub valid_copy: u32,
    /// Must be 0.
    pub pad: [u32; 2],
}

impl NdnNextHop {
    /// Returns the bytes of the struct in the image.
    pub fn emit(&self) -> [u8; size_of::<Self>()] {
        concat([
            &self.destination_mac[..],
            &self.source_mac,
            &self.port.to_le_bytes(),
            &[self.flags],
            &[self.carrier],
            &self.source_address,
            &self.destination_address,
            &self.source_port.to_le_bytes(),
            &self.destination_port.to_le_bytes(),
            &self.valid_copy.to_le_bytes(),
            &self.pad[0].to_le_bytes(),
            &self.pad[1].to_le_bytes(),
        ])
    }
}
