//! Packets of other implementations: OpenDataPlane (including packets from RFCs), strongSwan,
//! tcpdump.
//!
//! SPIs below 256 are reserved (RFC 4303, section 2.1) and not configurable. Packets with such an
//! SPI get another one and a matching ICV. The tests of the reference implementation use the
//! original packets.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use aes_gcm::aead::AeadInOut;
use aes_gcm::{Aes128Gcm, KeyInit};
use godwit_function::ipsec::suite::{Authentication, Cipher, Protocol, SUITES, Suite};
use godwit_test_support::frame::set_ipv4_checksum;
use godwit_test_support::hex::unhex;
use godwit_test_support::repository;
use hmac::{Hmac, Mac};
use sha1::Sha1;
use sha2::{Sha256, Sha384, Sha512};

use super::association::Association;

/// SA and packets that arrive at its inbound endpoint.
pub struct Vector {
    /// Source, and name of the test there.
    pub name: String,
    /// SA of the inbound endpoint.
    pub association: Association,
    /// Packets in the order of their arrival.
    pub packets: Vec<Packet>,
}

/// Packet of a vector.
pub struct Packet {
    /// Frame as it arrives.
    pub frame: Vec<u8>,
    /// Expected result.
    pub expected: Expected,
}

/// Expected result for a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The packet is decapsulated to this IP packet.
    Plain(Vec<u8>),
    /// The packet is decapsulated to an ICMP packet between these addresses with correct checksums.
    Ping {
        /// Source address of the inner packet.
        source: [u8; 4],
        /// Destination address of the inner packet.
        destination: [u8; 4],
    },
    /// The packet is dropped for this reason.
    Dropped(&'static str),
}

/// Returns all vectors.
pub fn all() -> Vec<Vector> {
    let all: Vec<Vector> = odp().into_iter().chain(strongswan()).chain([tcpdump()]).collect();
    let packets: usize = all.iter().map(|vector| vector.packets.len()).sum();
    // OpenDataPlane has 50 tests, four of them with more than one packet. strongSwan has 60
    // packets, tcpdump 8.
    assert_eq!(packets, 56 + 60 + 8, "vectors are missing");
    all
}

fn lines(path: &str) -> Vec<Vec<String>> {
    let path = repository().join("tests/vectors/ipsec").join(path);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| line.split(' ').map(str::to_owned).collect()).collect()
}

fn suite(protocol: Protocol, cipher: Cipher, key_bytes: usize, authentication: Authentication) -> Suite {
    let found = SUITES.iter().find(|suite| {
        (suite.protocol, suite.cipher, suite.key_bytes, suite.authentication)
            == (protocol, cipher, key_bytes, authentication)
    });
    *found.unwrap_or_else(|| panic!("{protocol:?}, {cipher:?} with {key_bytes} bytes, {authentication:?}"))
}

/// Returns the source and destination address of the IP packet in an untagged Ethernet frame.
fn ends(frame: &[u8]) -> [IpAddr; 2] {
    let packet = &frame[14..];
    if packet[0] >> 4 == 6 {
        let address = |at: usize| IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(&packet[at..at + 16]).unwrap()));
        return [address(8), address(24)];
    }
    [12, 16].map(|at| IpAddr::from(<[u8; 4]>::try_from(&packet[at..at + 4]).unwrap()))
}

fn association(frame: &[u8], suite: Suite, spi: u32, key: Vec<u8>, salt: Vec<u8>, hmac_key: Vec<u8>) -> Association {
    let [source, destination] = ends(frame);
    // The inner addresses are unspecified, so the selectors accept any packet.
    let any: IpAddr = Ipv6Addr::UNSPECIFIED.into();
    Association {
        suite,
        spi,
        key,
        salt,
        hmac_key,
        icv_bytes: super::association::icv_bytes(&suite).last().copied().unwrap_or(0),
        tunnel: true,
        source,
        destination,
        inner_source: any,
        inner_destination: any,
        esn: false,
        udp: false,
        replay_window: 64,
        insecure: true,
    }
}

fn odp() -> Vec<Vector> {
    let packets: HashMap<String, Vec<u8>> =
        lines("odp/packets.txt").into_iter().map(|line| (line[0].clone(), unhex(&line[1]))).collect();
    (0x1000..).zip(lines("odp/inbound.txt")).map(|(spi, row)| odp_vector(&packets, &row, spi)).collect()
}

/// Returns the vector of one row. `other_spi` replaces a reserved SPI.
fn odp_vector(packets: &HashMap<String, Vec<u8>>, row: &[String], other_spi: u32) -> Vector {
    let bytes = |text: &str| if text == "-" { Vec::new() } else { unhex(text) };
    let protocol = if row[1] == "AH" { Protocol::Ah } else { Protocol::Esp };
    let (mut key, mut salt, mut hmac_key) = (bytes(&row[5]), bytes(&row[6]), Vec::new());
    let cipher = match row[4].as_str() {
        "NULL" => Cipher::Null,
        "AES_CBC" => Cipher::Cbc,
        "AES_CTR" | "AES_GCM" => Cipher::Ctr,
        "CHACHA20_POLY1305" => Cipher::ChaCha20,
        other => panic!("{other}"),
    };
    let authentication = match row[7].as_str() {
        // Counter mode without authentication is not supported, so an ICV is appended.
        "NULL" if cipher == Cipher::Ctr => Authentication::Sha1,
        "NULL" => Authentication::None,
        "SHA1_HMAC" => Authentication::Sha1,
        "SHA256_HMAC" => Authentication::Sha256,
        "SHA384_HMAC" => Authentication::Sha384,
        "SHA512_HMAC" => Authentication::Sha512,
        "AES_XCBC_MAC" => Authentication::Xcbc,
        "AES_GCM" => Authentication::Ghash,
        "AES_GMAC" => {
            (key, salt) = (bytes(&row[8]), bytes(&row[9]));
            Authentication::Ghash
        }
        "CHACHA20_POLY1305" => Authentication::Poly1305,
        other => panic!("{other}"),
    };
    match authentication {
        Authentication::Sha1 if row[8] == "-" => hmac_key = vec![0x5a; 20],
        Authentication::Sha1
        | Authentication::Sha256
        | Authentication::Sha384
        | Authentication::Sha512
        | Authentication::Xcbc => hmac_key = bytes(&row[8]),
        _ => {}
    }
    let spi =
        row[2].strip_prefix("0x").map_or_else(|| row[2].parse(), |digits| u32::from_str_radix(digits, 16)).unwrap();
    let steps: Vec<(&str, &str)> = row[12..].iter().map(|step| step.split_once('=').unwrap()).collect();
    let suite = suite(protocol, cipher, key.len(), authentication);
    let mut sa = association(&packets[steps[0].0], suite, spi, key, salt, hmac_key);
    sa.tunnel = row[3] == "tunnel";
    sa.udp = row[10] == "1";
    // The tests receive number 1235 directly after 1, which a window of any size accepts.
    sa.replay_window = if row[11] == "0" { 0 } else { 64 };
    let is_patched = spi < 256 || row[7] == "NULL" && cipher == Cipher::Ctr;
    sa.spi = if spi < 256 { other_spi } else { spi };

    let packet = |&(name, expected): &(&str, &str)| {
        let mut frame = packets[name].clone();
        if row[0].contains("mcgrew_gcm_12") {
            // The authors edited this vector by hand, and its header checksum is 1 too high.
            frame[25] -= 1;
        }
        // A packet with a wrong ICV must keep it. A new ICV would make the packet valid.
        if is_patched && !expected.starts_with("error:auth") {
            update_icv(&sa, &mut frame, row[7] == "NULL" && cipher == Cipher::Ctr);
        } else if is_patched {
            let at = header_at(&frame) + if protocol == Protocol::Ah { 4 } else { 0 };
            frame[at..at + 4].copy_from_slice(&sa.spi.to_be_bytes());
        }
        let expected = match expected.strip_prefix("error:") {
            Some("antireplay") => Expected::Dropped("replayed"),
            Some("auth") => Expected::Dropped("authentication"),
            // The SPI belongs to an SA of the other protocol.
            Some("proto" | "sa_lookup") => Expected::Dropped("no_sa"),
            Some(other) => panic!("{other}"),
            // OpenDataPlane forwards dummy packets. RFC 4303, section 2.6, requires that they are
            // dropped.
            None if row[0].contains("mcgrew_gcm_12") => Expected::Dropped("dummy"),
            None => Expected::Plain(packets[expected][14..].to_vec()),
        };
        Packet { frame, expected }
    };
    Vector { name: row[0].clone(), packets: steps.iter().map(packet).collect(), association: sa }
}

/// Returns the offset of ESP or AH, after IPv4 or IPv6, at most one extension header, and UDP.
fn header_at(frame: &[u8]) -> usize {
    let (mut at, mut protocol) = match frame[14] >> 4 {
        4 => (14 + usize::from(frame[14] & 15) * 4, frame[23]),
        _ => (14 + 40, frame[20]),
    };
    if protocol == 0 && frame[14] >> 4 == 6 {
        (at, protocol) = (at + 8 + 8 * usize::from(frame[at + 1]), frame[at]);
    }
    if protocol == 17 { at + 8 } else { at }
}

/// Writes the SA's SPI and a matching ICV. `append` adds an ICV to a packet without one.
fn update_icv(sa: &Association, frame: &mut Vec<u8>, append: bool) {
    let at = header_at(frame);
    // The protocol of the frame, which may differ from that of the SA.
    let is_ah = frame[14] >> 4 == 4 && frame[23] == 51 || frame[14] >> 4 == 6 && [frame[20], frame[54]].contains(&51);
    if is_ah {
        frame[at + 4..at + 8].copy_from_slice(&sa.spi.to_be_bytes());
        if sa.suite.protocol == Protocol::Ah {
            update_ah_icv(sa, frame, at);
        }
        return;
    }
    frame[at..at + 4].copy_from_slice(&sa.spi.to_be_bytes());
    if sa.suite.protocol == Protocol::Ah {
        return;
    }
    let icv_bytes = sa.icv_bytes;
    if append {
        frame.resize(frame.len() + icv_bytes, 0);
        let total = (frame.len() - 14) as u16;
        frame[16..18].copy_from_slice(&total.to_be_bytes());
        set_ipv4_checksum(&mut frame[14..]);
    }
    let end = frame.len() - icv_bytes;
    let esp = frame[at..end].to_vec();
    let icv = match (sa.suite.cipher, sa.suite.authentication) {
        (_, Authentication::None) => return,
        (Cipher::Ctr, Authentication::Ghash) => gcm_tag(sa, &esp),
        (_, Authentication::Ghash) => gmac(sa, &esp[8..16], &esp),
        _ => hmac(sa, &esp),
    };
    frame[end..].copy_from_slice(&icv[..icv_bytes]);
}

fn update_ah_icv(sa: &Association, frame: &mut [u8], at: usize) {
    let iv_bytes = if sa.suite.authentication == Authentication::Ghash { 8 } else { 0 };
    let icv_at = at + 12 + iv_bytes;
    let mut data = frame[14..].to_vec();
    let mutable: &[usize] = if data[0] >> 4 == 4 { &[1, 6, 7, 8, 10, 11] } else { &[1, 2, 3, 7] };
    mutable.iter().for_each(|&at| data[at] = 0);
    data[0] &= if data[0] >> 4 == 4 { 0xff } else { 0xf0 };
    data[icv_at - 14..][..sa.icv_bytes].fill(0);
    let icv = match sa.suite.authentication {
        Authentication::Ghash => gmac(sa, &frame[at + 12..icv_at], &data),
        _ => hmac(sa, &data),
    };
    frame[icv_at..][..sa.icv_bytes].copy_from_slice(&icv[..sa.icv_bytes]);
}

fn hmac(sa: &Association, data: &[u8]) -> Vec<u8> {
    fn code<M: Mac + KeyInit>(key: &[u8], data: &[u8]) -> Vec<u8> {
        let mut mac = <M as KeyInit>::new_from_slice(key).unwrap();
        mac.update(data);
        mac.finalize().into_bytes().to_vec()
    }
    match sa.suite.authentication {
        Authentication::Sha1 => code::<Hmac<Sha1>>(&sa.hmac_key, data),
        Authentication::Sha256 => code::<Hmac<Sha256>>(&sa.hmac_key, data),
        Authentication::Sha384 => code::<Hmac<Sha384>>(&sa.hmac_key, data),
        Authentication::Sha512 => code::<Hmac<Sha512>>(&sa.hmac_key, data),
        other => panic!("{other:?} is no HMAC"),
    }
}

fn nonce(sa: &Association, iv: &[u8]) -> [u8; 12] {
    [&sa.salt, iv].concat().try_into().unwrap()
}

fn gmac(sa: &Association, iv: &[u8], data: &[u8]) -> Vec<u8> {
    let cipher = Aes128Gcm::new_from_slice(&sa.key).unwrap();
    let mut nothing = [0; 0];
    let tag = cipher.encrypt_inout_detached((&nonce(sa, iv)).into(), data, nothing.as_mut_slice().into());
    tag.unwrap().to_vec()
}

/// Returns the GCM tag of an encrypted packet. Encrypting the ciphertext gives the plaintext;
/// encrypting that gives the ciphertext again, with its tag.
fn gcm_tag(sa: &Association, esp: &[u8]) -> Vec<u8> {
    let cipher = Aes128Gcm::new_from_slice(&sa.key).unwrap();
    let nonce = nonce(sa, &esp[8..16]);
    let mut data = esp[16..].to_vec();
    cipher.encrypt_inout_detached((&nonce).into(), &[], data.as_mut_slice().into()).unwrap();
    let tag = cipher.encrypt_inout_detached((&nonce).into(), &esp[..8], data.as_mut_slice().into()).unwrap();
    assert_eq!(data, esp[16..]);
    tag.to_vec()
}

/// Returns pings between two strongSwan peers, with ESP in UDP.
fn strongswan() -> Vec<Vector> {
    let vector = |row: Vec<String>| {
        let spi = u32::from_str_radix(row[1].strip_prefix("0x").unwrap(), 16).unwrap();
        let frames = lines(&format!("strongswan/{}.txt", row[0])).into_iter().map(|line| unhex(&line[0]));
        let frames: Vec<Vec<u8>> = frames.filter(|frame| frame[42..46] == spi.to_be_bytes()).collect();
        let (cipher, authentication) = match row[4].as_str() {
            "AES_CBC" => (Cipher::Cbc, Authentication::Sha1),
            "AES_GCM_16" => (Cipher::Ctr, Authentication::Ghash),
            "CHACHA20_POLY1305" => (Cipher::ChaCha20, Authentication::Poly1305),
            other => panic!("{other}"),
        };
        let mut key = unhex(&row[5]);
        let salt = if cipher == Cipher::Cbc { Vec::new() } else { key.split_off(key.len() - 4) };
        let hmac_key = if row[7] == "-" { Vec::new() } else { unhex(&row[7]) };
        let suite = suite(Protocol::Esp, cipher, key.len(), authentication);
        let association = Association { udp: true, ..association(&frames[0], suite, spi, key, salt, hmac_key) };
        let packet = |frame: Vec<u8>| {
            // The inner networks are 10.1.0.0/24 and 10.2.0.0/24.
            let side =
                |address: IpAddr| if address == IpAddr::from([192, 0, 2, 1]) { [10, 1, 0, 1] } else { [10, 2, 0, 1] };
            let [source, destination] = ends(&frame).map(side);
            Packet { frame, expected: Expected::Ping { source, destination } }
        };
        let packets: Vec<Packet> = frames.into_iter().map(packet).collect();
        assert_eq!(packets.len(), 10, "{}", row[0]);
        Vector { name: format!("strongSwan, {}, {}", row[0], row[1]), association, packets }
    };
    lines("strongswan/keys.txt").into_iter().map(vector).collect()
}

/// Returns the pings from 192.0.2.1 to 192.0.1.1 of a tcpdump test. `tcpdump -E` shows their
/// contents.
fn tcpdump() -> Vector {
    let frames: Vec<Vec<u8>> =
        lines("tcpdump/sunrise-sunset-aes.txt").into_iter().map(|line| unhex(&line[0])).collect();
    let suite = suite(Protocol::Esp, Cipher::Cbc, 32, Authentication::Sha1);
    let key = unhex("aaaabbbbccccdddd4043434545464649494a4a4c4c4f4f515152525454575758");
    let association = association(&frames[0], suite, 0xd123_4567, key, Vec::new(), unhex(&"8765".repeat(10)));
    let expected = Expected::Ping { source: [192, 0, 2, 1], destination: [192, 0, 1, 1] };
    let packets = frames.into_iter().map(|frame| Packet { frame, expected: expected.clone() }).collect();
    Vector { name: "tcpdump".to_owned(), association, packets }
}
