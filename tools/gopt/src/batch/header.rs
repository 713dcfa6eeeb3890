//! Batch loop heads: the variables that change from one iteration to the next.

use std::collections::BTreeMap;

use super::Loop;
use crate::error::{Pass, refuse};
use crate::syntax::Unit;
use crate::syntax::ast::{DeclId, Expr, ExprKind, Initializer, Stmt, StmtKind};
use crate::syntax::walk::{self, Node};

/// Head of a batch loop.
pub(crate) struct Header<'u> {
    pub(crate) first: Option<&'u Stmt>,
    pub(crate) condition: Option<&'u Expr>,
    pub(crate) step: Option<&'u Expr>,
    /// Whether the condition follows the body: `do`.
    pub(crate) is_do: bool,
    /// Variables that the head or the body steps once in each iteration.
    pub(crate) inductions: BTreeMap<DeclId, Induction>,
}

/// Variable that changes in the same way in each iteration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Induction {
    /// Constant distance between two iterations, or `None` if the head computes the next value.
    pub(crate) step: Option<i64>,
    /// Token of the update, if the body contains it.
    pub(crate) in_body: Option<usize>,
    /// Whether the body reads the variable.
    pub(crate) is_read: bool,
}

const FORM: &str = "a batch loop must step its index in its head, or once in its body: \
                    for (i = first; i < end; i++) or while (n--)";

impl<'u> Header<'u> {
    pub(crate) fn new(unit: &'u Unit, site: &Loop<'u>) -> Pass<Self> {
        let (first, condition, step, is_do) = match &site.node.kind {
            StmtKind::For(parts) => (parts.first.as_ref(), parts.condition.as_ref(), parts.step.as_ref(), false),
            StmtKind::While(condition, _) => (None, Some(condition), None, false),
            StmtKind::Do(_, condition) => (None, Some(condition), None, true),
            _ => return refuse(site.span().first, "this is no loop"),
        };
        let mut header = Self { first, condition, step, is_do, inductions: BTreeMap::new() };
        if let Some(condition) = condition.filter(|one| one.bare().constant().is_none_or(|value| value == 0)) {
            header.effects(unit, condition)?;
        } else if !has_exit(site.body) {
            return refuse(site.span().first, "a batch loop must end by its condition");
        }
        if let Some(step) = step {
            header.step_parts(unit, site, step)?;
        }
        header.steps_in_body(unit, site)?;
        if header.inductions.is_empty() {
            return refuse(site.span().first, FORM);
        }
        for id in header.inductions.keys() {
            if let Some(at) = stored_address(unit, site, *id) {
                let name = &unit.declaration(*id).name;
                return refuse(
                    at,
                    format!("a pointer to {name}, which the head of the batch loop steps, may change it: remove it"),
                );
            }
        }
        for (id, induction) in &mut header.inductions {
            induction.is_read = mentions(unit, site.body, *id);
        }
        Ok(header)
    }

    /// Adds the updates in a condition without other effects.
    fn effects(&mut self, unit: &'u Unit, condition: &'u Expr) -> Pass<()> {
        let mut updates = Vec::new();
        let mut fault = Ok(());
        walk::expression(unit, condition, &mut |node| {
            if let Node::Expr(one) = node {
                match &one.kind {
                    ExprKind::Update { .. } => updates.push(one),
                    ExprKind::Assign(..) | ExprKind::Statement(_) if fault.is_ok() => {
                        fault = refuse(one.span.first, "the condition of a batch loop must not assign variables");
                    }
                    ExprKind::Binary(operator, ..)
                        if (operator == "&&" || operator == "||")
                        // An update on the right is not reached in each iteration.
                        && updates_in(unit, one) > 0 && fault.is_ok() =>
                    {
                        fault = refuse(one.span.first, FORM);
                    }
                    _ => {}
                }
            }
            true
        });
        fault?;
        updates.into_iter().try_for_each(|one| self.update(unit, one, None))
    }

    /// Adds the updates of a step: `i++, p += 2`.
    fn step_parts(&mut self, unit: &Unit, site: &Loop<'_>, step: &Expr) -> Pass<()> {
        let step = step.bare();
        match &step.kind {
            ExprKind::Comma(left, right) => {
                self.step_parts(unit, site, left)?;
                self.step_parts(unit, site, right)
            }
            ExprKind::Cast(ty, inner) if ty.is_void() => self.step_parts(unit, site, inner),
            _ => {
                self.update(unit, step, None)?;
                // The distance is unknown but not 0, because otherwise the loop would not end.
                if let ExprKind::Assign(operator, target, distance) = &step.kind
                    && operator == "+="
                    && distance.name().is_some_and(|id| is_fixed(unit, site, id))
                    && let Some(induction) = target.name().and_then(|id| self.inductions.get_mut(&id))
                {
                    induction.step = Some(1);
                }
                Ok(())
            }
        }
    }

    /// Adds a variable with its update.
    fn update(&mut self, unit: &Unit, update: &Expr, in_body: Option<usize>) -> Pass<()> {
        let at = update.span.first;
        let (target, step) = match &update.kind {
            ExprKind::Update { operator, operand, .. } => (operand.name(), Some(if operator == "++" { 1 } else { -1 })),
            ExprKind::Assign(operator, target, value) => (target.name(), assigned_step(operator, target, value)),
            _ => (None, None),
        };
        let Some(id) = target.filter(|id| unit.declaration(*id).is_variable()) else { return refuse(at, FORM) };
        let declaration = unit.declaration(id);
        if !declaration.ty.is_scalar() && !declaration.ty.is_unknown() || declaration.ty.resolved().volatile {
            return refuse(at, FORM);
        }
        if step.is_none() && (in_body.is_some() || updates_in(unit, update) > 1) || step == Some(0) {
            return refuse(at, FORM);
        }
        let known = self.inductions.insert(id, Induction { step, in_body, is_read: false });
        if known.is_some() {
            return refuse(at, format!("{} is changed twice in each iteration of the batch loop", declaration.name));
        }
        Ok(())
    }

    /// Adds the variables that the body steps once in each iteration. Refuses other changes of
    /// variables in the head.
    fn steps_in_body(&mut self, unit: &'u Unit, site: &Loop<'u>) -> Pass<()> {
        let mut changes: BTreeMap<DeclId, Vec<&'u Expr>> = BTreeMap::new();
        walk::statement(unit, site.body, &mut |node| {
            if let Node::Expr(one) = node {
                let target = match &one.kind {
                    ExprKind::Update { operand, .. } => operand.name(),
                    ExprKind::Assign(_, target, _) => target.name(),
                    _ => None,
                };
                if let Some(id) = target {
                    changes.entry(id).or_default().push(one);
                }
            }
            true
        });
        for (id, all) in changes {
            let declaration = unit.declaration(id);
            let span = site.body.span;
            let inside = (span.first..span.end).contains(&declaration.token);
            if inside || !declaration.is_variable() {
                continue;
            }
            if self.inductions.contains_key(&id) {
                return refuse(
                    all[0].span.first,
                    format!("the lookup changes {}, which the head of the batch loop steps", declaration.name),
                );
            }
            let in_head = self.condition.is_some_and(|condition| expression_mentions(unit, condition, id));
            let read = reads_besides(unit, site.body, id, all[0]) || in_head || !is_statement(site.body, all[0]);
            if let [update] = all[..]
                && read
                && declaration.is_automatic()
                && is_unconditional(unit, site.body, update)
            {
                let known = self.inductions.len();
                let added = self.update(unit, update, Some(update.span.first));
                if added.is_err() {
                    self.inductions.remove(&id);
                    debug_assert_eq!(self.inductions.len(), known);
                }
            }
        }
        Ok(())
    }
}

/// Returns the token at which a variable's address is stored in a pointer.
fn stored_address(unit: &Unit, site: &Loop<'_>, id: DeclId) -> Option<usize> {
    let (_, body) = unit.function(site.function)?;
    let address = |value: &Expr| {
        let mut value = value.bare();
        while let ExprKind::Cast(_, inner) = &value.kind {
            value = inner.bare();
        }
        let is = matches!(&value.kind, ExprKind::Unary(operator, inner) if operator == "&" && inner.name() == Some(id));
        is.then_some(value.span.first)
    };
    let mut found = None;
    walk::statement(unit, body, &mut |node| {
        match node {
            Node::Expr(Expr { kind: ExprKind::Assign(_, _, value), .. }) => found = found.or_else(|| address(value)),
            Node::Stmt(Stmt { kind: StmtKind::Declaration(declared), .. }) => {
                for name in &declared.names {
                    if let Some(Initializer::Expression(value)) = unit.declaration(*name).initializer.as_deref() {
                        found = found.or_else(|| address(value));
                    }
                }
            }
            _ => {}
        }
        found.is_none()
    });
    found
}

/// Returns whether a local variable does not change in a loop.
fn is_fixed(unit: &Unit, site: &Loop<'_>, id: DeclId) -> bool {
    let mut changes = !unit.declaration(id).is_automatic();
    walk::statement(unit, site.node, &mut |node| {
        if let Node::Expr(one) = node {
            changes |= match &one.kind {
                ExprKind::Update { operand, .. } => operand.name() == Some(id),
                ExprKind::Assign(_, target, _) => target.name() == Some(id),
                ExprKind::Unary(operator, operand) => operator == "&" && operand.name() == Some(id),
                _ => false,
            };
        }
        !changes
    });
    !changes
}

/// Returns the constant that an assignment adds to its target.
fn assigned_step(operator: &str, target: &Expr, value: &Expr) -> Option<i64> {
    let number = |value: &Expr| i64::try_from(value.constant()?).ok();
    match operator {
        "+=" => number(value),
        "-=" => number(value).map(|step| -step),
        "=" => match &value.bare().kind {
            ExprKind::Binary(operator, left, right) if left.name().is_some() && left.name() == target.name() => {
                let step = number(right)?;
                match operator.as_str() {
                    "+" => Some(step),
                    "-" => Some(-step),
                    _ => None,
                }
            }
            ExprKind::Binary(operator, left, right) if operator == "+" && right.name() == target.name() => {
                right.name().and_then(|_| number(left))
            }
            _ => None,
        },
        _ => None,
    }
}

/// Returns the number of updates and assignments in an expression.
fn updates_in(unit: &Unit, expression: &Expr) -> usize {
    let mut found = 0;
    walk::expression(unit, expression, &mut |node| {
        if let Node::Expr(one) = node {
            found += usize::from(matches!(one.kind, ExprKind::Update { .. } | ExprKind::Assign(..)));
        }
        true
    });
    found
}

/// Returns whether each iteration reaches an expression once. The expression is part of a statement
/// at the top of the body, and no `continue` or label precedes it.
fn is_unconditional(unit: &Unit, body: &Stmt, update: &Expr) -> bool {
    let StmtKind::Block(all) = &body.kind else { return holds(unit, body, update) };
    for statement in all {
        if holds(unit, statement, update) {
            return true;
        }
        if statement.span.contains(update.span) || may_skip(statement) {
            return false;
        }
    }
    false
}

/// Returns whether a statement always evaluates an expression once.
fn holds(unit: &Unit, statement: &Stmt, update: &Expr) -> bool {
    match &statement.kind {
        StmtKind::Declaration(declared) => declared.names.iter().any(|id| {
            let value = unit.declaration(*id).initializer.as_deref();
            value.is_some_and(|value| value.expressions().into_iter().any(|one| evaluates(one, update)))
        }),
        StmtKind::Expression(expression) => evaluates(expression, update),
        StmtKind::If(condition, ..) | StmtKind::Switch(condition, _) => evaluates(condition, update),
        _ => false,
    }
}

fn evaluates(expression: &Expr, update: &Expr) -> bool {
    if expression.span == update.span {
        return true;
    }
    match &expression.kind {
        ExprKind::Binary(operator, left, _) if operator == "&&" || operator == "||" => evaluates(left, update),
        ExprKind::Conditional(condition, ..) => evaluates(condition, update),
        ExprKind::Statement(_) => false,
        _ => expression.parts().into_iter().any(|part| evaluates(part, update)),
    }
}

/// Returns whether a statement may end the iteration, or be the target of a jump.
fn may_skip(statement: &Stmt) -> bool {
    match &statement.kind {
        StmtKind::Continue | StmtKind::Goto(_) | StmtKind::Label(..) | StmtKind::ComputedGoto(_) => true,
        // A `continue` in an inner loop does not end the iteration, but a `goto` may.
        StmtKind::For(_) | StmtKind::While(..) | StmtKind::Do(..) => statement.statements().into_iter().any(jumps),
        _ => statement.statements().into_iter().any(may_skip),
    }
}

fn jumps(statement: &Stmt) -> bool {
    matches!(statement.kind, StmtKind::Goto(_) | StmtKind::Label(..) | StmtKind::ComputedGoto(_))
        || statement.statements().into_iter().any(jumps)
}

/// Returns whether an update is a whole statement, whose value is unused.
fn is_statement(body: &Stmt, update: &Expr) -> bool {
    let own = matches!(&body.kind, StmtKind::Expression(expression) if expression.bare().span == update.span);
    own || body.statements().into_iter().any(|inner| is_statement(inner, update))
}

/// Returns whether a body reads a variable outside one update.
fn reads_besides(unit: &Unit, body: &Stmt, id: DeclId, update: &Expr) -> bool {
    let mut found = false;
    walk::statement(unit, body, &mut |node| {
        if let Node::Expr(one) = node {
            if one.span == update.span {
                return false;
            }
            found |= matches!(one.kind, ExprKind::Name(named) if named == id);
        }
        !found
    });
    found
}

/// Returns whether a statement names a variable.
pub(crate) fn mentions(unit: &Unit, body: &Stmt, id: DeclId) -> bool {
    let mut found = false;
    walk::statement(unit, body, &mut |node| {
        found |= matches!(node, Node::Expr(Expr { kind: ExprKind::Name(named), .. }) if *named == id);
        !found
    });
    found
}

/// Returns whether an expression names a variable.
pub(crate) fn expression_mentions(unit: &Unit, expression: &Expr, id: DeclId) -> bool {
    let mut found = false;
    walk::expression(unit, expression, &mut |node| {
        found |= matches!(node, Node::Expr(Expr { kind: ExprKind::Name(named), .. }) if *named == id);
        !found
    });
    found
}

/// Returns whether a body leaves its loop.
fn has_exit(body: &Stmt) -> bool {
    super::jumps::leaving(body).is_some()
}
