//! IPv4 and IPv6 prefixes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Error;

/// Address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Returns the family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// Returns the length of an address, in bits.
    pub fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }
}

/// IP prefix: the set of all addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    /// Returns the prefix that consists of the first `length` bits of `address`. Returns `None` if
    /// the address has fewer bits.
    pub fn of(address: IpAddr, length: u8) -> Option<Self> {
        let address = match address {
            IpAddr::V4(address) if length <= 32 => {
                let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
                Ipv4Addr::from_bits(address.to_bits() & mask).into()
            }
            IpAddr::V6(address) if length <= 128 => {
                let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
                Ipv6Addr::from_bits(address.to_bits() & mask).into()
            }
            _ => return None,
        };
        Some(Self { address, length })
    }

    /// Returns the prefix that covers a single address.
    pub fn host(address: IpAddr) -> Self {
        Self { address, length: Family::of(address).bits() }
    }

    /// Parses a prefix such as `10.0.0.0/8`, or a single address.
    ///
    /// # Errors
    /// Returns an error if the text is not a prefix, or if bits are set beyond its length.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let wrong = || Error::value(format!("\"{text}\" is not a prefix such as 192.0.2.0/24 or 2001:db8::/32"));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let length = match length {
            // A length with a sign or a leading zero is refused, because some programs read a
            // leading zero as octal.
            Some(length) if length.starts_with('+') || length.len() > 1 && length.starts_with('0') => {
                return Err(wrong());
            }
            Some(length) => length.parse().map_err(|_| wrong())?,
            None => Family::of(address).bits(),
        };
        let prefix = Self::of(address, length).ok_or_else(wrong)?;
        if prefix.address != address {
            return Err(Error::value(format!("{text} has bits set beyond its length; did you mean {prefix}?")));
        }
        Ok(prefix)
    }

    /// Returns the first address of the prefix.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns the length of the prefix, in bits.
    pub fn length(&self) -> u8 {
        self.length
    }

    /// Returns the address family of the prefix.
    pub fn family(&self) -> Family {
        Family::of(self.address)
    }

    /// Returns whether the prefix covers `address`.
    pub fn covers(&self, address: IpAddr) -> bool {
        Self::of(address, self.length) == Some(*self)
    }

    /// Returns whether the prefix covers a single address.
    pub fn is_host(&self) -> bool {
        self.length == self.family().bits()
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_displays_prefixes() {
        for text in ["10.0.0.0/8", "0.0.0.0/0", "192.0.2.1/32", "2001:db8::/32", "::/0", "fe80::1/128"] {
            assert_eq!(Prefix::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Prefix::parse("192.0.2.1").unwrap(), Prefix::parse("192.0.2.1/32").unwrap());
        assert_eq!(Prefix::parse("2001:db8::1").unwrap(), Prefix::parse("2001:db8::1/128").unwrap());
        for (text, part) in [
            ("10.0.0.1/8", "10.0.0.0/8"),
            ("2001:db8::1/32", "2001:db8::/32"),
            ("10.0.0.0/33", "\"10.0.0.0/33\""),
            ("::/129", "\"::/129\""),
            ("10.0.0.0/+8", "\"10.0.0.0/+8\""),
            ("10.0.0.0/08", "\"10.0.0.0/08\""),
            ("10.0.0/8", "\"10.0.0/8\""),
            ("10.0.0.0/", "\"10.0.0.0/\""),
            ("", "\"\""),
        ] {
            assert!(Prefix::parse(text).unwrap_err().to_string().contains(part), "{text}");
        }
    }

    #[test]
    fn covers_addresses_that_begin_with_its_bits() {
        let covers = |prefix: &str, address: &str| Prefix::parse(prefix).unwrap().covers(address.parse().unwrap());
        assert!(covers("10.0.0.0/8", "10.255.255.255") && !covers("10.0.0.0/8", "11.0.0.0"));
        assert!(covers("0.0.0.0/0", "255.1.2.3") && !covers("0.0.0.0/0", "::1"));
        assert!(covers("2001:db8::/32", "2001:db8:ffff::") && !covers("2001:db8::/32", "10.0.0.1"));
    }
}
