//! Measures the time to load routes: parsing the text, and building the table image.
//!
//! `load_routes FILE` measures the IPv4 prefixes of a file with one prefix in the first column of
//! each line. `load_routes` without an argument measures 1,000,000 and 2,000,000 random routes,
//! with prefix lengths as in real tables and with all lengths. The routes use all next hops
//! equally.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::time::Instant;

use godwit_function::Function;
use godwit_function::ipv4::Ipv4;
use godwit_function::routes::{self, Names};
use godwit_function::routing::NextHop;

const NEXT_HOPS: usize = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Some(file) = std::env::args().nth(1) {
        let text = std::fs::read_to_string(&file)?;
        let first = |line: &str| line.split_whitespace().next().unwrap_or("").to_owned();
        let prefixes: Vec<String> = text.lines().map(first).filter(|p| p.contains('.') && !p.contains(':')).collect();
        return measure(&file, &prefixes);
    }
    for count in [1_000_000, 2_000_000] {
        measure("random, as in real tables", &random_prefixes(count, real_length))?;
        measure("random, lengths 8 to 32", &random_prefixes(count, |dice| 8 + (dice % 25) as u8))?;
        measure("random, all hosts", &random_prefixes(count, |_| 32))?;
    }
    Ok(())
}

/// Returns a prefix length with the approximate distribution of a full table: 60 % are /24, few are
/// longer, and few are shorter than /16.
fn real_length(dice: u64) -> u8 {
    match dice % 1000 {
        0..600 => 24,
        600..950 => 19 + (dice / 1000 % 5) as u8,
        950..990 => 12 + (dice / 1000 % 7) as u8,
        _ => 25 + (dice / 1000 % 8) as u8,
    }
}

fn random_prefixes(count: usize, length: fn(u64) -> u8) -> Vec<String> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        // SplitMix64 (Steele, Lea, Flood, OOPSLA 2014, figure 16).
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let mut seen = HashSet::with_capacity(count);
    let mut prefixes = Vec::with_capacity(count);
    while prefixes.len() < count {
        let length = length(random());
        let address = random() as u32 & u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
        if seen.insert((address, length)) {
            prefixes.push(format!("{}/{length}", Ipv4Addr::from(address)));
        }
    }
    prefixes
}

fn measure(label: &str, prefixes: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let names: Vec<String> = (0..NEXT_HOPS).map(|index| format!("hop{index}")).collect();
    let mut text = String::new();
    for (index, prefix) in prefixes.iter().enumerate() {
        writeln!(text, "{prefix}\t{}", names[index % NEXT_HOPS])?;
    }
    let path = std::env::temp_dir().join(format!("godwit-load-routes-{}.txt", std::process::id()));
    std::fs::write(&path, text)?;

    let begin = Instant::now();
    let text = std::fs::read(&path)?;
    let index = names.iter().zip(0..).map(|(name, index)| (name.as_bytes(), index)).collect::<HashMap<_, _>>();
    let mut routes = Vec::new();
    routes::parse(&text, &Names { index, default: None }, &mut routes)
        .map_err(|(line, message)| format!("line {line}: {message}"))?;
    let parsed = begin.elapsed();
    let count = routes.len();
    let function = Ipv4::new(routes, vec![NextHop::Local; NEXT_HOPS])?;
    let total = begin.elapsed();
    std::fs::remove_file(&path)?;

    println!(
        "{label}: {count} routes; read {:.0} ms, build {:.0} ms, total {:.0} ms; image {} MiB, {}-byte entries",
        parsed.as_secs_f64() * 1e3,
        (total - parsed).as_secs_f64() * 1e3,
        total.as_secs_f64() * 1e3,
        function.image().len() >> 20,
        if function.properties().variant == 0 { 2 } else { 4 },
    );
    Ok(())
}
