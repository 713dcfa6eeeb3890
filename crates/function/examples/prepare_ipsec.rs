//! Measures the host half of `ipsec` per packet: before the kernel (SA lookup, sequence numbers,
//! replay check) and after it (replay window update).
//!
//! One thread processes packets of all SAs in random order, in batches. The frames of a batch are
//! in the cache, as they are after classification. The minimum of many rounds is reported, because
//! other programs can only increase the time.

use std::error::Error;
use std::fmt::Write as _;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use godwit_abi::{Descriptor, Outcome};
use godwit_function::{BuildContext, Work, kind};
use godwit_packet::{Arena, ArenaConfig, Region};
use toml::de::DeTable;

const ESP: u8 = 50;
const PACKETS: usize = 16384;
const BATCH: usize = 256;
const ROUNDS: usize = 300;

fn main() -> Result<(), Box<dyn Error>> {
    for count in [1, 64, 4096] {
        measure(&format!("outbound, {count} policies"), count, &outbound(count), |sa| {
            frame(17, [10, 9, 8, 7], subnet(sa))
        })?;
    }
    let exceptions = concat!(
        "[[policy]]\naction = \"discard\"\nprotocol = \"tcp\"\ndestination_ports = 23\n",
        "[[policy]]\naction = \"bypass\"\nprotocol = \"udp\"\ndestination_ports = 500\n"
    );
    let stanza = exceptions.to_owned() + &outbound(4096) + "[[policy]]\naction = \"bypass\"\n";
    measure("outbound, 4096 policies, 2 before and 1 after", 4096, &stanza, |sa| frame(17, [10, 9, 8, 7], subnet(sa)))?;
    for count in [1, 64, 4096] {
        measure(&format!("inbound, {count} SAs"), count, &inbound(count), |sa| {
            let mut frame = frame(ESP, [198, 51, 100, 1], [192, 0, 2, 1]);
            frame[34..38].copy_from_slice(&spi(sa).to_be_bytes());
            frame
        })?;
    }
    Ok(())
}

fn spi(sa: usize) -> u32 {
    0x1000 + sa as u32
}

/// Returns a host in the destination subnet of an SA.
fn subnet(sa: usize) -> [u8; 4] {
    [20 + (sa >> 16) as u8, (sa >> 8) as u8, sa as u8, 1]
}

fn sa(index: usize, direction: &str, endpoints: [&str; 2]) -> String {
    let (spi, [source, destination]) = (spi(index), endpoints);
    format!(
        "[[sa]]\nname = \"{index}\"\nspi = {spi}\ndirection = \"{direction}\"\nsource = \"{source}\"\n\
         destination = \"{destination}\"\nencryption = \"aes-128-cbc\"\nencryption_key = \"{:032x}\"\n\
         authentication = \"hmac-sha1-96\"\nauthentication_key = \"{:040x}\"\n",
        index + 1,
        index + 1
    )
}

fn outbound(count: usize) -> String {
    (0..count).fold(String::new(), |mut stanza, index| {
        let [a, b, c, _] = subnet(index);
        stanza += &sa(index, "out", ["192.0.2.1", "198.51.100.1"]);
        let _ =
            writeln!(stanza, "[[policy]]\naction = \"protect\"\ndestination = \"{a}.{b}.{c}.0/24\"\nsa = \"{index}\"");
        stanza
    })
}

fn inbound(count: usize) -> String {
    (0..count).map(|index| sa(index, "in", ["198.51.100.1", "192.0.2.1"])).collect()
}

/// Returns a frame of 64 bytes.
fn frame(protocol: u8, source: [u8; 4], destination: [u8; 4]) -> Vec<u8> {
    let mut frame = vec![2; 64];
    frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 50, 0, 0, 0, 0, 64, protocol]);
    frame[26..30].copy_from_slice(&source);
    frame[30..34].copy_from_slice(&destination);
    frame
}

fn measure(label: &str, sas: usize, stanza: &str, frame: impl Fn(usize) -> Vec<u8>) -> Result<(), Box<dyn Error>> {
    let begin = Instant::now();
    let stanza = DeTable::parse(stanza)?;
    let context = BuildContext { name: "to-all", ports: &[], directory: Path::new(".") };
    let function = (kind("ipsec").ok_or("no ipsec")?.build)(stanza, &context)?;
    let built = begin.elapsed();
    let mut host = function.host_half(0, 1).ok_or("ipsec has no host half")?;

    let mut region = Arena::new(ArenaConfig { packets: PACKETS, ..ArenaConfig::default() }, 1)?.split().remove(0);
    let mut state = 1_u64;
    let mut descriptors: Vec<Descriptor> = Vec::with_capacity(PACKETS);
    let mut used: Vec<usize> = Vec::with_capacity(PACKETS);
    for _ in 0..PACKETS {
        // Linear congruential generator of Knuth's MMIX. Its high bits have the best quality.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let sa = (state >> 33) as usize % sas;
        let frame = frame(sa);
        let descriptor = region.allocate(frame.len()).ok_or("the arena is full")?;
        region.frame_mut(&descriptor).copy_from_slice(&frame);
        descriptors.push(descriptor);
        used.push(sa);
    }

    let mut sequences = vec![0_u32; sas];
    let mut work = Vec::with_capacity(BATCH);
    let (mut before, mut after) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        let mut round = [Duration::ZERO; 2];
        for (batch, used) in descriptors.chunks(BATCH).zip(used.chunks(BATCH)) {
            for (descriptor, &sa) in batch.iter().zip(used) {
                let frame = region.frame_mut(descriptor);
                if frame[23] == ESP {
                    sequences[sa] += 1;
                    frame[38..42].copy_from_slice(&sequences[sa].to_be_bytes());
                }
            }
            black_box(batch.iter().map(|descriptor| first_line(&region, descriptor)).sum::<u32>());
            work.clear();
            let begin = Instant::now();
            host.preparing().expect("it prepares packets").prepare(&region, batch, &mut work);
            round[0] += begin.elapsed();

            let mut variant = 0;
            let parameter = |work: &Work| match *work {
                Work::Run { variant: current, parameter } => {
                    variant = current;
                    parameter
                }
                ref other => panic!("every packet has an SA: {other:?}"),
            };
            let parameters: Vec<u64> = work.iter().map(parameter).collect();
            let mut outcomes = vec![Outcome::verdict(variant % 2); batch.len()];
            let begin = Instant::now();
            host.completing().complete(variant, batch, &parameters, &mut outcomes);
            round[1] += begin.elapsed();
            assert!(outcomes.iter().all(|outcome| outcome.verdict == variant % 2), "a packet was dropped");
        }
        before = before.min(round[0]);
        after = after.min(round[1]);
    }
    let [before, after] = [before, after].map(|time| time.as_secs_f64() * 1e9 / PACKETS as f64);
    let built = built.as_secs_f64() * 1e3;
    println!("{label}: {before:.1} ns per packet before the kernel, {after:.1} after it; built in {built:.0} ms");
    Ok(())
}

fn first_line(region: &Region, descriptor: &Descriptor) -> u32 {
    region.frame(descriptor).iter().map(|byte| u32::from(*byte)).sum()
}
