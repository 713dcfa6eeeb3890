//! Declarations of the file and of blocks.

use std::rc::Rc;

use super::ast::{DeclId, DeclKind, Declaration, Initializer, Span, Storage};
use super::specifier::Specifiers;
use super::types::{Kind, Type};
use super::{Function, Unit, Unparsed};
use crate::error::{Pass, refuse};

impl Unit {
    /// Parses all external declarations. Skips declarations that it cannot parse.
    pub(super) fn file(&mut self) {
        while self.at < self.expanded.tokens.len() {
            let first = self.at;
            if let Err(fault) = self.external() {
                self.at = first;
                self.scopes.truncate(1);
                self.skip_external();
                let span = self.span(first);
                self.unparsed.push(Unparsed { span, fault });
            }
            if self.at == first {
                self.at += 1;
            }
            self.externals.push(self.span(first));
        }
    }

    /// Skips tokens up to the end of an external declaration.
    fn skip_external(&mut self) {
        let mut assigned = false;
        while self.at < self.expanded.tokens.len() {
            match self.word().to_owned().as_str() {
                ";" => {
                    self.at += 1;
                    return;
                }
                "=" => assigned = true,
                "{" => {
                    let function = self.at > 0 && !assigned && !matches!(self.expanded.word(self.at - 1), "=" | ",");
                    if self.skip_group().is_err() {
                        self.at = self.expanded.tokens.len();
                    }
                    // A declarator may follow the braces of a record.
                    if function && self.word() != ";" && !self.continues_declaration() {
                        return;
                    }
                    continue;
                }
                "(" | "[" if self.skip_group().is_ok() => continue,
                _ => {}
            }
            self.at += 1;
        }
    }

    fn continues_declaration(&self) -> bool {
        let same_line = !self.expanded.on_new_line(self.at);
        same_line && (self.is_identifier() || matches!(self.word(), "*" | "=" | "," | "["))
    }

    fn external(&mut self) -> Pass<()> {
        let first = self.at;
        if self.accept(";") {
            return Ok(());
        }
        if self.word().starts_with('#') {
            self.at += 1;
            return Ok(());
        }
        if matches!(self.word(), "asm" | "__asm__" | "__asm") {
            self.at += 1;
            self.skip_group()?;
            return self.expect(";");
        }
        if self.word() == "extern" && self.expanded.word(self.at + 1).starts_with('"') {
            self.at += 2;
            // The declarations in the braces are external ones.
            if !self.accept("{") {
                return self.external();
            }
            return Ok(());
        }
        if self.word() == "}" && self.expanded.cplusplus {
            self.at += 1;
            return Ok(());
        }
        if self.static_assertion()? {
            return Ok(());
        }
        let specifiers = self.specifiers()?;
        if self.accept(";") {
            return Ok(());
        }
        let mut is_first = true;
        loop {
            let id = self.init_declarator(&specifiers, first, is_first)?;
            is_first = false;
            if self.functions.get(&id).is_some_and(|function| function.span.first == first) {
                return Ok(());
            }
            if self.accept(";") {
                return Ok(());
            }
            self.expect(",")?;
        }
    }

    /// Parses one declarator, with its initialiser or body.
    fn init_declarator(&mut self, specifiers: &Specifiers, first: usize, may_define: bool) -> Pass<DeclId> {
        self.last_parameters = None;
        let base = specifiers.ty.clone().unwrap_or_else(Type::int);
        let found = self.declarator(base)?;
        let Some(token) = found.name else { return self.unexpected("a name") };
        let name = self.expanded.word(token).to_owned();
        let parameters = self.last_parameters.take();
        let old_style = found.ty.is_function() && may_define && self.is_type_start(self.at);
        if old_style {
            self.old_style_parameters(parameters.as_ref().map_or(&[], |(ids, _)| ids))?;
        }
        let mut attributes = [specifiers.attributes.clone(), found.attributes].concat();
        attributes.extend(self.trailing_attributes()?);
        let mut found_type = found.ty;
        if self.says(&attributes, &["vector_size", "__vector_size__", "ext_vector_type"]) {
            found_type = Type::new(Kind::Vector(found_type));
        }
        let is_function = found_type.is_function();
        let kind = self.kind_of(specifiers, is_function);
        // All file-level declarations of one name are the same declaration.
        let of_file = is_function || matches!(kind, DeclKind::Variable(Storage::Global));
        let known = of_file.then(|| self.named(&name)).flatten();
        let known = known.filter(|id| self.declaration(*id).kind == kind);
        let pure = self.says_pure(&attributes);
        let id = match known {
            Some(id) => {
                if let Some(scope) = self.scopes.last_mut() {
                    scope.names.insert(name.clone(), id);
                }
                // A later declaration may complete the type of an array.
                if !is_function && found_type.is_array() {
                    self.declarations[id.0].ty = found_type.clone();
                }
                id
            }
            None => self.declare(&name, kind, found_type.clone(), token),
        };
        self.resolved.insert(token, id);
        let cleanup = self.says(&attributes, &["cleanup", "__cleanup__"]);
        let declaration = &mut self.declarations[id.0];
        declaration.pure |= pure;
        declaration.is_static |= specifiers.is_static;
        declaration.cleanup = cleanup;
        declaration.attributes.extend(attributes.into_iter().filter(|_| !is_function));
        if is_function && self.word() == "{" && may_define && !self.is_local() {
            return self.define(id, found_type, parameters, first);
        }
        if self.accept("=") {
            let value = self.initializer()?;
            if specifiers.inferred
                && let Initializer::Expression(value) = &value
            {
                self.declarations[id.0].ty = value.ty.decayed().unqualified();
            }
            self.declarations[id.0].initializer = Some(Rc::new(value));
        }
        Ok(id)
    }

    fn kind_of(&self, specifiers: &Specifiers, is_function: bool) -> DeclKind {
        if specifiers.is_typedef {
            return DeclKind::Typedef;
        }
        if is_function {
            return DeclKind::Function;
        }
        DeclKind::Variable(match (specifiers.thread_local, self.is_local()) {
            (true, _) => Storage::ThreadLocal,
            (false, false) => Storage::Global,
            (false, true) if specifiers.is_extern => Storage::Global,
            (false, true) if specifiers.is_static => Storage::Static,
            (false, true) => Storage::Automatic,
        })
    }

    fn define(&mut self, id: DeclId, ty: Type, parameters: Option<(Vec<DeclId>, bool)>, first: usize) -> Pass<DeclId> {
        let begin = self.at;
        self.skip_group()?;
        let (parameters, variadic) = parameters.unwrap_or_default();
        let result = ty.result().unwrap_or_else(Type::int);
        let name = self.declaration(id).name.clone();
        self.declarations[id.0].ty = ty;
        let span = self.span(first);
        let body_span = Span { first: begin, end: self.at };
        self.functions.insert(id, Function { id, name, parameters, variadic, result, span, body_span, body: None });
        Ok(id)
    }

    /// Parses the parameter declarations between a declarator and a body (C before 1989).
    fn old_style_parameters(&mut self, parameters: &[DeclId]) -> Pass<()> {
        while self.word() != "{" {
            let specifiers = self.specifiers()?;
            loop {
                let base = specifiers.ty.clone().unwrap_or_else(Type::int);
                let found = self.declarator(base)?;
                let name = found.name.map_or("", |token| self.expanded.word(token)).to_owned();
                if let Some(id) = parameters.iter().copied().find(|id| self.declaration(*id).name == name) {
                    self.declarations[id.0].ty = found.ty.decayed();
                }
                if !self.accept(",") {
                    break;
                }
            }
            self.expect(";")?;
        }
        Ok(())
    }

    /// Parses a declaration inside a function. Returns the declared names.
    pub(super) fn local_declaration(&mut self) -> Pass<super::ast::DeclStmt> {
        let first = self.at;
        let specifiers = self.specifiers()?;
        let mut found = super::ast::DeclStmt { names: Vec::new(), types: specifiers.ty.iter().cloned().collect() };
        if self.accept(";") {
            return Ok(found);
        }
        loop {
            found.names.push(self.init_declarator(&specifiers, first, false)?);
            if self.word() == "{" {
                return refuse(self.at, "a function inside a function: declare it before the function");
            }
            if self.accept(";") {
                return Ok(found);
            }
            if !self.accept(",") {
                return self.unexpected("; is expected");
            }
        }
    }

    /// Parses a static assertion, if there is one.
    pub(super) fn static_assertion(&mut self) -> Pass<bool> {
        if !matches!(self.word(), "_Static_assert" | "static_assert") {
            return Ok(false);
        }
        self.at += 1;
        self.skip_group()?;
        self.expect(";").map(|()| true)
    }
}

impl Declaration {
    /// Returns whether the name is a variable or parameter.
    pub(crate) fn is_variable(&self) -> bool {
        matches!(self.kind, DeclKind::Variable(_) | DeclKind::Parameter)
    }

    /// Returns whether the variable belongs to one call of its function.
    pub(crate) fn is_automatic(&self) -> bool {
        matches!(self.kind, DeclKind::Variable(Storage::Automatic) | DeclKind::Parameter)
    }
}
