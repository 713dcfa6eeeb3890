//! Selects a server by a consistent hash of the client's address.
//!
//! The method is rendezvous hashing (Thaler and Ravishankar, IEEE/ACM Transactions on Networking,
//! 1998). A hash gives a number for each pair of client and server. The server with the largest
//! number is selected. If a server is removed, only its clients move. If a server is added, clients
//! move only to this server.

use std::net::IpAddr;

/// Mixes the bits of a number with splitmix64 (Steele, Lea, Flood, OOPSLA 2014, figure 16).
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Returns a hash of `bytes` that is the same on every machine.
pub(super) fn hash_bytes(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(bytes.len() as u64, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(hash ^ u64::from_le_bytes(word))
    })
}

pub(super) fn rendezvous(client: IpAddr, seeds: impl Iterator<Item = u64>) -> Option<usize> {
    let client = match client {
        IpAddr::V4(address) => hash_bytes(&address.octets()),
        IpAddr::V6(address) => hash_bytes(&address.octets()),
    };
    seeds.enumerate().max_by_key(|(_, seed)| mix(client ^ seed)).map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn clients_are_spread_and_keep_their_server() {
        let seeds: Vec<u64> = (0..5).map(|server| hash_bytes(format!("10.0.0.{server}:80").as_bytes())).collect();
        let server = |client: u32, seeds: &[u64]| {
            let client = Ipv4Addr::from(0x0a00_0000 + client).into();
            seeds[rendezvous(client, seeds.iter().copied()).unwrap()]
        };
        let mut counts = [0; 5];
        for client in 0..10_000 {
            let chosen = server(client, &seeds);
            counts[seeds.iter().position(|seed| *seed == chosen).unwrap()] += 1;
            // If the last server is removed, only its clients move.
            if chosen != seeds[4] {
                assert_eq!(server(client, &seeds[..4]), chosen);
            }
        }
        assert!(counts.iter().all(|count| (1800..2200).contains(count)), "{counts:?}");
        assert_eq!(rendezvous(Ipv4Addr::LOCALHOST.into(), std::iter::empty()), None);
    }
}
