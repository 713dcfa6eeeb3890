//! Tests with random bytes: no input causes a panic, and parsers and emitters agree. The fuzz
//! targets check the same properties.

use godwit_wire::fuzz::{wire_emit, wire_parse};
use proptest::prelude::*;

/// Generates random bytes after a plausible start of Ethernet, VLAN and IP headers.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let start = prop::sample::select(vec![
        vec![0x08, 0x00, 0x45, 0x00, 0x00],
        vec![0x08, 0x00, 0x4f, 0x00, 0x00],
        vec![0x86, 0xdd, 0x60, 0x00, 0x00, 0x00, 0x00],
        vec![0x81, 0x00, 0x00, 0x05, 0x08, 0x00, 0x45, 0x00, 0x00],
        vec![0x88, 0xa8, 0x00, 0x05, 0x81, 0x00, 0x00, 0x06, 0x86, 0xdd, 0x60, 0x00, 0x00, 0x00, 0x00],
        vec![0x08, 0x06, 0x00, 0x01, 0x08, 0x00, 0x06, 0x04],
        vec![],
    ]);
    (any::<[u8; 12]>(), start, prop::collection::vec(byte(), 0..160))
        .prop_map(|(addresses, start, rest)| [&addresses[..], &start, &rest].concat())
}

/// Prefers small numbers and protocol numbers. Such bytes pass length checks and form sequences of
/// headers.
fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![any::<u8>(), 0u8..8, prop::sample::select(vec![0u8, 6, 17, 43, 44, 50, 51, 58, 60])]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn random_bytes(data in prop::collection::vec(any::<u8>(), 0..300)) {
        wire_parse(&data);
        wire_emit(&data);
    }

    #[test]
    fn likely_frames(data in frame()) {
        wire_parse(&data);
        wire_parse(&data[14.min(data.len())..]);
        wire_emit(&data);
        wire_emit(&data[14.min(data.len())..]);
    }
}
