//! Hexadecimal text.

/// Returns the bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses hexadecimal digits, two per byte.
///
/// # Panics
///
/// Panics if `text` has an odd length or another character.
pub fn unhex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "{text}: the number of digits is odd");
    let byte = |start: usize| u8::from_str_radix(&text[start..start + 2], 16).unwrap_or_else(|_| panic!("{text}"));
    (0..text.len()).step_by(2).map(byte).collect()
}
