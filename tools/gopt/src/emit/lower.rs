//! Expressions with calls that switch. The calls become statements before the expression.

use std::fmt::Write as _;

use tree_sitter::Node;

use crate::refusal::{Pass, refuse};

use super::live::declared;
use super::{Context, Emitter, Moved};

impl<'t> Emitter<'_, 't> {
    /// Writes an expression. Its expensive calls become statements in `before`.
    ///
    /// C does not specify the order of operands, so a call may precede the other operands. For
    /// `&&`, `||`, `?` and `,`, C specifies the order, and the statements keep it.
    pub(super) fn hoisted(
        &mut self,
        node: Node<'t>,
        context: &mut Context<'_, 't>,
        before: &mut String,
    ) -> Pass<String> {
        if !self.switches(node, context) || matches!(node.kind(), "sizeof_expression" | "alignof_expression") {
            return self.expression(node, context);
        }
        // With several calls, the value of one call is part of the state during the switches of
        // another.
        let count = self.reach.count_in(&context.function.name, node.start_byte(), node.end_byte());
        let outer = std::mem::replace(&mut self.calls_of_expression, count);
        let text = self.lower(node, context, count == 1, before);
        self.calls_of_expression = outer;
        text
    }

    /// Writes an expression like [`Emitter::hoisted`]. `single`: whether it contains a single
    /// switch.
    pub(super) fn lower(
        &mut self,
        node: Node<'t>,
        context: &mut Context<'_, 't>,
        single: bool,
        before: &mut String,
    ) -> Pass<String> {
        if !self.switches(node, context) || matches!(node.kind(), "sizeof_expression" | "alignof_expression") {
            return self.expression(node, context);
        }
        let operator = node.child_by_field_name("operator").map_or("", |operator| self.unit.text(operator));
        match node.kind() {
            "call_expression" => self.call(node, context, single, before),
            "binary_expression" if matches!(operator, "&&" | "||") => self.logical(node, context, single, before),
            "conditional_expression" => self.conditional(node, context, single, before),
            "comma_expression" => {
                let (Some(left), Some(right)) = (node.child_by_field_name("left"), node.child_by_field_name("right"))
                else {
                    return refuse(node.start_byte(), "a comma without its operands");
                };
                let text = self.lower(left, context, single, before)?;
                write!(before, "(void)({text}); ").expect("writing to a String");
                self.lower(right, context, single, before)
            }
            _ => self.assemble(node, |emitter, child| emitter.lower(child, context, single, before)),
        }
    }

    fn call(
        &mut self,
        node: Node<'t>,
        context: &mut Context<'_, 't>,
        single: bool,
        before: &mut String,
    ) -> Pass<String> {
        let name = self.unit.callee(node).unwrap_or_default();
        if self.reach.expensive.contains(name) {
            return self.inlined(node, name, context, single, before);
        }
        // The enclosing call must be a function. A macro could evaluate the value twice, or not at
        // all.
        let known = self.unit.functions.contains_key(name) || self.unit.prototypes.contains(name);
        let cast =
            node.child_by_field_name("function").is_some_and(|function| function.kind() == "parenthesized_expression");
        if self.unit.source.macros.has(name) || !known && !cast {
            return refuse(
                node.start_byte(),
                format!(
                    "a call with expensive accesses inside {name}(), which may be a macro: store its value in a variable before"
                ),
            );
        }
        self.assemble(node, |emitter, child| emitter.lower(child, context, single, before))
    }

    /// Declares a temporary variable of the given type. `single`: whether its expression has no
    /// other switch.
    pub(super) fn temporary(&mut self, written_type: &str, single: bool, before: &mut String) -> String {
        self.temporaries += 1;
        let name = format!("gopt_t{}", self.temporaries);
        if single {
            write!(before, "{written_type} {name}; ").expect("writing to a String");
            name
        } else {
            before.push_str(&declared(&name));
            self.moved.push(Moved {
                name: name.clone(),
                declaration: format!("{written_type} {name}"),
                recompute: None,
            });
            name
        }
    }

    fn logical(
        &mut self,
        node: Node<'t>,
        context: &mut Context<'_, 't>,
        single: bool,
        before: &mut String,
    ) -> Pass<String> {
        let operands = (node.child_by_field_name("left"), node.child_by_field_name("right"));
        let (Some(left), Some(right)) = operands else {
            return refuse(node.start_byte(), "an operator without its operands");
        };
        let and = node.child_by_field_name("operator").is_some_and(|operator| self.unit.text(operator) == "&&");
        if !self.switches(right, context) {
            return self.assemble(node, |emitter, child| emitter.lower(child, context, single, before));
        }
        let left = self.lower(left, context, single, before)?;
        let value = self.temporary("int", single, before);
        let mut inner = String::new();
        let right = self.lower(right, context, single, &mut inner)?;
        let (test, short) = if and { ("", 0) } else { ("!", 1) };
        write!(before, "if ({test}({left})) {{ {inner}{value} = !!({right}); }} else {{ {value} = {short}; }} ")
            .expect("writing to a String");
        Ok(value)
    }

    fn conditional(
        &mut self,
        node: Node<'t>,
        context: &mut Context<'_, 't>,
        single: bool,
        before: &mut String,
    ) -> Pass<String> {
        let part = |field: &str| node.child_by_field_name(field);
        let (Some(condition), Some(yes), Some(no)) = (part("condition"), part("consequence"), part("alternative"))
        else {
            return refuse(node.start_byte(), "a ? without its second operand: write the operand");
        };
        if !self.switches(yes, context) && !self.switches(no, context) {
            return self.assemble(node, |emitter, child| emitter.lower(child, context, single, before));
        }
        let calls = self.reach.count_in(&context.function.name, node.start_byte(), node.end_byte());
        if calls != self.calls_of_expression {
            return refuse(node.start_byte(), "several calls with expensive accesses in an expression with ?: use if");
        }
        let written_type = format!("__typeof__({})", self.expression(node, context)?);
        // No switch follows the assignment of the value, so it is not part of the state.
        let condition = self.hoisted(condition, context, before)?;
        let value = self.temporary(&written_type, true, before);
        let (mut before_yes, mut before_no) = (String::new(), String::new());
        let yes = self.hoisted(yes, context, &mut before_yes)?;
        let no = self.hoisted(no, context, &mut before_no)?;
        write!(before, "if ({condition}) {{ {before_yes}{value} = {yes}; }} else {{ {before_no}{value} = {no}; }} ")
            .expect("writing to a String");
        Ok(value)
    }
}
