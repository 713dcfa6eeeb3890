//! Expressions with calls that switch: the calls become statements before them.

use std::fmt::Write as _;

use tree_sitter::Node;

use crate::refusal::{Pass, refuse};

use super::live::declared;
use super::{Emitter, Moved, Place};

impl<'t> Emitter<'_, 't> {
    /// An expression whose expensive calls are made by the statements that go to `before`.
    ///
    /// C leaves the order of operands open, so a call may come before the rest; where it does not leave it open,
    /// behind `&&`, `||`, `?` and `,`, the statements keep the order.
    pub(super) fn hoisted(&mut self, node: Node<'t>, place: &mut Place<'_, 't>, before: &mut String) -> Pass<String> {
        if !self.switches(node, place) || matches!(node.kind(), "sizeof_expression" | "alignof_expression") {
            return self.expression(node, place);
        }
        // A value that another call's switches could overwrite is part of the state.
        let count = self.reach.count_in(&place.function.name, node.start_byte(), node.end_byte());
        let outer = std::mem::replace(&mut self.calls_of_expression, count);
        let text = self.lower(node, place, count == 1, before);
        self.calls_of_expression = outer;
        text
    }

    pub(super) fn lower(
        &mut self,
        node: Node<'t>,
        place: &mut Place<'_, 't>,
        single: bool,
        before: &mut String,
    ) -> Pass<String> {
        if !self.switches(node, place) || matches!(node.kind(), "sizeof_expression" | "alignof_expression") {
            return self.expression(node, place);
        }
        let operator = node.child_by_field_name("operator").map_or("", |operator| self.unit.text(operator));
        match node.kind() {
            "call_expression" => self.call(node, place, single, before),
            "binary_expression" if matches!(operator, "&&" | "||") => self.logical(node, place, single, before),
            "conditional_expression" => self.conditional(node, place, single, before),
            "comma_expression" => {
                let (Some(left), Some(right)) = (node.child_by_field_name("left"), node.child_by_field_name("right"))
                else {
                    return refuse(node.start_byte(), "a comma without its operands");
                };
                let text = self.lower(left, place, single, before)?;
                write!(before, "(void)({text}); ").expect("writing to a String");
                self.lower(right, place, single, before)
            }
            _ => self.assemble(node, |emitter, child| emitter.lower(child, place, single, before)),
        }
    }

    fn call(&mut self, node: Node<'t>, place: &mut Place<'_, 't>, single: bool, before: &mut String) -> Pass<String> {
        let name = self.unit.callee(node).unwrap_or_default();
        if self.reach.expensive.contains(name) {
            return self.inlined(node, name, place, single, before);
        }
        // What takes the call's value must be a function: a macro might evaluate it twice, or not at all.
        let known = self.unit.functions.contains_key(name) || self.unit.prototypes.contains(name);
        let cast =
            node.child_by_field_name("function").is_some_and(|function| function.kind() == "parenthesized_expression");
        if self.unit.source.macros.has(name) || !known && !cast {
            return refuse(
                node.start_byte(),
                format!("a call with expensive accesses inside {name}(), which may be a macro: store its value before"),
            );
        }
        self.assemble(node, |emitter, child| emitter.lower(child, place, single, before))
    }

    /// A variable for a value of the given type.
    pub(super) fn temporary(&mut self, written_type: &str, single: bool, before: &mut String) -> String {
        self.temporaries += 1;
        let name = format!("gopt_t{}", self.temporaries);
        if single {
            write!(before, "{written_type} {name}; ").expect("writing to a String");
            name
        } else {
            before.push_str(&declared(&name));
            self.moved.push(Moved { name: name.clone(), declaration: format!("{written_type} {name}"), again: None });
            name
        }
    }

    fn logical(
        &mut self,
        node: Node<'t>,
        place: &mut Place<'_, 't>,
        single: bool,
        before: &mut String,
    ) -> Pass<String> {
        let operands = (node.child_by_field_name("left"), node.child_by_field_name("right"));
        let (Some(left), Some(right)) = operands else {
            return refuse(node.start_byte(), "an operator without its operands");
        };
        let and = node.child_by_field_name("operator").is_some_and(|operator| self.unit.text(operator) == "&&");
        if !self.switches(right, place) {
            return self.assemble(node, |emitter, child| emitter.lower(child, place, single, before));
        }
        let left = self.lower(left, place, single, before)?;
        let value = self.temporary("int", single, before);
        let mut inner = String::new();
        let right = self.lower(right, place, single, &mut inner)?;
        let (test, short) = if and { ("", 0) } else { ("!", 1) };
        write!(before, "if ({test}({left})) {{ {inner}{value} = !!({right}); }} else {{ {value} = {short}; }} ")
            .expect("writing to a String");
        Ok(value)
    }

    fn conditional(
        &mut self,
        node: Node<'t>,
        place: &mut Place<'_, 't>,
        single: bool,
        before: &mut String,
    ) -> Pass<String> {
        let part = |field: &str| node.child_by_field_name(field);
        let (Some(condition), Some(yes), Some(no)) = (part("condition"), part("consequence"), part("alternative"))
        else {
            return refuse(node.start_byte(), "a ? whose second operand is left out: write it down");
        };
        if !self.switches(yes, place) && !self.switches(no, place) {
            return self.assemble(node, |emitter, child| emitter.lower(child, place, single, before));
        }
        let calls = self.reach.count_in(&place.function.name, node.start_byte(), node.end_byte());
        if calls != self.calls_of_expression {
            return refuse(node.start_byte(), "several calls with expensive accesses around a ?: use if");
        }
        let written_type = format!("__typeof__({})", self.expression(node, place)?);
        // Whatever calls the operands have: when a value is stored, nothing is left to switch to.
        let condition = self.hoisted(condition, place, before)?;
        let value = self.temporary(&written_type, true, before);
        let (mut before_yes, mut before_no) = (String::new(), String::new());
        let yes = self.hoisted(yes, place, &mut before_yes)?;
        let no = self.hoisted(no, place, &mut before_no)?;
        write!(before, "if ({condition}) {{ {before_yes}{value} = {yes}; }} else {{ {before_no}{value} = {no}; }} ")
            .expect("writing to a String");
        Ok(value)
    }
}
