//! What was probably meant by an unknown name.

/// Longer names are never compared: nobody mistypes them, and the comparison is quadratic.
const NAME_BYTES_MAX: usize = 64;

/// The candidate that `name` was probably meant to be: closest by edit distance, where it is close enough.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let wanted = name.to_lowercase();
    // One slip in a short name, one more for every four letters.
    let distance_max = 1 + wanted.chars().count() / 4;
    candidates
        .into_iter()
        .filter(|candidate| candidate.len() <= NAME_BYTES_MAX)
        .map(|candidate| {
            let lower = candidate.to_lowercase();
            // The beginning of a name, or a name with more behind it: `headroom` for `headroom_bytes`.
            let begins =
                wanted.len().min(lower.len()) >= 3 && (lower.starts_with(&wanted) || wanted.starts_with(&lower));
            (strsim::osa_distance(&wanted, &lower), begins, candidate)
        })
        .filter(|(distance, begins, candidate)| {
            *begins || (*distance <= distance_max && *distance < candidate.chars().count())
        })
        .min_by_key(|(distance, ..)| *distance)
        .map(|(.., candidate)| candidate)
}

/// The sentence about an unknown name: what was probably meant, or else what there is.
pub fn unknown(what: &str, name: &str, candidates: &[&str]) -> String {
    let name = name.escape_debug();
    let near = nearest(&name.to_string(), candidates.iter().copied());
    match (near, candidates) {
        (Some(near), _) => format!("unknown {what} `{name}`, did you mean `{near}`?"),
        (None, []) => format!("unknown {what} `{name}`: there is none"),
        (None, _) => format!("unknown {what} `{name}`: there is {}", list(candidates)),
    }
}

/// `a`, `b` and `c`; a long list ends in the number of those left out.
fn list(names: &[&str]) -> String {
    const SHOWN: usize = 16;
    let quoted: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    match (quoted.as_slice(), names.len().saturating_sub(SHOWN)) {
        ([], _) => String::new(),
        ([one], _) => one.clone(),
        ([head @ .., last], 0) => format!("{} and {last}", head.join(", ")),
        (shown, more) => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised() {
        let keys = ["workers", "pin", "burst_packets", "in_flight_packets"];
        assert_eq!(nearest("wrokers", keys), Some("workers"));
        assert_eq!(nearest("worker", keys), Some("workers"));
        assert_eq!(nearest("PIN", keys), Some("pin"));
        assert_eq!(nearest("inflight_packet", keys), Some("in_flight_packets"));
        assert_eq!(nearest("burst", keys), Some("burst_packets"));
        assert_eq!(nearest("workers_max", keys), Some("workers"));
        assert_eq!(nearest("colour", keys), None);
        assert_eq!(nearest("x", ["y"]), None, "everything is one edit away from a single letter");
        assert_eq!(nearest(&"w".repeat(1 << 20), keys), None);
    }

    #[test]
    fn sentences() {
        assert_eq!(unknown("key", "wrokers", &["workers"]), "unknown key `wrokers`, did you mean `workers`?");
        assert_eq!(unknown("kind", "x", &["a", "bb", "ccc"]), "unknown kind `x`: there is `a`, `bb` and `ccc`");
        assert_eq!(unknown("class", "a\nb", &[]), "unknown class `a\\nb`: there is none");
        let many: Vec<String> = (0..40).map(|index| format!("long-name-{index}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(unknown("name", "x", &many).ends_with("`long-name-15` and 24 more"));
    }
}
