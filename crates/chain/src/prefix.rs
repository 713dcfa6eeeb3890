//! Address prefixes in rules.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use godwit_wire::IpAddress;

/// An address prefix. It contains all addresses whose first `bits` bits equal those of `address`.
///
/// ```
/// use godwit_chain::Prefix;
///
/// let prefix: Prefix = "2001:db8::/32".parse()?;
/// assert!(prefix.is_v6());
/// assert!("10.1.2.3/8".parse::<Prefix>().is_err());
/// # Ok::<(), godwit_chain::PrefixError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    address: IpAddress,
    bits: u8,
}

/// Error returned for an invalid prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// The address or the number after the slash is invalid.
    #[error("`{}` is not a prefix such as 10.0.0.0/8 or 2001:db8::/32", .0.escape_debug())]
    Syntax(String),
    /// The prefix is longer than an address.
    #[error("`{text}`: the prefix length must be at most {bits_max}")]
    TooLong {
        /// Input text.
        text: String,
        /// Length of an IPv4 or IPv6 address, in bits.
        bits_max: u8,
    },
    /// The address has bits set beyond the length of the prefix.
    #[error("`{text}` has bits set after its prefix, did you mean `{meant}`?")]
    HostBits {
        /// Input text.
        text: String,
        /// Prefix without these bits.
        meant: Prefix,
    },
}

impl Prefix {
    /// Returns whether this is an IPv6 prefix.
    pub fn is_v6(&self) -> bool {
        matches!(self.address, IpAddress::V6(_))
    }

    /// Returns the address and the mask of the prefix as integers. An IPv4 prefix uses the lower 32
    /// bits.
    pub(crate) fn value_and_mask(&self) -> (u128, u128) {
        let (value, width) = number(self.address);
        // No bit lies below a full-length prefix. The shift by 128 then returns `None`.
        let below = u128::MAX.checked_shr(128 - (width - u32::from(self.bits))).unwrap_or(0);
        let all = u128::MAX >> (128 - width);
        (value, all & !below)
    }
}

/// Returns an address as an integer, and its width in bits.
fn number(address: IpAddress) -> (u128, u32) {
    match address {
        IpAddress::V4(bytes) => (u128::from(u32::from_be_bytes(bytes)), 32),
        IpAddress::V6(bytes) => (u128::from_be_bytes(bytes), 128),
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    /// Parses `address/bits`. Without `/bits`, the prefix contains only this address.
    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let syntax = || PrefixError::Syntax(text.to_owned());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| syntax())?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => bits_max,
            Some(bits) if bits.is_empty() || !bits.bytes().all(|byte| byte.is_ascii_digit()) => return Err(syntax()),
            Some(bits) => bits.parse().unwrap_or(u8::MAX),
        };
        if bits > bits_max {
            return Err(PrefixError::TooLong { text: text.to_owned(), bits_max });
        }
        let prefix = Self { address: address.into(), bits };
        let (value, mask) = prefix.value_and_mask();
        if value & mask != value {
            let address = match address {
                IpAddr::V4(_) => IpAddress::V4(((value & mask) as u32).to_be_bytes()),
                IpAddr::V6(_) => IpAddress::V6((value & mask).to_be_bytes()),
            };
            return Err(PrefixError::HostBits { text: text.to_owned(), meant: Self { address, bits } });
        }
        Ok(prefix)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_prints_prefixes() {
        for text in ["10.0.0.0/8", "0.0.0.0/0", "192.0.2.1/32", "2001:db8::/32", "::/0", "::1/128"] {
            assert_eq!(text.parse::<Prefix>().unwrap().to_string(), text);
        }
        assert_eq!("192.0.2.1".parse::<Prefix>().unwrap().to_string(), "192.0.2.1/32");
    }

    #[test]
    fn masks() {
        let value_and_mask = |text: &str| text.parse::<Prefix>().unwrap().value_and_mask();
        assert_eq!(value_and_mask("10.0.0.0/8"), (0x0a00_0000, 0xff00_0000));
        assert_eq!(value_and_mask("0.0.0.0/0"), (0, 0));
        assert_eq!(value_and_mask("255.255.255.255/32"), (0xffff_ffff, 0xffff_ffff));
        assert_eq!(value_and_mask("::/0"), (0, 0));
        assert_eq!(value_and_mask("::1/128"), (1, u128::MAX));
        assert_eq!(value_and_mask("8000::/1"), (1 << 127, 1 << 127));
    }

    #[test]
    fn rejects_invalid_prefixes_with_a_reason() {
        let error = |text: &str| text.parse::<Prefix>().unwrap_err().to_string();
        for text in ["", "/", "10.0.0.0/", "10.0.0/8", "10.0.0.0/+8", "10.0.0.0/-1", "web", "10.0.0.0/8/8"] {
            assert!(error(text).contains("is not a prefix"), "{text}");
        }
        assert!(error("10.0.0.0/33").contains("at most 32"));
        assert!(error("::/129").contains("at most 128"));
        assert!(error("10.0.0.0/99999999999").contains("at most 32"));
        assert!(error("10.1.2.3/8").contains("did you mean `10.0.0.0/8`?"));
    }
}
