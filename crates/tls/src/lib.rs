//! TLS acceptor that uses an unmodified rustls, and suspends a handshake while its signature is
//! made.
//!
//! Each handshake runs in a fiber, a future with a separate stack (`fiber.rs`). When rustls needs a
//! signature, the fiber submits a job to the [`Service`] of its thread and is suspended. Meanwhile,
//! other handshakes continue, and their jobs share a batch.
//!
//! | path | contents |
//! |---|---|
//! | `fiber.rs` | futures whose polls can be suspended in the middle |
//! | `service.rs` | signing service of a thread |
//! | `key.rs` | private keys in the form that rustls expects |
//! | `certificates.rs` | certificates by server name, which can be replaced at run time |
//! | `settings.rs` | versions, groups, ALPN, client certificates and session tickets |
//! | `acceptor.rs` | the trait [`Acceptor`], and its implementation with rustls |
#![deny(unsafe_code)]

mod acceptor;
mod certificates;
mod error;
mod fiber;
mod key;
mod service;
mod settings;

pub use acceptor::{Accepted, Acceptor, Failure, RustlsAcceptor};
pub use certificates::{Certificates, KeyFiles};
pub use error::Error;
pub use service::Service;
pub use settings::{ClientCertificates, Group, Settings};
