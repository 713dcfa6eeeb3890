//! Fuzz targets for parsers and for packet reassembly. A target panics if an invariant is violated.

use std::collections::HashMap;

use crate::dpi;
use crate::fragments::{Added, Limits, Reassembler, ip_at};
use crate::hash::{self, Algorithm};
use crate::routes::{Address, Names, Route, parse};

pub use crate::routing::netlink_messages;

/// Parses a route file. The first byte of `data` selects the address family. Checks that no route
/// has bits set beyond its prefix length, and that each error names an existing line.
pub fn route_file(data: &[u8]) {
    match data {
        [4, text @ ..] => routes_of::<u32>(text),
        [_, text @ ..] => routes_of::<u128>(text),
        [] => {}
    }
}

fn routes_of<A: Address>(text: &[u8]) {
    let names = Names { index: HashMap::from([(&b"a"[..], 0), (b"lan", 1)]), default: Some(2) };
    let lines = 1 + text.iter().filter(|&&byte| byte == b'\n').count();
    let mut routes: Vec<Route<A>> = Vec::new();
    match parse(text, &names, &mut routes) {
        Ok(()) => assert!(routes.len() <= lines),
        Err((line, message)) => assert!((1..=lines).contains(&line) && !message.is_empty()),
    }
    for route in routes {
        assert!(route.next_hop <= 2 && route.prefix.masked(route.length) == route.prefix);
    }
}

/// Parses a pattern file. Checks that no pattern is empty and that each error names an existing
/// line.
pub fn pattern_file(data: &[u8]) {
    let lines = 1 + data.iter().filter(|&&byte| byte == b'\n').count();
    match dpi::parse_patterns(data) {
        Ok(patterns) => assert!(patterns.len() <= lines && patterns.iter().all(|pattern| !pattern.is_empty())),
        Err((line, message)) => assert!((1..=lines).contains(&line) && !message.is_empty()),
    }
}

/// Parses a file of digests. The first byte of `data` selects the algorithm. Checks that each error
/// and each digest names an existing line.
pub fn digest_file(data: &[u8]) {
    let Some((&selected, text)) = data.split_first() else { return };
    let algorithm = [Algorithm::Md5, Algorithm::Sha1, Algorithm::Sha256][usize::from(selected % 3)];
    let lines = 1 + text.iter().filter(|&&byte| byte == b'\n').count();
    match hash::parse_digests(text, algorithm) {
        Ok(listed) => assert!(listed.iter().all(|entry| (1..=lines).contains(&(entry.line as usize)))),
        Err((line, message)) => assert!((1..=lines).contains(&line) && !message.is_empty()),
    }
}

/// Reassembles the frames that `data` encodes. Two bytes precede each frame: its length, and the
/// time since the previous frame in tenths of the timeout.
///
/// Checks that each held fragment is joined or dropped exactly once, and that memory is bounded.
pub fn reassembly(mut data: &[u8]) {
    const TIMEOUT_NS: u64 = 1_000_000_000;
    let limits = Limits { packets: 4, bytes: 4096, frame_bytes: 1600, timeout_ns: TIMEOUT_NS };
    let mut reassembler = Reassembler::new(limits);
    let (mut now_ns, mut held) = (0, 0);
    while let [length, time, rest @ ..] = data {
        let (frame, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        data = rest;
        now_ns += u64::from(*time) * (TIMEOUT_NS / 10);
        if let Some(at) = ip_at(frame) {
            match reassembler.add(frame, at, now_ns) {
                Ok(Added::Held) => held += 1,
                Ok(Added::Whole { held: joined }) => {
                    held -= joined;
                    assert!(reassembler.whole().len() <= 1600);
                }
                Err(_) => {}
            }
        }
        held -= reassembler.take_expired().map(|(fragments, _)| fragments).sum::<u32>();
        assert!(reassembler.held_bytes() <= 4096 + 1600, "{} bytes", reassembler.held_bytes());
    }
    reassembler.expire_all();
    held -= reassembler.take_expired().map(|(fragments, _)| fragments).sum::<u32>();
    assert_eq!((held, reassembler.held_bytes()), (0, 0));
}
