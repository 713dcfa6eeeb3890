//! Search without an image: compares every pattern at every position.

use super::build::Pattern;

/// Returns all matches as pairs of pattern number and offset after the match, sorted.
pub fn find_all(patterns: &[Pattern], text: &[u8]) -> Vec<(u32, usize)> {
    let mut matches = Vec::new();
    for (id, pattern) in patterns.iter().enumerate() {
        for (start, window) in text.windows(pattern.bytes.len().max(1)).enumerate() {
            let same =
                if pattern.nocase { window.eq_ignore_ascii_case(&pattern.bytes) } else { window == pattern.bytes };
            if same {
                matches.push((id as u32, start + pattern.bytes.len()));
            }
        }
    }
    matches.sort_unstable();
    matches
}

#[cfg(test)]
mod tests {
    use super::super::{Frequencies, build};
    use super::*;
    use proptest::prelude::*;

    fn pattern() -> impl Strategy<Value = Pattern> {
        (prop::collection::vec(prop::sample::select(b"abAB\x00\xff/".to_vec()), 1..20), any::<bool>()).prop_map(
            |(mut bytes, nocase)| {
                if nocase {
                    bytes.make_ascii_lowercase();
                }
                Pattern { bytes, nocase }
            },
        )
    }

    proptest! {
        #[test]
        fn the_filter_finds_the_same(
            patterns in prop::collection::vec(pattern(), 1..40),
            text in prop::collection::vec(prop::sample::select(b"abAB\x00\xff/".to_vec()), 0..200),
            inserted in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..6),
            seed in any::<u64>(),
            trained in any::<bool>(),
        ) {
            let mut text = text;
            for (which, at) in inserted {
                let bytes = &patterns[which.index(patterns.len())].bytes;
                let at = at.index(text.len() + 1);
                text.splice(at..at, bytes.iter().copied());
            }
            let mut frequencies = Frequencies::new();
            if trained {
                frequencies.train(&text);
            }
            let image = build(&patterns, &frequencies, seed);
            let mut found = Vec::new();
            image.scan(&text, &mut |id, end| found.push((id, end)));
            found.sort_unstable();
            prop_assert_eq!(found, find_all(&patterns, &text));
        }
    }
}
