//! TCP connections: their states, the validation of packets, and the reassembly of streams.
//!
//! | file | contents |
//! |---|---|
//! | `session.rs` | validates packets and changes the state of a connection |
//! | `handshake.rs` | packets of the handshake |
//! | `store.rs` | adds payload to the stream |
//! | `state.rs` | states of a connection |
//! | `options.rs` | options that all connections share |
//! | `side.rs` | state of one side of a connection |
//! | `assembler.rs` | ordered bytes of one direction |
//! | `policy.rs` | policies for overlapping segments |

pub mod assembler;
mod handshake;
pub mod options;
pub mod policy;
pub mod session;
pub mod side;
pub mod state;
mod store;

pub use options::{Options, Urgent};
pub use policy::OverlapPolicy;
pub use session::{Handled, Session, Update};
pub use state::State;
