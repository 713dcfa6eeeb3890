//! Prefixes of either family.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Which addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// Bits of its addresses.
    pub fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }
}

/// The addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    /// The first `length` bits of `address`; `None`: it has fewer.
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

    /// One address.
    pub fn host(address: IpAddr) -> Self {
        Self { address, length: Family::of(address).bits() }
    }

    /// A prefix as people write it: `10.0.0.0/8`, or an address for one host.
    ///
    /// # Errors
    /// What is wrong: not a prefix, or bits set beyond its length.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let wrong = || format!("\"{text}\" is not a prefix such as 192.0.2.0/24 or 2001:db8::/32");
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let length = match length {
            // No sign and no leading zero: some read that as octal.
            Some(length) if length.starts_with('+') || length.len() > 1 && length.starts_with('0') => {
                return Err(wrong());
            }
            Some(length) => length.parse().map_err(|_| wrong())?,
            None => Family::of(address).bits(),
        };
        let prefix = Self::of(address, length).ok_or_else(wrong)?;
        if prefix.address != address {
            return Err(format!("{text} has bits set beyond its length; meant is perhaps {prefix}"));
        }
        Ok(prefix)
    }

    /// Its first address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// How many bits count.
    pub fn length(&self) -> u8 {
        self.length
    }

    /// Of which addresses.
    pub fn family(&self) -> Family {
        Family::of(self.address)
    }

    /// Whether the address begins with its bits.
    pub fn covers(&self, address: IpAddr) -> bool {
        Self::of(address, self.length) == Some(*self)
    }

    /// Whether it is one address.
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
    fn what_is_written_is_read() {
        for text in ["10.0.0.0/8", "0.0.0.0/0", "192.0.2.1/32", "2001:db8::/32", "::/0", "fe80::1/128"] {
            assert_eq!(Prefix::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Prefix::parse("192.0.2.1"), Prefix::parse("192.0.2.1/32"));
        assert_eq!(Prefix::parse("2001:db8::1"), Prefix::parse("2001:db8::1/128"));
        for (text, part) in [
            ("10.0.0.1/8", "meant is perhaps 10.0.0.0/8"),
            ("2001:db8::1/32", "meant is perhaps 2001:db8::/32"),
            ("10.0.0.0/33", "not a prefix"),
            ("::/129", "not a prefix"),
            ("10.0.0.0/+8", "not a prefix"),
            ("10.0.0.0/08", "not a prefix"),
            ("10.0.0/8", "not a prefix"),
            ("10.0.0.0/", "not a prefix"),
            ("", "not a prefix"),
        ] {
            assert!(Prefix::parse(text).unwrap_err().contains(part), "{text}");
        }
    }

    #[test]
    fn a_prefix_covers_what_begins_with_it() {
        let covers = |prefix: &str, address: &str| Prefix::parse(prefix).unwrap().covers(address.parse().unwrap());
        assert!(covers("10.0.0.0/8", "10.255.255.255") && !covers("10.0.0.0/8", "11.0.0.0"));
        assert!(covers("0.0.0.0/0", "255.1.2.3") && !covers("0.0.0.0/0", "::1"));
        assert!(covers("2001:db8::/32", "2001:db8:ffff::") && !covers("2001:db8::/32", "10.0.0.1"));
    }
}
