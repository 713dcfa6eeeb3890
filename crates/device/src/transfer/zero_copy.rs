//! Computes the number of bytes that a kernel accesses over the bus by zero-copy.
//!
//! The work-groups of the kernel read those bytes of a frame that their function reads. They write
//! back the bytes that the function may write. Both accesses use words of 16 bytes (`gw_fetch` and
//! `gw_return` in kernels/dialect/loops_cuda.h). The work-groups also access the arrays of the
//! chunk over the bus.

use crate::program::AccessNeeds;

/// Returns how many bytes the kernel reads from the buffers of `packets` packets, and how many
/// bytes it writes to them.
///
/// `read_bytes` is the sum of the frame lengths, each limited to the number of bytes that the
/// function reads. The result assumes that every packet grows to its maximum length.
pub(super) fn accessed_bytes(needs: &AccessNeeds, packets: usize, read_bytes: usize) -> [usize; 2] {
    let written_bytes = match needs.writes_bytes {
        u16::MAX => read_bytes + packets * usize::from(needs.headroom_bytes + needs.tailroom_bytes),
        bytes => packets * usize::from(bytes),
    };
    [read_bytes, written_bytes]
}
