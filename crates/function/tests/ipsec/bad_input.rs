//! Processes hostile packets. They have changed ESP and AH fields, wrong lengths, nested headers,
//! or repeated and invalid sequence numbers. Many others are mutated at random.

use std::collections::BTreeMap;

use godwit_function::ipsec::suite::{Authentication, Protocol};
use godwit_test_cases::ipsec::association::{Association, every};
use godwit_test_cases::ipsec::batch::{Form, build, forms, name, process};
use godwit_test_cases::ipsec::hostile::{Link, header_at, is_acceptable, links, mutate, with_lengths};
use godwit_test_support::Random;
use godwit_test_support::frame::set_ipv4_checksum;
use godwit_test_support::hex::hex;

use super::gateway::{BATCH, Gateway, Passed};

fn east(links: &[Link]) -> Gateway {
    Gateway::new(build(&links.iter().map(|link| link.association.inbound()).collect::<String>()))
}

fn verdict(gateway: &Gateway, passed: &Passed) -> &'static str {
    name(&*gateway.function, passed.outcome)
}

fn few() -> Vec<Association> {
    let mut all = every();
    all.retain(|association| {
        let name = association.suite.name;
        ["cbc128_sha1", "gcm256", "chacha20_poly1305", "null_sha256", "ah_sha256", "ah_gmac128"].contains(&name)
    });
    all
}

#[test]
fn a_change_of_any_esp_or_ah_byte_is_detected() {
    let mut random = Random::new(11);
    let links = links(few(), &mut random, &[90]);
    for form in forms() {
        let mut east = east(&links);
        for link in &links {
            let association = &link.association;
            let at = header_at(association);
            let encapsulated = &link.encapsulated[0];
            let is_ah = association.suite.protocol == Protocol::Ah;
            for byte in at..encapsulated.len() {
                let mut frame = encapsulated.clone();
                frame[byte] ^= 1 << random.below(8);
                let passed = east.pass(form, &[frame], true).remove(0);
                let verdict = verdict(&east, &passed);
                let expected: &[&str] = match (byte - at, is_ah) {
                    // The changed SPI belongs to no SA, or to another SA, which may already have
                    // received the sequence number.
                    (0..4, false) | (4..8, true) => {
                        &["no_sa", "policy_discard", "authentication", "malformed", "keepalive", "replayed"]
                    }
                    // The sequence number is changed. An extended number that is inferred wrongly
                    // fails authentication.
                    (4..8, false) | (8..12, true) => &["authentication", "replayed"],
                    // The length field of AH is changed.
                    (1, true) => &["malformed"],
                    _ => &["authentication"],
                };
                assert!(expected.contains(&verdict), "{form}: {association}: byte {}: {verdict}", byte - at);
            }
            // The original packet still passes.
            let passed = east.pass(form, std::slice::from_ref(encapsulated), true).remove(0);
            assert_eq!(verdict(&east, &passed), "decrypted", "{form}: {association}");
            assert_eq!(hex(&passed.frame[14..]), hex(&link.plain[0]), "{form}: {association}");
            let again = east.pass(form, std::slice::from_ref(encapsulated), true).remove(0);
            assert_eq!(verdict(&east, &again), "replayed", "{form}: {association}");
        }
    }
}

/// A changed outer header or UDP header must not change the decapsulated packet.
#[test]
fn changes_of_outer_headers_do_not_affect_the_packet() {
    let mut random = Random::new(12);
    let mut few = few();
    // These SAs have no replay protection, so packets can be repeated.
    few.retain(|association| !association.esn);
    few.iter_mut().for_each(|association| association.replay_window = 0);
    let links = links(few, &mut random, &[64]);
    for form in forms() {
        let mut east = east(&links);
        for link in &links {
            let encapsulated = &link.encapsulated[0];
            for byte in 14..header_at(&link.association) {
                let mut frame = encapsulated.clone();
                frame[byte] ^= 1 << random.below(8);
                if !link.association.source.is_ipv6() {
                    set_ipv4_checksum(&mut frame[14..]);
                }
                let passed = east.pass(form, &[frame], true).remove(0);
                if verdict(&east, &passed) == "decrypted" {
                    assert!(is_acceptable(link, 0, &passed.frame), "{form}: {}: byte {byte}", link.association);
                }
            }
        }
    }
}

#[test]
fn truncated_packets_are_dropped() {
    let mut random = Random::new(13);
    let links = links(few(), &mut random, &[33]);
    for form in forms() {
        let mut east = east(&links);
        for link in &links {
            let encapsulated = &link.encapsulated[0];
            for length in 0..encapsulated.len() {
                let passed = east.pass(form, &[encapsulated[..length].to_vec()], true).remove(0);
                let cut = verdict(&east, &passed);
                assert!(matches!(cut, "truncated" | "malformed"), "{form}: {}: {length}: {cut}", link.association);
                // The packet is truncated, and its length fields match the new length.
                let front = header_at(&link.association);
                if length < front {
                    continue;
                }
                let agreed = with_lengths(&link.association, encapsulated[..length].to_vec());
                let passed = east.pass(form, &[agreed], true).remove(0);
                let cut = verdict(&east, &passed);
                let known = ["truncated", "malformed", "authentication", "keepalive", "no_sa", "policy_discard"];
                assert!(known.contains(&cut), "{form}: {}: {length}: {cut}", link.association);
            }
        }
    }
}

#[test]
fn repeated_and_late_numbers_are_dropped() {
    let mut random = Random::new(14);
    let mut few = few();
    few.retain(|association| association.tunnel && !association.udp);
    let links = links(few, &mut random, &[20; 400]);
    let form = *forms().last().unwrap();
    for link in &links {
        let mut east = east(std::slice::from_ref(link));
        let mut pass = |index: usize| {
            let passed = east.pass(form, &[link.encapsulated[index].clone()], false).remove(0);
            name(&*east.function, passed.outcome)
        };
        let at = &link.association;
        // The replay window covers 64 sequence numbers.
        assert_eq!(pass(100), "decrypted", "{at}");
        assert_eq!(pass(100 - 63), "decrypted", "{at}");
        // The number lies before the replay window. An extended number is then inferred as one of
        // the next 2^32 numbers, which fails authentication.
        let old = if at.esn { "authentication" } else { "replayed" };
        assert_eq!(pass(100 - 64), old, "{at}");
        assert_eq!(pass(100 - 63), "replayed", "{at}");
        assert_eq!(pass(100), "replayed", "{at}");
        assert_eq!(pass(99), "decrypted", "{at}");
        assert_eq!(pass(399), "decrypted", "{at}");
        assert_eq!(pass(300), old, "{at}");
        assert_eq!(pass(399 - 63), "decrypted", "{at}");
        // Packets may arrive in any order within the replay window.
        let mut east = Gateway::new(build(&at.inbound()));
        let order: Vec<Vec<u8>> =
            (100..140).rev().chain(100..140).map(|index| link.encapsulated[index].clone()).collect();
        let passed = east.pass(form, &order, false);
        for (index, passed) in passed.iter().enumerate() {
            let expected = if index < 40 { "decrypted" } else { "replayed" };
            assert_eq!(verdict(&east, passed), expected, "{at}: {index}");
        }
    }
}

/// A forged packet with a high sequence number must not move the replay window.
#[test]
fn a_forged_number_does_not_move_the_window() {
    let mut random = Random::new(15);
    let links = links(few(), &mut random, &[20; 3]);
    let form = *forms().last().unwrap();
    for link in &links {
        let mut east = east(std::slice::from_ref(link));
        let at = header_at(&link.association) + if link.association.suite.protocol == Protocol::Ah { 8 } else { 4 };
        for ahead in [1000u32, 0x7fff_ffff, 0xffff_ff00, u32::MAX] {
            let mut frame = link.encapsulated[0].clone();
            frame[at..at + 4].copy_from_slice(&ahead.to_be_bytes());
            let passed = east.pass(form, &[frame], true).remove(0);
            assert!(matches!(verdict(&east, &passed), "authentication" | "replayed"), "{}", link.association);
        }
        for encapsulated in &link.encapsulated {
            let passed = east.pass(form, std::slice::from_ref(encapsulated), true).remove(0);
            assert_eq!(verdict(&east, &passed), "decrypted", "{}", link.association);
        }
    }
}

/// One SA decapsulates a nested ESP packet to the inner ESP packet. Another SA then decapsulates
/// this inner packet.
#[test]
fn nested_packets_are_decapsulated_one_layer_at_a_time() {
    let mut random = Random::new(16);
    let mut tunnels = few();
    tunnels.retain(|association| association.tunnel && !association.udp);
    for pair in tunnels.windows(2) {
        let inner = links(vec![pair[0].clone()], &mut random, &[50]).remove(0);
        let mut outer = pair[1].clone();
        // The outer tunnel carries the packets of the inner tunnel.
        (outer.inner_source, outer.inner_destination) = (pair[0].source, pair[0].destination);
        let encapsulated = process(&*build(&outer.outbound()), Form::Ref, &inner.encapsulated).remove(0);
        let mut east = Gateway::new(build(&(outer.inbound() + &pair[0].inbound())));
        for form in forms() {
            let function = build(&(outer.inbound() + &pair[0].inbound()));
            east = Gateway::new(function);
            let first = east.pass(form, std::slice::from_ref(&encapsulated.frame), true).remove(0);
            assert_eq!(verdict(&east, &first), "decrypted", "{form}: {} in {outer}", pair[0]);
            assert_eq!(first.frame, inner.encapsulated[0], "{form}: {} in {outer}", pair[0]);
            let second = east.pass(form, &[first.frame], true).remove(0);
            assert_eq!(verdict(&east, &second), "decrypted", "{form}");
            assert_eq!(second.frame[14..], inner.plain[0], "{form}");
        }
        drop(east);
    }
}

/// Frames of maximum length with padding pass. A packet is dropped if its length field exceeds the
/// frame.
#[test]
fn accepts_padding_and_drops_packets_with_a_length_beyond_the_frame() {
    let mut random = Random::new(17);
    let links = links(few(), &mut random, &[1800]);
    for form in forms() {
        let mut east = east(&links);
        for link in &links {
            let mut padded = link.encapsulated[0].clone();
            padded.extend(random.bytes(2048 - padded.len()));
            let passed = east.pass(form, &[padded], true).remove(0);
            assert_eq!(verdict(&east, &passed), "decrypted", "{form}: {}", link.association);
            assert_eq!(hex(&passed.frame[14..]), hex(&link.plain[0]), "{form}: {}", link.association);
            let mut too_long = link.encapsulated[0].clone();
            let length_at = if link.association.source.is_ipv6() { 18 } else { 16 };
            too_long[length_at..length_at + 2].copy_from_slice(&u16::MAX.to_be_bytes());
            let passed = east.pass(form, &[too_long], true).remove(0);
            assert_eq!(verdict(&east, &passed), "truncated", "{form}: {}", link.association);
        }
    }
}

/// Processes mutated packets. Checks that every packet is counted, that every decapsulated packet
/// was sent, and that every buffer is freed.
fn mutated(packets: usize, seed: u64) {
    let mut random = Random::new(seed);
    let mut associations = every();
    // An SA without authentication may decapsulate a mutated packet to anything.
    associations.retain(|association| association.suite.authentication != Authentication::None);
    for (index, association) in associations.iter_mut().enumerate() {
        // Half of the SAs accept repeated packets. Packets with harmless mutations are therefore
        // decapsulated every time.
        if index % 2 == 0 && !association.esn {
            association.replay_window = 0;
        }
    }
    let links = links(associations, &mut random, &[0, 1, 40, 64, 90, 130, 200, 300]);
    let mut east = east(&links);
    let forms = forms();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut done = 0;
    let mut batch = 0u64;
    while done < packets {
        // The replay windows would soon reject all packets, so new SAs replace the old ones
        // regularly.
        if batch % 64 == 63 {
            east = self::east(&links);
        }
        let count = BATCH.min(packets - done);
        let mut picked = Vec::with_capacity(count);
        let mut frames = Vec::with_capacity(count);
        for _ in 0..count {
            let link = random.below(links.len());
            let index = random.below(links[link].encapsulated.len());
            let mut frame = links[link].encapsulated[index].clone();
            let other = &links[random.below(links.len())].encapsulated[index];
            mutate(&mut random, &links[link].association, &mut frame, other);
            frame.truncate(2048);
            picked.push((link, index));
            frames.push(frame);
        }
        // The CPU levels and the native form take turns. The reference implementation is slow and
        // checks only every 16th batch.
        let form = forms[1 + batch as usize % (forms.len() - 1)];
        let passed = east.pass(form, &frames, batch.is_multiple_of(16));
        for (&(link, index), passed) in picked.iter().zip(&passed) {
            let verdict = verdict(&east, passed);
            *counts.entry(verdict).or_default() += 1;
            match verdict {
                // The packet may also be a complete copy of a packet of another SA.
                "decrypted" => {
                    let is_known = is_acceptable(&links[link], index, &passed.frame)
                        || links
                            .iter()
                            .any(|link| (0..link.plain.len()).any(|index| is_acceptable(link, index, &passed.frame)));
                    assert!(is_known, "{}: {}", links[link].association, hex(&passed.frame));
                }
                // The mutation changed the EtherType.
                "not_ip" => {}
                _ => assert_eq!(passed.outcome.verdict, godwit_abi::VERDICT_DROP, "{verdict}"),
            }
        }
        done += count;
        batch += 1;
    }
    assert_eq!(counts.values().sum::<usize>(), packets);
    println!("{packets} mutated packets: {counts:?}");
    for reason in ["authentication", "decrypted", "malformed", "truncated", "replayed", "policy_discard", "fragment"] {
        assert!(counts.get(reason).is_some_and(|count| *count > 0), "no packet had the result {reason}: {counts:?}");
    }
}

#[test]
fn mutated_packets_are_handled_safely() {
    mutated(60_000, 18);
}

/// `cargo test --release -p godwit-function --test ipsec bad_input -- --ignored --nocapture`
#[test]
#[ignore = "takes minutes"]
fn ten_million_mutated_packets_are_handled_safely() {
    mutated(10_000_000, 19);
}
