//! Structs of the table image of `ipv6`, as in `kernels/ipv6/image.h`.

use super::concat;

/// Header of the `ipv6` image (`gw_ipv6_image`).
///
/// ```text
/// 0        next_hops_offset   root_offset             lines_offset      bytes
/// | header | next_hops * 16   | entries, 4 bytes each | lines of 64 bytes |
/// ```
///
/// `kernels/ipv6/image.h` describes entries and lines.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Image {
    /// Must be [`IPV6_MAGIC`].
    pub magic: u32,
    /// [`IPV6_TRIE`] or [`IPV6_HASH`], equal to the variant.
    pub form: u32,
    /// Capacity for [`Ipv6NextHop`] structs.
    pub next_hops: u32,
    /// The root has `2^(64 - root_shift)` entries.
    pub root_shift: u32,
    /// Offset of the next hops.
    pub next_hops_offset: u64,
    /// Offset of the root.
    pub root_offset: u64,
    /// Offset of the lines.
    pub lines_offset: u64,
    /// Size of the image.
    pub bytes: u64,
}

/// Value of [`Ipv6Image::magic`].
pub const IPV6_MAGIC: u32 = u32::from_le_bytes(*b"IPv6");
/// Value of [`Ipv6Image::form`]: a multibit trie.
pub const IPV6_TRIE: u32 = 0;
/// Value of [`Ipv6Image::form`]: hash tables, searched by prefix length.
pub const IPV6_HASH: u32 = 1;
/// Tag of an entry that is the index of a next hop.
pub const IPV6_LEAF: u32 = 0;
/// Tag of an entry that refers to a bucket (trie) or to a hash table (hash).
pub const IPV6_TABLE: u32 = 1 << 30;
/// Tag of an entry that refers to a node of the trie.
pub const IPV6_NODE: u32 = 2 << 30;
/// Tag of an entry that refers to another entry, which covers the lower half of the address.
pub const IPV6_LOW: u32 = 3 << 30;
/// Number of lines that an entry can refer to.
pub const IPV6_LINES_MAX: usize = 1 << 23;
/// Size of a line in bytes.
pub const IPV6_LINE_BYTES: usize = 64;
/// Number of keys in a bucket.
pub const IPV6_KEYS: usize = 5;
/// Number of keys in a line of a hash table.
pub const IPV6_WAYS: usize = 3;
/// Maximum number of lines for the keys of one hash value.
pub const IPV6_PROBES: usize = 16;
/// Entry without a route. It is also the result of a look-up without a route.
pub const IPV6_NO_ROUTE: u32 = 0x3fff_ffff;
/// Flag of [`Ipv6NextHop`]: the address belongs to this machine.
pub const IPV6_LOCAL: u8 = 1;
/// Flag of [`Ipv6NextHop`]: the route discards packets.
pub const IPV6_BLACKHOLE: u8 = 2;
/// Flag of [`Ipv6NextHop`]: treated like a missing route.
pub const IPV6_UNREACHABLE: u8 = 4;
/// Flag of [`Ipv6NextHop`]: the MAC address of the next hop is unknown.
pub const IPV6_UNRESOLVED: u8 = 8;

impl Ipv6Image {
    /// Returns the bytes of the struct in the image.
    pub fn emit(&self) -> [u8; size_of::<Self>()] {
        concat([
            &self.magic.to_le_bytes(),
            &self.form.to_le_bytes(),
            &self.next_hops.to_le_bytes(),
            &self.root_shift.to_le_bytes(),
            &self.next_hops_offset.to_le_bytes(),
            &self.root_offset.to_le_bytes(),
            &self.lines_offset.to_le_bytes(),
            &self.bytes.to_le_bytes(),
        ])
    }
}

/// A next hop of `ipv6` (`gw_ipv6_next_hop`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ipv6NextHop {
    /// Destination MAC address, port and flags.
    pub to: u64,
    /// Source MAC address and MTU.
    pub from: u64,
}

impl Ipv6NextHop {
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

/// Bucket of the trie, a line that is searched by comparison (`gw_ipv6_bucket`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Bucket {
    /// Keys in ascending order. Unused keys are [`u64::MAX`].
    pub keys: [u64; IPV6_KEYS],
    /// Values. Value `i` applies from key `i - 1` on.
    pub values: [u32; IPV6_KEYS + 1],
}

impl Ipv6Bucket {
    /// Returns the bytes of the struct in the image.
    pub fn emit(&self) -> [u8; size_of::<Self>()] {
        concat([self.keys.map(u64::to_le_bytes).as_flattened(), self.values.map(u32::to_le_bytes).as_flattened()])
    }
}

/// Header of a hash table (`gw_ipv6_hash`). The lines with its keys follow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ipv6Hash {
    /// Prefix lengths to try, one byte each, starting with the lowest byte.
    pub rope: u64,
    /// Seed of the hash.
    pub seed: u64,
    /// Entry that is used if no prefix is found.
    pub value: u32,
    /// The table has `2^(64 - shift)` lines.
    pub shift: u32,
    /// Must be 0.
    pub pad: [u32; 10],
}

impl Ipv6Hash {
    /// Returns the bytes of the struct in the image.
    pub fn emit(&self) -> [u8; size_of::<Self>()] {
        concat([
            &self.rope.to_le_bytes(),
            &self.seed.to_le_bytes(),
            &self.value.to_le_bytes(),
            &self.shift.to_le_bytes(),
            self.pad.map(u32::to_le_bytes).as_flattened(),
        ])
    }

    /// Returns the hash of a prefix. Its top bits are the number of a line (`gw_ipv6_hash_of`).
    pub fn hash(&self, prefix: u64, length: u8) -> u64 {
        let spread = (prefix ^ (prefix >> 32)).wrapping_mul(self.seed | 1);
        let mixed = spread.wrapping_add(u64::from(length).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }
}

/// Line of a hash table, with up to three keys (`gw_ipv6_hash_line`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ipv6HashLine {
    /// Prefixes. Bits beyond their lengths are 0.
    pub keys: [u64; IPV6_WAYS],
    /// Prefix lengths to try after each prefix is found.
    pub ropes: [u64; IPV6_WAYS],
    /// Entry for each prefix: the longest match so far.
    pub values: [u32; IPV6_WAYS],
    /// Prefix lengths, 1 to 64; 0 if there is no key.
    pub lengths: [u8; IPV6_WAYS],
    /// 1 if a key of this line may be in the next line.
    pub more: u8,
}

impl Ipv6HashLine {
    /// Returns the bytes of the struct in the image.
    pub fn emit(&self) -> [u8; size_of::<Self>()] {
        concat([
            self.keys.map(u64::to_le_bytes).as_flattened(),
            self.ropes.map(u64::to_le_bytes).as_flattened(),
            self.values.map(u32::to_le_bytes).as_flattened(),
            &self.lengths,
            &[self.more],
        ])
    }
}
