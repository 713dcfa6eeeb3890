//! Jumps out of batch loops and into them.

use std::collections::BTreeSet;

use super::Loop;
use crate::error::{Pass, refuse};
use crate::syntax::Unit;
use crate::syntax::ast::{Expr, ExprKind, Stmt, StmtKind};
use crate::syntax::walk::{self, Node};

/// Refuses jumps out of a batch loop and into it. After a jump out, later lookups may already have
/// begun.
pub(crate) fn check(unit: &Unit, site: &Loop<'_>) -> Pass<()> {
    let own = labels(unit, site.body);
    below(unit, site.body, &own, false)?;
    let Some((_, body)) = unit.function(site.function) else { return Ok(()) };
    let mut fault = Ok(());
    walk::statement(unit, body, &mut |node| {
        let Node::Stmt(statement) = node else { return true };
        if statement.span == site.node.span {
            return false;
        }
        if let StmtKind::Goto(label) = &statement.kind
            && own.contains(label.as_str())
            && fault.is_ok()
        {
            fault = refuse(statement.span.first, format!("goto {label} enters the batch loop"));
        }
        true
    });
    fault
}

fn labels<'u>(unit: &'u Unit, body: &'u Stmt) -> BTreeSet<&'u str> {
    let mut found = BTreeSet::new();
    walk::statement(unit, body, &mut |node| {
        if let Node::Stmt(Stmt { kind: StmtKind::Label(label, _), .. }) = node {
            found.insert(label.as_str());
        }
        true
    });
    found
}

fn below(unit: &Unit, node: &Stmt, labels: &BTreeSet<&str>, inner: bool) -> Pass<()> {
    const BEGUN: &str = "later lookups may already have begun: store the result, and leave the loop after it";
    let at = node.span.first;
    match &node.kind {
        StmtKind::Break if !inner => return refuse(at, format!("break ends the batch loop, but {BEGUN}")),
        StmtKind::Return(_) => return refuse(at, format!("return inside the batch loop, but {BEGUN}")),
        StmtKind::Goto(label) if !labels.contains(label.as_str()) => {
            return refuse(at, format!("goto {label} leaves the batch loop, but {BEGUN}"));
        }
        StmtKind::ComputedGoto(_) => return refuse(at, "a computed goto inside the lookup: use switch"),
        _ => {}
    }
    for expression in walk::own_expressions(unit, node) {
        blocks(expression).into_iter().try_for_each(|block| below(unit, block, labels, inner))?;
    }
    let holds = inner || node.loop_body().is_some() || matches!(node.kind, StmtKind::Switch(..));
    node.statements().into_iter().try_for_each(|one| below(unit, one, labels, holds))
}

/// Returns the blocks of an expression's statement expressions.
fn blocks(expression: &Expr) -> Vec<&Stmt> {
    if let ExprKind::Statement(block) = &expression.kind {
        return vec![block];
    }
    expression.parts().into_iter().flat_map(blocks).collect()
}

/// Returns the statement with which a body leaves its loop.
pub(crate) fn leaving(body: &Stmt) -> Option<&Stmt> {
    leaving_below(body, false)
}

fn leaving_below(node: &Stmt, inner: bool) -> Option<&Stmt> {
    match &node.kind {
        StmtKind::Break if !inner => return Some(node),
        StmtKind::Return(_) => return Some(node),
        _ => {}
    }
    let holds = inner || node.loop_body().is_some() || matches!(node.kind, StmtKind::Switch(..));
    node.statements().into_iter().find_map(|one| leaving_below(one, holds))
}
