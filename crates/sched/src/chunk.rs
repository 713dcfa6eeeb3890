//! What is submitted to a device.

use std::ops::Range;

use godwit_abi::{Bin, Descriptor, Outcome};
use godwit_packet::{Array, arrays};

/// Bins submitted together.
///
/// ```text
/// bins:         bin  first=512 count=3 │ bin  first=0 count=256 │ ...        (longest first)
///                      └───────────────┐
/// descriptors:  ├── 0..256 ──┤├256..512┤├512..515┤ not used ...|
/// parameters:   ├── same indices ...
/// outcomes:     ├── same indices, written by the device
/// trails:       ├── same indices, written by a device that follows the chain
/// ```
///
/// The arrays always have room for all bins filled to the brim. What no bin names is left from
/// earlier chunks and means nothing, and so do outcomes until the device has written them. They lie on pages of their own,
/// so that a device can be given them as they are.
#[derive(Debug)]
pub struct Chunk {
    /// The bins, in the order in which a device should start them; a bin of several variants as its parts, one behind the other
    /// ([`Bin::part`]). Never empty in a chunk from a packer.
    pub bins: Vec<Bin>,
    /// For each bin the bytes of its packets when the chunk was taken: a device changes the lengths in `descriptors`, and of
    /// a chunk that it did not finish it may have changed some.
    pub bin_bytes: Vec<u64>,
    /// One place a packet.
    pub descriptors: Array<Descriptor>,
    /// What the kernel gets to know of each packet, from the function's host half.
    pub parameters: Array<u64>,
    /// What the function says of each packet.
    pub outcomes: Array<Outcome>,
    /// Which verdicts led each packet on from function to function on the device (`GW_TRAIL_NONE` in `kernels/abi/abi.h`).
    pub trails: Array<u32>,
    /// Whether the device has ran_chain the chain, so that `trails` are of this chunk.
    pub ran_chain: bool,
    /// Packets in all bins together.
    pub packets: u32,
    /// Arrival of its oldest packet, on the caller's clock.
    pub opened_ns: u64,
    /// When it was taken, on the caller's clock.
    pub closed_ns: u64,
}

impl Chunk {
    /// An empty chunk with room for `bins` entries of bins and `packets` packets.
    pub fn new(bins: usize, packets: usize) -> Self {
        // In the order in which a device reads and writes them.
        let (parameters, descriptors, outcomes, trails) = arrays(packets);
        Self {
            bins: Vec::with_capacity(bins),
            bin_bytes: Vec::with_capacity(bins),
            descriptors,
            parameters,
            outcomes,
            trails,
            ran_chain: false,
            packets: 0,
            opened_ns: 0,
            closed_ns: 0,
        }
    }

    /// Where the packets of `bin` lie in the arrays.
    pub fn range(&self, bin: &Bin) -> Range<usize> {
        let first = bin.first as usize;
        first..first + usize::from(bin.count)
    }
}
