//! Payloads in records: Base64 and printable text.

/// Maximum number of payload bytes in a record (Suricata's default for `payload-buffer-size`).
pub(super) const BYTES_MAX: usize = 4096;

/// Returns bytes in Base64, with padding.
pub(super) fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let six = word >> (18 - 6 * place) & 63;
            text.push(if place <= chunk.len() { char::from(LETTERS[six as usize]) } else { '=' });
        }
    }
    text
}

/// Returns bytes as text. Unprintable bytes become dots, but line ends are kept.
pub(super) fn printable(bytes: &[u8]) -> String {
    let letter = |byte: &u8| match byte {
        b'\n' | b'\r' | 0x20..=0x7e => char::from(*byte),
        _ => '.',
    };
    bytes.iter().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_every_length() {
        assert_eq!(base64(b""), "");
        assert_eq!(base64(b"G"), "Rw==");
        assert_eq!(base64(b"GO"), "R08=");
        assert_eq!(base64(b"GOOD"), "R09PRA==");
        assert_eq!(printable(b"a\0b\n"), "a.b\n");
    }
}
