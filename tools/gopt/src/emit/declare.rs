//! Declarations: of variables that are part of the state, and of those that are not.

use tree_sitter::Node;

use crate::lexer::tokens;
use crate::refusal::{Pass, refuse};
use crate::unit::{Variable, bare, children, declarators, declared_name, declares_function, find, walk};

use super::live::declared;
use super::{Binding, Emitter, Entry, Moved, Place, changed, type_key};

impl<'t> Emitter<'_, 't> {
    pub(super) fn declaration(&mut self, node: Node<'t>, place: &mut Place<'_, 't>) -> Pass<String> {
        self.declarable(node)?;
        if self.unit.has_word(node, "static") {
            return self.renamed(node, place);
        }
        let all = declarators(node);
        // With several, one's initialiser may switch while another exists.
        let moves = self.moves(node, place) || all.len() > 1 && self.switches(node, place);
        if !moves && !self.switches(node, place) {
            return self.renamed(node, place);
        }
        let mut text = String::new();
        for declarator in all {
            if moves {
                let (mark, moved) = self.moved(node, declarator, place, ";")?;
                text = mark + &text + &moved;
            } else {
                text += &self.unmoved(node, declarator, place)?;
            }
        }
        let text = text.trim_end();
        // A statement, so that a label can stand before it.
        Ok(if text.ends_with([';', '}']) { text.to_owned() } else { format!("{text};") })
    }

    /// The head of a `for` that declares: all of it moves, or none. What has to stand before it goes to `before`.
    pub(super) fn for_declaration(
        &mut self,
        node: Node<'t>,
        place: &mut Place<'_, 't>,
        before: &mut String,
    ) -> Pass<String> {
        self.declarable(node)?;
        if self.switches(node, place) {
            return refuse(
                node.start_byte(),
                "a call with expensive accesses in the head of a for loop: move it before",
            );
        }
        let all = declarators(node);
        if !self.moves(node, place) {
            return Ok(self.renamed(node, place)?.trim_end_matches(';').to_owned());
        }
        let mut parts = Vec::new();
        for declarator in all {
            let (mark, text) = self.moved(node, declarator, place, "")?;
            before.push_str(&mark);
            if !text.trim().is_empty() {
                parts.push(text.trim().to_owned());
            }
        }
        Ok(parts.join(", "))
    }

    /// The variable exists where look-ups switch.
    fn moves(&self, declaration: Node<'t>, place: &Place<'_, 't>) -> bool {
        let mut block = declaration.parent().unwrap_or(place.region);
        while !matches!(block.kind(), "compound_statement" | "for_statement") {
            match block.parent() {
                Some(parent) => block = parent,
                None => break,
            }
        }
        // A goto back lets a pointer meet a variable again before its declaration.
        let from = if place.function.has_labels { block.start_byte() } else { declaration.end_byte() };
        self.reach.switch_in(&place.function.name, from, block.end_byte())
    }

    fn declarable(&self, node: Node<'t>) -> Pass<()> {
        let at = node.start_byte();
        if find(node, "field_declaration_list").is_some() || find(node, "enumerator_list").is_some() {
            return refuse(at, "a type is declared inside the look-up: declare it before the function");
        }
        if self.unit.has_word(node, "extern")
            || self.unit.has_word(node, "_Thread_local")
            || self.unit.has_word(node, "__thread")
        {
            return refuse(at, "a declaration of something that is no local variable");
        }
        let specifiers = self.unit.specifiers(node);
        let words = tokens(&specifiers);
        if words.iter().any(|word| word.text.contains("typeof") || word.text == "__auto_type")
            || find(node, "macro_type_specifier").is_some()
        {
            return refuse(at, "a type that depends on an expression: name it");
        }
        for declarator in declarators(node) {
            if declares_function(bare(declarator)) {
                return refuse(at, "a function is declared inside the look-up");
            }
        }
        Ok(())
    }

    /// A declaration as it stands; in a copy of a function, under names of the copy's own.
    fn renamed(&mut self, node: Node<'t>, place: &mut Place<'_, 't>) -> Pass<String> {
        for declarator in declarators(node) {
            let Some(name) = declared_name(declarator) else { continue };
            self.fixed_size(bare(declarator), place)?;
            let binding = self.local(self.unit.text(name), place);
            self.bind(node, declarator, place, binding);
        }
        self.expression(node, place)
    }

    /// What a local within one turn is called.
    fn local(&mut self, name: &'t str, place: &Place<'_, 't>) -> Binding {
        if place.copy == 0 {
            self.kept.insert(name);
            return Binding::Kept;
        }
        Binding::Renamed(self.fresh(&format!("{name}_{}", place.copy)))
    }

    fn bind(&mut self, declaration: Node<'t>, declarator: Node<'t>, place: &mut Place<'_, 't>, binding: Binding) {
        let Some(name) = declared_name(declarator) else { return };
        let name = self.unit.text(name);
        // What is declared const never changes, whoever has its address.
        let pointer = find(declarator, "pointer_declarator").is_some();
        let constant = !pointer && self.unit.has_word(declaration, "const");
        let steady = declarator.kind() == "init_declarator" && (constant || !changed(self.unit, place.region, name));
        let type_key = type_key(self.unit, Variable { declaration, declarator: bare(declarator) });
        if let Some(scope) = place.scopes.last_mut() {
            scope.insert(name, Entry::new(binding, type_key, steady));
        }
    }

    /// A variable that exists where look-ups switch: its initialiser becomes an assignment. The mark of its declaration,
    /// and that.
    fn moved(
        &mut self,
        declaration: Node<'t>,
        declarator: Node<'t>,
        place: &mut Place<'_, 't>,
        end: &str,
    ) -> Pass<(String, String)> {
        let Some(name) = declared_name(declarator) else {
            return refuse(declarator.start_byte(), "a declaration without a name");
        };
        self.fixed_size(bare(declarator), place)?;
        let base = self.unit.text(name);
        let variable = Variable { declaration, declarator: bare(declarator) };
        let (binding, mark) = self.lasting(base, variable, place)?;
        let target = Entry::new(binding.clone(), String::new(), false).text(base);
        let value = declarator.child_by_field_name("value").filter(|_| declarator.kind() == "init_declarator");
        // In scope from its own initialiser on, which may name it: sizeof(*x).
        self.bind(declaration, declarator, place, binding);
        let Some(value) = value else { return Ok((mark, String::new())) };
        let mut before = String::new();
        let array = bare(declarator).kind() == "array_declarator";
        let text = self.hoisted(value, place, &mut before)?;
        if !before.is_empty() && end.is_empty() {
            return refuse(value.start_byte(), "a call with expensive accesses in the head of a for loop");
        }
        let assignment = if array {
            let literal = if value.kind() == "initializer_list" { text } else { format!("{{{text}}}") };
            format!("__builtin_memcpy({target}, (__typeof__({target})){literal}, sizeof({target})){end}")
        } else if value.kind() == "initializer_list" {
            format!("{target} = (__typeof__({target})){text}{end}")
        } else {
            format!("{target} = {text}{end}")
        };
        let again = before.is_empty() && !array && self.same_again(value, place);
        if again && place.entry(base).is_some_and(|entry| entry.steady) {
            self.set_again(&target, &assignment);
        }
        let text = if before.is_empty() { format!("{assignment} ") } else { format!("{{ {before}{assignment} }} ") };
        Ok((mark, text))
    }

    /// Room for a variable that exists where look-ups switch, and the mark of its declaration.
    pub(super) fn lasting(
        &mut self,
        base: &str,
        variable: Variable<'t>,
        place: &Place<'_, 't>,
    ) -> Pass<(Binding, String)> {
        if self.addresses.keeps(place.region, base, variable) {
            let member = self.member(base, place);
            let text = self.retyped(variable.declaration, variable.declarator, &member)?;
            self.members.push(format!("{text};"));
            return Ok((Binding::Member(member), String::new()));
        }
        let name = self.fresh(&format!("{base}_{}", place.copy));
        let declaration = self.retyped(variable.declaration, variable.declarator, &name)?;
        self.moved.push(Moved { name: name.clone(), declaration, again: None });
        let mark = declared(&name);
        Ok((Binding::Moved(name), mark))
    }

    /// Says how a moved variable can be set again.
    pub(super) fn set_again(&mut self, name: &str, assignment: &str) {
        if let Some(moved) = self.moved.iter_mut().find(|moved| moved.name == name) {
            moved.again = Some(assignment.trim_end_matches(';').to_owned());
        }
    }

    /// A local variable whose initialiser has to be computed by statements.
    fn unmoved(&mut self, declaration: Node<'t>, declarator: Node<'t>, place: &mut Place<'_, 't>) -> Pass<String> {
        let Some(name) = declared_name(declarator) else {
            return refuse(declarator.start_byte(), "a declaration without a name");
        };
        let Some(value) = declarator.child_by_field_name("value") else {
            return refuse(declarator.start_byte(), "a declaration without a value");
        };
        if bare(declarator).kind() == "array_declarator" || value.kind() == "initializer_list" {
            return refuse(
                value.start_byte(),
                "a call with expensive accesses in a list of values: store its value before",
            );
        }
        let base = self.unit.text(name);
        let binding = self.local(base, place);
        let entry = Entry::new(binding.clone(), String::new(), false);
        let text = entry.text(base);
        let written = self.retyped(declaration, bare(declarator), &text)?;
        self.bind(declaration, declarator, place, binding);
        let mut before = String::new();
        let value = self.hoisted(value, place, &mut before)?;
        Ok(format!("{written}; {{ {before}{text} = {value}; }} "))
    }

    /// The name of a new member.
    fn member(&mut self, base: &str, place: &Place<'_, 't>) -> String {
        let wanted = if place.copy == 0 { base.to_owned() } else { format!("{base}_{}", place.copy) };
        let taken = |name: &str| self.members.iter().any(|one| tokens(one).iter().any(|token| token.text == name));
        let mut member = wanted.clone();
        let mut number = 1;
        while taken(&member) || self.unit.source.macros.has(&member) {
            number += 1;
            member = format!("{wanted}_{number}");
        }
        member
    }

    /// A declaration of the same type, but assignable, under another name.
    pub(super) fn retyped(&self, declaration: Node<'t>, declarator: Node<'t>, name: &str) -> Pass<String> {
        let unit = self.unit;
        let pointer = find(declarator, "pointer_declarator").is_some();
        let parameter = declaration.kind() == "parameter_declaration";
        let array = declarator.kind() == "array_declarator";
        let specifiers = if pointer || parameter && array {
            unit.pointee_specifiers(declaration)
        } else {
            unit.specifiers(declaration)
        };
        if parameter && array {
            let inner = declarator.child_by_field_name("declarator");
            if inner.is_none_or(|inner| inner.kind() != "identifier") {
                return refuse(declarator.start_byte(), "an array of arrays as a parameter: declare it as a pointer");
            }
            return Ok(format!("{specifiers} *{name}"));
        }
        if array && declarator.child_by_field_name("size").is_none() {
            return refuse(declarator.start_byte(), "an array without its size: write the size down");
        }
        let innermost = innermost_pointer(declarator);
        let mut text = String::new();
        let mut at = declarator.start_byte();
        let mut copy = |to: usize, from: usize, with: &str| {
            text.push_str(&unit.source.plain[at..to]);
            text.push_str(with);
            at = from;
        };
        walk(declarator, &mut |node| {
            let qualifier = node.kind() == "type_qualifier";
            let outer = qualifier && node.parent() == innermost;
            let restrict = qualifier && unit.text(node).contains("restrict");
            if outer || restrict {
                copy(node.start_byte(), node.end_byte(), "");
            } else if node.kind() == "identifier" && Some(node) == declared_name(declarator) {
                copy(node.start_byte(), node.end_byte(), name);
            }
            !qualifier
        });
        text.push_str(&unit.source.plain[at..declarator.end_byte()]);
        Ok(format!("{specifiers} {text}"))
    }

    /// Refuses an array whose size is known at run time only.
    fn fixed_size(&self, declarator: Node<'t>, place: &Place<'_, 't>) -> Pass<()> {
        let mut fault = Ok(());
        walk(declarator, &mut |node| {
            let size = (node.kind() == "array_declarator").then(|| node.child_by_field_name("size")).flatten();
            if let Some(size) = size {
                let variable = |name: &str| place.entry(name).is_some() || self.unit.globals.contains_key(name);
                walk(size, &mut |inner| {
                    if inner.kind() == "sizeof_expression" {
                        return false;
                    }
                    let name = (inner.kind() == "identifier").then(|| self.unit.text(inner));
                    let hidden = |name: &str| self.unit.source.macros.mentions(name).iter().any(|word| variable(word));
                    if name.is_some_and(|name| variable(name) || hidden(name)) || inner.kind() == "call_expression" {
                        fault = refuse(inner.start_byte(), "an array of variable length");
                    }
                    fault.is_ok()
                });
            }
            fault.is_ok()
        });
        fault
    }
}

/// The pointer whose qualifiers are the variable's own.
fn innermost_pointer(declarator: Node<'_>) -> Option<Node<'_>> {
    let mut found = None;
    let mut node = Some(declarator);
    while let Some(current) = node {
        match current.kind() {
            "pointer_declarator" => found = Some(current),
            "function_declarator" => found = None,
            _ => {}
        }
        node = current.child_by_field_name("declarator").or_else(|| {
            let wraps = current.kind() == "parenthesized_declarator";
            children(current)
                .find(|child| wraps && (child.kind().ends_with("declarator") || child.kind() == "identifier"))
        });
    }
    found
}
