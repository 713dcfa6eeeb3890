//! The IPv6 route table alone: bare look-ups. Peers: DPDK's rte_fib6 and rte_lpm6.

use std::net::Ipv6Addr;
use std::time::Instant;

use godwit_function::Function;
use godwit_kernels::image::IPV6_NO_ROUTE;

use crate::frames::Random;
use crate::race::{self, Race};
use crate::routes::{self, NEXT_HOPS, Route6};
use crate::{BenchOptions, Error, LITTLE, Progress, Row, function, peer};

/// Addresses looked up in a round.
const ADDRESSES: usize = 1 << 19;
/// Addresses handed over at once, as in the peers.
const BULK: usize = 256;

/// The bench `ipv6-lookup`.
pub(crate) fn lookup(options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let little = options.time < LITTLE;
    let mut all = prefixes_2025()?;
    all.truncate(if little { 2000 } else { all.len() });
    let random = routes::random_prefixes6(if little { 2000 } else { 200_000 });
    let mut rows = Vec::new();
    for (name, routes) in [("2025", all), ("random", random)] {
        let addresses = addresses(&routes, if little { 4096 } else { ADDRESSES });
        progress(&format!("{name}: {} prefixes, {} addresses of theirs a round", routes.len(), addresses.len()));
        rows.append(&mut table(name, &routes, &addresses, options, progress)?);
    }
    Ok(rows)
}

fn table(
    name: &str,
    routes: &[Route6],
    addresses: &[[u8; 16]],
    options: &BenchOptions,
    progress: &mut Progress<'_>,
) -> Result<Vec<Row>, Error> {
    let file = routes::write_file6(routes)?;
    let mut functions = Vec::new();
    for form in ["trie", "hash"] {
        let stanza = format!("lookup = \"{form}\"\n{}", routes::stanza(file.path()));
        functions.push((form, function::build("ipv6", &stanza)?));
    }
    let mut race = Race::new("ipv6-lookup", addresses.len());
    for (form, function) in &functions {
        let note = format!("image of {:.1} MB", function.image().len() as f64 / f64::from(1 << 20));
        for level in godwit_kernels::levels().iter().filter(|level| level.supported()) {
            let lookup = move |image, variant, addresses: &[[u8; 16]], next_hops: &mut [u32]| {
                // SAFETY: only supported levels are asked, and the image is the one that `ipv6` built for this variant.
                #[allow(unsafe_code)]
                unsafe {
                    level.ipv6_lookup_bulk(image, variant, addresses, next_hops);
                }
            };
            race.ours(&format!("{name} {form} {}", level.name), BULK, &note, move || {
                Ok(round(&lookup, &**function, addresses))
            });
        }
    }
    for (form, function) in &functions {
        let note = format!("image of {:.1} MB", function.image().len() as f64 / f64::from(1 << 20));
        for native in godwit_kernels::natives().iter().filter(|native| native.supported()) {
            let lookup = move |image, variant, addresses: &[[u8; 16]], next_hops: &mut [u32]| {
                // SAFETY: as above, for native forms.
                #[allow(unsafe_code)]
                unsafe {
                    native.ipv6_lookup_bulk(image, variant, addresses, next_hops);
                }
            };
            race.ours(&format!("{name} {form} {}", native.name), BULK, &note, move || {
                Ok(round(&lookup, &**function, addresses))
            });
        }
    }
    let records: Vec<u8> = routes.iter().flat_map(record).collect();
    let forms = |forms: &[&str]| {
        let form = |form: &&str| (format!("{name} {form}"), BULK, (*form).to_owned());
        forms.iter().map(form).collect::<Vec<_>>()
    };
    for (peer, ways) in [("rte_fib6", &["scalar", "avx512"][..]), ("rte_lpm6", &["bulk"])] {
        if let Some(ready) = peer::over(peer, &records, &[addresses.as_flattened()], options, progress)? {
            race.peer(peer, ready, forms(ways));
        }
    }
    let rows = race.run(options)?;
    race::say_ratio(&rows, progress);
    Ok(rows)
}

/// Prefix, length and next hop as the peers read them.
fn record(route: &Route6) -> Vec<u8> {
    let rest = [u32::from(route.length), route.next_hop].map(u32::to_le_bytes);
    [&route.prefix.to_be_bytes()[..], rest.as_flattened()].concat()
}

/// Addresses below prefixes drawn uniformly, the other bits at random.
fn addresses(routes: &[Route6], count: usize) -> Vec<[u8; 16]> {
    let mut random = Random::new(98);
    let mut wide = || u128::from(random.next_u32());
    let address = |_| {
        let route = &routes[((wide() * routes.len() as u128) >> 32) as usize];
        let bits = wide() << 96 | wide() << 64 | wide() << 32 | wide();
        let host = bits.checked_shr(route.length.into()).unwrap_or(0);
        (route.prefix | host).to_be_bytes()
    };
    (0..count).map(address).collect()
}

/// The 160,147 IPv6 prefixes of 2025, each with a next hop drawn by seed.
fn prefixes_2025() -> Result<Vec<Route6>, Error> {
    let text = routes::text_2025()?;
    let mut random = Random::new(6);
    let routes = text.lines().filter_map(|line| {
        let (address, length) = line.split_once('/')?;
        let prefix = u128::from(address.parse::<Ipv6Addr>().ok()?);
        Some(Route6 { prefix, length: length.parse().ok()?, next_hop: random.below(NEXT_HOPS) })
    });
    Ok(routes.collect())
}

/// A bulk look-up: the image, its variant, addresses, and where next hops go.
type Bulk<'a> = &'a dyn Fn(*const u8, u32, &[[u8; 16]], &mut [u32]);

fn round(lookup: Bulk<'_>, function: &dyn Function, addresses: &[[u8; 16]]) -> (f64, u64) {
    let (image, variant) = (function.image().as_ptr(), u32::from(function.variant()));
    let mut next_hops = [0; BULK];
    let mut sum = 0;
    let started = Instant::now();
    for bulk in addresses.chunks_exact(BULK) {
        lookup(image, variant, bulk, &mut next_hops);
        sum += race::sum(&next_hops, IPV6_NO_ROUTE);
    }
    (started.elapsed().as_nanos() as f64, sum)
}
