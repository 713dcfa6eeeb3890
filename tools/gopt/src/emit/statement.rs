//! Statements, with one function per kind.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tree_sitter::Node;

use crate::refusal::{Pass, refuse};
use crate::unit::children;

use super::{Around, Binding, Context, Emitter, Entry, live};

impl<'t> Emitter<'_, 't> {
    /// Writes a statement. The result is always a single statement, so that it can follow an `if`.
    pub(super) fn statement(&mut self, node: Node<'t>, context: &mut Context<'_, 't>) -> Pass<String> {
        match node.kind() {
            "compound_statement" => self.block(node, context),
            "expression_statement" => self.expression_statement(node, context),
            "declaration" => self.declaration(node, context),
            "if_statement" => self.if_statement(node, context),
            "else_clause" => self.assemble(node, |emitter, child| {
                if child.is_named() {
                    emitter.statement(child, context)
                } else {
                    Ok(emitter.unit.text(child).to_owned())
                }
            }),
            "while_statement" if self.unit.source.foreach.contains(&node.start_byte()) => self.foreach(node, context),
            "while_statement" => self.while_statement(node, context),
            "do_statement" => self.do_statement(node, context),
            "for_statement" => self.for_statement(node, context),
            "switch_statement" => self.switch_statement(node, context),
            "case_statement" => self.case_statement(node, context),
            "labeled_statement" => self.labeled_statement(node, context),
            "goto_statement" => self.goto_statement(node, context),
            "return_statement" => self.return_statement(node, context),
            "break_statement" => Ok(self.unit.text(node).to_owned()),
            "continue_statement" => Ok(self.continue_statement(node, context)),
            "attributed_statement" if self.unit.text(node).contains("fallthrough") => {
                Ok(self.unit.text(node).to_owned())
            }
            kind => refuse(node.start_byte(), format!("gopt does not support a {} here", kind.replace('_', " "))),
        }
    }

    pub(super) fn block(&mut self, node: Node<'t>, context: &mut Context<'_, 't>) -> Pass<String> {
        context.scopes.push(BTreeMap::new());
        let text = self.sequence(node, context);
        context.scopes.pop();
        text
    }

    /// Writes a sequence of statements. Adjacent annotations become one switch.
    fn sequence(&mut self, node: Node<'t>, context: &mut Context<'_, 't>) -> Pass<String> {
        let unit = self.unit;
        let all: Vec<_> = children(node).collect();
        let mut text = String::new();
        let mut at = node.start_byte();
        let mut index = 0;
        while index < all.len() {
            let child = all[index];
            text.push_str(&unit.source.plain[at..child.start_byte()]);
            let calls: Vec<_> = all[index..].iter().map_while(|next| unit.annotation(*next)).collect();
            if calls.is_empty() {
                let label = node.kind() == "case_statement" && !is_statement(child);
                text += &match child.kind() {
                    _ if label => self.expression(child, context)?,
                    _ if child.is_named() => self.statement(child, context)?,
                    _ => unit.text(child).to_owned(),
                };
                at = child.end_byte();
                index += 1;
            } else {
                text += &self.switch(&calls, context)?;
                index += calls.len();
                at = all[index - 1].end_byte();
            }
        }
        text.push_str(&unit.source.plain[at..node.end_byte()]);
        Ok(text)
    }

    /// Writes the prefetches and the switch of adjacent annotations.
    fn switch(&mut self, calls: &[Node<'t>], context: &mut Context<'_, 't>) -> Pass<String> {
        let mut text = String::from("{ ");
        for call in calls {
            let list = call.child_by_field_name("arguments");
            let Some(address) = list.and_then(|list| list.named_child(0)) else {
                return refuse(call.start_byte(), "an annotation takes one address");
            };
            write!(text, "GOPT_PREFETCH({}); ", self.expression(address, context)?).expect("writing to a String");
        }
        self.switches += 1;
        Ok(text + &live::switch(self.switches) + " }")
    }

    fn expression_statement(&mut self, node: Node<'t>, context: &mut Context<'_, 't>) -> Pass<String> {
        if let Some(call) = self.unit.annotation(node) {
            return self.switch(&[call], context);
        }
        let Some(expression) = node.named_child(0).filter(|_| self.switches(node, context)) else {
            return self.expression(node, context);
        };
        let mut before = String::new();
        let text = self.hoisted(expression, context, &mut before)?;
        let is_call = self.unit.callee(expression).is_some_and(|name| self.reach.expensive.contains(name));
        Ok(if is_call { format!("{{ {before}}}") } else { format!("{{ {before}{text}; }}") })
    }

    /// Returns whether a node contains a switch.
    pub(super) fn switches(&self, node: Node<'t>, context: &Context<'_, 't>) -> bool {
        self.reach.switch_in(&context.function.name, node.start_byte(), node.end_byte())
    }

    /// Writes a condition in parentheses. Statements that must precede it go to `before`.
    fn condition(&mut self, node: Node<'t>, context: &mut Context<'_, 't>, before: &mut String) -> Pass<String> {
        let Some(condition) = node.child_by_field_name("condition") else {
            return refuse(node.start_byte(), "a statement without its condition");
        };
        self.hoisted(condition, context, before)
    }

    fn if_statement(&mut self, node: Node<'t>, context: &mut Context<'_, 't>) -> Pass<String> {
        let mut before = String::new();
        let condition = node.child_by_field_name("condition");
        let text = self.assemble(node, |emitter, child| match child {
            child if Some(child) == condition => emitter.condition(node, context, &mut before),
            child if child.is_named() => emitter.statement(child, context),
            child => Ok(emitter.unit.text(child).to_owned()),
        })?;
        Ok(if before.is_empty() { text } else { format!("{{ {before}{text} }}") })
    }

    fn body(
        &mut self,
        node: Node<'t>,
        context: &mut Context<'_, 't>,
        around: Around,
    ) -> Pass<(String, Option<(String, bool)>)> {
        let Some(body) = node.child_by_field_name("body") else {
            return refuse(node.start_byte(), "a loop without a body");
        };
        context.around.push(around);
        let text = self.statement(body, context);
        let label = match context.around.pop() {
            Some(Around::Loop(label)) => label,
            _ => None,
        };
        Ok((text?, label))
    }

    fn while_statement(&mut self, node: Node<'t>, context: &mut Context<'_, 't>) -> Pass<String> {
        let mut before = String::new();
        let condition = self.condition(node, context, &mut before)?;
        let (body, _) = self.body(node, context, Around::Loop(None))?;
        Ok(live::looped(&if before.is_empty() {
            format!("while {condition} {body}")
        } else {
            format!("for (;;) {{ {before}if (!{condition}) {{ break; }} {body} }}")
        }))
    }

    /// Writes a `foreach` inside a lookup. It stays a `foreach`, which its macro expands.
    fn foreach(&mut self, node: Node<'t>, context: &mut Context<'_, 't>) -> Pass<String> {
        if self.switches(node, context) {
            return refuse(
                node.start_byte(),
                "a foreach with expensive accesses inside a batch loop: write the inner loop with for",
            );
        }
        let head = node.child_by_field_name("condition").and_then(|condition| condition.named_child(0));
        let parts = head.filter(|head| head.kind() == "comma_expression");
        let index = parts.and_then(|parts| parts.child_by_field_name("left"));
        let (Some(index), Some(count)) = (index, parts.and_then(|parts| parts.child_by_field_name("right"))) else {
            return refuse(node.start_byte(), "foreach takes an index and the number of iterations: foreach(i, n)");
        };
        // The macro may declare the index. Otherwise, the index is a variable of the lookup.
        let declares = crate::batch::foreach_declares(self.unit, node.start_byte(), index, count)?;
        let name = self.unit.text(index);
        let count = self.expression(count, context)?;
        context.scopes.push(BTreeMap::new());
        if let (true, Some(scope)) = (declares, context.scopes.last_mut()) {
            scope.insert(name, Entry::new(Binding::Kept, String::new(), false));
        }
        let index = self.expression(index, context);
        let body = self.body(node, context, Around::Loop(None));
        context.scopes.pop();
        Ok(live::looped(&format!("foreach ({}, {count}) {}", index?, body?.0)))
    }

    fn do_statement(&mut self, node: Node<'t>, context: &mut Context<'_, 't>) -> Pass<String> {
        let hoists = node.child_by_field_name("condition").is_some_and(|condition| self.switches(condition, context));
        let label = hoists.then(|| {
            self.labels += 1;
            (format!("{}next_{}", self.labels_begin, self.labels), false)
        });
        let (body, label) = self.body(node, context, Around::Loop(label))?;
        let mut before = String::new();
        let condition = self.condition(node, context, &mut before)?;
        if before.is_empty() {
            return Ok(live::looped(&format!("do {body} while {condition};")));
        }
        let label = label.filter(|(_, used)| *used).map_or_else(String::new, |(label, _)| format!("{label}:; "));
        Ok(live::looped(&format!("for (;;) {{ {body} {label}{before}if (!{condition}) {{ break; }} }}")))
    }

    fn for_statement(&mut self, node: Node<'t>, context: &mut Context<'_, 't>) -> Pass<String> {
        context.scopes.push(BTreeMap::new());
        let text = self.for_in_scope(node, context);
        context.scopes.pop();
        text
    }

    fn for_in_scope(&mut self, node: Node<'t>, context: &mut Context<'_, 't>) -> Pass<String> {
        let (mut marks, mut around, mut before) = (String::new(), String::new(), String::new());
        let first = match node.child_by_field_name("initializer") {
            Some(first) if first.kind() == "declaration" => self.for_declaration(first, context, &mut marks)?,
            Some(first) => self.hoisted(first, context, &mut around)?,
            None => String::new(),
        };
        let condition = match node.child_by_field_name("condition") {
            Some(condition) => self.hoisted(condition, context, &mut before)?,
            None => String::new(),
        };
        let step = match node.child_by_field_name("update") {
            Some(step) if self.switches(step, context) => {
                return refuse(
                    step.start_byte(),
                    "a call with expensive accesses in the step of a for loop: move it to the end of its body",
                );
            }
            Some(step) => self.expression(step, context)?,
            None => String::new(),
        };
        let (body, _) = self.body(node, context, Around::Loop(None))?;
        let text = if before.is_empty() {
            format!("for ({first}; {condition}; {step}) {body}")
        } else {
            format!("for ({first}; ; {step}) {{ {before}if (!({condition})) {{ break; }} {body} }}")
        };
        let text = marks + &live::looped(&text);
        Ok(if around.is_empty() { text } else { format!("{{ {around}{text} }}") })
    }

    fn switch_statement(&mut self, node: Node<'t>, context: &mut Context<'_, 't>) -> Pass<String> {
        let mut before = String::new();
        let condition = self.condition(node, context, &mut before)?;
        let (body, _) = self.body(node, context, Around::Switch)?;
        Ok(if before.is_empty() {
            format!("switch {condition} {body}")
        } else {
            format!("{{ {before}switch {condition} {body} }}")
        })
    }

    /// Writes a `case` and its statements, which belong to the enclosing block.
    fn case_statement(&mut self, node: Node<'t>, context: &mut Context<'_, 't>) -> Pass<String> {
        self.sequence(node, context)
    }

    fn labeled_statement(&mut self, node: Node<'t>, context: &mut Context<'_, 't>) -> Pass<String> {
        let label = node.child_by_field_name("label");
        self.assemble(node, |emitter, child| match child {
            child if Some(child) == label => Ok(emitter.label_text(emitter.unit.text(child), context)),
            child if child.is_named() => emitter.statement(child, context),
            child => Ok(emitter.unit.text(child).to_owned()),
        })
    }

    fn goto_statement(&mut self, node: Node<'t>, context: &mut Context<'_, 't>) -> Pass<String> {
        match node.child_by_field_name("label") {
            Some(label) if label.kind() == "statement_identifier" => {
                Ok(format!("goto {};", self.label_text(self.unit.text(label), context)))
            }
            _ => refuse(node.start_byte(), "a computed goto"),
        }
    }

    fn continue_statement(&mut self, node: Node<'t>, context: &mut Context<'_, 't>) -> String {
        let around = context.around.iter_mut().rev().find(|around| !matches!(around, Around::Switch));
        match around {
            Some(Around::Batch) => format!("goto {}done;", self.labels_begin),
            Some(Around::Loop(Some((label, used)))) => {
                *used = true;
                format!("goto {label};")
            }
            _ => self.unit.text(node).to_owned(),
        }
    }

    fn return_statement(&mut self, node: Node<'t>, context: &mut Context<'_, 't>) -> Pass<String> {
        let mut before = String::new();
        let value = match node.named_child(0) {
            Some(value) => Some(self.hoisted(value, context, &mut before)?),
            None => None,
        };
        let Some(returns) = &mut context.returns else {
            return refuse(node.start_byte(), "return inside the batch loop");
        };
        let value = match (&returns.result, value) {
            (Some(result), Some(value)) => format!("{result} = {value};"),
            (None, Some(value)) => format!("{value};"),
            (_, None) => String::new(),
        };
        if returns.last == Some(node.id()) {
            return Ok(format!("{{ {before}{value} }}"));
        }
        returns.used = true;
        Ok(format!("{{ {before}{value} goto {}; }}", returns.label))
    }

    /// Returns the new name of a label. Each copy has separate labels, because a function has a
    /// single name space of labels.
    fn label_text(&self, label: &str, context: &Context<'_, '_>) -> String {
        format!("{}{label}_{}", self.labels_begin, context.copy)
    }
}

fn is_statement(node: Node<'_>) -> bool {
    node.kind().ends_with("_statement") || node.kind() == "declaration"
}
