//! How a table of these names is laid out: how many components guides have, and what there must be room for.

use std::collections::HashMap;

use godwit_kernels::image::{NDN_DEPTHS, NDN_UNIT_BYTES, NdnRecord};

use super::hash::hash;
use super::names::Names;

/// Most components that guides are tried with.
const GUIDE_MAX: usize = 6;
/// About so many names are looked at to choose by.
const SAMPLE: usize = 1 << 18;

/// What a table must have room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Components of guides.
    pub(super) guide: u32,
    /// Names and guides.
    pub(super) entries: usize,
    /// Units of their records.
    pub(super) units: usize,
}

/// Where each component of a sound name ends.
pub(super) fn ends(name: &[u8]) -> impl Iterator<Item = usize> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let wide = |at: usize| if name[at] < 253 { 1 } else { 3 };
        if at >= name.len() {
            return None;
        }
        at += wide(at);
        let length = match name[at] {
            253 => usize::from(name[at + 1]) << 8 | usize::from(name[at + 2]),
            length => usize::from(length),
        };
        at += wide(at) + length;
        Some(at)
    })
}

/// Units of the record of a name of so many bytes.
pub(super) fn units(name_bytes: usize) -> usize {
    (size_of::<NdnRecord>() + name_bytes).div_ceil(NDN_UNIT_BYTES)
}

impl Shape {
    /// `guide`: as many components, whatever is best.
    pub(super) fn new(names: &Names, key: [u64; 2], guide: Option<u32>) -> Self {
        let guide = guide.unwrap_or_else(|| best_guide(names, key, SAMPLE)).clamp(1, NDN_DEPTHS);
        let mut guides: Vec<(u64, u32)> = Vec::new();
        let mut units_of_names = 0;
        for (name, _) in names.iter() {
            units_of_names += units(name.len());
            let mut ends = ends(name);
            if let Some(end) = ends.nth(guide as usize - 1)
                && ends.next().is_some()
            {
                guides.push((hash(key, &name[..end]), units(end) as u32));
            }
        }
        guides.sort_unstable();
        guides.dedup_by_key(|guide| guide.0);
        let units_of_guides: usize = guides.iter().map(|guide| guide.1 as usize).sum();
        Self { guide, entries: names.len() + guides.len(), units: units_of_names + units_of_guides }
    }
}

/// The number of components with which look-ups cost the fewest buckets and records, of Interests whose names have more
/// components than those in the table; found by about `sample` of the names.
fn best_guide(names: &Names, key: [u64; 2], sample: usize) -> u32 {
    let depths = depths(names);
    let deepest = depths.iter().rposition(|&count| count > 0).unwrap_or(0);
    let sampled = || names.iter().step_by(names.len() / sample + 1).map(|(name, _)| name);
    let cost = |guide: usize| {
        // Names are sampled, not guides: a few guides may have most names below. What is below a guide takes all names to know.
        let mut below: HashMap<u64, u32> = HashMap::new();
        for name in sampled() {
            if let Some(end) = ends(name).nth(guide - 1) {
                below.insert(hash(key, &name[..end]), 0);
            }
        }
        for (name, _) in names.iter() {
            let mut ends = ends(name);
            if let Some(end) = ends.nth(guide - 1)
                && let Some(deeper) = ends.count().checked_sub(1)
                && let Some(bits) = below.get_mut(&hash(key, &name[..end]))
            {
                *bits |= 1 << deeper;
            }
        }
        let shorter = depths[1..guide].iter().filter(|&&count| count > 0).count();
        let one = |name: &[u8]| match ends(name).nth(guide - 1) {
            // Its record, and a bucket where there is no guide.
            None => shorter + 2,
            Some(end) => {
                let bits = below.get(&hash(key, &name[..end])).copied().unwrap_or(0);
                shorter + 2 + usize::from(end < name.len()) + bits.count_ones() as usize
            }
        };
        sampled().map(one).sum::<usize>()
    };
    let guides = 1..=deepest.clamp(1, GUIDE_MAX);
    guides.min_by_key(|&guide| cost(guide)).unwrap_or(1) as u32
}

/// How many names have how many components.
fn depths(names: &Names) -> [u64; NDN_DEPTHS as usize + 1] {
    let mut depths = [0; NDN_DEPTHS as usize + 1];
    names.iter().for_each(|(name, _)| depths[ends(name).count()] += 1);
    depths
}

/// Buckets that a look-up visits, on average over names that have so many components more than those in the table.
#[derive(Clone, Copy, Debug)]
pub struct Probes {
    /// Guided, as the kernel does it.
    pub guided: f64,
    /// From the longest prefix to the shortest, numbers of components that no name has left out.
    pub longest_first: f64,
    /// By binary search over the numbers of components that some name has, with markers.
    pub binary: f64,
}

/// What searching costs by three ways to search; `guide` is that of a table of these names.
pub fn probes(names: &Names, guide: u32, more: usize) -> Probes {
    let (key, guide) = ([1, 2], guide as usize);
    let depths = depths(names);
    let used: Vec<usize> = (1..depths.len()).filter(|&depth| depths[depth] > 0).collect();
    let mut below: HashMap<u64, u32> = HashMap::new();
    let guide_of = |name: &[u8]| Some(hash(key, &name[..ends(name).nth(guide - 1)?]));
    for (name, _) in names.iter() {
        let deeper = ends(name).count().saturating_sub(guide);
        if let Some(at) = guide_of(name) {
            *below.entry(at).or_default() |= if deeper > 0 { 1 << (deeper - 1) } else { 0 };
        }
    }
    let (mut guided, mut longest_first, mut binary) = (0, 0, 0);
    for (name, _) in names.iter() {
        let own = ends(name).count();
        let asked = own + more;
        guided += used.iter().filter(|&&depth| depth < guide && depth <= asked).count();
        // A name that is longer than its guide in the table alone: the guide is of the name.
        if let Some(at) = guide_of(name) {
            let bits = below[&at] & (1u64 << (asked - guide).min(31)).wrapping_sub(1) as u32;
            guided += 1 + bits.count_ones() as usize;
        } else if asked >= guide {
            guided += 1;
        }
        longest_first += used.iter().filter(|&&depth| depth >= own && depth <= asked).count();
        let (mut low, mut high) = (0, used.iter().filter(|&&depth| depth <= asked).count());
        while low < high {
            let middle = (low + high) / 2;
            (low, high) = if used[middle] <= own { (middle + 1, high) } else { (low, middle) };
            binary += 1;
        }
    }
    let average = |sum: usize| sum as f64 / names.len().max(1) as f64;
    Probes { guided: average(guided), longest_first: average(longest_first), binary: average(binary) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Most names below one guide, which a sample of guides would miss.
    #[test]
    fn guides_are_chosen_alike_by_all_names_and_by_some() {
        let mut names = Names::new();
        for top in 0..500 {
            names.push_uri(format!("/top{top}").as_bytes(), 0).unwrap();
        }
        for site in 0..5000 {
            let path = ["", "/a", "/a/b", "/a/b/c"][site % 4];
            names.push_uri(format!("/com/site{site}{path}").as_bytes(), 0).unwrap();
        }
        for key in 0..8 {
            let guides = [usize::MAX, 500, 50].map(|sample| best_guide(&names, [key, 1], sample));
            assert_eq!(guides, [2; 3], "key {key}");
        }
    }
}
