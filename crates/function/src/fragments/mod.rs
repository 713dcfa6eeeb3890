//! Fragmentation and reassembly of IP packets, and ICMP errors about packets that cannot be
//! forwarded.
//!
//! The functions of this module take and return bytes. The caller counts packets and allocates
//! buffers.
//!
//! | file | holds |
//! |---|---|
//! | `split.rs` | fragmentation of IPv4 packets (RFC 791, section 3.2) |
//! | `reassembly.rs` | reassembly of IPv4 and IPv6 packets, bounded in memory and time |
//! | `too_big.rs` | ICMP errors: packet too big (RFC 1191, RFC 8201), hop limit exceeded, unreachable |

mod reassembly;
mod split;
mod too_big;

pub use reassembly::{Added, Limits, Reassembler, Refusal, ip_at};
pub use split::Split;
pub use too_big::{Fault, message, too_big};

/// Smallest MTU that an IPv4 link may have, in bytes (RFC 791, section 3.2).
pub const IPV4_MTU_MIN: usize = 68;
