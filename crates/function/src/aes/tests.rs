use super::*;
use crate::testing::{build_error, build_ok, run};

const KEY: &str = "key = '000102030405060708090a0b0c0d0e0f'";
const KEY_256: &str = "key = '000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f'";

fn function(cipher: &str, direction: &str) -> Arc<dyn Function> {
    let key = if cipher == "aes-128-cbc" { KEY } else { KEY_256 };
    build_ok(&KIND, &format!("cipher = '{cipher}'\ndirection = '{direction}'\n{key}"), &[])
}

/// Returns an IPv4 packet with options and data, and Ethernet padding.
fn ipv4_frame(data_bytes: u8) -> Vec<u8> {
    let mut frame = vec![2; 14];
    frame[12..].copy_from_slice(&[8, 0]);
    frame.extend([0x46, 0, 0, 24 + data_bytes, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 1, 1, 1, 1]);
    frame.extend(0..data_bytes);
    frame.extend([0xee; 5]);
    frame
}

/// Processes a frame in a buffer with room for the tag.
fn pass(function: &dyn Function, frame: &mut Vec<u8>) -> Outcome {
    let mut descriptor = Descriptor { length: frame.len() as u16, ..Descriptor::default() };
    frame.extend([0x5a; 16]);
    let outcome = function.run_ref(frame, &mut descriptor, function.properties().variant, 0);
    frame.truncate(descriptor.length.into());
    outcome
}

#[test]
fn decryption_returns_the_frame() {
    for cipher in ["aes-128-cbc", "chacha20-poly1305"] {
        let [encrypt, decrypt] = ["encrypt", "decrypt"].map(|direction| function(cipher, direction));
        let tag_bytes = if cipher == "aes-128-cbc" { 0 } else { 16 };
        for data_bytes in [0, 1, 15, 16, 17, 100] {
            let original = ipv4_frame(data_bytes);
            let mut frame = original.clone();
            assert_eq!(pass(&*encrypt, &mut frame), Outcome::verdict(VERDICT_DONE));
            assert_eq!(frame.len(), original.len() + tag_bytes);
            assert_eq!(frame[..38], original[..38], "headers with options are unchanged");
            let end = original.len();
            assert_eq!(frame[end - 5..end], [0xee; 5], "padding is unchanged");
            let whole = usize::from(data_bytes) / 16 * 16;
            assert!(data_bytes < 15 || tag_bytes == 0 && whole == 0 || frame[38..38 + 15] != original[38..38 + 15]);
            assert_eq!(pass(&*decrypt, &mut frame), Outcome::verdict(VERDICT_DONE));
            assert_eq!(frame, original);
        }
    }
}

#[test]
fn malformed_headers_are_dropped() {
    let function = function("aes-128-cbc", "encrypt");
    let original = ipv4_frame(20);
    let changes: [(usize, u8); 4] = [(14, 0x56), (14, 0x44), (17, 23), (17, 50)];
    for (at, byte) in changes {
        let mut frame = original.clone();
        frame[at] = byte;
        assert_eq!(run(&*function, &mut frame), Outcome::drop(DROP_MALFORMED), "byte {at} is {byte}");
    }
    for length in 0..58 {
        assert_eq!(run(&*function, &mut original[..length].to_vec()), Outcome::drop(DROP_MALFORMED), "{length} bytes");
    }
}

#[test]
fn configuration_is_checked_without_showing_keys() {
    let long = "00112233445566778899aabbccddeeff0123";
    for (stanza, part) in [
        ("", "cipher"),
        ("cipher = 'aes-128-cbc'", "key"),
        ("cipher = 'aes-256-cbc'\nkey = ''", "aes-256-cbc"),
        (
            &format!("cipher = 'aes-128-cbc'\nkey = '{long}'"),
            "key of aes must have 16 bytes (32 hex digits), but has 18",
        ),
        (&format!("cipher = 'chacha20-poly1305'\n{KEY}"), "must have 32 bytes"),
        (&format!("cipher = 'aes-128-cbc'\nkey = '{}'", "00".repeat(16)), "repeats a few bytes"),
        (&format!("cipher = 'aes-128-cbc'\n{KEY}\niv = '00'"), "iv of aes must have 16 bytes"),
        (&format!("cipher = 'aes-128-cbc'\n{KEY}\ndirection = 'both'"), "both"),
    ] {
        let error = build_error(&KIND, stanza, &[]).to_string();
        assert!(error.contains(part) && !error.contains("00112233"), "{error}");
    }
}

#[test]
fn operator_is_warned() {
    let warnings = function("aes-128-cbc", "encrypt").operate().unwrap().warnings();
    assert!(warnings.len() == 1 && warnings[0].contains("protects nothing"), "{warnings:?}");
}

#[test]
fn only_encryption_with_a_tag_needs_tailroom() {
    let tailroom = |cipher, direction| function(cipher, direction).properties().tailroom_bytes;
    assert_eq!(tailroom("aes-128-cbc", "encrypt"), 0);
    assert_eq!(tailroom("chacha20-poly1305", "encrypt"), 16);
    assert_eq!(tailroom("chacha20-poly1305", "decrypt"), 0);
}
