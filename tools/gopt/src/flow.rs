//! Control flow of a statement, and the variables that are alive at its points.

use std::collections::{BTreeSet, HashMap};

use crate::syntax::Unit;
use crate::syntax::ast::{Expr, ExprKind, Stmt, StmtKind};

/// Access to a variable, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Use(usize),
    /// The whole variable is set.
    Set(usize),
}

/// Block of accesses without a branch.
#[derive(Default)]
struct Block {
    events: Vec<Event>,
    next: Vec<usize>,
}

/// Variables that a graph follows.
pub(crate) trait Variables<'u> {
    /// Returns the variable that an expression names as a whole.
    fn named(&self, expression: &Expr) -> Option<usize>;

    /// Returns whether an lvalue is a part of a variable.
    fn is_part(&self, _lvalue: &Expr) -> bool {
        false
    }

    /// Returns a call's accesses to variables whose addresses it takes, and whether the call
    /// handles an argument. Other arguments are followed as usual.
    fn call(&self, _call: &'u Expr) -> Vec<(usize, Vec<Event>)> {
        Vec::new()
    }
}

/// Control flow of a statement.
pub(crate) struct Graph {
    blocks: Vec<Block>,
    /// Block at the beginning of each loop body, and block after the loop, by the loop's first
    /// token.
    loops: HashMap<usize, (usize, usize)>,
    /// Block after each call to the marking function, by the call's first token.
    points: HashMap<usize, usize>,
    exit: usize,
}

impl Graph {
    /// Builds the graph of a statement. `point` names the function whose calls mark points.
    pub(crate) fn new<'u>(unit: &'u Unit, body: &'u Stmt, variables: &dyn Variables<'u>, point: &str) -> Self {
        let graph = Self {
            blocks: vec![Block::default(), Block::default()],
            loops: HashMap::new(),
            points: HashMap::new(),
            exit: 1,
        };
        let mut builder = Builder {
            unit,
            variables,
            point: point.to_owned(),
            graph,
            at: 0,
            breaks: Vec::new(),
            continues: Vec::new(),
            labels: HashMap::new(),
            cases: Vec::new(),
        };
        builder.statement(body);
        let at = builder.at;
        builder.edge(at, 1);
        builder.graph
    }

    /// Returns the variables that are alive at the beginning of each block. `at_exit` contains the
    /// variables that are alive at the end.
    fn alive(&self, at_exit: &BTreeSet<usize>) -> Vec<BTreeSet<usize>> {
        let mut alive = vec![BTreeSet::new(); self.blocks.len()];
        alive[self.exit].clone_from(at_exit);
        loop {
            let mut changed = false;
            for index in (0..self.blocks.len()).rev().filter(|index| *index != self.exit) {
                let block = &self.blocks[index];
                let mut now: BTreeSet<usize> = BTreeSet::new();
                block.next.iter().for_each(|next| now.extend(&alive[*next]));
                for event in block.events.iter().rev() {
                    match event {
                        Event::Use(one) => _ = now.insert(*one),
                        Event::Set(one) => _ = now.remove(one),
                    }
                }
                if now != alive[index] {
                    alive[index] = now;
                    changed = true;
                }
            }
            if !changed {
                return alive;
            }
        }
    }

    /// Returns the variables that are alive at the beginning.
    pub(crate) fn alive_at_entry(&self, at_exit: &BTreeSet<usize>) -> BTreeSet<usize> {
        self.alive(at_exit)[0].clone()
    }

    /// Returns the variables that are alive after a loop.
    pub(crate) fn alive_after_loop(&self, token: usize) -> BTreeSet<usize> {
        self.loops.get(&token).map_or_else(BTreeSet::new, |(_, after)| self.alive(&BTreeSet::new())[*after].clone())
    }

    /// Returns the variables that are alive after each point, by the first token of its call.
    pub(crate) fn alive_at_points(&self) -> HashMap<usize, BTreeSet<usize>> {
        let alive = self.alive(&BTreeSet::new());
        self.points.iter().map(|(token, block)| (*token, alive[*block].clone())).collect()
    }
}

struct Builder<'u, 'v> {
    unit: &'u Unit,
    variables: &'v dyn Variables<'u>,
    point: String,
    graph: Graph,
    /// Current block.
    at: usize,
    breaks: Vec<usize>,
    continues: Vec<usize>,
    labels: HashMap<String, usize>,
    /// Block before the cases of each enclosing `switch`, and whether the `switch` has a default.
    cases: Vec<(usize, bool)>,
}

impl<'u> Builder<'u, '_> {
    fn block(&mut self) -> usize {
        self.graph.blocks.push(Block::default());
        self.graph.blocks.len() - 1
    }

    fn edge(&mut self, from: usize, to: usize) {
        self.graph.blocks[from].next.push(to);
    }

    /// Begins a block that follows the current one.
    fn follow(&mut self) -> usize {
        let next = self.block();
        self.edge(self.at, next);
        self.at = next;
        next
    }

    /// Ends the current block with a jump.
    fn jump(&mut self, to: usize) {
        self.edge(self.at, to);
        self.at = self.block();
    }

    fn label(&mut self, name: &str) -> usize {
        if let Some(known) = self.labels.get(name) {
            return *known;
        }
        let block = self.block();
        self.labels.insert(name.to_owned(), block);
        block
    }

    fn event(&mut self, event: Event) {
        self.graph.blocks[self.at].events.push(event);
    }

    fn statement(&mut self, node: &'u Stmt) {
        match &node.kind {
            StmtKind::Block(all) => all.iter().for_each(|one| self.statement(one)),
            StmtKind::Expression(expression) => self.expression(expression),
            StmtKind::Declaration(declaration) => {
                for id in &declaration.names {
                    if let Some(value) = &self.unit.declaration(*id).initializer {
                        value.expressions().into_iter().for_each(|one| self.expression(one));
                    }
                }
            }
            StmtKind::If(condition, yes, no) => {
                self.expression(condition);
                let before = self.at;
                self.follow();
                self.statement(yes);
                let first = self.at;
                let after = self.block();
                self.edge(first, after);
                if let Some(no) = no {
                    self.at = before;
                    self.follow();
                    self.statement(no);
                    self.edge(self.at, after);
                } else {
                    self.edge(before, after);
                }
                self.at = after;
            }
            StmtKind::While(..) | StmtKind::Do(..) | StmtKind::For(_) => self.repeat(node),
            StmtKind::Switch(condition, body) => {
                self.expression(condition);
                let after = self.block();
                self.cases.push((self.at, false));
                self.breaks.push(after);
                self.at = self.block();
                self.statement(body);
                self.edge(self.at, after);
                self.breaks.pop();
                if let Some((before, false)) = self.cases.pop() {
                    self.edge(before, after);
                }
                self.at = after;
            }
            StmtKind::Case(_, inner) | StmtKind::Default(inner) => {
                let block = self.follow();
                if let Some((before, has_default)) = self.cases.last_mut() {
                    *has_default |= matches!(node.kind, StmtKind::Default(_));
                    let before = *before;
                    self.edge(before, block);
                }
                self.statement(inner);
            }
            StmtKind::Label(name, inner) => {
                let block = self.label(name);
                self.edge(self.at, block);
                self.at = block;
                self.statement(inner);
            }
            StmtKind::Goto(name) => {
                let block = self.label(name);
                self.jump(block);
            }
            StmtKind::ComputedGoto(target) => {
                self.expression(target);
                // The targets are points, which are separate blocks.
                self.at = self.block();
            }
            StmtKind::Return(value) => {
                if let Some(value) = value {
                    self.expression(value);
                }
                self.jump(self.graph.exit);
            }
            StmtKind::Break => {
                let to = self.breaks.last().copied().unwrap_or(self.graph.exit);
                self.jump(to);
            }
            StmtKind::Continue => {
                let to = self.continues.last().copied().unwrap_or(self.graph.exit);
                self.jump(to);
            }
            StmtKind::Assembly(assembly) => {
                assembly.inputs.iter().for_each(|(_, input)| self.expression(input));
                assembly.outputs.iter().for_each(|output| self.expression(output));
            }
            StmtKind::Empty | StmtKind::Pragma(_) => {}
        }
    }

    fn repeat(&mut self, node: &'u Stmt) {
        if let StmtKind::For(parts) = &node.kind
            && let Some(first) = &parts.first
        {
            self.statement(first);
        }
        let head = self.follow();
        let (after, next) = (self.block(), self.block());
        let condition = match &node.kind {
            StmtKind::While(condition, _) | StmtKind::Do(_, condition) => Some(condition),
            StmtKind::For(parts) => parts.condition.as_ref(),
            _ => None,
        };
        let is_do = matches!(node.kind, StmtKind::Do(..));
        let endless = condition.is_none_or(|condition| condition.constant().is_some_and(|value| value != 0));
        if let Some(condition) = condition.filter(|_| !is_do) {
            self.expression(condition);
        }
        if !is_do && !endless {
            self.edge(self.at, after);
        }
        let body_block = self.follow();
        self.breaks.push(after);
        self.continues.push(next);
        if let Some(body) = node.loop_body() {
            self.statement(body);
        }
        self.breaks.pop();
        self.continues.pop();
        self.edge(self.at, next);
        self.at = next;
        match &node.kind {
            StmtKind::For(parts) => {
                if let Some(step) = &parts.step {
                    self.expression(step);
                }
            }
            StmtKind::Do(_, condition) => {
                self.expression(condition);
                if condition.constant().is_none_or(|value| value == 0) {
                    self.edge(self.at, after);
                }
            }
            _ => {}
        }
        self.edge(self.at, head);
        self.graph.loops.insert(node.span.first, (body_block, after));
        self.at = after;
    }

    /// Adds an expression's accesses in evaluation order.
    fn expression(&mut self, node: &'u Expr) {
        if let Some(one) = self.variables.named(node) {
            return self.event(Event::Use(one));
        }
        match &node.kind {
            ExprKind::Assign(operator, target, value) => {
                self.expression(value);
                match self.variables.named(target) {
                    Some(one) => {
                        if operator != "=" {
                            self.event(Event::Use(one));
                        }
                        self.event(Event::Set(one));
                    }
                    None => self.target(target, operator == "="),
                }
            }
            ExprKind::Binary(operator, left, right) if operator == "&&" || operator == "||" => {
                self.expression(left);
                let before = self.at;
                self.follow();
                self.expression(right);
                let (last, after) = (self.at, self.block());
                self.edge(last, after);
                self.edge(before, after);
                self.at = after;
            }
            ExprKind::Conditional(condition, yes, no) => {
                self.expression(condition);
                let before = self.at;
                let after = self.block();
                self.follow();
                if let Some(yes) = yes {
                    self.expression(yes);
                }
                self.edge(self.at, after);
                self.at = before;
                self.follow();
                self.expression(no);
                self.edge(self.at, after);
                self.at = after;
            }
            ExprKind::Call(function, arguments) => {
                let handled = self.variables.call(node);
                self.expression(function);
                for (position, argument) in arguments.iter().enumerate() {
                    if !handled.iter().any(|(one, _)| *one == position) {
                        self.expression(argument);
                    }
                }
                handled.into_iter().flat_map(|(_, events)| events).for_each(|event| self.event(event));
                if matches!(&function.kind, ExprKind::Undeclared(name) if *name == self.point) {
                    let block = self.follow();
                    self.graph.points.insert(node.span.first, block);
                }
            }
            ExprKind::Statement(block) => self.statement(block),
            _ => node.parts().into_iter().for_each(|part| self.expression(part)),
        }
    }

    /// Adds the accesses of an assignment target. Setting a part of a variable is not a use.
    fn target(&mut self, node: &'u Expr, plain: bool) {
        match &node.kind {
            ExprKind::Paren(inner) => self.target(inner, plain),
            _ if plain && self.variables.is_part(node) => {}
            ExprKind::Member { object, arrow: false, .. } if plain && self.variables.named(object).is_some() => {}
            ExprKind::Member { object, arrow: false, .. } if plain => self.target(object, plain),
            ExprKind::Index(array, index) if plain && array.ty.is_array() => {
                self.expression(index);
                if self.variables.named(array).is_none() {
                    self.target(array, plain);
                }
            }
            _ => self.expression(node),
        }
    }
}
