//! Types for frame lengths, rates, address prefixes and MAC addresses in the configuration.

use std::net::IpAddr;
use std::str::FromStr;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::Error;

/// Length of generated frames in bytes, without the frame check sequence (FCS) of 4 bytes. A packet
/// that is commonly called a 64-byte packet therefore has `size = 60`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// All frames have the same length, as in `size = 60`.
    Fixed(u16),
    /// Random frame lengths, uniformly distributed. Both limits are included, as in `size = { min =
    /// 60, max = 1276 }`.
    Uniform {
        /// Minimum length.
        min: u16,
        /// Maximum length.
        max: u16,
    },
    /// Frames of 64, 570 and 1518 bytes including FCS, in the ratio 7:4:1 (`size = "imix"`). The
    /// mix is from the thesis on adaptive scheduling (University of Crete, 2020, section 5.3). RFC
    /// 6985 defines a notation for such mixes.
    Imix,
    /// Frames of 60 bytes (61.22 %), 536 bytes (23.47 %) and 1360 bytes (15.31 %), including FCS
    /// (`size = "imix-pipsea"`). The mix is from PIPSEA (CCS '16, section 4).
    ImixPipsea,
}

/// Length of the frame check sequence (FCS) in bytes. Published mixes of frame lengths include the
/// FCS, but frames in memory do not contain it.
const FCS_BYTES: u16 = 4;

impl Size {
    /// Returns the possible frame lengths without FCS, each with its weight, or `None` for a
    /// uniform distribution.
    pub(super) fn shares(&self) -> Option<Vec<(u16, u32)>> {
        let without_fcs = |shares: [(u16, u32); 3]| shares.map(|(bytes, share)| (bytes - FCS_BYTES, share)).to_vec();
        match self {
            Self::Fixed(bytes) => Some(vec![(*bytes, 1)]),
            Self::Uniform { .. } => None,
            Self::Imix => Some(without_fcs([(64, 7), (570, 4), (1518, 1)])),
            Self::ImixPipsea => Some(without_fcs([(60, 6122), (536, 2347), (1360, 1531)])),
        }
    }

    /// Returns the average length of a frame in bytes, without FCS.
    pub fn mean_bytes(&self) -> f64 {
        match self.shares() {
            Some(shares) => {
                let all: f64 = shares.iter().map(|(_, share)| f64::from(*share)).sum();
                shares.iter().map(|(bytes, share)| f64::from(*bytes) * f64::from(*share)).sum::<f64>() / all
            }
            None => {
                let (min, max) = self.bounds();
                (f64::from(min) + f64::from(max)) / 2.0
            }
        }
    }

    /// Returns the minimum and maximum length in bytes.
    pub fn bounds(&self) -> (u16, u16) {
        match self {
            Self::Fixed(bytes) => (*bytes, *bytes),
            Self::Uniform { min, max } => (*min, *max),
            Self::Imix => (60, 1514),
            Self::ImixPipsea => (56, 1356),
        }
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fixed(bytes) => write!(f, "{bytes}"),
            Self::Uniform { min, max } => write!(f, "{min}-{max}"),
            Self::Imix => f.write_str("imix"),
            Self::ImixPipsea => f.write_str("imix-pipsea"),
        }
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match deserializer.deserialize_any(SpanVisitor { names: &["imix", "imix-pipsea"] })? {
            Value::Name("imix") => Self::Imix,
            Value::Name(_) => Self::ImixPipsea,
            Value::Span(Span { min, max }) if min == max => Self::Fixed(min),
            Value::Span(Span { min, max }) => Self::Uniform { min, max },
        })
    }
}

/// A single number such as `80`, or a range of numbers such as `{ min = 1024, max = 65535 }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First number of the range.
    pub min: u16,
    /// Last number of the range.
    pub max: u16,
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.deserialize_any(SpanVisitor { names: &[] })? {
            Value::Span(span) => Ok(span),
            Value::Name(_) => Err(D::Error::custom("expected a number")),
        }
    }
}

enum Value {
    Span(Span),
    Name(&'static str),
}

struct SpanVisitor {
    names: &'static [&'static str],
}

impl<'de> Visitor<'de> for SpanVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("a number from 0 to 65535, { min, max }")?;
        self.names.iter().try_for_each(|name| write!(f, ", or \"{name}\""))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        let value =
            u16::try_from(value).map_err(|_| E::invalid_value(serde::de::Unexpected::Unsigned(value), &self))?;
        Ok(Value::Span(Span { min: value, max: value }))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        match u64::try_from(value) {
            Ok(value) => self.visit_u64(value),
            Err(_) => Err(E::invalid_value(serde::de::Unexpected::Signed(value), &self)),
        }
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        let known = self.names.iter().find(|name| **name == value);
        known.map(|name| Value::Name(name)).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(value), &self))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Value, A::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Ends {
            min: u16,
            max: u16,
        }
        let Ends { min, max } = Ends::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
        if min > max {
            return Err(A::Error::custom(format!("min = {min} is above max = {max}")));
        }
        Ok(Value::Span(Span { min, max }))
    }
}

/// Rate of generated packets, such as `"max"`, `"10Mpps"` or `"2.5Gbps"`. A rate in bits per second
/// counts the bits of frames without FCS.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// Packets are generated as fast as possible.
    Max,
    /// Number of packets per second.
    PacketsPerS(f64),
    /// Number of bits per second.
    BitsPerS(f64),
}

impl FromStr for Rate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let error =
            || Error::Value(format!("\"{text}\" is not a rate: write \"max\", \"10Mpps\" or \"5Gbps\" (k, M, G)"));
        if text == "max" {
            return Ok(Self::Max);
        }
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(error)?;
        let (number, unit) = (&text[..digits], text[digits..].trim_start());
        let number: f64 = number.parse().map_err(|_| error())?;
        let scale = match unit.as_bytes().first() {
            Some(b'k') => 1e3,
            Some(b'M') => 1e6,
            Some(b'G') => 1e9,
            _ => 1.0,
        };
        let rate = number * scale;
        if !(1e-3..=1e15).contains(&rate) {
            return Err(error());
        }
        match if scale == 1.0 { unit } else { &unit[1..] } {
            "pps" => Ok(Self::PacketsPerS(rate)),
            "bps" => Ok(Self::BitsPerS(rate)),
            _ => Err(error()),
        }
    }
}

/// Prefix of IP addresses, such as `"10.0.0.0/8"` or `"2001:db8::/32"`. Without `/`, the prefix is
/// a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// An address in the prefix. The bits after the prefix length are ignored.
    pub address: IpAddr,
    /// Length of the prefix in bits.
    pub length_bits: u8,
}

impl FromStr for Prefix {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let error = || {
            Error::Value(format!(
                "\"{text}\" is not a prefix: write an address, or an address and a length such as \"10.0.0.0/8\""
            ))
        };
        let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
        let address: IpAddr = address.parse().map_err(|_| error())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let length_bits = length.map_or(Ok(bits), str::parse).map_err(|_| error())?;
        if length_bits > bits { Err(error()) } else { Ok(Self { address, length_bits }) }
    }
}

/// MAC address, such as `"02:00:00:00:00:01"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

impl FromStr for Mac {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let error =
            || Error::Value(format!("\"{text}\" is not a MAC address: write six bytes, such as \"02:00:00:00:00:01\""));
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let digits = |part: &&str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
            let part = parts.next().filter(digits).ok_or_else(error)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| error())?;
        }
        if parts.next().is_some() { Err(error()) } else { Ok(Self(bytes)) }
    }
}

macro_rules! deserialize_from_str {
    ($($type:ty),*) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        }
    )*};
}
deserialize_from_str!(Rate, Prefix, Mac);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        for (text, rate) in [
            ("max", Rate::Max),
            ("10Mpps", Rate::PacketsPerS(10e6)),
            ("5Gbps", Rate::BitsPerS(5e9)),
            ("2.5 kpps", Rate::PacketsPerS(2500.0)),
            ("100pps", Rate::PacketsPerS(100.0)),
        ] {
            assert_eq!(text.parse::<Rate>().unwrap(), rate, "{text}");
        }
        for text in ["", "fast", "10", "pps", "10Tbps", "0pps", "-1pps", "1.2.3pps", "10Mppss", "10 M pps", "1é"] {
            let error = text.parse::<Rate>().unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("10Mpps"), "{error}");
        }
    }

    #[test]
    fn prefixes() {
        let prefix: Prefix = "10.0.0.0/8".parse().unwrap();
        assert_eq!((prefix.address, prefix.length_bits), ("10.0.0.0".parse().unwrap(), 8));
        assert_eq!("192.0.2.1".parse::<Prefix>().unwrap().length_bits, 32);
        assert_eq!("::/0".parse::<Prefix>().unwrap().length_bits, 0);
        for text in ["10.0.0.0/33", "10.0.0/8", "::/129", "/8", "10.0.0.0/", "10.0.0.0/-1"] {
            assert!(text.parse::<Prefix>().is_err(), "{text}");
        }
    }

    #[test]
    fn ethernet_addresses() {
        assert_eq!("02:00:5e:10:00:fF".parse::<Mac>().unwrap(), Mac([0x02, 0, 0x5e, 0x10, 0, 0xff]));
        for text in
            ["", "02:00:5e:10:00", "02:00:5e:10:00:ff:01", "02:00:5e:10:00:fg", "2:0:5e:10:0:ff", "+2:00:5e:10:00:+f"]
        {
            assert!(text.parse::<Mac>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes() {
        #[derive(Debug, Deserialize)]
        struct Stanza {
            size: Size,
        }
        let read =
            |text: &str| toml::from_str::<Stanza>(text).map(|stanza| stanza.size).map_err(|error| error.to_string());
        assert_eq!(read("size = 60"), Ok(Size::Fixed(60)));
        assert_eq!(read("size = { min = 60, max = 1276 }"), Ok(Size::Uniform { min: 60, max: 1276 }));
        assert_eq!(read("size = \"imix\""), Ok(Size::Imix));
        assert_eq!(read("size = \"imix-pipsea\""), Ok(Size::ImixPipsea));
        for (text, part) in [
            ("size = 70000", "0 to 65535"),
            ("size = -1", "0 to 65535"),
            ("size = \"mix\"", "imix-pipsea"),
            ("size = { min = 9, max = 8 }", "above max"),
            ("size = { min = 9, maximum = 8 }", "maximum"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
