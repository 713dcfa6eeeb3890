//! Fuzz corpus of this crate, replayed as it is, truncated, and damaged.

use godwit_io::fuzz;
use godwit_test_support::corpus::{Variants, replay};

/// Changes cover the file header and the first records.
const VARIANTS: Variants = Variants { bytes: 96, cut_step: 1, values: &[0x00, 0x7f, 0xff] };

#[test]
fn the_corpus_of_pcap_read_is_replayed() {
    replay("pcap_read", &VARIANTS, fuzz::pcap_read);
}
