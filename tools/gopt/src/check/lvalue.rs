//! Places that lvalues name, and stores to them.

use super::Check;
use super::access::AccessKind;
use super::convert::unit_of;
use super::memory::FRESH;
use super::number::Number;
use super::place::{Base, Place, Step, Targets, Value};
use crate::error::Pass;
use crate::syntax::ast::{DeclId, DeclKind, Expr, ExprKind};
use crate::syntax::types::Type;

impl<'u> Check<'u> {
    /// Copies the parts of a record.
    pub(super) fn copy(&mut self, target: &'u Expr, value: &'u Expr, frame: usize) -> Pass<()> {
        let targets = self.places(target, frame)?;
        let sources = self.record_places(value, frame)?;
        for place in targets.places {
            if let Base::Local(owner, id) = place.base {
                self.copy_parts(&sources, owner, id, &part(&place));
            }
        }
        Ok(())
    }

    /// Copies the record parts at `sources` to a part of a local variable.
    pub(super) fn copy_parts(&mut self, sources: &Targets, owner: usize, id: DeclId, prefix: &str) {
        for source in &sources.places {
            match &source.base {
                Base::Local(from, from_id) => {
                    let begin = part(source);
                    let found: Vec<_> = self
                        .values
                        .iter()
                        .filter(|((frame, id, _), _)| frame == from && id == from_id)
                        .filter_map(|((.., name), value)| {
                            Some((name.strip_prefix(begin.as_str())?.to_owned(), value.clone()))
                        })
                        .collect();
                    for (rest, value) in found {
                        self.assign(owner, id, &format!("{prefix}{rest}"), &value);
                    }
                }
                Base::Fresh | Base::Constant | Base::Null => {}
                // The parts are read from memory when they are needed.
                _ => self.assign(owner, id, &format!("{prefix}="), &Value::pointer(Targets::of(source.clone()))),
            }
        }
        if sources.unknown {
            self.assign(owner, id, &format!("{prefix}="), &Value::pointer(Targets::unknown()));
        }
    }

    /// Returns the places of a record value.
    pub(super) fn record_places(&mut self, value: &'u Expr, frame: usize) -> Pass<Targets> {
        match &value.bare().kind {
            ExprKind::Name(_) | ExprKind::Member { .. } | ExprKind::Index(..) => self.places(value.bare(), frame),
            ExprKind::Unary(operator, _) if operator == "*" => self.places(value.bare(), frame),
            ExprKind::Conditional(_, Some(yes), no) => {
                let mut found = self.record_places(yes, frame)?;
                found.join(&self.record_places(no, frame)?);
                Ok(found)
            }
            ExprKind::Call(..) | ExprKind::Compound(..) => Ok(self.value(value, frame)?.targets),
            _ => Ok(Targets::default()),
        }
    }

    /// Returns the places that an lvalue names, and walks its parts.
    pub(super) fn places(&mut self, node: &'u Expr, frame: usize) -> Pass<Targets> {
        match &node.kind {
            ExprKind::Paren(inner) | ExprKind::Cast(_, inner) => self.places(inner, frame),
            ExprKind::Unary(operator, inner) if operator == "*" => Ok(self.value(inner, frame)?.targets),
            ExprKind::Unary(operator, inner) if operator == "__extension__" => self.places(inner, frame),
            ExprKind::Name(id) => {
                if self.unit.declaration(*id).name.starts_with("gopt_") {
                    self.refuse(
                        node.span.first,
                        "names that begin with gopt_ are reserved for gopt: rename the variable",
                    )?;
                }
                if self.is_private(frame, *id) {
                    let owner = if self.unit.declaration(*id).is_automatic() { frame } else { 0 };
                    return Ok(Targets::of(Place::new(Base::Local(owner, *id))));
                }
                Ok(Targets::of(Place::new(Base::Outer(*id))))
            }
            ExprKind::Index(array, index) => {
                // `2[array]` is allowed as well.
                let (array, index) = if index.ty.decayed().is_pointer() { (index, array) } else { (array, index) };
                let base = self.value(array, frame)?;
                let number = self.value(index, frame)?.number;
                let unit = unit_of(&array.ty);
                Ok(base.targets.map(|place| place.moved(&number, unit)))
            }
            ExprKind::Member { object, arrow, field } => {
                let (base, record) = if *arrow {
                    (
                        self.value(object, frame)?.targets,
                        object.ty.decayed().target().and_then(|target| target.record()),
                    )
                } else {
                    (self.record_places(object, frame)?, object.ty.record())
                };
                let number = record.as_ref().map_or(0, |record| record.number);
                let shared = record.as_ref().is_some_and(|record| record.overlaps(field));
                let step = Step::Field { record: number, name: field.clone(), shared };
                Ok(base.map(|place| place.with(step.clone())))
            }
            ExprKind::Compound(..) => Ok(Targets::of(Place::new(Base::Fresh))),
            ExprKind::Undeclared(name) => {
                self.refuse(
                    node.span.first,
                    format!("{name} is not declared: include its header, so that gopt knows its type"),
                )?;
                Ok(Targets::unknown())
            }
            ExprKind::Conditional(_, Some(yes), no) => {
                let mut found = self.places(yes, frame)?;
                found.join(&self.places(no, frame)?);
                Ok(found)
            }
            ExprKind::Comma(left, right) => {
                self.unused(left, frame)?;
                self.places(right, frame)
            }
            _ => Ok(self.value(node, frame)?.targets),
        }
    }

    /// Walks an lvalue and returns its stored value. An array becomes a pointer.
    pub(super) fn load(&mut self, node: &'u Expr, frame: usize) -> Pass<Value> {
        if let Some(id) = node.name() {
            let declaration = self.unit.declaration(id);
            if declaration.kind == DeclKind::Function {
                return Ok(Value::pointer(Targets { functions: vec![id], ..Targets::default() }));
            }
            if let Some(value) = self.known(id, frame, node.span.first) {
                return Ok(value);
            }
            self.refuse_volatile(&declaration.ty, node)?;
        }
        if let ExprKind::Undeclared(name) = &node.bare().kind
            && matches!(name.as_str(), "nullptr" | "__func__" | "__FUNCTION__" | "__PRETTY_FUNCTION__")
        {
            return Ok(Value::pointer(Targets::of(Place::new(Base::Constant))));
        }
        let targets = self.places(node, frame)?;
        if node.ty.is_array() {
            let first = Step::Index { number: Number::constant(0), unit: unit_of(&node.ty) };
            return Ok(Value::pointer(targets.map(|place| place.with(first.clone()))));
        }
        if node.ty.is_function() {
            return Ok(Value::pointer(targets));
        }
        self.refuse_volatile(&node.ty, node)?;
        self.note(&targets.places, &AccessKind::Read, node.span.first);
        Ok(self.stored(&targets, &node.ty))
    }

    /// Stores a value at an lvalue, and notes the write.
    pub(super) fn store(&mut self, target: &'u Expr, value: &Value, frame: usize, at: usize) -> Pass<()> {
        self.refuse_volatile(&target.ty, target)?;
        let targets = self.places(target, frame)?;
        self.refuse_index_change(&targets.places, at)?;
        self.store_at(&targets, value);
        if targets.unknown || targets.places.is_empty() {
            self.unknown_write(at)?;
        }
        self.note(&targets.places, &AccessKind::Write, at);
        Ok(())
    }

    /// Adds a value to the local variables among places.
    pub(super) fn store_at(&mut self, targets: &Targets, value: &Value) {
        for place in &targets.places {
            if let Base::Local(frame, id) = place.base {
                self.assign(frame, id, &part(place), value);
            } else if place.base == Base::Fresh {
                self.assign(FRESH.0, FRESH.1, "", value);
            }
        }
    }

    /// Refuses a write to a variable that the head of the loop steps.
    pub(super) fn refuse_index_change(&self, places: &[Place], at: usize) -> Pass<()> {
        for place in places {
            if let Base::Local(0, id) = place.base
                && self.header.inductions.contains_key(&id)
            {
                let name = self.name(id);
                self.refuse(at, format!("the lookup changes {name}, which the head of the batch loop steps"))?;
            }
        }
        Ok(())
    }

    /// Refuses a write to memory that the analysis does not know.
    pub(super) fn unknown_write(&self, at: usize) -> Pass<()> {
        if self.site.promise || self.serial {
            return Ok(());
        }
        self.refuse(
            at,
            "the lookup writes through a pointer of unknown origin: \
             say foreach or #pragma gopt independent if no two lookups meet",
        )
    }

    pub(super) fn refuse_volatile(&self, ty: &Type, node: &Expr) -> Pass<()> {
        let named = node.name().is_some();
        if !ty.resolved().volatile || self.serial || self.site.promise && !named {
            return Ok(());
        }
        let text = self.unit.expanded.words(node.span.first, node.span.end);
        self.refuse(node.span.first, format!("the order of accesses to {text}, which is volatile, would change"))
    }
}

/// Returns the name of the part that a place denotes in a local variable.
pub(super) fn part(place: &Place) -> String {
    let mut name = String::new();
    for step in &place.path {
        match step {
            Step::Field { name: field, .. } => {
                name.push('.');
                name += field;
            }
            Step::Index { .. } => name += "[]",
        }
    }
    // The first element of a variable that is not an array is the variable itself.
    name
}
