//! Fuzz corpus of this crate, replayed as it is, truncated, and damaged.

use std::process::Command;
use std::time::Instant;

use godwit_engine::fuzz;
use godwit_test_support::corpus::{Variants, mutate, replay};
use godwit_test_support::output_of;

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
fn the_corpus_of_hash_frame_is_replayed() {
    replay("hash_frame", &VARIANTS, fuzz::hash_frame);
}

#[test]
fn the_corpus_of_aes_frame_is_replayed() {
    replay("aes_frame", &VARIANTS, fuzz::aes_frame);
}

#[test]
fn the_corpus_of_responder_frame_is_replayed() {
    replay("responder_frame", &VARIANTS, fuzz::responder_frame);
}

#[test]
fn the_corpus_of_control_request_is_replayed() {
    replay("control_request", &VARIANTS, fuzz::control_request);
}

/// A function, the corpus of its packets, and its fuzz target.
type Mutated = (&'static str, &'static str, fn(&[u8]));

/// Functions that process packets.
const FUNCTIONS: [Mutated; 13] = [
    ("template", "ipv4_frame", fuzz::template_frame),
    ("echo", "ipv4_frame", fuzz::echo_frame),
    ("ipv4", "ipv4_frame", fuzz::ipv4_frame),
    ("ipv6", "ipv6_frame", fuzz::ipv6_frame),
    ("ipsec, inbound", "ipsec_inbound", fuzz::ipsec_inbound),
    ("ipsec, outbound", "ipsec_outbound", fuzz::ipsec_outbound),
    ("l2", "l2_frame", fuzz::l2_frame),
    ("dpi", "dpi_frame", fuzz::dpi_frame),
    ("ndn", "ndn_interest", fuzz::ndn_interest),
    ("hash", "hash_frame", fuzz::hash_frame),
    ("aes", "aes_frame", fuzz::aes_frame),
    ("responder", "responder_frame", fuzz::responder_frame),
    ("nids", "wire_parse", fuzz::nids_frame),
];

/// Mutated packets reach every function. The kernel and the reference implementation agree.
///
/// `GODWIT_MUTATED_PACKETS` is the number of packets for each function (default 10,000). Prints
/// the rows of the table in `fuzz/README.md`.
#[test]
fn mutated_packets_are_handled_safely() {
    let count = match std::env::var("GODWIT_MUTATED_PACKETS") {
        Ok(count) => count.parse().expect("GODWIT_MUTATED_PACKETS is a number"),
        Err(_) => 10_000,
    };
    let today = output_of(Command::new("date").arg("+%F"));
    let today = today.trim();
    // Two threads at a time, because a machine may have only two cores.
    for pair in FUNCTIONS.chunks(2) {
        std::thread::scope(|scope| {
            for &(name, corpus, target) in pair {
                scope.spawn(move || {
                    let start = Instant::now();
                    mutate(corpus, count, 26, target);
                    let seconds = start.elapsed().as_secs();
                    println!("| {today} | mutated packets of {name} | {seconds} s | {count} packets | nothing found |");
                });
            }
        });
    }
}
