//! TCP connections: states, validation and reassembly.
//!
//! | file | contents |
//! |---|---|
//! | `session.rs` | the states of a connection, and the validation of its packets |
//! | `side.rs` | one direction |
//! | `assembler.rs` | ordered bytes of one direction |
//! | `policy.rs` | overlap policies |

pub mod assembler;
pub mod policy;
pub mod session;
pub mod side;

pub use policy::OverlapPolicy;
pub use session::{Handled, Session, State, Update, Urgent};
