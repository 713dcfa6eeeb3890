//! Properties in which IPv4 and IPv6 addresses differ.

use std::fmt::Debug;
use std::net::{Ipv4Addr, Ipv6Addr};

/// IP address as a number in host byte order.
pub trait Address: Copy + Debug + Eq + Ord + Send + Sync + 'static {
    /// Length of an address, in bits.
    const BITS: u8;
    /// Description of a valid prefix, with an example, for error messages.
    const EXAMPLE: &'static str;
    /// Hint in the error message for a prefix of the wrong address family.
    const OTHER: &'static str;

    /// Returns the address with all bits after the first `length` bits set to 0.
    fn masked(self, length: u8) -> Self;

    /// Parses a prefix `address/length`, or the address of a single host.
    fn scan(text: &[u8]) -> Option<(Self, u8)>;

    /// Returns whether a text looks like a prefix of the other address family.
    fn is_other(text: &[u8]) -> bool;

    /// Formats the address in its usual notation.
    fn show(self) -> String;
}

impl Address for u32 {
    const BITS: u8 = 32;
    const EXAMPLE: &'static str = "an IPv4 prefix such as 192.0.2.0/24";
    const OTHER: &'static str = "; IPv6 routes belong to a function of kind \"ipv6\"";

    #[inline]
    fn masked(self, length: u8) -> Self {
        self & u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0)
    }

    #[inline]
    fn scan(text: &[u8]) -> Option<(Self, u8)> {
        scan_prefix(text)
    }

    fn is_other(text: &[u8]) -> bool {
        text.contains(&b':')
    }

    fn show(self) -> String {
        Ipv4Addr::from(self).to_string()
    }
}

impl Address for u128 {
    const BITS: u8 = 128;
    const EXAMPLE: &'static str = "an IPv6 prefix such as 2001:db8::/32";
    const OTHER: &'static str = "; IPv4 routes belong to a function of kind \"ipv4\"";

    #[inline]
    fn masked(self, length: u8) -> Self {
        self & u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
    }

    fn scan(text: &[u8]) -> Option<(Self, u8)> {
        let end = text.iter().position(|&byte| byte == b'/').unwrap_or(text.len());
        let (address, mut rest) = text.split_at(end);
        let address = std::str::from_utf8(address).ok()?.parse::<Ipv6Addr>().ok()?;
        if rest.is_empty() {
            return Some((address.into(), 128));
        }
        rest = rest.strip_prefix(b"/")?;
        let length = scan_number(&mut rest, 128)?;
        // The length is at most 128.
        rest.is_empty().then_some((address.into(), length as u8))
    }

    fn is_other(text: &[u8]) -> bool {
        !text.contains(&b':') && text.contains(&b'.')
    }

    fn show(self) -> String {
        Ipv6Addr::from(self).to_string()
    }
}

fn scan_prefix(text: &[u8]) -> Option<(u32, u8)> {
    let mut rest = text;
    let mut prefix = 0;
    for octet in 0..4 {
        if octet > 0 {
            rest = rest.strip_prefix(b".")?;
        }
        prefix = prefix << 8 | scan_number(&mut rest, 255)?;
    }
    if rest.is_empty() {
        return Some((prefix, 32));
    }
    rest = rest.strip_prefix(b"/")?;
    let length = scan_number(&mut rest, 32)?;
    // The length is at most 32.
    rest.is_empty().then_some((prefix, length as u8))
}

/// Parses a decimal number up to `max` with at most three digits. Leading zeros are refused,
/// because some programs read such numbers as octal.
#[inline]
fn scan_number(rest: &mut &[u8], max: u32) -> Option<u32> {
    let mut value = 0;
    let mut digits = 0;
    while let Some((digit, tail)) = rest.split_first()
        && digit.is_ascii_digit()
    {
        value = value * 10 + u32::from(digit - b'0');
        digits += 1;
        *rest = tail;
        if value > max || digits > 1 && value < 10 {
            return None;
        }
    }
    (digits > 0).then_some(value)
}
