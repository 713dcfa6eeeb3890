//! Statements, with one function per kind.

use super::{Around, Context, Emitter};
use crate::check;
use crate::error::{Pass, refuse};
use crate::reach;
use crate::syntax::ast::{Expr, ExprKind, Span, Stmt, StmtKind};

impl<'u> Emitter<'u> {
    /// Writes a statement. The result is always a single statement, so that it can follow an `if`.
    pub(super) fn statement(&mut self, node: &'u Stmt, context: &mut Context<'u>) -> Pass<String> {
        match &node.kind {
            StmtKind::Block(all) => self.block(node, all, context),
            StmtKind::Expression(expression) => self.expression_statement(expression, context),
            StmtKind::Declaration(declared) => self.declaration(node, declared, context),
            StmtKind::If(condition, yes, no) => self.if_statement(condition, yes, no.as_deref(), context),
            StmtKind::While(condition, body) => self.while_statement(condition, body, context),
            StmtKind::Do(body, condition) => self.do_statement(body, condition, context),
            StmtKind::For(_) => {
                context.blocks.push(node.span);
                let text = self.for_statement(node, context);
                context.blocks.pop();
                text
            }
            StmtKind::Switch(condition, body) => self.switch_statement(condition, body, context),
            StmtKind::Case(values, inner) => {
                let mut texts = Vec::new();
                for value in values {
                    texts.push(self.text(value.span, context)?);
                }
                let inner = self.statement(inner, context)?;
                Ok(format!("case {}: {inner}", texts.join(" ... ")))
            }
            StmtKind::Default(inner) => Ok(format!("default: {}", self.statement(inner, context)?)),
            StmtKind::Label(label, inner) => {
                let label = self.label_text(label, context);
                Ok(format!("{label}:; {}", self.statement(inner, context)?))
            }
            StmtKind::Goto(label) => Ok(format!("goto {};", self.label_text(label, context))),
            StmtKind::Return(value) => self.return_statement(node, value.as_ref(), context),
            StmtKind::Break => Ok("break;".to_owned()),
            StmtKind::Continue => Ok(self.continue_statement(context)),
            StmtKind::Assembly(_) => self.text(node.span, context),
            StmtKind::Empty => {
                let text = self.text(node.span, context)?;
                let keeps = text.starts_with("__attribute__") || text.starts_with("[[");
                Ok(if keeps { text } else { ";".to_owned() })
            }
            StmtKind::Pragma(words) if words == "serial" => self.serial(node, context),
            StmtKind::Pragma(words) => {
                context.bound = words.strip_prefix("bound ").map(|bound| bound.trim().to_owned());
                Ok(";".to_owned())
            }
            StmtKind::ComputedGoto(_) => refuse(node.span.first, "a computed goto inside the lookup: use switch"),
        }
    }

    fn block(&mut self, node: &'u Stmt, all: &'u [Stmt], context: &mut Context<'u>) -> Pass<String> {
        context.blocks.push(node.span);
        let text = self.sequence(all, context);
        context.blocks.pop();
        Ok(format!("{{\n{}\n}}", text?))
    }

    fn expression_statement(&mut self, node: &'u Expr, context: &mut Context<'u>) -> Pass<String> {
        if let Some((call, again)) = self.last_own_call(node, context) {
            return self.jump_again(call, &again, context);
        }
        if !self.switches(node.span, context) {
            return Ok(format!("{};", self.unused(node, context)?));
        }
        let mut before = String::new();
        let text = self.hoisted(node, context, &mut before)?;
        let bare = node.bare();
        let is_call = reach::is_marker_call(self.unit, bare)
            || reach::called(self.unit, bare).is_some_and(|called| self.reach.is_inlined(called))
            || matches!(bare.kind, ExprKind::Statement(_));
        Ok(if is_call { format!("{{ {before}}}") } else { format!("{{ {before}{text}; }}") })
    }

    /// Writes an expression with an unused value. Shared sums of signed integers are computed with
    /// unsigned integers.
    pub(super) fn unused(&mut self, node: &'u Expr, context: &Context<'u>) -> Pass<String> {
        match &node.kind {
            ExprKind::Paren(inner) if self.has_signed_step(inner) => self.unused(inner, context),
            ExprKind::Cast(ty, inner) if ty.is_void() && self.has_signed_step(inner) => self.unused(inner, context),
            ExprKind::Comma(left, right) if self.has_signed_step(node) => {
                Ok(format!("{}, {}", self.unused(left, context)?, self.unused(right, context)?))
            }
            ExprKind::Conditional(condition, Some(yes), no) if self.has_signed_step(node) => Ok(format!(
                "{} ? (void)({}) : (void)({})",
                self.text(condition.span, context)?,
                self.unused(yes, context)?,
                self.unused(no, context)?
            )),
            _ if self.legal.signed_steps.contains(&node.span.first) => {
                let operand = match &node.kind {
                    ExprKind::Assign(operator, _, value) if operator != "=" => self.text(value.span, context)?,
                    _ => String::new(),
                };
                self.signed_step(node, &operand, context)
            }
            _ => self.text(node.span, context),
        }
    }

    fn has_signed_step(&self, node: &Expr) -> bool {
        (node.span.first..node.span.end).any(|at| self.legal.signed_steps.contains(&at))
    }

    /// Writes a sum of a signed integer. `operand` is the right side of `+=`.
    pub(super) fn signed_step(&mut self, node: &'u Expr, operand: &str, context: &Context<'u>) -> Pass<String> {
        let (target, sign, operand) = match &node.kind {
            ExprKind::Update { operator, operand, .. } => (operand, &operator[..1], "1".to_owned()),
            ExprKind::Assign(operator, target, _) if operator != "=" => (target, &operator[..1], operand.to_owned()),
            ExprKind::Assign(_, target, value) => {
                let ExprKind::Binary(operator, left, right) = &value.bare().kind else {
                    return self.text(node.span, context);
                };
                let target_text = self.text(target.span, context)?;
                let left_text = self.text(left.span, context)?;
                if left_text.trim_matches(['(', ')', ' ']) == target_text.trim_matches(['(', ')', ' ']) {
                    (target, operator.as_str(), self.text(right.span, context)?)
                } else {
                    (target, operator.as_str(), left_text)
                }
            }
            _ => return self.text(node.span, context),
        };
        let at = node.span.first;
        let unsigned = unsigned_for(target);
        let ty = self.declared(&target.ty.resolved().unqualified(), "", at, context)?;
        let has_effects = check::effects(self.unit, target);
        let target = self.text(target.span, context)?;
        Ok(unsigned_step(&target, has_effects, &ty, unsigned, sign, &operand))
    }

    /// Returns whether a range of tokens contains a switch.
    pub(super) fn switches(&self, span: Span, context: &Context<'_>) -> bool {
        self.reach.count_in(context.function, span) > 0
    }

    fn if_statement(
        &mut self,
        condition: &'u Expr,
        yes: &'u Stmt,
        no: Option<&'u Stmt>,
        context: &mut Context<'u>,
    ) -> Pass<String> {
        let mut before = String::new();
        let condition = self.hoisted(condition, context, &mut before)?;
        let yes = self.braced(yes, context)?;
        let mut text = format!("if ({condition}) {yes}");
        if let Some(no) = no {
            text += &format!(" else {}", self.braced(no, context)?);
        }
        Ok(if before.is_empty() { text } else { format!("{{ {before}{text} }}") })
    }

    /// Writes a statement in braces, because it may become several statements.
    fn braced(&mut self, node: &'u Stmt, context: &mut Context<'u>) -> Pass<String> {
        let text = self.statement(node, context)?;
        Ok(if matches!(node.kind, StmtKind::Block(_)) { text } else { format!("{{ {text} }}") })
    }

    /// Writes a loop or switch body. Returns the loop label if `continue` uses it.
    fn body(&mut self, node: &'u Stmt, context: &mut Context<'u>, around: Around) -> Pass<(String, Option<String>)> {
        context.around.push(around);
        let text = self.braced(node, context);
        let label = match context.around.pop() {
            Some(Around::Loop(Some((label, true)))) => Some(label),
            _ => None,
        };
        Ok((text?, label))
    }

    fn next_label(&mut self) -> (String, bool) {
        self.labels += 1;
        (format!("{}next_{}", self.labels_begin, self.labels), false)
    }

    fn while_statement(&mut self, condition: &'u Expr, body: &'u Stmt, context: &mut Context<'u>) -> Pass<String> {
        let mut before = String::new();
        let condition = self.hoisted(condition, context, &mut before)?;
        let (body, _) = self.body(body, context, Around::Loop(None))?;
        Ok(if before.is_empty() {
            format!("while ({condition}) {body}")
        } else {
            format!("for (;;) {{ {before}if (!({condition})) {{ break; }} {body} }}")
        })
    }

    fn do_statement(&mut self, body: &'u Stmt, condition: &'u Expr, context: &mut Context<'u>) -> Pass<String> {
        let label = self.switches(condition.span, context).then(|| self.next_label());
        let (body, label) = self.body(body, context, Around::Loop(label))?;
        let mut before = String::new();
        let condition = self.hoisted(condition, context, &mut before)?;
        if before.is_empty() {
            return Ok(format!("do {body} while ({condition});"));
        }
        let label = label.map_or_else(String::new, |label| format!("{label}:; "));
        Ok(format!("for (;;) {{ {body} {label}{before}if (!({condition})) {{ break; }} }}"))
    }

    fn for_statement(&mut self, node: &'u Stmt, context: &mut Context<'u>) -> Pass<String> {
        let StmtKind::For(parts) = &node.kind else { return Ok(String::new()) };
        let (mut around, mut before, mut after) = (String::new(), String::new(), String::new());
        let first = match parts.first.as_ref() {
            Some(first) => match &first.kind {
                StmtKind::Declaration(declared) => self.for_declaration(first, declared, context, &mut around)?,
                StmtKind::Expression(first) if self.switches(first.span, context) => {
                    self.hoisted(first, context, &mut around)?
                }
                StmtKind::Expression(first) => self.unused(first, context)?,
                _ => String::new(),
            },
            None => String::new(),
        };
        let condition = match &parts.condition {
            Some(condition) => self.hoisted(condition, context, &mut before)?,
            None => String::new(),
        };
        let step_switches = parts.step.as_ref().is_some_and(|step| self.switches(step.span, context));
        let label = step_switches.then(|| self.next_label());
        let (body, label) = self.body(&parts.body, context, Around::Loop(label))?;
        let step = match &parts.step {
            Some(step) if step_switches => self.hoisted(step, context, &mut after)?,
            Some(step) => self.unused(step, context)?,
            None => String::new(),
        };
        let text = if step_switches {
            let exit = if condition.is_empty() { String::new() } else { format!("if (!({condition})) {{ break; }}") };
            let label = label.map_or_else(String::new, |label| format!("{label}:; "));
            format!("for ({first}; ; ) {{ {before}{exit} {body} {label}{after}{step}; }}")
        } else if before.is_empty() {
            format!("for ({first}; {condition}; {step}) {body}")
        } else {
            format!("for ({first}; ; {step}) {{ {before}if (!({condition})) {{ break; }} {body} }}")
        };
        Ok(if around.is_empty() { text } else { format!("{{ {around}{text} }}") })
    }

    fn switch_statement(&mut self, condition: &'u Expr, body: &'u Stmt, context: &mut Context<'u>) -> Pass<String> {
        let mut before = String::new();
        let condition = self.hoisted(condition, context, &mut before)?;
        let (body, _) = self.body(body, context, Around::Switch)?;
        Ok(if before.is_empty() {
            format!("switch ({condition}) {body}")
        } else {
            format!("{{ {before}switch ({condition}) {body} }}")
        })
    }

    fn continue_statement(&mut self, context: &mut Context<'u>) -> String {
        let around = context.around.iter_mut().rev().find(|around| !matches!(around, Around::Switch));
        match around {
            Some(Around::Batch) => self.end_of_lookup(),
            Some(Around::Loop(Some((label, used)))) => {
                *used = true;
                format!("goto {label};")
            }
            _ => "continue;".to_owned(),
        }
    }

    fn return_statement(&mut self, node: &'u Stmt, value: Option<&'u Expr>, context: &mut Context<'u>) -> Pass<String> {
        if let Some(text) = self.tail_call(value, context)? {
            return Ok(text);
        }
        let mut before = String::new();
        let value = match value {
            Some(value) => Some(self.hoisted(value, context, &mut before)?),
            None => None,
        };
        let Some(returns) = &mut context.returns else {
            return refuse(node.span.first, "return inside the batch loop");
        };
        let value = match (&returns.result, value) {
            (Some(result), Some(value)) => format!("{result} = {value};"),
            (None, Some(value)) => format!("{value};"),
            (_, None) => String::new(),
        };
        if returns.last == Some(node.span) {
            return Ok(format!("{{ {before}{value} }}"));
        }
        returns.used = true;
        Ok(format!("{{ {before}{value} goto {}; }}", returns.label))
    }

    /// Returns the new name of a label. Each copy has separate labels, because a function has one
    /// label name space.
    fn label_text(&self, label: &str, context: &Context<'_>) -> String {
        format!("{}{label}_{}", self.labels_begin, context.copy)
    }
}

/// Returns the unsigned type for a sum of a signed integer.
pub(super) fn unsigned_for(target: &Expr) -> &'static str {
    let wide = target.ty.as_integer().is_some_and(|(_, rank)| rank > 4);
    if wide { "unsigned __int128" } else { "unsigned long long" }
}

/// Returns a sum that is computed with unsigned integers. The target is evaluated once if it has
/// effects.
pub(super) fn unsigned_step(
    target: &str,
    has_effects: bool,
    ty: &str,
    unsigned: &str,
    sign: &str,
    operand: &str,
) -> String {
    if has_effects {
        return format!(
            "({{ __typeof__({target}) *gopt_step = &({target}); \
             *gopt_step = ({ty})(({unsigned})*gopt_step {sign} ({unsigned})({operand})); }})"
        );
    }
    format!("{target} = ({ty})(({unsigned})({target}) {sign} ({unsigned})({operand}))")
}
