//! Labels of bins, and the place of each label in a direct-indexed table.

use crate::config::{Error, Grouping, PackerConfig};

/// Variants that a function can have: all values of `u8`.
const VARIANTS: usize = 256;
/// Most labels that a packer knows: 128 MiB of address space, of which only pages in use become memory.
const LABELS_MAX: usize = 1 << 26;

/// What the packets of a bin have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label {
    /// Which stream: mostly, which configured function.
    pub instance: u16,
    /// Which variant of it.
    pub variant: u8,
    /// Which range of lengths; 0 unless the grouping looks at lengths.
    pub length_class: u16,
}

/// The class of a frame of `length_bytes`: class `n` holds `n * granularity` up to, not including,
/// `(n + 1) * granularity` (PIPSEA, section 3.3). `granularity_bytes` must not be 0.
pub const fn length_class(length_bytes: u16, granularity_bytes: u16) -> u16 {
    length_bytes / granularity_bytes
}

/// From a label to its place in a dense table, without a branch and without a division:
///
/// ```text
/// place = instance * instance_stride + variant * variant_stride + (length * reciprocal >> 32)
///
///   none             1                     0                        reciprocal 0
///   variant          256                   1                        reciprocal 0
///   variant+length   256 * classes         classes                  reciprocal ⌈2^32 / granularity⌉
/// ```
///
/// The reciprocal is exact: its excess over 2^32 / granularity is below 1, so that the error of the product
/// is below 2^16, which is less than the 2^32 / granularity missing to the next class.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    instance_stride: usize,
    variant_stride: usize,
    reciprocal: u64,
    count: usize,
}

impl Places {
    pub(crate) fn new(config: &PackerConfig, instances: usize) -> Result<Self, Error> {
        let granularity = u64::from(config.length_granularity_bytes);
        let classes = usize::from(u16::MAX) / config.length_granularity_bytes as usize + 1;
        let (instance_stride, variant_stride, reciprocal) = match config.grouping {
            Grouping::None => (1, 0, 0),
            Grouping::Variant => (VARIANTS, 1, 0),
            Grouping::VariantLength => (VARIANTS * classes, classes, (1_u64 << 32).div_ceil(granularity)),
        };
        match instances.checked_mul(instance_stride) {
            Some(count) if count <= LABELS_MAX => Ok(Self { instance_stride, variant_stride, reciprocal, count }),
            _ => Err(Error::TooManyLabels {
                length_granularity_bytes: config.length_granularity_bytes,
                functions: instances,
            }),
        }
    }

    /// Places there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The length class, 0 where the grouping does not look at lengths.
    #[inline]
    pub(crate) fn class(&self, length_bytes: u16) -> u16 {
        // The product of 16 and at most 29 bits; what is left of it fits 16 bits again.
        ((u64::from(length_bytes) * self.reciprocal) >> 32) as u16
    }

    /// The place of a packet's label. Not below [`Places::count`] where there is no such instance.
    #[inline]
    pub(crate) fn of(&self, instance: u16, variant: u8, length_bytes: u16) -> usize {
        self.of_class(instance, variant, self.class(length_bytes))
    }

    #[inline]
    pub(crate) fn of_class(&self, instance: u16, variant: u8, class: u16) -> usize {
        usize::from(instance) * self.instance_stride + usize::from(variant) * self.variant_stride + usize::from(class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(grouping: Grouping, length_granularity_bytes: u32) -> Places {
        let config = PackerConfig { grouping, length_granularity_bytes, ..PackerConfig::default() };
        Places::new(&config, 3).expect("valid")
    }

    #[test]
    fn reciprocal_agrees_with_division_for_every_length() {
        for granularity in (16..=300).chain([511, 512, 513, 1500, 32_767, 32_768, 65_534, 65_535]) {
            let places = places(Grouping::VariantLength, granularity.into());
            for length in 0..=u16::MAX {
                assert_eq!(places.class(length), length_class(length, granularity), "{length} / {granularity}");
            }
        }
    }

    #[test]
    fn places_are_distinct_and_dense() {
        let places = places(Grouping::VariantLength, 8192);
        let mut seen = vec![false; places.count()];
        for instance in 0..3 {
            for variant in 0..=255 {
                for class in 0..8 {
                    let place = places.of(instance, variant, class * 8192 + 5);
                    assert!(!std::mem::replace(&mut seen[place], true));
                }
            }
        }
        assert!(seen.iter().all(|&seen| seen));
    }

    #[test]
    fn coarser_groupings_share_places() {
        let none = places(Grouping::None, 64);
        assert_eq!((none.of(2, 9, 1500), none.count()), (2, 3));
        let variant = places(Grouping::Variant, 64);
        assert_eq!((variant.of(2, 9, 60), variant.of(2, 9, 1500)), (521, 521));
    }

    #[test]
    fn too_many_labels_are_refused() {
        let config =
            PackerConfig { grouping: Grouping::VariantLength, length_granularity_bytes: 16, ..PackerConfig::default() };
        assert!(Places::new(&config, 64).is_ok());
        assert!(matches!(Places::new(&config, 65), Err(Error::TooManyLabels { functions: 65, .. })));
    }
}
