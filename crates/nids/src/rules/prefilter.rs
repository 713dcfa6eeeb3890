//! Chooses a rule's byte string for the prefilter.

use super::content::Content;
use super::field::{Field, Kind};
use super::rule::{Chain, Prefilter, Test};

/// Chooses a rule's `content` test for the prefilter.
///
/// A test with the modifier `fast_pattern` is preferred. Tests of transaction fields come next,
/// because these fields are shorter than the payload. Among equal tests, the one with the rarest
/// bytes is chosen. Returns `None` if no test is suitable.
pub fn choose(chains: &[Chain]) -> Option<Prefilter> {
    let mut best: Option<(bool, bool, usize, Prefilter)> = None;
    for (chain_index, chain) in chains.iter().enumerate() {
        if !is_searched(chain) {
            continue;
        }
        for (test_index, test) in chain.tests.iter().enumerate() {
            let Test::Content(content) = test else { continue };
            if content.negated {
                continue;
            }
            let rank = (
                content.fast_pattern,
                chain.field != Field::Payload,
                strength(searched_part(content)),
                Prefilter { chain: chain_index, test: test_index },
            );
            if best.as_ref().is_none_or(|known| (rank.0, rank.1, rank.2) > (known.0, known.1, known.2)) {
                best = Some(rank);
            }
        }
    }
    best.map(|rank| rank.3)
}

/// Returns whether the prefilter can search the field of these tests.
fn is_searched(chain: &Chain) -> bool {
    let searched = match chain.field.info().kind {
        Kind::Packet => chain.field == Field::Payload,
        Kind::Transaction | Kind::Repeated => true,
        Kind::Number | Kind::Numbers => false,
    };
    // A rule with the option `absent` can match a missing field, so the prefilter must not exclude
    // it.
    searched && !chain.tests.iter().any(|test| matches!(test, Test::Absent { .. }))
}

/// Returns the part of a byte string that the prefilter uses.
pub fn searched_part(content: &Content) -> &[u8] {
    match content.fast_part {
        Some((offset, length)) => {
            let start = usize::from(offset).min(content.bytes.len());
            let end = (start + usize::from(length)).min(content.bytes.len());
            &content.bytes[start..end]
        }
        None => &content.bytes,
    }
}

/// Estimates how rare a byte string is in traffic. Rare bytes and many different bytes increase the
/// result.
fn strength(bytes: &[u8]) -> usize {
    let mut seen = [false; 256];
    let mut sum = 0;
    for byte in bytes.iter().take(64) {
        let weight = match byte {
            0x20 | 0x00 | 0xff => 2,
            b'a'..=b'z' | b'A'..=b'Z' => 3,
            b'0'..=b'9' => 4,
            _ if byte.is_ascii_graphic() => 5,
            _ => 6,
        };
        sum += if std::mem::replace(&mut seen[usize::from(*byte)], true) { 1 } else { weight };
    }
    sum
}
