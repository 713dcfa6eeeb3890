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

/// `dpi`: the header (`gw_dpi_image`).
///
/// ```text
/// 0        64                 320                   matches_offset   bytes
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
    /// `match_states` times `classes`: rows below are of states where patterns end.
    pub match_limit: u32,
    /// Where the [`DpiMatch`]es begin.
    pub matches_offset: u64,
    /// Size of the image.
    pub bytes: u64,
}

/// [`DpiImage::magic`].
pub const DPI_MAGIC: u32 = u32::from_le_bytes(*b"DPI ");
/// Where the class of each byte begins (`GW_DPI_CLASS_MAP_OFFSET`).
pub const DPI_CLASS_MAP_OFFSET: usize = 64;
/// Where the transitions begin (`GW_DPI_TRANSITIONS_OFFSET`).
pub const DPI_TRANSITIONS_OFFSET: usize = 320;

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
            &self.match_limit.to_le_bytes(),
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

/// `ndn`: the header (`gw_ndn_image`). `kernels/ndn/image.h` draws the image.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NdnImage {
    /// [`NDN_MAGIC`].
    pub magic: u32,
    /// Number of [`NdnNextHop`]s that there is room for.
    pub next_hops: u32,
    /// Number of [`NdnBucket`]s that hashes lead to.
    pub buckets: u32,
    /// Number of buckets behind these.
    pub overflow: u32,
    /// Units of [`NDN_UNIT_BYTES`] for records, of which the first is never used.
    pub records: u32,
    /// Next hop of the name `/`, or [`NDN_NONE`].
    pub default_next_hop: u32,
    /// Bit `i`: prefixes of `i + 1` components are to be tried.
    pub depths: u32,
    /// Components of guides, 1 to [`NDN_DEPTHS`].
    pub guide: u32,
    /// The UDP port of NDN.
    pub udp_port: u32,
    /// 0.
    pub pad: u32,
    /// Key of SipHash, its first half.
    pub key0: u64,
    /// Key of SipHash, its second half.
    pub key1: u64,
    /// Where the next hops begin.
    pub next_hops_offset: u64,
    /// Where the buckets begin.
    pub buckets_offset: u64,
    /// Where the records begin.
    pub records_offset: u64,
    /// Size of the image.
    pub bytes: u64,
}

/// [`NdnImage::magic`].
pub const NDN_MAGIC: u32 = u32::from_le_bytes(*b"ndn ");
/// Slots of a bucket.
pub const NDN_SLOTS: usize = 7;
/// Most buckets of one hash.
pub const NDN_CHAIN: usize = 16;
/// No next hop.
pub const NDN_NONE: u32 = u32::MAX;
/// Most components of a name in the table.
pub const NDN_DEPTHS: u32 = 32;
/// What records are counted in, and the size of a bucket.
pub const NDN_UNIT_BYTES: usize = 64;
/// [`NdnNextHop::flags`]: for this machine.
pub const NDN_LOCAL: u8 = 1;
/// [`NdnNextHop::flags`]: dropped on purpose.
pub const NDN_BLACKHOLE: u8 = 2;
/// [`NdnNextHop::carrier`]: Ethernet.
pub const NDN_ETHERNET: u8 = 0;
/// [`NdnNextHop::carrier`]: UDP over IPv4.
pub const NDN_UDP4: u8 = 1;
/// [`NdnNextHop::carrier`]: UDP over IPv6.
pub const NDN_UDP6: u8 = 2;

impl NdnImage {
    /// The struct's bytes in the image.
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

/// `ndn`: where a name may lie (`gw_ndn_slot`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NdnSlot {
    /// The upper half of the hash.
    pub fingerprint: u32,
    /// Unit of the record; 0: the slot is free.
    pub record: u32,
}

/// `ndn`: names whose hashes lead to one place (`gw_ndn_bucket`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NdnBucket {
    /// In no order.
    pub slots: [NdnSlot; NDN_SLOTS],
    /// Index of the bucket where this one goes on; 0: nowhere.
    pub next: u32,
    /// 0.
    pub pad: u32,
}

/// `ndn`: what is known of a name, which follows (`gw_ndn_record`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NdnRecord {
    /// Its next hop, or [`NDN_NONE`]: longer names have it as a guide.
    pub next_hop: u32,
    /// Of a guide, bit `i`: some name below has `i + 1` components more.
    pub deeper: u32,
    /// Names that have it as a guide.
    pub below: u32,
    /// Length of the name.
    pub name_bytes: u32,
}

impl NdnRecord {
    /// The struct's bytes in the image.
    pub fn emit(&self) -> [u8; size_of::<Self>()] {
        concat([
            &self.next_hop.to_le_bytes(),
            &self.deeper.to_le_bytes(),
            &self.below.to_le_bytes(),
            &self.name_bytes.to_le_bytes(),
        ])
    }
}

/// `ndn`: where Interests go (`gw_ndn_next_hop`); each is there twice.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NdnNextHop {
    /// Destination address of frames that leave by it.
    pub destination_mac: [u8; 6],
    /// Source address of frames that leave by it.
    pub source_mac: [u8; 6],
    /// Egress port.
    pub port: u16,
    /// [`NDN_LOCAL`], [`NDN_BLACKHOLE`].
    pub flags: u8,
    /// [`NDN_ETHERNET`], [`NDN_UDP4`], [`NDN_UDP6`].
    pub carrier: u8,
    /// Of datagrams; an IPv4 address in the first 4 bytes.
    pub source_address: [u8; 16],
    /// Of datagrams.
    pub destination_address: [u8; 16],
    /// Of datagrams.
    pub source_port: u16,
    /// Of datagrams.
    pub destination_port: u16,
    /// Of the first of two: which of them counts, 0 or 1.
    pub turn: u32,
    /// 0.
    pub pad: [u32; 2],
}

impl NdnNextHop {
    /// The struct's bytes in the image.
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
            &self.turn.to_le_bytes(),
            &self.pad[0].to_le_bytes(),
            &self.pad[1].to_le_bytes(),
        ])
    }
}

/// `l2`: the header (`gw_l2_image`); `kernels/l2/image.h` draws what is behind it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct L2Image {
    /// [`L2_MAGIC`].
    pub magic: u32,
    /// Buckets are 2 to the power of this, 8 to 28.
    pub bucket_bits: u32,
    /// Secret, odd: of the permutation's rounds.
    pub multipliers: [u64; 4],
    /// Secret.
    pub addends: [u64; 4],
    /// Secret, odd: of the hash that leads to the second bucket.
    pub second: u64,
    /// Where the [`L2Port`]s begin.
    pub ports_offset: u64,
    /// Where the [`L2Vlan`]s begin.
    pub vlans_offset: u64,
    /// Where the buckets begin, of four entries of eight bytes each.
    pub buckets_offset: u64,
    /// Size of the image.
    pub bytes: u64,
}

/// [`L2Image::magic`].
pub const L2_MAGIC: u32 = u32::from_le_bytes(*b"l22 ");

impl L2Image {
    /// The struct's bytes in the image.
    pub fn emit(&self) -> [u8; size_of::<Self>()] {
        let words = |words: [u64; 4]| concat::<32, 4>(words.map(u64::to_le_bytes).each_ref().map(|word| &word[..]));
        concat([
            &self.magic.to_le_bytes(),
            &self.bucket_bits.to_le_bytes(),
            &words(self.multipliers),
            &words(self.addends),
            &self.second.to_le_bytes(),
            &self.ports_offset.to_le_bytes(),
            &self.vlans_offset.to_le_bytes(),
            &self.buckets_offset.to_le_bytes(),
            &self.bytes.to_le_bytes(),
        ])
    }
}

/// `l2`: what arrives by a port (`gw_l2_port`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct L2Port {
    /// VLAN of untagged frames.
    pub vid: u16,
    /// [`L2_UNTAGGED`], [`L2_TAGGED`], [`L2_LEARNS`].
    pub flags: u8,
    /// 0.
    pub pad: u8,
}

/// [`L2Port::flags`]: takes frames without a tag.
pub const L2_UNTAGGED: u8 = 1;
/// [`L2Port::flags`]: takes frames with a tag.
pub const L2_TAGGED: u8 = 2;
/// [`L2Port::flags`]: sources are learned.
pub const L2_LEARNS: u8 = 4;

impl L2Port {
    /// The struct's bytes in the image.
    pub fn emit(&self) -> [u8; size_of::<Self>()] {
        concat([&self.vid.to_le_bytes(), &[self.flags], &[self.pad]])
    }
}

/// `l2`: the ports of a VLAN (`gw_l2_vlan`); bit `port % 32` of word `port / 32`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct L2Vlan {
    /// Frames leave by these.
    pub members: [u32; 8],
    /// With a tag by those of them.
    pub tagged: [u32; 8],
}

impl L2Vlan {
    /// The struct's bytes in the image.
    pub fn emit(&self) -> [u8; size_of::<Self>()] {
        let words = |words: [u32; 8]| concat::<32, 8>(words.map(u32::to_le_bytes).each_ref().map(|word| &word[..]));
        concat([&words(self.members), &words(self.tagged)])
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
