//! Chunks: the unit of submission to a device.

use std::ops::Range;

use godwit_abi::{Bin, Descriptor, Outcome};
use godwit_packet::{Array, arrays};

/// Bins that are submitted to a device together.
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
    /// Bins, in the order in which a device should start them.
    ///
    /// A bin of several variants is split into adjacent parts ([`Bin::part`]). A chunk from a
    /// packer has at least one bin.
    pub bins: Vec<Bin>,
    /// Total frame length of each bin when the chunk was taken, in bytes. A device changes the
    /// lengths in `descriptors`, even in a chunk that it does not complete.
    pub bin_bytes: Vec<u64>,
    /// Packets.
    pub descriptors: Array<Descriptor>,
    /// Parameter of each packet, from the function's host half to its kernel.
    pub parameters: Array<u64>,
    /// Result of each packet, from the kernel.
    pub outcomes: Array<Outcome>,
    /// Verdicts that moved each packet from function to function on the device
    /// (`GW_TRAIL_NONE` in `kernels/abi/abi.h`).
    pub trails: Array<u32>,
    /// Whether the device ran the chain, so that `trails` is valid.
    pub ran_chain: bool,
    /// Number of packets in all bins.
    pub packets: u32,
    /// Arrival time of the oldest packet, on the caller's clock, in nanoseconds.
    pub opened_ns: u64,
    /// Time when the chunk was taken, on the caller's clock, in nanoseconds.
    pub closed_ns: u64,
}

impl Chunk {
    /// Creates an empty chunk with room for `bins` bin entries and `packets` packets.
    pub fn new(bins: usize, packets: usize) -> Self {
        // The arrays are adjacent in the order in which a device reads and writes them.
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

    /// Returns the range of `bin` in the packet arrays.
    pub fn range(&self, bin: &Bin) -> Range<usize> {
        let first = bin.first as usize;
        first..first + usize::from(bin.count)
    }
}
