//! Fragments of IP packets: taking packets apart, putting them together, and saying that one is too big. Bytes in, bytes
//! out; who counts, and where packets lie, is the caller's.
//!
//! | file | holds |
//! |---|---|
//! | `split.rs` | an IPv4 packet into fragments (RFC 791, section 3.2) |
//! | `reassembly.rs` | fragments of IPv4 and IPv6 into packets, bounded in memory and time |
//! | `too_big.rs` | the ICMP message to the sender of a packet that must not be fragmented (RFC 1191, RFC 8201), and others |

mod reassembly;
mod split;
mod too_big;

pub use reassembly::{Added, Limits, Reassembler, Refusal, ip_at};
pub use split::Split;
pub use too_big::{Fault, message, too_big};

/// Smallest MTU of a link for IPv4 (RFC 791, section 3.2).
pub const IPV4_MTU_MIN: usize = 68;
