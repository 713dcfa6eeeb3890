//! Variable declarations, in the state of a lookup and elsewhere.

use super::live;
use super::serial::{Part, RING};
use super::{Binding, Context, Emitter, Entry, Moved, changed};
use crate::error::{Pass, refuse};
use crate::syntax::Unit;
use crate::syntax::ast::{DeclId, DeclKind, DeclStmt, Expr, ExprKind, Initializer, Span, Stmt, Storage};
use crate::syntax::types::{Kind, Type};
use crate::syntax::walk::{self, Node};

impl<'u> Emitter<'u> {
    /// Writes a declaration statement.
    pub(super) fn declaration(
        &mut self,
        node: &'u Stmt,
        declared: &'u DeclStmt,
        context: &mut Context<'u>,
    ) -> Pass<String> {
        let names = self.declared_names(node, declared, context)?;
        let bound = context.bound.take();
        let switches = self.switches(node.span, context);
        // If the declaration has several names, one initialiser may switch while another variable
        // exists.
        let moves = self.moves(node.span, context) || names.len() > 1 && switches;
        if !moves && !switches && !defines_type(declared, node.span) {
            return self.kept(node.span, &names, context);
        }
        let mut text = String::new();
        for id in names {
            let kind = &self.unit.declaration(id).kind;
            let automatic = *kind == DeclKind::Variable(Storage::Automatic);
            let written = if !automatic {
                self.kept_alone(id, context)?
            } else if moves {
                self.moved(id, bound.as_deref(), context)?
            } else {
                self.unmoved(id, context)?
            };
            text += &written;
        }
        let text = text.trim_end();
        // The result is a statement, so that a label can precede it.
        Ok(if text.ends_with([';', '}']) { text.to_owned() } else { format!("{text};") })
    }

    /// Returns the declared variables. Types are declared before the loop.
    fn declared_names(
        &mut self,
        node: &'u Stmt,
        declared: &'u DeclStmt,
        context: &mut Context<'u>,
    ) -> Pass<Vec<DeclId>> {
        let at = node.span.first;
        for ty in &declared.types {
            self.hoist_type(ty, at, context)?;
        }
        let mut names = Vec::new();
        for id in &declared.names {
            let declaration = self.unit.declaration(*id);
            match declaration.kind {
                DeclKind::Typedef => {
                    let ty = declaration.ty.clone();
                    if !self.typedefs.contains_key(id) {
                        let name = self.fresh(&format!("gopt_{}", declaration.name));
                        let text = self.declared(&ty, &name, at, context)?;
                        self.hoisted.push(format!("typedef {text};"));
                        self.typedefs.insert(*id, name);
                    }
                }
                DeclKind::Variable(Storage::ThreadLocal) => {
                    return refuse(at, "a thread-local variable inside the lookup: declare it before the function");
                }
                _ => names.push(*id),
            }
        }
        Ok(names)
    }

    /// Declares a local type before the loop if the lookup defines it.
    fn hoist_type(&mut self, ty: &Type, at: usize, context: &Context<'u>) -> Pass<()> {
        match &*ty.kind {
            Kind::Record(record) if record.local && record.body.get().is_some() => {
                self.declared(ty, "", at, context).map(|_| ())
            }
            Kind::Enum(one) if one.local && !self.types.contains_key(&one.number) => {
                let Some(body) = one.body.get() else { return Ok(()) };
                let inside = context.copy > 0 || self.site.body.span.contains(body);
                if inside {
                    let name = self.fresh(&format!("gopt_{}", one.tag.as_deref().unwrap_or("type")));
                    self.types.insert(one.number, name.clone());
                    let constants = self.text(body, context)?;
                    self.hoisted.push(format!("enum {name} {{ {constants} }};"));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Writes the declaration in a `for` head. `before` receives the statements that must precede
    /// the loop.
    pub(super) fn for_declaration(
        &mut self,
        node: &'u Stmt,
        declared: &'u DeclStmt,
        context: &mut Context<'u>,
        before: &mut String,
    ) -> Pass<String> {
        let names = self.declared_names(node, declared, context)?;
        let switches = self.switches(node.span, context);
        if !self.moves(node.span, context) && !switches {
            return Ok(self.kept(node.span, &names, context)?.trim_end_matches(';').to_owned());
        }
        let mut parts = Vec::new();
        let mut simple = true;
        for id in names {
            let text = self.moved(id, None, context)?;
            let (marks, text) = live::split_marks(text.trim());
            before.push_str(marks);
            simple &= !text.contains('{') && text.matches(';').count() <= 1;
            parts.push(text.to_owned());
        }
        if simple {
            let parts: Vec<&str> =
                parts.iter().map(|part| part.trim_end_matches(';')).filter(|part| !part.is_empty()).collect();
            return Ok(parts.join(", "));
        }
        before.push_str(&parts.concat());
        Ok(String::new())
    }

    /// Returns whether a variable exists at a switch.
    fn moves(&self, declaration: Span, context: &Context<'u>) -> bool {
        let block = context.blocks.last().copied().unwrap_or(context.region.span);
        // A lookup waits at `#pragma gopt serial` as well.
        if self.serial == Part::Interleaved && block == self.site.body.span {
            return true;
        }
        // A backward goto can reach the variable through a pointer before its declaration.
        let from = if has_labels(context.region) { block.first } else { declaration.end };
        self.reach.count_in(context.function, Span { first: from, end: block.end }) > 0
    }

    /// Writes a declaration unchanged, or with new names.
    fn kept(&mut self, span: Span, names: &[DeclId], context: &mut Context<'u>) -> Pass<String> {
        for id in names {
            if self.unit.declaration(*id).is_variable() {
                let binding = self.local(*id, context);
                self.bind(*id, context, binding);
            }
        }
        self.text(span, context)
    }

    /// Writes the declaration of a single constant or function.
    fn kept_alone(&mut self, id: DeclId, context: &mut Context<'u>) -> Pass<String> {
        let declaration = self.unit.declaration(id);
        let at = declaration.token;
        let (ty, is_static) = (declaration.ty.clone(), declaration.kind == DeclKind::Variable(Storage::Static));
        if !is_static {
            return Ok(format!("extern {}; ", self.declared(&ty, &declaration.name.clone(), at, context)?));
        }
        let binding = self.local(id, context);
        self.bind(id, context, binding.clone());
        let name = Entry::new(binding, ty.clone(), true).text(&self.unit.declaration(id).name);
        let mut text = format!("static {}", self.declared(&ty, &name, at, context)?);
        if let Some(value) = &self.unit.declaration(id).initializer {
            text += &format!(" = {}", self.text(value.span(), context)?);
        }
        Ok(text + "; ")
    }

    /// Returns the form of a local variable that is not in scope at a switch.
    fn local(&mut self, id: DeclId, context: &Context<'u>) -> Binding {
        let name = &self.unit.declaration(id).name;
        // A name of the file may be used by an inlined function.
        if context.copy == 0 && self.unit.named(name).is_none() {
            return Binding::Kept;
        }
        Binding::Renamed(self.fresh(&format!("{name}_{}", context.copy)))
    }

    fn bind(&mut self, id: DeclId, context: &mut Context<'u>, binding: Binding) {
        let declaration = self.unit.declaration(id);
        // A const variable never changes, even if the program takes its address.
        let constant = declaration.ty.resolved().constant && !declaration.ty.is_array();
        let steady = declaration.initializer.is_some() && (constant || !changed(self.unit, context.region, id));
        context.names.insert(id, Entry::new(binding, declaration.ty.clone(), steady));
    }

    /// Writes a variable that is in scope at a switch. Its initialiser becomes an assignment.
    fn moved(&mut self, id: DeclId, bound: Option<&str>, context: &mut Context<'u>) -> Pass<String> {
        let declaration = self.unit.declaration(id);
        let ty = declaration.ty.clone();
        if let Some(size) = variable_size(self.unit, &declaration.ty) {
            return self.moved_rows(id, size, bound, context);
        }
        let (binding, mark) = self.lasting(id, context)?;
        let target = Entry::new(binding.clone(), ty.clone(), false).text(&declaration.name);
        // A variable is in scope from its initialiser, which may name it, as in sizeof(*x).
        self.bind(id, context, binding);
        let Some(value) = declaration.initializer.as_deref() else { return Ok(mark) };
        let mut before = String::new();
        let text = match value {
            Initializer::Expression(value) => self.hoisted(value, context, &mut before)?,
            Initializer::List(_) => self.list(value, context, &mut before)?,
        };
        let list = matches!(value, Initializer::List(_));
        let assignment = if ty.is_array() {
            let copy = self.fresh("gopt_copy");
            let declared = self.sized(id, &copy, context)?;
            format!("{{ {declared} = {text}; __builtin_memcpy(&{target}, &{copy}, sizeof({copy})); }}")
        } else if list && ty.record().is_none() {
            format!(
                "{target} = {};",
                text.trim_start_matches('{').trim_end_matches('}').trim_end().trim_end_matches(',')
            )
        } else if list {
            format!("{target} = (__typeof__({target})){text};")
        } else {
            format!("{target} = {text};")
        };
        let repeatable = before.is_empty() && !ty.is_array() && self.is_repeatable_initializer(value, context);
        if repeatable && context.names.get(&id).is_some_and(|entry| entry.steady) {
            self.set_recomputation(&target, &assignment);
        }
        let text = if before.is_empty() { format!("{assignment} ") } else { format!("{{ {before}{assignment} }} ") };
        Ok(mark + &text)
    }

    /// Writes a list in braces. Its expensive calls become statements in `before`.
    fn list(&mut self, value: &'u Initializer, context: &mut Context<'u>, before: &mut String) -> Pass<String> {
        let span = value.span();
        let single = self.reach.count_in(context.function, span) == 1;
        let mut text = String::new();
        let mut at = span.first;
        for part in value.expressions() {
            text += &self.text(Span { first: at, end: part.span.first }, context)?;
            if self.unit.expanded.spaced(part.span.first) {
                text.push(' ');
            }
            text += &self.lower(part, context, single, before)?;
            at = part.span.end;
        }
        Ok(text + &self.text(Span { first: at, end: span.end }, context)?)
    }

    /// Returns the declaration of an assignable variable. The initialiser may determine the size of
    /// an array.
    fn sized(&mut self, id: DeclId, name: &str, context: &Context<'u>) -> Pass<String> {
        let declaration = self.unit.declaration(id);
        let (ty, at) = (&declaration.ty, declaration.token);
        let elements = match declaration.initializer.as_deref() {
            Some(value) => count(ty, value, at, self.unit)?,
            None => None,
        };
        match (elements, ty.target()) {
            (Some(elements), Some(element)) => self.assignable(&element, &format!("{name}[{elements}]"), at, context),
            _ => self.assignable(ty, name, at, context),
        }
    }

    /// Adds a variable that is in scope at a switch. Returns its form and the marker of its
    /// declaration.
    pub(super) fn lasting(&mut self, id: DeclId, context: &mut Context<'u>) -> Pass<(Binding, String)> {
        let declaration = self.unit.declaration(id);
        let (base, at) = (declaration.name.clone(), declaration.token);
        let base = if base.is_empty() { "gopt_unnamed".to_owned() } else { base };
        if variable_size(self.unit, &declaration.ty).is_some() {
            return refuse(at, format!("{base} is an array of variable length: declare it with a constant size"));
        }
        let mut attributes = String::new();
        for attribute in &declaration.attributes {
            let text = self.text(*attribute, context)?;
            if text.contains("align") {
                attributes += &format!(" {text}");
            }
        }
        if self.addresses.is_fixed(context.region, id) {
            let member = self.member(&base, context);
            let text = self.sized(id, &member, context)?;
            self.members.push(format!("{text}{attributes};"));
            return Ok((Binding::Member(member), String::new()));
        }
        let name = self.fresh(&format!("{base}_{}", context.copy));
        let text = self.sized(id, &name, context)?;
        self.moved.push(Moved { name: name.clone(), declaration: text, recompute: None });
        let mark = live::unset(&name);
        Ok((Binding::Moved(name), mark))
    }

    /// Writes an array of variable length that exists at a switch.
    fn moved_rows(
        &mut self,
        id: DeclId,
        size: &'u Expr,
        bound: Option<&str>,
        context: &mut Context<'u>,
    ) -> Pass<String> {
        let declaration = self.unit.declaration(id);
        let at = declaration.token;
        let Kind::Array { element, .. } = &*declaration.ty.base().kind else { return Ok(String::new()) };
        if variable_size(self.unit, element).is_some() {
            return refuse(at, "an array of arrays of variable length: declare it with constant sizes");
        }
        let mut fixed = true;
        walk::expression(self.unit, size, &mut |node| {
            if let Node::Expr(one) = node {
                fixed &= match &one.kind {
                    ExprKind::Name(id) => self.is_outer(*id, context) && !changed(self.unit, self.site.body, *id),
                    ExprKind::Call(..) | ExprKind::Member { .. } | ExprKind::Index(..) | ExprKind::Update { .. } => {
                        false
                    }
                    _ => true,
                };
            }
            fixed
        });
        let name = self.fresh(&format!("gopt_rows_{}", declaration.name));
        let size_text = self.text(size.span, context)?;
        let (rows, check) = match bound {
            Some(bound) => (
                bound.to_owned(),
                format!("if ((unsigned long long)({size_text}) > ({bound})) {{ __builtin_trap(); }}"),
            ),
            None if fixed => (size_text, String::new()),
            None => {
                return refuse(
                    at,
                    format!(
                        "{} is an array of variable length: write #pragma gopt bound N before it, where N is its maximum length",
                        declaration.name
                    ),
                );
            }
        };
        let lookups = if self.serial == Part::None { "GOPT_GROUP_MAX" } else { RING };
        let declared = self.assignable(element, &format!("{name}[{lookups}][{rows}]"), at, context)?;
        self.hoisted.push(format!("{declared};"));
        // The number of the struct is that of the lookup.
        if self.members.is_empty() {
            self.members.push("char gopt_unused;".to_owned());
        }
        self.bind(id, context, Binding::Alias(format!("{name}[gopt_s - gopt_states]")));
        Ok(check)
    }

    /// Stores the assignment that recomputes a moved variable.
    pub(super) fn set_recomputation(&mut self, name: &str, assignment: &str) {
        if let Some(moved) = self.moved.iter_mut().find(|moved| moved.name == name) {
            moved.recompute = Some(assignment.trim_end_matches(';').to_owned());
        }
    }

    /// Writes a local variable that is not in scope at a switch, but whose initialiser needs
    /// statements.
    fn unmoved(&mut self, id: DeclId, context: &mut Context<'u>) -> Pass<String> {
        let declaration = self.unit.declaration(id);
        let (at, ty) = (declaration.token, declaration.ty.clone());
        let binding = self.local(id, context);
        let text = Entry::new(binding.clone(), ty.clone(), false).text(&declaration.name);
        self.bind(id, context, binding);
        let Some(value) = declaration.initializer.as_deref() else {
            return Ok(format!("{}; ", self.declared(&ty, &text, at, context)?));
        };
        match value {
            Initializer::Expression(one) if !ty.is_array() => {
                let written = self.assignable(&ty, &text, at, context)?;
                let mut before = String::new();
                let value = self.hoisted(one, context, &mut before)?;
                Ok(format!("{written}; {{ {before}{text} = {value}; }} "))
            }
            _ => {
                let mut before = String::new();
                let value = self.list(value, context, &mut before)?;
                if before.is_empty() {
                    return Ok(format!("{} = {value}; ", self.declared(&ty, &text, at, context)?));
                }
                let (written, copy) = (self.sized(id, &text, context)?, self.fresh("gopt_copy"));
                let copied = self.sized(id, &copy, context)?;
                Ok(format!(
                    "{written}; {{ {before}{copied} = {value}; __builtin_memcpy(&{text}, &{copy}, sizeof({copy})); }} "
                ))
            }
        }
    }

    /// Returns the name of a new member.
    fn member(&mut self, base: &str, context: &Context<'u>) -> String {
        let requested = if context.copy == 0 { base.to_owned() } else { format!("{base}_{}", context.copy) };
        let taken = |name: &str| {
            self.members.iter().any(|one| crate::lexer::tokens(one).iter().any(|token| token.text == name))
        };
        let mut member = requested.clone();
        let mut number = 1;
        while taken(&member) || self.unit.expanded.macros.contains_key(&member) {
            number += 1;
            member = format!("{requested}_{number}");
        }
        member
    }
}

/// Returns whether a declaration defines a type.
fn defines_type(declared: &DeclStmt, span: Span) -> bool {
    declared.types.iter().any(|ty| match &*ty.kind {
        Kind::Record(record) => record.body.get().is_some_and(|body| span.contains(body)),
        Kind::Enum(one) => one.body.get().is_some_and(|body| span.contains(body)),
        Kind::Named { .. } => false,
        _ => false,
    })
}

fn has_labels(node: &Stmt) -> bool {
    matches!(node.kind, crate::syntax::ast::StmtKind::Label(..)) || node.statements().into_iter().any(has_labels)
}

/// Returns the size of an array of variable length.
pub(super) fn variable_size<'u>(unit: &'u Unit, ty: &'u Type) -> Option<&'u Expr> {
    let Kind::Array { element, size } = &*ty.base().kind else { return None };
    if let Some(size) = size {
        let mut variable = false;
        walk::expression(unit, size, &mut |node| {
            if let Node::Expr(one) = node {
                variable |= match &one.kind {
                    ExprKind::Name(id) => unit.declaration(*id).is_variable(),
                    ExprKind::Call(..) => true,
                    _ => false,
                };
            }
            !variable
        });
        if variable {
            return Some(size);
        }
    }
    variable_size(unit, element)
}

/// Returns the element count of an array without a size, if its initialiser shows it.
fn count(ty: &Type, value: &Initializer, at: usize, unit: &Unit) -> Pass<Option<usize>> {
    let Kind::Array { element, size: None } = &*ty.base().kind else { return Ok(None) };
    let found = match value {
        Initializer::List(list) => {
            let plain = list.items.iter().all(|item| item.designators.is_empty());
            let whole = element.is_scalar() || list.items.iter().all(|item| matches!(item.value, Initializer::List(_)));
            (plain && whole).then_some(list.items.len())
        }
        // A single string without escapes, and its final zero.
        Initializer::Expression(text) => {
            let word = unit.expanded.word(text.span.first);
            let single = text.span.end == text.span.first + 1 && word.starts_with('"') && !word.contains('\\');
            single.then(|| word.len() - 1)
        }
    };
    found.map_or_else(|| refuse(at, "an array without its size: write the size"), |found| Ok(Some(found)))
}
