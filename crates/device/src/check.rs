//! Checks the packets of a submission before a kernel processes them.

use std::ops::Range;
use std::ptr::NonNull;

use godwit_abi::{Bin, PART_MORE, PART_REST};
use godwit_packet::Region;
use godwit_sched::Chunk;

use crate::error::Error;

/// Checks that kernels can access only the packets of this submission. `kernel` maps a program to
/// its kernel number, or to `None` if the program does not exist.
pub(crate) fn check(region: &Region, chunk: &Chunk, kernel: impl Fn(u16) -> Option<u8>) -> Result<(), Error> {
    check_bins(chunk, kernel)?;
    for bin in &chunk.bins {
        if !region.contains_all(&chunk.descriptors[packets_of(bin)]) {
            return Err(outside(bin));
        }
    }
    Ok(())
}

/// Checks the batches of a submission, but not their packets. Callers must then check every packet
/// themselves.
pub(crate) fn check_bins(chunk: &Chunk, kernel: impl Fn(u16) -> Option<u8>) -> Result<(), Error> {
    let refuse = |reason: String| Err(Error::Chunk { reason });
    // Previous entry, if its batch continues in the next entry.
    let mut unfinished: Option<&Bin> = None;
    for bin in &chunk.bins {
        if unfinished.map(|previous| previous.instance) != (bin.part & PART_REST != 0).then_some(bin.instance) {
            return refuse(format!("{bin:?} and the previous bin disagree on whether they are parts of one bin"));
        }
        unfinished = (bin.part & PART_MORE != 0).then_some(bin);
        let range = packets_of(bin);
        let lengths = [chunk.descriptors.len(), chunk.parameters.len(), chunk.outcomes.len()];
        if lengths.iter().any(|&length| range.end > length) {
            return refuse(format!("{bin:?} exceeds the array lengths {lengths:?}"));
        }
        if kernel(bin.instance) != Some(bin.kernel) {
            return refuse(format!("{bin:?} names no program"));
        }
    }
    match unfinished {
        Some(last) => refuse(format!("{last:?} requires another part, but it is the last bin")),
        None => Ok(()),
    }
}

/// Checks that all packets of a submission lie in the memory that begins at `base`.
pub(crate) fn check_arena(region: &mut Region, base: NonNull<u8>) -> Result<(), Error> {
    match region.arena_base() == base.as_ptr() {
        true => Ok(()),
        false => Err(Error::Chunk { reason: "its packets are not in the arena of the device".to_owned() }),
    }
}

/// Checks that the packet counts of all batches add up to the packet count of the submission.
pub(crate) fn check_count(chunk: &Chunk) -> Result<(), Error> {
    let packets: usize = chunk.bins.iter().map(|bin| usize::from(bin.count)).sum();
    match packets == chunk.packets as usize {
        true => Ok(()),
        false => {
            let reason = format!("its bins have {packets} packets, but its packet count is {}", chunk.packets);
            Err(Error::Chunk { reason })
        }
    }
}

/// Returns the error for a packet outside the worker's memory.
pub(crate) fn outside(bin: &Bin) -> Error {
    Error::Chunk { reason: format!("{bin:?} has a packet outside its worker's region") }
}

/// Returns the range of array elements that belong to a batch.
pub(crate) fn packets_of(bin: &Bin) -> Range<usize> {
    let first = bin.first as usize;
    first..first + usize::from(bin.count)
}

/// Returns the index after the last array element in use.
pub(crate) fn used_entries(chunk: &Chunk) -> usize {
    chunk.bins.iter().map(|bin| packets_of(bin).end).max().unwrap_or(0)
}
