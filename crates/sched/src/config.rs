//! Configuration of the packer, with its limits and errors.

use serde::{Deserialize, Serialize};

/// Smallest width of a length class, in bytes. A length class is a range of frame lengths. Narrower
/// classes would need a table with too many entries.
const GRANULARITY_BYTES_MIN: u64 = 16;
/// Largest number of packets in a queue, or in all batches of a submission. The arrays for 2^24
/// packets occupy half a gigabyte.
const PACKETS_MAX: u64 = 1 << 24;
/// Largest number of packets in a batch, and of batches in a submission. Both are stored in 16
/// bits.
const U16_MAX: u64 = u16::MAX as u64;

/// Number of kinds of processing that a function can have. A kind is numbered with 8 bits.
pub(crate) const VARIANTS: usize = 256;

/// Reason why a packer cannot be created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A configured number is outside its range. The operator must change it.
    #[error("{key} = {value}: must be between {min} and {max}")]
    OutOfRange {
        /// Configuration key.
        key: &'static str,
        /// Configured value.
        value: u64,
        /// Smallest valid value.
        min: u64,
        /// Largest valid value.
        max: u64,
    },
    /// All batches of a submission together would have room for too many packets. The operator must
    /// reduce the number or the size of the batches.
    #[error("bins = {bins} times bin_packets = {bin_packets}: a chunk holds at most {PACKETS_MAX} packets")]
    ChunkTooLarge {
        /// Number of batches per submission.
        bins: u32,
        /// Number of packets per batch.
        bin_packets: u32,
    },
    /// The table that assigns packets to batches would have too many entries. The operator must
    /// choose wider length classes.
    #[error("length_granularity_bytes = {length_granularity_bytes}: too fine for {functions} functions")]
    TooManyLabels {
        /// Width of a length class, in bytes.
        length_granularity_bytes: u32,
        /// Number of configured functions.
        functions: usize,
    },
    /// The packer needs at least two submissions. One fills while another is on the device. The
    /// engine causes this error, not the operator.
    #[error("{chunks} sets of bins: at least 2 are required, one to fill while another is on the device")]
    TooFewChunks {
        /// Requested number of submissions.
        chunks: usize,
    },
    /// The packer was created without functions. The engine causes this error, not the operator.
    #[error("no function is configured")]
    NoFunctions,
}

/// Rule that decides which packets share a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Grouping {
    /// All packets of a function may share a batch, regardless of their kind of processing and
    /// length. Each function fills one batch at a time, in arrival order.
    ///
    /// A device runs the kinds of processing in a batch one after another. While it runs one kind,
    /// the work-items of all other packets are idle. This grouping is the cheapest for functions
    /// with one kind of processing. For other functions, it is the baseline in measurements.
    #[serde(rename = "none")]
    None,
    /// Packets with the same function and kind of processing share a batch, regardless of their
    /// lengths.
    #[default]
    #[serde(rename = "variant")]
    Variant,
    /// Packets with the same function, kind of processing and length class share a batch. PIPSEA
    /// calls this combination a label (section 3.3).
    #[serde(rename = "variant+length")]
    VariantLength,
}

/// Parameters of the packer, which collects packets for a device. All except the deadline come from
/// PIPSEA (section 3.6).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PackerConfig {
    /// Largest number of packets in a submission, 1 to 2^24. It may be less than `bins` times
    /// `bin_packets`.
    pub chunk_packets: u32,
    /// Total size of the packet buffers in a full submission, in bytes, 1 to 2^32 - 1. `None` means
    /// no limit. Large copies to a device are more efficient than small copies.
    pub chunk_bytes: Option<u32>,
    /// Number of batches per submission, 1 to 65535. A batch with several kinds of processing
    /// counts once, although [`Chunk::bins`](crate::Chunk::bins) has one entry per kind.
    pub bins: u32,
    /// Largest number of packets in a batch, 1 to 65535. It should be a multiple of the device's
    /// warp size.
    pub bin_packets: u32,
    /// Width of a length class, in bytes, 16 to 65535.
    pub length_granularity_bytes: u32,
    /// Longest time for which the oldest packet of a submission waits, in nanoseconds. After this
    /// time, the packets are ready for the device even if the submission is not full.
    pub deadline_ns: u64,
    /// Whether the batches of a submission are sorted by estimated processing time, longest first.
    pub sort: bool,
    /// Rule that decides which packets share a batch.
    pub grouping: Grouping,
    /// Capacity of the leftover queue, in packets, 1 to 2^24. Packets that do not fit in the
    /// current submission wait in this queue for the next submission.
    pub leftover_packets: u32,
}

impl Default for PackerConfig {
    /// Returns the configuration for a CPU core. The packets of a submission fit in the L2 cache.
    /// The deadline is the time in which a busy core fills a submission.
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
    /// Checks that all numbers are within their ranges.
    ///
    /// # Errors
    /// Returns an error for the first key that is out of range, or [`Error::ChunkTooLarge`].
    pub fn validate(&self) -> Result<(), Error> {
        let within = |key, value: u32, min, max| {
            let value = u64::from(value);
            if (min..=max).contains(&value) { Ok(()) } else { Err(Error::OutOfRange { key, value, min, max }) }
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

    /// Returns whether packets that need different processing can share a batch.
    pub(crate) fn mixes_variants(&self) -> bool {
        self.grouping == Grouping::None
    }

    /// Returns the largest number of entries in [`Chunk::bins`](crate::Chunk::bins). A batch whose
    /// packets need several kinds of processing has one entry per kind.
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
    fn rejects_values_outside_the_range_of_each_key() {
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
    fn parses_the_names_of_all_groupings() {
        for (word, grouping) in
            [("none", Grouping::None), ("variant", Grouping::Variant), ("variant+length", Grouping::VariantLength)]
        {
            let config: PackerConfig = toml::from_str(&format!("grouping = \"{word}\"\nbins = 3")).expect("valid");
            assert_eq!(config, PackerConfig { grouping, bins: 3, ..PackerConfig::default() });
        }
        assert!(toml::from_str::<PackerConfig>("bin = 3").is_err());
    }
}
