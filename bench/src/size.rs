//! Lengths of frames to measure at.

use serde::{Serialize, Serializer};

/// A frame size to measure at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Bytes without FCS.
    Bytes(u16),
    /// RFC 6985: 7 of 64, 4 of 570, 1 of 1518 bytes with FCS.
    Imix,
    /// PIPSEA's IMIX: 61.22 % of 60, 23.47 % of 536, 15.31 % of 1360 bytes with FCS.
    ImixPipsea,
    /// Uniformly random: 60 to 1514.
    Random,
    /// Uniformly random bytes without FCS, both ends included.
    Uniform {
        /// The shortest.
        min: u16,
        /// The longest, not below `min`.
        max: u16,
    },
}

impl Size {
    /// The longest frame.
    pub(crate) fn frame_bytes_max(self) -> usize {
        match self {
            Self::Bytes(bytes) => usize::from(bytes),
            Self::Imix | Self::Random => 1514,
            Self::ImixPipsea => 1356,
            Self::Uniform { max, .. } => usize::from(max),
        }
    }

    /// The mean of all frames, rounded down.
    pub(crate) fn frame_bytes_mean(self) -> usize {
        match self {
            Self::Bytes(bytes) => usize::from(bytes),
            Self::Imix => (7 * 60 + 4 * 566 + 1514) / 12,
            Self::ImixPipsea => (60 * 56 + 23 * 532 + 15 * 1356) / 98,
            Self::Random => (60 + 1514) / 2,
            Self::Uniform { min, max } => (usize::from(min) + usize::from(max)) / 2,
        }
    }

    /// As a synthetic port's key `size` has it.
    pub(crate) fn configured(self) -> String {
        match self {
            Self::Bytes(bytes) => bytes.to_string(),
            Self::Imix => "\"imix\"".to_owned(),
            Self::ImixPipsea => "\"imix-pipsea\"".to_owned(),
            Self::Random => "{ min = 60, max = 1514 }".to_owned(),
            Self::Uniform { min, max } => format!("{{ min = {min}, max = {max} }}"),
        }
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{bytes}"),
            Self::Imix => f.write_str("imix"),
            Self::ImixPipsea => f.write_str("imix-pipsea"),
            Self::Random => f.write_str("random"),
            Self::Uniform { min, max } => write!(f, "{min}-{max}"),
        }
    }
}

/// As a number of bytes, or as it is written on the command line.
impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Bytes(bytes) => serializer.serialize_u16(*bytes),
            _ => serializer.collect_str(self),
        }
    }
}

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "imix" => return Ok(Self::Imix),
            "imix-pipsea" => return Ok(Self::ImixPipsea),
            "random" => return Ok(Self::Random),
            _ => {}
        }
        let bytes = |text: &str| text.parse::<u16>().ok().filter(|bytes| (46..=9000).contains(bytes));
        let size = match text.split_once('-') {
            None => bytes(text).map(Self::Bytes),
            Some((min, max)) => {
                bytes(min).zip(bytes(max)).filter(|(min, max)| min <= max).map(|(min, max)| Self::Uniform { min, max })
            }
        };
        size.ok_or_else(|| {
            format!(
                "expected 46 to 9000 (bytes of frame without FCS), two of them such as 60-1276, `imix`, `imix-pipsea` or `random`, not {text}"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_they_are_written() {
        for text in ["60", "9000", "imix", "imix-pipsea", "random", "60-1276"] {
            assert_eq!(text.parse::<Size>().map(|size| size.to_string()), Ok(text.to_owned()));
        }
        for text in ["45", "9001", "", "-", "60-", "1276-60", "60-9001", "pipsea"] {
            assert!(text.parse::<Size>().unwrap_err().contains("46 to 9000"), "{text}");
        }
    }
}
