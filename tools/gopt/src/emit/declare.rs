//! Declarations of variables: those in the state of a lookup, and all others.

use tree_sitter::Node;

use crate::lexer::tokens;
use crate::refusal::{Pass, refuse};
use crate::unit::{Variable, bare, children, declarators, declared_name, declares_function, find, walk};

use super::live::declared;
use super::{Binding, Context, Emitter, Entry, Moved, changed, type_key};

impl<'t> Emitter<'_, 't> {
    pub(super) fn declaration(&mut self, node: Node<'t>, context: &mut Context<'_, 't>) -> Pass<String> {
        self.declarable(node)?;
        if self.unit.has_word(node, "static") {
            return self.renamed(node, context);
        }
        let all = declarators(node);
        // With several declarators, the initialiser of one may switch while another exists.
        let moves = self.moves(node, context) || all.len() > 1 && self.switches(node, context);
        if !moves && !self.switches(node, context) {
            return self.renamed(node, context);
        }
        let mut text = String::new();
        for declarator in all {
            if moves {
                let (mark, moved) = self.moved(node, declarator, context, ";")?;
                text = mark + &text + &moved;
            } else {
                text += &self.unmoved(node, declarator, context)?;
            }
        }
        let text = text.trim_end();
        // The result is a statement, so that a label can precede it.
        Ok(if text.ends_with([';', '}']) { text.to_owned() } else { format!("{text};") })
    }

    /// Writes the declaration in the head of a `for`. Either all of its variables move or none.
    /// Statements that must precede the loop go to `before`.
    pub(super) fn for_declaration(
        &mut self,
        node: Node<'t>,
        context: &mut Context<'_, 't>,
        before: &mut String,
    ) -> Pass<String> {
        self.declarable(node)?;
        if self.switches(node, context) {
            return refuse(
                node.start_byte(),
                "a call with expensive accesses in the head of a for loop: move it before the loop",
            );
        }
        let all = declarators(node);
        if !self.moves(node, context) {
            return Ok(self.renamed(node, context)?.trim_end_matches(';').to_owned());
        }
        let mut parts = Vec::new();
        for declarator in all {
            let (mark, text) = self.moved(node, declarator, context, "")?;
            before.push_str(&mark);
            if !text.trim().is_empty() {
                parts.push(text.trim().to_owned());
            }
        }
        Ok(parts.join(", "))
    }

    /// Returns whether a variable exists at a switch.
    fn moves(&self, declaration: Node<'t>, context: &Context<'_, 't>) -> bool {
        let mut block = declaration.parent().unwrap_or(context.region);
        while !matches!(block.kind(), "compound_statement" | "for_statement") {
            match block.parent() {
                Some(parent) => block = parent,
                None => break,
            }
        }
        // A backward goto can reach the variable through a pointer before its declaration.
        let from = if context.function.has_labels { block.start_byte() } else { declaration.end_byte() };
        self.reach.switch_in(&context.function.name, from, block.end_byte())
    }

    fn declarable(&self, node: Node<'t>) -> Pass<()> {
        let at = node.start_byte();
        if find(node, "field_declaration_list").is_some() || find(node, "enumerator_list").is_some() {
            return refuse(at, "a type is declared inside the lookup: declare it before the function");
        }
        if self.unit.has_word(node, "extern")
            || self.unit.has_word(node, "_Thread_local")
            || self.unit.has_word(node, "__thread")
        {
            return refuse(at, "a declaration of something other than a local variable");
        }
        let specifiers = self.unit.specifiers(node);
        let words = tokens(&specifiers);
        if words.iter().any(|word| word.text.contains("typeof") || word.text == "__auto_type")
            || find(node, "macro_type_specifier").is_some()
        {
            return refuse(at, "a type that depends on an expression: use the name of the type");
        }
        for declarator in declarators(node) {
            if declares_function(bare(declarator)) {
                return refuse(at, "a function is declared inside the lookup: declare it before the function");
            }
        }
        Ok(())
    }

    /// Writes a declaration unchanged, or with new names in an inlined copy of a function.
    fn renamed(&mut self, node: Node<'t>, context: &mut Context<'_, 't>) -> Pass<String> {
        for declarator in declarators(node) {
            let Some(name) = declared_name(declarator) else { continue };
            self.fixed_size(bare(declarator), context)?;
            let binding = self.local(self.unit.text(name), context);
            self.bind(node, declarator, context, binding);
        }
        self.expression(node, context)
    }

    /// Returns the form of a local variable that does not exist at a switch.
    fn local(&mut self, name: &'t str, context: &Context<'_, 't>) -> Binding {
        if context.copy == 0 {
            self.kept.insert(name);
            return Binding::Kept;
        }
        Binding::Renamed(self.fresh(&format!("{name}_{}", context.copy)))
    }

    fn bind(&mut self, declaration: Node<'t>, declarator: Node<'t>, context: &mut Context<'_, 't>, binding: Binding) {
        let Some(name) = declared_name(declarator) else { return };
        let name = self.unit.text(name);
        // A const variable never changes, even if its address is taken.
        let pointer = find(declarator, "pointer_declarator").is_some();
        let constant = !pointer && self.unit.has_word(declaration, "const");
        let steady = declarator.kind() == "init_declarator" && (constant || !changed(self.unit, context.region, name));
        let type_key = type_key(self.unit, Variable { declaration, declarator: bare(declarator) });
        if let Some(scope) = context.scopes.last_mut() {
            scope.insert(name, Entry::new(binding, type_key, steady));
        }
    }

    /// Writes a variable that exists at a switch. Its initialiser becomes an assignment. Returns
    /// the marker of the declaration, and the assignment.
    fn moved(
        &mut self,
        declaration: Node<'t>,
        declarator: Node<'t>,
        context: &mut Context<'_, 't>,
        end: &str,
    ) -> Pass<(String, String)> {
        let Some(name) = declared_name(declarator) else {
            return refuse(declarator.start_byte(), "a declaration without a name");
        };
        self.fixed_size(bare(declarator), context)?;
        let base = self.unit.text(name);
        let variable = Variable { declaration, declarator: bare(declarator) };
        let (binding, mark) = self.lasting(base, variable, context)?;
        let target = Entry::new(binding.clone(), String::new(), false).text(base);
        let value = declarator.child_by_field_name("value").filter(|_| declarator.kind() == "init_declarator");
        // A variable is in scope from its initialiser, which may name it: sizeof(*x).
        self.bind(declaration, declarator, context, binding);
        let Some(value) = value else { return Ok((mark, String::new())) };
        let mut before = String::new();
        let array = bare(declarator).kind() == "array_declarator";
        let text = self.hoisted(value, context, &mut before)?;
        if !before.is_empty() && end.is_empty() {
            return refuse(
                value.start_byte(),
                "a call with expensive accesses in the head of a for loop: move it before the loop",
            );
        }
        let assignment = if array {
            let literal = if value.kind() == "initializer_list" { text } else { format!("{{{text}}}") };
            format!("__builtin_memcpy({target}, (__typeof__({target})){literal}, sizeof({target})){end}")
        } else if value.kind() == "initializer_list" {
            format!("{target} = (__typeof__({target})){text}{end}")
        } else {
            format!("{target} = {text}{end}")
        };
        let repeatable = before.is_empty() && !array && self.is_repeatable(value, context);
        if repeatable && context.entry(base).is_some_and(|entry| entry.steady) {
            self.set_recomputation(&target, &assignment);
        }
        let text = if before.is_empty() { format!("{assignment} ") } else { format!("{{ {before}{assignment} }} ") };
        Ok((mark, text))
    }

    /// Adds a variable that exists at a switch. Returns its form and the marker of its declaration.
    pub(super) fn lasting(
        &mut self,
        base: &str,
        variable: Variable<'t>,
        context: &Context<'_, 't>,
    ) -> Pass<(Binding, String)> {
        if self.addresses.is_fixed(context.region, base, variable) {
            let member = self.member(base, context);
            let text = self.retyped(variable.declaration, variable.declarator, &member)?;
            self.members.push(format!("{text};"));
            return Ok((Binding::Member(member), String::new()));
        }
        let name = self.fresh(&format!("{base}_{}", context.copy));
        let declaration = self.retyped(variable.declaration, variable.declarator, &name)?;
        self.moved.push(Moved { name: name.clone(), declaration, recompute: None });
        let mark = declared(&name);
        Ok((Binding::Moved(name), mark))
    }

    /// Stores the assignment that recomputes a moved variable.
    pub(super) fn set_recomputation(&mut self, name: &str, assignment: &str) {
        if let Some(moved) = self.moved.iter_mut().find(|moved| moved.name == name) {
            moved.recompute = Some(assignment.trim_end_matches(';').to_owned());
        }
    }

    /// Writes a local variable that does not exist at a switch, but whose initialiser needs
    /// statements.
    fn unmoved(&mut self, declaration: Node<'t>, declarator: Node<'t>, context: &mut Context<'_, 't>) -> Pass<String> {
        let Some(name) = declared_name(declarator) else {
            return refuse(declarator.start_byte(), "a declaration without a name");
        };
        let Some(value) = declarator.child_by_field_name("value") else {
            return refuse(declarator.start_byte(), "a declaration without a value");
        };
        if bare(declarator).kind() == "array_declarator" || value.kind() == "initializer_list" {
            return refuse(
                value.start_byte(),
                "a call with expensive accesses in an initialiser list: store its value in a variable before",
            );
        }
        let base = self.unit.text(name);
        let binding = self.local(base, context);
        let entry = Entry::new(binding.clone(), String::new(), false);
        let text = entry.text(base);
        let written = self.retyped(declaration, bare(declarator), &text)?;
        self.bind(declaration, declarator, context, binding);
        let mut before = String::new();
        let value = self.hoisted(value, context, &mut before)?;
        Ok(format!("{written}; {{ {before}{text} = {value}; }} "))
    }

    /// Returns the name of a new member.
    fn member(&mut self, base: &str, context: &Context<'_, 't>) -> String {
        let requested = if context.copy == 0 { base.to_owned() } else { format!("{base}_{}", context.copy) };
        let taken = |name: &str| self.members.iter().any(|one| tokens(one).iter().any(|token| token.text == name));
        let mut member = requested.clone();
        let mut number = 1;
        while taken(&member) || self.unit.source.macros.has(&member) {
            number += 1;
            member = format!("{requested}_{number}");
        }
        member
    }

    /// Returns a declaration of the same type under another name. The new variable can be assigned.
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
            return refuse(declarator.start_byte(), "an array without its size: write the size");
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

    /// Refuses an array of variable length.
    fn fixed_size(&self, declarator: Node<'t>, context: &Context<'_, 't>) -> Pass<()> {
        let mut fault = Ok(());
        walk(declarator, &mut |node| {
            let size = (node.kind() == "array_declarator").then(|| node.child_by_field_name("size")).flatten();
            if let Some(size) = size {
                let variable = |name: &str| context.entry(name).is_some() || self.unit.globals.contains_key(name);
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

/// Returns the pointer declarator whose qualifiers apply to the variable itself.
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
