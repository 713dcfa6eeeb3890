//! Cases of `ipv6`: both forms of its table, and frames that cause all of its verdicts and drops.

use std::net::Ipv6Addr;
use std::sync::Arc;

use godwit_function::Function;
use godwit_function::ipv6::{Form, Ipv6, Route};
use godwit_function::routing::{Adjacency, NextHop};
use godwit_test_support::Random;
use godwit_test_support::frame::{ipv6, ipv6_header};
use godwit_wire::{Ipv6Header, MacAddress, ethertype, protocol};

use crate::{Case, frames};

pub(super) fn cases() -> Vec<Case> {
    [("ipv6, trie", Form::Trie), ("ipv6, hash", Form::Hash)].into_iter().map(|(name, form)| case(name, form)).collect()
}

/// Returns a function with routes of all lengths, most of them in a few ranges of addresses, and
/// frames to these addresses.
fn case(name: &'static str, form: Form) -> Case {
    const NEXT_HOPS: u32 = 60;
    let mut random = Random::new(16);
    let hops = (0..NEXT_HOPS).map(|index| {
        let station = Adjacency {
            port: (index % 256) as u16,
            destination: MacAddress([2, 0, 1, 0, 0, index as u8]),
            source: MacAddress([2, 0, 2, 0, 0, index as u8]),
            mtu: [Adjacency::MTU_MAX, 1280, 100, 60][(index / 7 % 4) as usize],
        };
        match index % 11 {
            3 => NextHop::Local,
            7 => NextHop::Blackhole,
            9 => NextHop::Unreachable,
            10 => NextHop::Unresolved(station),
            _ => NextHop::Forward(station),
        }
    });
    let routes: Vec<Route> = (0..3000)
        .map(|_| {
            let length = 8 + random.below(121);
            let prefix = clustered(&mut random) & u128::MAX << (128 - length);
            Route { prefix, length, next_hop: random.below(NEXT_HOPS) }
        })
        .collect();
    let function = Ipv6::new(&routes, &hops.collect::<Vec<_>>(), Some(form)).unwrap();
    Case { name, function: Arc::new(function) as Arc<dyn Function>, frames: frames() }
}

/// Returns an address of any scope. Most addresses are in the ranges of the routes.
fn clustered(random: &mut Random) -> u128 {
    let any = u128::from_be_bytes(random.array());
    let near = |address: &str, bits: u32| u128::from(address.parse::<Ipv6Addr>().unwrap()) ^ any >> (128 - bits);
    match random.below(12) {
        0 => any,
        1 => any >> 3 | 1 << 125,
        2 => near("2001:db8:1:2::", 20),
        3 => near("2001:db8:1:2:3::", 10),
        4 => near("2001:db8:1::", 70),
        5 => near("fe80::", 118),
        6 => near("ff00::", 120),
        7 => near("::", 2),
        8 => near("ff02::", 4),
        _ => near("2001:db8::", 96),
    }
}

fn frames() -> Vec<Vec<u8>> {
    let mut random = Random::new(17);
    let random = &mut random;
    // Frames of other protocols, and IPv6 frames with random addresses.
    let mut frames = frames::frames(18, 600, &frames::any_address, &frames::any_payload);
    for tags in 0..2 {
        let whole = frame(random, tags, 20);
        frames.extend((0..=whole.len()).map(|length| whole[..length].to_vec()));
    }
    while frames.len() < 4000 {
        let (tags, bytes) = (random.below(8_u32).saturating_sub(5), random.below(120));
        let mut frame = frame(random, tags, bytes);
        match random.below(6) {
            0 => random.damage(&mut frame, 3),
            1 => frames::pad(random, &mut frame),
            _ => {}
        }
        frames.push(frame);
    }
    frames::address_to_groups(&mut frames);
    frames
}

fn frame(random: &mut Random, tags: u32, bytes: usize) -> Vec<u8> {
    let mut payload = Vec::new();
    let mut next_header = protocol::UDP;
    if random.below(3) == 0 {
        next_header = protocol::HOP_BY_HOP;
        payload = options(random);
    }
    payload.extend(frames::any_payload(random, bytes));
    let header = ipv6_header(clustered(random).to_be_bytes(), clustered(random).to_be_bytes(), next_header);
    let packet = ipv6(
        &Ipv6Header {
            traffic_class: random.next_u8(),
            flow_label: random.below(1 << 20),
            hop_limit: random.pick(&[0, 1, 2, 64, 255]),
            ..header
        },
        &payload,
    );
    frames::ethernet(&vec![ethertype::VLAN; tags as usize], ethertype::IPV6, &packet)
}

/// Returns a hop-by-hop header of up to 136 bytes. Most are valid.
fn options(random: &mut Random) -> Vec<u8> {
    let units = random.pick(&[0, 0, 1, 2, 7, 8, 16]);
    let end = 8 * (units + 1);
    let mut header = vec![protocol::UDP, units as u8];
    // The types of most options require that an unknown option is skipped.
    let skipped = random.below(3) > 0;
    while header.len() < end {
        let room = end - header.len();
        if room == 1 || random.below(3) == 0 {
            header.push(0);
            continue;
        }
        let kind = [1, 5, 0x1e, 0x5e, 0x9e, 0xde, 0xc2][random.below(if skipped { 3 } else { 7 })];
        let data_bytes = random.below(20).min(room - 2);
        header.extend([kind, data_bytes as u8]);
        header.extend(random.bytes(data_bytes));
    }
    if random.below(8) == 0 {
        let at = 1 + random.below(end - 1);
        header[at] = random.next_u8();
    }
    header
}
