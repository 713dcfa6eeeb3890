//! Flow hash of packets. It is the Toeplitz hash that NICs compute for receive-side scaling (RSS).
//!
//! The input consists of source address, destination address, source port and destination port in
//! network byte order (Microsoft, "RSS hashing functions"). Each 1 bit of the input selects the 32
//! key bits that start at the same bit position. The hash is the XOR of all selected key words.
//!
//! ```text
//! key    | k0 k1 k2 … k31 | k32 …                          40 bytes
//! input  | i0 i1 i2 …                                      up to 36 bytes (IPv6 with ports)
//! hash   = XOR over all n with i_n = 1 of  k_n … k_(n+31)
//! ```
//!
//! The hash is linear, so it can be computed with one table lookup per input byte. The symmetric
//! key repeats every 16 bits. With this key, the hash depends only on the XOR of all 16-bit words
//! of the input. Two lookups are then sufficient for every input.

use godwit_wire::{FiveTuple, IpAddress, Parsed};

/// Key length, in bytes.
pub const KEY_BYTES: usize = 40;

/// Maximum length of the hash input, in bytes. The longest input consists of two IPv6 addresses and
/// two ports. Its last bit selects the last 32 bits of the hash key.
const INPUT_BYTES_MAX: usize = KEY_BYTES - 4;

/// Hash key that gives both directions of a flow the same hash (S. Woo and K. Park, "Scalable TCP
/// session monitoring with symmetric receive-side scaling", KAIST technical report, 2012).
pub const SYMMETRIC_KEY: [u8; KEY_BYTES] = {
    let mut key = [0; KEY_BYTES];
    let mut at = 0;
    while at < KEY_BYTES {
        key[at] = if at % 2 == 0 { 0x6d } else { 0x5a };
        at += 1;
    }
    key
};

/// Table for one byte position in the hash input. It contains the hash contribution of each byte
/// value.
type Table = [u32; 256];

/// A Toeplitz hash with a fixed key.
///
/// If the key repeats every 16 bits ([`Toeplitz::symmetric`]), swapping source and destination does
/// not change the hash. With any other key, the hash depends on the direction. The two halves of a
/// symmetric hash are equal, so it has only 16 bits of information. It distributes flows over
/// workers but does not identify a flow. An attacker who knows the key can create collisions.
///
/// ```
/// use godwit_packet::flow::Toeplitz;
///
/// let toeplitz = Toeplitz::symmetric();
/// let (client, server) = ([192, 0, 2, 1], [198, 51, 100, 7]);
/// let request = toeplitz.hash_v4(client, server, Some((40000, 443)));
/// let response = toeplitz.hash_v4(server, client, Some((443, 40000)));
/// assert_eq!(request, response);
/// ```
#[derive(Clone, Debug)]
pub struct Toeplitz {
    tables: Tables,
}

#[derive(Clone, Debug)]
enum Tables {
    /// Tables for any key, with one table per byte position of the input. They occupy 36 KiB.
    Positions(Box<[Table; INPUT_BYTES_MAX]>),
    /// Tables for a key that repeats every 16 bits. One table is for even byte positions, and one
    /// for odd byte positions. They occupy 2 KiB.
    Period(Box<[Table; 2]>),
}

impl Toeplitz {
    /// Creates a Toeplitz hash with the given key. Tables are smaller for a key that repeats every
    /// 16 bits.
    pub fn new(key: &[u8; KEY_BYTES]) -> Self {
        if key.chunks(2).all(|pair| pair == &key[..2]) {
            Self { tables: Tables::Period(Box::new([table(key, 0), table(key, 1)])) }
        } else {
            Self::positions(key)
        }
    }

    /// Creates a hash with [`SYMMETRIC_KEY`].
    pub fn symmetric() -> Self {
        Self::new(&SYMMETRIC_KEY)
    }

    fn positions(key: &[u8; KEY_BYTES]) -> Self {
        let mut tables = Box::new([[0; 256]; INPUT_BYTES_MAX]);
        for (position, entries) in tables.iter_mut().enumerate() {
            *entries = table(key, position);
        }
        Self { tables: Tables::Positions(tables) }
    }

    /// Returns the hash of two IPv4 addresses and two ports. The result for `None` equals the
    /// result for two zero ports.
    #[inline(always)]
    pub fn hash_v4(&self, source: [u8; 4], destination: [u8; 4], ports: Option<(u16, u16)>) -> u32 {
        let (source_port, destination_port) = ports.unwrap_or_default();
        match &self.tables {
            Tables::Period(tables) => {
                let addresses = u32::from_be_bytes(source) ^ u32::from_be_bytes(destination);
                period(tables, (addresses >> 16) as u16 ^ addresses as u16 ^ source_port ^ destination_port)
            }
            Tables::Positions(tables) => {
                let mut input = [0; 12];
                input[..4].copy_from_slice(&source);
                input[4..8].copy_from_slice(&destination);
                input[8..10].copy_from_slice(&source_port.to_be_bytes());
                input[10..].copy_from_slice(&destination_port.to_be_bytes());
                positions(tables, &input)
            }
        }
    }

    /// Returns the hash of two IPv6 addresses and two ports. The result for `None` equals the
    /// result for two zero ports.
    #[inline]
    pub fn hash_v6(&self, source: [u8; 16], destination: [u8; 16], ports: Option<(u16, u16)>) -> u32 {
        let (source_port, destination_port) = ports.unwrap_or_default();
        match &self.tables {
            Tables::Period(tables) => {
                let addresses = u128::from_be_bytes(source) ^ u128::from_be_bytes(destination);
                let addresses = (addresses >> 64) as u64 ^ addresses as u64;
                let addresses = (addresses >> 32) as u32 ^ addresses as u32;
                period(tables, (addresses >> 16) as u16 ^ addresses as u16 ^ source_port ^ destination_port)
            }
            Tables::Positions(tables) => {
                let mut input = [0; INPUT_BYTES_MAX];
                input[..16].copy_from_slice(&source);
                input[16..32].copy_from_slice(&destination);
                input[32..34].copy_from_slice(&source_port.to_be_bytes());
                input[34..].copy_from_slice(&destination_port.to_be_bytes());
                positions(tables, &input)
            }
        }
    }

    /// Returns the hash of the addresses and ports of a five-tuple. The protocol is ignored.
    /// Returns 0 if one address is IPv4 and the other is IPv6, which does not happen in packets.
    #[inline(always)]
    pub fn hash_five_tuple(&self, tuple: &FiveTuple) -> u32 {
        let ports = Some((tuple.source_port, tuple.destination_port));
        match (tuple.source, tuple.destination) {
            (IpAddress::V4(source), IpAddress::V4(destination)) => self.hash_v4(source, destination, ports),
            (IpAddress::V6(source), IpAddress::V6(destination)) => self.hash_v6(source, destination, ports),
            _ => 0,
        }
    }

    /// Returns the hash of the addresses and ports of a parsed frame. Returns 0 for a frame without
    /// a five-tuple, such as an ARP frame. A NIC also returns 0 for such frames.
    #[inline(always)]
    pub fn hash_parsed(&self, parsed: &Parsed) -> u32 {
        match &parsed.five_tuple {
            Some(tuple) => self.hash_five_tuple(tuple),
            None => 0,
        }
    }

    /// Parses a frame and returns the hash of its addresses and ports.
    #[inline]
    pub fn hash_frame(&self, frame: &[u8]) -> u32 {
        self.hash_parsed(&godwit_wire::parse(frame))
    }
}

/// Returns the table of the input byte at `position`.
fn table(key: &[u8; KEY_BYTES], position: usize) -> Table {
    // Each bit of the input byte selects 32 bits of the key. All eight selections lie within 40
    // bits.
    let key_bits = key[position..position + 5].iter().fold(0u64, |bits, &byte| bits << 8 | u64::from(byte));
    let mut entries = [0; 256];
    for (value, entry) in entries.iter_mut().enumerate() {
        for bit in 0..8 {
            if value & 0x80 >> bit != 0 {
                *entry ^= (key_bits >> (8 - bit)) as u32;
            }
        }
    }
    entries
}

#[inline]
fn period(tables: &[Table; 2], word: u16) -> u32 {
    let [even, odd] = word.to_be_bytes();
    tables[0][usize::from(even)] ^ tables[1][usize::from(odd)]
}

#[inline]
fn positions<const N: usize>(tables: &[Table; INPUT_BYTES_MAX], input: &[u8; N]) -> u32 {
    tables.iter().zip(input).fold(0, |hash, (entries, &byte)| hash ^ entries[usize::from(byte)])
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use godwit_wire::protocol;
    use proptest::prelude::*;

    use super::*;

    /// Key that belongs to the test values below.
    #[rustfmt::skip]
    const SUITE_KEY: [u8; KEY_BYTES] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
        0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    /// Test values from "Verifying the RSS hash calculation" in Microsoft's documentation of
    /// Windows network drivers. Each entry contains the source address and port, the destination
    /// address and port, and two hashes. The first hash covers the addresses, and the second one
    /// also covers the ports.
    #[rustfmt::skip]
    const SUITE: [(&str, u16, &str, u16, u32, u32); 8] = [
        ("66.9.149.187", 2794, "161.142.100.80", 1766, 0x323e8fc2, 0x51ccc178),
        ("199.92.111.2", 14230, "65.69.140.83", 4739, 0xd718262a, 0xc626b0ea),
        ("24.19.198.95", 12898, "12.22.207.184", 38024, 0xd2d0a5de, 0x5c2b394a),
        ("38.27.205.30", 48228, "209.142.163.6", 2217, 0x82989176, 0xafc7327f),
        ("153.39.163.191", 44251, "202.188.127.2", 1303, 0x5d1809c5, 0x10e828a2),
        ("3ffe:2501:200:1fff::7", 2794, "3ffe:2501:200:3::1", 1766, 0x2cc18cd5, 0x40207d3d),
        ("3ffe:501:8::260:97ff:fe40:efab", 14230, "ff02::1", 4739, 0x0f0c461c, 0xdde51bbf),
        ("3ffe:1900:4545:3:200:f8ff:fe21:67cf", 44251, "fe80::200:f8ff:fe21:67cf", 38024, 0x4b61e985, 0x02d1feef),
    ];

    /// Computes the hash bit by bit from the definition.
    fn slow(key: &[u8; KEY_BYTES], input: &[u8]) -> u32 {
        let key_bit = |n: usize| u32::from(key[n / 8] >> (7 - n % 8) & 1);
        let mut hash = 0;
        for n in (0..8 * input.len()).filter(|n| input[n / 8] >> (7 - n % 8) & 1 == 1) {
            hash ^= (n..n + 32).fold(0, |word, n| word << 1 | key_bit(n));
        }
        hash
    }

    fn input(source: &[u8], destination: &[u8], ports: (u16, u16)) -> Vec<u8> {
        [source, destination, &ports.0.to_be_bytes(), &ports.1.to_be_bytes()].concat()
    }

    #[test]
    fn verification_suite() {
        let toeplitz = Toeplitz::new(&SUITE_KEY);
        let hash =
            |source: &str, destination: &str, ports| match (source.parse().unwrap(), destination.parse().unwrap()) {
                (IpAddr::V4(source), IpAddr::V4(destination)) => {
                    toeplitz.hash_v4(source.octets(), destination.octets(), ports)
                }
                (IpAddr::V6(source), IpAddr::V6(destination)) => {
                    toeplitz.hash_v6(source.octets(), destination.octets(), ports)
                }
                _ => unreachable!("both addresses of a row have the same family"),
            };
        for (source, source_port, destination, destination_port, addresses, with_ports) in SUITE {
            assert_eq!(hash(source, destination, None), addresses, "{source} -> {destination}");
            let ports = Some((source_port, destination_port));
            assert_eq!(hash(source, destination, ports), with_ports, "{source} -> {destination} with ports");
        }
    }

    #[test]
    fn symmetric_key_covers_all_buckets() {
        // Each 16-bit input gives a different lower half of the hash. Any number of buckets that is
        // a power of two is therefore evenly filled.
        let toeplitz = Toeplitz::symmetric();
        let mut seen = vec![false; 1 << 16];
        for port in 0..=u16::MAX {
            let hash = toeplitz.hash_v4([0; 4], [0; 4], Some((port, 0)));
            assert_eq!(hash >> 16, hash & 0xffff, "both halves are equal");
            assert!(!std::mem::replace(&mut seen[(hash & 0xffff) as usize], true));
        }
    }

    #[test]
    fn hashes_frames_by_their_five_tuple() {
        let toeplitz = Toeplitz::new(&SUITE_KEY);
        // UDP datagram with the addresses and ports of the first test value.
        #[rustfmt::skip]
        let mut frame = vec![
            0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0x08, 0x00,
            0x45, 0, 0, 28, 0, 1, 0, 0, 64, protocol::UDP, 0, 0, 66, 9, 149, 187, 161, 142, 100, 80,
            0x0a, 0xea, 0x06, 0xe6, 0, 8, 0, 0,
        ];
        assert_eq!(toeplitz.hash_frame(&frame), 0x51ccc178);
        frame[20] = 0x20; // more fragments: only the addresses are hashed
        assert_eq!(toeplitz.hash_frame(&frame), 0x323e8fc2);
        frame[13] = 0x06; // ARP
        assert_eq!(toeplitz.hash_frame(&frame), 0);
        assert_eq!(toeplitz.hash_frame(&[]), 0);
        let mixed = FiveTuple {
            source: IpAddress::V4([1; 4]),
            destination: IpAddress::V6([1; 16]),
            protocol: protocol::UDP,
            source_port: 1,
            destination_port: 2,
        };
        assert_eq!(toeplitz.hash_five_tuple(&mixed), 0);
    }

    proptest! {
        #[test]
        fn tables_equal_the_definition(
            key in prop::collection::vec(any::<u8>(), KEY_BYTES),
            (v4, v6) in any::<([[u8; 4]; 2], [[u8; 16]; 2])>(),
            ports: (u16, u16),
        ) {
            let key: [u8; KEY_BYTES] = key.try_into().unwrap();
            let toeplitz = Toeplitz::new(&key);
            let expected = slow(&key, &input(&v4[0], &v4[1], ports));
            prop_assert_eq!(toeplitz.hash_v4(v4[0], v4[1], Some(ports)), expected);
            let expected = slow(&key, &input(&v6[0], &v6[1], ports));
            prop_assert_eq!(toeplitz.hash_v6(v6[0], v6[1], Some(ports)), expected);
        }

        #[test]
        fn period_tables_equal_the_position_tables(
            pair: [u8; 2],
            (v4, v6) in any::<([[u8; 4]; 2], [[u8; 16]; 2])>(),
            ports: Option<(u16, u16)>,
        ) {
            for pair in [pair, [0x6d, 0x5a]] {
                let key: [u8; KEY_BYTES] = pair.repeat(KEY_BYTES / 2).try_into().unwrap();
                let (fast, general) = (Toeplitz::new(&key), Toeplitz::positions(&key));
                prop_assert!(matches!(fast.tables, Tables::Period(_)));
                prop_assert_eq!(fast.hash_v4(v4[0], v4[1], ports), general.hash_v4(v4[0], v4[1], ports));
                prop_assert_eq!(fast.hash_v6(v6[0], v6[1], ports), general.hash_v6(v6[0], v6[1], ports));
            }
        }

        #[test]
        fn both_directions_have_the_same_hash(
            (v4, v6) in any::<([[u8; 4]; 2], [[u8; 16]; 2])>(),
            (a, b) in any::<(u16, u16)>(),
        ) {
            let toeplitz = Toeplitz::symmetric();
            prop_assert_eq!(toeplitz.hash_v4(v4[0], v4[1], Some((a, b))), toeplitz.hash_v4(v4[1], v4[0], Some((b, a))));
            prop_assert_eq!(toeplitz.hash_v6(v6[0], v6[1], Some((a, b))), toeplitz.hash_v6(v6[1], v6[0], Some((b, a))));
            let tuple = FiveTuple {
                source: IpAddress::V6(v6[0]),
                destination: IpAddress::V6(v6[1]),
                protocol: protocol::TCP,
                source_port: a,
                destination_port: b,
            };
            prop_assert_eq!(toeplitz.hash_five_tuple(&tuple), toeplitz.hash_five_tuple(&tuple.reversed()));
        }
    }
}
