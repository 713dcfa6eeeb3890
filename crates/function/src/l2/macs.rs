//! Parser for the file of static addresses. Each line has the form `VLAN ADDRESS PORT`. Comments
//! begin with `#` or `;`.

use std::collections::HashMap;

use super::key;
use super::switch::VIDS;
use godwit_wire::MacAddress;

use crate::Error;

/// Parses the text of the file and returns its addresses in order. `port` returns the number of the
/// port with the given name in the given VLAN.
///
/// # Errors
/// Returns the line number, counted from 1, and the problem.
pub fn parse(
    text: &[u8],
    mut port: impl FnMut(u16, &str) -> Result<u8, Error>,
) -> Result<Vec<(u64, u8)>, (usize, String)> {
    let mut addresses = Vec::new();
    let mut lines: HashMap<u64, usize> = HashMap::new();
    for (line, text) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let parsed = parse_line(text, &mut port).map_err(|error| (line, error.to_string()))?;
        let Some((key, port)) = parsed else { continue };
        if let Some(before) = lines.insert(key, line) {
            return Err((line, format!("this VLAN and address are already in line {before}; remove one line")));
        }
        addresses.push((key, port));
    }
    Ok(addresses)
}

fn parse_line(line: &[u8], port: &mut impl FnMut(u16, &str) -> Result<u8, Error>) -> Result<Option<(u64, u8)>, Error> {
    let end = line.iter().position(|byte| matches!(byte, b'#' | b';')).unwrap_or(line.len());
    let text = std::str::from_utf8(&line[..end]).map_err(|_| Error::value("the line is not valid UTF-8"))?;
    let mut words = text.split_ascii_whitespace();
    let Some(vlan) = words.next() else { return Ok(None) };
    let (Some(mac), Some(name), None) = (words.next(), words.next(), words.next()) else {
        return Err(Error::value("a line is VLAN ADDRESS PORT"));
    };
    let vid = vid(vlan)?;
    let mac = station(mac)?;
    Ok(Some((key(vid, mac), port(vid, name)?)))
}

/// Parses the number of a VLAN.
pub(super) fn vid(text: &str) -> Result<u16, Error> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let vid = text.parse().ok().filter(|vid| digits && is_vid(*vid));
    vid.ok_or_else(|| Error::value(format!("\"{}\" is not a VLAN, 1 to {}", text.escape_debug(), VIDS - 2)))
}

/// Returns whether a VLAN identifier (VID) names a VLAN. The values 0 and 4095 name no VLAN (IEEE
/// 802.1Q-2018, table 9-2).
pub(super) fn is_vid(vid: u16) -> bool {
    (1..VIDS - 1).contains(&vid)
}

/// Parses the unicast address of a station.
pub(super) fn station(text: &str) -> Result<MacAddress, Error> {
    let wrong = |_| format!("\"{}\" is not an Ethernet address such as 02:00:00:00:00:01", text.escape_debug());
    let mac: MacAddress = text.parse().map_err(|error| Error::value(wrong(error)))?;
    if mac.is_multicast() || mac == MacAddress([0; 6]) {
        return Err(Error::value(format!("{mac} is not a unicast address")));
    }
    Ok(mac)
}
