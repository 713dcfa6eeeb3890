//! Headers of the table image of `ndn`: `kernels/ndn/image.h`.

use super::concat;

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
