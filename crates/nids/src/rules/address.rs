//! Parses addresses in rule headers: lists with negation, CIDR prefixes, ranges and variables.

use super::variables::{List, Variables, split_list};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Set of addresses: sorted, disjoint, inclusive ranges.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AddressSet {
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
}

impl AddressSet {
    /// Returns the set of all addresses.
    pub fn any() -> Self {
        Self { v4: vec![(0, u32::MAX)], v6: vec![(0, u128::MAX)] }
    }

    /// Returns whether the set contains every address.
    pub fn is_any(&self) -> bool {
        self.v4 == [(0, u32::MAX)] && self.v6 == [(0, u128::MAX)]
    }

    /// Returns whether the set contains no address.
    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// Returns whether the set contains `address`.
    pub fn contains(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(v4) => contains(&self.v4, u32::from(v4)),
            IpAddr::V6(v6) => contains(&self.v6, u128::from(v6)),
        }
    }

    /// Parses the address part of a header.
    pub fn parse(text: &str, variables: &Variables) -> Result<Self, &'static str> {
        let mut yes = Self::default();
        let mut no = Self::default();
        let mut has_yes = false;
        collect(text, false, variables, 0, &mut |item, negated| {
            let set = parse_item(item)?;
            has_yes |= !negated;
            let target = if negated { &mut no } else { &mut yes };
            target.v4.extend(set.v4);
            target.v6.extend(set.v6);
            Ok(())
        })?;
        if !has_yes {
            yes = Self::any();
        }
        let set = Self {
            v4: subtract(normalise(yes.v4, |a| a.checked_add(1)), normalise(no.v4, |a| a.checked_add(1)), 1),
            v6: subtract(normalise(yes.v6, |a| a.checked_add(1)), normalise(no.v6, |a| a.checked_add(1)), 1),
        };
        if set.is_empty() { Err("the address list excludes every address") } else { Ok(set) }
    }
}

/// Calls `add` for each address in a list and its nested lists. The second argument of `add` is
/// true for a negated address.
fn collect(
    text: &str,
    negated: bool,
    variables: &Variables,
    depth: u8,
    add: &mut dyn FnMut(&str, bool) -> Result<(), &'static str>,
) -> Result<(), &'static str> {
    if depth > 16 {
        return Err("the list or its variables nest too deeply");
    }
    let text = text.trim();
    if let Some(rest) = text.strip_prefix('!') {
        return collect_negated(rest.trim_start(), negated, variables, depth + 1, add);
    }
    if let Some(inner) = text.strip_prefix('[') {
        let inner = inner.strip_suffix(']').ok_or("a bracket is not closed")?;
        for item in split_list(inner) {
            collect(item, negated, variables, depth + 1, add)?;
        }
        return Ok(());
    }
    if let Some(name) = text.strip_prefix('$') {
        let value = variables.address(name).ok_or("the address variable is not defined")?;
        return collect(value, negated, variables, depth + 1, add);
    }
    add(text, negated)
}

/// Negates an address, a list or a variable. A list is evaluated first, because it may contain
/// negated items.
fn collect_negated(
    text: &str,
    negated: bool,
    variables: &Variables,
    depth: u8,
    add: &mut dyn FnMut(&str, bool) -> Result<(), &'static str>,
) -> Result<(), &'static str> {
    if depth > 16 {
        return Err("the list or its variables nest too deeply");
    }
    if !text.starts_with(['[', '$']) {
        return add(text, !negated);
    }
    let inner = AddressSet::parse(text, variables)?;
    for &(low, high) in &inner.v4 {
        add(&format!("{}-{}", Ipv4Addr::from(low), Ipv4Addr::from(high)), !negated)?;
    }
    for &(low, high) in &inner.v6 {
        add(&format!("{}-{}", Ipv6Addr::from(low), Ipv6Addr::from(high)), !negated)?;
    }
    Ok(())
}

fn parse_item(item: &str) -> Result<AddressSet, &'static str> {
    const BAD: &str = "an address is not valid";
    if item.eq_ignore_ascii_case("any") {
        return Ok(AddressSet::any());
    }
    let mut set = AddressSet::default();
    if let Some((low, high)) = item.split_once('-') {
        match (low.trim().parse().map_err(|_| BAD)?, high.trim().parse().map_err(|_| BAD)?) {
            (IpAddr::V4(low), IpAddr::V4(high)) if low <= high => set.v4.push((low.into(), high.into())),
            (IpAddr::V6(low), IpAddr::V6(high)) if low <= high => set.v6.push((low.into(), high.into())),
            _ => return Err(BAD),
        }
        return Ok(set);
    }
    let (address, prefix) = match item.split_once('/') {
        Some((address, prefix)) => (address.trim(), Some(prefix.trim())),
        None => (item, None),
    };
    match address.parse().map_err(|_| BAD)? {
        IpAddr::V4(v4) => {
            let bits = match prefix {
                None => 32,
                Some(mask) if mask.contains('.') => {
                    let mask = u32::from(mask.parse::<Ipv4Addr>().map_err(|_| BAD)?);
                    if mask.leading_ones() + mask.trailing_zeros().min(32) < 32 {
                        return Err(BAD);
                    }
                    mask.leading_ones()
                }
                Some(bits) => bits.parse().ok().filter(|bits| *bits <= 32).ok_or(BAD)?,
            };
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            set.v4.push((u32::from(v4) & mask, u32::from(v4) | !mask));
        }
        IpAddr::V6(v6) => {
            let bits = match prefix {
                None => 128,
                Some(bits) => bits.parse::<u32>().ok().filter(|bits| *bits <= 128).ok_or(BAD)?,
            };
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            set.v6.push((u128::from(v6) & mask, u128::from(v6) | !mask));
        }
    }
    Ok(set)
}

fn contains<T: Ord + Copy>(ranges: &[(T, T)], value: T) -> bool {
    let after = ranges.partition_point(|range| range.0 <= value);
    after > 0 && ranges[after - 1].1 >= value
}

/// Sorts ranges and merges those that overlap or touch.
pub(super) fn normalise<T: Ord + Copy>(mut ranges: List<T>, next: impl Fn(T) -> Option<T>) -> List<T> {
    ranges.sort_unstable();
    let mut merged: List<T> = Vec::with_capacity(ranges.len());
    for (low, high) in ranges {
        match merged.last_mut() {
            Some(last) if next(last.1).is_none_or(|after| low <= after) => last.1 = last.1.max(high),
            _ => merged.push((low, high)),
        }
    }
    merged
}

/// Returns the addresses in `yes` that are not in `no`. Both lists are sorted, and contain disjoint
/// ranges.
pub(super) fn subtract<T>(yes: List<T>, no: List<T>, one: T) -> List<T>
where
    T: Ord + Copy + std::ops::Add<Output = T> + std::ops::Sub<Output = T>,
{
    let mut rest = Vec::with_capacity(yes.len());
    for (mut low, high) in yes {
        let mut open = true;
        for &(from, to) in &no {
            if to < low || from > high {
                continue;
            }
            if from > low {
                rest.push((low, from - one));
            }
            if to >= high {
                open = false;
                break;
            }
            low = to + one;
        }
        if open {
            rest.push((low, high));
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> Result<AddressSet, &'static str> {
        AddressSet::parse(text, &Variables::default())
    }

    fn has(text: &str, address: &str) -> bool {
        set(text).unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn parses_lists_ranges_and_variables() {
        assert!(set("any").unwrap().is_any());
        assert!(has("$HOME_NET", "192.168.3.4") && !has("$HOME_NET", "8.8.8.8"));
        assert!(!has("$EXTERNAL_NET", "10.1.1.1") && has("$EXTERNAL_NET", "8.8.8.8"));
        assert!(has("[1.2.3.0/24,!1.2.3.4]", "1.2.3.5") && !has("[1.2.3.0/24,!1.2.3.4]", "1.2.3.4"));
        assert!(has("1.1.1.1-1.1.1.9", "1.1.1.9") && !has("1.1.1.1-1.1.1.9", "1.1.1.10"));
        assert!(has("10.0.0.0/255.0.0.0", "10.255.255.255"));
        assert!(has("2001:db8::/32", "2001:db8::1") && !has("2001:db8::/32", "2001:db9::1"));
        assert!(has("!1.2.3.4", "::1") && !has("!1.2.3.4", "1.2.3.4"));
        assert!(has("![10.0.0.0/8,!10.1.0.0/16]", "10.1.2.3") && !has("![10.0.0.0/8,!10.1.0.0/16]", "10.2.2.3"));
        assert!(has("0.0.0.0/0", "255.255.255.255"));
    }

    #[test]
    fn rejects_bad_lists() {
        for text in ["1.2.3", "[1.2.3.4", "$NO", "1.2.3.4/33", "!any", "5.5.5.5-5.5.5.1", "[any,!any]"] {
            assert!(set(text).is_err(), "{text}");
        }
    }
}
