//! Whole functions in the engine, port to port.
//!
//! Before the first figure, the frames of one pass run through the same configuration, and a digest
//! of the sent frames is compared with the digest of `ref`.
//!
//! | file | contents |
//! |---|---|
//! | `cases.rs` | the functions, with frames that their tables know |
//! | `setup.rs` | a configuration of the engine around a function |
//! | `throughput.rs` | throughput by number of workers (G-Opt, figure 10) |
//! | `latency.rs` | latency by offered load (G-Opt, figure 11) |
//! | `patterns.rs` | `dpi` by packing (G-Opt, figure 12) |

mod cases;
pub(super) mod latency;
pub(super) mod patterns;
mod setup;
pub(super) mod throughput;
