//! Cases of `ndn`: names that share prefixes, next hops of every kind, and packets in every
//! carrier.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use godwit_function::ndn::{Carrier, Names, Ndn, NextHop, Parts, UDP_PORT};
use godwit_test_support::Random;
use godwit_wire::MacAddress;

use crate::ndn_packets::{CARRIERS, components, element, frame, interest, link};
use crate::{Case, frames, ndn_packets};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, guide, seed) in [("ndn", None, 1), ("ndn, guides of 1", Some(1), 2), ("ndn, no guides", Some(32), 3)] {
        let mut random = Random::new(seed);
        let (names, list) = names(&mut random);
        let parts = Parts { key: Some([seed, 5]), guide, ..Parts::new(names, next_hops()) };
        cases.push(Case { name, function: Arc::new(Ndn::new(parts).unwrap()), frames: packets(&mut random, &list) });
    }
    cases
}

fn next_hops() -> Vec<(String, NextHop)> {
    let station = |index: u8, carrier| NextHop::Forward {
        port: u16::from(index),
        destination: MacAddress([2, 0, 1, 0, 0, index]),
        source: MacAddress([2, 0, 2, 0, 0, index]),
        carrier,
    };
    let hops = (0..24).map(|index: u8| match index % 8 {
        0 => NextHop::Local,
        1 => NextHop::Blackhole,
        2 | 3 => station(index, Carrier::Ethernet),
        4 | 5 => station(
            index,
            Carrier::Udp4 {
                source: (Ipv4Addr::new(192, 0, 2, index), 6363),
                destination: (Ipv4Addr::new(198, 51, 100, index), 6363 + u16::from(index)),
            },
        ),
        _ => station(
            index,
            Carrier::Udp6 {
                source: (Ipv6Addr::from([index; 16]), 6363),
                destination: (Ipv6Addr::from([0x20 + index; 16]), 6363),
            },
        ),
    });
    hops.enumerate().map(|(index, hop)| (format!("hop{index}"), hop)).collect()
}

/// Returns names of 1 to 32 components. Some occur twice.
fn names(random: &mut Random) -> (Names, Vec<Vec<u8>>) {
    let (mut names, mut list) = (Names::new(), Vec::new());
    for index in 0..600 {
        let name = match random.below(20) {
            0 => components(random, 20, 13),
            // The first components of these names differ, so their guides differ.
            1 => [element(8, format!("site{index}").as_bytes()), components(random, 3, 1)].concat(),
            _ => components(random, 1, 5),
        };
        names.push(&name, random.below(24));
        list.push(name);
    }
    (names, list)
}

fn packets(random: &mut Random, list: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut all = frames::frames(9, 300, &frames::any_address, &frames::any_payload);
    for carrier in CARRIERS {
        let name = list[random.below(600)].clone();
        let whole = frame(carrier, carrier == ndn_packets::Carrier::Udp4, UDP_PORT, &interest(random, &name));
        all.extend((0..=whole.len().min(300)).map(|length| whole[..length].to_vec()));
    }
    while all.len() < 4000 {
        let name = match random.below(8) {
            0 => components(random, 0, 6),
            1 => components(random, 30, 40),
            2 => Vec::new(),
            _ => {
                let mut name = list[random.below(600)].clone();
                name.extend(components(random, 0, 3));
                name
            }
        };
        let packet = match random.below(20) {
            0 => element(6, &element(7, &name)),
            1 => element(random.below(300), &name),
            _ => interest(random, &name),
        };
        let mut packet = if random.below(4) == 0 { link(random, &packet) } else { packet };
        if random.below(30) == 0 {
            packet.push(0);
        }
        let carrier = random.pick(&CARRIERS);
        let port = if random.below(20) == 0 { 6364 } else { UDP_PORT };
        if packet.len() > 1400 {
            continue;
        }
        let mut frame = frame(carrier, random.below(4) == 0, port, &packet);
        match random.below(10) {
            0 => random.damage(&mut frame, 3),
            1 => {
                // Any byte after the Ethernet header.
                let at = 14 + random.below(frame.len() - 14);
                frame[at] = random.next_u8();
            }
            2 => frame.resize(frame.len() + random.below(30), 0),
            _ => {}
        }
        all.push(frame);
    }
    all
}
