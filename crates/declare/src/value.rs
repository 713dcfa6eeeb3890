//! Parses and formats values in configurations, table files and commands.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::declaration::{Param, ParamShape};
use crate::error::ValueError;
use crate::types::Scalar;

/// A stored value: one number, or two numbers for an IPv6 address.
pub type Words = [u64; 2];

/// Parses the text of a value. `ports` are the names of the configured ports.
///
/// # Errors
/// Returns a sentence that states the valid form.
pub fn parse(scalar: Scalar, text: &str, ports: Option<&[String]>) -> Result<Words, ValueError> {
    let text = text.trim();
    let refuse = |form: &str| Err(form_error(text, form));
    let number = match scalar {
        Scalar::Unsigned(bits) => match unsigned(text).or_else(|| dotted(text, bits)) {
            Some(number) if bits == 64 || number >> bits == 0 => number,
            _ => return refuse(&format!("a number from 0 to {}", u64::MAX >> (64 - u32::from(bits)))),
        },
        Scalar::Ipv4 => match text.parse::<Ipv4Addr>() {
            Ok(address) => u32::from(address).into(),
            Err(_) => return refuse("an IPv4 address such as 192.0.2.1"),
        },
        Scalar::Ipv6 => match text.parse::<Ipv6Addr>() {
            Ok(address) => {
                let bits = u128::from(address);
                return Ok([(bits >> 64) as u64, bits as u64]);
            }
            Err(_) => return refuse("an IPv6 address such as 2001:db8::1"),
        },
        Scalar::Mac => match mac(text) {
            Some(number) => number,
            None => return refuse("a MAC address such as 02:00:00:00:00:01"),
        },
        Scalar::Port => match ports {
            Some(ports) => match ports.iter().position(|port| port == text) {
                Some(number) => number as u64,
                None if ports.is_empty() => return refuse("a port, because no port is configured"),
                None => return refuse(&format!("a port: the ports are `{}`", ports.join("`, `"))),
            },
            None => 0,
        },
        Scalar::Bool => match text {
            "true" | "1" => 1,
            "false" | "0" => 0,
            _ => return refuse("true or false"),
        },
    };
    Ok([number, 0])
}

/// Returns the text of a value.
pub fn format(scalar: Scalar, words: Words, ports: &[String]) -> String {
    let [number, low] = words;
    match scalar {
        Scalar::Unsigned(_) => number.to_string(),
        Scalar::Ipv4 => Ipv4Addr::from(number as u32).to_string(),
        Scalar::Ipv6 => Ipv6Addr::from(u128::from(number) << 64 | u128::from(low)).to_string(),
        Scalar::Mac => {
            let [_, _, a, b, c, d, e, f] = number.to_be_bytes();
            format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
        }
        Scalar::Port => ports.get(number as usize).cloned().unwrap_or_else(|| number.to_string()),
        Scalar::Bool => (number != 0).to_string(),
    }
}

/// Parses an IPv4 prefix, and returns its address and length. Bits after the length must be zero.
///
/// # Errors
/// Returns a sentence that states the valid form.
pub fn prefix4(text: &str) -> Result<(u32, u32), ValueError> {
    let refuse = || form_error(text, "an IPv4 prefix such as 192.0.2.0/24");
    let (address, length) = text.trim().split_once('/').unwrap_or((text.trim(), "32"));
    let address: Ipv4Addr = address.parse().map_err(|_| refuse())?;
    let length: u32 = length.parse().ok().filter(|length| *length <= 32).ok_or_else(refuse)?;
    let address = u32::from(address);
    match address.checked_shl(length).unwrap_or(0) {
        0 => Ok((address, length)),
        _ => Err(ValueError::BeyondLength(text.to_owned())),
    }
}

/// Parses an IPv6 prefix, and returns its address and length. Bits after the length must be zero.
///
/// # Errors
/// Returns a sentence that states the valid form.
pub fn prefix6(text: &str) -> Result<(u128, u32), ValueError> {
    let refuse = || form_error(text, "an IPv6 prefix such as 2001:db8::/32");
    let (address, length) = text.trim().split_once('/').unwrap_or((text.trim(), "128"));
    let address: Ipv6Addr = address.parse().map_err(|_| refuse())?;
    let length: u32 = length.parse().ok().filter(|length| *length <= 128).ok_or_else(refuse)?;
    let address = u128::from(address);
    match address.checked_shl(length).unwrap_or(0) {
        0 => Ok((address, length)),
        _ => Err(ValueError::BeyondLength(text.to_owned())),
    }
}

/// Parses the text of a parameter. Returns the values of its C members in order.
///
/// # Errors
/// Returns a sentence that states the problem and the valid values.
pub fn check_param(param: &Param, text: &str, ports: Option<&[String]>) -> Result<Vec<Words>, ValueError> {
    match param.shape {
        ParamShape::Scalar(scalar) => {
            let words = parse(scalar, text, ports)?;
            match param.range {
                Some((smallest, largest)) if !(smallest..=largest).contains(&words[0]) => {
                    Err(ValueError::Range { text: text.to_owned(), smallest, largest })
                }
                _ => Ok(vec![words]),
            }
        }
        ParamShape::Prefix4 => {
            let (address, length) = prefix4(text)?;
            let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
            Ok(vec![[address.into(), 0], [mask.into(), 0]])
        }
        ParamShape::Prefix6 => {
            let (address, length) = prefix6(text)?;
            let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
            let halves = |bits: u128| [(bits >> 64) as u64, bits as u64];
            Ok(vec![halves(address), halves(mask)])
        }
        ParamShape::List(scalar, max) => {
            let texts = text.split(',').map(str::trim).filter(|text| !text.is_empty());
            let words: Vec<Words> = texts.map(|text| parse(scalar, text, ports)).collect::<Result<_, _>>()?;
            match words.len() > max as usize {
                true => Err(ValueError::TooMany { length: words.len(), max }),
                false => Ok(words),
            }
        }
    }
}

fn form_error(text: &str, form: &str) -> ValueError {
    ValueError::Form { text: text.to_owned(), form: form.to_owned() }
}

fn unsigned(text: &str) -> Option<u64> {
    let digits = text.replace('_', "");
    match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok(),
        None => None,
    }
}

/// Parses an IPv4 address in dotted notation. Returns `None` unless `bits` is 32.
fn dotted(text: &str, bits: u8) -> Option<u64> {
    (bits == 32).then(|| text.parse::<Ipv4Addr>().ok().map(|address| u32::from(address).into()))?
}

fn mac(text: &str) -> Option<u64> {
    let octets: Vec<&str> = text.split([':', '-']).collect();
    if octets.len() != 6 {
        return None;
    }
    octets.iter().try_fold(0, |number: u64, octet| {
        let valid = octet.len() == 2 && octet.bytes().all(|byte| byte.is_ascii_hexdigit());
        Some(number << 8 | u64::from_str_radix(octet, 16).ok().filter(|_| valid)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_text() {
        let ports = ["lan".to_owned(), "wan".to_owned()];
        for (scalar, text) in [
            (Scalar::Unsigned(12), "4095"),
            (Scalar::Unsigned(64), "18446744073709551615"),
            (Scalar::Ipv4, "192.0.2.1"),
            (Scalar::Ipv6, "2001:db8::1"),
            (Scalar::Mac, "02:00:5e:10:00:01"),
            (Scalar::Port, "wan"),
            (Scalar::Bool, "true"),
        ] {
            let words = parse(scalar, text, Some(&ports)).unwrap();
            assert_eq!(format(scalar, words, &ports), text);
        }
        assert_eq!(parse(Scalar::Unsigned(32), "192.0.2.1", None), Ok([0xc000_0201, 0]));
        assert_eq!(parse(Scalar::Unsigned(16), "0x0800", None), Ok([0x800, 0]));
    }

    #[test]
    fn invalid_values_are_refused_with_the_valid_form() {
        for (scalar, text, part) in [
            (Scalar::Unsigned(8), "256", "0 to 255"),
            (Scalar::Unsigned(8), "-1", "0 to 255"),
            (Scalar::Ipv4, "1.2.3", "IPv4 address"),
            (Scalar::Mac, "02:00:00:00:00", "MAC address"),
            (Scalar::Mac, "02:00:00:00:00:+1", "MAC address"),
            (Scalar::Port, "dmz", "`lan`, `wan`"),
            (Scalar::Bool, "yes", "true or false"),
        ] {
            let ports = ["lan".to_owned(), "wan".to_owned()];
            let message = parse(scalar, text, Some(&ports)).unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn prefixes_have_no_bits_beyond_their_length() {
        assert_eq!(prefix4("10.0.0.0/8"), Ok((10 << 24, 8)));
        assert_eq!(prefix4("0.0.0.0/0"), Ok((0, 0)));
        assert_eq!(prefix4("10.0.0.1"), Ok(((10 << 24) + 1, 32)));
        assert!(matches!(prefix4("10.0.0.1/8"), Err(ValueError::BeyondLength(_))));
        assert!(matches!(prefix4("10.0.0.0/33"), Err(ValueError::Form { .. })));
        assert_eq!(prefix6("2001:db8::/32"), Ok((0x2001_0db8 << 96, 32)));
        assert!(matches!(prefix6("2001:db8::1/32"), Err(ValueError::BeyondLength(_))));
    }
}
