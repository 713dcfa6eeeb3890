//! Computes the required capacity of a name table, and the best guide length. A guide is a name
//! prefix whose record lists the lengths of all names that begin with it.

use std::collections::HashMap;

use godwit_kernels::image::{NDN_DEPTHS, NDN_UNIT_BYTES, NdnRecord};

use super::hash::hash;
use super::names::Names;

/// Maximum prefix length that the estimate considers, in name components.
const GUIDE_MAX: usize = 6;
/// Approximate number of names that the estimate examines.
const SAMPLE: usize = 1 << 18;

/// Required capacity of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Number of components in each guide. A guide is a name prefix whose record lists the lengths
    /// of longer names.
    pub(super) guide: u32,
    /// Number of table entries, for names and for name prefixes.
    pub(super) entries: usize,
    /// Total size of all records, in units of 64 bytes.
    pub(super) units: usize,
}

/// Returns the end offset of each component of a valid name.
pub(super) fn ends(name: &[u8]) -> impl Iterator<Item = usize> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let number_bytes = |at: usize| if name[at] < 253 { 1 } else { 3 };
        if at >= name.len() {
            return None;
        }
        at += number_bytes(at);
        let length = match name[at] {
            253 => usize::from(name[at + 1]) << 8 | usize::from(name[at + 2]),
            length => usize::from(length),
        };
        at += number_bytes(at) + length;
        Some(at)
    })
}

/// Returns the size of a name's record in 64-byte units.
pub(super) fn units(name_bytes: usize) -> usize {
    (size_of::<NdnRecord>() + name_bytes).div_ceil(NDN_UNIT_BYTES)
}

impl Shape {
    /// Computes the required table capacity for a list of names. If `guide` is `None`, also chooses
    /// its best value.
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

/// Estimates the prefix length with which lookups read the fewest buckets and records. The estimate
/// examines about `sample` names.
fn best_guide(names: &Names, key: [u64; 2], sample: usize) -> u32 {
    let depths = depths(names);
    let deepest = depths.iter().rposition(|&count| count > 0).unwrap_or(0);
    let sampled = || names.iter().step_by(names.len() / sample + 1).map(|(name, _)| name);
    let cost = |guide: usize| {
        // A prefix of many names occurs often in the sample, and thus has more weight. The whole
        // table determines the name lengths below each prefix.
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
            // The name is shorter than the prefix. The lookup reads the name's record and one
            // bucket without a match.
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

/// Returns the number of names for each number of components.
fn depths(names: &Names) -> [u64; NDN_DEPTHS as usize + 1] {
    let mut depths = [0; NDN_DEPTHS as usize + 1];
    names.iter().for_each(|(name, _)| depths[ends(name).count()] += 1);
    depths
}

/// Average number of buckets that a lookup reads, for three search methods.
#[derive(Clone, Copy, Debug)]
pub struct Probes {
    /// Number of buckets that the kernel's method reads. Records of certain prefixes list the
    /// lengths of longer names, so the lookup tries only these lengths.
    pub guided: f64,
    /// Number of buckets read if prefixes are tried from the longest to the shortest. Lengths that
    /// no name has are skipped.
    pub longest_first: f64,
    /// Number of buckets read if a binary search finds the prefix length. The table then needs
    /// additional entries.
    pub binary: f64,
}

/// Returns the average number of buckets that a lookup reads, for three search methods. `guide` is
/// the number of components in each guide, a name prefix whose record lists the lengths of longer
/// names. Each looked-up name extends a name in the table by `more` components.
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
        let requested = own + more;
        guided += used.iter().filter(|&&depth| depth < guide && depth <= requested).count();
        // The record of the prefix lists the lengths of all names that begin with it. The bit mask
        // keeps only lengths up to that of the Interest.
        if let Some(at) = guide_of(name) {
            let bits = below[&at] & (1u64 << (requested - guide).min(31)).wrapping_sub(1) as u32;
            guided += 1 + bits.count_ones() as usize;
        } else if requested >= guide {
            guided += 1;
        }
        longest_first += used.iter().filter(|&&depth| depth >= own && depth <= requested).count();
        let (mut low, mut high) = (0, used.iter().filter(|&&depth| depth <= requested).count());
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

    /// Most names of this table begin with the same prefix. A sample of prefixes instead of names
    /// would probably miss this prefix.
    #[test]
    fn guide_does_not_depend_on_the_sample() {
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
