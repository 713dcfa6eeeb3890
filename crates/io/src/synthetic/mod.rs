//! The `synthetic` port: makes packets, and swallows those sent to it.
//!
//! Which packets exist, their sequence numbers and their bytes depend on the configuration alone (with its seed), never on the number of
//! workers, the size of batches or the time: packet `k` is a function of (configuration, k). Each worker walks the whole
//! sequence and makes the packets that steering gives it.
//!
//! | file | holds |
//! |---|---|
//! | `config` | what the operator writes |
//! | `units` | sizes, rates, prefixes as text |
//! | `draw` | random numbers by position, distribution of sizes |
//! | `payload` | what stands behind the headers |
//! | `generator` | [`Generator`]: fills a region with packets |
//! | `receive` | the receive queue: the generator, paced |
//! | `sink` | the transmit queue: counts, digests, returns windows |

mod config;
mod draw;
mod generator;
mod payload;
mod receive;
mod sink;
mod units;

pub use config::{Config, IpVersion, PayloadKind, Time, Transport};
pub use generator::Generator;
pub use receive::{receiver, receiver_with_clock};
pub use sink::{Digest, transmitter};
pub use units::{Mac, Prefix, Rate, Size, Span};
