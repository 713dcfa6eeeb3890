//! Which edge wins where, and what follows from it: cycles, ranks, what can be reached.

use std::collections::HashMap;

use crate::chain::{Edge, Function, Port, Verdict, Warning};
use crate::{DEFAULT_CLASS, DROP, Decider, EGRESS, Error, Next};

/// What can stand on either end of an edge, and on which classes it can depend.
#[derive(Clone, Debug)]
pub(crate) struct Stages {
    pub(crate) ports: Vec<Port>,
    pub(crate) functions: Vec<Function>,
    /// Class 0 first.
    pub(crate) classes: Vec<String>,
}

/// Where a packet is when the decider is asked.
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

    /// Verdicts of a stage; none for a port.
    pub(crate) fn verdicts(&self, stage: Stage) -> &[Verdict] {
        match stage {
            Stage::Port(_) => &[],
            Stage::Function(function) => &self.functions[function].verdicts,
        }
    }

    /// How many entries a stage has per class: a port has one.
    pub(crate) fn answers(&self, stage: Stage) -> usize {
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

/// The decider, and which edge it has each entry from.
pub(crate) struct Resolved {
    pub(crate) decider: Decider,
    /// Per edge: whether it decides anything.
    wins: Vec<bool>,
    /// Per function: the functions that it leads to, with one edge that does.
    follows: Vec<Vec<(u16, usize)>>,
}

impl Resolved {
    pub(crate) fn successors(&self) -> Vec<Vec<u16>> {
        let targets = |follows: &Vec<(u16, usize)>| follows.iter().map(|&(to, _)| to).collect();
        self.follows.iter().map(targets).collect()
    }
}

/// An edge whose names are known.
struct Known {
    edge: usize,
    class: Option<usize>,
    verdict: Option<usize>,
    to: Next,
}

impl Known {
    fn fits(&self, class: usize, verdict: usize) -> bool {
        self.class.is_none_or(|own| own == class) && self.verdict.is_none_or(|own| own == verdict)
    }

    /// The most specific edge wins: class and verdict, then verdict, then class, then neither.
    fn specificity(&self) -> (bool, bool) {
        (self.verdict.is_some(), self.class.is_some())
    }
}

/// Checks every edge by itself and decides every (stage, class, verdict).
pub(crate) fn resolve(stages: &Stages, edges: &[Edge]) -> Result<Resolved, Error> {
    let by_stage = know(stages, edges)?;
    let verdicts_max = stages.functions.iter().map(|function| function.verdicts.len()).max().unwrap_or(0);
    let mut decider = Decider::new(stages.ports.len(), stages.functions.len(), stages.classes.len(), verdicts_max);
    let mut wins = vec![false; edges.len()];
    let mut follows = vec![Vec::new(); stages.functions.len()];

    for stage in stages.all() {
        let Some(known) = by_stage.get(&stage) else { continue };
        for class in 0..stages.classes.len() {
            for verdict in 0..stages.answers(stage) {
                let fitting = known.iter().filter(|known| known.fits(class, verdict));
                let Some(winner) = fitting.max_by_key(|known| known.specificity()) else { continue };
                if winner.to == Next::Egress {
                    check_port_is_chosen(stages, stage, winner.edge, verdict)?;
                }
                wins[winner.edge] = true;
                match stage {
                    Stage::Port(port) => decider.set_entry(port, class, winner.to),
                    Stage::Function(function) => {
                        decider.set_next(function, class, verdict, winner.to);
                        if let Next::Function(to) = winner.to
                            && !follows[function].iter().any(|&(known, _)| known == to)
                        {
                            follows[function].push((to, winner.edge));
                        }
                    }
                }
            }
        }
    }
    Ok(Resolved { decider, wins, follows })
}

/// Looks up all names of all edges; the edges by the stage that they start from.
fn know(stages: &Stages, edges: &[Edge]) -> Result<HashMap<Stage, Vec<Known>>, Error> {
    let mut by_stage: HashMap<Stage, Vec<Known>> = HashMap::new();
    let mut taken = HashMap::new();
    for (index, edge) in edges.iter().enumerate() {
        let (stage, known) = know_one(stages, index, edge)?;
        if let Some(first) = taken.insert((stage, known.class, known.verdict), index) {
            return Err(Error::Duplicate { edge: index, what: what_follows(edge), first: edges[first].to.clone() });
        }
        by_stage.entry(stage).or_default().push(known);
    }
    Ok(by_stage)
}

fn know_one(stages: &Stages, index: usize, edge: &Edge) -> Result<(Stage, Known), Error> {
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
    Ok((stage, Known { edge: index, class, verdict, to }))
}

fn check_port_is_chosen(stages: &Stages, stage: Stage, edge: usize, verdict: usize) -> Result<(), Error> {
    let verdict = stages.verdicts(stage).get(verdict);
    if verdict.is_some_and(|verdict| verdict.chooses_port) {
        return Ok(());
    }
    let verdict = verdict.map(|verdict| verdict.name.clone());
    Err(Error::NoPortChosen { edge, from: stages.name(stage).to_owned(), verdict })
}

fn what_follows(edge: &Edge) -> String {
    let mut what = format!("`{}`", edge.from);
    if let Some(verdict) = &edge.verdict {
        what += &format!(" with verdict `{verdict}`");
    }
    if let Some(class) = &edge.class {
        what += &format!(" for class `{class}`");
    }
    what
}

/// The longest way to each function, in functions, itself included.
///
/// Classes are not told apart: a → b for one class and b → a for another is a cycle too, because the gates that keep the
/// order of packets need one order of all functions.
pub(crate) fn ranks(stages: &Stages, resolved: &Resolved) -> Result<Vec<u16>, Error> {
    let count = stages.functions.len();
    let mut incoming = vec![0usize; count];
    for &(to, _) in resolved.follows.iter().flatten() {
        incoming[usize::from(to)] += 1;
    }
    // Kahn, "Topological sorting of large networks", CACM 5(11), 1962.
    let mut ranks = vec![1u16; count];
    let mut ready: Vec<usize> = (0..count).filter(|&function| incoming[function] == 0).collect();
    let mut done = vec![false; count];
    while let Some(function) = ready.pop() {
        done[function] = true;
        for &(to, _) in &resolved.follows[function] {
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

/// Names a cycle. Every function that is not done has a predecessor that is not done either, so walking back from
/// one of them comes round.
fn cycle(stages: &Stages, resolved: &Resolved, done: &[bool], start: usize) -> Error {
    let before = |function: usize| {
        let leads_here =
            |from: &usize| !done[*from] && resolved.follows[*from].iter().any(|&(to, _)| usize::from(to) == function);
        (0..done.len()).find(leads_here)
    };
    let mut walk = vec![start];
    let round = loop {
        let here = walk[walk.len() - 1];
        // The walk starts at a function that is not done, hence so is each predecessor, hence there always is one.
        let from = before(here).unwrap_or(here);
        match walk.iter().position(|&seen| seen == from) {
            Some(at) => break at,
            None => walk.push(from),
        }
    };
    let mut members: Vec<usize> = walk.split_off(round);
    members.reverse();
    // Begin with the function that is configured first: the text is the same however the cycle was found.
    let first = (0..members.len()).min_by_key(|&at| members[at]).unwrap_or(0);
    members.rotate_left(first);

    let (head, last) = (members[0], members[members.len() - 1]);
    let closing = resolved.follows[last].iter().find(|&&(to, _)| usize::from(to) == head);
    let path = members.iter().chain([&head]).map(|&function| stages.functions[function].name.clone()).collect();
    Error::Cycle { edge: closing.map_or(0, |&(_, edge)| edge), path }
}

/// Per function and class, row by row: whether a packet of the class can get there.
pub(crate) fn reached(stages: &Stages, decider: &Decider) -> Vec<bool> {
    let classes = stages.classes.len();
    let mut reached = vec![false; stages.functions.len() * classes];
    for class in 0..classes {
        let ports = (0..stages.ports.len()).map(Stage::Port);
        for function in behind(stages, decider, ports.collect(), class) {
            reached[function * classes + class] = true;
        }
    }
    reached
}

/// The functions that a packet of `class` can get to from function `from`.
pub(crate) fn functions_behind(stages: &Stages, decider: &Decider, from: usize, class: usize) -> Vec<usize> {
    behind(stages, decider, vec![Stage::Function(from)], class)
}

fn behind(stages: &Stages, decider: &Decider, mut todo: Vec<Stage>, class: usize) -> Vec<usize> {
    let mut seen = vec![false; stages.functions.len()];
    let mut found = Vec::new();
    while let Some(stage) = todo.pop() {
        for verdict in 0..stages.answers(stage) {
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

/// What is probably not meant, in the order ports, functions, edges.
pub(crate) fn warnings(stages: &Stages, edges: &[Edge], resolved: &Resolved, reached: &[bool]) -> Vec<Warning> {
    let classes = stages.classes.len();
    let mut warnings = Vec::new();
    // Names of those of the classes that have no edge; None where all have one, empty where none has.
    let without_edge = |stage, verdict, of: &[usize]| {
        let none = |class: &&usize| next(&resolved.decider, stage, **class, verdict) == Next::None;
        let without: Vec<usize> = of.iter().filter(none).copied().collect();
        match without.len() {
            0 => None,
            all if all == of.len() => Some(Vec::new()),
            _ => Some(without.iter().map(|&class| stages.classes[class].clone()).collect()),
        }
    };
    let all: Vec<usize> = (0..classes).collect();
    for (index, port) in stages.ports.iter().enumerate().filter(|(_, port)| port.receives) {
        if let Some(classes) = without_edge(Stage::Port(index), 0, &all) {
            // A port that packets only leave by needs no edge.
            let leads_out = |edge: &Edge| edge.to == port.name || edge.to == EGRESS;
            let used = edges.iter().any(leads_out) && classes.is_empty();
            if !used {
                warnings.push(Warning::PortWithoutEdge { port: port.name.clone(), classes });
            }
        }
    }
    for (index, function) in stages.functions.iter().enumerate() {
        let here: Vec<usize> = all.iter().copied().filter(|class| reached[index * classes + class]).collect();
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
    for (index, edge) in edges.iter().enumerate().filter(|(index, _)| !resolved.wins[*index]) {
        warnings.push(Warning::EdgeCovered { edge: index, from: edge.from.clone(), to: edge.to.clone() });
    }
    warnings
}
