//! Values that memory contains.

use super::Check;
use super::convert::unit_of;
use super::lvalue::part;
use super::number::Number;
use super::place::{Base, Place, Step, Targets, Value};
use crate::syntax::ast::{DeclId, DeclKind, ExprKind};
use crate::syntax::types::Type;

/// Key of the values in memory that a lookup allocated.
pub(super) const FRESH: (usize, DeclId) = (usize::MAX, DeclId(usize::MAX));

impl<'u> Check<'u> {
    /// Returns the value of an induction variable or a counter.
    pub(super) fn known(&mut self, id: DeclId, frame: usize, at: usize) -> Option<Value> {
        let declaration = self.unit.declaration(id);
        if let Some(induction) = self.header.inductions.get(&id) {
            let of_site = frame == 0 || !declaration.is_automatic();
            if !of_site {
                return None;
            }
            if frame != 0 && self.is_last {
                // The function must read the copy of its lookup.
                let function = self.frames[frame].function;
                if !self.reach.is_inlined(function) {
                    self.inlined.insert(function);
                }
            }
            induction.step?;
            // After an update in the body, the variable has the next value.
            let step = induction.step.unwrap_or(0);
            let offset = if induction.in_body.is_some_and(|update| at > update) { step } else { 0 };
            let number = Number::induction(id, offset);
            if declaration.ty.decayed().is_pointer() {
                let mut targets = self.outer_pointer(id);
                let unit = unit_of(&declaration.ty);
                targets = targets.map(|place| place.moved(&number, unit));
                return Some(Value::pointer(targets));
            }
            return Some(Value::number(number));
        }
        // After its loop, a counter has another value.
        let (number, span) = self.counters.get(&id)?;
        (span.first..span.end).contains(&at).then(|| Value::number(number.clone()))
    }

    /// Returns the value that is stored at places.
    pub(super) fn stored(&self, targets: &Targets, ty: &Type) -> Value {
        let mut value = Value::nothing();
        if targets.unknown {
            value.join(&Value::pointer(Targets::unknown()));
        }
        for place in &targets.places {
            value.join(&self.stored_at(place, ty));
        }
        if targets.places.is_empty() && !targets.unknown { value } else { self.fitting(value, ty) }
    }

    /// Drops the targets of a value that is no pointer.
    fn fitting(&self, mut value: Value, ty: &Type) -> Value {
        let holds = ty.is_pointer()
            || ty.record().is_some()
            || ty.is_unknown()
            || ty.as_integer().is_some_and(|(_, rank)| rank >= 4);
        if !holds {
            value.targets = Targets::default();
        }
        value
    }

    fn stored_at(&self, place: &Place, ty: &Type) -> Value {
        let pointee = ty.target();
        match &place.base {
            Base::Local(frame, id) => {
                let name = part(place);
                let mut value = self.values.get(&(*frame, *id, name.clone())).cloned().unwrap_or_else(Value::nothing);
                // A record that was copied from memory.
                let mut prefix = name.as_str();
                loop {
                    if let Some(source) = self.values.get(&(*frame, *id, format!("{prefix}="))) {
                        let steps = place.path.len() - count_steps(prefix);
                        let rest = &place.path[place.path.len() - steps..];
                        for from in &source.targets.places {
                            let from = rest.iter().fold(from.clone(), |place, step| place.with(step.clone()));
                            value.join(&self.stored_at(&from, ty));
                        }
                        if source.targets.unknown {
                            value.join(&Value::pointer(Targets::unknown()));
                        }
                    }
                    match prefix.rfind(['.', '[']) {
                        Some(end) => prefix = &prefix[..end],
                        None => break,
                    }
                }
                value
            }
            Base::Fresh => {
                let stored = self.values.get(&(FRESH.0, FRESH.1, String::new()));
                stored.cloned().unwrap_or_else(Value::any)
            }
            Base::Constant | Base::Null => Value::any(),
            base => {
                let Some(pointee) = pointee else {
                    let invariant = place.is_same_for_all() && ty.as_integer().is_some_and(|(_, rank)| rank >= 2);
                    let number = if invariant { Number::invariant(&self.place_text(place)) } else { Number::Any };
                    return Value::number(number);
                };
                if pointee.is_function() {
                    let functions = match base {
                        Base::Outer(id) if self.is_constant(*id) => self.functions_in(*id),
                        _ => Vec::new(),
                    };
                    let unknown = functions.is_empty();
                    return Value::pointer(Targets { functions, unknown, ..Targets::default() });
                }
                if let (Base::Outer(id), true) = (base, place.path.is_empty()) {
                    return Value::pointer(self.outer_pointer(*id));
                }
                if let (Base::Outer(id), [Step::Field { name, .. }]) = (base, &place.path[..])
                    && let Some(places) = self.member_origin(*id, name, ty)
                {
                    return Value::pointer(Targets { places, ..Targets::default() });
                }
                let unit = unit_of(ty);
                let first = Step::Index { number: Number::constant(0), unit };
                let base = if place.is_same_for_all() {
                    Base::Behind(self.place_text(place))
                } else if let Some(record) = pointee.record() {
                    return Value::pointer(Targets::of(
                        Place::new(Base::Records(record.number)).with(Step::Index { number: Number::Any, unit }),
                    ));
                } else {
                    return Value::pointer(Targets::of(
                        Place::new(Base::Reached(self.reached_text(place)))
                            .with(Step::Index { number: Number::Any, unit }),
                    ));
                };
                Value::pointer(Targets::of(Place::new(base).with(first)))
            }
        }
    }

    /// Returns the name of the pointers at a place.
    fn reached_text(&self, place: &Place) -> String {
        match place.path.iter().rev().find(|step| matches!(step, Step::Field { .. })) {
            Some(Step::Field { record, name, .. }) => format!("{record}.{name}"),
            _ => format!("*{}", self.place_text(place)),
        }
    }

    /// Returns the functions whose addresses occur in constant data.
    fn functions_in(&self, id: DeclId) -> Vec<DeclId> {
        let Some(value) = &self.unit.declaration(id).initializer else { return Vec::new() };
        let named = value.expressions().into_iter().filter_map(|one| match &one.bare().kind {
            ExprKind::Unary(operator, inner) if operator == "&" => inner.name(),
            _ => one.name(),
        });
        named.filter(|id| self.unit.declaration(*id).kind == DeclKind::Function).collect()
    }
}

fn count_steps(part: &str) -> usize {
    part.matches(['.', '[']).count()
}
