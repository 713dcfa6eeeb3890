//! Reads the files of the fuzz corpus of this crate. Each file is read unchanged, truncated, and
//! with changed bytes.

use godwit_io::fuzz;
use godwit_test_support::corpus::{Variants, replay};

/// The changed bytes are in the file header and in the first records.
const VARIANTS: Variants = Variants { bytes: 96, cut_step: 1, values: &[0x00, 0x7f, 0xff] };

#[test]
fn the_corpus_of_pcap_read_is_replayed() {
    replay("pcap_read", &VARIANTS, fuzz::pcap_read);
}

#[test]
fn the_corpus_of_generate_is_replayed() {
    replay("generate", &VARIANTS, fuzz::generate);
}
