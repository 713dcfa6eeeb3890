//! Measures the time that the synthetic port needs to generate a packet.
//!
//! Run it with `cargo run --release -p godwit-io --example generate_cost`.

use std::sync::Arc;
use std::time::Instant;

use godwit_io::synthetic::{Config, Generator, IpVersion, PayloadKind, Size, Transport};
use godwit_packet::{Arena, ArenaConfig, Batch, Layout, Steering};

const BATCH_PACKETS: usize = 256;
/// Number of packets in one run. With many short runs, other processes on the machine disturb only
/// some of them.
const RUN_PACKETS: usize = 8 * BATCH_PACKETS;
const RUNS: usize = 4000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{:<44} {:>10} {:>10}", "one worker, batches of 256", "ns/packet", "Mpps");
    let fixed = |bytes, flows, payload| Config { size: Size::Fixed(bytes), flows, payload, ..Config::default() };
    use PayloadKind::{Random, Zero};
    for (name, config) in [
        ("60 B, 1 flow, zero", fixed(60, 1, Zero)),
        ("60 B, 1024 flows, zero", fixed(60, 1024, Zero)),
        ("60 B, 1024 flows, random", fixed(60, 1024, Random)),
        ("60 B, 1048576 flows, random", fixed(60, 1 << 20, Random)),
        ("60 B, random addresses, random", fixed(60, 0, Random)),
        ("80 B, IPv6, 1024 flows, random", Config { ip: IpVersion::V6, ..fixed(80, 1024, Random) }),
        ("60 B, TCP, 1024 flows, random", Config { protocol: Transport::Tcp, ..fixed(60, 1024, Random) }),
        ("imix, 1024 flows, random", Config { size: Size::Imix, ..Config::default() }),
        ("1514 B, 1024 flows, random", fixed(1514, 1024, Random)),
    ] {
        print(name, measure(&config, Layout::Slots, 1)?);
    }
    print("60 B, 1024 flows, random, dense arena", measure(&fixed(60, 1024, Random), Layout::Dense, 1)?);
    print("60 B, 1024 flows, random, 1 of 16 workers", measure(&fixed(60, 1024, Random), Layout::Slots, 16)?);
    print(
        "imix, 1024 flows, 1 of 16 workers",
        measure(&Config { size: Size::Imix, ..Config::default() }, Layout::Slots, 16)?,
    );
    print("60 B, random addresses, 1 of 16 workers", measure(&fixed(60, 0, Random), Layout::Slots, 16)?);
    Ok(())
}

fn print(name: &str, ns: f64) {
    println!("{name:<44} {ns:>10.2} {:>10.1}", 1e3 / ns);
}

/// Returns the time per packet in nanoseconds for one of `workers` workers, from the fastest run.
/// The time includes buffer allocation, packet generation and buffer release.
fn measure(config: &Config, layout: Layout, workers: usize) -> Result<f64, Box<dyn std::error::Error>> {
    let arena = ArenaConfig { layout, packets: 1024, ..ArenaConfig::default() };
    let mut region = Arena::new(arena, 1)?.split().remove(0);
    let mut generator = Generator::new(config, Arc::new(Steering::new(workers, None)), 0, 0)?;
    let mut batch = Batch::with_capacity(BATCH_PACKETS);
    let mut best_ns = f64::INFINITY;
    for _ in 0..RUNS {
        let start = Instant::now();
        let mut generated = 0;
        while generated < RUN_PACKETS {
            generated += generator.fill(&mut region, &mut batch, BATCH_PACKETS);
            batch.descriptors.iter().for_each(|descriptor| region.release(descriptor));
            batch.clear();
        }
        best_ns = best_ns.min(start.elapsed().as_nanos() as f64 / generated as f64);
    }
    Ok(best_ns)
}
