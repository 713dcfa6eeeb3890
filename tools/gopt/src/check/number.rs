//! Integers that the analysis knows: constants, ranges, and linear functions of the iteration.

use crate::syntax::ast::DeclId;

/// Integer value in a lookup: `scale * stride * variable + shift + [low, high]`.
///
/// `variable` is an induction variable of the batch loop. `stride` and `shift` are texts of
/// expressions that have the same value in all lookups. If `below` is not empty, the upper bound is
/// `below - 1` instead of `high`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Number {
    /// No value yet.
    Nothing,
    Linear(Linear),
    Any,
}

/// Parts of a known [`Number`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Linear {
    pub(super) variable: Option<DeclId>,
    pub(super) scale: i64,
    pub(super) stride: String,
    pub(super) shift: String,
    pub(super) low: i64,
    pub(super) high: i64,
    pub(super) below: String,
}

/// Maximum length of the text of an expression.
const TEXT_MAX: usize = 120;

impl Number {
    pub(super) fn constant(value: i64) -> Self {
        Self::range(value, value)
    }

    pub(super) fn range(low: i64, high: i64) -> Self {
        Self::Linear(Linear {
            variable: None,
            scale: 0,
            stride: String::new(),
            shift: String::new(),
            low,
            high,
            below: String::new(),
        })
    }

    /// Returns the range from 0 to `bound - 1`, where `bound` is a text.
    pub(super) fn below(bound: &str) -> Self {
        let Self::Linear(mut found) = Self::constant(0) else { return Self::Any };
        found.below = bound.to_owned();
        Self::Linear(found)
    }

    /// Returns a value that is the same in all lookups.
    pub(super) fn invariant(text: &str) -> Self {
        let Self::Linear(mut found) = Self::constant(0) else { return Self::Any };
        found.shift = text.to_owned();
        Self::Linear(found)
    }

    /// Returns the value of an induction variable.
    pub(super) fn induction(variable: DeclId, offset: i64) -> Self {
        let Self::Linear(mut found) = Self::constant(offset) else { return Self::Any };
        found.variable = Some(variable);
        found.scale = 1;
        Self::Linear(found)
    }

    /// Returns the value if it is a single constant.
    pub(super) fn as_constant(&self) -> Option<i64> {
        match self {
            Self::Linear(one) if one.is_plain() && one.low == one.high => Some(one.low),
            _ => None,
        }
    }

    /// Returns whether all lookups have the same value.
    pub(super) fn is_invariant(&self) -> bool {
        matches!(self, Self::Linear(one) if one.variable.is_none() && one.low == one.high && one.below.is_empty())
    }

    pub(super) fn plus(&self, other: &Self) -> Self {
        let (Self::Linear(one), Self::Linear(two)) = (self, other) else { return Self::of_any(self, other) };
        let (one, two) = if one.variable.is_some() { (one, two) } else { (two, one) };
        if two.variable.is_some() || !one.below.is_empty() && !two.below.is_empty() {
            return Self::Any;
        }
        let shift = match (one.shift.is_empty(), two.shift.is_empty()) {
            (_, true) => one.shift.clone(),
            (true, _) => two.shift.clone(),
            _ => format!("{}+{}", (&one.shift).min(&two.shift), (&one.shift).max(&two.shift)),
        };
        let (Some(low), Some(high)) = (one.low.checked_add(two.low), one.high.checked_add(two.high)) else {
            return Self::Any;
        };
        // A symbolic bound does not move.
        let below = if one.below.is_empty() { two.below.clone() } else { one.below.clone() };
        if !below.is_empty() && (one.low != one.high && one.below.is_empty() || low != 0) || shift.len() > TEXT_MAX {
            return Self::Any;
        }
        Self::Linear(Linear {
            variable: one.variable,
            scale: one.scale,
            stride: one.stride.clone(),
            shift,
            low,
            high,
            below,
        })
    }

    pub(super) fn negated(&self) -> Self {
        self.times(&Self::constant(-1))
    }

    pub(super) fn times(&self, other: &Self) -> Self {
        let (one, factor) = match (self.as_constant(), other.as_constant()) {
            (_, Some(factor)) => (self, factor),
            (Some(factor), _) => (other, factor),
            _ => return self.times_invariant(other),
        };
        let Self::Linear(one) = one else { return Self::of_any(self, other) };
        if !one.below.is_empty() && factor != 1 {
            return Self::Any;
        }
        let parts = (one.scale.checked_mul(factor), one.low.checked_mul(factor), one.high.checked_mul(factor));
        let (Some(scale), Some(low), Some(high)) = parts else { return Self::Any };
        let shift =
            if one.shift.is_empty() || factor == 1 { one.shift.clone() } else { format!("{factor}*({})", one.shift) };
        let variable = one.variable.filter(|_| scale != 0);
        let (low, high) = (low.min(high), low.max(high));
        Self::Linear(Linear { variable, scale, shift, low, high, ..one.clone() })
    }

    /// Multiplies by a value that is the same in all lookups.
    fn times_invariant(&self, other: &Self) -> Self {
        let (Self::Linear(one), Self::Linear(two)) = (self, other) else { return Self::of_any(self, other) };
        let (one, two) = if one.variable.is_some() { (one, two) } else { (two, one) };
        let pure = two.variable.is_none() && two.low == 0 && two.high == 0 && two.below.is_empty();
        let simple =
            one.low == 0 && one.high == 0 && one.below.is_empty() && one.shift.is_empty() && one.stride.is_empty();
        if pure && simple && one.variable.is_some() && !two.shift.is_empty() {
            return Self::Linear(Linear { stride: two.shift.clone(), ..one.clone() });
        }
        if self.is_invariant() && other.is_invariant() {
            return Self::invariant(&format!("({})*({})", self.text(), other.text()));
        }
        Self::Any
    }

    /// Returns the values of both.
    pub(super) fn joined(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Nothing, one) | (one, Self::Nothing) => one.clone(),
            (Self::Linear(one), Self::Linear(two)) if one == two => self.clone(),
            (Self::Linear(one), Self::Linear(two)) => {
                let same = one.variable == two.variable
                    && one.scale == two.scale
                    && one.stride == two.stride
                    && one.shift == two.shift
                    && one.below.is_empty()
                    && two.below.is_empty();
                let (low, high) = (one.low.min(two.low), one.high.max(two.high));
                // A range that keeps growing is not a range.
                let grows = one.low != one.high && (low < one.low || high > one.high) && high - low > 64;
                if same && !grows { Self::Linear(Linear { low, high, ..one.clone() }) } else { Self::Any }
            }
            _ => Self::Any,
        }
    }

    fn of_any(one: &Self, other: &Self) -> Self {
        if *one == Self::Nothing || *other == Self::Nothing { Self::Nothing } else { Self::Any }
    }

    /// Returns the text of an invariant value.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Linear(one) if one.shift.is_empty() => one.low.to_string(),
            Self::Linear(one) if one.low == 0 => one.shift.clone(),
            Self::Linear(one) => format!("{}+{}", one.shift, one.low),
            Self::Nothing | Self::Any => "?".to_owned(),
        }
    }
}

impl Linear {
    /// Returns whether the value is a constant or a range of constants.
    fn is_plain(&self) -> bool {
        self.variable.is_none() && self.shift.is_empty() && self.below.is_empty()
    }

    /// Returns whether different lookups never have the same value. `step` is the distance of the
    /// induction variable between two lookups.
    pub(super) fn is_own(&self, step: i64) -> bool {
        if self.variable.is_none() || self.scale == 0 {
            return false;
        }
        let distance = self.scale.saturating_mul(step).saturating_abs();
        if self.stride.is_empty() {
            return self.below.is_empty() && self.high - self.low < distance;
        }
        // A stride that the text does not show may be 0, but not if it exceeds an offset.
        let positive = self.stride.starts_with("sizeof") && self.low == self.high && self.below.is_empty();
        positive || self.stride == self.below && self.low == 0 && distance >= 1
    }

    /// Returns whether two values, taken together, differ between all lookups.
    pub(super) fn is_own_with(&self, other: &Self, step: i64) -> bool {
        let same = self.variable == other.variable
            && self.scale == other.scale
            && self.stride == other.stride
            && self.shift == other.shift;
        let both = Self {
            low: self.low.min(other.low),
            high: self.high.max(other.high),
            below: if self.below.is_empty() { other.below.clone() } else { self.below.clone() },
            ..self.clone()
        };
        // A symbolic stride separates single offsets only if both are equal or both are below the
        // stride.
        let bounded = !self.below.is_empty() && !other.below.is_empty() || self.below == other.below;
        same && bounded && both.is_own(step)
    }

    /// Returns whether both values are constants or ranges without a common value.
    pub(super) fn is_apart(&self, other: &Self) -> bool {
        let same = self.variable.is_none() && other.variable.is_none() && self.shift == other.shift;
        same && self.below.is_empty() && other.below.is_empty() && (self.high < other.low || other.high < self.low)
    }
}

#[cfg(test)]
mod tests {
    use super::{DeclId, Number};

    fn index() -> Number {
        Number::induction(DeclId(1), 0)
    }

    fn own(number: &Number, step: i64) -> bool {
        matches!(number, Number::Linear(one) if one.is_own(step))
    }

    #[test]
    fn multiples_of_the_index_have_room_between_them() {
        let four = index().times(&Number::constant(4));
        assert!(own(&four.plus(&Number::range(0, 3)), 1));
        assert!(!own(&four.plus(&Number::range(0, 4)), 1));
        assert!(own(&index().plus(&Number::range(0, 1)), 2));
        assert!(!own(&Number::range(0, 1), 1));
    }

    #[test]
    fn rows_of_a_width_are_apart() {
        let row = index().times(&Number::invariant("w"));
        assert!(own(&row.plus(&Number::below("w")), 1));
        assert!(!own(&row.plus(&Number::below("x")), 1));
        assert!(!own(&row.plus(&Number::range(0, 1)), 1));
        assert_eq!(index().times(&index()), Number::Any);
    }

    #[test]
    fn a_growing_range_becomes_any_value() {
        let mut number = Number::constant(0);
        for step in 0..100 {
            number = number.joined(&number.plus(&Number::constant(step)));
        }
        assert_eq!(number, Number::Any);
    }
}
