//! A policy is a goal for placements, such as low latency. It computes a score from a prediction.
//!
//! To add a policy, copy a file of this folder, change its score, and add it to [`POLICIES`].

mod energy;
mod hold;
mod latency;
mod latency_bound;
mod power_cap;
mod throughput;

use std::cmp::Ordering;
use std::str::FromStr;

use super::model::Prediction;

/// Policies that the operator can choose, in the order in which SIGUSR1 selects them.
pub const POLICIES: &[&Policy] = &[
    &throughput::POLICY,
    &latency::POLICY,
    &latency_bound::POLICY,
    &energy::POLICY,
    &power_cap::POLICY,
    &hold::POLICY,
];

/// Queues do not grow if at most this fraction of each resource is used.
const CARRY: f64 = 0.85;

/// A goal for placements, such as low latency.
#[derive(Debug)]
pub struct Policy {
    /// Name of the policy on the command line.
    pub name: &'static str,
    /// Effect of the policy, as a sentence for the help text.
    pub summary: &'static str,
    /// Unit of the limit after `--under`, if the policy has one.
    pub unit: Option<Unit>,
    /// Method that divides each function's packets between devices.
    pub splits: Splits,
    /// Whether the score depends on latencies.
    pub needs_latency: bool,
    /// Whether smaller submissions can improve the score.
    pub shrinks_chunks: bool,
    /// Whether the score can improve if fewer workers are awake.
    pub folds_workers: bool,
    /// Whether the placement never changes by itself.
    pub holds: bool,
    /// Computes the score of a prediction. The smallest score is the best.
    pub score: fn(&Prediction, &Limits) -> Score,
}

impl Policy {
    /// Returns the index of the policy in [`POLICIES`], or -1.
    pub(super) fn index(&self) -> i16 {
        let position = POLICIES.iter().position(|policy| std::ptr::eq(*policy, self));
        position.map_or(-1, |position| position as i16)
    }
}

/// Unit of the limit of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A time, such as `200us`.
    Time,
    /// A power, such as `300W`.
    Watts,
}

/// Method that divides each function's packets between devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Splits {
    /// A linear program that maximises the load that the devices can process.
    Capacity,
    /// A linear program that minimises the power of devices that can process the load.
    Power,
    /// A search that divides the packets in steps of one eighth, for scores that are not linear.
    Eighths,
}

/// Limits that the score of a policy can use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// A placement can process the load if it uses at most this fraction of each resource.
    pub carry: f64,
    /// Upper bound for the 99th percentile of the latency, in nanoseconds.
    pub p99_ns: f64,
    /// Upper bound for the power, in watts.
    pub watts: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { carry: CARRY, p99_ns: f64::INFINITY, watts: f64::INFINITY }
    }
}

/// Score of a prediction. A smaller score is better. Earlier fields take precedence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// Amount by which a requirement is violated, or 0 if all requirements are met.
    pub shortfall: f64,
    /// Quantity that the policy minimises. It is not negative.
    pub cost: f64,
    /// Second criterion, which decides between scores with equal costs. It is not negative.
    pub tie: f64,
}

impl Score {
    /// Score that is worse than any other.
    pub const WORST: Self = Self { shortfall: f64::INFINITY, cost: f64::INFINITY, tie: f64::INFINITY };

    /// Relative difference below which two costs count as equal in [`Score::gain_over`].
    const EQUAL: f64 = 1e-3;
    /// Difference below which two violations of requirements count as equal.
    const SHORTFALL_EQUAL: f64 = 5e-3;

    /// Compares two scores. `Less` means that this score is better.
    pub fn compare(&self, other: &Self) -> Ordering {
        let shortfall = self.shortfall.total_cmp(&other.shortfall);
        shortfall.then(self.cost.total_cmp(&other.cost)).then(self.tie.total_cmp(&other.tie))
    }

    /// Returns whether this score is better than `other`.
    #[inline]
    pub fn is_better(&self, other: &Self) -> bool {
        self.compare(other) == Ordering::Less
    }

    /// Returns the relative gain of this score over `other`, which is the saved fraction of the
    /// cost. If the costs are equal, the second criterion is compared instead. The gain is infinite
    /// if this score violates the requirements less than `other`.
    pub fn gain_over(&self, other: &Self) -> f64 {
        if self.shortfall + Self::SHORTFALL_EQUAL < other.shortfall {
            return f64::INFINITY;
        }
        if self.shortfall > other.shortfall + Self::SHORTFALL_EQUAL {
            return f64::NEG_INFINITY;
        }
        let saved = |old: f64, new: f64| if old > 0.0 && old.is_finite() { (old - new) / old } else { 0.0 };
        let gain = saved(other.cost, self.cost);
        if gain.abs() < Self::EQUAL { saved(other.tie, self.tie) } else { gain }
    }
}

/// Returns by how much the used fraction of the fullest resource exceeds its limit, or 0 if it is
/// within the limit.
fn carries(prediction: &Prediction, limits: &Limits) -> f64 {
    (prediction.load - limits.carry).max(0.0)
}

/// A policy with its limit, as the operator requested it.
#[derive(Clone, Copy, Debug)]
pub struct Goal {
    /// Policy.
    pub policy: &'static Policy,
    /// Limits of the policy.
    pub limits: Limits,
}

/// Reason why the operator's goal cannot be set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GoalError {
    /// There is no policy of this name.
    #[error("`{name}` is not a policy; the policies are {known}")]
    Unknown {
        /// Name that was given.
        name: String,
        /// Names of all policies.
        known: String,
    },
    /// The policy has no limit.
    #[error("policy `{name}` has no limit: omit `under`")]
    NoLimit {
        /// Name of the policy.
        name: String,
    },
    /// The policy needs a limit.
    #[error("policy `{name}` needs a limit: set `under`, for example to {example}")]
    NeedsLimit {
        /// Name of the policy.
        name: String,
        /// Valid limit.
        example: &'static str,
    },
    /// The limit is not a quantity with the unit of the policy.
    #[error("`{text}` is no limit: `under` must be a positive number with its unit, such as {example}")]
    BadLimit {
        /// Text that was given.
        text: String,
        /// Valid limit.
        example: &'static str,
    },
    /// No device has a power meter, so the policy cannot work.
    #[error("policy `{name}` needs a power meter, but the profile has no measured power")]
    NoMeter {
        /// Name of the policy.
        name: String,
    },
}

impl Unit {
    const fn example(self) -> &'static str {
        match self {
            Self::Time => "200us",
            Self::Watts => "300W",
        }
    }

    /// Parses a positive number with its unit. Returns a time in nanoseconds or a power in watts.
    fn parse(self, text: &str) -> Option<f64> {
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = (f64::from_str(&text[..digits]).ok()?, text[digits..].trim_start());
        let scale = match (self, unit) {
            (Self::Time, "ns") | (Self::Watts, "W") => 1.0,
            (Self::Time, "us") => 1e3,
            (Self::Time, "ms") => 1e6,
            (Self::Time, "s") => 1e9,
            (Self::Watts, "kW") => 1e3,
            _ => return None,
        };
        Some(number * scale).filter(|value| (1e-3..1e15).contains(value))
    }
}

impl Goal {
    /// Returns the goal that maximises the capacity.
    pub(super) fn capacity() -> Self {
        Self { policy: &throughput::POLICY, limits: Limits::default() }
    }

    /// Returns the goal for the name of a policy and the text after `--under`.
    ///
    /// # Errors
    /// Returns an error if there is no such policy, or if the limit does not fit the policy.
    pub fn parse(name: &str, under: Option<&str>) -> Result<Self, GoalError> {
        let name = name.to_owned();
        let Some(policy) = POLICIES.iter().copied().find(|policy| policy.name == name) else {
            let known: Vec<&str> = POLICIES.iter().map(|policy| policy.name).collect();
            return Err(GoalError::Unknown { name, known: known.join(", ") });
        };
        let mut limits = Limits::default();
        match (under, policy.unit) {
            (None, None) => {}
            (None, Some(unit)) => return Err(GoalError::NeedsLimit { name, example: unit.example() }),
            (Some(_), None) => return Err(GoalError::NoLimit { name }),
            (Some(text), Some(unit)) => {
                let refuse = || GoalError::BadLimit { text: text.to_owned(), example: unit.example() };
                let value = unit.parse(text).ok_or_else(refuse)?;
                match unit {
                    Unit::Time => limits.p99_ns = value,
                    Unit::Watts => limits.watts = value,
                }
            }
        }
        Ok(Self { policy, limits })
    }

    /// Checks that there is a power meter if the policy has a power limit.
    ///
    /// # Errors
    /// Returns [`GoalError::NoMeter`] if no device has a power meter.
    pub fn check_meter(&self, has_meter: bool) -> Result<(), GoalError> {
        if self.policy.unit == Some(Unit::Watts) && !has_meter {
            return Err(GoalError::NoMeter { name: self.policy.name.to_owned() });
        }
        Ok(())
    }

    /// Returns the score of a prediction.
    #[inline]
    pub fn score(&self, prediction: &Prediction) -> Score {
        (self.policy.score)(prediction, &self.limits)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::model::Resource;
    use super::*;

    /// Returns a prediction in which half of the fullest resource is used.
    pub(in super::super) fn prediction() -> Prediction {
        Prediction {
            headroom: 2.0,
            load: 0.5,
            limit: Resource::Workers,
            p50_ns: 50e3,
            p99_ns: 100e3,
            watts: Some(200.0),
            cores: 4.0,
            awake: 8.0,
            error: 0.05,
        }
    }

    /// Asserts that `goal` prefers `better` to `worse`.
    #[track_caller]
    pub(in super::super) fn assert_prefers(goal: &Goal, better: Prediction, worse: Prediction) {
        let (better, worse) = (goal.score(&better), goal.score(&worse));
        assert!(better.is_better(&worse) && !worse.is_better(&better), "{better:?} {worse:?}");
        assert!(better.gain_over(&worse) > 0.0 && worse.gain_over(&better) <= 0.0, "{better:?} {worse:?}");
    }

    #[test]
    fn goals_parse() {
        for (name, under, policy, limit) in [
            ("throughput", None, "throughput", None),
            ("latency", None, "latency", None),
            ("latency-bound", Some("200us"), "latency-bound", Some((200e3, f64::INFINITY))),
            ("latency-bound", Some("1.5 ms"), "latency-bound", Some((1.5e6, f64::INFINITY))),
            ("energy", None, "energy", None),
            ("power-cap", Some("300W"), "power-cap", Some((f64::INFINITY, 300.0))),
            ("hold", None, "hold", None),
        ] {
            let goal = Goal::parse(name, under).expect(name);
            assert_eq!((goal.policy.name, goal.policy.unit.is_some()), (policy, limit.is_some()));
            let (p99_ns, watts) = limit.unwrap_or((f64::INFINITY, f64::INFINITY));
            assert_eq!((goal.limits.p99_ns, goal.limits.watts), (p99_ns, watts));
        }
        for (name, under, part) in [
            ("speed", None, "throughput, latency, latency-bound, energy, power-cap, hold"),
            ("energy", Some("300W"), "omit"),
            ("latency", Some("200us"), "omit"),
            ("latency-bound", None, "200us"),
            ("power-cap", None, "300W"),
            ("power-cap", Some("300"), "300W"),
            ("power-cap", Some("0W"), "300W"),
            ("power-cap", Some("200us"), "300W"),
            ("latency-bound", Some("fast"), "200us"),
            ("latency-bound", Some("-1us"), "200us"),
        ] {
            let error = Goal::parse(name, under).expect_err(name).to_string();
            assert!(error.contains(part), "{error}");
        }
        let cap = Goal::parse("power-cap", Some("300W")).expect("valid");
        assert!(cap.check_meter(true).is_ok() && cap.check_meter(false).is_err());
    }

    #[test]
    fn names_are_unique() {
        for (index, policy) in POLICIES.iter().enumerate() {
            assert!(!POLICIES[..index].iter().any(|other| other.name == policy.name), "{}", policy.name);
        }
    }

    #[test]
    fn every_policy_but_hold_prefers_a_placement_that_carries_the_load() {
        let full = Prediction { headroom: 0.5, load: 2.0, p99_ns: 5e6, watts: Some(150.0), ..prediction() };
        for policy in POLICIES.iter().filter(|policy| !policy.holds) {
            let goal = Goal { policy, limits: Limits { p99_ns: 150e3, watts: 250.0, ..Limits::default() } };
            assert_prefers(&goal, prediction(), full);
        }
    }
}
