//! Progress messages.

/// Receives one line for each step of a bench.
pub type Progress<'a> = dyn FnMut(&str) + 'a;
