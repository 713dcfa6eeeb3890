//! The check that every lane makes of a chunk before a kernel sees it.

use std::ops::Range;

use godwit_abi::{Bin, PART_MORE, PART_REST};
use godwit_packet::Region;
use godwit_sched::Chunk;

use crate::Error;

/// What is wrong with a chunk, if anything is. After this check the kernels reach nothing but the chunk's packets.
/// `kernel` gives the kernel of the program with a given index, if there is such a program.
pub(crate) fn check(region: &Region, chunk: &Chunk, kernel: impl Fn(u16) -> Option<u8>) -> Result<(), Error> {
    check_bins(chunk, kernel)?;
    for bin in &chunk.bins {
        if !region.contains_all(&chunk.descriptors[packets_of(bin)]) {
            return Err(outside(bin));
        }
    }
    Ok(())
}

/// The same, but for the packets: for a lane that looks at each of them anyway.
pub(crate) fn check_bins(chunk: &Chunk, kernel: impl Fn(u16) -> Option<u8>) -> Result<(), Error> {
    let refuse = |reason: String| Err(Error::Chunk { reason });
    // The bin that the next must be a part of, if it must.
    let mut whole: Option<&Bin> = None;
    for bin in &chunk.bins {
        if whole.map(|front| front.instance) != (bin.part & PART_REST != 0).then_some(bin.instance) {
            return refuse(format!(
                "{bin:?} and the one in front of it do not agree on whether they are parts of one bin"
            ));
        }
        whole = (bin.part & PART_MORE != 0).then_some(bin);
        let range = packets_of(bin);
        let places = [chunk.descriptors.len(), chunk.parameters.len(), chunk.outcomes.len()];
        if places.iter().any(|&places| range.end > places) {
            return refuse(format!("{bin:?} reaches beyond its arrays of {places:?}"));
        }
        if kernel(bin.instance) != Some(bin.kernel) {
            return refuse(format!("{bin:?} names no program"));
        }
    }
    match whole {
        Some(last) => refuse(format!("{last:?} is to have another part, and is the last")),
        None => Ok(()),
    }
}

/// What is said of a bin with a packet that is not its worker's.
pub(crate) fn outside(bin: &Bin) -> Error {
    Error::Chunk { reason: format!("{bin:?} has a packet outside its worker's region") }
}

/// Where the packets of a bin lie in its chunk's arrays.
pub(crate) fn packets_of(bin: &Bin) -> Range<usize> {
    let first = bin.first as usize;
    first..first + usize::from(bin.count)
}
