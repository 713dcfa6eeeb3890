//! Statements, one function per kind.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tree_sitter::Node;

use crate::refusal::{Pass, refuse};
use crate::unit::children;

use super::{Around, Emitter, Place, live};

impl<'t> Emitter<'_, 't> {
    /// A statement; always one, so that it can stand under an `if`.
    pub(super) fn statement(&mut self, node: Node<'t>, place: &mut Place<'_, 't>) -> Pass<String> {
        match node.kind() {
            "compound_statement" => self.block(node, place),
            "expression_statement" => self.expression_statement(node, place),
            "declaration" => self.declaration(node, place),
            "if_statement" => self.if_statement(node, place),
            "else_clause" => self.assemble(node, |emitter, child| {
                if child.is_named() { emitter.statement(child, place) } else { Ok(emitter.unit.text(child).to_owned()) }
            }),
            "while_statement" => self.while_statement(node, place),
            "do_statement" => self.do_statement(node, place),
            "for_statement" => self.for_statement(node, place),
            "switch_statement" => self.switch_statement(node, place),
            "case_statement" => self.case_statement(node, place),
            "labeled_statement" => self.labeled_statement(node, place),
            "goto_statement" => self.goto_statement(node, place),
            "return_statement" => self.return_statement(node, place),
            "break_statement" => Ok(self.unit.text(node).to_owned()),
            "continue_statement" => Ok(self.continue_statement(node, place)),
            "attributed_statement" if self.unit.text(node).contains("fallthrough") => {
                Ok(self.unit.text(node).to_owned())
            }
            kind => {
                refuse(node.start_byte(), format!("gopt does not know what to do with a {}", kind.replace('_', " ")))
            }
        }
    }

    pub(super) fn block(&mut self, node: Node<'t>, place: &mut Place<'_, 't>) -> Pass<String> {
        place.scopes.push(BTreeMap::new());
        let text = self.sequence(node, place);
        place.scopes.pop();
        text
    }

    /// Statements one after another; annotations next to each other become one switch.
    fn sequence(&mut self, node: Node<'t>, place: &mut Place<'_, 't>) -> Pass<String> {
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
                    _ if label => self.expression(child, place)?,
                    _ if child.is_named() => self.statement(child, place)?,
                    _ => unit.text(child).to_owned(),
                };
                at = child.end_byte();
                index += 1;
            } else {
                text += &self.switch(&calls, place)?;
                index += calls.len();
                at = all[index - 1].end_byte();
            }
        }
        text.push_str(&unit.source.plain[at..node.end_byte()]);
        Ok(text)
    }

    /// Prefetch, save where to go on, switch.
    fn switch(&mut self, calls: &[Node<'t>], place: &mut Place<'_, 't>) -> Pass<String> {
        let mut text = String::from("{ ");
        for call in calls {
            let list = call.child_by_field_name("arguments");
            let Some(address) = list.and_then(|list| list.named_child(0)) else {
                return refuse(call.start_byte(), "an annotation takes one address");
            };
            write!(text, "GOPT_PREFETCH({}); ", self.expression(address, place)?).expect("writing to a String");
        }
        self.switches += 1;
        Ok(text + &live::switch(self.switches) + " }")
    }

    fn expression_statement(&mut self, node: Node<'t>, place: &mut Place<'_, 't>) -> Pass<String> {
        if let Some(call) = self.unit.annotation(node) {
            return self.switch(&[call], place);
        }
        let Some(expression) = node.named_child(0).filter(|_| self.switches(node, place)) else {
            return self.expression(node, place);
        };
        let mut before = String::new();
        let text = self.hoisted(expression, place, &mut before)?;
        let is_call = self.unit.callee(expression).is_some_and(|name| self.reach.expensive.contains(name));
        Ok(if is_call { format!("{{ {before}}}") } else { format!("{{ {before}{text}; }}") })
    }

    /// Look-ups switch somewhere in this part of the text.
    pub(super) fn switches(&self, node: Node<'t>, place: &Place<'_, 't>) -> bool {
        self.reach.switch_in(&place.function.name, node.start_byte(), node.end_byte())
    }

    /// A condition in parentheses; what has to come before it goes to `before`.
    fn condition(&mut self, node: Node<'t>, place: &mut Place<'_, 't>, before: &mut String) -> Pass<String> {
        let Some(condition) = node.child_by_field_name("condition") else {
            return refuse(node.start_byte(), "a statement without its condition");
        };
        self.hoisted(condition, place, before)
    }

    fn if_statement(&mut self, node: Node<'t>, place: &mut Place<'_, 't>) -> Pass<String> {
        let mut before = String::new();
        let condition = node.child_by_field_name("condition");
        let text = self.assemble(node, |emitter, child| match child {
            child if Some(child) == condition => emitter.condition(node, place, &mut before),
            child if child.is_named() => emitter.statement(child, place),
            child => Ok(emitter.unit.text(child).to_owned()),
        })?;
        Ok(if before.is_empty() { text } else { format!("{{ {before}{text} }}") })
    }

    fn body(
        &mut self,
        node: Node<'t>,
        place: &mut Place<'_, 't>,
        around: Around,
    ) -> Pass<(String, Option<(String, bool)>)> {
        let Some(body) = node.child_by_field_name("body") else {
            return refuse(node.start_byte(), "a loop without a body");
        };
        place.around.push(around);
        let text = self.statement(body, place);
        let label = match place.around.pop() {
            Some(Around::Loop(label)) => label,
            _ => None,
        };
        Ok((text?, label))
    }

    fn while_statement(&mut self, node: Node<'t>, place: &mut Place<'_, 't>) -> Pass<String> {
        let mut before = String::new();
        let condition = self.condition(node, place, &mut before)?;
        let (body, _) = self.body(node, place, Around::Loop(None))?;
        Ok(live::again(&if before.is_empty() {
            format!("while {condition} {body}")
        } else {
            format!("for (;;) {{ {before}if (!{condition}) {{ break; }} {body} }}")
        }))
    }

    fn do_statement(&mut self, node: Node<'t>, place: &mut Place<'_, 't>) -> Pass<String> {
        let hoists = node.child_by_field_name("condition").is_some_and(|condition| self.switches(condition, place));
        let label = hoists.then(|| {
            self.labels += 1;
            (format!("{}next_{}", self.labels_begin, self.labels), false)
        });
        let (body, label) = self.body(node, place, Around::Loop(label))?;
        let mut before = String::new();
        let condition = self.condition(node, place, &mut before)?;
        if before.is_empty() {
            return Ok(live::again(&format!("do {body} while {condition};")));
        }
        let label = label.filter(|(_, used)| *used).map_or_else(String::new, |(label, _)| format!("{label}:; "));
        Ok(live::again(&format!("for (;;) {{ {body} {label}{before}if (!{condition}) {{ break; }} }}")))
    }

    fn for_statement(&mut self, node: Node<'t>, place: &mut Place<'_, 't>) -> Pass<String> {
        place.scopes.push(BTreeMap::new());
        let text = self.for_in_scope(node, place);
        place.scopes.pop();
        text
    }

    fn for_in_scope(&mut self, node: Node<'t>, place: &mut Place<'_, 't>) -> Pass<String> {
        let (mut marks, mut around, mut before) = (String::new(), String::new(), String::new());
        let first = match node.child_by_field_name("initializer") {
            Some(first) if first.kind() == "declaration" => self.for_declaration(first, place, &mut marks)?,
            Some(first) => self.hoisted(first, place, &mut around)?,
            None => String::new(),
        };
        let condition = match node.child_by_field_name("condition") {
            Some(condition) => self.hoisted(condition, place, &mut before)?,
            None => String::new(),
        };
        let step = match node.child_by_field_name("update") {
            Some(step) if self.switches(step, place) => {
                return refuse(
                    step.start_byte(),
                    "a call with expensive accesses in the step of a for loop: move it to the end of its body",
                );
            }
            Some(step) => self.expression(step, place)?,
            None => String::new(),
        };
        let (body, _) = self.body(node, place, Around::Loop(None))?;
        let text = if before.is_empty() {
            format!("for ({first}; {condition}; {step}) {body}")
        } else {
            format!("for ({first}; ; {step}) {{ {before}if (!({condition})) {{ break; }} {body} }}")
        };
        let text = marks + &live::again(&text);
        Ok(if around.is_empty() { text } else { format!("{{ {around}{text} }}") })
    }

    fn switch_statement(&mut self, node: Node<'t>, place: &mut Place<'_, 't>) -> Pass<String> {
        let mut before = String::new();
        let condition = self.condition(node, place, &mut before)?;
        let (body, _) = self.body(node, place, Around::Switch)?;
        Ok(if before.is_empty() {
            format!("switch {condition} {body}")
        } else {
            format!("{{ {before}switch {condition} {body} }}")
        })
    }

    /// A `case` and what stands behind it, which belongs to the block around.
    fn case_statement(&mut self, node: Node<'t>, place: &mut Place<'_, 't>) -> Pass<String> {
        self.sequence(node, place)
    }

    fn labeled_statement(&mut self, node: Node<'t>, place: &mut Place<'_, 't>) -> Pass<String> {
        let label = node.child_by_field_name("label");
        self.assemble(node, |emitter, child| match child {
            child if Some(child) == label => Ok(emitter.label_text(emitter.unit.text(child), place)),
            child if child.is_named() => emitter.statement(child, place),
            child => Ok(emitter.unit.text(child).to_owned()),
        })
    }

    fn goto_statement(&mut self, node: Node<'t>, place: &mut Place<'_, 't>) -> Pass<String> {
        match node.child_by_field_name("label") {
            Some(label) if label.kind() == "statement_identifier" => {
                Ok(format!("goto {};", self.label_text(self.unit.text(label), place)))
            }
            _ => refuse(node.start_byte(), "a computed goto"),
        }
    }

    fn continue_statement(&mut self, node: Node<'t>, place: &mut Place<'_, 't>) -> String {
        let around = place.around.iter_mut().rev().find(|around| !matches!(around, Around::Switch));
        match around {
            Some(Around::Batch) => format!("goto {}done;", self.labels_begin),
            Some(Around::Loop(Some((label, used)))) => {
                *used = true;
                format!("goto {label};")
            }
            _ => self.unit.text(node).to_owned(),
        }
    }

    fn return_statement(&mut self, node: Node<'t>, place: &mut Place<'_, 't>) -> Pass<String> {
        let mut before = String::new();
        let value = match node.named_child(0) {
            Some(value) => Some(self.hoisted(value, place, &mut before)?),
            None => None,
        };
        let Some(returns) = &mut place.returns else {
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

    /// Labels are one name space per function: every copy has its own.
    fn label_text(&self, label: &str, place: &Place<'_, '_>) -> String {
        format!("{}{label}_{}", self.labels_begin, place.copy)
    }
}

fn is_statement(node: Node<'_>) -> bool {
    node.kind().ends_with("_statement") || node.kind() == "declaration"
}
