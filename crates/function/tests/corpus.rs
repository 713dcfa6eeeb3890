//! Replays the fuzz corpus of this crate. Each input is also replayed truncated and damaged.

use godwit_function::ipv6::fuzz;
use godwit_test_support::corpus::{Variants, replay};

/// A route has 18 bytes, so inputs are cut between routes.
const VARIANTS: Variants = Variants { bytes: usize::MAX, cut_step: 18, values: &[0x00, 0x40, 0x80, 0xff] };

#[test]
fn the_corpus_of_ipv6_routes_is_replayed() {
    replay("ipv6_routes", &VARIANTS, fuzz::ipv6_routes);
}

#[test]
fn the_corpus_of_route_file_is_replayed() {
    replay("route_file", &VARIANTS, godwit_function::fuzz::route_file);
}

#[test]
fn the_corpus_of_pattern_file_is_replayed() {
    replay("pattern_file", &VARIANTS, godwit_function::fuzz::pattern_file);
}

#[test]
fn the_corpus_of_digest_file_is_replayed() {
    replay("digest_file", &VARIANTS, godwit_function::fuzz::digest_file);
}

#[test]
fn the_corpus_of_reassembly_is_replayed() {
    replay("reassembly", &VARIANTS, godwit_function::fuzz::reassembly);
}

#[test]
fn the_corpus_of_netlink_messages_is_replayed() {
    replay("netlink_messages", &VARIANTS, godwit_function::fuzz::netlink_messages);
}
