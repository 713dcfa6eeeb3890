//! TCP connections: states, validation and reassembly.
//!
//! | file | contents |
//! |---|---|
//! | `session.rs` | the validation of packets, and the transitions between states |
//! | `handshake.rs` | packets of the handshake |
//! | `store.rs` | payload, on its way into the stream |
//! | `state.rs` | states |
//! | `options.rs` | options of all connections |
//! | `side.rs` | one direction |
//! | `assembler.rs` | ordered bytes of one direction |
//! | `policy.rs` | overlap policies |

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
