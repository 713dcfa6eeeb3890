//! Searches for many patterns at once. A rule is evaluated only if its pattern occurs.

use crate::literal::{Frequencies, Image, Pattern, build};
use std::collections::HashMap;

/// Patterns to search for, with the rules that contain them.
#[derive(Debug, Default)]
pub struct Search {
    image: Option<Image>,
    /// Index in `rules` of each pattern's first rule. The last entry is the length of `rules`.
    starts: Vec<u32>,
    rules: Vec<u32>,
}

impl Search {
    /// Builds a set from pairs of a pattern and a rule number.
    pub fn new(pairs: Vec<(Pattern, u32)>, frequencies: &Frequencies, seed: u64) -> Self {
        if pairs.is_empty() {
            return Self::default();
        }
        let mut numbers: HashMap<Pattern, usize> = HashMap::with_capacity(pairs.len());
        let mut patterns: Vec<Pattern> = Vec::new();
        let mut rules_of: Vec<Vec<u32>> = Vec::new();
        for (pattern, rule) in pairs {
            let number = *numbers.entry(pattern).or_insert_with_key(|pattern| {
                patterns.push(pattern.clone());
                rules_of.push(Vec::new());
                patterns.len() - 1
            });
            rules_of[number].push(rule);
        }
        let mut starts = Vec::with_capacity(patterns.len() + 1);
        let mut rules = Vec::new();
        for list in &rules_of {
            starts.push(rules.len() as u32);
            rules.extend_from_slice(list);
        }
        starts.push(rules.len() as u32);
        Self { image: Some(build(&patterns, frequencies, seed)), starts, rules }
    }

    /// Returns whether there is no pattern to search for.
    pub fn is_empty(&self) -> bool {
        self.image.is_none()
    }

    /// Calls `candidate` for each rule whose pattern occurs in `text`.
    pub fn scan(&self, text: &[u8], candidate: &mut dyn FnMut(u32)) {
        let Some(image) = &self.image else { return };
        image.scan(text, &mut |literal, _| {
            let (from, to) = (self.starts[literal as usize] as usize, self.starts[literal as usize + 1] as usize);
            self.rules[from..to].iter().for_each(|rule| candidate(*rule));
        });
    }

    /// Returns the length of the search image, in bytes.
    pub fn image_bytes(&self) -> usize {
        self.image.as_ref().map_or(0, Image::len_bytes)
    }

    /// Returns the number of byte strings.
    pub fn literals(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// Returns the length of the longest pattern, in bytes.
    pub fn longest_bytes(&self) -> usize {
        self.image.as_ref().map_or(0, Image::longest_bytes)
    }
}
