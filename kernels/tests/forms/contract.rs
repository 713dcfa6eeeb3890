//! Every kernel at every CPU level, compared with expectations written from its contract.

use godwit_abi::Outcome;
use godwit_kernels::image::{IPV4_HOP_BLACKHOLE, IPV4_HOP_LOCAL};
use godwit_kernels::{DPI, ECHO, IPV4, Level, TEMPLATE, levels, natives};

use crate::common::batch::Batch;
use crate::common::frames::ones_sum;
use crate::common::tables::dpi_image;
use crate::common::{CASES, Case, ECHO_PORTS, PATTERNS, ROUTES, next_hops, random_frames};

fn supported_levels() -> Vec<&'static Level> {
    let supported: Vec<_> = levels().iter().filter(|level| level.supported()).collect();
    assert!(!supported.is_empty(), "the CPU supports no level");
    supported
}

/// Returns the expected outcome and frame of a packet.
fn expected(case: &Case, frame: &[u8]) -> (Outcome, Vec<u8>) {
    match case.kernel {
        TEMPLATE => expected_template(frame),
        ECHO => expected_echo(frame),
        IPV4 => expected_ipv4(frame),
        DPI => (expected_dpi(frame), frame.to_vec()),
        other => panic!("no expectation for kernel {other}"),
    }
}

fn swapped(frame: &[u8]) -> Vec<u8> {
    [&frame[6..12], &frame[..6], &frame[12..]].concat()
}

fn expected_template(frame: &[u8]) -> (Outcome, Vec<u8>) {
    if frame.len() < 14 {
        return (Outcome::drop(0), frame.to_vec());
    }
    (Outcome::verdict(0), swapped(frame))
}

fn expected_echo(frame: &[u8]) -> (Outcome, Vec<u8>) {
    let Some(number) = frame.get(42..46) else { return (Outcome::drop(0), frame.to_vec()) };
    let number = u32::from_be_bytes(number.try_into().unwrap());
    let port = (number % ECHO_PORTS) as u16;
    (Outcome { verdict: 0, reason: 0, port, value: 0 }, swapped(frame))
}

/// Returns the EtherType and the offset of the payload, or `None` if the frame is too short.
fn l3(frame: &[u8]) -> Option<(u16, usize)> {
    let ether_type = u16::from_be_bytes(frame.get(12..14)?.try_into().unwrap());
    if ether_type != 0x8100 {
        return Some((ether_type, 14));
    }
    Some((u16::from_be_bytes(frame.get(16..18)?.try_into().unwrap()), 18))
}

fn expected_ipv4(frame: &[u8]) -> (Outcome, Vec<u8>) {
    let mut frame = frame.to_vec();
    let outcome = route_ipv4(&mut frame);
    (outcome, frame)
}

/// Applies the decision table in `ipv4.h` to a frame.
fn route_ipv4(frame: &mut [u8]) -> Outcome {
    let Some((ether_type, offset)) = l3(frame) else { return Outcome::drop(0) };
    if ether_type != 0x0800 {
        return Outcome::verdict(3);
    }
    let (ethernet, ip) = frame.split_at_mut(offset);
    if ip.len() < 20 {
        return Outcome::drop(0);
    }
    let header_bytes = usize::from(ip[0] & 15) * 4;
    let total_length = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    if ip[0] >> 4 != 4 || header_bytes < 20 || total_length < header_bytes {
        return Outcome::drop(1);
    }
    if total_length > ip.len() {
        return Outcome::drop(0);
    }
    if ones_sum(&ip[..header_bytes]) != 0xffff {
        return Outcome::drop(2);
    }
    let destination = u32::from_be_bytes(ip[16..20].try_into().unwrap());
    if matches!(ip[12], 0 | 127 | 224..) || matches!(ip[16], 0 | 127 | 224..) {
        return Outcome::drop(4);
    }
    if ethernet[0] & 1 != 0 {
        return Outcome::drop(6);
    }
    let route = ROUTES.iter().filter(|route| route.covers(destination)).max_by_key(|route| route.length);
    let Some(route) = route else { return Outcome::verdict(4) };
    let next_hop = next_hops()[route.next_hop as usize];
    let [flags, port, destination @ ..] = next_hop.to.to_le_bytes();
    if flags & IPV4_HOP_LOCAL != 0 {
        return Outcome { value: route.next_hop, ..Outcome::verdict(1) };
    }
    if flags & IPV4_HOP_BLACKHOLE != 0 {
        return Outcome::drop(3);
    }
    if ip[8] <= 1 {
        return Outcome::verdict(2);
    }
    ip[8] -= 1;
    ip[10..12].fill(0);
    let checksum = !ones_sum(&ip[..header_bytes]);
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    ethernet[..6].copy_from_slice(&destination);
    ethernet[..6].reverse();
    ethernet[6..12].copy_from_slice(&next_hop.from.to_be_bytes()[..6]);
    Outcome { verdict: 0, reason: 0, port: port.into(), value: route.next_hop }
}

fn expected_dpi(frame: &[u8]) -> Outcome {
    let Some(payload) = payload(frame) else { return Outcome::drop(0) };
    let mut found = Vec::new();
    for end in 1..=payload.len() {
        for (number, pattern) in PATTERNS.iter().enumerate() {
            if payload[..end].ends_with(pattern) {
                found.push(number as u32);
            }
        }
    }
    let Some(&first) = found.first() else { return Outcome::verdict(0) };
    Outcome { verdict: 1, reason: 0, port: found.len() as u16, value: first }
}

/// Returns the payload of a frame by the table in `payload.h`, or `None` if the frame is truncated.
fn payload(frame: &[u8]) -> Option<&[u8]> {
    let (ether_type, offset) = l3(frame)?;
    let ip = &frame[offset..];
    match ether_type {
        0x0800 => {
            ip.get(..20)?;
            let header_bytes = usize::from(ip[0] & 15) * 4;
            let total_length = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
            if ip[0] >> 4 != 4 || header_bytes < 20 || total_length < header_bytes {
                return Some(ip);
            }
            let l4 = &ip.get(..total_length)?[header_bytes..];
            let fragment = u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff != 0;
            if fragment { Some(l4) } else { l4_payload(ip[9], l4) }
        }
        0x86dd => {
            ip.get(..40)?;
            if ip[0] >> 4 != 6 {
                return Some(ip);
            }
            let total_length = 40 + usize::from(u16::from_be_bytes([ip[4], ip[5]]));
            l4_payload(ip[6], &ip.get(..total_length)?[40..])
        }
        _ => Some(ip),
    }
}

fn l4_payload(protocol: u8, l4: &[u8]) -> Option<&[u8]> {
    match protocol {
        6 => {
            l4.get(..20)?;
            match usize::from(l4[12] >> 4) * 4 {
                ..20 => Some(l4),
                header_bytes => l4.get(header_bytes..),
            }
        }
        17 => l4.get(8..),
        _ => Some(l4),
    }
}

#[test]
fn every_kernel_fulfils_its_contract_at_every_level() {
    for level in supported_levels() {
        for case in CASES.iter() {
            for (count, seed) in [(0, 1), (1, 2), (2, 3), (31, 4), (32, 5), (33, 6), (4096, 7)] {
                let frames = random_frames(count, seed);
                let before = Batch::new(&frames);
                let mut batch = before.clone();
                batch.run(level, case.kernel, case.variant, &case.image);
                let mut arena = before.arena.clone();
                for (index, frame) in frames.iter().enumerate() {
                    let (outcome, frame) = expected(case, frame);
                    let context = format!("{} at {}, packet {index} of {count}", case.name, level.name);
                    assert_eq!(batch.outcomes[index], outcome, "{context}: {:02x?}", frames[index]);
                    assert_eq!(batch.frame(index), frame, "{context}");
                    let start = before.descriptors[index].frame_offset();
                    arena.bytes_mut()[start..start + frame.len()].copy_from_slice(&frame);
                }
                assert_eq!(batch.descriptors, before.descriptors, "{} moved a frame", case.name);
                assert!(batch.arena.bytes() == arena.bytes(), "{} wrote beyond a frame", case.name);
            }
        }
    }
}

/// The random frames cause every verdict and every drop reason of every contract.
#[test]
fn random_frames_reach_every_outcome() {
    let frames = random_frames(4096, 7);
    for (kernel, verdicts, reasons) in [(TEMPLATE, 1, 1), (ECHO, 1, 1), (IPV4, 5, 5), (DPI, 2, 1)] {
        let case = CASES.iter().find(|case| case.kernel == kernel).unwrap();
        let outcomes: Vec<Outcome> = frames.iter().map(|frame| expected(case, frame).0).collect();
        for verdict in 0..verdicts {
            assert!(outcomes.iter().any(|outcome| outcome.verdict == verdict), "{}: verdict {verdict}", case.name);
        }
        for reason in 0..reasons {
            assert!(outcomes.contains(&Outcome::drop(reason)), "{}: reason {reason}", case.name);
        }
    }
}

/// The number of matches saturates at the maximum of the field in the outcome.
#[test]
fn dpi_counts_up_to_65535_matches() {
    let frame = [&[0; 12][..], &[0x88, 0xb5], &[b'a'; 16_000]].concat();
    for (patterns, matches) in [(&[&b"a"[..]][..], 16_000), (&[b"a", b"aa", b"a", b"a", b"aaa"], 65_535)] {
        let image = dpi_image(patterns);
        for level in supported_levels() {
            let mut batch = Batch::new(std::slice::from_ref(&frame));
            batch.run(level, DPI, 0, &image);
            assert_eq!(batch.outcomes[0], Outcome { verdict: 1, reason: 0, port: matches, value: 0 }, "{}", level.name);
        }
    }
}

#[test]
fn bulk_lookup_finds_the_longest_prefix() {
    let addresses: Vec<u32> = ROUTES
        .iter()
        .flat_map(|route| {
            let last = route.address + ((1_u64 << (32 - route.length)) - 1) as u32;
            [route.address.wrapping_sub(1), route.address, last, last.wrapping_add(1)]
        })
        .cycle()
        // More addresses than the kernel prefetches.
        .take(700)
        .collect();
    type Bulk = Box<dyn Fn(*const u8, u32, &[u32], &mut [u32], usize)>;
    let mut forms: Vec<(&str, Bulk)> = Vec::new();
    for level in supported_levels() {
        // SAFETY: the CPU supports the level, and each image is used with the variant that it was
        // built for.
        forms.push((
            level.name,
            Box::new(|image, variant, addresses, found, ahead| unsafe {
                level.ipv4_lookup_bulk(image, variant, addresses, found, ahead);
            }),
        ));
    }
    for native in godwit_kernels::natives().iter().filter(|native| native.supported() && native.looks_up()) {
        // SAFETY: as above.
        forms.push((
            native.name,
            Box::new(|image, variant, addresses, found, ahead| unsafe {
                native.ipv4_lookup_bulk(image, variant, addresses, found, ahead);
            }),
        ));
    }
    for (name, bulk) in &forms {
        for case in CASES.iter().filter(|case| case.kernel == IPV4) {
            // Whole blocks, partial blocks, and both.
            for (count, ahead) in [addresses.len(), 161, 128, 127, 17, 1, 0]
                .into_iter()
                .flat_map(|count| [0, 1, 16, 25, 128].map(|ahead| (count, ahead)))
            {
                let mut found = vec![0; count];
                bulk(case.image.bytes().as_ptr(), case.variant, &addresses[..count], &mut found, ahead);
                for (address, found) in addresses.iter().zip(found) {
                    let route = ROUTES.iter().filter(|route| route.covers(*address)).max_by_key(|route| route.length);
                    let expected = route.map_or(godwit_kernels::image::IPV4_NONE, |route| route.next_hop);
                    assert_eq!(found, expected, "{} by {name}: {address:#010x}", case.name);
                }
            }
        }
    }
}

#[test]
fn bulk_lookup_finds_the_longest_prefix_of_ipv6() {
    // Whole blocks and a partial one.
    let edges: Vec<_> = crate::common::ipv6::edges().into_iter().cycle().take(700).collect();
    let addresses: Vec<[u8; 16]> = edges.iter().map(|edge| edge.0).collect();
    let check = |name: &str, lookup: &dyn Fn(*const u8, u32, &mut [u32])| {
        for case in crate::common::ipv6::ipv6_cases() {
            let mut found = vec![0; addresses.len()];
            lookup(case.image.bytes().as_ptr(), case.variant, &mut found);
            for ((address, expected), found) in edges.iter().zip(found) {
                assert_eq!(found, *expected, "{} at {name}: {address:02x?}", case.name);
            }
        }
    };
    for level in supported_levels() {
        // SAFETY: the CPU supports the level, and the image was built for the variant.
        check(level.name, &|image, variant, found| unsafe {
            level.ipv6_lookup_bulk(image, variant, &addresses, found)
        });
    }
    for native in natives().iter().filter(|native| native.supported() && native.looks_up()) {
        // SAFETY: as above.
        check(native.name, &|image, variant, found| unsafe {
            native.ipv6_lookup_bulk(image, variant, &addresses, found);
        });
    }
}

#[test]
fn an_unknown_kernel_changes_nothing() {
    for level in supported_levels() {
        let before = Batch::new(&random_frames(3, 1));
        let mut batch = before.clone();
        batch.run(level, 200, 0, &CASES[0].image);
        assert!(batch.arena.bytes() == before.arena.bytes());
        assert_eq!(batch.outcomes, before.outcomes);
    }
}
