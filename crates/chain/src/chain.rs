//! Stages, edges, and the checked chain made from them.

use std::fmt;

use crate::resolve::{self, Stages};
use crate::{Decider, Error, Next};

/// A port, as chains see it. Its number is its index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// Whether packets can come in by it.
    pub receives: bool,
    /// Whether packets can leave by it.
    pub transmits: bool,
}

/// A configured function, as chains see it. Its number is its index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Which network function it is.
    pub kind: String,
    /// What it can say of a packet; the number of a verdict is its index.
    pub verdicts: Vec<Verdict>,
}

/// One thing that a function can say of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Its name.
    pub name: String,
    /// Whether the function chose the egress port.
    pub chooses_port: bool,
}

/// What follows a stage, as the operator writes it.
///
/// Of the edges that fit a packet, the most specific counts: class and verdict, then verdict, then class, then neither.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edge {
    /// Name of the port or function that the packet comes from.
    pub from: String,
    /// Only packets of this class; all where it is absent.
    pub class: Option<String>,
    /// Only packets with this verdict; all where it is absent. Never on an edge from a port.
    pub verdict: Option<String>,
    /// Name of a function or port, or [`DROP`](crate::DROP), or [`EGRESS`](crate::EGRESS).
    pub to: String,
}

/// Something that is probably not meant, but works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// Packets from a port have no next stage.
    PortWithoutEdge {
        /// The port.
        port: String,
        /// The classes concerned; empty: all.
        classes: Vec<String>,
    },
    /// No edge takes what a function says of packets that can get there.
    VerdictWithoutEdge {
        /// The function.
        function: String,
        /// What it says.
        verdict: String,
        /// The classes concerned; empty: all that can get there.
        classes: Vec<String>,
    },
    /// No edge leads to a function.
    NoIncomingEdge {
        /// The function.
        function: String,
    },
    /// Edges lead to a function, but none of them is ever taken by a packet.
    Unreachable {
        /// The function.
        function: String,
    },
    /// An edge is never taken, because more specific edges take all of its packets.
    EdgeCovered {
        /// Its index.
        edge: usize,
        /// Where it starts.
        from: String,
        /// Where it leads.
        to: String,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |classes: &[String]| match classes {
            [] => String::new(),
            [class] => format!(" of class `{class}`"),
            classes => format!(" of classes `{}`", classes.join("`, `")),
        };
        match self {
            Self::PortWithoutEdge { port, classes } => {
                write!(f, "no edge takes packets{} from port `{port}`: they are dropped and counted", of(classes))
            }
            Self::VerdictWithoutEdge { function, verdict, classes } => write!(
                f,
                "no edge takes packets{} with verdict `{verdict}` from `{function}`: they are dropped and counted",
                of(classes)
            ),
            Self::NoIncomingEdge { function } => {
                write!(f, "function `{function}` is never used: no edge leads to it")
            }
            Self::Unreachable { function } => {
                write!(f, "function `{function}` is never used: no packet can get there from a port")
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

/// A chain that has been checked: every name is known, no packet can come back to a function.
#[derive(Clone, Debug)]
pub struct Chain {
    pub(crate) stages: Stages,
    pub(crate) decider: Decider,
    /// Per function and class, row by row: whether a packet of the class can get there.
    pub(crate) reached: Vec<bool>,
    ranks: Vec<u16>,
    /// Per function: the functions that it leads to.
    successors: Vec<Vec<u16>>,
    warnings: Vec<Warning>,
}

impl Chain {
    /// Checks `edges` and makes the chain. `classes`: their names from class 1 on; class 0 is the default class.
    ///
    /// # Errors
    /// The first edge that cannot work.
    ///
    /// # Panics
    /// With more than 256 ports or classes, 16384 functions, or 254 verdicts of one function: the configuration refuses those.
    pub fn new(ports: Vec<Port>, functions: Vec<Function>, classes: &[String], edges: &[Edge]) -> Result<Self, Error> {
        let stages = Stages::new(ports, functions, classes);
        let resolved = resolve::resolve(&stages, edges)?;
        let ranks = resolve::ranks(&stages, &resolved)?;
        let reached = resolve::reached(&stages, &resolved.decider);
        let warnings = resolve::warnings(&stages, edges, &resolved, &reached);
        let successors = resolved.successors();
        Ok(Self { stages, decider: resolved.decider, reached, ranks, successors, warnings })
    }

    /// Where packets go, for the packet path.
    pub fn decider(&self) -> &Decider {
        &self.decider
    }

    /// Rank of each function, from 1; every edge leads to a function of a higher rank. A packet that has
    /// not been at any function has rank 0.
    pub fn ranks(&self) -> &[u16] {
        &self.ranks
    }

    /// The rank of leaving: higher than that of every function.
    pub fn rank_of_departure(&self) -> u16 {
        self.ranks.iter().max().map_or(1, |rank| rank + 1)
    }

    /// What is probably not meant.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// The ports.
    pub fn ports(&self) -> &[Port] {
        &self.stages.ports
    }

    /// The functions.
    pub fn functions(&self) -> &[Function] {
        &self.stages.functions
    }

    /// Names of the classes; class 0 first.
    pub fn classes(&self) -> &[String] {
        &self.stages.classes
    }

    /// Whether any packet can get to function `function`.
    pub fn is_reached(&self, function: usize) -> bool {
        let classes = self.classes().len();
        self.reached[function * classes..][..classes].contains(&true)
    }

    /// Whether a packet of `class` can get to function `function` by any port.
    pub fn is_reached_by(&self, function: usize, class: usize) -> bool {
        let classes = self.classes().len();
        self.reached[function * classes + class]
    }

    /// Whether any packet can get from function `from` to function `to`. A function does not reach itself.
    pub fn reaches(&self, from: usize, to: usize) -> bool {
        let classes = self.classes().len();
        let here = (0..classes).filter(|class| self.reached[from * classes + class]);
        here.into_iter().any(|class| resolve::functions_behind(&self.stages, &self.decider, from, class).contains(&to))
    }

    /// The largest sum of `weights` (one per function) on any path that a packet can take.
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

    /// Where packets of `class` go from a stage: of a port (`verdict` is ignored) or of a function.
    pub(crate) fn next(&self, stage: resolve::Stage, class: usize, verdict: usize) -> Next {
        resolve::next(&self.decider, stage, class, verdict)
    }
}
