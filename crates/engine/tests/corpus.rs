//! Fuzz corpus of this crate, replayed as it is, truncated, and damaged.

use godwit_engine::fuzz;
use godwit_test_support::corpus::{Variants, replay};

/// Changes include protocol numbers of IPv4, IPv6 and their extension headers.
const VARIANTS: Variants =
    Variants { bytes: usize::MAX, cut_step: 1, values: &[0x00, 0x01, 0x04, 0x29, 0x32, 0x3b, 0x7f, 0x80, 0xff] };

#[test]
fn the_corpus_of_ipsec_inbound_is_replayed() {
    replay("ipsec_inbound", &VARIANTS, fuzz::ipsec_inbound);
}

#[test]
fn the_corpus_of_ipv6_frame_is_replayed() {
    replay("ipv6_frame", &VARIANTS, fuzz::ipv6_frame);
}

#[test]
fn the_corpus_of_l2_frame_is_replayed() {
    replay("l2_frame", &VARIANTS, fuzz::l2_frame);
}

#[test]
fn the_corpus_of_l2_macs_is_replayed() {
    replay("l2_macs", &VARIANTS, fuzz::l2_macs);
}

#[test]
fn the_corpus_of_ndn_names_is_replayed() {
    replay("ndn_names", &VARIANTS, fuzz::ndn_names);
}

#[test]
fn the_corpus_of_ndn_interest_is_replayed() {
    replay("ndn_interest", &VARIANTS, fuzz::ndn_interest);
}

#[test]
fn the_corpus_of_ipv4_frame_is_replayed() {
    replay("ipv4_frame", &VARIANTS, fuzz::ipv4_frame);
}

#[test]
fn the_corpus_of_dpi_frame_is_replayed() {
    replay("dpi_frame", &VARIANTS, fuzz::dpi_frame);
}

#[test]
fn the_corpus_of_ipsec_outbound_is_replayed() {
    replay("ipsec_outbound", &VARIANTS, fuzz::ipsec_outbound);
}

#[test]
fn the_corpus_of_responder_frame_is_replayed() {
    replay("responder_frame", &VARIANTS, fuzz::responder_frame);
}

#[test]
fn the_corpus_of_control_request_is_replayed() {
    replay("control_request", &VARIANTS, fuzz::control_request);
}
