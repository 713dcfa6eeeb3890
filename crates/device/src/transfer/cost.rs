//! Costs of transfers, as data.

use serde::{Deserialize, Serialize};

/// Costs by which a plan selects the transfer of a chunk. All of them are numbers of bytes that a
/// copy engine moves in the same time, so they do not depend on the rate of the bus.
///
/// The defaults were fitted to the rates of `ipsec`, `ipv6` and `l2` on an H200. An H100 on the
/// same bus reaches 0.93 to 0.97 of its rate with them. A profile of the machine can replace them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TransferCosts {
    /// Fixed cost of a copied chunk.
    pub copy_chunk_bytes: usize,
    /// Minimum cost of a row of a slot layout. An H200 copies 247 million rows per second in each
    /// direction at the same time.
    pub copy_row_bytes_min: usize,
    /// Array bytes per packet of a copied chunk in each direction: descriptor and parameter to the
    /// device, descriptor and outcome back.
    pub copy_packet_bytes: usize,
    /// Cost of a packet that groups access by zero-copy.
    pub zero_copy_packet_bytes: usize,
    /// Cost of 100 bytes that groups read by zero-copy.
    pub zero_copy_read_percent: usize,
    /// Cost of 100 bytes that groups write by zero-copy.
    pub zero_copy_write_percent: usize,
    /// Minimum number of packets of a copied chunk whose own arrays are copied. The host packs the
    /// arrays of smaller chunks, because two copies of them cost less than the additional driver
    /// calls.
    pub direct_packets_min: usize,
    /// Maximum gap between two arrays that are copied together: about the cost of a copy call.
    pub array_gap_bytes_max: usize,
}

impl Default for TransferCosts {
    fn default() -> Self {
        Self {
            copy_chunk_bytes: 512 << 10,
            copy_row_bytes_min: 206,
            copy_packet_bytes: 24,
            zero_copy_packet_bytes: 60,
            zero_copy_read_percent: 140,
            zero_copy_write_percent: 90,
            direct_packets_min: 2048,
            array_gap_bytes_max: 64 << 10,
        }
    }
}

impl TransferCosts {
    /// Returns the cost of a copied chunk whose buffers cost `buffers_bytes`.
    pub(super) fn copy(&self, packets: usize, buffers_bytes: usize) -> usize {
        buffers_bytes + packets * self.copy_packet_bytes + self.copy_chunk_bytes
    }

    /// Returns the cost of a zero-copy chunk. `bytes` are the bytes that groups read and write.
    pub(super) fn zero_copy(&self, packets: usize, bytes: [usize; 2]) -> usize {
        packets * self.zero_copy_packet_bytes
            + bytes[0] * self.zero_copy_read_percent / 100
            + bytes[1] * self.zero_copy_write_percent / 100
    }
}

#[cfg(test)]
mod tests {
    use serde::de::value::{Error, MapDeserializer};

    use super::*;

    /// Other costs select another transfer, so a profile can replace the defaults.
    #[test]
    fn costs_decide_by_packets_and_bytes() {
        let costs = TransferCosts::default();
        let is_copied = |costs: &TransferCosts, packets: usize, bytes: usize| {
            costs.copy(packets, packets * bytes) <= costs.zero_copy(packets, [packets * bytes; 2])
        };
        assert!(!is_copied(&costs, 256, 1408) && is_copied(&costs, 4096, 1408));
        assert!(!is_copied(&costs, 2048, 60) && is_copied(&costs, 65_536, 60));
        let free_copies = TransferCosts { copy_chunk_bytes: 0, ..costs };
        assert!(is_copied(&free_copies, 256, 1408));
    }

    #[test]
    fn a_profile_gives_some_of_the_costs() {
        let read = |key| {
            let keys: MapDeserializer<'_, _, Error> = MapDeserializer::new(std::iter::once((key, 1000_usize)));
            TransferCosts::deserialize(keys)
        };
        let expected = TransferCosts { copy_chunk_bytes: 1000, ..TransferCosts::default() };
        assert_eq!(read("copy_chunk_bytes"), Ok(expected));
        assert!(read("copy_bytes").is_err());
    }
}
