//! Statement sequences. Consecutive markers become one switch.
//!
//! A marker prefetches its address at once. If another marker follows, its switch is delayed past
//! statements that do not access memory. A loop that contains only markers has one switch after it.

use super::{Context, Emitter, live};
use crate::error::{Pass, refuse};
use crate::reach;
use crate::syntax::ast::{Expr, ExprKind, Stmt, StmtKind};
use crate::syntax::walk::{self, Node};

impl<'u> Emitter<'u> {
    pub(super) fn sequence(&mut self, all: &'u [Stmt], context: &mut Context<'u>) -> Pass<String> {
        let mut text = Vec::new();
        let mut index = 0;
        while index < all.len() {
            let run = self.run(&all[index..], context);
            if run == 0 {
                text.push(self.statement(&all[index], context)?);
                index += 1;
                continue;
            }
            for one in &all[index..index + run] {
                text.push(if self.only_marks(one, context) {
                    self.marking(one, context)?
                } else {
                    self.statement(one, context)?
                });
            }
            text.push(self.switch());
            index += run;
        }
        Ok(text.join("\n"))
    }

    /// Returns how many of the first statements share one switch after them.
    fn run(&self, all: &'u [Stmt], context: &Context<'u>) -> usize {
        if !all.first().is_some_and(|first| self.only_marks(first, context)) {
            return 0;
        }
        let mut last = 0;
        for (index, one) in all.iter().enumerate() {
            if self.only_marks(one, context) {
                last = index + 1;
            } else if !self.is_light(one, context) {
                break;
            }
        }
        last
    }

    /// Writes a switch.
    pub(super) fn switch(&mut self) -> String {
        self.switches += 1;
        live::switch(self.switches)
    }

    /// Returns whether a statement only prefetches and changes its own variables.
    fn only_marks(&self, node: &'u Stmt, context: &Context<'u>) -> bool {
        match &node.kind {
            StmtKind::Expression(expression) => reach::is_marker_call(self.unit, expression.bare()),
            StmtKind::For(_) | StmtKind::While(..) => {
                self.reach.count_in(context.function, node.span) > 0 && self.is_marking_loop(node, context)
            }
            _ => false,
        }
    }

    /// Returns whether a loop contains only markers. Their addresses must not depend on marked
    /// memory.
    fn is_marking_loop(&self, node: &'u Stmt, context: &Context<'u>) -> bool {
        let Some(body) = node.loop_body() else { return false };
        let all = match &body.kind {
            StmtKind::Block(all) => &all[..],
            _ => std::slice::from_ref(body),
        };
        if !all.last().is_some_and(|last| self.only_marks(last, context)) {
            return false;
        }
        let head = node.expressions().into_iter().all(|one| self.reach.count_in(context.function, one.span) == 0);
        let statements = all.iter().all(|one| {
            self.only_marks(one, context)
                || matches!(one.kind, StmtKind::Declaration(_) | StmtKind::Expression(_) | StmtKind::Empty)
                    && self.reach.count_in(context.function, one.span) == 0
        });
        head && statements && !self.chases(node)
    }

    /// Returns whether a loop reads memory through a variable that it assigns.
    fn chases(&self, node: &'u Stmt) -> bool {
        let mut assigned = Vec::new();
        let mut found = false;
        walk::statement(self.unit, node, &mut |node| {
            match node {
                Node::Expr(Expr { kind: ExprKind::Assign(operator, target, _), .. }) if operator == "=" => {
                    assigned.extend(target.name());
                    // Memory other than local variables may change.
                    found |= target.name().is_none();
                }
                Node::Stmt(Stmt { kind: StmtKind::Declaration(declared), .. }) => {
                    assigned.extend(declared.names.iter().filter(|id| self.unit.declaration(**id).ty.is_pointer()));
                }
                _ => {}
            }
            true
        });
        walk::statement(self.unit, node, &mut |node| {
            if let Node::Expr(one) = node {
                let pointer = match &one.kind {
                    ExprKind::Member { object, arrow: true, .. } => Some(object),
                    ExprKind::Unary(operator, inner) if operator == "*" => Some(inner),
                    ExprKind::Index(array, _) if array.ty.is_pointer() => Some(array),
                    _ => None,
                };
                found |= pointer.and_then(|pointer| pointer.name()).is_some_and(|id| assigned.contains(&id));
            }
            !found
        });
        found
    }

    /// Returns whether a statement accesses only local variables. A switch may then follow it
    /// instead of preceding it.
    fn is_light(&self, node: &'u Stmt, context: &Context<'u>) -> bool {
        if !matches!(node.kind, StmtKind::Declaration(_) | StmtKind::Expression(_) | StmtKind::Empty) {
            return false;
        }
        if self.reach.count_in(context.function, node.span) > 0 {
            return false;
        }
        let mut light = true;
        walk::statement(self.unit, node, &mut |node| {
            if let Node::Expr(one) = node {
                light &= match &one.kind {
                    ExprKind::Member { arrow, .. } => !arrow,
                    ExprKind::Unary(operator, _) => operator != "*",
                    ExprKind::Index(array, _) => array.ty.is_array(),
                    ExprKind::Call(..) => self.is_light_call(one),
                    ExprKind::Statement(_) => false,
                    _ => true,
                };
            }
            light
        });
        light
    }

    /// Returns whether a call computes with its arguments only.
    fn is_light_call(&self, node: &Expr) -> bool {
        let Some((_, body)) = reach::called(self.unit, node).and_then(|called| self.unit.function(called)) else {
            let ExprKind::Call(function, _) = &node.kind else { return false };
            return matches!(&function.bare().kind, ExprKind::Undeclared(name) if name.starts_with("__builtin_"));
        };
        let mut light = true;
        walk::statement(self.unit, body, &mut |node| {
            if let Node::Expr(one) = node {
                light &= match &one.kind {
                    ExprKind::Member { arrow, .. } => !arrow,
                    ExprKind::Unary(operator, _) => operator != "*",
                    ExprKind::Index(array, _) => array.ty.is_array(),
                    ExprKind::Call(function, _) => {
                        matches!(&function.bare().kind, ExprKind::Undeclared(name) if name.starts_with("__builtin_"))
                    }
                    _ => true,
                };
            }
            light
        });
        light
    }

    /// Writes the prefetches of a statement that only marks.
    fn marking(&mut self, node: &'u Stmt, context: &mut Context<'u>) -> Pass<String> {
        match &node.kind {
            StmtKind::Expression(expression) => self.prefetch(expression.bare(), context),
            _ => self.marking_loop(node, context),
        }
    }

    /// Writes a loop that only marks, without a switch.
    fn marking_loop(&mut self, node: &'u Stmt, context: &mut Context<'u>) -> Pass<String> {
        let Some(body) = node.loop_body() else { return Ok(String::new()) };
        let all = match &body.kind {
            StmtKind::Block(all) => &all[..],
            _ => std::slice::from_ref(body),
        };
        context.blocks.push(crate::syntax::ast::Span { first: node.span.first, end: node.span.first });
        let written = self.marking_parts(node, all, context);
        context.blocks.pop();
        written
    }

    fn marking_parts(&mut self, node: &'u Stmt, all: &'u [Stmt], context: &mut Context<'u>) -> Pass<String> {
        let head = match &node.kind {
            StmtKind::For(parts) => {
                let mut around = String::new();
                let first = match parts.first.as_ref().map(|first| (&first.kind, first)) {
                    Some((StmtKind::Declaration(declared), first)) => {
                        self.for_declaration(first, declared, context, &mut around)?
                    }
                    Some((StmtKind::Expression(first), _)) => self.text(first.span, context)?,
                    _ => String::new(),
                };
                let part = |emitter: &mut Self, part: Option<&Expr>| {
                    part.map_or(Ok(String::new()), |part| emitter.text(part.span, context))
                };
                let condition = part(self, parts.condition.as_ref())?;
                let step = part(self, parts.step.as_ref())?;
                format!("for ({first}; {condition}; {step})")
            }
            StmtKind::While(condition, _) => format!("while ({})", self.text(condition.span, context)?),
            _ => return refuse(node.span.first, "this loop cannot mark"),
        };
        let mut text = Vec::new();
        for one in all {
            text.push(if self.only_marks(one, context) {
                self.marking(one, context)?
            } else {
                self.statement(one, context)?
            });
        }
        Ok(format!("{head} {{\n{}\n}}", text.join("\n")))
    }

    /// Writes the prefetch of a marker.
    pub(super) fn prefetch(&mut self, call: &'u Expr, context: &mut Context<'u>) -> Pass<String> {
        let arguments = reach::arguments(call);
        let Some(address) = arguments.first() else {
            return refuse(call.span.first, "a marker takes an address, and may take a size");
        };
        if self.switches(address.span, context) || has_effect(self.unit, address) {
            return refuse(
                address.span.first,
                "the address of a marker has a side effect or an expensive call: compute the address before",
            );
        }
        let written = self.text(address.span, context)?;
        match arguments.get(1) {
            Some(size) => Ok(format!("GOPT_PREFETCH_RANGE({written}, {});", self.text(size.span, context)?)),
            None => Ok(format!("GOPT_PREFETCH({written});")),
        }
    }
}

/// Returns whether an expression changes anything. The plain loop does not evaluate the address of
/// a marker.
fn has_effect(unit: &crate::syntax::Unit, node: &Expr) -> bool {
    let mut found = false;
    walk::expression(unit, node, &mut |node| {
        if let Node::Expr(one) = node {
            found |= matches!(one.kind, ExprKind::Update { .. } | ExprKind::Assign(..));
        }
        !found
    });
    found
}
