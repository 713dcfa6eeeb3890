//! Headers of the table image of `l2`: `kernels/l2/image.h`.

use super::concat;

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
