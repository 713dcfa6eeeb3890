//! Resolves the edges of a function chain. Determines their precedence, finds cycles, and computes
//! the rank and reachability of each function.

use std::collections::HashMap;

use crate::chain::{Edge, Function, Port, Verdict, Warning};
use crate::{DEFAULT_CLASS, DROP, Decider, EGRESS, Error, Next};

/// Ports, functions and classes of a chain.
#[derive(Clone, Debug)]
pub(crate) struct Stages {
    pub(crate) ports: Vec<Port>,
    pub(crate) functions: Vec<Function>,
    /// Names of the classes, starting with class 0.
    pub(crate) classes: Vec<String>,
}

/// Start of an edge: the port or function with this index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    Port(usize),
    Function(usize),
}

impl Stages {
    pub(crate) fn new(ports: Vec<Port>, functions: Vec<Function>, classes: &[String]) -> Self {
        let classes: Vec<String> = std::iter::once(DEFAULT_CLASS.to_owned()).chain(classes.iter().cloned()).collect();
        assert!(ports.len() <= 256 && functions.len() <= 1 << 14 && classes.len() <= 256);
        assert!(functions.iter().all(|function| function.verdicts.len() <= 254));
        Self { ports, functions, classes }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = Stage> + use<> {
        (0..self.ports.len()).map(Stage::Port).chain((0..self.functions.len()).map(Stage::Function))
    }

    pub(crate) fn name(&self, stage: Stage) -> &str {
        match stage {
            Stage::Port(port) => &self.ports[port].name,
            Stage::Function(function) => &self.functions[function].name,
        }
    }

    /// Returns the verdicts that a function can return. The list is empty for a port.
    pub(crate) fn verdicts(&self, stage: Stage) -> &[Verdict] {
        match stage {
            Stage::Port(_) => &[],
            Stage::Function(function) => &self.functions[function].verdicts,
        }
    }

    /// Returns the number of routing entries that a port or function has for each packet class. A
    /// port has one entry, and a function has one entry per verdict.
    pub(crate) fn entries_per_class(&self, stage: Stage) -> usize {
        match stage {
            Stage::Port(_) => 1,
            Stage::Function(function) => self.functions[function].verdicts.len(),
        }
    }

    fn find(&self, name: &str) -> Option<Stage> {
        self.all().find(|&stage| self.name(stage) == name)
    }

    fn names(&self) -> Vec<String> {
        self.all().map(|stage| self.name(stage).to_owned()).collect()
    }
}

pub(crate) fn next(decider: &Decider, stage: Stage, class: usize, verdict: usize) -> Next {
    match stage {
        Stage::Port(port) => decider.entry(port as u8, class as u8),
        Stage::Function(function) => decider.next(function as u16, class as u8, verdict as u8),
    }
}

/// Result of resolving the configured edges.
pub(crate) struct Resolved {
    pub(crate) decider: Decider,
    /// For each edge: whether it applies to any packet.
    is_used: Vec<bool>,
    /// Direct successors of each function. Each successor is stored with the index of an edge that
    /// leads to it.
    successors: Vec<Vec<(u16, usize)>>,
}

impl Resolved {
    pub(crate) fn successors(&self) -> Vec<Vec<u16>> {
        let targets = |successors: &Vec<(u16, usize)>| successors.iter().map(|&(to, _)| to).collect();
        self.successors.iter().map(targets).collect()
    }
}

struct IndexedEdge {
    edge: usize,
    class: Option<usize>,
    verdict: Option<usize>,
    to: Next,
}

impl IndexedEdge {
    fn matches(&self, class: usize, verdict: usize) -> bool {
        self.class.is_none_or(|own| own == class) && self.verdict.is_none_or(|own| own == verdict)
    }

    /// Returns the precedence of the edge, where a larger value wins. An edge with a verdict
    /// precedes an edge without a verdict. Otherwise, an edge with a class wins.
    fn specificity(&self) -> (bool, bool) {
        (self.verdict.is_some(), self.class.is_some())
    }
}

/// Checks each edge. Determines where packets of each class go after each port and after each
/// verdict.
pub(crate) fn resolve(stages: &Stages, edges: &[Edge]) -> Result<Resolved, Error> {
    let by_stage = index_edges(stages, edges)?;
    let verdicts_max = stages.functions.iter().map(|function| function.verdicts.len()).max().unwrap_or(0);
    let mut decider = Decider::new(stages.ports.len(), stages.functions.len(), stages.classes.len(), verdicts_max);
    let mut is_used = vec![false; edges.len()];
    let mut successors = vec![Vec::new(); stages.functions.len()];

    for stage in stages.all() {
        let Some(edges) = by_stage.get(&stage) else { continue };
        for class in 0..stages.classes.len() {
            for verdict in 0..stages.entries_per_class(stage) {
                let matching = edges.iter().filter(|edge| edge.matches(class, verdict));
                let Some(winner) = matching.max_by_key(|edge| edge.specificity()) else { continue };
                if winner.to == Next::Egress {
                    check_port_is_chosen(stages, stage, winner.edge, verdict)?;
                }
                is_used[winner.edge] = true;
                match stage {
                    Stage::Port(port) => decider.set_entry(port, class, winner.to),
                    Stage::Function(function) => {
                        decider.set_next(function, class, verdict, winner.to);
                        if let Next::Function(to) = winner.to
                            && !successors[function].iter().any(|&(known, _)| known == to)
                        {
                            successors[function].push((to, winner.edge));
                        }
                    }
                }
            }
        }
    }
    Ok(Resolved { decider, is_used, successors })
}

/// Looks up the names in all edges. Returns the edges, grouped by the port or function where they
/// start.
fn index_edges(stages: &Stages, edges: &[Edge]) -> Result<HashMap<Stage, Vec<IndexedEdge>>, Error> {
    let mut by_stage: HashMap<Stage, Vec<IndexedEdge>> = HashMap::new();
    let mut keys = HashMap::new();
    for (index, edge) in edges.iter().enumerate() {
        let (stage, indexed) = index_edge(stages, index, edge)?;
        if let Some(first) = keys.insert((stage, indexed.class, indexed.verdict), index) {
            return Err(Error::Duplicate { edge: index, what: packets_of(edge), first: edges[first].to.clone() });
        }
        by_stage.entry(stage).or_default().push(indexed);
    }
    Ok(by_stage)
}

fn index_edge(stages: &Stages, index: usize, edge: &Edge) -> Result<(Stage, IndexedEdge), Error> {
    let unknown = |key, what, name: &str, candidates: Vec<String>| Error::Unknown {
        edge: index,
        key,
        what,
        name: name.to_owned(),
        candidates,
    };
    let stage =
        stages.find(&edge.from).ok_or_else(|| unknown("from", "port or function", &edge.from, stages.names()))?;
    if let Stage::Port(port) = stage
        && !stages.ports[port].receives
    {
        return Err(Error::FromSendOnly { edge: index, port: edge.from.clone() });
    }
    let class = match &edge.class {
        None => None,
        Some(name) => {
            let class = stages.classes.iter().position(|class| class == name);
            Some(class.ok_or_else(|| unknown("class", "class", name, stages.classes.clone()))?)
        }
    };
    let verdict = match (&edge.verdict, stage) {
        (None, _) => None,
        (Some(_), Stage::Port(_)) => {
            return Err(Error::VerdictOfPort { edge: index, port: edge.from.clone() });
        }
        (Some(name), Stage::Function(_)) => {
            let verdicts = stages.verdicts(stage);
            let names = || verdicts.iter().map(|verdict| verdict.name.clone()).collect();
            let verdict = verdicts.iter().position(|verdict| verdict.name == *name);
            Some(verdict.ok_or_else(|| unknown("verdict", "verdict", name, names()))?)
        }
    };
    let to = match edge.to.as_str() {
        DROP => Next::Drop,
        EGRESS => Next::Egress,
        name => match stages.find(name) {
            Some(Stage::Port(port)) if !stages.ports[port].transmits => {
                return Err(Error::ToReceiveOnly { edge: index, port: name.to_owned() });
            }
            Some(Stage::Port(port)) => Next::Port(port as u8),
            Some(Stage::Function(function)) => Next::Function(function as u16),
            None => {
                let mut candidates = stages.names();
                candidates.extend([DROP.to_owned(), EGRESS.to_owned()]);
                return Err(unknown("to", "port or function", name, candidates));
            }
        },
    };
    if to == Next::Egress && (verdict.is_some() || stages.verdicts(stage).is_empty()) {
        check_port_is_chosen(stages, stage, index, verdict.unwrap_or(0))?;
    }
    Ok((stage, IndexedEdge { edge: index, class, verdict, to }))
}

fn check_port_is_chosen(stages: &Stages, stage: Stage, edge: usize, verdict: usize) -> Result<(), Error> {
    let verdict = stages.verdicts(stage).get(verdict);
    if verdict.is_some_and(|verdict| verdict.chooses_port) {
        return Ok(());
    }
    let verdict = verdict.map(|verdict| verdict.name.clone());
    Err(Error::NoPortChosen { edge, from: stages.name(stage).to_owned(), verdict })
}

/// Describes the packets of an edge, for an error message.
fn packets_of(edge: &Edge) -> String {
    let mut what = format!("`{}`", edge.from);
    if let Some(verdict) = &edge.verdict {
        what += &format!(" with verdict `{verdict}`");
    }
    if let Some(class) = &edge.class {
        what += &format!(" for class `{class}`");
    }
    what
}

/// Returns the rank of each function. The rank is the number of functions on the longest path that
/// ends at this function.
///
/// The paths of all packet classes form one graph. An edge a → b for one class and an edge b → a
/// for another class therefore form a cycle. A cycle is an error, because functions that restore
/// arrival order need one common order.
pub(crate) fn ranks(stages: &Stages, resolved: &Resolved) -> Result<Vec<u16>, Error> {
    let count = stages.functions.len();
    let mut incoming = vec![0usize; count];
    for &(to, _) in resolved.successors.iter().flatten() {
        incoming[usize::from(to)] += 1;
    }
    // This is the algorithm of Kahn, "Topological sorting of large networks", CACM 5(11), 1962.
    let mut ranks = vec![1u16; count];
    let mut ready: Vec<usize> = (0..count).filter(|&function| incoming[function] == 0).collect();
    let mut done = vec![false; count];
    while let Some(function) = ready.pop() {
        done[function] = true;
        for &(to, _) in &resolved.successors[function] {
            let to = usize::from(to);
            ranks[to] = ranks[to].max(ranks[function] + 1);
            incoming[to] -= 1;
            if incoming[to] == 0 {
                ready.push(to);
            }
        }
    }
    match done.iter().position(|done| !done) {
        None => Ok(ranks),
        Some(start) => Err(cycle(stages, resolved, &done, start)),
    }
}

/// Returns the error that names a cycle of functions.
///
/// `done` marks the functions that already have a rank. Every other function has a predecessor
/// without a rank. A walk along these predecessors therefore closes a cycle.
fn cycle(stages: &Stages, resolved: &Resolved, done: &[bool], start: usize) -> Error {
    let predecessor = |function: usize| {
        let leads_to_it = |from: &usize| {
            !done[*from] && resolved.successors[*from].iter().any(|&(to, _)| usize::from(to) == function)
        };
        (0..done.len()).find(leads_to_it)
    };
    let mut walk = vec![start];
    let cycle_start = loop {
        let here = walk[walk.len() - 1];
        let from = predecessor(here).unwrap_or(here);
        match walk.iter().position(|&seen| seen == from) {
            Some(at) => break at,
            None => walk.push(from),
        }
    };
    let mut members: Vec<usize> = walk.split_off(cycle_start);
    members.reverse();
    // The error starts with the function that was configured first, because the message must be
    // deterministic.
    let first = (0..members.len()).min_by_key(|&at| members[at]).unwrap_or(0);
    members.rotate_left(first);

    let (head, last) = (members[0], members[members.len() - 1]);
    let closing = resolved.successors[last].iter().find(|&&(to, _)| usize::from(to) == head);
    let path = members.iter().chain([&head]).map(|&function| stages.functions[function].name.clone()).collect();
    Error::Cycle { edge: closing.map_or(0, |&(_, edge)| edge), path }
}

/// Returns whether packets of each class can reach each function. The index is `function * classes
/// + class`.
pub(crate) fn reachable(stages: &Stages, decider: &Decider) -> Vec<bool> {
    let classes = stages.classes.len();
    let mut reachable = vec![false; stages.functions.len() * classes];
    for class in 0..classes {
        let ports = (0..stages.ports.len()).map(Stage::Port);
        for function in reachable_from(stages, decider, ports.collect(), class) {
            reachable[function * classes + class] = true;
        }
    }
    reachable
}

/// Returns the functions that a packet of `class` can reach after function `from`.
pub(crate) fn functions_after(stages: &Stages, decider: &Decider, from: usize, class: usize) -> Vec<usize> {
    reachable_from(stages, decider, vec![Stage::Function(from)], class)
}

fn reachable_from(stages: &Stages, decider: &Decider, mut todo: Vec<Stage>, class: usize) -> Vec<usize> {
    let mut seen = vec![false; stages.functions.len()];
    let mut found = Vec::new();
    while let Some(stage) = todo.pop() {
        for verdict in 0..stages.entries_per_class(stage) {
            if let Next::Function(to) = next(decider, stage, class, verdict) {
                let to = usize::from(to);
                if !std::mem::replace(&mut seen[to], true) {
                    found.push(to);
                    todo.push(Stage::Function(to));
                }
            }
        }
    }
    found
}

/// Returns warnings about ports, then about functions, then about edges.
pub(crate) fn warnings(stages: &Stages, edges: &[Edge], resolved: &Resolved, reachable: &[bool]) -> Vec<Warning> {
    let classes = stages.classes.len();
    let mut warnings = Vec::new();
    // Returns the names of the classes in `candidates` whose packets match no edge. The list is
    // empty if no class matches an edge. Returns `None` if every class matches an edge.
    let without_edge = |stage, verdict, candidates: &[usize]| {
        let none = |class: &&usize| next(&resolved.decider, stage, **class, verdict) == Next::None;
        let without: Vec<usize> = candidates.iter().filter(none).copied().collect();
        match without.len() {
            0 => None,
            all if all == candidates.len() => Some(Vec::new()),
            _ => Some(without.iter().map(|&class| stages.classes[class].clone()).collect()),
        }
    };
    let all: Vec<usize> = (0..classes).collect();
    for (index, port) in stages.ports.iter().enumerate().filter(|(_, port)| port.receives) {
        if let Some(classes) = without_edge(Stage::Port(index), 0, &all) {
            // A port that is only used for transmission needs no edge.
            let leads_out = |edge: &Edge| edge.to == port.name || edge.to == EGRESS;
            let used = edges.iter().any(leads_out) && classes.is_empty();
            if !used {
                warnings.push(Warning::PortWithoutEdge { port: port.name.clone(), classes });
            }
        }
    }
    for (index, function) in stages.functions.iter().enumerate() {
        let here: Vec<usize> = all.iter().copied().filter(|class| reachable[index * classes + class]).collect();
        if here.is_empty() {
            let name = function.name.clone();
            warnings.push(match edges.iter().any(|edge| edge.to == name) {
                false => Warning::NoIncomingEdge { function: name },
                true => Warning::Unreachable { function: name },
            });
            continue;
        }
        for (number, verdict) in function.verdicts.iter().enumerate() {
            if let Some(classes) = without_edge(Stage::Function(index), number, &here) {
                let (function, verdict) = (function.name.clone(), verdict.name.clone());
                warnings.push(Warning::VerdictWithoutEdge { function, verdict, classes });
            }
        }
    }
    for (index, edge) in edges.iter().enumerate().filter(|(index, _)| !resolved.is_used[*index]) {
        warnings.push(Warning::EdgeCovered { edge: index, from: edge.from.clone(), to: edge.to.clone() });
    }
    warnings
}
