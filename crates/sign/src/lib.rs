//! Signing engine: private-key operations of TLS handshakes, one at a time, in eight lanes, or on
//! a device.
//!
//! A [`Signer`] belongs to one thread. Jobs are submitted while the thread serves connections, and
//! [`Signer::turn`] signs them at the end of a turn of its event loop. The [`Policy`] chooses the
//! processor by the number of waiting jobs and by measured costs.
//!
//! Every RSA result is checked with the public key before it leaves, because a wrong result of the
//! Chinese remainder theorem reveals the private key (Boneh, DeMillo and Lipton, 1997). At any
//! time, received = signed + refused + in flight.
//!
//! | path | contents |
//! |---|---|
//! | `scheme.rs` | schemes, and classes of jobs that share batches |
//! | `key/` | loading of keys and certificates, with all checks |
//! | `memory.rs` | locked memory for keys |
//! | `padding.rs` | padded messages of RSA |
//! | `policy/` | choice of processors: pure, in virtual time |
//! | `lanes/` | eight lanes with Intel crypto_mb |
//! | `processor.rs` | interface of devices |
//! | `signer.rs` | joins all of these |
#![deny(unsafe_code)]

mod counters;
mod error;
mod key;
mod lanes;
mod memory;
mod padding;
mod policy;
mod processor;
mod scheme;
mod signer;
#[cfg(test)]
mod testing;

pub use counters::{Counters, LANES};
pub use error::{Error, Reason};
pub use key::{Key, Loaded, RsaWords, load};
pub use lanes::{LanesError, Library};
pub use policy::{
    Costs, CpuCost, DeviceCost, DeviceSpec, Effect, JobId, Policy, PolicyConfig, Processor, Refusal, Work,
};
pub use processor::{Device, DeviceJob, DeviceLost, DeviceResult};
pub use scheme::{Class, Hash, Scheme};
pub use signer::{Done, MESSAGE_BYTES_MAX, Signer, measure_costs};
