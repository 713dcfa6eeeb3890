//! What the host half of `ipsec` costs per packet: which SA, and which sequence number.
//!
//! One thread, packets of all SAs in random order, in batches. The frames of a batch are in the cache, as they are behind
//! the classifier that just read them; the least of many rounds counts, because other programs only add to it.

use std::error::Error;
use std::fmt::Write as _;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use godwit_abi::Descriptor;
use godwit_function::{Site, Work, kind};
use godwit_packet::{Arena, ArenaConfig, Region};
use toml::de::DeTable;

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
    measure("outbound, 4096 policies, 2 before and 1 behind", 4096, &stanza, |sa| {
        frame(17, [10, 9, 8, 7], subnet(sa))
    })?;
    for count in [1, 64, 4096] {
        measure(&format!("inbound, {count} SAs"), count, &inbound(count), |sa| {
            let mut frame = frame(50, [198, 51, 100, 1], [192, 0, 2, 1]);
            frame[34..38].copy_from_slice(&spi(sa).to_be_bytes());
            frame[41] = 1;
            frame
        })?;
    }
    Ok(())
}

fn spi(sa: usize) -> u32 {
    0x1000 + sa as u32
}

/// The host that packets of an SA go to.
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

/// 64 bytes.
fn frame(protocol: u8, source: [u8; 4], destination: [u8; 4]) -> Vec<u8> {
    let mut frame = vec![2; 64];
    frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 50, 0, 0, 0, 0, 64, protocol]);
    frame[26..30].copy_from_slice(&source);
    frame[30..34].copy_from_slice(&destination);
    frame
}

fn measure(what: &str, sas: usize, stanza: &str, frame: impl Fn(usize) -> Vec<u8>) -> Result<(), Box<dyn Error>> {
    let begin = Instant::now();
    let stanza = DeTable::parse(stanza)?;
    let site = Site { name: "to-all", ports: &[], directory: Path::new(".") };
    let function = (kind("ipsec").ok_or("no ipsec")?.build)(stanza, &site)?;
    let built = begin.elapsed();
    let mut host = function.host_half(0, 1).ok_or("no host half")?;

    let mut region = Arena::new(ArenaConfig { packets: PACKETS, ..ArenaConfig::default() }, 1)?.split().remove(0);
    let mut state = 1_u64;
    let mut descriptors: Vec<Descriptor> = Vec::with_capacity(PACKETS);
    for _ in 0..PACKETS {
        // Knuth's MMIX generator; the high bits are the good ones.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let frame = frame((state >> 33) as usize % sas);
        let descriptor = region.allocate(frame.len()).ok_or("the arena is full")?;
        region.frame_mut(&descriptor).copy_from_slice(&frame);
        descriptors.push(descriptor);
    }

    let mut work = Vec::with_capacity(BATCH);
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let mut round = Duration::ZERO;
        for batch in descriptors.chunks(BATCH) {
            black_box(batch.iter().map(|descriptor| first_line(&region, descriptor)).sum::<u32>());
            work.clear();
            let begin = Instant::now();
            host.prepare(&region, batch, &mut work);
            round += begin.elapsed();
            let runs = work.iter().filter(|work| matches!(work, Work::Run { .. })).count();
            assert_eq!(runs, batch.len(), "every packet has an SA");
        }
        best = best.min(round);
    }
    let per_packet = best.as_secs_f64() * 1e9 / PACKETS as f64;
    println!("{what}: {per_packet:.1} ns per packet; built in {:.0} ms", built.as_secs_f64() * 1e3);
    Ok(())
}

fn first_line(region: &Region, descriptor: &Descriptor) -> u32 {
    region.frame(descriptor).iter().map(|byte| u32::from(*byte)).sum()
}
