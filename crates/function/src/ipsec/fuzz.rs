//! Fuzzing support for the inbound path: an `ipsec` function with fixed SAs, and frames that these
//! SAs authenticate.

use std::path::Path;
use std::sync::Arc;

use aes::Aes128;
use cmac::Cmac;
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Sha256, Sha512};
use toml::de::DeTable;

use crate::{BuildContext, Function};

/// Inbound SAs of the fuzzed function. They have no replay protection, because the result for a
/// frame must not depend on earlier frames.
const STANZA: &str = r#"
[[sa]]
name = "esp"
spi = 0x1001
direction = "in"
source = "192.0.2.1"
destination = "192.0.2.2"
encryption = "null"
authentication = "hmac-sha-256-128"
authentication_key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
replay_window = 0
selectors = [{ protocol = "udp", destination_ports = "53-54" }, { destination = "10.0.0.0/8" }, { source = "2001:db8::/32" }]

[[sa]]
name = "ah"
protocol = "ah"
spi = 0x1002
direction = "in"
source = "192.0.2.1"
destination = "192.0.2.2"
authentication = "hmac-sha1-96"
authentication_key = "000102030405060708090a0b0c0d0e0f10111213"
replay_window = 0

[[sa]]
name = "transport"
spi = 0x1003
direction = "in"
mode = "transport"
source = "2001:db8::1"
destination = "2001:db8::2"
encryption = "null"
authentication = "hmac-sha-256-128"
authentication_key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
replay_window = 0

[[sa]]
name = "open"
spi = 0x1004
direction = "in"
source = "192.0.2.1"
destination = "192.0.2.2"
encryption = "aes-128-cbc"
encryption_key = "000102030405060708090a0b0c0d0e0f"
authentication = "none"
insecure = true
udp_encapsulation = {}
replay_window = 0

[[sa]]
name = "long"
spi = 0x1005
direction = "in"
source = "192.0.2.1"
destination = "192.0.2.2"
encryption = "null"
authentication = "hmac-sha-512-256"
authentication_key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f"
replay_window = 0

[[sa]]
name = "mac"
spi = 0x1006
direction = "in"
source = "192.0.2.1"
destination = "192.0.2.2"
encryption = "null"
authentication = "aes-cmac-96"
authentication_key = "000102030405060708090a0b0c0d0e0f"
replay_window = 0
"#;

const KEY: [u8; 64] = {
    let mut key = [0; 64];
    let mut at = 0;
    while at < 64 {
        key[at] = at as u8;
        at += 1;
    }
    key
};

/// Returns an `ipsec` function with inbound SAs. They use ESP and AH, in tunnel and transport mode,
/// over IPv4, IPv6 and UDP.
pub fn function() -> Arc<dyn Function> {
    let context = BuildContext { name: "fuzzed", ports: &[], directory: Path::new(".") };
    let stanza = DeTable::parse(STANZA).expect("the stanza is TOML");
    super::build(stanza, &context).expect("the stanza is a valid ipsec configuration")
}

/// Converts fuzzer input to a frame. If the first byte is 0xf0 to 0xf4, it selects an SA, and the
/// frame carries the other bytes as an authentic packet. Otherwise, the input is the frame.
pub fn frame(data: &[u8]) -> Vec<u8> {
    match data {
        [0xf0, inside @ ..] => ipv4(50, &esp::<Hmac<Sha256>>(0x1001, inside, &KEY[..32], 16)),
        [0xf1, inside @ ..] => ah(inside),
        [0xf2, inside @ ..] => ipv6(&esp::<Hmac<Sha256>>(0x1003, inside, &KEY[..32], 16)),
        [0xf3, inside @ ..] => ipv4(50, &esp::<Hmac<Sha512>>(0x1005, inside, &KEY, 32)),
        [0xf4, inside @ ..] => ipv4(50, &esp::<Cmac<Aes128>>(0x1006, inside, &KEY[..16], 12)),
        _ => data.to_vec(),
    }
}

fn esp<M: Mac + KeyInit>(spi: u32, inside: &[u8], key: &[u8], icv_bytes: usize) -> Vec<u8> {
    let mut esp = spi.to_be_bytes().to_vec();
    esp.extend(1u32.to_be_bytes());
    esp.extend(&inside[..inside.len() & !3]);
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("the key has the length that the MAC needs");
    mac.update(&esp);
    esp.extend(&mac.finalize().into_bytes()[..icv_bytes]);
    esp
}

/// Returns an authentic AH packet. The first byte of `inside` is the next header.
fn ah(inside: &[u8]) -> Vec<u8> {
    let (next_header, inside) = inside.split_first().unwrap_or((&4, &[]));
    let mut ah = vec![*next_header, 4, 0, 0, 0, 0, 0x10, 2, 0, 0, 0, 1];
    ah.extend([0; 12]);
    ah.extend(inside);
    let mut frame = ipv4(51, &ah);
    let mut data = frame[14..].to_vec();
    [1, 6, 7, 8, 10, 11].iter().for_each(|&at| data[at] = 0);
    let mut mac = Hmac::<Sha1>::new_from_slice(&KEY[..20]).expect("HMAC takes keys of any length");
    mac.update(&data);
    frame[14 + 20 + 12..][..12].copy_from_slice(&mac.finalize().into_bytes()[..12]);
    frame
}

fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 2];
    frame.extend(((20 + payload.len()) as u16).to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    let checksum = godwit_wire::checksum::checksum(&frame[14..]);
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame.extend(payload);
    frame
}

fn ipv6(payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd, 0x60, 0, 0, 0];
    frame.extend((payload.len() as u16).to_be_bytes());
    frame.extend([50, 64]);
    for end in [1, 2] {
        frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, end]);
    }
    frame.extend(payload);
    frame
}
