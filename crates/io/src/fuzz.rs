//! What the fuzz targets call. Panics when something that must hold does not.

use godwit_packet::{Arena, ArenaConfig};

use crate::pcap;

/// Reads any bytes as a capture: no panic, every packet accounted for, and the buffers come back.
pub fn pcap_read(bytes: &[u8]) {
    let config = ArenaConfig { packets: 32, ..ArenaConfig::default() };
    let arena = Arena::new(config, 1).expect("32 buffers fit into any machine");
    let Some(mut region) = arena.split().pop() else { return };
    let (packets, error) = pcap::read_bytes(bytes.to_vec(), &mut region);
    assert_eq!(region.allocated(), 0);
    // The smallest record that holds a frame has more than 12 bytes besides it.
    assert!(packets <= bytes.len() as u64 / 13, "{packets} packets from {} bytes", bytes.len());
    if let Some(error) = error {
        assert!(error.to_string().starts_with("memory: "), "{error}");
    }
}
