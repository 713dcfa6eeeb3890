//! Signing engine for the private-key operations of TLS handshakes. It signs jobs one at a time, in
//! the eight SIMD lanes of a CPU core, or on a device.
//!
//! A [`Signer`] belongs to one thread. Jobs are submitted while the thread serves connections, and
//! [`Signer::turn`] signs them at the end of a turn of the event loop. The [`Policy`] chooses the
//! processor by the number of waiting jobs and by measured costs.
//!
//! Every RSA signature is checked with the public key before it is returned. A wrong result of the
//! Chinese remainder theorem would reveal the private key (Boneh, DeMillo and Lipton, 1997). The
//! equation received = signed + refused + in flight holds at any time.
//!
//! | path | contents |
//! |---|---|
//! | `scheme.rs` | schemes, and classes of jobs that share batches |
//! | `key/` | loads and checks keys and certificates |
//! | `memory.rs` | locked memory for keys |
//! | `padding.rs` | pads messages for RSA |
//! | `policy/` | chooses processors, with the time as an argument |
//! | `lanes/` | signs eight jobs at once with Intel crypto_mb |
//! | `processor.rs` | interface of devices |
//! | `signer.rs` | connects the policy with the processors |
//! | `remote/` | signer in a separate process |
#![deny(unsafe_code)]

mod counters;
mod error;
mod key;
mod lanes;
mod memory;
mod padding;
mod policy;
mod processor;
pub mod remote;
mod scheme;
mod signer;
#[cfg(test)]
mod testing;

pub use counters::{Counters, LANES};
pub use error::{Error, Reason};
pub use key::{Held, Key, Loaded, RsaWords, load, load_held};
pub use lanes::{LanesError, Library};
pub use policy::{
    Costs, CpuCost, DeviceCost, DeviceSpec, Effect, JobId, Policy, PolicyConfig, Processor, Refusal, Work,
};
pub use processor::{Device, DeviceJob, DeviceLost, DeviceResult};
pub use scheme::{Class, Hash, Scheme};
pub use signer::{Done, MESSAGE_BYTES_MAX, Signer, measure_costs};
