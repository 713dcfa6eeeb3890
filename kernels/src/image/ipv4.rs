//! Headers of the table image of `ipv4`: `kernels/ipv4/image.h`.

use super::concat;

/// `ipv4`: the header (`gw_ipv4_image`).
///
/// ```text
/// 0        next_hops_offset   tbl24_offset         tbl8_offset          bytes
/// | header | next_hops * 16   | 2^24 * entry_bytes | groups * 256 * entry_bytes |
/// ```
///
/// An entry of `tbl24` with its top bit set names a group of `tbl8` in its other
/// bits; any other entry is the index of a next hop, or all ones below the top
/// bit where there is no route.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Image {
    /// [`IPV4_MAGIC`].
    pub magic: u32,
    /// 2 (variant 0) or 4 (variant 1).
    pub entry_bytes: u32,
    /// Number of [`Ipv4NextHop`].
    pub next_hops: u32,
    /// Number of groups of 256 entries in `tbl8`.
    pub groups: u32,
    /// Where the next hops begin.
    pub next_hops_offset: u64,
    /// Where the entries by the upper 24 bits begin.
    pub tbl24_offset: u64,
    /// Where the groups begin.
    pub tbl8_offset: u64,
    /// Size of the image.
    pub bytes: u64,
}

/// [`Ipv4Image::magic`].
pub const IPV4_MAGIC: u32 = u32::from_le_bytes(*b"IPv4");
/// In a 2-byte entry of `tbl24`: the other bits are a group.
pub const IPV4_GROUP_NARROW: u16 = 0x8000;
/// In a 4-byte entry of `tbl24`: the other bits are a group.
pub const IPV4_GROUP_WIDE: u32 = 0x8000_0000;
/// A 2-byte entry without a route; 2-byte entries name next hops and groups below this.
pub const IPV4_NO_ROUTE_NARROW: u16 = 0x7fff;
/// A 4-byte entry without a route; also what a lookup answers then, at any width.
pub const IPV4_NO_ROUTE: u32 = 0x7fff_ffff;
/// A flag of [`Ipv4NextHop`]: an address of this machine.
pub const IPV4_LOCAL: u8 = 1;
/// A flag of [`Ipv4NextHop`]: dropped on purpose.
pub const IPV4_BLACKHOLE: u8 = 2;
/// A flag of [`Ipv4NextHop`]: as if there were no route.
pub const IPV4_UNREACHABLE: u8 = 4;
/// A flag of [`Ipv4NextHop`]: the station's address is not known.
pub const IPV4_UNRESOLVED: u8 = 8;

impl Ipv4Image {
    /// The struct's bytes in the image.
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

/// `ipv4`: where a route leads (`gw_ipv4_next_hop`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ipv4NextHop {
    /// Destination address of frames, port and flags.
    pub to: u64,
    /// Source address of frames, and the MTU.
    pub from: u64,
}

impl Ipv4NextHop {
    /// From addresses as on the wire, port, flags, and the longest IP packet in bytes.
    pub fn new(destination: [u8; 6], source: [u8; 6], port: u8, flags: u8, mtu: u16) -> Self {
        let upper = |address: [u8; 6]| address.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)) << 16;
        Self { to: upper(destination) | u64::from(port) << 8 | u64::from(flags), from: upper(source) | u64::from(mtu) }
    }

    /// The struct's bytes in the image.
    pub fn emit(&self) -> [u8; size_of::<Self>()] {
        concat([&self.to.to_le_bytes(), &self.from.to_le_bytes()])
    }
}
