//! Packet port that generates packets, and discards the packets that are sent to it.
//!
//! The packets, their sequence numbers and their bytes depend only on the configuration, including
//! its seed. They do not depend on the number of workers, the batch size or the time. The content
//! of packet `k` follows from the configuration and the number `k`.
//!
//! The number `k` determines the hash bucket of packet `k`, and each bucket belongs to one worker.
//! A worker therefore generates only the packets of the buckets that it owns. With `flows = 0`, the
//! hash bucket follows from the random addresses, so each worker must compute all packets.
//!
//! | file | contents |
//! |---|---|
//! | `config` | configuration |
//! | `units` | sizes, rates and prefixes as text |
//! | `draw` | random numbers by position, distribution of lengths |
//! | `schedule` | selects the packets of a worker |
//! | `lengths` | lengths of the packets |
//! | `headers` | headers, their lengths and checksums |
//! | `flows` | addresses and ports, flows by bucket |
//! | `payload` | bytes after the headers |
//! | `generator` | [`Generator`]: fills a region with packets |
//! | `probe` | packets that contain their number and their time |
//! | `program/` | load programs: rate, lengths and class shares over time |
//! | `receive` | receive queue: the generator, paced by a clock |
//! | `sink` | transmit queue: counts packets, computes digests, releases buffers |

mod config;
mod draw;
mod flows;
mod generator;
mod headers;
mod lengths;
mod payload;
mod probe;
mod program;
mod receive;
mod schedule;
mod sink;
mod units;

pub use config::{Config, IpVersion, PayloadKind, Spread, Time, Transport};
pub use generator::Generator;
pub use probe::{PROBE_BYTES, ProbeReport, Probes};
pub use receive::{receiver, receiver_with_clock};
pub use sink::{Digest, transmitter};
pub use units::{Mac, Prefix, Rate, Size, Span};
