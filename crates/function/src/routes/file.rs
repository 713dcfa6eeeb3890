//! Parser for route files, which contain one route per line.
//!
//! ```text
//! # comments begin with # or ;
//! 192.0.2.0/24    upstream
//! 198.51.100.7    lan          ; without a length: one host
//! 203.0.113.0/24               # uses the default next hop
//! ```
//!
//! IPv6 prefixes have the same form. Fields are separated by spaces and tabs, and lines end in LF
//! or CRLF. The parser is written by hand for speed, because a file may have two million lines that
//! must be read before the first packet can be forwarded.

use std::collections::HashMap;

use super::{Address, Route};
use crate::Error;

/// Named next hops, which routes refer to by their names.
#[derive(Debug)]
pub struct Names<'a> {
    /// Index of each next hop, with its name as the key.
    pub index: HashMap<&'a [u8], u32>,
    /// Next hop of the routes that name no next hop.
    pub default: Option<u32>,
}

pub(super) const NO_NEXT_HOP: &str = "the route has no next hop; name one, or set default_next_hop";

/// Parses the text of a route file and appends its routes to `routes`, in order.
///
/// # Errors
/// Returns the line number, counted from 1, and the problem.
pub fn parse<A: Address>(text: &[u8], names: &Names<'_>, routes: &mut Vec<Route<A>>) -> Result<(), (usize, String)> {
    // A line usually has 15 to 20 bytes, so the text length gives an estimate of the number of
    // routes. If the estimate is too low, the vector is copied once.
    let no_memory = |_| (1, format!("there is not enough memory for the routes of {} bytes of text", text.len()));
    routes.try_reserve(text.len() / 14 + 1).map_err(no_memory)?;
    let mut last: (&[u8], u32) = (&[], 0);
    let (mut rest, mut line) = (text, 0);
    while !rest.is_empty() {
        line += 1;
        let mut token = next_token(&mut rest);
        if token.is_empty() {
            skip_line(&mut rest);
            continue;
        }
        let (prefix, length) = parse_prefix(token).map_err(|error| (line, error.to_string()))?;
        token = next_token(&mut rest);
        let next_hop = if token.is_empty() {
            names.default.ok_or_else(|| (line, NO_NEXT_HOP.to_owned()))?
        } else if token == last.0 {
            last.1
        } else {
            let index = names.index.get(token).ok_or_else(|| (line, unknown_next_hop(token)))?;
            last = (token, *index);
            *index
        };
        token = next_token(&mut rest);
        if !token.is_empty() {
            let message = format!("unexpected \"{}\" after the next hop; a line is PREFIX NEXT_HOP", quote(token));
            return Err((line, message));
        }
        skip_line(&mut rest);
        routes.push(Route { prefix, length, next_hop });
    }
    Ok(())
}

/// Parses a prefix `address/length`, or the address of a single host.
///
/// # Errors
/// Returns an error if the text is not a prefix, or if bits are set beyond its length.
pub fn parse_prefix<A: Address>(text: &[u8]) -> Result<(A, u8), Error> {
    let Some((prefix, length)) = A::scan(text) else {
        let hint = if A::is_other(text) { A::OTHER } else { "" };
        return Err(Error::value(format!("\"{}\" is not {}{hint}", quote(text), A::EXAMPLE)));
    };
    let masked = prefix.masked(length);
    if masked != prefix {
        let suggestion = masked.show();
        let message = format!("{} has bits set beyond its length; did you mean {suggestion}/{length}?", quote(text));
        return Err(Error::value(message));
    }
    Ok((prefix, length))
}

pub(super) fn unknown_next_hop(name: &[u8]) -> String {
    format!("there is no next hop named \"{}\"", quote(name))
}

/// Returns the next word of the line, or an empty slice at the end of the line or at a comment.
#[inline]
fn next_token<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\x0b' | b'\x0c');
    let start = rest.iter().position(|byte| !blank(byte)).unwrap_or(rest.len());
    let line = &rest[start..];
    if let [b'#' | b';', ..] = line {
        *rest = line;
        return &[];
    }
    let end = line.iter().position(|byte| blank(byte) || *byte == b'\n').unwrap_or(line.len());
    let (token, tail) = line.split_at(end);
    *rest = tail;
    token
}

/// Skips the rest of the line, including its line feed.
#[inline]
fn skip_line(rest: &mut &[u8]) {
    let end = rest.iter().position(|&byte| byte == b'\n').map_or(rest.len(), |newline| newline + 1);
    *rest = &rest[end..];
}

/// Returns the first 60 bytes of a word in printable form, for an error message.
fn quote(token: &[u8]) -> String {
    let shown = &token[..token.len().min(60)];
    String::from_utf8_lossy(shown).escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    fn parse_text(text: &[u8], default: Option<u32>) -> Result<Vec<(String, u32)>, (usize, String)> {
        let names = Names { index: HashMap::from([(&b"a"[..], 0), (b"lan-2", 1)]), default };
        let mut routes = Vec::new();
        parse(text, &names, &mut routes)?;
        let show = |route: &Route<u32>| format!("{}/{}", Ipv4Addr::from(route.prefix), route.length);
        Ok(routes.iter().map(|route| (show(route), route.next_hop)).collect())
    }

    #[test]
    fn parses_comments_spaces_and_default_next_hops() {
        let text = b"# head\r\n\r\n; old\n0.0.0.0/0 a\n \t10.0.0.0/8\t lan-2 \t# why\r\n192.0.2.1 a;not a comment\n";
        let (line, message) = parse_text(text, None).unwrap_err();
        assert!(line == 6 && message.contains("\"a;not\""), "{line}: {message}");
        let text =
            b"# head\r\n\r\n; old\n0.0.0.0/0 a\n \t10.0.0.0/8\t lan-2 \t# why\r\n192.0.2.1 a ;x\n255.255.255.255/32";
        let routes = parse_text(text, Some(7)).unwrap();
        let expected = [("0.0.0.0/0", 0), ("10.0.0.0/8", 1), ("192.0.2.1/32", 0), ("255.255.255.255/32", 7)];
        assert_eq!(routes, expected.map(|(prefix, next_hop)| (prefix.to_owned(), next_hop)));
        assert_eq!(parse_text(b"", None).unwrap(), []);
        assert_eq!(parse_text(b"\n#", None).unwrap(), []);
    }

    #[test]
    fn reports_the_line_of_an_error() {
        for (text, line, part) in [
            (&b"10.0.0.0/8"[..], 1, "default_next_hop"),
            (b"\n10.0.0.1/8 a", 2, "10.0.0.0/8"),
            (b"10.0.0.0/33 a", 1, "not an IPv4 prefix"),
            (b"10.0.0.0/ a", 1, "not an IPv4 prefix"),
            (b"10.0.0/8 a", 1, "not an IPv4 prefix"),
            (b"10.0.0.256 a", 1, "not an IPv4 prefix"),
            (b"10.0.0.00 a", 1, "not an IPv4 prefix"),
            (b"10.0.0.01 a", 1, "not an IPv4 prefix"),
            (b"10.0.0.0.0 a", 1, "not an IPv4 prefix"),
            (b"10.0.0.0/8/8 a", 1, "not an IPv4 prefix"),
            (b"99999999999999999999.0.0.0/8 a", 1, "not an IPv4 prefix"),
            (b"2001:db8::/32 a", 1, "IPv6"),
            (b"#\n#\n10.0.0.0/8 b", 3, "\"b\""),
            (b"10.0.0.0/8 a c", 1, "\"c\""),
            (b"\xff\xfe\x00 a", 1, "not an IPv4 prefix"),
        ] {
            let (at, message) = parse_text(text, None).unwrap_err();
            assert!(at == line && message.contains(part), "{at}: {message}");
        }
    }

    #[test]
    fn reports_the_line_of_an_ipv6_error() {
        let names = Names { index: HashMap::from([(&b"a"[..], 0)]), default: None };
        for (text, line, part) in [
            (&b"2001:db8::/32"[..], 1, "default_next_hop"),
            (b"\n2001:db8::1/32 a", 2, "2001:db8::/32"),
            (b"2001:db8::/129 a", 1, "not an IPv6 prefix"),
            (b"2001:db8::/ a", 1, "not an IPv6 prefix"),
            (b"2001:db8::/032 a", 1, "not an IPv6 prefix"),
            (b"2001:db8::/+32 a", 1, "not an IPv6 prefix"),
            (b"2001:db8 a", 1, "not an IPv6 prefix"),
            (b"2001::db8::/32 a", 1, "not an IPv6 prefix"),
            (b"fe80::1%eth0 a", 1, "not an IPv6 prefix"),
            (b"[2001:db8::]/32 a", 1, "not an IPv6 prefix"),
            (b"10.0.0.0/8 a", 1, "kind \"ipv4\""),
            (b"::/0 a\n::/0 b", 2, "\"b\""),
            (b"::1 a c", 1, "\"c\""),
        ] {
            let (at, message) = parse::<u128>(text, &names, &mut Vec::new()).unwrap_err();
            assert!(at == line && message.contains(part), "{at}: {message}");
        }
        let mut routes = Vec::new();
        parse::<u128>(b"::/0 a\n::ffff:192.0.2.0/120\ta # x\r\n2001:DB8::1 a", &names, &mut routes).unwrap();
        let shown: Vec<_> = routes.iter().map(|r| format!("{}/{}", r.prefix.show(), r.length)).collect();
        assert_eq!(shown, ["::/0", "::ffff:192.0.2.0/120", "2001:db8::1/128"]);
    }

    proptest! {
        #[test]
        fn parses_displayed_ipv4_prefixes(address: u32, length in 0u8..=32) {
            let prefix = address.masked(length);
            let text = format!("{}/{length}", Ipv4Addr::from(prefix));
            prop_assert_eq!(parse_prefix(text.as_bytes()).ok(), Some((prefix, length)));
            let host = Ipv4Addr::from(address).to_string();
            prop_assert_eq!(parse_prefix(host.as_bytes()).ok(), Some((address, 32)));
            let rough = format!("{host}/{length}");
            prop_assert_eq!(parse_prefix::<u32>(rough.as_bytes()).is_ok(), prefix == address);
        }

        #[test]
        fn parses_displayed_ipv6_prefixes(address: u128, length in 0u8..=128) {
            let prefix = address.masked(length);
            let text = format!("{}/{length}", Ipv6Addr::from(prefix));
            prop_assert_eq!(parse_prefix(text.as_bytes()).ok(), Some((prefix, length)));
            let host = Ipv6Addr::from(address).to_string();
            prop_assert_eq!(parse_prefix(host.as_bytes()).ok(), Some((address, 128)));
            let rough = format!("{host}/{length}");
            prop_assert_eq!(parse_prefix::<u128>(rough.as_bytes()).is_ok(), prefix == address);
        }

        #[test]
        fn accepts_arbitrary_bytes(text: Vec<u8>) {
            let _ = parse_text(&text, Some(0));
            let names = Names { index: HashMap::new(), default: Some(0) };
            let _ = parse::<u128>(&text, &names, &mut Vec::new());
        }
    }
}
