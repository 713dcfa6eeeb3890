//! Reference implementation, which compares every pattern with the text at every position.

use crate::Pattern;

/// Returns all matches, sorted, as pairs of the pattern number and the text offset after the match.
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
    use super::*;
    use crate::{Form, Frequencies, build};
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

    #[test]
    fn matches_at_the_ends_of_blocks_are_found() {
        let pattern = |bytes: &[u8]| Pattern { bytes: bytes.to_vec(), nocase: false };
        let patterns = [pattern(b"abcdefghijklmnop"), pattern(b"qrstuvwx"), pattern(b"yz12"), pattern(b"3")];
        let image = build(&patterns, &Frequencies::new(), 3);
        for length in [1_usize, 16, 63, 64, 65, 70, 71, 72, 73, 128, 4090, 4095, 4096, 4097, 4160, 8192, 9000] {
            for (end, id) in (0..6).flat_map(|back| (0..4).map(move |id| (length - back.min(length), id))) {
                let Some(start) = end.checked_sub(patterns[id].bytes.len()) else { continue };
                let mut text = vec![b'.'; length];
                text[start..end].copy_from_slice(&patterns[id].bytes);
                for form in Form::ALL.into_iter().filter(|form| form.is_supported()) {
                    let mut found = Vec::new();
                    image.scan_with(form, &text, |id, end| {
                        found.push((id, end));
                        true
                    });
                    assert_eq!(found, [(id as u32, end)], "{form:?}, {length} bytes");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn every_form_finds_the_same(
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
            let expected = find_all(&patterns, &text);
            for form in Form::ALL.into_iter().filter(|form| form.is_supported()) {
                let mut found = Vec::new();
                let whole = image.scan_with(form, &text, |id, end| {
                    found.push((id, end));
                    true
                });
                found.sort_unstable();
                prop_assert!(whole);
                prop_assert_eq!(&found, &expected, "{:?}", form);
                let mut first = None;
                let whole = image.scan_with(form, &text, |id, end| {
                    assert_eq!(first.replace((id, end)), None, "the search ends with the first match");
                    false
                });
                prop_assert_eq!(whole, expected.is_empty());
                prop_assert!(first.is_none_or(|first| expected.contains(&first)));
            }
        }
    }
}
