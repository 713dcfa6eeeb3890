//! Headers of table images, as the kernels read them: the Rust half of each
//! function's `image.h`, which draws the whole image.
//!
//! An image is built on the host, little-endian, and placed at a 64-byte
//! boundary; all offsets count from its first byte and are multiples of 64.
//! `emit` gives the bytes of a struct as they lie in the image.

/// Where parts of an image begin: a multiple of this, bytes.
pub const ALIGNMENT_BYTES: usize = 64;

/// `echo`: the whole image (`gw_echo_image`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EchoImage {
    /// [`ECHO_MAGIC`].
    pub magic: u32,
    /// Number of ports, 1..=65536.
    pub ports: u32,
}

/// [`EchoImage::magic`].
pub const ECHO_MAGIC: u32 = u32::from_le_bytes(*b"ECHO");

impl EchoImage {
    /// The struct's bytes in the image.
    pub fn emit(&self) -> [u8; size_of::<Self>()] {
        concat([&self.magic.to_le_bytes(), &self.ports.to_le_bytes()])
    }
}

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
/// [`Ipv4NextHop::flags`]: an address of this machine.
pub const IPV4_LOCAL: u8 = 1;
/// [`Ipv4NextHop::flags`]: dropped on purpose.
pub const IPV4_BLACKHOLE: u8 = 2;

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
    /// Destination address of frames that leave by it.
    pub destination_mac: [u8; 6],
    /// Source address of frames that leave by it.
    pub source_mac: [u8; 6],
    /// Egress port.
    pub port: u16,
    /// [`IPV4_LOCAL`], [`IPV4_BLACKHOLE`].
    pub flags: u8,
    /// 0.
    pub pad: u8,
}

impl Ipv4NextHop {
    /// The struct's bytes in the image.
    pub fn emit(&self) -> [u8; size_of::<Self>()] {
        concat([&self.destination_mac, &self.source_mac, &self.port.to_le_bytes(), &[self.flags], &[self.pad]])
    }
}

/// `dpi`: the header (`gw_dpi_image`).
///
/// ```text
/// 0        class_map_offset   transitions_offset    matches_offset   bytes
/// | header | 256 * u8         | states*classes*u32  | match_states * 8 |
/// ```
///
/// A row is a state's number times `classes`, below 2^32; a transition holds the
/// row of the next state. States where patterns end have the numbers
/// `0..match_states`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DpiImage {
    /// [`DPI_MAGIC`].
    pub magic: u32,
    /// Number of states.
    pub states: u32,
    /// Number of byte classes, 1..=256.
    pub classes: u32,
    /// Number of states where patterns end.
    pub match_states: u32,
    /// Row of the start state.
    pub start: u32,
    /// Number of patterns.
    pub patterns: u32,
    /// Length of the longest pattern: no state is deeper.
    pub longest_bytes: u32,
    /// 0.
    pub pad: u32,
    /// Where the class of each byte begins.
    pub class_map_offset: u64,
    /// Where the transitions begin.
    pub transitions_offset: u64,
    /// Where the [`DpiMatch`]es begin.
    pub matches_offset: u64,
    /// Size of the image.
    pub bytes: u64,
}

/// [`DpiImage::magic`].
pub const DPI_MAGIC: u32 = u32::from_le_bytes(*b"DPI ");

impl DpiImage {
    /// The struct's bytes in the image.
    pub fn emit(&self) -> [u8; size_of::<Self>()] {
        concat([
            &self.magic.to_le_bytes(),
            &self.states.to_le_bytes(),
            &self.classes.to_le_bytes(),
            &self.match_states.to_le_bytes(),
            &self.start.to_le_bytes(),
            &self.patterns.to_le_bytes(),
            &self.longest_bytes.to_le_bytes(),
            &self.pad.to_le_bytes(),
            &self.class_map_offset.to_le_bytes(),
            &self.transitions_offset.to_le_bytes(),
            &self.matches_offset.to_le_bytes(),
            &self.bytes.to_le_bytes(),
        ])
    }
}

/// `dpi`: what ends in a state (`gw_dpi_match`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DpiMatch {
    /// The lowest number of the patterns that end here.
    pub pattern: u32,
    /// How many patterns end here, at least 1.
    pub count: u32,
}

impl DpiMatch {
    /// The struct's bytes in the image.
    pub fn emit(&self) -> [u8; size_of::<Self>()] {
        concat([&self.pattern.to_le_bytes(), &self.count.to_le_bytes()])
    }
}

/// Fields one after another; none of these structs has padding, so they fill it exactly.
fn concat<const N: usize, const FIELDS: usize>(fields: [&[u8]; FIELDS]) -> [u8; N] {
    let mut bytes = [0; N];
    let mut at = 0;
    for field in fields {
        bytes[at..at + field.len()].copy_from_slice(field);
        at += field.len();
    }
    assert_eq!(at, N, "a struct of an image has a hole");
    bytes
}
