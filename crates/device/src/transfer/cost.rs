//! Defines the costs of copies and of zero-copy accesses. A profile can replace these costs.

use serde::{Deserialize, Serialize};

/// Costs by which the cheapest transfer of a submission is selected. The unit of all costs is the
/// byte. The cost of an action is the number of bytes that a copy engine moves in the same time.
/// Costs therefore do not depend on the rate of the bus.
///
/// The defaults were fitted to the rates of `ipsec`, `ipv6` and `l2` on an H200. An H100 on the
/// same bus reaches 0.93 to 0.97 of its rate with these defaults. A profile of the machine can
/// replace them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TransferCosts {
    /// Fixed cost of a submission that copy engines move.
    pub copy_chunk_bytes: usize,
    /// Minimum cost of a copy from one packet buffer, in bytes that a copy engine moves in the same
    /// time. An H200 makes 247 million such copies per second in each direction at once.
    pub copy_row_bytes_min: usize,
    /// Number of array bytes that copy engines move per packet. The device receives a descriptor
    /// and a parameter, and returns a descriptor and an outcome.
    pub copy_packet_bytes: usize,
    /// Fixed cost of zero-copy access to a packet, in bytes that a copy engine moves in the same
    /// time.
    pub zero_copy_packet_bytes: usize,
    /// Cost of reading 100 bytes over the bus by zero-copy, in bytes that a copy engine moves in
    /// the same time.
    pub zero_copy_read_percent: usize,
    /// Cost of writing 100 bytes over the bus by zero-copy, in bytes that a copy engine moves in
    /// the same time.
    pub zero_copy_write_percent: usize,
    /// Minimum number of packets for which the arrays of a submission are copied to the device
    /// directly. With fewer packets, the host first packs the arrays into one block, because this
    /// costs less than the additional driver calls.
    pub direct_packets_min: usize,
    /// Maximum gap between two arrays that are copied together, in bytes. Copying such a gap costs
    /// about as much as a separate driver call.
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
    /// Returns the cost of moving a submission with the GPU's copy engines. `buffers_bytes` is the
    /// cost of the packet buffers alone.
    pub(super) fn copy(&self, packets: usize, buffers_bytes: usize) -> usize {
        buffers_bytes + packets * self.copy_packet_bytes + self.copy_chunk_bytes
    }

    /// Returns the cost of processing a submission by zero-copy. `bytes` contains the numbers of
    /// bytes that the kernel reads and writes over the bus.
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
