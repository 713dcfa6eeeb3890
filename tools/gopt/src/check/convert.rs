//! Sizes of types, and conversions of values.

use super::Check;
use super::number::Number;
use super::place::{Base, Place, Step, Targets, Value};
use crate::syntax::types::{Kind, Type};

/// Returns the size of the elements of an array or behind a pointer. Each record has a unique
/// number instead.
pub(super) fn unit_of(ty: &Type) -> u64 {
    const RECORDS: u64 = 1 << 32;
    let Some(target) = ty.decayed().target() else { return 0 };
    match target.record() {
        Some(record) => RECORDS + record.number as u64,
        None => size_of(&target).unwrap_or(0),
    }
}

/// Returns the size of a type on 64-bit machines, or an upper bound.
pub(crate) fn size_of(ty: &Type) -> Option<u64> {
    match &*ty.resolved().kind {
        Kind::Void => Some(1),
        Kind::Integer { rank, .. } => Some(match rank {
            0 | 1 => 1,
            2 => 2,
            3 => 4,
            4 => 8,
            _ => 16,
        }),
        Kind::Enum(_) => Some(4),
        Kind::Floating(name) => match name.as_str() {
            "float" => Some(4),
            "double" => Some(8),
            _ => None,
        },
        Kind::Pointer(_) => Some(8),
        Kind::Array { element, size } => {
            let count = u64::try_from(size.as_ref()?.constant()?).ok()?;
            size_of(element)?.checked_mul(count)
        }
        Kind::Record(record) => {
            let fields = record.fields.borrow();
            if fields.is_empty() || !record.attributes.borrow().is_empty() {
                return None;
            }
            let sizes = fields.iter().map(|field| size_of(&field.ty).map(|size| size.next_multiple_of(8)));
            if record.is_union { sizes.collect::<Option<Vec<_>>>()?.into_iter().max() } else { sizes.sum() }
        }
        _ => None,
    }
}

/// Returns a value after its conversion to another type.
pub(super) fn cast(check: &Check<'_>, value: &Value, from: &Type, to: &Type) -> Value {
    let (from, to) = (from.decayed(), to.resolved());
    if let (Some(source), Some(target)) = (from.target(), to.target()) {
        if source.same(&target) || target.is_void() || source.is_void() && value.targets.places.iter().all(at_begin) {
            return value.clone();
        }
        return Value {
            number: value.number.clone(),
            targets: value.targets.clone().map(|place| retyped(check, place, &source, &target)),
        };
    }
    match (from.as_integer(), to.as_integer()) {
        // A narrower integer may lose the index.
        (Some((_, rank)), Some((_, other))) if other < rank => {
            let fits = matches!(&value.number, Number::Linear(one) if one.variable.is_none() && one.shift.is_empty() && one.below.is_empty() && one.low >= 0 && one.high < 128);
            if fits { value.clone() } else { Value { number: Number::Any, targets: Targets::default() } }
        }
        (None, Some(_)) if from.is_pointer() => value.clone(),
        (Some(_), None) if to.is_pointer() => {
            let mut value = value.clone();
            if value.targets.places.is_empty() {
                if value.number.as_constant() == Some(0) {
                    value.targets.join(&Targets::of(Place::new(Base::Null)));
                } else {
                    value.targets.unknown = true;
                }
            }
            value
        }
        _ => value.clone(),
    }
}

fn at_begin(place: &Place) -> bool {
    match place.path.last() {
        Some(Step::Index { number, .. }) => number.as_constant() == Some(0),
        _ => true,
    }
}

/// Returns a place as an element of another type.
fn retyped(_check: &Check<'_>, mut place: Place, from: &Type, to: &Type) -> Place {
    let size = size_of(to);
    let bytes = matches!(from.as_integer(), Some((_, 1))) || from.is_void();
    match place.path.last_mut() {
        Some(Step::Index { number: Number::Linear(one), unit }) if bytes && *unit <= 1 => {
            let text = format!("sizeof({})", type_text(to));
            if one.stride == text && one.scale.abs() == 1 && one.below.is_empty() && one.low == 0 && one.high == 0 {
                // `base + i * sizeof(T)` is element i.
                return place;
            }
            match size.and_then(|size| i64::try_from(size).ok()) {
                Some(size) if one.stride.is_empty() && one.below.is_empty() => {
                    one.high = one.high.saturating_add(size - 1);
                }
                _ => return place.blurred(),
            }
            place
        }
        Some(Step::Index { number, .. }) if number.as_constant() == Some(0) => place,
        Some(Step::Index { .. }) => place.blurred(),
        _ => place,
    }
}

/// Returns the text of a type without spaces, as in `sizeof`.
fn type_text(ty: &Type) -> String {
    type_words(ty)
}

/// Returns the text of a type without spaces.
pub(super) fn type_words(ty: &Type) -> String {
    match &*ty.kind {
        Kind::Named { name, .. } => name.clone(),
        Kind::Record(record) => {
            let word = if record.is_union { "union" } else { "struct" };
            format!("{word}{}", record.tag.as_deref().unwrap_or_default())
        }
        Kind::Integer { name, .. } => name.replace(' ', ""),
        _ => "?".to_owned(),
    }
}
