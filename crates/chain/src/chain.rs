//! Defines function chains, which consist of ports, functions and edges.

use std::fmt;

use crate::resolve::{self, Stages};
use crate::{Decider, Error, Next};

/// A port of the chain. Its number is its index in the list of ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Name of the port.
    pub name: String,
    /// Whether the port receives packets.
    pub receives: bool,
    /// Whether the port sends packets.
    pub transmits: bool,
}

/// A configured function of the chain. Its number is its index in the list of functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Name of the configured function.
    pub name: String,
    /// Kind of network function, such as `ipv4`.
    pub kind: String,
    /// Verdicts that the function can return. The number of a verdict is its index in this list.
    pub verdicts: Vec<Verdict>,
}

/// A verdict that a function can return for a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Name of the verdict.
    pub name: String,
    /// Whether the function chooses the egress port.
    pub chooses_port: bool,
}

/// A configured edge of the function chain. It leads packets from a port or function to the next
/// one.
///
/// If several edges match a packet, the most specific one applies. An edge with a class and a
/// verdict is the most specific, followed by an edge with only a verdict, and an edge with only a
/// class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edge {
    /// Name of the port or function that the packet leaves.
    pub from: String,
    /// Class of the packets, or `None` for all classes.
    pub class: Option<String>,
    /// Verdict of the packets that take the edge, or `None` for all verdicts. An edge from a port
    /// must not have a verdict.
    pub verdict: Option<String>,
    /// Target of the edge: a function, a port, [`DROP`](crate::DROP) or [`EGRESS`](crate::EGRESS).
    pub to: String,
}

/// A part of the chain that is valid but probably wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// Packets from a port match no edge.
    PortWithoutEdge {
        /// Name of the port.
        port: String,
        /// Affected packet classes. An empty list means all classes.
        classes: Vec<String>,
    },
    /// Packets with a certain verdict of a function match no edge.
    VerdictWithoutEdge {
        /// Name of the function.
        function: String,
        /// Name of the verdict.
        verdict: String,
        /// Affected classes. An empty list means all classes that can reach the function.
        classes: Vec<String>,
    },
    /// No edge leads to a function.
    NoIncomingEdge {
        /// Name of the function.
        function: String,
    },
    /// Edges lead to a function, but no packet from a port can reach it.
    Unreachable {
        /// Name of the function.
        function: String,
    },
    /// An edge never applies, because more specific edges match all of its packets.
    EdgeCovered {
        /// Index of the edge.
        edge: usize,
        /// Name of the port or function where the edge starts.
        from: String,
        /// Name of the port or function where the edge ends.
        to: String,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_classes = |classes: &[String]| match classes {
            [] => String::new(),
            [class] => format!(" of class `{class}`"),
            classes => format!(" of classes `{}`", classes.join("`, `")),
        };
        match self {
            Self::PortWithoutEdge { port, classes } => {
                write!(
                    f,
                    "no edge takes packets{} from port `{port}`: they are dropped and counted",
                    of_classes(classes)
                )
            }
            Self::VerdictWithoutEdge { function, verdict, classes } => write!(
                f,
                "no edge takes packets{} with verdict `{verdict}` from `{function}`: they are dropped and counted",
                of_classes(classes)
            ),
            Self::NoIncomingEdge { function } => {
                write!(f, "function `{function}` is never used: no edge leads to it")
            }
            Self::Unreachable { function } => {
                write!(f, "function `{function}` is never used: no packet from a port can reach it")
            }
            Self::EdgeCovered { from, to, .. } => {
                write!(
                    f,
                    "the edge from `{from}` to `{to}` is never taken: more specific edges take all of its packets"
                )
            }
        }
    }
}

/// A checked chain of functions. All names in its edges are known, and no packet can visit a
/// function twice.
#[derive(Clone, Debug)]
pub struct Chain {
    pub(crate) stages: Stages,
    pub(crate) decider: Decider,
    /// Whether packets of each class can reach each function. The index is `function * classes +
    /// class`.
    pub(crate) reachable: Vec<bool>,
    ranks: Vec<u16>,
    /// For each function: the functions that directly follow it.
    successors: Vec<Vec<u16>>,
    warnings: Vec<Warning>,
}

impl Chain {
    /// Checks `edges` and creates the chain. `classes` contains the names of the classes from class
    /// 1 on. Class 0 is the default class.
    ///
    /// # Errors
    /// Returns an error for the first invalid edge.
    ///
    /// # Panics
    /// Panics if there are more than 256 ports or classes, more than 16384 functions, or a function
    /// with more than 254 verdicts. The configuration parser rejects such configurations.
    pub fn new(ports: Vec<Port>, functions: Vec<Function>, classes: &[String], edges: &[Edge]) -> Result<Self, Error> {
        let stages = Stages::new(ports, functions, classes);
        let resolved = resolve::resolve(&stages, edges)?;
        let ranks = resolve::ranks(&stages, &resolved)?;
        let reachable = resolve::reachable(&stages, &resolved.decider);
        let warnings = resolve::warnings(&stages, edges, &resolved, &reachable);
        let successors = resolved.successors();
        Ok(Self { stages, decider: resolved.decider, reachable, ranks, successors, warnings })
    }

    /// Returns the decider, which selects the next function or port of each packet.
    pub fn decider(&self) -> &Decider {
        &self.decider
    }

    /// Returns the rank of each function. Packets pass functions in the order of increasing ranks.
    /// The lowest rank is 1, because rank 0 means that a packet has visited no function.
    pub fn ranks(&self) -> &[u16] {
        &self.ranks
    }

    /// Returns the rank of packets that have passed the last function of the chain. It is greater
    /// than the rank of every function.
    pub fn rank_of_departure(&self) -> u16 {
        self.ranks.iter().max().map_or(1, |rank| rank + 1)
    }

    /// Returns the parts of the chain that are probably mistakes.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Returns the ports.
    pub fn ports(&self) -> &[Port] {
        &self.stages.ports
    }

    /// Returns the functions.
    pub fn functions(&self) -> &[Function] {
        &self.stages.functions
    }

    /// Returns the names of the classes, starting with class 0.
    pub fn classes(&self) -> &[String] {
        &self.stages.classes
    }

    /// Returns whether a packet from any port can reach `function`.
    pub fn is_reached(&self, function: usize) -> bool {
        let classes = self.classes().len();
        self.reachable[function * classes..][..classes].contains(&true)
    }

    /// Returns whether a packet of `class` from any port can reach `function`.
    pub fn is_reached_by(&self, function: usize, class: usize) -> bool {
        let classes = self.classes().len();
        self.reachable[function * classes + class]
    }

    /// Returns whether a packet can pass the function `from` and later the function `to`. The
    /// result is false if both are the same function.
    pub fn has_path(&self, from: usize, to: usize) -> bool {
        let classes = self.classes().len();
        let mut classes_at_start = (0..classes).filter(|class| self.reachable[from * classes + class]);
        classes_at_start.any(|class| resolve::functions_after(&self.stages, &self.decider, from, class).contains(&to))
    }

    /// Returns the largest sum of weights on any path that a packet can take through the functions.
    /// `weights` has one entry per function.
    pub fn path_max(&self, weights: &[u32]) -> u32 {
        let mut order: Vec<usize> = (0..self.ranks.len()).filter(|&function| self.is_reached(function)).collect();
        order.sort_by_key(|&function| self.ranks[function]);
        let mut before = vec![0u32; self.ranks.len()];
        let mut longest = 0;
        for function in order {
            let sum = before[function].saturating_add(weights[function]);
            longest = longest.max(sum);
            for &next in &self.successors[function] {
                let next = usize::from(next);
                before[next] = before[next].max(sum);
            }
        }
        longest
    }

    /// Returns the next function or port for a packet of `class` that leaves the port or function
    /// `stage`. `verdict` has no effect for a port.
    pub(crate) fn next(&self, stage: resolve::Stage, class: usize, verdict: usize) -> Next {
        resolve::next(&self.decider, stage, class, verdict)
    }
}
