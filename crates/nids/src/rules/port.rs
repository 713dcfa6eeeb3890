//! Parses ports in rule headers: lists with negation, ranges and variables.

use super::address::{normalise, subtract};
use super::variables::{Variables, split_list};

/// Set of ports: sorted, disjoint, inclusive ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortSet(Vec<(u16, u16)>);

impl PortSet {
    /// Returns the set of all ports.
    pub fn any() -> Self {
        Self(vec![(0, u16::MAX)])
    }

    /// Returns whether the set contains every port.
    pub fn is_any(&self) -> bool {
        self.0 == [(0, u16::MAX)]
    }

    /// Returns whether the set contains `port`.
    pub fn contains(&self, port: u16) -> bool {
        let after = self.0.partition_point(|range| range.0 <= port);
        after > 0 && self.0[after - 1].1 >= port
    }

    /// Returns the ranges, in ascending order.
    pub fn ranges(&self) -> &[(u16, u16)] {
        &self.0
    }

    /// Parses the port part of a header.
    pub fn parse(text: &str, variables: &Variables) -> Result<Self, &'static str> {
        resolve(text, variables, 0).map(Self)
    }
}

fn resolve(text: &str, variables: &Variables, depth: u8) -> Result<Vec<(u16, u16)>, &'static str> {
    if depth > 16 {
        return Err("the list or its variables nest too deeply");
    }
    let text = text.trim();
    let next = |port: u16| port.checked_add(1);
    if let Some(rest) = text.strip_prefix('!') {
        let inner = resolve(rest, variables, depth + 1)?;
        return not_empty(subtract(vec![(0, u16::MAX)], inner, 1));
    }
    if let Some(inner) = text.strip_prefix('[') {
        let inner = inner.strip_suffix(']').ok_or("a bracket is not closed")?;
        let (mut yes, mut no, mut has_yes) = (Vec::new(), Vec::new(), false);
        for item in split_list(inner) {
            match item.trim().strip_prefix('!') {
                Some(rest) => no.extend(resolve(rest, variables, depth + 1)?),
                None => {
                    has_yes = true;
                    yes.extend(resolve(item, variables, depth + 1)?);
                }
            }
        }
        if !has_yes {
            yes = vec![(0, u16::MAX)];
        }
        return not_empty(subtract(normalise(yes, next), normalise(no, next), 1));
    }
    if let Some(name) = text.strip_prefix('$') {
        let value = variables.port(name).ok_or("the port variable is not defined")?;
        return resolve(value, variables, depth + 1);
    }
    parse_item(text).map(|range| vec![range])
}

fn not_empty(ranges: Vec<(u16, u16)>) -> Result<Vec<(u16, u16)>, &'static str> {
    if ranges.is_empty() { Err("the port list excludes every port") } else { Ok(ranges) }
}

fn parse_item(item: &str) -> Result<(u16, u16), &'static str> {
    const BAD: &str = "a port is not valid";
    if item.eq_ignore_ascii_case("any") {
        return Ok((0, u16::MAX));
    }
    let number = |text: &str| text.trim().parse::<u16>().map_err(|_| BAD);
    let range = match item.split_once(':') {
        None => {
            let port = number(item)?;
            (port, port)
        }
        Some((low, high)) => (
            if low.trim().is_empty() { 0 } else { number(low)? },
            if high.trim().is_empty() { u16::MAX } else { number(high)? },
        ),
    };
    if range.0 <= range.1 { Ok(range) } else { Err(BAD) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(text: &str, port: u16) -> bool {
        PortSet::parse(text, &Variables::default()).unwrap().contains(port)
    }

    #[test]
    fn parses_lists_ranges_and_variables() {
        assert!(has("any", 0) && has("$HTTP_PORTS", 80) && !has("$HTTP_PORTS", 81));
        assert!(has("[80,8000:8010]", 8010) && !has("[80,8000:8010]", 8011));
        assert!(has(":1023", 0) && !has(":1023", 1024) && has("1024:", 65535));
        assert!(!has("![21,989:995]", 990) && has("![21,989:995]", 996));
        assert!(has("[1:100,!50]", 49) && !has("[1:100,!50]", 50));
        assert!(has("$FILE_DATA_PORTS", 143));
    }

    #[test]
    fn rejects_bad_lists() {
        for text in ["65536", "80:79", "[80", "$NO", "!any", "x", "[80,!80]"] {
            assert!(PortSet::parse(text, &Variables::default()).is_err(), "{text}");
        }
    }
}
