//! The bytes that groups access by zero-copy.
//!
//! Groups read the bytes of a frame that their function reads, and write back the bytes that it may
//! write, in words of 16 bytes (`gw_fetch` and `gw_return` in kernels/dialect/loops_cuda.h). They
//! also access the arrays of the chunk over the bus.

use crate::program::AccessNeeds;

/// Returns the number of bytes that groups read from and write to the buffers of `packets` packets.
/// `read_bytes` is the sum of their lengths, each limited to the bytes that the function reads.
/// Assumes that every packet grows to its maximum.
pub(super) fn accessed_bytes(needs: &AccessNeeds, packets: usize, read_bytes: usize) -> [usize; 2] {
    let written_bytes = match needs.writes_bytes {
        u16::MAX => read_bytes + packets * usize::from(needs.headroom_bytes + needs.tailroom_bytes),
        bytes => packets * usize::from(bytes),
    };
    [read_bytes, written_bytes]
}
