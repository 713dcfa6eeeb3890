//! Functions that the fuzz targets call. They panic if an invariant does not hold.

use godwit_packet::{Arena, ArenaConfig};

use crate::pcap;

/// Reads arbitrary bytes as a capture file. Checks that the reader does not panic and that it frees
/// all packet buffers.
pub fn pcap_read(bytes: &[u8]) {
    let config = ArenaConfig { packets: 32, ..ArenaConfig::default() };
    let arena = Arena::new(config, 1).expect("every machine has memory for 32 buffers");
    let Some(mut region) = arena.split().pop() else { return };
    let (packets, error) = pcap::read_bytes(bytes.to_vec(), &mut region);
    assert_eq!(region.allocated(), 0);
    // A record of a capture file consists of a frame and more than 12 other bytes. A file of n
    // bytes therefore contains at most n / 13 packets.
    assert!(packets <= bytes.len() as u64 / 13, "{packets} packets from {} bytes", bytes.len());
    if let Some(error) = error {
        assert!(error.to_string().starts_with("memory: "), "{error}");
    }
}
