//! Measures both lookup structures on this machine, and chooses the faster one.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::Form;
use super::rib::Rib;
use super::tables::Built;
use super::walk::Table;
use crate::routes::Address;

/// Number of addresses that each measurement looks up. These lookups read more memory than a small
/// cache holds, so the measurement includes cache misses.
const ADDRESSES: usize = 1 << 14;
/// Number of measurements per table. Only the shortest time counts, because other work on the
/// machine can only increase the times.
const ROUNDS: usize = 5;

/// Measures two tables with the same routes and returns the faster one. The measurements alternate
/// between the tables, so that other work affects both equally.
pub(super) fn faster(trie: Built, hash: Built, rib: &Rib) -> Built {
    let addresses = addresses(rib);
    let mut fastest = [Duration::MAX; 2];
    for _ in 0..ROUNDS {
        for (table, fastest) in [trie.table(), hash.table()].into_iter().zip(&mut fastest) {
            *fastest = round(&table, &addresses).min(*fastest);
        }
    }
    debug_assert!(trie.form == Form::Trie && hash.form == Form::Hash);
    if fastest[0] <= fastest[1] { trie } else { hash }
}

fn round(table: &Table<&[u8]>, addresses: &[u128]) -> Duration {
    let started = Instant::now();
    let sum = addresses.iter().fold(0, |sum: u32, &address| sum.wrapping_add(table.lookup(address).unwrap_or(0)));
    black_box(sum);
    started.elapsed()
}

/// Returns test addresses in random order. Each address is a random address of one of several
/// evenly spaced routes.
fn addresses(rib: &Rib) -> Vec<u128> {
    let step = (rib.len() / ADDRESSES).max(1);
    let mut state = 1u64;
    let mut random = || {
        // The random numbers come from splitmix64 (Steele, Lea, Flood, OOPSLA 2014, figure 16).
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let mut addresses: Vec<(u64, u128)> = rib
        .routes()
        .step_by(step)
        .map(|route| {
            let host = u128::from(random()) << 64 | u128::from(random());
            (random(), route.prefix | host & !u128::MAX.masked(route.length))
        })
        .collect();
    addresses.sort_unstable();
    addresses.into_iter().map(|(_, address)| address).collect()
}
