//! Accesses to memory that lookups share.

use super::Check;
use super::place::Place;

/// Commutative operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StepKind {
    Sum,
    Or,
    And,
    Xor,
    Least,
    Greatest,
    /// Sum of floating-point numbers, whose result depends on the order.
    FloatingSum,
}

/// Kind of an access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AccessKind {
    Read,
    Write,
    Step(StepKind),
    /// Assignment of a constant, by its text.
    Set(String),
}

/// Access of a lookup to shared memory.
#[derive(Clone, Debug)]
pub(super) struct Access {
    pub(super) place: Place,
    pub(super) kind: AccessKind,
    /// Token of the access.
    pub(super) at: usize,
    /// Whether the access follows `#pragma gopt serial`.
    pub(super) serial: bool,
    /// Whether the atomic operation also orders other accesses.
    pub(super) ordered: bool,
    /// Signedness and rank of a step's integer type.
    pub(super) integer: Option<(bool, u8)>,
}

impl Access {
    pub(super) fn writes(&self) -> bool {
        self.kind != AccessKind::Read
    }
}

impl Check<'_> {
    /// Notes a step of an integer of some type.
    pub(super) fn note_step(&mut self, places: &[Place], kind: &StepKind, integer: Option<(bool, u8)>, at: usize) {
        self.note(places, &AccessKind::Step(kind.clone()), at);
        for access in self.accesses.iter_mut().rev().take_while(|access| access.at == at) {
            access.integer = integer;
        }
    }

    /// Notes an access to all places of a pointer or name.
    pub(super) fn note(&mut self, places: &[Place], kind: &AccessKind, at: usize) {
        if !self.is_last {
            return;
        }
        for place in places.iter().filter(|place| !place.is_private()) {
            let serial = self.serial;
            let known = |one: &Access| one.place == *place && one.kind == *kind && one.serial == serial;
            if !self.accesses.iter().any(known) {
                self.accesses.push(Access {
                    place: place.clone(),
                    kind: kind.clone(),
                    at,
                    serial,
                    ordered: false,
                    integer: None,
                });
            }
        }
    }
}
