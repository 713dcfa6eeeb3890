//! Chunks: sets of bins (batches of packets) that are submitted to a device together.

use std::ops::Range;

use godwit_abi::{Bin, Descriptor, Outcome};
use godwit_packet::{Array, arrays};

/// A set of bins that are submitted to a device together. A bin is a batch of packets for one
/// function.
///
/// ```text
/// bins:         bin  first=512 count=3 │ bin  first=0 count=256 │ ...        (longest first)
///                      └───────────────┐
/// descriptors:  ├── 0..256 ──┤├256..512┤├512..515┤ not used ...|
/// parameters:   ├── same indices ...
/// outcomes:     ├── same indices, written by the device
/// trails:       ├── same indices, written by a device that runs the chain
/// ```
///
/// The arrays always have room for all bins at full size. Entries that belong to no bin hold data
/// of earlier chunks. Outcomes are valid only after the device has written them. The arrays start
/// on page boundaries, so that a device can access them directly.
#[derive(Debug)]
pub struct Chunk {
    /// Bins (batches of packets for one function), in the order in which a device should start
    /// them.
    ///
    /// A bin whose packets have several variants is split into adjacent parts of one variant each
    /// ([`Bin::part`]). A chunk that a packer creates has at least one bin.
    pub bins: Vec<Bin>,
    /// Total length of the frames in each bin (a batch of packets) when the packer closed the
    /// chunk, in bytes. The lengths in `descriptors` do not serve this purpose, because a device
    /// changes them.
    pub bin_bytes: Vec<u64>,
    /// Descriptor of each packet.
    pub descriptors: Array<Descriptor>,
    /// Parameter of each packet. The part of the function that runs on the CPU passes it to the
    /// kernel.
    pub parameters: Array<u64>,
    /// Result of each packet, which the kernel writes.
    pub outcomes: Array<Outcome>,
    /// Verdicts (results of functions) that moved each packet from function to function on the
    /// device. See `GW_TRAIL_NONE` in `kernels/abi/abi.h`.
    pub trails: Array<u32>,
    /// Whether the device passed packets from function to function by itself. Only then is `trails`
    /// valid.
    pub ran_chain: bool,
    /// Number of packets in all bins (batches of packets) of the chunk.
    pub packets: u32,
    /// Arrival time of the oldest packet in the chunk (packets that are submitted together), in
    /// nanoseconds of the caller's clock.
    pub opened_ns: u64,
    /// Time when the packer closed the chunk (packets that are submitted together), in nanoseconds
    /// of the caller's clock.
    pub closed_ns: u64,
}

impl Chunk {
    /// Creates an empty chunk with room for `bins` bins (batches of packets) and for `packets`
    /// packets in total.
    pub fn new(bins: usize, packets: usize) -> Self {
        // The arrays are adjacent in memory, in the order in which a device reads and writes them.
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

    /// Returns the indices of the packets of `bin` in the packet arrays.
    pub fn range(&self, bin: &Bin) -> Range<usize> {
        let first = bin.first as usize;
        first..first + usize::from(bin.count)
    }
}
