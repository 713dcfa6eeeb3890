//! Signer in a separate process, which alone holds the private keys.
//!
//! A client connects to the signer's Unix socket. The signer checks the client's user. It then
//! sends its public keys and a memory file with two ring buffers. Jobs and signatures pass through
//! these ring buffers. The socket stays open. A byte on the socket wakes the other process. If one
//! process ends, its socket closes, which tells the other process.
//!
//! ```text
//! client                      shared memory                       signer
//!   submit --> job slots  ====================>  copy, check, build the message, sign
//!   poll   <-- answer slots <==================  signature or refusal
//!              socket: one byte in each direction, only if the other side sleeps
//! ```
//!
//! The signer trusts nothing in the shared memory. It copies each slot before it checks the slot,
//! and disconnects a client that violates the ring protocol. A client cannot get a signature of
//! arbitrary bytes. It sends a part of a TLS handshake. The signer builds the message from this
//! part (`statement.rs`), hashes it and pads it.
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
