//! The chain: the functions that a packet passes, from its ingress port to its egress port.
//!
//! | file | content |
//! |---|---|
//! | `class.rs`, `class/` | classes: rules over the 5-tuple, and the classifier |
//! | `prefix.rs` | address prefixes in rules |
//! | `chain.rs` | ports, functions, edges, and the checked chain |
//! | `resolve.rs` | precedence of edges, cycles, ranks, reachability |
//! | `decider.rs` | the route decider, which selects the next function or port of a packet |
//! | `draw.rs` | the chain as text and for Graphviz |
//! | `names.rs` | suggestions for unknown names |
//!
//! A stage is a port or a function. A packet gets its class once, when it arrives. The [`Decider`]
//! then selects its next function or port: after its ingress port ([`Decider::entry`]), and after
//! each function ([`Decider::next`]). The packet leaves the chain at a port, at a drop, or at a
//! missing edge.
//!
//! The crate has no I/O and no threads, and does not allocate on the packet path.
//!
//! ```
//! use godwit_chain::{Chain, Edge, Function, Next, Port, Verdict};
//!
//! let port = |name: &str| Port { name: name.into(), receives: true, transmits: true };
//! let edge = |from: &str, to: &str| Edge { from: from.into(), to: to.into(), ..Edge::default() };
//! let verdicts = vec![Verdict { name: "forward".into(), chooses_port: false }];
//! let route = Function { name: "route".into(), kind: "ipv4".into(), verdicts };
//!
//! let edges = [edge("lan", "route"), edge("route", "wan")];
//! let chain = Chain::new(vec![port("lan"), port("wan")], vec![route], &[], &edges)?;
//!
//! let decider = chain.decider();
//! assert_eq!(decider.entry(0, 0), Next::Function(0));
//! assert_eq!(decider.next(0, 0, 0), Next::Port(1));
//! # Ok::<(), godwit_chain::Error>(())
//! ```
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

/// Target of an edge that drops packets.
pub const DROP: &str = "drop";

/// Target of an edge that sends packets to the port that the function chose.
pub const EGRESS: &str = "egress";

/// Name of class 0, the class of packets that no rule matches.
pub const DEFAULT_CLASS: &str = "default";
