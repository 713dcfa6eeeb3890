//! Replays the fuzz corpus of this crate: unchanged, truncated and damaged.

use godwit_test_support::corpus::{Variants, replay};
use godwit_wire::fuzz;

/// Changes that the replay makes to an input. They cover its headers.
const VARIANTS: Variants = Variants { bytes: 128, cut_step: 1, values: &[0x00, 0x01, 0x7f, 0x80, 0xff] };

#[test]
fn the_corpus_of_wire_parse_is_replayed() {
    replay("wire_parse", &VARIANTS, fuzz::wire_parse);
}

#[test]
fn the_corpus_of_wire_emit_is_replayed() {
    replay("wire_emit", &VARIANTS, fuzz::wire_emit);
}
