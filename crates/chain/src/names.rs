//! Suggestions for unknown names in a configuration.

/// Maximum length of compared names, in bytes. Comparison time grows with the square of the length.
const NAME_BYTES_MAX: usize = 64;

/// Returns the candidate with the smallest edit distance to `name`. Returns `None` if no candidate
/// is close enough for a typo.
///
/// ```
/// use godwit_chain::names::nearest;
///
/// assert_eq!(nearest("wrokers", ["workers", "pin"]), Some("workers"));
/// assert_eq!(nearest("colour", ["workers", "pin"]), None);
/// ```
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let typed = name.to_lowercase();
    // A name may differ by one edit, plus one edit per four letters.
    let distance_max = 1 + typed.chars().count() / 4;
    candidates
        .into_iter()
        .filter(|candidate| candidate.len() <= NAME_BYTES_MAX)
        .map(|candidate| {
            let lower = candidate.to_lowercase();
            // A prefix is also accepted, such as `headroom` for `headroom_bytes`.
            let is_prefix =
                typed.len().min(lower.len()) >= 3 && (lower.starts_with(&typed) || typed.starts_with(&lower));
            (strsim::osa_distance(&typed, &lower), is_prefix, candidate)
        })
        .filter(|(distance, is_prefix, candidate)| {
            *is_prefix || (*distance <= distance_max && *distance < candidate.chars().count())
        })
        .min_by_key(|(distance, ..)| *distance)
        .map(|(.., candidate)| candidate)
}

/// Returns the error message for an unknown name. It suggests the nearest candidate, or lists all
/// candidates if none is near.
pub fn unknown(what: &str, name: &str, candidates: &[&str]) -> String {
    let name = name.escape_debug();
    let near = nearest(&name.to_string(), candidates.iter().copied());
    match (near, candidates) {
        (Some(near), _) => format!("unknown {what} `{name}`, did you mean `{near}`?"),
        (None, []) => format!("unknown {what} `{name}`: none is defined"),
        (None, _) => format!("unknown {what} `{name}`: expected {}", list(candidates)),
    }
}

/// Joins names in the form "`a`, `b` or `c`". A long list ends with the number of omitted names.
fn list(names: &[&str]) -> String {
    const SHOWN: usize = 16;
    let quoted: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    match (quoted.as_slice(), names.len().saturating_sub(SHOWN)) {
        ([], _) => String::new(),
        ([one], _) => one.clone(),
        ([head @ .., last], 0) => format!("{} or {last}", head.join(", ")),
        (shown, more) => format!("{} or {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_the_intended_name() {
        let keys = ["workers", "pin", "burst_packets", "in_flight_packets"];
        assert_eq!(nearest("wrokers", keys), Some("workers"));
        assert_eq!(nearest("worker", keys), Some("workers"));
        assert_eq!(nearest("PIN", keys), Some("pin"));
        assert_eq!(nearest("inflight_packet", keys), Some("in_flight_packets"));
        assert_eq!(nearest("burst", keys), Some("burst_packets"));
        assert_eq!(nearest("workers_max", keys), Some("workers"));
        assert_eq!(nearest("colour", keys), None);
        assert_eq!(nearest("x", ["y"]), None, "any single letter is one edit away from any other");
        assert_eq!(nearest(&"w".repeat(1 << 20), keys), None);
    }

    #[test]
    fn message_suggests_or_lists_names() {
        assert_eq!(unknown("key", "wrokers", &["workers"]), "unknown key `wrokers`, did you mean `workers`?");
        assert_eq!(unknown("kind", "x", &["a", "bb", "ccc"]), "unknown kind `x`: expected `a`, `bb` or `ccc`");
        assert_eq!(unknown("class", "a\nb", &[]), "unknown class `a\\nb`: none is defined");
        let many: Vec<String> = (0..40).map(|index| format!("long-name-{index}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(unknown("name", "x", &many).ends_with("`long-name-15` or 24 more"));
    }
}
