//! What the operator can set, and what can be wrong with it.

use serde::{Deserialize, Serialize};

/// Finest length classes that the label table has room for, bytes.
const GRANULARITY_BYTES_MIN: u64 = 16;
/// Most packets that any one queue or set of bins may hold: 2^24, half a gigabyte of arrays.
const PACKETS_MAX: u64 = 1 << 24;
/// A bin is counted in 16 bits (`Bin::count`), and the label table names bins in 16 bits, 0 meaning none.
const U16_MAX: u64 = u16::MAX as u64;

/// Variants that a function can have: all values of `u8`.
const VARIANTS: usize = 256;

/// Why there can be no packer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// For the operator: a number of the configuration is outside its range.
    #[error("{key} = {value}: must be between {least} and {most}")]
    OutOfRange {
        /// The key at fault.
        key: &'static str,
        /// What it says.
        value: u64,
        /// Least allowed value.
        least: u64,
        /// Most allowed value.
        most: u64,
    },
    /// For the operator: the bins of one chunk need more memory than any device is given.
    #[error("bins = {bins} times bin_packets = {bin_packets}: a chunk may have room for {PACKETS_MAX} packets at most")]
    ChunkTooLarge {
        /// Bins of a chunk.
        bins: u32,
        /// Packets of a bin.
        bin_packets: u32,
    },
    /// For the operator: the table of labels would be too large.
    #[error("length_granularity_bytes = {length_granularity_bytes}: too fine for {functions} functions")]
    TooManyLabels {
        /// Width of a length class.
        length_granularity_bytes: u32,
        /// Configured functions.
        functions: usize,
    },
    /// For the engine: one set of bins cannot fill while another is on the device.
    #[error("{chunks} sets of bins: there must be at least 2, one to fill while another is on the device")]
    TooFewChunks {
        /// Sets asked for.
        chunks: usize,
    },
    /// For the engine: a packer without functions has nothing to pack.
    #[error("no function is configured")]
    NoFunctions,
}

/// What packets of one bin have in common. Whatever the grouping, they are of one function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Grouping {
    /// No grouping: each function fills one bin at a time in order of arrival, with packets of any variant and length. A device
    /// runs the variants of a bin one after another, each with the lanes of the others idle. The cheapest where functions have
    /// one variant; where they have several, what the other groupings are measured against.
    #[serde(rename = "none")]
    None,
    /// One open bin per function and variant.
    #[default]
    #[serde(rename = "variant")]
    Variant,
    /// One open bin per function, variant and length class: PIPSEA's labels (section 3.3).
    #[serde(rename = "variant+length")]
    VariantLength,
}

/// PIPSEA's tuning parameters (section 3.6), and what came with the deadline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PackerConfig {
    /// Most packets of a chunk, 1 to 2^24. May be less than `bins` times `bin_packets`: sparse bins cost little.
    pub chunk_packets: u32,
    /// Bytes of buffers with which a chunk is full, 1 to 2^32 - 1: copies to a device get faster up to some size, whatever the
    /// length of packets. `None`: packets alone count.
    pub chunk_bytes: Option<u32>,
    /// Bins of a chunk, 1 to 65535. What has several variants counts as one ([`PackerConfig::entries_max`]).
    pub bins: u32,
    /// Most packets of a bin, 1 to 65535. Should be a multiple of the device's warp.
    pub bin_packets: u32,
    /// Width of a length class in bytes, 16 to 65535.
    pub length_granularity_bytes: u32,
    /// A chunk is ready when its oldest packet has waited this long, nanoseconds.
    pub deadline_ns: u64,
    /// Whether a chunk's bins are sorted by estimated time, longest first.
    pub sort: bool,
    /// What packets of one bin have in common.
    pub grouping: Grouping,
    /// Most packets that wait for a bin of the next chunk, 1 to 2^24.
    pub leftover_packets: u32,
}

impl Default for PackerConfig {
    /// For a CPU core: a chunk stays in the L2 cache, and waits no longer than a busy core needs to fill it.
    fn default() -> Self {
        Self {
            chunk_packets: 256,
            chunk_bytes: None,
            bins: 16,
            bin_packets: 256,
            length_granularity_bytes: 64,
            deadline_ns: 100_000,
            sort: true,
            grouping: Grouping::Variant,
            leftover_packets: 1024,
        }
    }
}

impl PackerConfig {
    /// Checks every number.
    ///
    /// # Errors
    /// The first key that is out of range, or bins that have room for too many packets together.
    pub fn validate(&self) -> Result<(), Error> {
        let within = |key, value: u32, least, most| {
            let value = u64::from(value);
            if (least..=most).contains(&value) { Ok(()) } else { Err(Error::OutOfRange { key, value, least, most }) }
        };
        within("chunk_packets", self.chunk_packets, 1, PACKETS_MAX)?;
        within("chunk_bytes", self.chunk_bytes.unwrap_or(u32::MAX), 1, u32::MAX.into())?;
        within("bins", self.bins, 1, U16_MAX)?;
        within("bin_packets", self.bin_packets, 1, U16_MAX)?;
        within("length_granularity_bytes", self.length_granularity_bytes, GRANULARITY_BYTES_MIN, U16_MAX)?;
        within("leftover_packets", self.leftover_packets, 1, PACKETS_MAX)?;
        if u64::from(self.bins) * u64::from(self.bin_packets) > PACKETS_MAX {
            return Err(Error::ChunkTooLarge { bins: self.bins, bin_packets: self.bin_packets });
        }
        Ok(())
    }

    /// Whether packets of several variants come into one bin.
    pub(crate) fn mixes_variants(&self) -> bool {
        self.grouping == Grouping::None
    }

    /// Most entries of [`Chunk::bins`](crate::Chunk::bins): a bin of several variants has one for each of them.
    pub fn entries_max(&self) -> usize {
        let bins = self.bins as usize;
        match self.mixes_variants() {
            true => (bins * (self.bin_packets as usize).min(VARIANTS)).min(self.chunk_packets as usize),
            false => bins,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_is_valid() {
        assert_eq!(PackerConfig::default().validate(), Ok(()));
    }

    #[test]
    fn every_key_has_its_range() {
        type Spoil = fn(&mut PackerConfig);
        let faults: [(&str, Spoil); 10] = [
            ("chunk_packets", |c| c.chunk_packets = 0),
            ("chunk_packets", |c| c.chunk_packets = (1 << 24) + 1),
            ("chunk_bytes", |c| c.chunk_bytes = Some(0)),
            ("bins", |c| c.bins = 0),
            ("bins", |c| c.bins = 65_536),
            ("bin_packets", |c| c.bin_packets = 0),
            ("bin_packets", |c| c.bin_packets = 65_536),
            ("length_granularity_bytes", |c| c.length_granularity_bytes = 15),
            ("leftover_packets", |c| c.leftover_packets = 0),
            ("bins = 65535 times bin_packets", |c| (c.bins, c.bin_packets) = (65_535, 65_535)),
        ];
        for (key, spoil) in faults {
            let mut config = PackerConfig::default();
            spoil(&mut config);
            let message = config.validate().expect_err(key).to_string();
            assert!(message.starts_with(key), "{message}");
        }
    }

    #[test]
    fn groupings_are_spelled_in_lower_case() {
        for (word, grouping) in
            [("none", Grouping::None), ("variant", Grouping::Variant), ("variant+length", Grouping::VariantLength)]
        {
            let config: PackerConfig = toml::from_str(&format!("grouping = \"{word}\"\nbins = 3")).expect("valid");
            assert_eq!(config, PackerConfig { grouping, bins: 3, ..PackerConfig::default() });
        }
        assert!(toml::from_str::<PackerConfig>("bin = 3").is_err());
    }
}
