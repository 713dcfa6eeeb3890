//! Draws the chain of functions as a text tree and as a Graphviz graph.

use std::fmt::Write;

use crate::resolve::Stage;
use crate::{Chain, Next};

/// Packets that leave one port or function for the same next one.
struct Group {
    /// Text with the verdict and the classes of the packets. It is empty if all packets have the
    /// same next function or port.
    label: String,
    next: Next,
}

impl Chain {
    /// Returns the chain of functions as a text tree, with one line per edge that packets can take.
    /// The successors of a function are drawn only once.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut drawn = vec![false; self.functions().len()];
        for (index, port) in self.ports().iter().enumerate() {
            let groups = self.groups(Stage::Port(index));
            // A receiving port without edges is not drawn.
            if port.receives && groups.iter().any(|group| group.next != Next::None) {
                let _ = writeln!(text, "{}", port.name);
                self.branch(&mut text, "", &groups, &mut drawn);
            }
        }
        for (index, function) in self.functions().iter().enumerate() {
            if !self.is_reached(index) {
                let _ = writeln!(text, "{} ({}): no packet gets here", function.name, function.kind);
            }
        }
        text
    }

    fn branch(&self, text: &mut String, indent: &str, groups: &[Group], drawn: &mut [bool]) {
        for (index, group) in groups.iter().enumerate() {
            let last = index + 1 == groups.len();
            let (corner, below) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            let arrow = if group.label.is_empty() { "" } else { " → " };
            let _ = write!(text, "{indent}{corner}{}{arrow}{}", group.label, self.target(group.next));
            if let Next::Function(index) = group.next {
                let index = usize::from(index);
                let _ = write!(text, " ({})", self.functions()[index].kind);
                if std::mem::replace(&mut drawn[index], true) {
                    text.push_str(", as above\n");
                } else {
                    text.push('\n');
                    let groups = self.groups(Stage::Function(index));
                    self.branch(text, &format!("{indent}{below}"), &groups, drawn);
                }
            } else {
                text.push('\n');
            }
        }
    }

    /// Returns the chain of functions in Graphviz's DOT language. A port has one node for received
    /// packets and one for sent packets.
    pub fn graphviz(&self) -> String {
        let mut text = String::from("digraph chain {\n    rankdir=LR;\n    node [shape=box];\n");
        let mut nodes = String::new();
        let mut arrows = String::new();
        for stage in self.stages.all() {
            let from = match stage {
                Stage::Port(port) => format!("in{port}"),
                Stage::Function(function) => format!("f{function}"),
            };
            let groups = self.groups(stage);
            if matches!(stage, Stage::Port(_)) && groups.iter().all(|group| group.next == Next::None) {
                continue;
            }
            let (shape, label) = match stage {
                Stage::Port(port) => ("cds", quoted(&self.ports()[port].name)),
                Stage::Function(index) => {
                    let function = &self.functions()[index];
                    ("box", quoted(&format!("{}\n{}", function.name, function.kind)))
                }
            };
            let _ = writeln!(nodes, "    {from} [shape={shape}, label={label}];");
            for group in &groups {
                let (to, shape) = match group.next {
                    Next::Function(index) => (format!("f{index}"), None),
                    Next::Port(port) => (format!("out{port}"), Some("cds")),
                    Next::Egress => ("egress".to_owned(), Some("cds")),
                    Next::Drop => ("drop".to_owned(), Some("plain")),
                    Next::None => ("none".to_owned(), Some("plain")),
                };
                let label = quoted(&group.label);
                let _ = writeln!(arrows, "    {from} -> {to} [label={label}];");
                if let Some(shape) = shape {
                    let node = format!("    {to} [shape={shape}, label={}];\n", quoted(&self.target(group.next)));
                    if !nodes.contains(&node) {
                        nodes.push_str(&node);
                    }
                }
            }
        }
        text.push_str(&nodes);
        text.push_str(&arrows);
        text.push_str("}\n");
        text
    }

    fn target(&self, next: Next) -> String {
        match next {
            Next::Function(index) => self.functions()[usize::from(index)].name.clone(),
            Next::Port(port) => self.ports()[usize::from(port)].name.clone(),
            Next::Egress => "the port it chose".to_owned(),
            Next::Drop => "drop".to_owned(),
            Next::None => "no edge: dropped and counted".to_owned(),
        }
    }

    /// Groups the packets that leave a port or function by verdict, and by the next function or
    /// port. Ignores classes whose packets cannot arrive there.
    fn groups(&self, stage: Stage) -> Vec<Group> {
        let classes: Vec<usize> = match stage {
            Stage::Port(_) => (0..self.classes().len()).collect(),
            Stage::Function(index) => {
                let count = self.classes().len();
                (0..count).filter(|class| self.reachable[index * count + class]).collect()
            }
        };
        let verdicts = self.stages.verdicts(stage);
        let mut groups = Vec::new();
        for entry in 0..self.stages.entries_per_class(stage) {
            let verdict = verdicts.get(entry).map_or("", |verdict| verdict.name.as_str());
            let mut targets: Vec<(Next, Vec<usize>)> = Vec::new();
            for &class in &classes {
                let next = self.next(stage, class, entry);
                match targets.iter_mut().find(|(known, _)| *known == next) {
                    Some((_, members)) => members.push(class),
                    None => targets.push((next, vec![class])),
                }
            }
            // The group that contains class 0 comes last, because its label is `all else`.
            targets.sort_by_key(|(_, members)| members.contains(&0));
            let several = targets.len() > 1;
            for (next, members) in targets {
                let mut label = verdict.to_owned();
                if several {
                    let space = if label.is_empty() { "" } else { " " };
                    let _ = write!(label, "{space}[{}]", self.class_list(&members));
                }
                groups.push(Group { label, next });
            }
        }
        groups
    }

    fn class_list(&self, classes: &[usize]) -> String {
        const SHOWN: usize = 4;
        if classes.contains(&0) {
            return "all else".to_owned();
        }
        let names: Vec<&str> = classes.iter().take(SHOWN).map(|&class| self.classes()[class].as_str()).collect();
        match classes.len().saturating_sub(SHOWN) {
            0 => names.join(", "),
            more => format!("{} and {more} more", names.join(", ")),
        }
    }
}

/// Quotes and escapes a string for the DOT language.
fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{escaped}\"")
}
