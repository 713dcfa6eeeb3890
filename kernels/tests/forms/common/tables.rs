//! Small table images, built in the simplest way.

use std::collections::{BTreeMap, VecDeque};

use godwit_kernels::image::*;

use super::batch::Lines;

/// Prefix and the index of its next hop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) address: u32,
    pub(crate) length: u32,
    pub(crate) next_hop: u32,
}

impl Route {
    pub(crate) fn covers(&self, address: u32) -> bool {
        u64::from(self.address ^ address) >> (32 - self.length) == 0
    }
}

pub(crate) fn echo_image(ports: u32) -> Lines {
    let mut image = Lines::zeroed(0);
    image.append(&EchoImage { magic: ECHO_MAGIC, ports }.emit());
    image
}

/// Returns an image with 2-byte entries for variant 0, and with 4-byte entries for variant 1.
pub(crate) fn ipv4_image(routes: &[Route], next_hops: &[Ipv4NextHop], variant: u32) -> Lines {
    let mut routes = routes.to_vec();
    routes.sort_by_key(|route| route.length);
    let mut tbl24 = vec![IPV4_NONE; 1 << 24];
    let mut tbl8: Vec<u32> = Vec::new();
    for route in &routes {
        let first = (route.address >> 8) as usize;
        if route.length <= 24 {
            tbl24[first..first + (1 << (24 - route.length))].fill(route.next_hop);
            continue;
        }
        if tbl24[first] & IPV4_GROUP_WIDE == 0 {
            let group = (tbl8.len() / 256) as u32;
            tbl8.resize(tbl8.len() + 256, tbl24[first]);
            tbl24[first] = IPV4_GROUP_WIDE | group;
        }
        let group = (tbl24[first] & !IPV4_GROUP_WIDE) as usize;
        let low = group * 256 + (route.address & 255) as usize;
        tbl8[low..low + (1 << (32 - route.length))].fill(route.next_hop);
    }
    let entries = |table: &[u32]| -> Vec<u8> {
        if variant == 1 {
            return table.iter().flat_map(|entry| entry.to_le_bytes()).collect();
        }
        // Bit 31 moves to bit 15. If all lower bits are set, they stay set.
        let narrow = |entry: &u32| ((entry >> 16) as u16 & 0x8000) | (entry & 0x7fff) as u16;
        table.iter().flat_map(|entry| narrow(entry).to_le_bytes()).collect()
    };
    let hops: Vec<u8> = next_hops.iter().flat_map(Ipv4NextHop::emit).collect();
    let mut image = Lines::zeroed(size_of::<Ipv4Image>());
    let next_hops_offset = image.append(&hops) as u64;
    let tbl24_offset = image.append(&entries(&tbl24)) as u64;
    let tbl8_offset = image.append(&entries(&tbl8)) as u64;
    let header = Ipv4Image {
        magic: IPV4_MAGIC,
        entry_bytes: if variant == 1 { 4 } else { 2 },
        next_hops: next_hops.len() as u32,
        groups: (tbl8.len() / 256) as u32,
        next_hops_offset,
        tbl24_offset,
        tbl8_offset,
        bytes: image.bytes().len() as u64,
    };
    image.bytes_mut()[..size_of::<Ipv4Image>()].copy_from_slice(&header.emit());
    image
}

/// Returns an Aho-Corasick automaton, built by breadth-first search over the trie. States are
/// numbered as `dpi.h` requires: states with a match come first.
pub(crate) fn dpi_image(patterns: &[&[u8]]) -> Lines {
    let mut class_map = [0_u8; 256];
    let mut classes = 1;
    for &byte in patterns.iter().copied().flatten() {
        if class_map[usize::from(byte)] == 0 {
            class_map[usize::from(byte)] = classes;
            classes += 1;
        }
    }
    let classes = usize::from(classes);
    let mut next: Vec<BTreeMap<u8, usize>> = vec![BTreeMap::new()];
    let mut ends: Vec<Vec<u32>> = vec![Vec::new()];
    for (number, pattern) in patterns.iter().enumerate() {
        let mut state = 0;
        for &byte in *pattern {
            let fresh = next.len();
            state = *next[state].entry(class_map[usize::from(byte)]).or_insert(fresh);
            if state == fresh {
                next.push(BTreeMap::new());
                ends.push(Vec::new());
            }
        }
        ends[state].push(number as u32);
    }
    let states = next.len();
    let mut dense = vec![0_usize; states * classes];
    let mut fail = vec![0_usize; states];
    let mut queue = VecDeque::from([0]);
    while let Some(state) = queue.pop_front() {
        let suffix = ends[fail[state]].clone();
        if state != 0 {
            ends[state].extend(suffix);
        }
        for class in 0..classes {
            let past = if state == 0 { 0 } else { dense[fail[state] * classes + class] };
            dense[state * classes + class] = match next[state].get(&(class as u8)) {
                Some(&child) => {
                    fail[child] = past;
                    queue.push_back(child);
                    child
                }
                None => past,
            };
        }
    }
    let mut order: Vec<usize> = (0..states).collect();
    order.sort_by_key(|&state| ends[state].is_empty());
    let mut number = vec![0; states];
    for (new, &old) in order.iter().enumerate() {
        number[old] = new;
    }
    let row = |state: usize| (number[state] * classes) as u32;
    let transitions: Vec<u8> = order
        .iter()
        .flat_map(|&state| dense[state * classes..(state + 1) * classes].to_vec())
        .flat_map(|state| row(state).to_le_bytes())
        .collect();
    let matches: Vec<DpiMatch> = order
        .iter()
        .filter_map(|&state| {
            let pattern = *ends[state].iter().min()?;
            Some(DpiMatch { pattern, count: ends[state].len() as u32 })
        })
        .collect();
    let mut image = Lines::zeroed(size_of::<DpiImage>());
    assert_eq!(image.append(&class_map), DPI_CLASS_MAP_OFFSET);
    assert_eq!(image.append(&transitions), DPI_TRANSITIONS_OFFSET);
    let bytes: Vec<u8> = matches.iter().flat_map(DpiMatch::emit).collect();
    let matches_offset = image.append(&bytes) as u64;
    let header = DpiImage {
        magic: DPI_MAGIC,
        states: states as u32,
        classes: classes as u32,
        match_states: matches.len() as u32,
        start: row(0),
        patterns: patterns.len() as u32,
        longest_bytes: patterns.iter().map(|pattern| pattern.len()).max().unwrap_or(0) as u32,
        match_limit: (matches.len() * classes) as u32,
        matches_offset,
        bytes: image.bytes().len() as u64,
    };
    image.bytes_mut()[..size_of::<DpiImage>()].copy_from_slice(&header.emit());
    image
}
