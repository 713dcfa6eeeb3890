//! Tests with packets from other IPsec implementations.

use std::collections::HashMap;

use super::super::selector::Selector;
use super::super::suite::{Authentication, Cipher, Suite};
use super::super::{DROP_AUTHENTICATION, DROP_DUMMY, DROP_MALFORMED};
use super::*;

fn vectors(name: &str) -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/ipsec/");
    std::fs::read_to_string(format!("{path}{name}")).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    digits.as_bytes().chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Returns the suite with these algorithms.
fn suite(protocol: &str, cipher: &str, authentication: &str, key_bytes: usize) -> Suite {
    let protocol = if protocol == "AH" { Protocol::Ah } else { Protocol::Esp };
    let cipher = match cipher {
        "NULL" => Cipher::Null,
        "AES_CBC" => Cipher::Cbc,
        "AES_CTR" | "AES_GCM" => Cipher::Ctr,
        "CHACHA20_POLY1305" => Cipher::ChaCha20,
        other => panic!("{other}"),
    };
    let authentication = match authentication {
        "NULL" => Authentication::None,
        "SHA1_HMAC" => Authentication::Sha1,
        "SHA256_HMAC" => Authentication::Sha256,
        "SHA384_HMAC" => Authentication::Sha384,
        "SHA512_HMAC" => Authentication::Sha512,
        "AES_GCM" | "AES_GMAC" => Authentication::Ghash,
        "CHACHA20_POLY1305" => Authentication::Poly1305,
        "AES_XCBC_MAC" => Authentication::Xcbc,
        other => panic!("{other}"),
    };
    Suite { name: "vector", protocol, cipher, key_bytes, authentication }
}

#[test]
fn processes_opendataplane_packets() {
    let text = vectors("odp/packets.txt");
    let lines = |text: &'static str| text.lines().filter(|line| !line.starts_with('#'));
    let text: &'static str = text.leak();
    let packets: HashMap<&str, Vec<u8>> =
        lines(text).filter_map(|line| line.split_once(' ')).map(|(name, frame)| (name, unhex(frame))).collect();
    let tests: &'static str = vectors("odp/inbound.txt").leak();
    let (mut accepted, mut rejected) = (0, 0);
    for row in lines(tests) {
        let columns: Vec<&str> = row.split(' ').collect();
        let [test, protocol, spi, mode, cipher, key, salt, authentication, authentication_key, nonce, udp, _window] =
            columns[..12]
        else {
            panic!("{row}")
        };
        let is_ghash = authentication == "AES_GMAC";
        let (key, salt) = if is_ghash { (authentication_key, nonce) } else { (key, salt) };
        let key = unhex(key);
        let suite = suite(protocol, cipher, authentication, key.len());
        let spi = match spi.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).unwrap(),
            None => spi.parse().unwrap(),
        };
        let authentication_key = unhex(authentication_key);
        for step in &columns[12..] {
            let (name, expected) = step.split_once('=').unwrap();
            let mut frame = packets[name].clone();
            if test.contains("mcgrew_gcm_12") {
                // The authors edited this test vector by hand, so its IPv4 header checksum is 1 too
                // high.
                frame[25] -= 1;
            }
            let (l2, packet, ipv6) = layer_3(&frame).unwrap().unwrap();
            let association = Association {
                suite,
                spi,
                key: &key,
                salt: unhex(salt).try_into().unwrap_or_default(),
                authentication_key: &authentication_key,
                icv_bytes: match suite.authentication {
                    Authentication::None => 0,
                    Authentication::Sha1 | Authentication::Xcbc => 12,
                    Authentication::Sha384 => 24,
                    Authentication::Sha512 => 32,
                    _ => 16,
                },
                tunnel: mode == "tunnel",
                source: ip::source(packet),
                destination: ip::destination(packet),
                esn: false,
                udp_ports: (udp == "1").then_some((4500, 4500)),
                dont_fragment: DontFragment::Copy,
                dscp: None,
                ecn_ignored: false,
                hop_limit: 64,
                selectors: &[Selector::default()],
            };
            let result = decapsulate(&association, 0, l2, packet, ipv6).map(|done| [done.l2, done.packet].concat());
            match expected.strip_prefix("error:") {
                // The kernel does not check the replay window, so it accepts the repeated packet.
                Some("antireplay") => assert!(result.is_ok(), "{test}"),
                Some("auth") => assert_eq!(result, Err(DROP_AUTHENTICATION), "{test}"),
                Some("proto" | "sa_lookup") => assert_eq!(result, Err(DROP_MALFORMED), "{test}"),
                Some(other) => panic!("{test}: {other}"),
                // OpenDataPlane forwards dummy packets, but RFC 4303, section 2.6, requires that
                // they are dropped.
                None if test.contains("mcgrew_gcm_12") => assert_eq!(result, Err(DROP_DUMMY), "{test}"),
                None => {
                    let frame = result.unwrap_or_else(|reason| panic!("{test}: dropped with reason {reason}"));
                    let expected = &packets[expected];
                    let (_, plain, _) = layer_3(expected).unwrap().unwrap();
                    assert_eq!(frame[l2.len()..], *plain, "{test}");
                    accepted += 1;
                    continue;
                }
            }
            rejected += 1;
        }
    }
    assert_eq!((accepted, rejected), (45, 11));
}
