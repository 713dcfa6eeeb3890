//! Structs of the table image of `l2`, as in `kernels/l2/image.h`.

use super::concat;

/// Header of the `l2` image (`gw_l2_image`). `kernels/l2/image.h` draws the rest of the image.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct L2Image {
    /// Must be [`L2_MAGIC`].
    pub magic: u32,
    /// Binary logarithm of the number of buckets, 8 to 28.
    pub bucket_bits: u32,
    /// Multipliers of the permutation's rounds. Odd and secret.
    pub multipliers: [u64; 4],
    /// Addends of the permutation's rounds. Secret.
    pub addends: [u64; 4],
    /// Multiplier of the hash that gives the second bucket. Odd and secret.
    pub second: u64,
    /// Offset of the [`L2Port`] structs.
    pub ports_offset: u64,
    /// Offset of the [`L2Vlan`] structs.
    pub vlans_offset: u64,
    /// Offset of the buckets, which have four entries of eight bytes each.
    pub buckets_offset: u64,
    /// Size of the image.
    pub bytes: u64,
}

/// Value of [`L2Image::magic`].
pub const L2_MAGIC: u32 = u32::from_le_bytes(*b"l22 ");

impl L2Image {
    /// Returns the bytes of the struct in the image.
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

/// Rules of an ingress port of the switch (`gw_l2_port`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct L2Port {
    /// VLAN of untagged frames.
    pub vid: u16,
    /// [`L2_UNTAGGED`], [`L2_TAGGED`] and [`L2_LEARNS`].
    pub flags: u8,
    /// Must be 0.
    pub pad: u8,
}

/// Flag of [`L2Port::flags`]: the port accepts frames without a tag.
pub const L2_UNTAGGED: u8 = 1;
/// Flag of [`L2Port::flags`]: the port accepts frames with a tag.
pub const L2_TAGGED: u8 = 2;
/// Flag of [`L2Port::flags`]: the port learns source addresses.
pub const L2_LEARNS: u8 = 4;

impl L2Port {
    /// Returns the bytes of the struct in the image.
    pub fn emit(&self) -> [u8; size_of::<Self>()] {
        concat([&self.vid.to_le_bytes(), &[self.flags], &[self.pad]])
    }
}

/// Ports of a VLAN (`gw_l2_vlan`). Port p is bit `p % 32` of word `p / 32`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct L2Vlan {
    /// Member ports of the VLAN.
    pub members: [u32; 8],
    /// Member ports that send frames with a tag.
    pub tagged: [u32; 8],
}

impl L2Vlan {
    /// Returns the bytes of the struct in the image.
    pub fn emit(&self) -> [u8; size_of::<Self>()] {
        let words = |words: [u32; 8]| concat::<32, 8>(words.map(u32::to_le_bytes).each_ref().map(|word| &word[..]));
        concat([&words(self.members), &words(self.tagged)])
    }
}
