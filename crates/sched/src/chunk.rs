//! Defines submissions. A submission is a set of batches that a device receives together.

use std::ops::Range;

use godwit_abi::{Bin, Descriptor, Outcome};
use godwit_packet::{Array, arrays};

/// A set of batches that are submitted to a device together. A batch contains packets for one
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
/// The arrays always have room for all batches at full size. Entries that belong to no batch hold
/// data of earlier submissions. Outcomes are valid only after the device has written them. The
/// arrays start on page boundaries, so that a device can access them directly.
#[derive(Debug)]
pub struct Chunk {
    /// Batches, in the order in which a device should start them.
    ///
    /// If the packets of a batch need several kinds of processing, the batch has one part per kind
    /// ([`Bin::part`]). The parts are adjacent entries. A submission from a packer has at least one
    /// batch.
    pub bins: Vec<Bin>,
    /// Total length of the frames in each batch, in bytes. The packer sets it when it closes the
    /// submission. A device may change the frame lengths in `descriptors` later.
    pub bin_bytes: Vec<u64>,
    /// Descriptor of each packet.
    pub descriptors: Array<Descriptor>,
    /// Kernel parameter of each packet. The part of the function that runs on the CPU sets it.
    pub parameters: Array<u64>,
    /// Result of each packet, which the kernel writes.
    pub outcomes: Array<Outcome>,
    /// For each packet, the verdicts of the functions that processed it on the device, except the
    /// last one. `GW_TRAIL_NONE` in `kernels/abi/abi.h` describes the format.
    pub trails: Array<u32>,
    /// Whether the device itself passed packets from function to function. The verdicts in `trails`
    /// are valid only in this case.
    pub ran_chain: bool,
    /// Number of packets in all batches of the submission.
    pub packets: u32,
    /// Arrival time of the oldest packet in the submission, in nanoseconds of the caller's clock.
    pub opened_ns: u64,
    /// Time when the packer closed the submission, in nanoseconds of the caller's clock.
    pub closed_ns: u64,
}

impl Chunk {
    /// Creates an empty submission with room for `bins` batches and for `packets` packets in total.
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

    /// Returns the index range of the batch's packets. It applies to all arrays with one element
    /// per packet.
    pub fn range(&self, bin: &Bin) -> Range<usize> {
        let first = bin.first as usize;
        first..first + usize::from(bin.count)
    }
}
