//! Structs, unions and enumerations.

use std::rc::Rc;

use super::ast::{DeclId, DeclKind, Initializer, Span};
use super::types::{Enumeration, Field, Kind, Record, Type};
use super::{Tag, Unit};
use crate::error::Pass;

impl Unit {
    /// Parses a struct or union.
    pub(super) fn record(&mut self) -> Pass<Type> {
        let is_union = self.word() == "union";
        self.at += 1;
        let mut attributes = self.trailing_attributes()?;
        let token = self.at;
        let tag = self.is_identifier().then(|| self.word().to_owned());
        self.at += usize::from(tag.is_some());
        let defines = self.word() == "{";
        let record = self.tagged_record(tag, is_union, defines || self.word() == ";");
        if record.local && record.tag.is_some() {
            self.tags.insert(token, record.number);
        }
        if !defines {
            return Ok(Type::new(Kind::Record(record)));
        }
        self.at += 1;
        let first = self.at;
        let mut fields = Vec::new();
        while self.word() != "}" {
            self.fields(&mut fields)?;
        }
        record.body.set(Some(self.span(first)));
        self.at += 1;
        attributes.extend(self.trailing_attributes()?);
        *record.attributes.borrow_mut() = attributes;
        *record.fields.borrow_mut() = fields;
        Ok(Type::new(Kind::Record(record)))
    }

    /// Returns the record of a tag. If `declares` is true, creates a new record, unless the block
    /// has one without fields.
    fn tagged_record(&mut self, tag: Option<String>, is_union: bool, declares: bool) -> Rc<Record> {
        if let Some(name) = &tag {
            let own = self.scopes.last().and_then(|scope| scope.tags.get(name)).cloned();
            let known = if declares { own } else { self.lookup_tag(name) };
            if let Some(Tag::Record(record)) = known
                && (!declares || record.body.get().is_none())
            {
                return record;
            }
        }
        self.types += 1;
        let record = Rc::new(Record {
            number: self.types,
            is_union,
            tag: tag.clone(),
            local: self.is_local(),
            fields: Vec::new().into(),
            body: None.into(),
            attributes: Vec::new().into(),
        });
        if let (Some(name), Some(scope)) = (tag, self.scopes.last_mut()) {
            scope.tags.insert(name, Tag::Record(Rc::clone(&record)));
        }
        record
    }

    /// Parses one declaration of fields.
    fn fields(&mut self, fields: &mut Vec<Field>) -> Pass<()> {
        if self.accept(";") || self.static_assertion()? {
            return Ok(());
        }
        if self.word().starts_with('#') {
            self.at += 1;
            return Ok(());
        }
        let specifiers = self.specifiers()?;
        let base = specifiers.ty.clone().unwrap_or_else(Type::int);
        if self.accept(";") {
            if matches!(&*base.kind, Kind::Record(record) if record.tag.is_none()) {
                fields.push(Field { name: None, ty: base, bits: None, attributes: Vec::new() });
            }
            return Ok(());
        }
        loop {
            let found = if self.word() == ":" { None } else { Some(self.declarator(base.clone())?) };
            let bits = if self.accept(":") { Some(Rc::new(self.conditional()?)) } else { None };
            let mut attributes = specifiers.attributes.clone();
            attributes.extend(self.trailing_attributes()?);
            if let Some(found) = found {
                let name = found.name.map(|token| self.expanded.word(token).to_owned());
                attributes.extend(found.attributes);
                fields.push(Field { name, ty: found.ty, bits, attributes });
            }
            if self.accept(";") {
                return Ok(());
            }
            self.expect(",")?;
        }
    }

    pub(super) fn enumeration(&mut self) -> Pass<Type> {
        self.at += 1;
        self.trailing_attributes()?;
        let token = self.at;
        let tag = self.is_identifier().then(|| self.word().to_owned());
        self.at += usize::from(tag.is_some());
        if self.word() == ":" {
            // Underlying type (C23).
            self.at += 1;
            self.specifiers()?;
        }
        if self.word() != "{"
            && let Some(Tag::Enum(known)) = tag.as_deref().and_then(|name| self.lookup_tag(name))
        {
            if known.local {
                self.tags.insert(token, known.number);
            }
            return Ok(Type::new(Kind::Enum(known)));
        }
        self.types += 1;
        let local = self.is_local();
        let found = Rc::new(Enumeration { number: self.types, tag: tag.clone(), local, body: None.into() });
        if let (Some(name), Some(scope)) = (tag, self.scopes.last_mut()) {
            scope.tags.insert(name, Tag::Enum(Rc::clone(&found)));
            if local {
                self.tags.insert(token, found.number);
            }
        }
        if self.accept("{") {
            let first = self.at;
            self.constants()?;
            found.body.set(Some(self.span(first)));
            self.expect("}")?;
            self.trailing_attributes()?;
        }
        Ok(Type::new(Kind::Enum(found)))
    }

    /// Parses the constants of an enumeration.
    fn constants(&mut self) -> Pass<()> {
        let mut next = Some(0_i128);
        while self.word() != "}" {
            let (token, name) = (self.at, self.word().to_owned());
            if !self.is_identifier() {
                return self.unexpected("a name");
            }
            self.at += 1;
            self.trailing_attributes()?;
            if self.accept("=") {
                next = self.conditional()?.constant();
            }
            let id = self.declare(&name, DeclKind::Constant, Type::int(), token);
            self.resolved.insert(token, id);
            self.set_constant(id, next, token);
            next = next.map(|value| value + 1);
            if !self.accept(",") {
                break;
            }
        }
        Ok(())
    }

    fn set_constant(&mut self, id: DeclId, value: Option<i128>, token: usize) {
        let span = Span { first: token, end: token + 1 };
        let value = super::ast::Expr { kind: super::ast::ExprKind::Number(value), ty: Type::int(), span };
        self.declarations[id.0].initializer = Some(Rc::new(Initializer::Expression(value)));
    }
}
