//! Declarators and names of types.

use super::ast::{DeclId, DeclKind, Span};
use super::types::{Kind, Type};
use super::{Scope, Unit};
use crate::error::Pass;
use std::rc::Rc;

/// Declared type with the token of its name.
pub(super) struct Declared {
    pub(super) name: Option<usize>,
    pub(super) ty: Type,
    pub(super) attributes: Vec<Span>,
}

impl Unit {
    /// Parses a declarator, with or without a name.
    pub(super) fn declarator(&mut self, base: Type) -> Pass<Declared> {
        let mut ty = base;
        let mut attributes = Vec::new();
        loop {
            attributes.extend(self.trailing_attributes()?);
            if !self.accept("*") {
                break;
            }
            ty = Type::pointer(ty);
            loop {
                match self.word() {
                    "const" | "__const" | "__const__" => ty.constant = true,
                    "volatile" | "__volatile__" | "__volatile" => ty.volatile = true,
                    "_Atomic" => ty.atomic = true,
                    "restrict" | "__restrict" | "__restrict__" | "_Nonnull" | "_Nullable" => {}
                    "__attribute__" | "__attribute" => {
                        let first = self.at;
                        self.at += 1;
                        self.skip_group()?;
                        attributes.push(self.span(first));
                        continue;
                    }
                    _ => break,
                }
                self.at += 1;
            }
        }
        if self.word() == "(" && self.is_nested() {
            // The suffixes after the parentheses belong to the type of the inner declarator.
            let inside = self.at + 1;
            self.skip_group()?;
            let ty = self.suffixes(ty)?;
            let end = std::mem::replace(&mut self.at, inside);
            let inner = self.declarator(ty)?;
            self.expect(")")?;
            self.at = end;
            attributes.extend(inner.attributes);
            return Ok(Declared { name: inner.name, ty: inner.ty, attributes });
        }
        let name = self.is_identifier().then_some(self.at);
        if name.is_some() {
            self.at += 1;
        }
        let ty = self.suffixes(ty)?;
        Ok(Declared { name, ty, attributes })
    }

    /// Returns whether a parenthesis encloses a declarator rather than parameters.
    fn is_nested(&self) -> bool {
        let next = self.at + 1;
        match self.expanded.word(next) {
            "*" | "(" | "^" | "[" => true,
            "__attribute__" | "__attribute" => true,
            ")" => false,
            _ => {
                self.expanded.tokens.get(next).is_some_and(|token| token.kind == crate::lexer::Kind::Identifier)
                    && !self.is_type_start(next)
            }
        }
    }

    /// Parses the dimensions and parameters behind a declarator.
    fn suffixes(&mut self, base: Type) -> Pass<Type> {
        if self.word() == "[" {
            self.at += 1;
            while matches!(self.word(), "static" | "const" | "restrict" | "__restrict" | "__restrict__" | "volatile") {
                self.at += 1;
            }
            let size = match self.word() {
                "]" => None,
                "*" if self.peek(1) == "]" => {
                    self.at += 1;
                    None
                }
                _ => Some(Rc::new(self.assignment()?)),
            };
            self.expect("]")?;
            let element = self.suffixes(base)?;
            return Ok(Type::new(Kind::Array { element, size }));
        }
        if self.word() != "(" {
            return Ok(base);
        }
        self.at += 1;
        let (ids, variadic) = self.parameters()?;
        let end = self.at;
        let result = self.suffixes(base)?;
        debug_assert!(self.at >= end);
        let parameters = ids.iter().map(|id| self.declaration(*id).ty.clone()).collect();
        self.last_parameters = Some((ids, variadic));
        Ok(Type::new(Kind::Function { result, parameters, variadic }))
    }

    /// Parses parameters up to the closing parenthesis.
    fn parameters(&mut self) -> Pass<(Vec<DeclId>, bool)> {
        self.scopes.push(Scope::default());
        let found = self.parameters_in_scope();
        self.scopes.pop();
        found
    }

    fn parameters_in_scope(&mut self) -> Pass<(Vec<DeclId>, bool)> {
        let mut ids = Vec::new();
        if self.word() == "void" && self.peek(1) == ")" {
            self.at += 2;
            return Ok((ids, false));
        }
        loop {
            if self.accept(")") {
                return Ok((ids, false));
            }
            if self.accept("...") {
                self.expect(")")?;
                return Ok((ids, true));
            }
            let named = self.is_identifier() && !self.is_type_start(self.at);
            let found = if named && matches!(self.peek(1), "," | ")") {
                // A list of names, whose types follow (C before 1989).
                self.at += 1;
                super::declarator::Declared { name: Some(self.at - 1), ty: Type::int(), attributes: Vec::new() }
            } else {
                let specifiers = self.specifiers()?;
                let base = specifiers.ty.unwrap_or_else(Type::int);
                let mut found = self.declarator(base)?;
                found.attributes.extend(self.trailing_attributes()?);
                found
            };
            let token = found.name.unwrap_or(self.at);
            let name = found.name.map_or(String::new(), |token| self.expanded.word(token).to_owned());
            let id = self.declare(&name, DeclKind::Parameter, found.ty.decayed(), token);
            if found.name.is_some() {
                self.resolved.insert(token, id);
            }
            ids.push(id);
            if !self.accept(",") && self.word() != ")" {
                return self.unexpected(", is expected");
            }
        }
    }

    /// Parses the name of a type, as in a cast.
    pub(super) fn type_name(&mut self) -> Pass<Type> {
        let specifiers = self.specifiers()?;
        let base = specifiers.ty.unwrap_or_else(Type::int);
        let outer = self.last_parameters.take();
        let found = self.declarator(base)?;
        self.last_parameters = outer;
        Ok(found.ty)
    }
}
