//! Structs and constants of the table images that kernels read. The build generates them from the
//! function declarations. Each name begins with the name of its function. The C source of a kernel
//! contains a drawing of its table image.
//!
//! The host builds a table image in little-endian byte order at a 64-byte boundary. All offsets
//! count from the first byte of the image and are multiples of 64. The method `emit` of a struct
//! returns its bytes.

include!(concat!(env!("OUT_DIR"), "/image.rs"));

/// Alignment of tables, in bytes.
pub const ALIGNMENT_BYTES: usize = 64;

impl Ipv4NextHop {
    /// Creates a next hop. The MAC addresses are in wire order, `port` is the egress port, and
    /// `mtu` is in bytes.
    pub fn new(destination: [u8; 6], source: [u8; 6], port: u8, flags: u8, mtu: u16) -> Self {
        let [to, from] = next_hop(destination, source, port, flags, mtu);
        Self { to, from }
    }
}

impl Ipv6NextHop {
    /// Creates a next hop. The MAC addresses are in wire order, `port` is the egress port, and
    /// `mtu` is in bytes.
    pub fn new(destination: [u8; 6], source: [u8; 6], port: u8, flags: u8, mtu: u16) -> Self {
        let [to, from] = next_hop(destination, source, port, flags, mtu);
        Self { to, from }
    }
}

impl Ipv6Hash {
    /// Returns the hash of an IPv6 prefix (`gw_ipv6_hash_of`). Its top bits select the line of the
    /// hash table that stores the prefix.
    pub fn hash(&self, prefix: u64, length: u8) -> u64 {
        let spread = (prefix ^ (prefix >> 32)).wrapping_mul(self.seed | 1);
        let mixed = spread.wrapping_add(u64::from(length).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }
}

/// Returns the two words of a next hop of `ipv4` and `ipv6`.
fn next_hop(destination: [u8; 6], source: [u8; 6], port: u8, flags: u8, mtu: u16) -> [u64; 2] {
    let upper = |address: [u8; 6]| address.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)) << 16;
    [upper(destination) | u64::from(port) << 8 | u64::from(flags), upper(source) | u64::from(mtu)]
}
