//! Signer in a separate process, which alone holds the private keys.
//!
//! A client connects to the Unix socket of the signer. The signer checks the user of the client and
//! sends the public keys and a memory file with two rings. Jobs and signatures then pass through
//! the rings. The socket stays open. A byte on it wakes the other side, and its end tells each side
//! that the other one has ended.
//!
//! ```text
//! client                      shared memory                       signer
//!   submit --> job slots  ====================>  copy, check, build the message, sign
//!   poll   <-- answer slots <==================  signature or refusal
//!              socket: one byte in each direction, only if the other side sleeps
//! ```
//!
//! The signer trusts nothing in the shared memory. It copies each slot before it checks it, and
//! ends the connection of a client that breaks the rules of a ring. A client cannot have arbitrary
//! bytes signed: it sends a part of a TLS handshake, and the signer builds the message
//! (`statement.rs`), hashes it and pads it.
//!
//! | path | contents |
//! |---|---|
//! | `shared.rs` | memory that two processes share |
//! | `ring.rs` | rings of slots in this memory |
//! | `slot.rs` | contents of slots |
//! | `statement.rs` | parts of TLS handshakes that the signer signs |
//! | `handover.rs`, `wake.rs` | first messages on the socket, and bytes that wake a side |
//! | `client.rs` | side of the client |
//! | `host.rs`, `session.rs` | side of the signer |

mod client;
mod handover;
mod host;
mod ring;
mod session;
mod shared;
mod slot;
mod statement;
mod wake;

pub use client::{Connection, Remote};
pub use handover::RemoteError;
pub use host::{Host, HostConfig, HostReport, KeyRing};
