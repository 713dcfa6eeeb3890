//! Variables whose value comes from memory.

use std::collections::{BTreeMap, BTreeSet};

use crate::reach;
use crate::syntax::Unit;
use crate::syntax::ast::{DeclId, Expr, ExprKind, Initializer, Stmt, StmtKind};
use crate::syntax::walk::{self, Node};

/// Analysis result for a file, independent of statement order.
pub(super) struct Loaded {
    variables: BTreeSet<DeclId>,
    /// Functions that loops call, with their callees.
    repeated: BTreeSet<DeclId>,
}

impl Loaded {
    pub(super) fn new(unit: &Unit, functions: &[DeclId]) -> Self {
        let mut loaded = Self { variables: BTreeSet::new(), repeated: BTreeSet::new() };
        let mut calls: BTreeMap<DeclId, BTreeSet<DeclId>> = BTreeMap::new();
        for id in functions {
            let Some((_, body)) = unit.function(*id) else { continue };
            loaded.find_repeated(unit, body, false, calls.entry(*id).or_default());
        }
        let mut pending: Vec<DeclId> = loaded.repeated.iter().copied().collect();
        while let Some(id) = pending.pop() {
            for called in calls.get(&id).into_iter().flatten() {
                if loaded.repeated.insert(*called) {
                    pending.push(*called);
                }
            }
        }
        loop {
            let before = loaded.variables.len();
            for id in functions {
                if let Some((_, body)) = unit.function(*id) {
                    walk::statement(unit, body, &mut |node| {
                        loaded.node(unit, node);
                        true
                    });
                }
            }
            if loaded.variables.len() == before {
                return loaded;
            }
        }
    }

    /// Returns whether a loop calls a function.
    pub(super) fn is_repeated(&self, function: DeclId) -> bool {
        self.repeated.contains(&function)
    }

    fn find_repeated(&mut self, unit: &Unit, node: &Stmt, in_loop: bool, calls: &mut BTreeSet<DeclId>) {
        let in_loop = in_loop || node.loop_body().is_some();
        for one in walk::own_expressions(unit, node) {
            walk::expression(unit, one, &mut |node| {
                if let Node::Expr(one) = node
                    && let Some(called) = reach::called(unit, one)
                {
                    calls.insert(called);
                    if in_loop {
                        self.repeated.insert(called);
                    }
                }
                true
            });
        }
        node.statements().into_iter().for_each(|inner| self.find_repeated(unit, inner, in_loop, calls));
    }

    /// Adds the variables that a node sets to a loaded value.
    fn node(&mut self, unit: &Unit, node: Node<'_>) {
        match node {
            Node::Stmt(Stmt { kind: StmtKind::Declaration(declared), .. }) => {
                for id in &declared.names {
                    if let Some(Initializer::Expression(value)) = unit.declaration(*id).initializer.as_deref()
                        && self.is_loaded(unit, value)
                    {
                        self.variables.insert(*id);
                    }
                }
            }
            Node::Expr(Expr { kind: ExprKind::Assign(_, target, value), .. }) if self.is_loaded(unit, value) => {
                self.variables.extend(target.name());
            }
            Node::Expr(call @ Expr { kind: ExprKind::Call(..), .. }) => {
                let Some((function, _)) = reach::called(unit, call).and_then(|called| unit.function(called)) else {
                    return;
                };
                for (parameter, argument) in function.parameters.iter().zip(reach::arguments(call)) {
                    if self.is_loaded(unit, argument) {
                        self.variables.insert(*parameter);
                    }
                }
            }
            _ => {}
        }
    }

    /// Returns whether an expression compares a value from memory.
    fn reads(&self, unit: &Unit, node: &Expr) -> bool {
        match &node.kind {
            ExprKind::Binary(_, left, right) => self.is_loaded(unit, left) || self.is_loaded(unit, right),
            _ => self.is_loaded(unit, node),
        }
    }

    /// Returns whether an expression's value comes from memory other than local variables.
    pub(super) fn is_loaded(&self, unit: &Unit, node: &Expr) -> bool {
        match &node.kind {
            ExprKind::Name(id) => self.variables.contains(id),
            // The address of an element is not loaded, unless its index is.
            ExprKind::Unary(operator, inner) if operator == "&" => match &inner.bare().kind {
                ExprKind::Index(array, index) => {
                    self.is_loaded(unit, index) || array.ty.is_pointer() && self.is_loaded(unit, array)
                }
                ExprKind::Member { object, .. } => self.is_loaded(unit, object),
                _ => false,
            },
            ExprKind::Member { object, arrow, .. } => {
                // An array in a struct is not loaded.
                !node.ty.is_array() && (*arrow || self.is_loaded(unit, object))
            }
            ExprKind::Index(array, index) => {
                let local = array.name().is_some_and(|id| unit.declaration(id).is_automatic() && array.ty.is_array());
                !local && !node.ty.is_array() || self.is_loaded(unit, index)
            }
            ExprKind::Unary(operator, _) if operator == "*" => !node.ty.is_array(),
            ExprKind::SizeOf(_) => false,
            // A comparison with memory is no address.
            ExprKind::Binary(operator, ..) if matches!(operator.as_str(), "==" | "!=" | "<" | ">" | "<=" | ">=") => {
                false
            }
            // The choice depends on memory, as in a binary search.
            ExprKind::Conditional(condition, ..) if self.reads(unit, condition) => true,
            ExprKind::Call(_, arguments) => arguments.iter().any(|argument| self.is_loaded(unit, argument)),
            _ => node.parts().into_iter().any(|part| self.is_loaded(unit, part)),
        }
    }
}
