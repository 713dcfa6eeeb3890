//! Expressions with calls that switch. Such calls become statements before the expression.

use std::fmt::Write as _;

use super::statement::{unsigned_for, unsigned_step};
use super::{Context, Emitter, Moved, live};
use crate::check;
use crate::error::{Pass, refuse};
use crate::reach;
use crate::syntax::ast::{Expr, ExprKind, Span, Stmt, StmtKind};
use crate::syntax::types::Type;

impl<'u> Emitter<'u> {
    /// Writes an expression. Its expensive calls become statements in `before`.
    ///
    /// C does not specify the order of operands, so a call may precede the other operands. For
    /// `&&`, `||`, `?` and `,`, C specifies the order, and the statements keep it.
    pub(super) fn hoisted(&mut self, node: &'u Expr, context: &mut Context<'u>, before: &mut String) -> Pass<String> {
        if !self.switches(node.span, context) {
            return self.text(node.span, context);
        }
        // With several calls, one call's value is part of the state while another call switches.
        let single = self.reach.count_in(context.function, node.span) == 1;
        self.lower(node, context, single, before)
    }

    /// Writes an expression like [`Emitter::hoisted`]. `single` tells whether the whole expression
    /// contains a single switch.
    pub(super) fn lower(
        &mut self,
        node: &'u Expr,
        context: &mut Context<'u>,
        single: bool,
        before: &mut String,
    ) -> Pass<String> {
        if !self.switches(node.span, context) || matches!(node.kind, ExprKind::SizeOf(_)) {
            return self.text(node.span, context);
        }
        match &node.kind {
            ExprKind::Call(..) => self.call(node, context, single, before),
            ExprKind::Binary(operator, left, right) if matches!(operator.as_str(), "&&" | "||") => {
                self.logical(node, (operator, left, right), context, single, before)
            }
            ExprKind::Conditional(condition, yes, no) => {
                self.conditional(node, (condition, yes.as_deref(), no), context, single, before)
            }
            ExprKind::Comma(left, right) => {
                let text = self.lower(left, context, single, before)?;
                write!(before, "(void)({text}); ").expect("writing to a String");
                self.lower(right, context, single, before)
            }
            ExprKind::Statement(block) => self.statement_expression(node, block, context, single, before),
            ExprKind::Assign(..) if self.legal.signed_steps.contains(&node.span.first) => {
                self.lowered_step(node, context, single, before)
            }
            _ => self.assemble(node, context, single, before),
        }
    }

    /// Writes an expression: each part with [`Emitter::lower`], and the tokens between them.
    fn assemble(
        &mut self,
        node: &'u Expr,
        context: &mut Context<'u>,
        single: bool,
        before: &mut String,
    ) -> Pass<String> {
        let mut text = String::new();
        let mut at = node.span.first;
        for part in node.parts() {
            text += &self.text(Span { first: at, end: part.span.first }, context)?;
            text.push(' ');
            text += &self.lower(part, context, single, before)?;
            text.push(' ');
            at = part.span.end;
        }
        text += &self.text(Span { first: at, end: node.span.end }, context)?;
        Ok(text.trim().to_owned())
    }

    fn call(&mut self, node: &'u Expr, context: &mut Context<'u>, single: bool, before: &mut String) -> Pass<String> {
        if reach::is_marker_call(self.unit, node) {
            let prefetch = self.prefetch(node, context)?;
            let switch = self.switch();
            write!(before, "{prefetch} {switch} ").expect("writing to a String");
            return Ok("(void)0".to_owned());
        }
        if let Some(called) = reach::called(self.unit, node).filter(|called| self.reach.is_inlined(*called)) {
            return self.inlined(node, called, context, single, before);
        }
        self.assemble(node, context, single, before)
    }

    /// Declares a temporary variable. `single` tells whether its expression has no other switch.
    pub(super) fn temporary(
        &mut self,
        ty: &Type,
        at: usize,
        context: &Context<'u>,
        single: bool,
        before: &mut String,
    ) -> Pass<String> {
        self.temporaries += 1;
        let name = format!("gopt_t{}", self.temporaries);
        let declaration = self.assignable(ty, &name, at, context)?;
        if single {
            write!(before, "{declaration}; ").expect("writing to a String");
        } else {
            before.push_str(&live::unset(&name));
            self.moved.push(Moved { name: name.clone(), declaration, recompute: None });
        }
        Ok(name)
    }

    fn logical(
        &mut self,
        node: &'u Expr,
        (operator, left, right): (&str, &'u Expr, &'u Expr),
        context: &mut Context<'u>,
        single: bool,
        before: &mut String,
    ) -> Pass<String> {
        if !self.switches(right.span, context) {
            return self.assemble(node, context, single, before);
        }
        let at = node.span.first;
        let left = self.lower(left, context, single, before)?;
        let value = self.temporary(&Type::int(), at, context, single, before)?;
        let mut inner = String::new();
        let right = self.lower(right, context, single, &mut inner)?;
        let (test, short) = if operator == "&&" { ("", 0) } else { ("!", 1) };
        // The right operand may be void after a marker.
        write!(before, "if ({test}({left})) {{ {inner}{value} = !!({right}); }} else {{ {value} = {short}; }} ")
            .expect("writing to a String");
        Ok(value)
    }

    fn conditional(
        &mut self,
        node: &'u Expr,
        (condition, yes, no): (&'u Expr, Option<&'u Expr>, &'u Expr),
        context: &mut Context<'u>,
        single: bool,
        before: &mut String,
    ) -> Pass<String> {
        let at = node.span.first;
        let Some(yes) = yes else {
            let value = self.temporary(&condition.ty.decayed(), at, context, false, before)?;
            let condition = self.lower(condition, context, single, before)?;
            write!(before, "{value} = {condition}; ").expect("writing to a String");
            let mut inner = String::new();
            let no = self.lower(no, context, single, &mut inner)?;
            write!(before, "if (!{value}) {{ {inner}{value} = {no}; }} ").expect("writing to a String");
            return Ok(value);
        };
        if !self.switches(yes.span, context) && !self.switches(no.span, context) {
            return self.assemble(node, context, single, before);
        }
        let condition = self.lower(condition, context, single, before)?;
        let is_void = node.ty.is_void();
        let value =
            if is_void { String::new() } else { self.temporary(&node.ty.decayed(), at, context, single, before)? };
        let (mut before_yes, mut before_no) = (String::new(), String::new());
        let yes = self.lower(yes, context, single, &mut before_yes)?;
        let no = self.lower(no, context, single, &mut before_no)?;
        let set = |text: &str| if is_void { format!("{text};") } else { format!("{value} = {text};") };
        write!(before, "if ({condition}) {{ {before_yes}{} }} else {{ {before_no}{} }} ", set(&yes), set(&no))
            .expect("writing to a String");
        Ok(if is_void { "(void)0".to_owned() } else { value })
    }

    /// Writes the statements of a statement expression to `before`, and returns its value.
    fn statement_expression(
        &mut self,
        node: &'u Expr,
        block: &'u Stmt,
        context: &mut Context<'u>,
        single: bool,
        before: &mut String,
    ) -> Pass<String> {
        let StmtKind::Block(all) = &block.kind else {
            return refuse(node.span.first, "an expression without its block");
        };
        let value = crate::syntax::value_of(block).filter(|value| !value.ty.is_void());
        let Some(value) = value else {
            let text = self.statement(block, context)?;
            before.push_str(&text);
            return Ok("(void)0".to_owned());
        };
        let result = self.temporary(&value.ty.decayed(), node.span.first, context, single, before)?;
        context.blocks.push(block.span);
        let written = self.sequence(&all[..all.len() - 1], context);
        let mut last = String::new();
        let value = written.and_then(|written| {
            before.push_str(&format!("{{ {written} "));
            self.hoisted(value, context, &mut last)
        });
        context.blocks.pop();
        let value = value?;
        write!(before, "{last}{result} = {value}; }} ").expect("writing to a String");
        Ok(result)
    }

    /// Writes a sum of a signed integer whose operand switches.
    fn lowered_step(
        &mut self,
        node: &'u Expr,
        context: &mut Context<'u>,
        single: bool,
        before: &mut String,
    ) -> Pass<String> {
        let ExprKind::Assign(operator, target, value) = &node.kind else { return self.text(node.span, context) };
        if self.switches(target.span, context) {
            return self.assemble(node, context, single, before);
        }
        let (operand, operator) = if operator == "=" {
            let ExprKind::Binary(operator, left, right) = &value.bare().kind else {
                return self.assemble(node, context, single, before);
            };
            let target_first = self.unit.expanded.words(left.bare().span.first, left.bare().span.end)
                == self.unit.expanded.words(target.bare().span.first, target.bare().span.end);
            (if target_first { right } else { left }, format!("{operator}="))
        } else {
            (value, operator.clone())
        };
        let operand = self.lower(operand, context, single, before)?;
        let at = node.span.first;
        let ty = self.declared(&target.ty.resolved().unqualified(), "", at, context)?;
        let has_effects = check::effects(self.unit, target);
        let unsigned = unsigned_for(target);
        let target = self.text(target.span, context)?;
        let sign = operator.trim_end_matches('=');
        Ok(unsigned_step(&target, has_effects, &ty, unsigned, sign, &operand))
    }
}
