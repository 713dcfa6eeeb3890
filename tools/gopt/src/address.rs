//! Variables with a fixed address, because a pointer to them may exist while lookups switch.
//!
//! All other variables become local variables of the loop. They are saved at a switch and loaded
//! when the lookup continues. A pointer that is passed only to functions that do not store it is
//! harmless.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::reach::{self, Reach};
use crate::syntax::Unit;
use crate::syntax::ast::{DeclId, Expr, ExprKind, Stmt};
use crate::syntax::walk::{self, Node};

/// Analysis of addresses, with the results for functions.
pub(crate) struct Addresses<'u> {
    unit: &'u Unit,
    reach: &'u Reach,
    /// Whether a function does not store the pointer in a parameter, by function and position.
    not_stored: RefCell<BTreeMap<(DeclId, usize), bool>>,
}

impl<'u> Addresses<'u> {
    pub(crate) fn new(unit: &'u Unit, reach: &'u Reach) -> Self {
        Self { unit, reach, not_stored: RefCell::default() }
    }

    /// Returns whether a variable's address must not change while other lookups run.
    pub(crate) fn is_fixed(&self, region: &'u Stmt, id: DeclId) -> bool {
        let declaration = self.unit.declaration(id);
        if declaration.ty.is_array() || declaration.ty.resolved().atomic {
            return true;
        }
        let mut fixed = false;
        walk::statement(self.unit, region, &mut |node| {
            if let Node::Expr(expression) = node {
                let (keeps, descend) = self.keeps_pointer(expression, id);
                fixed |= keeps;
                return descend && !fixed;
            }
            !fixed
        });
        fixed
    }

    /// Returns whether an expression may make a lasting pointer to a variable, and whether its
    /// parts must be visited.
    fn keeps_pointer(&self, node: &'u Expr, id: DeclId) -> (bool, bool) {
        match &node.kind {
            ExprKind::Unary(operator, inner) if operator == "&" && is_part_of(inner, id) => (true, false),
            // An array field becomes a pointer, unless it is subscripted at once.
            ExprKind::Member { .. } if node.ty.is_array() && is_part_of(node, id) => (true, false),
            ExprKind::Index(array, index) if array.ty.is_array() && is_part_of(array, id) => {
                // The index may contain further uses.
                let mut keeps = false;
                walk::expression(self.unit, index, &mut |node| {
                    if let Node::Expr(one) = node {
                        keeps |= self.keeps_pointer(one, id).0;
                    }
                    !keeps
                });
                (keeps, false)
            }
            ExprKind::Call(..) => self.call_keeps(node, id),
            _ => (false, true),
        }
    }

    fn call_keeps(&self, node: &'u Expr, id: DeclId) -> (bool, bool) {
        let called = reach::called(self.unit, node);
        let mut keeps = false;
        for (position, argument) in reach::arguments(node).iter().enumerate() {
            if is_address_of(argument, id) {
                keeps |= !called.is_some_and(|called| self.does_not_store(called, position, argument));
                continue;
            }
            walk::expression(self.unit, argument, &mut |node| {
                if let Node::Expr(one) = node {
                    let (found, descend) = self.keeps_pointer(one, id);
                    keeps |= found;
                    return descend && !keeps;
                }
                !keeps
            });
        }
        (keeps, false)
    }

    /// Returns whether a function only dereferences a parameter's pointer.
    fn does_not_store(&self, called: DeclId, position: usize, argument: &Expr) -> bool {
        let Some((function, body)) = self.unit.function(called) else { return false };
        let Some(parameter) = function.parameters.get(position).copied() else { return false };
        // An inlined copy replaces the parameter with the text of the pointer only if the types are
        // equal and the parameter never changes.
        if self.reach.is_inlined(called) {
            let same = self.unit.declaration(parameter).ty.same(&argument.ty.decayed());
            if !same || changed(self.unit, body, parameter) {
                return false;
            }
        }
        let known = (called, position);
        if let Some(found) = self.not_stored.borrow().get(&known) {
            return *found;
        }
        self.not_stored.borrow_mut().insert(known, false);
        let mut stores = false;
        self.statement_stores(body, parameter, &mut stores);
        self.not_stored.borrow_mut().insert(known, !stores);
        !stores
    }

    fn statement_stores(&self, body: &'u Stmt, parameter: DeclId, stores: &mut bool) {
        walk::statement(self.unit, body, &mut |node| {
            if let Node::Expr(expression) = node {
                return !*stores && self.only_dereferences(expression, parameter, stores);
            }
            !*stores
        });
    }

    /// Sets `stores` if an expression uses a pointer for anything but an access. Returns whether
    /// its parts must be visited.
    fn only_dereferences(&self, node: &'u Expr, parameter: DeclId, stores: &mut bool) -> bool {
        match &node.kind {
            ExprKind::Name(id) if *id == parameter => {
                *stores = true;
                false
            }
            ExprKind::Member { object, arrow: true, .. } if object.name() == Some(parameter) => {
                *stores |= node.ty.is_array();
                false
            }
            ExprKind::Unary(operator, inner) if operator == "*" && inner.name() == Some(parameter) => {
                *stores |= node.ty.is_array();
                false
            }
            // The address of a part is a pointer again.
            ExprKind::Unary(operator, inner) if operator == "&" && is_behind(inner, parameter) => {
                *stores = true;
                false
            }
            ExprKind::Index(array, index) if is_behind(array, parameter) && array.ty.is_array() => {
                self.expression_stores(index, parameter, stores);
                false
            }
            ExprKind::Call(..) => {
                let called = reach::called(self.unit, node);
                // A prefetch keeps nothing.
                let prefetches = reach::is_marker_call(self.unit, node);
                for (position, argument) in reach::arguments(node).iter().enumerate() {
                    if argument.name() == Some(parameter) {
                        let is_safe = |called| self.does_not_store(called, position, argument);
                        *stores |= !called.is_some_and(is_safe);
                    } else if !prefetches || !is_behind_address(argument, parameter) {
                        self.expression_stores(argument, parameter, stores);
                    }
                }
                false
            }
            _ => true,
        }
    }

    fn expression_stores(&self, node: &'u Expr, parameter: DeclId, stores: &mut bool) {
        walk::expression(self.unit, node, &mut |node| {
            if let Node::Expr(one) = node {
                return !*stores && self.only_dereferences(one, parameter, stores);
            }
            !*stores
        });
    }
}

/// Returns whether an lvalue is a variable or a part of it.
fn is_part_of(node: &Expr, id: DeclId) -> bool {
    match &node.bare().kind {
        ExprKind::Name(named) => *named == id,
        ExprKind::Member { object, arrow: false, .. } => is_part_of(object, id),
        ExprKind::Index(array, _) => array.ty.is_array() && is_part_of(array, id),
        _ => false,
    }
}

fn is_address_of(node: &Expr, id: DeclId) -> bool {
    matches!(&node.bare().kind, ExprKind::Unary(operator, inner) if operator == "&" && inner.name() == Some(id))
}

/// Returns whether an lvalue is the object behind a pointer, or a part of it.
fn is_behind(node: &Expr, parameter: DeclId) -> bool {
    match &node.bare().kind {
        ExprKind::Member { object, arrow, .. } => {
            if *arrow {
                object.name() == Some(parameter)
            } else {
                is_behind(object, parameter)
            }
        }
        ExprKind::Unary(operator, inner) => operator == "*" && inner.name() == Some(parameter),
        ExprKind::Index(array, _) => array.ty.is_array() && is_behind(array, parameter),
        _ => false,
    }
}

fn is_behind_address(node: &Expr, parameter: DeclId) -> bool {
    match &node.bare().kind {
        ExprKind::Name(id) => *id == parameter,
        ExprKind::Unary(operator, inner) => operator == "&" && is_behind(inner, parameter),
        _ => false,
    }
}

/// Returns whether a region may assign, increment or decrement a variable, or take its address.
pub(crate) fn changed(unit: &Unit, region: &Stmt, id: DeclId) -> bool {
    let mut found = false;
    walk::statement(unit, region, &mut |node| {
        if let Node::Expr(one) = node {
            found |= match &one.kind {
                ExprKind::Assign(_, target, _) | ExprKind::Update { operand: target, .. } => is_part_of(target, id),
                ExprKind::Unary(operator, target) if operator == "&" => is_part_of(target, id),
                // An array in the variable becomes a pointer.
                ExprKind::Member { .. } | ExprKind::Name(_) => one.ty.is_array() && is_part_of(one, id),
                _ => false,
            };
        }
        if let Node::Stmt(Stmt { kind: crate::syntax::ast::StmtKind::Assembly(assembly), .. }) = node {
            found |= assembly.outputs.iter().any(|output| is_part_of(output, id));
        }
        !found
    });
    found
}
