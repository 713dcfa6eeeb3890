//! What comes next for a packet.
//!
//! | file | holds |
//! |---|---|
//! | `class.rs` | classes: rules over the 5-tuple, and the classifier made from them |
//! | `prefix.rs` | address prefixes, as rules have them |
//! | `chain.rs` | stages, edges, and the checked chain made from them |
//! | `resolve.rs` | which edge wins, cycles, ranks |
//! | `decider.rs` | the route decider: (stage, class, verdict) → next, one load per packet |
//! | `draw.rs` | the chain as text and for Graphviz |
//! | `names.rs` | what was probably meant by an unknown name |
//!
//! A packet gets its class once, when it arrives. From then on the [`Decider`] alone says where it goes: from its port
//! ([`Decider::entry`]) and after every function ([`Decider::next`]), until a port, a drop, or a missing edge.
//!
//! Nothing here does I/O, allocates on the packet path or knows of threads.
#![forbid(unsafe_code)]

mod chain;
mod class;
mod decider;
mod draw;
mod error;
pub mod names;
mod prefix;
mod resolve;

pub use chain::{Chain, Edge, Function, Port, Verdict, Warning};
pub use class::{CLASSES_MAX, Classifier, Rule};
pub use decider::{Decider, Next};
pub use error::Error;
pub use prefix::{Prefix, PrefixError};

/// What an edge leads to where the packet is to be dropped.
pub const DROP: &str = "drop";

/// What an edge leads to where the function chose the port.
pub const EGRESS: &str = "egress";

/// The class of packets that no rule matches: class 0.
pub const DEFAULT_CLASS: &str = "default";
