//! Loops whose iterations may be lookups.

pub(crate) mod header;
pub(crate) mod jumps;

use crate::syntax::Unit;
use crate::syntax::ast::{DeclId, Expr, ExprKind, Span, Stmt, StmtKind};
use crate::syntax::walk;

/// Loop of a function.
#[derive(Clone)]
pub(crate) struct Loop<'u> {
    pub(crate) function: DeclId,
    pub(crate) node: &'u Stmt,
    pub(crate) body: &'u Stmt,
    /// Statements around the loop, from the function body inwards.
    pub(crate) around: Vec<&'u Stmt>,
    /// Whether the author promises independent iterations, with `foreach` or `#pragma gopt
    /// independent`.
    pub(crate) promise: bool,
}

impl Loop<'_> {
    pub(crate) fn span(&self) -> Span {
        self.node.span
    }

    /// Returns whether the loop contains another one.
    pub(crate) fn contains(&self, other: &Self) -> bool {
        self.function == other.function && self.node.span != other.node.span && self.span().contains(other.span())
    }
}

/// Returns all loops of a function, outer loops before inner ones.
pub(crate) fn loops(unit: &Unit, function: DeclId) -> Vec<Loop<'_>> {
    let mut finder = Finder { unit, function, around: Vec::new(), found: Vec::new() };
    if let Some((_, body)) = unit.function(function) {
        finder.statement(body, false);
    }
    finder.found
}

struct Finder<'u> {
    unit: &'u Unit,
    function: DeclId,
    around: Vec<&'u Stmt>,
    found: Vec<Loop<'u>>,
}

impl<'u> Finder<'u> {
    fn statement(&mut self, node: &'u Stmt, promise: bool) {
        let is_foreach = matches!(&node.kind, StmtKind::For(parts) if parts.promise);
        if let Some(body) = node.loop_body() {
            self.found.push(Loop {
                function: self.function,
                node,
                body,
                around: self.around.clone(),
                promise: promise || is_foreach,
            });
        }
        self.around.push(node);
        for expression in walk::own_expressions(self.unit, node) {
            self.expression(expression);
        }
        let mut promised = false;
        for inner in node.statements() {
            match &inner.kind {
                StmtKind::Pragma(words) => promised = words == "independent",
                StmtKind::Empty => {}
                _ => {
                    self.statement(inner, promised || promise && matches!(node.kind, StmtKind::Label(..)));
                    promised = false;
                }
            }
        }
        self.around.pop();
    }

    /// Finds the loops in statement expressions.
    fn expression(&mut self, node: &'u Expr) {
        if let ExprKind::Statement(block) = &node.kind {
            self.statement(block, false);
        }
        node.parts().into_iter().for_each(|part| self.expression(part));
    }
}
