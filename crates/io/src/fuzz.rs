//! Functions that the fuzz targets call. They panic if an invariant does not hold.

use std::sync::Arc;

use godwit_packet::{Arena, ArenaConfig, Batch, Steering};

use crate::pcap;
use crate::synthetic::{Config, Generator};

/// Reads arbitrary bytes as a capture file. The reader must not panic, and it must free all packet
/// buffers.
pub fn pcap_read(bytes: &[u8]) {
    let config = ArenaConfig { packets: 32, ..ArenaConfig::default() };
    let arena = Arena::new(config, 1).expect("every machine has memory for 32 buffers");
    let Some(mut region) = arena.split().pop() else { return };
    let (packets, error) = pcap::read_bytes(bytes.to_vec(), &mut region);
    assert_eq!(region.allocated(), 0);
    // Each record takes at least 13 bytes in the file. A file of n bytes therefore contains at most
    // n / 13 packets.
    assert!(packets <= bytes.len() as u64 / 13, "{packets} packets from {} bytes", bytes.len());
    if let Some(error) = error {
        assert!(error.to_string().starts_with("memory: "), "{error}");
    }
}

/// Generates packets for a configuration in TOML. Checks that they have the configured lengths and
/// that the parser accepts them.
pub fn generate(data: &[u8]) {
    const PACKETS: usize = 64;
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(config) = toml::from_str::<Config>(text) else { return };
    // Configurations with many flows would take too much memory. Files are not part of the fuzz
    // input.
    if config.flows > 4096 || config.patterns.is_some() || config.load.is_some() {
        return;
    }
    let Ok(mut generator) = Generator::new(&config, Arc::new(Steering::new(1, None)), 0, 0) else { return };
    let (min, max) = config.size.bounds();
    let arena = ArenaConfig { packets: PACKETS, frame_bytes_max: usize::from(max), ..ArenaConfig::default() };
    let Ok(arena) = Arena::new(arena, 1) else { return };
    let Some(mut region) = arena.split().pop() else { return };
    let mut batch = Batch::default();
    let filled = generator.fill(&mut region, &mut batch, PACKETS);
    assert_eq!((filled, region.allocated()), (batch.len(), batch.len()));
    for packet in &batch.descriptors {
        let frame = region.frame(packet);
        assert!((1..=usize::from(max)).contains(&frame.len()), "{} bytes, {min} to {max}", frame.len());
        assert!(godwit_wire::parse(frame).five_tuple.is_some(), "a generated packet has addresses");
    }
    region.release_all(&batch.descriptors);
}
