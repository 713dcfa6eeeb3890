//! Replays the fuzz corpus of this crate unchanged, truncated, and damaged.

use godwit_nids::fuzz;
use godwit_test_support::corpus::{Variants, replay};

const VARIANTS: Variants = Variants { bytes: 160, cut_step: 7, values: &[0x00, 0xff, b';'] };

#[test]
fn the_corpus_of_nids_rules_is_replayed() {
    replay("nids_rules", &Variants { bytes: 120, values: b";", ..VARIANTS }, fuzz::nids_rules);
}

#[test]
fn the_corpus_of_nids_streams_is_replayed() {
    replay("nids_streams", &VARIANTS, fuzz::nids_streams);
}

#[test]
fn the_corpus_of_nids_http_is_replayed() {
    replay("nids_http", &VARIANTS, fuzz::nids_http);
}
