//! Measures the cost of inserting packets into the packer: `cargo run --release -p godwit-sched
//! --example insert_cost`.
//!
//! The whole engine has a budget of 25 ns per packet for frames of 64 bytes. Each row of the output
//! shows the best of several rounds. The time includes taking, sorting and returning submissions.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use godwit_sched::{Descriptor, Grouping, Insert, Packer, PackerConfig, Parameters};
use godwit_test_support::Random;

/// Number of packets per round. They fit in the L2 cache, like packets that were just received.
const PACKETS: usize = 1 << 13;
const ROUNDS: usize = 1000;
const BURST: usize = 32;

/// Packets that the benchmark inserts in one round, each with its variant and kernel parameter.
struct Traffic {
    variants: Vec<u8>,
    descriptors: Vec<Descriptor>,
    parameters: Vec<u64>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let cpu = PackerConfig::default();
    let none = PackerConfig { grouping: Grouping::None, bins: 2, ..cpu.clone() };
    let gpu = PackerConfig {
        chunk_packets: 8192,
        bins: 320,
        bin_packets: 64,
        grouping: Grouping::VariantLength,
        leftover_packets: 8192,
        ..cpu.clone()
    };
    let wide = PackerConfig { bin_packets: 256, bins: 160, ..gpu.clone() };

    let short = traffic(|_| (0, 60));
    let one_imix = traffic(|random| (0, imix(random >> 32)));
    let one_uniform = traffic(|random| (0, 60 + ((random >> 32) % 1454) as u16));
    let mixed_imix = traffic(|random| ((random % 6) as u8, imix(random >> 32)));
    let mixed_uniform = traffic(|random| ((random % 6) as u8, 60 + ((random >> 32) % 1454) as u16));

    println!("{:<58}{:>10}{:>12}", "", "insert", "insert_all");
    row("one label, grouping none, chunk 256", &none, &short)?;
    row("one label, grouping variant, chunk 256", &cpu, &short)?;
    row("one label, grouping variant+length, chunk 8192", &gpu, &short)?;
    row("24 length classes, IMIX, bins of 64", &gpu, &one_imix)?;
    row("24 length classes, IMIX, bins of 256", &wide, &one_imix)?;
    row("24 length classes, uniform, bins of 64", &gpu, &one_uniform)?;
    row("24 length classes, uniform, bins of 256", &wide, &one_uniform)?;
    row("6 variants, grouping variant, chunk 256", &cpu, &mixed_imix)?;
    row("6 variants x 24 length classes, IMIX, bins of 64", &gpu, &mixed_imix)?;
    row("6 variants x 24 length classes, uniform, bins of 64", &gpu, &mixed_uniform)?;
    row("6 variants x 24 length classes, IMIX, bins of 256", &wide, &mixed_imix)?;
    row("6 variants x 24 length classes, uniform, bins of 256", &wide, &mixed_uniform)?;
    Ok(())
}

fn traffic(mut packet: impl FnMut(u64) -> (u8, u16)) -> Traffic {
    let mut random = Random::new(1);
    let (variants, descriptors) = (0..PACKETS)
        .map(|_| {
            let (variant, length) = packet(random.next_u64() >> 1);
            (variant, Descriptor { length, ..Descriptor::default() })
        })
        .unzip();
    Traffic { variants, descriptors, parameters: (0..PACKETS as u64).collect() }
}

/// Returns a frame length of PIPSEA's traffic mix (section 4.1). The mix contains 61.22 % frames of
/// 60 bytes, 23.47 % of 536 bytes and 15.31 % of 1360 bytes.
fn imix(random: u64) -> u16 {
    match random % 10_000 {
        0..6_122 => 60,
        6_122..8_469 => 536,
        _ => 1360,
    }
}

fn row(name: &str, config: &PackerConfig, traffic: &Traffic) -> Result<(), Box<dyn Error>> {
    let one_variant = traffic.variants.iter().all(|&variant| variant == traffic.variants[0]);
    let single = best_ns(config, |packer| insert_each(packer, traffic))?;
    if one_variant {
        let bulk = best_ns(config, |packer| insert_bursts(packer, traffic))?;
        println!("{name:<58}{single:>7.2} ns{bulk:>9.2} ns");
    } else {
        println!("{name:<58}{single:>7.2} ns{:>12}", "-");
    }
    Ok(())
}

fn best_ns(config: &PackerConfig, mut round: impl FnMut(&mut Packer)) -> Result<f64, Box<dyn Error>> {
    let mut packer = Packer::new(config.clone(), &[0], 2)?;
    let mut best_ns = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        round(&mut packer);
        best_ns = best_ns.min(start.elapsed().as_nanos() as f64 / PACKETS as f64);
    }
    Ok(best_ns)
}

fn insert_each(packer: &mut Packer, traffic: &Traffic) {
    for ((&variant, descriptor), &parameter) in
        traffic.variants.iter().zip(&traffic.descriptors).zip(&traffic.parameters)
    {
        loop {
            match packer.insert(0, 0, variant, descriptor, parameter) {
                Insert::Binned | Insert::Leftover => break,
                Insert::ChunkFull => {
                    submit(packer);
                    break;
                }
                Insert::Refused => submit(packer),
            }
        }
    }
}

fn insert_bursts(packer: &mut Packer, traffic: &Traffic) {
    for descriptors in traffic.descriptors.chunks(BURST) {
        let mut done = 0;
        while done < descriptors.len() {
            done += packer.insert_all(0, 0, traffic.variants[0], &descriptors[done..], Parameters::Alike(0)).0;
            if packer.ready(0) {
                submit(packer);
            }
        }
    }
}

/// Takes a submission from the packer and returns it at once, as if a device needed no time for it.
#[inline(never)]
fn submit(packer: &mut Packer) {
    if let Some(chunk) = black_box(packer.take(0)) {
        packer.give_back(chunk);
    }
}
