//! Structs of the table image of `dpi`, as in `kernels/dpi/image.h`.

use super::concat;

/// Header of the `dpi` image (`gw_dpi_image`).
///
/// ```text
/// 0        64                 320                   matches_offset   bytes
/// | header | 256 * u8         | states*classes*u32  | match_states * 8 |
/// ```
///
/// A row is the number of a state times `classes`, below 2^32. A transition holds the row of the
/// next state. Patterns end in the states `0..match_states`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DpiImage {
    /// Must be [`DPI_MAGIC`].
    pub magic: u32,
    /// Number of states.
    pub states: u32,
    /// Number of byte classes, 1..=256.
    pub classes: u32,
    /// Number of states in which patterns end.
    pub match_states: u32,
    /// Row of the start state.
    pub start: u32,
    /// Number of patterns.
    pub patterns: u32,
    /// Length of the longest pattern, which is the maximum depth of a state.
    pub longest_bytes: u32,
    /// `match_states` times `classes`. Patterns end in the states with lower rows.
    pub match_limit: u32,
    /// Offset of the [`DpiMatch`] structs.
    pub matches_offset: u64,
    /// Size of the image.
    pub bytes: u64,
}

/// Value of [`DpiImage::magic`].
pub const DPI_MAGIC: u32 = u32::from_le_bytes(*b"DPI ");
/// Offset of the byte classes (`GW_DPI_CLASS_MAP_OFFSET`).
pub const DPI_CLASS_MAP_OFFSET: usize = 64;
/// Offset of the transitions (`GW_DPI_TRANSITIONS_OFFSET`).
pub const DPI_TRANSITIONS_OFFSET: usize = 320;

impl DpiImage {
    /// Returns the bytes of the struct in the image.
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

/// Patterns that end in a state (`gw_dpi_match`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DpiMatch {
    /// Lowest number of these patterns.
    pub pattern: u32,
    /// Number of these patterns, at least 1.
    pub count: u32,
}

impl DpiMatch {
    /// Returns the bytes of the struct in the image.
    pub fn emit(&self) -> [u8; size_of::<Self>()] {
        concat([&self.pattern.to_le_bytes(), &self.count.to_le_bytes()])
    }
}
