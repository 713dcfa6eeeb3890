//! Computes the number of bytes that a kernel accesses over the bus by zero-copy.
//!
//! The kernel reads the frame bytes that its function reads, and writes back the bytes that the
//! function may write. Both accesses use words of 16 bytes (`gw_fetch` and `gw_return` in
//! kernels/dialect/loops_cuda.h). The kernel also accesses the arrays of the submission.

use crate::program::AccessNeeds;

/// Returns how many bytes the kernel reads and writes in `packets` packets.
///
/// `read_bytes` is the sum of the frame lengths, each limited to the number of bytes that the
/// function reads. The number of written bytes assumes that every packet grows to its maximum
/// length.
pub(super) fn accessed_bytes(needs: &AccessNeeds, packets: usize, read_bytes: usize) -> [usize; 2] {
    let written_bytes = match needs.writes_bytes {
        u16::MAX => read_bytes + packets * usize::from(needs.headroom_bytes + needs.tailroom_bytes),
        bytes => packets * usize::from(bytes),
    };
    [read_bytes, written_bytes]
}
