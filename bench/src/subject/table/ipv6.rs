//! The IPv6 route table: lookups without packets. The peers are DPDK's rte_fib6 and rte_lpm6.

use std::net::Ipv6Addr;
use std::time::Instant;

use godwit_function::Function;
use godwit_kernels::image::IPV6_NONE;

use crate::error::Error;
use crate::load::build::build;
use crate::load::frames::Random;
use crate::load::routes::{self, NEXT_HOPS, Route6};
use crate::progress::Progress;
use crate::run::options::{Common, Context};
use crate::run::peer;
use crate::run::rounds::{self, Race};
use crate::run::row::{Details, Row};

/// Addresses of a round.
const ADDRESSES: usize = 1 << 19;
/// Addresses of a call, as in the peers.
const BULK: usize = 256;

/// Measures lookups below the prefixes of 2025 and below random prefixes.
pub(in crate::subject) fn lookup(context: &Context, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let common = &context.common;
    let mut all = prefixes_2025()?;
    all.truncate(if common.brief() { 2000 } else { all.len() });
    let random = routes::random_prefixes6(if common.brief() { 2000 } else { 200_000 });
    let mut rows = Vec::new();
    for (name, routes) in [("2025", all), ("random", random)] {
        let addresses = addresses(&routes, if common.brief() { 4096 } else { ADDRESSES });
        progress(&format!("{name}: {} prefixes, {} addresses per round", routes.len(), addresses.len()));
        rows.append(&mut table(name, &routes, &addresses, common, progress)?);
    }
    Ok(rows)
}

fn table(
    name: &str,
    routes: &[Route6],
    addresses: &[[u8; 16]],
    common: &Common,
    progress: &mut Progress<'_>,
) -> Result<Vec<Row>, Error> {
    let file = routes::write_file6(routes)?;
    let mut functions = Vec::new();
    for form in ["trie", "hash"] {
        let stanza = format!("lookup = \"{form}\"\n{}", routes::stanza(file.path()));
        functions.push((form, build("ipv6", &stanza)?));
    }
    let prefixes = Details::default().with("prefixes", name);
    let details = |function: &dyn Function| {
        prefixes.clone().with("table_mib", function.image().len() as f64 / f64::from(1 << 20))
    };
    let mut race = Race::new(addresses.len());
    for (form, function) in &functions {
        for level in godwit_kernels::levels().iter().filter(|level| level.supported()) {
            let lookup = move |image, variant, addresses: &[[u8; 16]], next_hops: &mut [u32]| {
                // SAFETY: this CPU supports the level, and `ipv6` built the image for this variant.
                #[allow(unsafe_code, reason = "the entry is C")]
                unsafe {
                    level.ipv6_lookup_bulk(image, variant, addresses, next_hops);
                }
            };
            race.ours(&format!("{name} {form} {}", level.name), BULK, &details(&**function), move || {
                Ok(round(&lookup, &**function, addresses))
            });
        }
    }
    for (form, function) in &functions {
        for native in godwit_kernels::natives().iter().filter(|native| native.supported() && native.looks_up()) {
            let lookup = move |image, variant, addresses: &[[u8; 16]], next_hops: &mut [u32]| {
                // SAFETY: this CPU supports the form, and `ipv6` built the image for this variant.
                #[allow(unsafe_code, reason = "the entry is C")]
                unsafe {
                    native.ipv6_lookup_bulk(image, variant, addresses, next_hops);
                }
            };
            race.ours(&format!("{name} {form} {}", native.name), BULK, &details(&**function), move || {
                Ok(round(&lookup, &**function, addresses))
            });
        }
    }
    let records: Vec<u8> = routes.iter().flat_map(record).collect();
    let forms = |forms: &[&str]| {
        let form = |form: &&str| (format!("{name} {form}"), BULK, (*form).to_owned());
        forms.iter().map(form).collect::<Vec<_>>()
    };
    for (peer, names) in [("rte_fib6", &["scalar", "avx512"][..]), ("rte_lpm6", &["bulk"])] {
        if let Some(ready) = peer::over(peer, &records, &[addresses.as_flattened()], common.peers, progress)? {
            race.peer(peer, ready, &prefixes, forms(names));
        }
    }
    let rows = race.run(common)?;
    rounds::report_ratio(&rows, progress);
    Ok(rows)
}

/// Returns a route in the peers' format: prefix, length and next hop.
fn record(route: &Route6) -> Vec<u8> {
    let rest = [u32::from(route.length), route.next_hop].map(u32::to_le_bytes);
    [&route.prefix.to_be_bytes()[..], rest.as_flattened()].concat()
}

/// Returns addresses below uniformly drawn prefixes, with random host bits.
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

/// Returns the 160,147 IPv6 prefixes of 2025, each with a random next hop.
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

/// Bulk lookup. The arguments are image, variant, addresses, and output for next hops.
type Bulk<'a> = &'a dyn Fn(*const u8, u32, &[[u8; 16]], &mut [u32]);

/// Runs a round. Returns its time in nanoseconds and the sum of its results.
fn round(lookup: Bulk<'_>, function: &dyn Function, addresses: &[[u8; 16]]) -> (f64, u64) {
    let (image, variant) = (function.image().as_ptr(), u32::from(function.properties().variant));
    let mut next_hops = [0; BULK];
    let mut sum = 0;
    let started = Instant::now();
    for bulk in addresses.chunks_exact(BULK) {
        lookup(image, variant, bulk, &mut next_hops);
        sum += rounds::sum(&next_hops, IPV6_NONE);
    }
    (started.elapsed().as_nanos() as f64, sum)
}
