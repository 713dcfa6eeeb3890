//! Visits all nodes of a tree, including those in initialisers and statement expressions.

use super::Unit;
use super::ast::{Expr, ExprKind, Initializer, Stmt, StmtKind};
use super::types::{Kind, Type};

/// Statement or expression.
#[derive(Clone, Copy)]
pub(crate) enum Node<'u> {
    Stmt(&'u Stmt),
    Expr(&'u Expr),
}

/// Visits a statement and its parts in text order. If `visit` returns false, the parts of a node
/// are skipped. Operands of `sizeof` are not visited.
pub(crate) fn statement<'u>(unit: &'u Unit, node: &'u Stmt, visit: &mut dyn FnMut(Node<'u>) -> bool) {
    if !visit(Node::Stmt(node)) {
        return;
    }
    match &node.kind {
        StmtKind::Declaration(declaration) => {
            for id in &declaration.names {
                let one = unit.declaration(*id);
                sizes(unit, &one.ty, visit);
                if let Some(value) = &one.initializer {
                    initializer(unit, value, visit);
                }
            }
        }
        StmtKind::For(parts) => {
            if let Some(first) = &parts.first {
                statement(unit, first, visit);
            }
            parts.condition.iter().chain(&parts.step).for_each(|one| expression(unit, one, visit));
            statement(unit, &parts.body, visit);
        }
        StmtKind::Do(body, condition) => {
            statement(unit, body, visit);
            expression(unit, condition, visit);
        }
        _ => {
            node.expressions().into_iter().for_each(|one| expression(unit, one, visit));
            node.statements().into_iter().for_each(|one| statement(unit, one, visit));
        }
    }
}

/// Visits an expression and its parts.
pub(crate) fn expression<'u>(unit: &'u Unit, node: &'u Expr, visit: &mut dyn FnMut(Node<'u>) -> bool) {
    if !visit(Node::Expr(node)) {
        return;
    }
    if let ExprKind::Statement(block) = &node.kind {
        statement(unit, block, visit);
    }
    node.parts().into_iter().for_each(|part| expression(unit, part, visit));
}

/// Visits the expressions of an initialiser.
pub(crate) fn initializer<'u>(unit: &'u Unit, node: &'u Initializer, visit: &mut dyn FnMut(Node<'u>) -> bool) {
    node.expressions().into_iter().for_each(|one| expression(unit, one, visit));
}

/// Visits the sizes of arrays in a type.
fn sizes<'u>(unit: &'u Unit, ty: &'u Type, visit: &mut dyn FnMut(Node<'u>) -> bool) {
    match &*ty.kind {
        Kind::Array { element, size } => {
            if let Some(size) = size {
                expression(unit, size, visit);
            }
            sizes(unit, element, visit);
        }
        Kind::Pointer(target) => sizes(unit, target, visit),
        _ => {}
    }
}

/// Returns the expressions of a statement itself, including those in initialisers.
pub(crate) fn own_expressions<'u>(unit: &'u Unit, node: &'u Stmt) -> Vec<&'u Expr> {
    let mut found = node.expressions();
    if let StmtKind::Declaration(declaration) = &node.kind {
        let values = declaration.names.iter().filter_map(|id| unit.declaration(*id).initializer.as_deref());
        found.extend(values.flat_map(Initializer::expressions));
    }
    found
}
