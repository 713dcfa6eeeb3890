//! Error in the declaration of a packet function.

/// Problem in the declaration of a packet function, described for its author.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// Line of the C file, counted from 1.
    pub line: usize,
    /// Problem and remedy, in one sentence.
    pub message: String,
}

/// Returns the end of an error message about an unknown name. It suggests the most similar of the
/// `known` names, or lists all of them.
pub(crate) fn suggest(unknown: &str, known: &[&str]) -> String {
    let similar = known.iter().map(|name| (strsim::damerau_levenshtein(unknown, name), name)).min();
    match similar {
        Some((distance, name)) if distance <= 1 + unknown.len() / 4 => format!("did you mean `{name}`?"),
        Some(_) => format!("known are `{}`", known.join("`, `")),
        None => "there are none".to_owned(),
    }
}
