//! Computes the number of bytes that a kernel accesses over the bus by zero-copy.
//!
//! The kernel reads the bytes of a frame that its function reads, and writes back the bytes that
//! the function may write. Both accesses use words of 16 bytes (`gw_fetch` and `gw_return` in
//! kernels/dialect/loops_cuda.h). The kernel also accesses the arrays of the submission over the
//! bus.

use crate::program::AccessNeeds;

/// Returns how many bytes the kernel reads from `packets` packets, and how many bytes it writes to
/// them.
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
