//! Packets that somebody made to do harm: every field of ESP and AH changed in turn, packets cut, nested and grown,
//! sequence numbers that came before or cannot be, and mutated packets in numbers.

mod ipsec_common;

use std::collections::BTreeMap;

use godwit_function::ipsec::suite::{Authentication, Protocol};
use ipsec_common::association::{Association, every};
use ipsec_common::gateway::{BATCH, Gateway, Passed};
use ipsec_common::hostile::{Link, header_at, is_right, links, mutate, with_lengths};
use ipsec_common::{Form, Random, build, forms, hex, name, process, set_checksum};

fn east(links: &[Link]) -> Gateway {
    Gateway::new(build(&links.iter().map(|link| link.association.inbound()).collect::<String>()))
}

fn said(gateway: &Gateway, passed: &Passed) -> &'static str {
    name(&*gateway.function, passed.outcome)
}

/// One SA of each protocol, family and way, of suites that authenticate.
fn few() -> Vec<Association> {
    let mut all = every();
    all.retain(|association| {
        let name = association.suite.name;
        ["cbc128_sha1", "gcm256", "chacha20_poly1305", "null_sha256", "ah_sha256", "ah_gmac128"].contains(&name)
    });
    all
}

#[test]
fn every_field_is_looked_at() {
    let mut random = Random(11);
    let links = links(few(), &mut random, &[90]);
    for form in forms() {
        let mut east = east(&links);
        for link in &links {
            let association = &link.association;
            let at = header_at(association);
            let sealed = &link.sealed[0];
            let is_ah = association.suite.protocol == Protocol::Ah;
            for byte in at..sealed.len() {
                let mut frame = sealed.clone();
                frame[byte] ^= 1 << random.below(8);
                let passed = east.pass(form, &[frame], true).remove(0);
                let said = said(&east, &passed);
                let expected: &[&str] = match (byte - at, is_ah) {
                    // The SPI: another SA, which may have seen the number, or none.
                    (0..4, false) | (4..8, true) => {
                        &["no_sa", "policy_discard", "authentication", "malformed", "keepalive", "replayed"]
                    }
                    // The sequence number of ESP and AH; an extended one that is guessed wrong is not authentic.
                    (4..8, false) | (8..12, true) => &["authentication", "replayed"],
                    // Length of AH.
                    (1, true) => &["malformed"],
                    _ => &["authentication"],
                };
                assert!(expected.contains(&said), "{form}: {association}: byte {}: {said}", byte - at);
            }
            // Nothing of that has kept the packet itself from getting through.
            let passed = east.pass(form, std::slice::from_ref(sealed), true).remove(0);
            assert_eq!(said(&east, &passed), "decrypted", "{form}: {association}");
            assert_eq!(hex(&passed.frame[14..]), hex(&link.plain[0]), "{form}: {association}");
            let again = east.pass(form, std::slice::from_ref(sealed), true).remove(0);
            assert_eq!(said(&east, &again), "replayed", "{form}: {association}");
        }
    }
}

/// Fields of the outer header and of UDP, where the packet must still say what it is.
#[test]
fn outer_headers_are_looked_at() {
    let mut random = Random(12);
    let mut few = few();
    // Packets may come again.
    few.retain(|association| !association.esn);
    few.iter_mut().for_each(|association| association.replay_window = 0);
    let links = links(few, &mut random, &[64]);
    for form in forms() {
        let mut east = east(&links);
        for link in &links {
            let sealed = &link.sealed[0];
            for byte in 14..header_at(&link.association) {
                let mut frame = sealed.clone();
                frame[byte] ^= 1 << random.below(8);
                if !link.association.source.is_ipv6() {
                    set_checksum(&mut frame[14..]);
                }
                let passed = east.pass(form, &[frame], true).remove(0);
                if said(&east, &passed) == "decrypted" {
                    assert!(is_right(link, 0, &passed.frame), "{form}: {}: byte {byte}", link.association);
                }
            }
        }
    }
}

#[test]
fn a_packet_cut_anywhere_is_dropped() {
    let mut random = Random(13);
    let links = links(few(), &mut random, &[33]);
    for form in forms() {
        let mut east = east(&links);
        for link in &links {
            let sealed = &link.sealed[0];
            for length in 0..sealed.len() {
                let passed = east.pass(form, &[sealed[..length].to_vec()], true).remove(0);
                let cut = said(&east, &passed);
                assert!(matches!(cut, "truncated" | "malformed"), "{form}: {}: {length}: {cut}", link.association);
                // And with lengths that agree with the cut.
                let front = header_at(&link.association);
                if length < front {
                    continue;
                }
                let agreed = with_lengths(&link.association, sealed[..length].to_vec());
                let passed = east.pass(form, &[agreed], true).remove(0);
                let cut = said(&east, &passed);
                let known = ["truncated", "malformed", "authentication", "keepalive", "no_sa", "policy_discard"];
                assert!(known.contains(&cut), "{form}: {}: {length}: {cut}", link.association);
            }
        }
    }
}

#[test]
fn numbers_that_came_before_or_are_too_old() {
    let mut random = Random(14);
    let mut few = few();
    few.retain(|association| association.tunnel && !association.udp);
    let links = links(few, &mut random, &[20; 400]);
    let form = *forms().last().unwrap();
    for link in &links {
        let mut east = east(std::slice::from_ref(link));
        let mut pass = |index: usize| {
            let passed = east.pass(form, &[link.sealed[index].clone()], false).remove(0);
            name(&*east.function, passed.outcome)
        };
        let at = &link.association;
        // The buffer has 64 places.
        assert_eq!(pass(100), "decrypted", "{at}");
        assert_eq!(pass(100 - 63), "decrypted", "{at}");
        // Behind the buffer, an extended number is taken for one of the next 2^32, which it is not.
        let old = if at.esn { "authentication" } else { "replayed" };
        assert_eq!(pass(100 - 64), old, "{at}");
        assert_eq!(pass(100 - 63), "replayed", "{at}");
        assert_eq!(pass(100), "replayed", "{at}");
        assert_eq!(pass(99), "decrypted", "{at}");
        assert_eq!(pass(399), "decrypted", "{at}");
        assert_eq!(pass(300), old, "{at}");
        assert_eq!(pass(399 - 63), "decrypted", "{at}");
        // In one batch, and backwards: the buffer does not care.
        let mut east = Gateway::new(build(&at.inbound()));
        let order: Vec<Vec<u8>> = (100..140).rev().chain(100..140).map(|index| link.sealed[index].clone()).collect();
        let passed = east.pass(form, &order, false);
        for (index, passed) in passed.iter().enumerate() {
            let expected = if index < 40 { "decrypted" } else { "replayed" };
            assert_eq!(said(&east, passed), expected, "{at}: {index}");
        }
    }
}

/// A number far ahead that is not authentic moves nothing.
#[test]
fn a_forged_number_moves_no_buffer() {
    let mut random = Random(15);
    let links = links(few(), &mut random, &[20; 3]);
    let form = *forms().last().unwrap();
    for link in &links {
        let mut east = east(std::slice::from_ref(link));
        let at = header_at(&link.association) + if link.association.suite.protocol == Protocol::Ah { 8 } else { 4 };
        for ahead in [1000u32, 0x7fff_ffff, 0xffff_ff00, u32::MAX] {
            let mut frame = link.sealed[0].clone();
            frame[at..at + 4].copy_from_slice(&ahead.to_be_bytes());
            let passed = east.pass(form, &[frame], true).remove(0);
            assert!(matches!(said(&east, &passed), "authentication" | "replayed"), "{}", link.association);
        }
        for sealed in &link.sealed {
            let passed = east.pass(form, std::slice::from_ref(sealed), true).remove(0);
            assert_eq!(said(&east, &passed), "decrypted", "{}", link.association);
        }
    }
}

/// An ESP packet inside another comes out as it went in, and is one for whoever it is for.
#[test]
fn nested_packets_open_one_layer_at_a_time() {
    let mut random = Random(16);
    let mut tunnels = few();
    tunnels.retain(|association| association.tunnel && !association.udp);
    for pair in tunnels.windows(2) {
        let inner = links(vec![pair[0].clone()], &mut random, &[50]).remove(0);
        let mut outer = pair[1].clone();
        // What it carries are the packets between the inner tunnel's ends.
        (outer.inner_source, outer.inner_destination) = (pair[0].source, pair[0].destination);
        let sealed = process(&*build(&outer.outbound()), Form::Ref, &inner.sealed).remove(0);
        let mut east = Gateway::new(build(&(outer.inbound() + &pair[0].inbound())));
        for form in forms() {
            let function = build(&(outer.inbound() + &pair[0].inbound()));
            east = Gateway::new(function);
            let first = east.pass(form, std::slice::from_ref(&sealed.frame), true).remove(0);
            assert_eq!(said(&east, &first), "decrypted", "{form}: {} in {outer}", pair[0]);
            assert_eq!(first.frame, inner.sealed[0], "{form}: {} in {outer}", pair[0]);
            let second = east.pass(form, &[first.frame], true).remove(0);
            assert_eq!(said(&east, &second), "decrypted", "{form}");
            assert_eq!(second.frame[14..], inner.plain[0], "{form}");
        }
        drop(east);
    }
}

/// The largest frames that fit, and what is longer than it says or shorter.
#[test]
fn oversized_packets() {
    let mut random = Random(17);
    let links = links(few(), &mut random, &[1800]);
    for form in forms() {
        let mut east = east(&links);
        for link in &links {
            let mut padded = link.sealed[0].clone();
            padded.extend(random.bytes(2048 - padded.len()));
            let passed = east.pass(form, &[padded], true).remove(0);
            assert_eq!(said(&east, &passed), "decrypted", "{form}: {}", link.association);
            assert_eq!(hex(&passed.frame[14..]), hex(&link.plain[0]), "{form}: {}", link.association);
            let mut lying = link.sealed[0].clone();
            let length_at = if link.association.source.is_ipv6() { 18 } else { 16 };
            lying[length_at..length_at + 2].copy_from_slice(&u16::MAX.to_be_bytes());
            let passed = east.pass(form, &[lying], true).remove(0);
            assert_eq!(said(&east, &passed), "truncated", "{form}: {}", link.association);
        }
    }
}

/// So many mutated packets: each is accounted for, what goes on is what somebody sent, and no buffer is lost.
fn mutated(packets: usize, seed: u64) {
    let mut random = Random(seed);
    let mut associations = every();
    // Of SAs that do not authenticate, anything may come out.
    associations.retain(|association| association.suite.authentication != Authentication::None);
    for (index, association) in associations.iter_mut().enumerate() {
        // Half of them take packets again, so that what is not changed where it matters opens every time.
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
        // Buffers that have seen everything say "replayed" and no more: now and then all SAs begin again.
        if batch % 64 == 63 {
            east = self::east(&links);
        }
        let count = BATCH.min(packets - done);
        let mut picked = Vec::with_capacity(count);
        let mut frames = Vec::with_capacity(count);
        for _ in 0..count {
            let link = random.below(links.len());
            let index = random.below(links[link].sealed.len());
            let mut frame = links[link].sealed[index].clone();
            let other = &links[random.below(links.len())].sealed[index];
            mutate(&mut random, &links[link].association, &mut frame, other);
            frame.truncate(2048);
            picked.push((link, index));
            frames.push(frame);
        }
        // Levels and native in turn. The reference is slow: it has a look now and then.
        let form = forms[1 + batch as usize % (forms.len() - 1)];
        let passed = east.pass(form, &frames, batch.is_multiple_of(16));
        for (&(link, index), passed) in picked.iter().zip(&passed) {
            let said = said(&east, passed);
            *counts.entry(said).or_default() += 1;
            match said {
                // A packet may have become that of another SA only by becoming all of one.
                "decrypted" => {
                    let is_known = is_right(&links[link], index, &passed.frame)
                        || links
                            .iter()
                            .any(|link| (0..link.plain.len()).any(|index| is_right(link, index, &passed.frame)));
                    assert!(is_known, "{}: {}", links[link].association, hex(&passed.frame));
                }
                // The EtherType was changed.
                "not_ip" | "not_ipv4" => {}
                _ => assert_eq!(passed.outcome.verdict, godwit_abi::VERDICT_DROP, "{said}"),
            }
        }
        done += count;
        batch += 1;
    }
    assert_eq!(counts.values().sum::<usize>(), packets);
    println!("{packets} mutated packets: {counts:?}");
    for reason in ["authentication", "decrypted", "malformed", "truncated", "replayed", "policy_discard", "fragment"] {
        assert!(counts.get(reason).is_some_and(|count| *count > 0), "no packet was {reason}: {counts:?}");
    }
}

#[test]
fn mutated_packets() {
    mutated(60_000, 18);
}

/// `cargo test --release -p godwit-function --test ipsec_bad_input -- --ignored --nocapture`
#[test]
#[ignore = "takes minutes"]
fn ten_million_mutated_packets() {
    mutated(10_000_000, 19);
}
