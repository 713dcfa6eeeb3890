//! Proposes markers for loop accesses whose address depends on another access.
//!
//! `loaded` finds the variables whose value comes from memory. This module walks the statements,
//! and proposes a marker before the first access to each address that depends on such a variable.
//! In a condition that is evaluated repeatedly or only sometimes, the marker is at the access
//! itself.

mod loaded;
mod patch;

use std::collections::BTreeSet;

pub(crate) use patch::{marked, patch};

use crate::check::size_of;
use crate::reach;
use crate::syntax::Unit;
use crate::syntax::ast::{DeclId, Expr, ExprKind, Stmt, StmtKind};
use crate::syntax::walk::{self, Node};
use loaded::Loaded;

/// Size in bytes below which an array stays in the first caches.
const SMALL: u64 = 32 << 10;

/// Place of a marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Site {
    /// Before the statement that begins at a token.
    Before(usize),
    /// In place of an expression, from its first token to the token after it.
    Inside(usize, usize),
}

/// Proposed marker.
#[derive(Clone, Debug)]
pub(crate) struct Proposal {
    /// Function that contains the access.
    pub(crate) function: DeclId,
    pub(crate) site: Site,
    /// Address, as C.
    pub(crate) address: String,
}

/// Address that a marker before the current statement covers.
#[derive(Clone)]
struct Known {
    address: String,
    variables: BTreeSet<DeclId>,
}

struct Finder<'u> {
    unit: &'u Unit,
    loaded: Loaded,
    known: Vec<Known>,
    proposals: Vec<Proposal>,
    function: DeclId,
}

/// Returns the proposals for all functions of a file in text order.
pub(crate) fn proposals(unit: &Unit) -> Vec<Proposal> {
    let functions: Vec<DeclId> = unit
        .functions
        .values()
        .filter(|one| unit.expanded.position(one.span.first).0 == unit.expanded.name)
        .map(|one| one.id)
        .collect();
    let loaded = Loaded::new(unit, &functions);
    let mut finder = Finder { unit, loaded, known: Vec::new(), proposals: Vec::new(), function: DeclId(0) };
    for id in functions {
        if let Some((_, body)) = unit.function(id) {
            finder.known.clear();
            finder.function = id;
            let repeated = finder.loaded.is_repeated(id);
            finder.statement(body, None, repeated);
        }
    }
    finder.proposals
}

impl<'u> Finder<'u> {
    /// Walks a statement. `before` is the token that a marker may precede. `repeated` tells whether
    /// the statement is part of a loop.
    fn statement(&mut self, node: &'u Stmt, before: Option<usize>, repeated: bool) {
        match &node.kind {
            StmtKind::Block(all) => all.iter().for_each(|one| self.statement(one, Some(one.span.first), repeated)),
            StmtKind::For(parts) => {
                if let Some(first) = &parts.first {
                    self.own(first, None, repeated);
                }
                self.forget(node);
                parts.condition.iter().for_each(|one| self.expression(one, None, true));
                self.branch(&parts.body, true);
                parts.step.iter().for_each(|one| self.expression(one, None, true));
                self.forget(node);
            }
            StmtKind::While(condition, body) | StmtKind::Do(body, condition) => {
                self.forget(node);
                self.expression(condition, None, true);
                self.branch(body, true);
                self.forget(node);
            }
            _ => {
                self.own(node, before, repeated);
                for inner in node.statements() {
                    self.branch(inner, repeated);
                }
                self.forget(node);
            }
        }
    }

    /// Walks a part that may not run. Its markers do not cover later statements.
    fn branch(&mut self, node: &'u Stmt, repeated: bool) {
        let known = self.known.clone();
        self.statement(node, None, repeated);
        self.known = known;
    }

    /// Walks the expressions of a statement itself.
    fn own(&mut self, node: &'u Stmt, before: Option<usize>, repeated: bool) {
        let declared: BTreeSet<DeclId> = match &node.kind {
            StmtKind::Declaration(declaration) => declaration.names.iter().copied().collect(),
            _ => BTreeSet::new(),
        };
        for one in walk::own_expressions(self.unit, node) {
            // A later initialiser may use an earlier variable.
            let uses_declared = names(self.unit, one).iter().any(|id| declared.contains(id));
            self.expression(one, before.filter(|_| !uses_declared), repeated);
        }
        self.forget(node);
    }

    /// Forgets addresses whose variables a statement assigns.
    fn forget(&mut self, node: &'u Stmt) {
        let mut changed = BTreeSet::new();
        walk::statement(self.unit, node, &mut |node| {
            match node {
                Node::Expr(Expr { kind: ExprKind::Assign(_, target, _), .. })
                | Node::Expr(Expr { kind: ExprKind::Update { operand: target, .. }, .. }) => {
                    changed.extend(target.name());
                }
                Node::Stmt(Stmt { kind: StmtKind::Declaration(declared), .. }) => changed.extend(&declared.names),
                _ => {}
            }
            true
        });
        self.known.retain(|known| known.variables.is_disjoint(&changed));
    }

    fn expression(&mut self, node: &'u Expr, before: Option<usize>, repeated: bool) {
        if reach::is_marker_call(self.unit, node) || matches!(node.kind, ExprKind::SizeOf(_)) {
            return;
        }
        // The inner access comes first: `p->next` of `p->next->key`.
        let guarded = match &node.kind {
            ExprKind::Binary(operator, left, right) if operator == "&&" || operator == "||" => {
                self.expression(left, before, repeated);
                self.expression(right, None, repeated);
                return;
            }
            ExprKind::Conditional(condition, yes, no) => {
                self.expression(condition, before, repeated);
                yes.iter().for_each(|yes| self.expression(yes, None, repeated));
                self.expression(no, None, repeated);
                return;
            }
            // The address of an object is no access.
            ExprKind::Unary(operator, inner) if operator == "&" => {
                inner.bare().parts().into_iter().for_each(|part| self.expression(part, before, repeated));
                return;
            }
            ExprKind::Statement(block) => return self.statement(block, None, repeated),
            _ => before,
        };
        node.parts().into_iter().for_each(|part| self.expression(part, guarded, repeated));
        if let Some(address) = self.address(node).filter(|_| repeated) {
            self.propose(node, address, guarded);
        }
    }

    /// Returns the address of an access, if this address depends on memory.
    fn address(&self, node: &'u Expr) -> Option<String> {
        let text = |one: &Expr| self.unit.expanded.words(one.span.first, one.span.end);
        let (address, depends) = match &node.kind {
            ExprKind::Member { object, arrow: true, .. } => (text(object), self.loaded.is_loaded(self.unit, object)),
            ExprKind::Unary(operator, inner) if operator == "*" => {
                (text(inner), self.loaded.is_loaded(self.unit, inner))
            }
            ExprKind::Index(array, index) => {
                let small = array.ty.is_array() && size_of(&array.ty).is_some_and(|size| size < SMALL);
                let depends = self.loaded.is_loaded(self.unit, index)
                    || array.ty.is_pointer() && self.loaded.is_loaded(self.unit, array);
                (format!("&{}", text(node)), depends && !small)
            }
            _ => return None,
        };
        (depends && !has_effect(self.unit, node)).then_some(address)
    }

    fn propose(&mut self, node: &'u Expr, address: String, before: Option<usize>) {
        if self.known.iter().any(|known| known.address == address) {
            return;
        }
        let in_source = |at: usize| self.unit.expanded.position(at).0 == self.unit.expanded.name;
        if !in_source(node.span.first) {
            return;
        }
        let site = match before {
            Some(at) => Site::Before(at),
            None => Site::Inside(node.span.first, node.span.end),
        };
        self.known.push(Known { address: address.clone(), variables: names(self.unit, node) });
        self.proposals.push(Proposal { function: self.function, site, address });
    }
}

/// Returns the variables that an expression names.
fn names(unit: &Unit, node: &Expr) -> BTreeSet<DeclId> {
    let mut found = BTreeSet::new();
    walk::expression(unit, node, &mut |node| {
        if let Node::Expr(Expr { kind: ExprKind::Name(id), .. }) = node {
            found.insert(*id);
        }
        true
    });
    found
}

/// Returns whether an expression changes anything, or calls a function that may.
fn has_effect(unit: &Unit, node: &Expr) -> bool {
    let mut found = false;
    walk::expression(unit, node, &mut |node| {
        if let Node::Expr(one) = node {
            found |= matches!(
                one.kind,
                ExprKind::Update { .. } | ExprKind::Assign(..) | ExprKind::Call(..) | ExprKind::Statement(_)
            );
        }
        !found
    });
    found
}
