//! Ethernet and IP addresses.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::view::Field;

/// A 48-bit Ethernet address.
///
/// ```
/// use godwit_wire::MacAddress;
///
/// let address: MacAddress = "02-00-5e-10-00-ff".parse().expect("six pairs of digits");
/// assert_eq!(address.to_string(), "02:00:5e:10:00:ff");
/// assert!(!address.is_multicast());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// Broadcast address.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Returns whether this is a multicast or broadcast address. The first bit on the wire, the
    /// group bit, is then set (IEEE 802, clause 8.2).
    pub const fn is_multicast(&self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Returns whether this is the broadcast address.
    pub fn is_broadcast(&self) -> bool {
        *self == Self::BROADCAST
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Error returned for an invalid Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAMacAddress;

impl core::str::FromStr for MacAddress {
    type Err = NotAMacAddress;

    /// Parses six pairs of hexadecimal digits, separated by `:` or `-`.
    fn from_str(text: &str) -> Result<Self, NotAMacAddress> {
        let mut address = [0; 6];
        let mut pairs = text.split([':', '-']);
        for byte in &mut address {
            let pair =
                pairs.next().filter(|pair| pair.len() == 2 && pair.bytes().all(|digit| digit.is_ascii_hexdigit()));
            *byte = pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()).ok_or(NotAMacAddress)?;
        }
        if pairs.next().is_some() { Err(NotAMacAddress) } else { Ok(Self(address)) }
    }
}

impl Field for MacAddress {
    #[inline(always)]
    fn load(bytes: &[u8], at: usize) -> Self {
        Self(Field::load(bytes, at))
    }

    #[inline(always)]
    fn store(self, bytes: &mut [u8], at: usize) {
        self.0.store(bytes, at);
    }
}

/// An IPv4 or IPv6 address, in network byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IpAddress {
    /// IPv4.
    V4([u8; 4]),
    /// IPv6.
    V6([u8; 16]),
}

impl IpAddress {
    /// Returns the bytes of the address, 4 for IPv4 and 16 for IPv6.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::V4(bytes) => bytes,
            Self::V6(bytes) => bytes,
        }
    }
}

impl From<IpAddr> for IpAddress {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Self::V4(v4.octets()),
            IpAddr::V6(v6) => Self::V6(v6.octets()),
        }
    }
}

impl From<IpAddress> for IpAddr {
    fn from(address: IpAddress) -> Self {
        match address {
            IpAddress::V4(bytes) => Self::V4(Ipv4Addr::from(bytes)),
            IpAddress::V6(bytes) => Self::V6(Ipv6Addr::from(bytes)),
        }
    }
}

impl fmt::Display for IpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        IpAddr::from(*self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_addresses_in_the_usual_notation() {
        assert_eq!(MacAddress([0x02, 0, 0x5e, 0x10, 0, 0xff]).to_string(), "02:00:5e:10:00:ff");
        assert_eq!(IpAddress::V4([192, 0, 2, 1]).to_string(), "192.0.2.1");
        let v6: IpAddr = "2001:db8::1".parse().unwrap();
        assert_eq!(IpAddress::from(v6).to_string(), "2001:db8::1");
        assert_eq!(IpAddr::from(IpAddress::from(v6)), v6);
    }

    #[test]
    fn group_bit_is_the_lowest_of_the_first_byte() {
        assert!(MacAddress::BROADCAST.is_multicast() && MacAddress::BROADCAST.is_broadcast());
        assert!(MacAddress([0x33, 0x33, 0, 0, 0, 1]).is_multicast());
        assert!(!MacAddress([0x02, 0, 0, 0, 0, 1]).is_multicast());
    }
}
