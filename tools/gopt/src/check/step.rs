//! Commutative steps (R3) and assignments of constants (R4).

use super::Check;
use super::access::{AccessKind, StepKind};

use crate::batch::Loop;
use crate::error::Pass;
use crate::syntax::Unit;
use crate::syntax::ast::{DeclId, Expr, ExprKind, Initializer, Stmt, StmtKind};
use crate::syntax::types::Type;
use crate::syntax::walk::{self, Node};

/// Step of an lvalue: the operation and the operand.
struct Found<'u> {
    kind: StepKind,
    target: &'u Expr,
    operand: Option<&'u Expr>,
}

impl<'u> Check<'u> {
    /// Walks a statement that steps shared memory or sets it to a constant.
    pub(super) fn step(&mut self, node: &'u Expr, frame: usize) -> Pass<bool> {
        if let ExprKind::Call(..) = node.kind {
            return self.atomic_step(node, frame);
        }
        if let Some(found) = step_of(self.unit, node) {
            return self.shared_step(&found, node, frame);
        }
        let ExprKind::Assign(operator, target, value) = &node.kind else { return Ok(false) };
        let constant = operator == "=" && (value.constant().is_some() || matches!(value.bare().kind, ExprKind::String));
        if !constant || target.ty.record().is_some() {
            return Ok(false);
        }
        let places = self.places(target, frame)?.without_null();
        if places.unknown || places.places.is_empty() || target.ty.resolved().volatile {
            return Ok(false);
        }
        let found = self.value(value, frame)?;
        if target.name().is_none_or(|id| !(frame == 0 && self.header.inductions.contains_key(&id))) {
            self.store_at(&places, &found);
        }
        let text = self.unit.expanded.words(value.span.first, value.span.end);
        let text = value.constant().map_or(text, |value| value.to_string());
        self.refuse_index_change(&places.places, node.span.first)?;
        self.note(&places.places, &AccessKind::Set(text), node.span.first);
        Ok(true)
    }

    fn shared_step(&mut self, found: &Found<'u>, node: &'u Expr, frame: usize) -> Pass<bool> {
        if found.target.ty.resolved().volatile {
            return Ok(false);
        }
        if found.target.name().is_some_and(|id| frame == 0 && self.header.inductions.contains_key(&id)) {
            return Ok(false);
        }
        let places = self.places(found.target, frame)?.without_null();
        // A local variable keeps its value for the analysis.
        if places.unknown || places.places.is_empty() || places.places.iter().any(super::place::Place::is_private) {
            return Ok(false);
        }
        let integer = found.target.ty.as_integer();
        let floating = integer.is_none() && found.target.ty.is_scalar() && !found.target.ty.is_pointer();
        let sum = found.kind == StepKind::Sum;
        if integer.is_none() && !(floating && self.permissions.reassociate && sum) {
            if floating && sum {
                if let Some(operand) = found.operand {
                    self.value(operand, frame)?;
                }
                self.note(&places.places, &AccessKind::Step(StepKind::FloatingSum), node.span.first);
            }
            return Ok(floating && sum);
        }
        // A sum in `_Bool` is 1 or 0, which depends on the order.
        if integer.is_some_and(|(_, rank)| rank == 0) && !matches!(found.kind, StepKind::Or | StepKind::And) {
            return Ok(false);
        }
        if let Some(operand) = found.operand {
            if is_floating(&operand.ty) && integer.is_some() {
                return Ok(false);
            }
            self.value(operand, frame)?;
        }
        if sum && integer.is_some_and(|(signed, _)| signed) && !self.serial && self.is_last {
            self.signed_steps.insert(node.span.first);
            let function = self.frames[frame].function;
            let only_up = found.operand.is_none_or(|operand| operand.constant().is_some_and(|value| value >= 0));
            if frame != 0 && !self.reach.is_inlined(function) && !only_up {
                self.inlined.insert(function);
            }
        }
        self.note_step(&places.places, &found.kind, integer, node.span.first);
        Ok(true)
    }

    /// Walks `if (e > x) x = e;`.
    pub(super) fn conditional_step(&mut self, condition: &'u Expr, yes: &'u Stmt, frame: usize) -> Pass<bool> {
        let only = match &yes.kind {
            StmtKind::Block(all) => match &all[..] {
                [one] => one,
                _ => return Ok(false),
            },
            _ => yes,
        };
        let StmtKind::Expression(expression) = &only.kind else { return Ok(false) };
        let ExprKind::Assign(operator, target, value) = &expression.bare().kind else { return Ok(false) };
        if operator != "=" {
            return Ok(false);
        }
        let Some(kind) = extreme(self.unit, condition, target, value) else { return Ok(false) };
        let found = Found { kind, target, operand: Some(value) };
        if effects(self.unit, value) || effects(self.unit, target) {
            return Ok(false);
        }
        self.shared_step(&found, expression, frame)
    }

    /// Walks an atomic operation whose result is not used.
    fn atomic_step(&mut self, node: &'u Expr, frame: usize) -> Pass<bool> {
        let ExprKind::Call(function, arguments) = &node.kind else { return Ok(false) };
        let ExprKind::Undeclared(name) = &function.bare().kind else { return Ok(false) };
        const PREFIXES: &[&str] = &["__atomic_fetch_", "__c11_atomic_fetch_", "__sync_fetch_and_"];
        let named = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix));
        let named = named.or_else(|| name.strip_prefix("__atomic_")?.strip_suffix("_fetch"));
        let Some(operation) = named else { return Ok(false) };
        let kind = match operation {
            "add" | "sub" => StepKind::Sum,
            "or" => StepKind::Or,
            "and" => StepKind::And,
            "xor" => StepKind::Xor,
            _ => return Ok(false),
        };
        let [pointer, operand, rest @ ..] = &arguments[..] else { return Ok(false) };
        let places = self.value(pointer, frame)?.targets;
        self.value(operand, frame)?;
        if places.unknown || places.places.is_empty() {
            self.unknown_write(node.span.first)?;
        }
        let integer = pointer.ty.decayed().target().and_then(|target| target.as_integer());
        self.note_step(&places.places, &kind, integer, node.span.first);
        // 0 is __ATOMIC_RELAXED.
        let relaxed = rest.first().is_some_and(|order| order.constant() == Some(0));
        if let Some(last) = self.accesses.last_mut().filter(|last| last.at == node.span.first) {
            last.ordered = !relaxed;
        }
        Ok(true)
    }
}

fn is_floating(ty: &Type) -> bool {
    ty.as_integer().is_none() && !ty.is_unknown() && !ty.decayed().is_pointer()
}

/// Returns the step that an expression is.
fn step_of<'u>(unit: &'u Unit, node: &'u Expr) -> Option<Found<'u>> {
    match &node.kind {
        ExprKind::Update { operand, .. } => Some(Found { kind: StepKind::Sum, target: operand, operand: None }),
        ExprKind::Assign(operator, target, value) => {
            let kind = match operator.as_str() {
                "+=" | "-=" => StepKind::Sum,
                "|=" => StepKind::Or,
                "&=" => StepKind::And,
                "^=" => StepKind::Xor,
                "=" => return assigned_step(unit, target, value),
                _ => return None,
            };
            Some(Found { kind, target, operand: Some(value) })
        }
        _ => None,
    }
}

/// Returns the step `x = x + e`, `x = e + x`, or `x = e > x ? e : x`.
fn assigned_step<'u>(unit: &'u Unit, target: &'u Expr, value: &'u Expr) -> Option<Found<'u>> {
    if effects(unit, target) {
        return None;
    }
    match &value.bare().kind {
        ExprKind::Binary(operator, left, right) => {
            let kind = match operator.as_str() {
                "+" | "-" => StepKind::Sum,
                "|" => StepKind::Or,
                "&" => StepKind::And,
                "^" => StepKind::Xor,
                _ => return None,
            };
            if same(unit, left, target) {
                return Some(Found { kind, target, operand: Some(right) });
            }
            (operator != "-" && same(unit, right, target)).then_some(Found { kind, target, operand: Some(left) })
        }
        ExprKind::Conditional(condition, Some(yes), no) => {
            let (operand, swapped) = if same(unit, no, target) {
                (yes, false)
            } else if same(unit, yes, target) {
                (no, true)
            } else {
                return None;
            };
            let kind = extreme(unit, condition, target, operand)?;
            let kind = match (kind, swapped) {
                (kind, false) => kind,
                (StepKind::Least, true) => StepKind::Greatest,
                (_, true) => StepKind::Least,
            };
            (!effects(unit, operand)).then_some(Found { kind, target, operand: Some(operand) })
        }
        _ => None,
    }
}

/// Returns which extreme `if (condition) target = value;` computes, a minimum or a maximum.
fn extreme(unit: &Unit, condition: &Expr, target: &Expr, value: &Expr) -> Option<StepKind> {
    let ExprKind::Binary(operator, left, right) = &condition.bare().kind else { return None };
    // Both sides must be compared in a type that preserves their order.
    let ((signed, rank), (value_signed, value_rank)) = (target.ty.as_integer()?, value.ty.as_integer()?);
    let fits = if rank >= 3 {
        value_rank <= rank
    } else {
        signed == value_signed && value_rank <= rank || !value_signed && value_rank < rank
    };
    if !fits {
        return None;
    }
    let (of_value, of_target) = if same(unit, left, value) && same(unit, right, target) {
        (true, false)
    } else if same(unit, left, target) && same(unit, right, value) {
        (false, true)
    } else {
        return None;
    };
    debug_assert!(of_value != of_target);
    match (operator.as_str(), of_value) {
        (">" | ">=", true) | ("<" | "<=", false) => Some(StepKind::Greatest),
        ("<" | "<=", true) | (">" | ">=", false) => Some(StepKind::Least),
        _ => None,
    }
}

/// Returns whether two expressions have the same text.
pub(super) fn same(unit: &Unit, one: &Expr, two: &Expr) -> bool {
    let (one, two) = (one.bare().span, two.bare().span);
    let words = |at: usize, other: usize| unit.expanded.word(at) == unit.expanded.word(other);
    one.end - one.first == two.end - two.first
        && (one.first..one.end).zip(two.first..two.end).all(|(at, other)| words(at, other))
}

/// Returns whether an expression changes anything or calls a function.
pub(crate) fn effects(unit: &Unit, node: &Expr) -> bool {
    let mut found = false;
    walk::expression(unit, node, &mut |node| {
        if let Node::Expr(one) = node {
            found |= matches!(one.kind, ExprKind::Update { .. } | ExprKind::Assign(..) | ExprKind::Statement(_));
            found |= matches!(&one.kind, ExprKind::Call(..));
        }
        !found
    });
    found
}

/// Returns the only value that a variable has outside the loop.
pub(super) fn only_value<'u>(unit: &'u Unit, site: &Loop<'_>, id: DeclId) -> Option<&'u Expr> {
    let (_, body) = unit.function(site.function)?;
    let mut values = Vec::new();
    let mut other = false;
    if let Some(Initializer::Expression(value)) = unit.declaration(id).initializer.as_deref() {
        values.push(value);
    }
    walk::statement(unit, body, &mut |node| {
        if let Node::Expr(one) = node {
            match &one.kind {
                ExprKind::Assign(operator, target, value) if target.name() == Some(id) => {
                    let step = operator != "=" || value_steps(value, id);
                    if !step {
                        values.push(value);
                    } else if !site.span().contains(one.span) {
                        other = true;
                    }
                }
                ExprKind::Update { operand, .. } if operand.name() == Some(id) => {
                    other |= !site.span().contains(one.span);
                }
                ExprKind::Unary(operator, operand) if operator == "&" && operand.name() == Some(id) => other = true,
                _ => {}
            }
        }
        true
    });
    match values[..] {
        [one] if !other => Some(one),
        _ => None,
    }
}

fn value_steps(value: &Expr, id: DeclId) -> bool {
    matches!(&value.bare().kind, ExprKind::Binary(_, left, _) if left.name() == Some(id))
}
