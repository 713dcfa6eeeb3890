//! Workloads: frames, SAs, routes, names, and the functions built from them. A seed determines all
//! random data.
//!
//! | file | contents |
//! |---|---|
//! | `size.rs` | frame sizes |
//! | `frames.rs` | random numbers and UDP frames |
//! | `build.rs` | a function from its configuration |
//! | `routes.rs` | IPv4 and IPv6 routes |
//! | `lookups.rs` | the tables of `ipv6`, `l2` and `ndn`, with frames that they know |
//! | `patterns.rs` | the patterns of `dpi` |
//! | `associations.rs` | SAs of one or several cipher suites |
//! | `job.rs` | the work for one packet of a prepared chunk |
//! | `traffic.rs` | a port that replays frames |
//! | `handshakes.rs` | clients of a TLS proxy, and the web server behind it |

pub(crate) mod associations;
pub(crate) mod build;
pub(crate) mod frames;
#[cfg(feature = "tls")]
pub(crate) mod handshakes;
pub(crate) mod job;
pub(crate) mod lookups;
pub(crate) mod patterns;
pub(crate) mod routes;
pub(crate) mod size;
pub(crate) mod traffic;
