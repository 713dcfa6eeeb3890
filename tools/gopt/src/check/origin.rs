//! Arrays that pointers outside a lookup point to, as far as the text shows them.

use std::collections::{BTreeSet, HashMap};

use super::Check;
use super::convert::unit_of;
use super::number::Number;
use super::place::{Base, Place, Step, Targets};
use crate::syntax::Unit;
use crate::syntax::ast::{DeclId, Designator, Expr, ExprKind, Initializer};
use crate::syntax::types::Type;
use crate::syntax::walk::{self, Node};

/// Maximum number of pointers from a pointer to its array.
const DEPTH_MAX: u32 = 4;

impl<'u> Check<'u> {
    /// Returns the memory behind a pointer that lookups do not change.
    pub(super) fn outer_pointer(&self, id: DeclId) -> Targets {
        match self.origins(id, DEPTH_MAX) {
            Some(places) => Targets { places, ..Targets::default() },
            None => Targets::of(self.behind(&self.name(id), &self.unit.declaration(id).ty)),
        }
    }

    fn behind(&self, text: &str, ty: &Type) -> Place {
        let first = Step::Index { number: Number::constant(0), unit: unit_of(ty) };
        Place::new(Base::Behind(text.to_owned())).with(first)
    }

    /// Returns the places of a pointer variable with one value, if the text shows it.
    fn origins(&self, id: DeclId, depth: u32) -> Option<Vec<Place>> {
        let declaration = self.unit.declaration(id);
        if depth == 0 || !declaration.is_variable() {
            return None;
        }
        let value = if declaration.is_automatic() {
            super::step::only_value(self.unit, self.site, id)?
        } else {
            match declaration.initializer.as_deref()? {
                Initializer::Expression(value) if !changes(self.unit, id, None) => value,
                _ => return None,
            }
        };
        self.origin(value, &declaration.ty, depth)
    }

    /// Returns the places of a pointer of type `ty` with a value.
    fn origin(&self, value: &Expr, ty: &Type, depth: u32) -> Option<Vec<Place>> {
        match &value.bare().kind {
            ExprKind::Cast(_, inner) => self.origin(inner, ty, depth),
            ExprKind::Conditional(_, Some(yes), no) => {
                let (one, two) = (self.origin(yes, ty, depth), self.origin(no, ty, depth));
                if one.is_none() && two.is_none() {
                    return None;
                }
                let other =
                    |value: &Expr| vec![self.behind(&self.unit.expanded.words(value.span.first, value.span.end), ty)];
                let mut places = one.unwrap_or_else(|| other(yes));
                places.extend(two.unwrap_or_else(|| other(no)));
                Some(places)
            }
            ExprKind::Binary(operator, left, right) if operator == "+" && left.ty.decayed().is_pointer() => {
                self.moved_origin(left, right, ty, depth)
            }
            ExprKind::Unary(operator, inner) if operator == "&" => match &inner.bare().kind {
                ExprKind::Index(array, index) => self.moved_origin(array, index, ty, depth),
                ExprKind::Name(id) if self.unit.declaration(*id).ty.record().is_some() => {
                    Some(vec![Place::new(Base::Outer(*id))])
                }
                _ => None,
            },
            ExprKind::Name(id) => {
                let declaration = self.unit.declaration(*id);
                if !declaration.is_variable() {
                    return None;
                }
                if declaration.ty.is_array() {
                    let first = Step::Index { number: Number::constant(0), unit: unit_of(ty) };
                    return Some(vec![Place::new(Base::Outer(*id)).with(first)]);
                }
                if !declaration.ty.target()?.same(&ty.target()?) {
                    return None;
                }
                Some(self.origins(*id, depth - 1).unwrap_or_else(|| vec![self.behind(&declaration.name, ty)]))
            }
            _ => None,
        }
    }

    fn moved_origin(&self, pointer: &Expr, index: &Expr, ty: &Type, depth: u32) -> Option<Vec<Place>> {
        let invariant = || Number::invariant(&self.unit.expanded.words(index.span.first, index.span.end));
        let constant = index.constant().and_then(|value| i64::try_from(value).ok());
        let number = constant.map_or_else(invariant, Number::constant);
        let element = pointer.ty.decayed().target()?;
        if !element.same(&ty.target()?) && number.as_constant() != Some(0) {
            return None;
        }
        let places = self.origin(pointer, ty, depth)?;
        Some(places.into_iter().map(|place| place.moved(&number, unit_of(ty))).collect())
    }

    /// Returns the places of a pointer in a record that only its declaration sets.
    pub(super) fn member_origin(&self, id: DeclId, field: &str, ty: &Type) -> Option<Vec<Place>> {
        let declaration = self.unit.declaration(id);
        let Some(Initializer::List(list)) = declaration.initializer.as_deref() else { return None };
        let record = declaration.ty.record()?;
        if record.is_union || changes(self.unit, id, Some(field)) {
            return None;
        }
        let fields = record.fields.borrow();
        let mut position = 0;
        for item in &list.items {
            match item.designators.first() {
                Some(Designator::Field(name)) => {
                    position = fields.iter().position(|one| one.name.as_ref() == Some(name))?;
                }
                Some(Designator::Index) => return None,
                None => {}
            }
            let found = fields.get(position)?;
            if found.name.as_deref() == Some(field) {
                let Initializer::Expression(value) = &item.value else { return None };
                return self.origin(value, ty, DEPTH_MAX);
            }
            position += 1;
        }
        None
    }
}

/// Returns whether any function assigns a variable or a field of it, or takes its address.
fn changes(unit: &Unit, id: DeclId, field: Option<&str>) -> bool {
    let is_target = |target: &Expr| match &target.bare().kind {
        ExprKind::Name(named) => *named == id,
        ExprKind::Member { object, field: named, .. } => {
            object.name() == Some(id) && field.is_none_or(|field| field == named)
        }
        _ => false,
    };
    let mut found = false;
    for function in unit.functions.keys() {
        let Some((_, body)) = unit.function(*function) else { continue };
        walk::statement(unit, body, &mut |node| {
            if let Node::Expr(one) = node {
                found |= match &one.kind {
                    ExprKind::Assign(_, target, _) | ExprKind::Update { operand: target, .. } => is_target(target),
                    ExprKind::Unary(operator, target) => operator == "&" && is_target(target),
                    _ => false,
                };
            }
            !found
        });
    }
    found
}

/// Returns the arrays whose beginnings visible calls of a function pass, by parameter.
pub(super) fn passed(unit: &Unit, function: DeclId) -> HashMap<String, BTreeSet<DeclId>> {
    let mut arrays: HashMap<String, BTreeSet<DeclId>> = HashMap::new();
    let Some((called, _)) = unit.function(function) else { return arrays };
    for caller in unit.functions.keys() {
        let Some((_, body)) = unit.function(*caller) else { continue };
        walk::statement(unit, body, &mut |node| {
            if let Node::Expr(Expr { kind: ExprKind::Call(name, arguments), .. }) = node
                && name.name() == Some(function)
            {
                for (parameter, argument) in called.parameters.iter().zip(arguments) {
                    if let Some(array) = begin_of(unit, argument) {
                        arrays.entry(unit.declaration(*parameter).name.clone()).or_default().insert(array);
                    }
                }
            }
            true
        });
    }
    arrays
}

/// Returns the array whose first element a pointer points to: `array` or `&array[0]`.
fn begin_of(unit: &Unit, pointer: &Expr) -> Option<DeclId> {
    match &pointer.bare().kind {
        ExprKind::Cast(_, inner) => begin_of(unit, inner),
        ExprKind::Name(id) => unit.declaration(*id).ty.is_array().then_some(*id),
        ExprKind::Unary(operator, inner) if operator == "&" => match &inner.bare().kind {
            ExprKind::Index(array, index) if index.constant() == Some(0) => begin_of(unit, array),
            _ => None,
        },
        _ => None,
    }
}
