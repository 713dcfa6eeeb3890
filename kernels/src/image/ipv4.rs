//! Structs of the table image of `ipv4`, as in `kernels/ipv4/image.h`.

use super::concat;

/// Header of the `ipv4` image (`gw_ipv4_image`).
///
/// ```text
/// 0        next_hops_offset   tbl24_offset         tbl8_offset          bytes
/// | header | next_hops * 16   | 2^24 * entry_bytes | groups * 256 * entry_bytes |
/// ```
///
/// If the top bit of a `tbl24` entry is set, the other bits are the number of a group in `tbl8`.
/// Otherwise the entry is the index of a next hop. An entry whose bits below the top bit are all
/// ones has no route.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Image {
    /// Must be [`IPV4_MAGIC`].
    pub magic: u32,
    /// Size of an entry in bytes: 2 (variant 0) or 4 (variant 1).
    pub entry_bytes: u32,
    /// Number of [`Ipv4NextHop`] structs.
    pub next_hops: u32,
    /// Number of groups of 256 entries in `tbl8`.
    pub groups: u32,
    /// Offset of the next hops.
    pub next_hops_offset: u64,
    /// Offset of `tbl24`, whose index is the upper 24 bits of an address.
    pub tbl24_offset: u64,
    /// Offset of `tbl8`, the groups.
    pub tbl8_offset: u64,
    /// Size of the image.
    pub bytes: u64,
}

/// Value of [`Ipv4Image::magic`].
pub const IPV4_MAGIC: u32 = u32::from_le_bytes(*b"IPv4");
/// Flag in a 2-byte entry of `tbl24`: the other bits are the number of a group.
pub const IPV4_GROUP_NARROW: u16 = 0x8000;
/// Flag in a 4-byte entry of `tbl24`: the other bits are the number of a group.
pub const IPV4_GROUP_WIDE: u32 = 0x8000_0000;
/// 2-byte entry without a route. Indices of next hops in 2-byte entries are below this value.
pub const IPV4_NO_ROUTE_NARROW: u16 = 0x7fff;
/// 4-byte entry without a route. It is also the result of a look-up without a route, for both sizes
/// of entries.
pub const IPV4_NO_ROUTE: u32 = 0x7fff_ffff;
/// Flag of [`Ipv4NextHop`]: the address belongs to this machine.
pub const IPV4_LOCAL: u8 = 1;
/// Flag of [`Ipv4NextHop`]: the route discards packets.
pub const IPV4_BLACKHOLE: u8 = 2;
/// Flag of [`Ipv4NextHop`]: treated like a missing route.
pub const IPV4_UNREACHABLE: u8 = 4;
/// Flag of [`Ipv4NextHop`]: the MAC address of the next hop is unknown.
pub const IPV4_UNRESOLVED: u8 = 8;

impl Ipv4Image {
    /// Returns the bytes of the struct in the image.
    pub fn emit(&self) -> [u8; size_of::<Self>()] {
        concat([
            &self.magic.to_le_bytes(),
            &self.entry_bytes.to_le_bytes(),
            &self.next_hops.to_le_bytes(),
            &self.groups.to_le_bytes(),
            &self.next_hops_offset.to_le_bytes(),
            &self.tbl24_offset.to_le_bytes(),
            &self.tbl8_offset.to_le_bytes(),
            &self.bytes.to_le_bytes(),
        ])
    }
}

/// A next hop of `ipv4` (`gw_ipv4_next_hop`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ipv4NextHop {
    /// Destination MAC address, port and flags.
    pub to: u64,
    /// Source MAC address and MTU.
    pub from: u64,
}

impl Ipv4NextHop {
    /// Creates a next hop from MAC addresses in wire order, port, flags, and MTU in bytes.
    pub fn new(destination: [u8; 6], source: [u8; 6], port: u8, flags: u8, mtu: u16) -> Self {
        let upper = |address: [u8; 6]| address.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)) << 16;
        Self { to: upper(destination) | u64::from(port) << 8 | u64::from(flags), from: upper(source) | u64::from(mtu) }
    }

    /// Returns the bytes of the struct in the image.
    pub fn emit(&self) -> [u8; size_of::<Self>()] {
        concat([&self.to.to_le_bytes(), &self.from.to_le_bytes()])
    }
}
