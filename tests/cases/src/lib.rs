//! Configured functions and packets for them, shared by the tests of functions, devices and the
//! engine. [`cases`] returns one or more cases for every kind of function.
//!
//! | module | contents |
//! |---|---|
//! | [`frames`] | random frames of all kinds, valid and damaged |
//! | [`ipsec`] | SAs of every suite, packets for them, packets of other implementations |
//! | [`ndn_packets`] | Interests and link packets of NDN, valid and damaged |

pub mod frames;
pub mod ipsec;
mod ipv6;
mod ndn;
pub mod ndn_packets;

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use godwit_abi::Descriptor;
use godwit_function::dpi::{Case as LetterCase, Dpi};
use godwit_function::hash::{Algorithm, Hash, Listed, Over};
use godwit_function::ipv4::{Ipv4, Route};
use godwit_function::routing::{Adjacency, NextHop};
use godwit_function::{BuildContext, Function, kind, l2};
use godwit_test_support::Random;
use godwit_wire::MacAddress;
use md5::Digest as _;
use toml::de::DeTable;

/// Configured function and frames for it.
pub struct Case {
    /// Name of the function, and the property of this case.
    pub name: &'static str,
    /// Function under test.
    pub function: Arc<dyn Function>,
    /// Frames that cause every verdict and drop reason of the kernel.
    pub frames: Vec<Vec<u8>>,
}

/// Returns all cases.
pub fn cases() -> Vec<Case> {
    let plain = || frames::frames(1, 1500, &frames::any_address, &frames::any_payload);
    let mut cases = vec![
        Case { name: "template", function: build("template", "", 1), frames: plain() },
        Case { name: "echo, one port", function: build("echo", "", 1), frames: plain() },
        Case { name: "echo, 7 of 256 ports", function: build("echo", "ports = 7", 256), frames: plain() },
        Case { name: "echo, 256 ports", function: build("echo", "", 256), frames: plain() },
    ];
    for (name, next_hops) in [("ipv4, 2-byte entries", 40), ("ipv4, 4-byte entries", 40_000)] {
        let (function, frames) = ipv4(next_hops);
        cases.push(Case { name, function, frames });
    }
    for (name, case) in [("dpi", LetterCase::Sensitive), ("dpi, any case", LetterCase::Insensitive)] {
        let (function, frames) = dpi(case);
        cases.push(Case { name, function, frames });
    }
    for (name, addresses) in [("l2, few addresses", 300), ("l2, a full table", 62_000)] {
        let (function, frames) = l2(addresses);
        cases.push(Case { name, function, frames });
    }
    for (name, algorithm, over) in [
        ("hash, md5 of frames", Algorithm::Md5, Over::Frame),
        ("hash, sha1 of payloads", Algorithm::Sha1, Over::Payload),
        ("hash, sha256 of frames", Algorithm::Sha256, Over::Frame),
    ] {
        let frames = plain();
        cases.push(Case { name, function: hash(algorithm, over, &frames), frames });
    }
    cases.extend(aes());
    cases.extend(ipsec::cases());
    cases.extend(ipv6::cases());
    cases.extend(ndn::cases());
    cases
}

/// Builds a function from the text of its stanza, in a configuration with `ports` ports.
pub fn build(name: &str, stanza: &str, ports: usize) -> Arc<dyn Function> {
    let ports: Vec<String> = (0..ports).map(|port| format!("port{port}")).collect();
    let context = BuildContext { name: "under test", ports: &ports, directory: Path::new(".") };
    let stanza = DeTable::parse(stanza).unwrap();
    (kind(name).unwrap().build)(stanza, &context).unwrap()
}

/// Returns a function with routes of lengths 8 to 32, most of them in a few ranges of addresses,
/// and frames to these addresses.
fn ipv4(next_hops: u32) -> (Arc<dyn Function>, Vec<Vec<u8>>) {
    let mut random = Random::new(4);
    let hops = (0..next_hops).map(|index| match index % 11 {
        3 => NextHop::Local,
        7 => NextHop::Blackhole,
        5 if index % 2 == 0 => NextHop::Unreachable,
        kind => {
            let station = Adjacency {
                port: (index % 256) as u16,
                destination: MacAddress([2, 0, 1, (index >> 16) as u8, (index >> 8) as u8, index as u8]),
                source: MacAddress([2, 0, 2, 0, 0, index as u8]),
                mtu: if kind < 3 { 100 } else { Adjacency::MTU_MAX },
            };
            if kind == 9 { NextHop::Unresolved(station) } else { NextHop::Forward(station) }
        }
    });
    let routes = (0..3000).map(|_| {
        let length = 8 + random.below(25);
        let prefix = clustered_address(&mut random) & u32::MAX << (32 - length);
        Route { prefix, length, next_hop: random.below(next_hops) }
    });
    let function = Ipv4::new(routes.collect(), hops.collect()).unwrap();
    let address = |random: &mut Random| clustered_address(random).to_be_bytes();
    let mut frames = frames::frames(2, 3000, &address, &frames::any_payload);
    frames::address_to_groups(&mut frames);
    (Arc::new(function), frames)
}

fn clustered_address(random: &mut Random) -> u32 {
    match random.below(8) {
        0 => random.next_u32(),
        1 => u32::from(Ipv4Addr::new(192, 0, 2, 0)) + random.below(256),
        2 => u32::from(Ipv4Addr::new(224, 0, 0, 0)).wrapping_sub(200).wrapping_add(random.below(400)),
        3 => u32::from(Ipv4Addr::new(127, 0, 0, 0)) - 100 + random.below(200),
        4 => u32::MAX - random.below(300),
        5 => random.below(0x0200_0000),
        _ => u32::from(Ipv4Addr::new(198, 51, 100, 0)) + random.below(1024),
    }
}

/// Returns a switch with access ports and trunks on six of seven ports, and frames of three VLANs.
/// Four fifths of the addresses in the frames are in the table.
fn l2(addresses: u32) -> (Arc<dyn Function>, Vec<Vec<u8>>) {
    let ports: Vec<String> = (0..7).map(|port| format!("p{port}")).collect();
    let context = BuildContext { name: "under test", ports: &ports, directory: Path::new(".") };
    let stanza = r#"
        [[port]]
        port = "p0"
        access = 1
        [[port]]
        port = "p1"
        access = 1
        learn = false
        [[port]]
        port = "p2"
        trunk = [1, "10-11"]
        [[port]]
        port = "p3"
        trunk = [10, 11]
        native = 1
        [[port]]
        port = "p4"
        trunk = ["1-4094"]
        [[port]]
        port = "p5"
        trunk = [1, 11]
        native = 10
        [[mac]]
        mac = "02:00:00:00:00:01"
        port = "p0"
        [[mac]]
        mac = "02:00:00:00:00:02"
        port = "p2"
    "#;
    let members: [(u16, &[u8]); 3] = [(1, &[0, 1, 2, 3, 4, 5]), (10, &[2, 3, 4, 5]), (11, &[2, 3, 4, 5])];
    let function = l2::build_switch(DeTable::parse(stanza).unwrap(), &context).unwrap();
    let mut random = Random::new(12);
    let known: Vec<(u64, u8)> = (3..addresses)
        .map(|number| {
            let (vid, ports) = random.pick(&members);
            (l2::key(vid, station(number)), random.pick(ports))
        })
        .collect();
    function.learn_all(&known).unwrap();
    let frames = (0..4000).map(|_| {
        let mac = |random: &mut Random| match random.below(12) {
            0 => [0xff; 6],
            1 => [0x01, 0x80, 0xc2, 0, 0, random.below(20)],
            2 => [0x01, 0, 0x5e, random.next_u8(), 1, 2],
            3 => [0; 6],
            4 => station(random.below(4)).0,
            _ => station(random.below(addresses * 5 / 4)).0,
        };
        let mut frame = mac(&mut random).to_vec();
        frame.extend(if random.below(10) == 0 { mac(&mut random) } else { station(random.below(addresses * 5 / 4)).0 });
        if random.below(2) == 0 {
            let vid = random.pick(&[0, 1, 10, 11, 12, 4095]);
            frame.extend([0x81, 0x00]);
            frame.extend((random.below(16_u16) << 12 | vid).to_be_bytes());
        }
        frame.extend([0x08, 0x00]);
        let payload_bytes = random.below(60);
        frame.extend(random.bytes(payload_bytes));
        let length = if random.below(8) == 0 { random.below(20) } else { frame.len() };
        frame.truncate(length);
        frame
    });
    let frames = frames.collect();
    (Arc::new(function), frames)
}

fn station(number: u32) -> MacAddress {
    let [a, b, c, d] = number.to_be_bytes();
    MacAddress([2, 0, a, b, c, d])
}

/// Returns a function with nested and overlapping patterns, and frames that contain some of them.
fn dpi(case: LetterCase) -> (Arc<dyn Function>, Vec<Vec<u8>>) {
    let patterns = patterns(120);
    let planted = patterns.clone();
    let payload = move |random: &mut Random, bytes: usize| {
        let mut payload = frames::any_payload(random, bytes);
        for _ in 0..random.below(4) {
            let mut pattern = planted[random.below(planted.len())].clone();
            if random.below(3) == 0 {
                pattern.make_ascii_uppercase();
            }
            if let Some(last) = payload.len().checked_sub(pattern.len()) {
                let at = random.below(last + 1);
                payload[at..at + pattern.len()].copy_from_slice(&pattern);
            }
        }
        payload
    };
    let function = Dpi::new(patterns, case).unwrap();
    (Arc::new(function), frames::frames(3, 1500, &frames::any_address, &payload))
}

/// Returns a function whose list contains some digests of the frames or of what follows their
/// Ethernet header, and other digests.
fn hash(algorithm: Algorithm, over: Over, frames: &[Vec<u8>]) -> Arc<dyn Function> {
    let digest = |text: &[u8]| match algorithm {
        Algorithm::Md5 => md5::Md5::digest(text).to_vec(),
        Algorithm::Sha1 => sha1::Sha1::digest(text).to_vec(),
        Algorithm::Sha256 => sha2::Sha256::digest(text).to_vec(),
    };
    let text = |frame: &'_ Vec<u8>| match over {
        Over::Frame => digest(frame),
        Over::Payload => digest(frame.get(14..).unwrap_or_default()),
    };
    let mut random = Random::new(6);
    let known = frames.iter().step_by(3).map(text);
    let others = (0..2000).map(|_| random.bytes(algorithm.digest_bytes()));
    let listed = known.chain(others).zip(1..).map(|(bytes, line)| {
        let mut digest = [0; 32];
        digest[..bytes.len()].copy_from_slice(&bytes);
        Listed { digest, line }
    });
    Arc::new(Hash::new(algorithm, over, listed.collect()).unwrap())
}

/// Returns a case for each cipher and direction of `aes`. Most frames for the decryption are
/// encrypted ones.
fn aes() -> Vec<Case> {
    let stanza = |cipher: &str, direction: &str| {
        let (key_bytes, iv_bytes) = if cipher == "aes-128-cbc" { (16, 16) } else { (32, 12) };
        let hex = |bytes: std::ops::Range<u8>| bytes.map(|byte| format!("{byte:02x}")).collect::<String>();
        let (key, iv) = (hex(0..key_bytes), hex(100..100 + iv_bytes));
        build("aes", &format!("cipher = '{cipher}'\ndirection = '{direction}'\nkey = '{key}'\niv = '{iv}'"), 1)
    };
    let frames = || frames::frames(7, 1500, &frames::any_address, &frames::any_payload);
    let encrypted = |function: &dyn Function| {
        let frames = frames().into_iter().enumerate().map(|(index, mut frame)| {
            if index % 5 > 0 {
                encrypt(function, &mut frame);
            }
            frame
        });
        frames.collect()
    };
    let [cbc, chacha20] = ["aes-128-cbc", "chacha20-poly1305"].map(|cipher| stanza(cipher, "encrypt"));
    vec![
        Case { name: "aes, cbc", frames: frames(), function: Arc::clone(&cbc) },
        Case { name: "aes, cbc, decrypt", frames: encrypted(&*cbc), function: stanza("aes-128-cbc", "decrypt") },
        Case { name: "aes, chacha20-poly1305", frames: frames(), function: Arc::clone(&chacha20) },
        Case {
            name: "aes, chacha20-poly1305, decrypt",
            frames: encrypted(&*chacha20),
            function: stanza("chacha20-poly1305", "decrypt"),
        },
    ]
}

/// Encrypts a frame with the reference implementation of `aes`.
fn encrypt(function: &dyn Function, frame: &mut Vec<u8>) {
    let mut descriptor = Descriptor { length: frame.len() as u16, ..Descriptor::default() };
    frame.extend([0; 16]);
    function.run_ref(frame, &mut descriptor, function.properties().variant, 0);
    frame.truncate(descriptor.length.into());
}

/// Returns `count` patterns: words of five letters, random bytes, and duplicates.
fn patterns(count: usize) -> Vec<Vec<u8>> {
    let mut random = Random::new(5);
    let mut patterns: Vec<Vec<u8>> = Vec::new();
    for index in 0..count {
        let bytes = 2 + random.below(12);
        let pattern = match index % 8 {
            0 => random.bytes(bytes),
            1 if index > 8 => patterns[random.below(index)].clone(),
            _ => (0..bytes).map(|_| random.pick(b"abcd/")).collect(),
        };
        patterns.push(pattern);
    }
    patterns
}
