//! The `synthetic` port: makes packets, and swallows those sent to it.
//!
//! Which packets exist, their sequence numbers and their bytes depend on the configuration alone (with its seed), never on the number of
//! workers, the size of batches or the time: packet `k` is a function of (configuration, k). The bucket of steering that packet `k`
//! belongs to follows from `k` alone, so each worker makes the packets of its own buckets and never looks at the others. (With
//! `flows = 0` the bucket follows from the addresses; then each worker looks at all packets.)
//!
//! | file | holds |
//! |---|---|
//! | `config` | what the operator writes |
//! | `units` | sizes, rates, prefixes as text |
//! | `draw` | random numbers by position, distribution of sizes |
//! | `schedule` | which packets of the sequence are a worker's |
//! | `lengths` | how long each is |
//! | `headers` | what headers packets have, lengths and checksums |
//! | `flows` | addresses and ports, flows by bucket |
//! | `payload` | what stands behind the headers |
//! | `generator` | [`Generator`]: fills a region with packets |
//! | `probe` | packets that say which they are and when they were made |
//! | `receive` | the receive queue: the generator, paced |
//! | `sink` | the transmit queue: counts, digests, returns buffers |

mod config;
mod draw;
mod flows;
mod generator;
mod headers;
mod lengths;
mod payload;
mod probe;
mod receive;
mod schedule;
mod sink;
mod units;

pub use config::{Config, IpVersion, PayloadKind, Time, Transport};
pub use generator::Generator;
pub use probe::{PROBE_BYTES, ProbeReport, Probes};
pub use receive::{receiver, receiver_with_clock};
pub use sink::{Digest, transmitter};
pub use units::{Mac, Prefix, Rate, Size, Span};
