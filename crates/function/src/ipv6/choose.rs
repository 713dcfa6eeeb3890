//! Which form of the table is faster here.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::Form;
use super::rib::Rib;
use super::tables::Built;
use super::walk::Table;
use crate::routes::Address;

/// Addresses of a round: more than a small cache remembers the way of.
const ADDRESSES: usize = 1 << 14;
/// The fastest round of each counts: whatever else a machine does makes rounds slower, and never faster.
const ROUNDS: usize = 5;

/// The one of two tables of the same routes that looks addresses up faster, in rounds that alternate.
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

fn round(table: &Table<'_>, addresses: &[u128]) -> Duration {
    let started = Instant::now();
    let sum = addresses.iter().fold(0, |sum: u32, &address| sum.wrapping_add(table.lookup(address).unwrap_or(0)));
    black_box(sum);
    started.elapsed()
}

/// One in each of many routes, which are as far from each other as can be, in no order.
fn addresses(rib: &Rib) -> Vec<u128> {
    let step = (rib.len() / ADDRESSES).max(1);
    let mut state = 1u64;
    let mut random = || {
        // splitmix64 (Steele, Lea, Flood, OOPSLA 2014, figure 16).
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
