//! TLS acceptor: unmodified rustls, whose signing suspends the handshake.
//!
//! Each handshake runs in a fiber (`fiber.rs`). When rustls needs a signature, the fiber submits a
//! job to the [`Service`] of its thread and is suspended. Other handshakes continue meanwhile, and
//! their jobs share a batch.
//!
//! | path | contents |
//! |---|---|
//! | `fiber.rs` | futures whose polls can be suspended in the middle |
//! | `service.rs` | signing service of a thread |
//! | `key.rs` | keys in the form of rustls |
//! | `certificates.rs` | certificates by server name, replaceable |
//! | `settings.rs` | versions, groups, ALPN, client certificates, tickets |
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
