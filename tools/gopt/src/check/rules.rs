//! Rules for accesses to shared memory.

use std::collections::BTreeSet;

use super::access::{Access, AccessKind, StepKind};
use super::number::Number;
use super::place::{Base, Place, Step};
use super::{Check, Legal};
use crate::error::{Fault, Pass, refuse};
use crate::syntax::ast::DeclId;

/// Relation of two accesses in different lookups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Relation {
    /// The places differ in different lookups, or always.
    Apart,
    /// The places may be the same.
    Unknown,
    /// The places are equal for some lookups, as the text shows.
    Same,
}

impl Check<'_> {
    /// Applies the rules to all noted accesses.
    pub(super) fn finish(self) -> Pass<Legal> {
        let mut writes: Vec<&Access> = self.accesses.iter().filter(|one| one.writes()).collect();
        // A variable outside the loop is often the cause of other faults.
        let is_scalar = |one: &Access| matches!(one.place.base, Base::Outer(_)) && one.place.path.is_empty();
        writes.sort_by_key(|one| (!is_scalar(one), one.at));
        for write in &writes {
            self.constant_write(write)?;
            for other in &self.accesses {
                self.pair(write, other)?;
            }
        }
        self.ordered_steps(&writes)?;
        let of_function = |access: &&&Access| match access.place.base {
            Base::Outer(id) => {
                self.unit.declaration(id).is_automatic()
                    && matches!(access.kind, AccessKind::Step(_) | AccessKind::Set(_))
            }
            _ => false,
        };
        let only_local_steps = !writes.is_empty() && writes.iter().filter(of_function).count() == writes.len();
        // Arrays of an outer iteration belong to its lookup.
        let outer_body = self.site.around.iter().rev().find_map(|around| around.loop_body()).map(|body| body.span);
        let of_outer = |id: DeclId| {
            let token = self.unit.declaration(id).token;
            outer_body.is_some_and(|span| (span.first..span.end).contains(&token))
        };
        let is_shared = |access: &Access| match &access.place.base {
            Base::Outer(id) => !of_outer(*id),
            Base::Behind(text) => !self.roots.get(text).is_some_and(|id| of_outer(*id)),
            _ => true,
        };
        let is_own = |access: &Access| {
            is_shared(access)
                && access
                    .place
                    .path
                    .iter()
                    .any(|step| matches!(step, Step::Index { number: Number::Linear(one), .. } if self.is_own(one)))
        };
        let has_effects = !writes.is_empty() || self.site.promise || !self.permissions.unordered.is_empty();
        Ok(Legal {
            only_local_steps,
            has_effects,
            reads_own_elements: self.accesses.iter().any(is_own),
            private: self.private,
            signed_steps: self.signed_steps,
            inlined: self.inlined,
        })
    }

    fn constant_write(&self, write: &Access) -> Pass<()> {
        if write.place.base == Base::Constant || matches!(write.place.base, Base::Outer(id) if self.is_constant(id)) {
            return refuse(write.at, "the lookup writes to constant data");
        }
        Ok(())
    }

    fn step_of(&self, variable: DeclId) -> i64 {
        self.header.inductions.get(&variable).and_then(|one| one.step).unwrap_or(0)
    }

    fn is_own(&self, number: &super::number::Linear) -> bool {
        number.variable.is_some_and(|variable| number.is_own(self.step_of(variable)))
    }

    /// Refuses a write that may conflict with another access, or with the same write of another
    /// lookup.
    fn pair(&self, write: &Access, other: &Access) -> Pass<()> {
        // The parts behind `#pragma gopt serial` keep their order.
        if write.serial && other.serial {
            return Ok(());
        }
        if commutes(write, other) {
            return Ok(());
        }
        match self.relation(&write.place, &other.place) {
            Relation::Apart => Ok(()),
            Relation::Unknown if self.site.promise => Ok(()),
            relation => self.refuse_pair(write, other, relation),
        }
    }

    fn relation(&self, one: &Place, two: &Place) -> Relation {
        match (&one.base, &two.base) {
            (base, other) if base == other => {
                self.paths(&one.path, &two.path, one.is_same_for_all() && two.is_same_for_all())
            }
            // Records of one type may be reached in several ways.
            (Base::Records(record), _) | (_, Base::Records(record)) => {
                let (dynamic, rooted) = if matches!(one.base, Base::Records(_)) { (one, two) } else { (two, one) };
                if matches!(rooted.base, Base::Records(_) | Base::Constant) {
                    return Relation::Apart;
                }
                let field = |place: &Place| {
                    place.path.iter().find_map(|step| match step {
                        Step::Field { record: of, name, .. } if of == record => Some(name.clone()),
                        _ => None,
                    })
                };
                let (own, other) = (field(dynamic), field(rooted));
                if own.is_some() && own == other { Relation::Unknown } else { Relation::Apart }
            }
            (base, other) if self.is_same_array(base, other) => self.paths(&one.path, &two.path, false),
            _ => Relation::Apart,
        }
    }

    /// Returns whether a visible caller passes the same array for two objects.
    fn is_same_array(&self, one: &Base, two: &Base) -> bool {
        let arrays = |base: &Base| match base {
            Base::Outer(id) => BTreeSet::from([*id]),
            Base::Behind(text) => self.passed.get(text).cloned().unwrap_or_default(),
            _ => BTreeSet::new(),
        };
        !arrays(one).is_disjoint(&arrays(two))
    }

    /// Compares two paths from the same object.
    fn paths(&self, one: &[Step], two: &[Step], same_for_all: bool) -> Relation {
        for (left, right) in one.iter().zip(two) {
            match (left, right) {
                (Step::Field { record, name, shared }, Step::Field { record: other, name: named, shared: also }) => {
                    if record == other && name != named && !(*shared && *also) {
                        return Relation::Apart;
                    }
                    if record != other {
                        return Relation::Unknown;
                    }
                }
                (
                    Step::Index { number: Number::Linear(left), unit },
                    Step::Index { number: Number::Linear(right), unit: other },
                ) => {
                    if unit != other {
                        return Relation::Unknown;
                    }
                    if left.is_apart(right) {
                        return Relation::Apart;
                    }
                    let both = left.variable.filter(|variable| right.variable == Some(*variable));
                    if let Some(variable) = both {
                        if left.is_own_with(right, self.step_of(variable)) {
                            return Relation::Apart;
                        }
                        // The index of one lookup is that of a neighbour.
                        let single = |one: &super::number::Linear| one.low == one.high && one.below.is_empty();
                        let linear = left.scale == right.scale
                            && left.shift == right.shift
                            && left.stride.is_empty()
                            && right.stride.is_empty();
                        if linear
                            && single(left)
                            && single(right)
                            && left.low != right.low
                            && self.step_of(variable) != 0
                        {
                            let distance = left.scale.saturating_mul(self.step_of(variable));
                            let meets = distance != 0 && (left.low - right.low) % distance == 0;
                            return if meets { Relation::Same } else { Relation::Apart };
                        }
                        return Relation::Unknown;
                    }
                }
                (Step::Index { .. }, Step::Index { .. }) => {}
                _ => return Relation::Unknown,
            }
        }
        if same_for_all { Relation::Same } else { Relation::Unknown }
    }

    fn refuse_pair(&self, write: &Access, other: &Access, relation: Relation) -> Pass<()> {
        let text = match (&write.place.base, self.place_text(&write.place)) {
            (Base::Records(_), text) => match text.rsplit_once('.') {
                Some((_, member)) => format!("the member {member} of a record"),
                None => "a record".to_owned(),
            },
            (_, text) => text,
        };
        let scalar = matches!(write.place.base, Base::Outer(_)) && write.place.path.is_empty();
        let remedy = "say foreach or #pragma gopt independent if no two lookups meet";
        if write.serial || other.serial {
            let at = if write.serial { other.at } else { write.at };
            return refuse(
                at,
                format!("{text} is used before #pragma gopt serial, and changed behind it by earlier lookups"),
            );
        }
        let reads = other.kind == AccessKind::Read;
        let floating = AccessKind::Step(StepKind::FloatingSum);
        let reason = match (&write.kind, scalar, relation) {
            (AccessKind::Step(_), true, _) if reads => {
                format!(
                    "{text} is declared outside the lookup, changed by it and read by others: lookups depend on each other"
                )
            }
            _ if write.kind == floating && other.kind == floating => {
                format!(
                    "{text} is a sum of floating-point numbers, which depends on the order: allow it with --reassociate"
                )
            }
            (_, true, _) if !reads && *other == *write => {
                format!(
                    "{text} is declared outside the lookup and changed by it: the last write would change; declare it inside the loop"
                )
            }
            (_, true, _) => {
                format!(
                    "{text} is declared outside the lookup and changed by it: lookups depend on each other; declare it inside the loop"
                )
            }
            (_, _, Relation::Same) if !reads => {
                format!("every lookup writes to the same location {text}: the last write would change")
            }
            (_, _, Relation::Same) => {
                format!("{text} is written by one lookup and read by another: lookups depend on each other")
            }
            (AccessKind::Step(_), ..) if reads => format!("{text} is changed by lookups and read by others: {remedy}"),
            _ if reads => format!("{text} is written, and others may read it: {remedy}"),
            _ => format!("{text} is written at a place that is not the lookup's own: {remedy}"),
        };
        let about = match write.place.base {
            Base::Outer(id) if scalar => Some(id),
            _ => None,
        };
        let at = if reads { write.at } else { write.at.max(other.at) };
        Err(Fault { at: Some(at), about, ..Fault::new(reason) })
    }

    /// Refuses atomic operations that order other writes.
    fn ordered_steps(&self, writes: &[&Access]) -> Pass<()> {
        let Some(ordered) = writes.iter().find(|one| one.ordered && !one.serial) else { return Ok(()) };
        if self.site.promise || writes.iter().all(|one| one.place == ordered.place) {
            return Ok(());
        }
        refuse(
            ordered.at,
            "this atomic operation orders other writes of the lookup, whose order would change: use __ATOMIC_RELAXED",
        )
    }
}

impl PartialEq for Access {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at && self.kind == other.kind && self.place == other.place
    }
}

/// Returns whether two accesses have the same result in both orders.
fn commutes(write: &Access, other: &Access) -> bool {
    match (&write.kind, &other.kind) {
        (AccessKind::Step(one), AccessKind::Step(two)) => {
            let same_type = match one {
                StepKind::Or | StepKind::And | StepKind::Xor => true,
                // A carry depends on the width only.
                StepKind::Sum => write.integer.map(|(_, rank)| rank) == other.integer.map(|(_, rank)| rank),
                StepKind::Least | StepKind::Greatest => write.integer == other.integer,
                StepKind::FloatingSum => false,
            };
            one == two && same_type
        }
        (AccessKind::Set(one), AccessKind::Set(two)) => one == two && !overlap(&write.place, &other.place),
        _ => false,
    }
}

/// Returns whether two places may share a part of their bytes only, as the members of a union do.
fn overlap(one: &Place, two: &Place) -> bool {
    match (one.path.last(), two.path.last()) {
        (Some(Step::Field { record, name, shared }), Some(Step::Field { record: other, name: named, .. })) => {
            *shared && record == other && name != named
        }
        (Some(Step::Index { unit, .. }), Some(Step::Index { unit: other, .. })) => unit != other,
        (Some(Step::Field { shared, .. }), _) | (_, Some(Step::Field { shared, .. })) => *shared,
        _ => false,
    }
}
