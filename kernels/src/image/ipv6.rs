//! Headers of the table image of `ipv6`: `kernels/ipv6/image.h`.

use super::concat;

/// `ipv6`: the header (`gw_ipv6_image`).
///
/// ```text
/// 0        next_hops_offset   root_offset             lines_offset      bytes
/// | header | next_hops * 16   | entries, 4 bytes each | lines of 64 bytes |
/// ```
///
/// `kernels/ipv6/image.h` says what entries and lines are.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Image {
    /// [`IPV6_MAGIC`].
    pub magic: u32,
    /// [`IPV6_TRIE`] or [`IPV6_HASH`]; the variant says the same.
    pub form: u32,
    /// For how many [`Ipv6NextHop`]s there is room.
    pub next_hops: u32,
    /// The root has `2^(64 - root_shift)` entries.
    pub root_shift: u32,
    /// Where the next hops begin.
    pub next_hops_offset: u64,
    /// Where the root begins.
    pub root_offset: u64,
    /// Where the lines begin.
    pub lines_offset: u64,
    /// Size of the image.
    pub bytes: u64,
}

/// [`Ipv6Image::magic`].
pub const IPV6_MAGIC: u32 = u32::from_le_bytes(*b"IPv6");
/// [`Ipv6Image::form`]: a multibit trie.
pub const IPV6_TRIE: u32 = 0;
/// [`Ipv6Image::form`]: hash tables by length.
pub const IPV6_HASH: u32 = 1;
/// Tag of an entry: the index of a next hop.
pub const IPV6_LEAF: u32 = 0;
/// Tag of an entry: a bucket, or a hash table.
pub const IPV6_TABLE: u32 = 1 << 30;
/// Tag of an entry: a node.
pub const IPV6_NODE: u32 = 2 << 30;
/// Tag of an entry: the lower half of the address decides.
pub const IPV6_LOW: u32 = 3 << 30;
/// How many lines entries can name.
pub const IPV6_LINES_MAX: usize = 1 << 23;
/// Bytes of a line.
pub const IPV6_LINE_BYTES: usize = 64;
/// Keys of a bucket.
pub const IPV6_KEYS: usize = 5;
/// Keys of a line of a hash table.
pub const IPV6_WAYS: usize = 3;
/// Lines that the keys of one hash may lie in.
pub const IPV6_PROBES: usize = 16;
/// An entry without a route; also what a look-up answers then.
pub const IPV6_NO_ROUTE: u32 = 0x3fff_ffff;
/// A flag of [`Ipv6NextHop`]: an address of this machine.
pub const IPV6_LOCAL: u8 = 1;
/// A flag of [`Ipv6NextHop`]: dropped on purpose.
pub const IPV6_BLACKHOLE: u8 = 2;
/// A flag of [`Ipv6NextHop`]: as if there were no route.
pub const IPV6_UNREACHABLE: u8 = 4;
/// A flag of [`Ipv6NextHop`]: the station's address is not known.
pub const IPV6_UNRESOLVED: u8 = 8;

impl Ipv6Image {
    /// The struct's bytes in the image.
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

/// `ipv6`: where a route leads (`gw_ipv6_next_hop`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ipv6NextHop {
    /// Destination address of frames, port and flags.
    pub to: u64,
    /// Source address of frames, and the MTU.
    pub from: u64,
}

impl Ipv6NextHop {
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

/// `ipv6`: a line of the trie that is searched by comparison (`gw_ipv6_bucket`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Bucket {
    /// Ascending; [`u64::MAX`] where there are fewer.
    pub keys: [u64; IPV6_KEYS],
    /// Value `i` from key `i - 1` on.
    pub values: [u32; IPV6_KEYS + 1],
}

impl Ipv6Bucket {
    /// The struct's bytes in the image.
    pub fn emit(&self) -> [u8; size_of::<Self>()] {
        concat([self.keys.map(u64::to_le_bytes).as_flattened(), self.values.map(u32::to_le_bytes).as_flattened()])
    }
}

/// `ipv6`: what the keys of a hash table follow (`gw_ipv6_hash`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ipv6Hash {
    /// Lengths to be tried, the lowest byte first.
    pub rope: u64,
    /// Of the hash.
    pub seed: u64,
    /// An entry: the best if no key is found.
    pub value: u32,
    /// There are `2^(64 - shift)` lines.
    pub shift: u32,
    /// 0.
    pub pad: [u32; 10],
}

impl Ipv6Hash {
    /// The struct's bytes in the image.
    pub fn emit(&self) -> [u8; size_of::<Self>()] {
        concat([
            &self.rope.to_le_bytes(),
            &self.seed.to_le_bytes(),
            &self.value.to_le_bytes(),
            &self.shift.to_le_bytes(),
            self.pad.map(u32::to_le_bytes).as_flattened(),
        ])
    }

    /// The hash of a prefix, of which the top bits name a line (`gw_ipv6_hash_of`).
    pub fn hash(&self, prefix: u64, length: u8) -> u64 {
        let spread = (prefix ^ (prefix >> 32)).wrapping_mul(self.seed | 1);
        let mixed = spread.wrapping_add(u64::from(length).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }
}

/// `ipv6`: some keys of a hash table (`gw_ipv6_hash_line`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ipv6HashLine {
    /// Prefixes, bits beyond their lengths 0.
    pub keys: [u64; IPV6_WAYS],
    /// Lengths to be tried once this is found.
    pub ropes: [u64; IPV6_WAYS],
    /// Entries: the best of this and shorter prefixes.
    pub values: [u32; IPV6_WAYS],
    /// 1 to 64; 0: no key.
    pub lengths: [u8; IPV6_WAYS],
    /// 1: a key of this line may lie in the next one.
    pub more: u8,
}

impl Ipv6HashLine {
    /// The struct's bytes in the image.
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
