//! Memory places, as far as the text shows them.
//!
//! Different pointers are assumed to reach different memory, unless the text shows that it is the
//! same.

use super::number::Number;
use crate::syntax::ast::DeclId;

/// Object that an access begins at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Base {
    /// Local variable of a call, by the number of the call.
    Local(usize, DeclId),
    /// Memory that the lookup itself allocated.
    Fresh,
    /// Variable outside the lookup.
    Outer(DeclId),
    /// Memory behind a pointer that all lookups share, by the pointer's text.
    Behind(String),
    /// Records behind pointers that are stored in memory, by record number.
    Records(usize),
    /// Other memory behind pointers that are stored in memory, by pointer.
    Reached(String),
    /// String constants and other constant data.
    Constant,
    /// No object: a null pointer, which no execution reads or writes.
    Null,
}

/// Step from an object to a part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// Field, by record number and name. `shared` marks the fields of a union.
    Field { record: usize, name: String, shared: bool },
    /// Array element, with the element size in bytes or 0.
    Index { number: Number, unit: u64 },
}

/// Part of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) base: Base,
    pub(super) path: Vec<Step>,
}

/// Maximum length of a path.
const PATH_MAX: usize = 8;

impl Place {
    pub(super) fn new(base: Base) -> Self {
        Self { base, path: Vec::new() }
    }

    pub(super) fn with(mut self, step: Step) -> Self {
        if self.path.len() < PATH_MAX {
            self.path.push(step);
        }
        self
    }

    pub(super) fn is_private(&self) -> bool {
        matches!(self.base, Base::Local(..) | Base::Fresh | Base::Null)
    }

    /// Returns the place `number` elements further.
    pub(super) fn moved(mut self, number: &Number, unit: u64) -> Self {
        if self.base == Base::Null && number.as_constant() != Some(0) {
            self.base = Base::Reached("*NULL".to_owned());
        }
        match self.path.last_mut() {
            Some(Step::Index { number: last, unit: known }) if *known == unit => *last = last.plus(number),
            Some(Step::Index { number: last, .. }) => *last = Number::Any,
            _ if number.as_constant() == Some(0) => {}
            _ => self.path.push(Step::Index { number: number.clone(), unit }),
        }
        self
    }

    /// Returns the place with unknown elements.
    pub(super) fn blurred(mut self) -> Self {
        if let Some(Step::Index { number, .. }) = self.path.last_mut() {
            *number = Number::Any;
        }
        self
    }

    /// Returns whether all lookups reach the same place.
    pub(super) fn is_same_for_all(&self) -> bool {
        matches!(self.base, Base::Outer(_) | Base::Behind(_))
            && self.path.iter().all(|step| match step {
                Step::Field { .. } => true,
                Step::Index { number, .. } => number.is_invariant(),
            })
    }

    /// Returns whether two paths differ only in their numbers.
    pub(super) fn has_shape_of(&self, other: &Self) -> bool {
        self.base == other.base
            && self.path.len() == other.path.len()
            && self.path.iter().zip(&other.path).all(|(one, two)| match (one, two) {
                (Step::Field { record, name, .. }, Step::Field { record: other, name: named, .. }) => {
                    record == other && name == named
                }
                (Step::Index { unit, .. }, Step::Index { unit: other, .. }) => unit == other,
                _ => false,
            })
    }

    /// Joins the numbers of a place of the same shape.
    pub(super) fn join(&mut self, other: &Self) {
        for (one, two) in self.path.iter_mut().zip(&other.path) {
            if let (Step::Index { number, .. }, Step::Index { number: other, .. }) = (one, two) {
                *number = number.joined(other);
            }
        }
    }

    /// Returns the text of the place, for a pointer that is stored there.
    pub(super) fn text(&self, name: impl Fn(DeclId) -> String) -> String {
        let mut text = match &self.base {
            Base::Outer(id) => name(*id),
            Base::Behind(text) | Base::Reached(text) => text.clone(),
            Base::Records(number) => format!("record {number}"),
            Base::Local(..) | Base::Fresh | Base::Constant | Base::Null => "local".to_owned(),
        };
        let behind = matches!(self.base, Base::Behind(_));
        for (index, step) in self.path.iter().enumerate() {
            match step {
                Step::Index { number, .. } if number.as_constant() == Some(0) && behind && index == 0 => {
                    if !matches!(self.path.get(1), Some(Step::Field { .. })) {
                        text = format!("*{text}");
                    }
                }
                Step::Index { number, .. } if number.is_invariant() => text += &format!("[{}]", number.text()),
                Step::Index { .. } => text += "[]",
                Step::Field { name, .. } => {
                    let arrow = behind
                        && (index == 0
                            || index == 1
                                && matches!(&self.path[0], Step::Index { number, .. } if number.as_constant() == Some(0)));
                    text += if arrow { "->" } else { "." };
                    text += name;
                }
            }
        }
        text
    }
}

/// Places that a pointer may point to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Targets {
    pub(super) places: Vec<Place>,
    /// Whether the pointer may point to memory that the analysis does not know.
    pub(super) unknown: bool,
    /// Functions that the pointer may point to.
    pub(super) functions: Vec<DeclId>,
}

/// Maximum number of places of a pointer.
const PLACES_MAX: usize = 24;

impl Targets {
    pub(super) fn of(place: Place) -> Self {
        Self { places: vec![place], ..Self::default() }
    }

    pub(super) fn unknown() -> Self {
        Self { unknown: true, ..Self::default() }
    }

    /// Adds another pointer's targets. Returns whether any is new.
    pub(super) fn join(&mut self, other: &Self) -> bool {
        let mut changed = !self.unknown && other.unknown;
        self.unknown |= other.unknown;
        for place in &other.places {
            if self.places.contains(place) {
                continue;
            }
            if let Some(known) = self.places.iter_mut().find(|known| known.has_shape_of(place)) {
                let before = known.clone();
                known.join(place);
                changed |= *known != before;
            } else if self.places.len() < PLACES_MAX {
                self.places.push(place.clone());
                changed = true;
            } else {
                changed |= !self.unknown;
                self.unknown = true;
            }
        }
        for function in &other.functions {
            if !self.functions.contains(function) {
                self.functions.push(*function);
                changed = true;
            }
        }
        changed
    }

    /// Returns the targets without null pointers.
    pub(super) fn without_null(mut self) -> Self {
        self.places.retain(|place| place.base != Base::Null);
        self
    }

    pub(super) fn map(mut self, change: impl Fn(Place) -> Place) -> Self {
        self.places = self.places.into_iter().map(change).collect();
        self
    }
}

/// Value of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) number: Number,
    pub(super) targets: Targets,
}

impl Value {
    pub(super) fn nothing() -> Self {
        Self { number: Number::Nothing, targets: Targets::default() }
    }

    pub(super) fn any() -> Self {
        Self { number: Number::Any, targets: Targets::default() }
    }

    pub(super) fn number(number: Number) -> Self {
        Self { number, targets: Targets::default() }
    }

    pub(super) fn pointer(targets: Targets) -> Self {
        Self { number: Number::Any, targets }
    }

    /// Adds another expression's values. Returns whether any is new.
    pub(super) fn join(&mut self, other: &Self) -> bool {
        let number = self.number.joined(&other.number);
        let changed = number != self.number;
        self.number = number;
        self.targets.join(&other.targets) | changed
    }
}
