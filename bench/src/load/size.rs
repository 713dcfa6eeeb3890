//! Frame sizes.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A frame size, or a mix of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// A fixed number of bytes without FCS.
    Bytes(u16),
    /// 7:4:1 of 64, 570 and 1518 bytes with FCS (RFC 6985).
    Imix,
    /// 61.22 % have 60 bytes, 23.47 % 536 bytes, and 15.31 % 1360 bytes, with FCS (PIPSEA).
    ImixPipsea,
    /// Uniformly random from 60 to 1514 bytes without FCS.
    Random,
    /// Uniformly random from `min` to `max` bytes without FCS.
    Uniform {
        /// Shortest frame.
        min: u16,
        /// Longest frame.
        max: u16,
    },
}

impl Size {
    /// Returns the length of the longest frame.
    pub(crate) fn frame_bytes_max(self) -> usize {
        match self {
            Self::Bytes(bytes) => usize::from(bytes),
            Self::Imix | Self::Random => 1514,
            Self::ImixPipsea => 1356,
            Self::Uniform { max, .. } => usize::from(max),
        }
    }

    /// Returns the mean length, rounded down.
    pub(crate) fn frame_bytes_mean(self) -> usize {
        match self {
            Self::Bytes(bytes) => usize::from(bytes),
            Self::Imix => (7 * 60 + 4 * 566 + 1514) / 12,
            Self::ImixPipsea => (60 * 56 + 23 * 532 + 15 * 1356) / 98,
            Self::Random => (60 + 1514) / 2,
            Self::Uniform { min, max } => (usize::from(min) + usize::from(max)) / 2,
        }
    }

    /// Returns the value of the key `size` of a synthetic port.
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

/// Writes a number of bytes, or the name from the command line.
impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Bytes(bytes) => serializer.serialize_u16(*bytes),
            _ => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Text {
            Bytes(u16),
            Name(String),
        }
        let text = match Text::deserialize(deserializer)? {
            Text::Bytes(bytes) => bytes.to_string(),
            Text::Name(name) => name,
        };
        text.parse().map_err(serde::de::Error::custom)
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
                "expected 46 to 9000 (bytes of a frame without FCS), a range such as 60-1276, `imix`, `imix-pipsea` or \
                 `random`, not `{text}`"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_its_own_text() {
        for text in ["60", "9000", "imix", "imix-pipsea", "random", "60-1276"] {
            assert_eq!(text.parse::<Size>().map(|size| size.to_string()), Ok(text.to_owned()));
        }
        for text in ["45", "9001", "", "-", "60-", "1276-60", "60-9001", "pipsea"] {
            assert!(text.parse::<Size>().unwrap_err().contains("46 to 9000"), "{text}");
        }
    }
}
