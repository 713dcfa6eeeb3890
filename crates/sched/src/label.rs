//! Maps packet labels to indices in a dense table. Packets with the same label share a batch. A
//! label consists of function, kind of processing and length class.

use crate::config::{Error, Grouping, PackerConfig, VARIANTS};

/// Maximum number of labels. Packets with the same label share a batch. The table for all labels
/// reserves 128 MiB of address space, but only pages in use occupy memory.
const LABELS_MAX: usize = 1 << 26;

/// Common properties of the packets in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label {
    /// Packer input that received these packets. A configured function usually has one input.
    pub stream: u16,
    /// Kind of processing within the function.
    pub variant: u8,
    /// Length class of the frames. The class is 0 if the configured grouping ignores lengths.
    pub length_class: u16,
}

/// Returns the length class of a frame of `length_bytes` bytes.
///
/// Class `n` contains lengths from `n * granularity` up to, but not including,
/// `(n + 1) * granularity` (PIPSEA, section 3.3). `granularity_bytes` must not be 0.
///
/// ```
/// assert_eq!(godwit_sched::length_class(63, 64), 0);
/// assert_eq!(godwit_sched::length_class(1500, 64), 23);
/// ```
pub const fn length_class(length_bytes: u16, granularity_bytes: u16) -> u16 {
    length_bytes / granularity_bytes
}

/// Maps labels to indices in a dense table, without a branch or a division. A label consists of a
/// packer input (stream), a kind of processing and a length class:
///
/// ```text
/// index = stream * stream_stride + variant * variant_stride + (length * reciprocal >> 32)
///
///                    stream_stride    variant_stride    reciprocal
///   none             1                0                 0
///   variant          256              1                 0
///   variant+length   256 * classes    classes           ⌈2^32 / granularity⌉
/// ```
///
/// The multiplication by the reciprocal gives exact results. The reciprocal exceeds 2^32 /
/// granularity by less than 1, so the error of the product is below 2^16. In the product, the
/// distance between two lengths is at least 2^32 / granularity, which is larger than this error.
#[derive(Debug, Clone)]
pub(crate) struct LabelIndex {
    stream_stride: usize,
    variant_stride: usize,
    reciprocal: u64,
    count: usize,
}

impl LabelIndex {
    pub(crate) fn new(config: &PackerConfig, streams: usize) -> Result<Self, Error> {
        let granularity = u64::from(config.length_granularity_bytes);
        let classes = usize::from(u16::MAX) / config.length_granularity_bytes as usize + 1;
        let (stream_stride, variant_stride, reciprocal) = match config.grouping {
            Grouping::None => (1, 0, 0),
            Grouping::Variant => (VARIANTS, 1, 0),
            Grouping::VariantLength => (VARIANTS * classes, classes, (1_u64 << 32).div_ceil(granularity)),
        };
        match streams.checked_mul(stream_stride) {
            Some(count) if count <= LABELS_MAX => Ok(Self { stream_stride, variant_stride, reciprocal, count }),
            _ => Err(Error::TooManyLabels {
                length_granularity_bytes: config.length_granularity_bytes,
                functions: streams,
            }),
        }
    }

    /// Returns the number of labels.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns the length class of a frame, or 0 if the configured grouping ignores lengths.
    #[inline]
    pub(crate) fn class(&self, length_bytes: u16) -> u16 {
        // The frame length has 16 bits and `reciprocal` has at most 29 bits, so their product fits
        // in 64 bits. After the shift by 32 bits, it fits in 16 bits.
        ((u64::from(length_bytes) * self.reciprocal) >> 32) as u16
    }

    /// Returns the index of a packet's label in the dense table. If the packer input `stream` does
    /// not exist, the result is at least [`LabelIndex::count`], which is not a valid index.
    #[inline]
    pub(crate) fn of(&self, stream: u16, variant: u8, length_bytes: u16) -> usize {
        self.of_class(stream, variant, self.class(length_bytes))
    }

    #[inline]
    pub(crate) fn of_class(&self, stream: u16, variant: u8, class: u16) -> usize {
        usize::from(stream) * self.stream_stride + usize::from(variant) * self.variant_stride + usize::from(class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label_index(grouping: Grouping, length_granularity_bytes: u32) -> LabelIndex {
        let config = PackerConfig { grouping, length_granularity_bytes, ..PackerConfig::default() };
        LabelIndex::new(&config, 3).expect("valid")
    }

    #[test]
    fn reciprocal_equals_division_for_every_length() {
        for granularity in (16..=300).chain([511, 512, 513, 1500, 32_767, 32_768, 65_534, 65_535]) {
            let index = label_index(Grouping::VariantLength, granularity.into());
            for length in 0..=u16::MAX {
                assert_eq!(index.class(length), length_class(length, granularity), "{length} / {granularity}");
            }
        }
    }

    #[test]
    fn indices_are_distinct_and_dense() {
        let index = label_index(Grouping::VariantLength, 8192);
        let mut seen = vec![false; index.count()];
        for stream in 0..3 {
            for variant in 0..=255 {
                for class in 0..8 {
                    let index = index.of(stream, variant, class * 8192 + 5);
                    assert!(!std::mem::replace(&mut seen[index], true));
                }
            }
        }
        assert!(seen.iter().all(|&seen| seen));
    }

    #[test]
    fn coarser_groupings_share_indices() {
        let none = label_index(Grouping::None, 64);
        assert_eq!((none.of(2, 9, 1500), none.count()), (2, 3));
        let variant = label_index(Grouping::Variant, 64);
        assert_eq!((variant.of(2, 9, 60), variant.of(2, 9, 1500)), (521, 521));
    }

    #[test]
    fn rejects_too_many_labels() {
        let config =
            PackerConfig { grouping: Grouping::VariantLength, length_granularity_bytes: 16, ..PackerConfig::default() };
        assert!(LabelIndex::new(&config, 64).is_ok());
        assert!(matches!(LabelIndex::new(&config, 65), Err(Error::TooManyLabels { functions: 65, .. })));
    }
}
