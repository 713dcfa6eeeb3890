//! Measures the time to load names and the time of lookups.
//!
//! Usage: `ndn_names FILE [NAMES] [GUIDE]`. FILE has one `host[/path]` per line. The labels of the
//! host become components from last to first, and the path follows. Generated components extend the
//! names until there are NAMES names. Interests request names of the table in random order, with
//! two more components.
//!
//! The program prints the build time and the memory of the table, and the buckets visited by three
//! search methods. It then prints the time per packet of the kernel on one core, by level and by
//! number of interleaved packets.

use std::time::Instant;

use godwit_abi::{Descriptor, Outcome};
use godwit_function::Function;
use godwit_function::ndn::{Carrier, Names, Ndn, NextHop, Parts, probes};
use godwit_kernels::{BinCall, NDN, levels};
use godwit_packet::{Arena, ArenaConfig};
use godwit_wire::MacAddress;

const PACKETS: usize = 1 << 16;
const BIN: usize = 256;
/// Numbers of interleaved packets. 1 is the plain loop.
const GROUPS: [u32; 4] = [1, 16, 32, 64];

/// Pseudorandom numbers (SplitMix64: Steele, Lea, Flood, OOPSLA 2014, figure 16).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let text = std::fs::read_to_string(arguments.next().ok_or("ndn_names FILE [NAMES] [GUIDE]")?)?;
    let names_min = arguments.next().map_or(Ok(0), |count| count.parse())?;
    let guide = arguments.next().map(|guide| guide.parse()).transpose()?;
    let mut names = Names::new();
    let mut lines = text.lines();
    let mut name = Vec::new();
    let mut random = Random(1);
    for line in lines.by_ref() {
        components(line, &mut name);
        names.push(&name, (names.len() % 16) as u32);
    }
    let real = names.len();
    let all: Vec<&str> = text.lines().collect();
    while names.len() < names_min {
        components(all[(random.next() % all.len() as u64) as usize], &mut name);
        for _ in 0..1 + random.next() % 2 {
            append(format!("{:x}", random.next() & 0xfff_ffff).as_bytes(), &mut name);
        }
        names.push(&name, (names.len() % 16) as u32);
    }
    drop(all);
    let hop = |index: u16| NextHop::Forward {
        port: index,
        destination: MacAddress([2, 0, 0, 0, 1, index as u8]),
        source: MacAddress([2, 0, 0, 0, 2, index as u8]),
        carrier: Carrier::Ethernet,
    };
    let interests = interests(&names, &mut random);
    let begin = Instant::now();
    let hops = (0..16).map(|index| (index.to_string(), hop(index))).collect();
    let function = Ndn::new(Parts { guide, ..Parts::new(names.clone(), hops) })?;
    println!(
        "{} names ({real} real), guides of {} components, image of {} MiB, built in {:.1} s; peak memory of the process {} MiB",
        function.names(),
        function.guide(),
        function.image().len() >> 20,
        begin.elapsed().as_secs_f64(),
        peak_memory_mib()
    );
    for more in [0, 2, 6] {
        println!(
            "buckets per lookup, {more} components more than the name: {:.2?}",
            probes(&names, function.guide(), more)
        );
    }
    drop(names);
    measure_lookups(&function, &interests);
    Ok(())
}

/// Converts `host/path` to name components. The labels of the host come first, from last to first,
/// and then the path.
fn components(line: &str, name: &mut Vec<u8>) {
    name.clear();
    let (host, path) = line.split_once('/').unwrap_or((line, ""));
    host.rsplit('.').chain(path.split('/')).filter(|part| !part.is_empty()).take(30).for_each(|part| {
        append(part.as_bytes(), name);
    });
}

fn append(part: &[u8], name: &mut Vec<u8>) {
    let part = &part[..part.len().min(252)];
    name.extend([8, part.len() as u8]);
    name.extend(part);
}

fn interests(names: &Names, random: &mut Random) -> Vec<Vec<u8>> {
    let mut chosen: Vec<usize> = (0..PACKETS).map(|_| (random.next() % names.len() as u64) as usize).collect();
    chosen.sort_unstable();
    let mut frames = Vec::with_capacity(PACKETS);
    chosen.dedup();
    let mut chosen = chosen.into_iter().peekable();
    for (index, (name, _)) in names.iter().enumerate() {
        if chosen.next_if_eq(&index).is_none() {
            continue;
        }
        let mut name = name.to_vec();
        append(b"v1", &mut name);
        append(b"segment-7", &mut name);
        let element = |kind: u8, value: &[u8]| match value.len() {
            0..=252 => [&[kind, value.len() as u8][..], value].concat(),
            length => [&[kind, 253][..], &(length as u16).to_be_bytes(), value].concat(),
        };
        let inside = [element(7, &name), element(10, &[1, 2, 3, 4]), element(34, &[64])].concat();
        frames.push([&[2; 12][..], &[0x86, 0x24], &element(5, &inside)].concat());
    }
    for at in (1..frames.len()).rev() {
        frames.swap(at, (random.next() % (at as u64 + 1)) as usize);
    }
    frames
}

fn peak_memory_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) >> 10
}

fn measure_lookups(function: &Ndn, frames: &[Vec<u8>]) {
    let config = ArenaConfig { packets: frames.len(), ..ArenaConfig::default() };
    let mut region = Arena::new(config, 1).expect("there is memory").split().remove(0);
    let descriptors: Vec<Descriptor> =
        frames.iter().map(|frame| region.allocate(frame.len()).expect("there are buffers")).collect();
    for level in levels().iter().filter(|level| level.supported()) {
        let mut best = GROUPS.map(|_| f64::MAX);
        for _ in 0..9 {
            for (best, group) in best.iter_mut().zip(GROUPS) {
                for (descriptor, frame) in descriptors.iter().zip(frames) {
                    region.frame_mut(descriptor).copy_from_slice(frame);
                }
                let mut after = descriptors.clone();
                let parameters = vec![0; after.len()];
                let mut outcomes = vec![Outcome::default(); after.len()];
                let begin = Instant::now();
                for first in (0..after.len()).step_by(BIN) {
                    let count = BIN.min(after.len() - first);
                    let call = BinCall {
                        arena: region.arena_base(),
                        image: function.image().as_ptr(),
                        descriptors: after[first..].as_mut_ptr(),
                        parameters: parameters[first..].as_ptr(),
                        outcomes: outcomes[first..].as_mut_ptr(),
                        count: count as u32,
                        variant: 0,
                        group,
                        counters: std::ptr::null_mut(),
                    };
                    // SAFETY: the level is supported. The descriptors belong to a region that is
                    // mutably borrowed, the arrays have `count` elements, and the image belongs to
                    // the function.
                    unsafe { level.run_bin(NDN, &call) };
                }
                *best = best.min(begin.elapsed().as_nanos() as f64 / after.len() as f64);
                assert!(outcomes.iter().all(|outcome| outcome.verdict == 0), "an Interest was not forwarded");
            }
        }
        for (best, group) in best.iter().zip(GROUPS) {
            let form = if group == 1 { "scalar".to_owned() } else { format!("gopt {group}") };
            println!("{}, {form}: {best:.1} ns per packet, {:.2} Mpps", level.name, 1e3 / best);
        }
    }
}
