//! Placements: the result of the planner, and the form in which the search handles them.

use super::model::Machine;

/// Set of places, as a bit mask of their indices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PlaceSet(pub u32);

impl PlaceSet {
    /// Maximum number of places.
    pub const PLACES_MAX: usize = 32;

    /// Creates the set of `places`.
    pub fn of(places: impl IntoIterator<Item = usize>) -> Self {
        Self(places.into_iter().fold(0, |bits, place| bits | 1 << place))
    }

    /// Returns whether the set contains `place`.
    #[inline]
    pub fn contains(self, place: usize) -> bool {
        self.0 >> place & 1 == 1
    }

    /// Returns the places of both sets.
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the places of this set that `other` does not contain.
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the places that both sets contain.
    pub fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns whether the set has no places.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the number of places.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns the places in ascending order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..Self::PLACES_MAX).filter(move |&place| self.contains(place))
    }
}

/// The part of a placement that is not a share: devices, chunk size, awake workers and roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Setting {
    /// Places that run chunks. Their devices are awake, and all others sleep.
    pub on: PlaceSet,
    /// Number of awake workers.
    pub workers: u16,
    /// Number of awake workers that only feed devices. 0: every worker feeds and computes.
    pub feeders: u16,
    /// Chunk size of all devices except the CPU: the configured size, divided by 4 this many times.
    pub level: u8,
}

/// A placement as the search handles it: a setting and the shares.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Devices, chunk size and workers.
    pub setting: Setting,
    /// Share of each function on each place: `[function * places + place]`. The shares of a
    /// function add up to 1.
    pub shares: Vec<f64>,
}

impl Choice {
    /// Returns the places that function `function` of a machine with `places` places uses.
    pub fn used_by(&self, function: usize, places: usize) -> PlaceSet {
        let shares = &self.shares[function * places..][..places];
        PlaceSet::of((0..places).filter(|&place| shares[place] > 0.0))
    }

    /// Returns the largest difference between two shares of the same function and place.
    pub fn shares_moved(&self, other: &Self) -> f64 {
        self.shares.iter().zip(&other.shares).map(|(one, two)| (one - two).abs()).fold(0.0, f64::max)
    }
}

/// Work of one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Feeds devices, and runs bins on its core.
    Any,
    /// Feeds one place, and runs no bins.
    Feed(usize),
    /// Runs bins on its core, and feeds no device.
    Compute,
    /// Sleeps. Its flows belong to other workers.
    Asleep,
}

/// Placement of one function.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Share of the function's packets on each place. The sum is 1.
    pub shares: Vec<f32>,
    /// Places that a worker may use in addition while it is overloaded.
    pub overflow: PlaceSet,
}

/// Chunk limits and state of one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceLimits {
    /// Packet limit of a chunk.
    pub chunk_packets: u32,
    /// Time that the oldest packet of a chunk waits for a fuller chunk, in nanoseconds.
    pub deadline_ns: u64,
    /// Maximum number of chunks in flight per worker.
    pub chunks: u8,
    /// Whether the place's device is awake.
    pub awake: bool,
}

/// Everything that workers apply: the output of the planner.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// Number of the placement. Each new placement has the next number.
    pub number: u64,
    /// Placement of each function.
    pub routes: Vec<Route>,
    /// Limits of each place.
    pub places: Vec<PlaceLimits>,
    /// Role of each worker.
    pub roles: Vec<Role>,
    /// Number of workers that may be awake while others are overloaded.
    pub workers_max: u16,
}

impl Placement {
    /// Creates the placement of a choice. `burst` is the placement for a larger load: overloaded
    /// workers may use its places and its workers. Places in `fast` are awake soon enough for that.
    pub(super) fn new(machine: &Machine, number: u64, choice: &Choice, burst: &Choice, fast: PlaceSet) -> Self {
        let places = machine.places.len();
        let route = |function: usize| {
            let shares = choice.shares[function * places..][..places].iter().map(|share| *share as f32).collect();
            let spare = burst.used_by(function, places).without(choice.used_by(function, places));
            Route { shares, overflow: spare.common(fast) }
        };
        let limits = |place: usize| PlaceLimits {
            chunk_packets: machine.chunk_packets(place, choice.setting.level),
            deadline_ns: machine.places[place].setup.deadline_ns,
            chunks: machine.places[place].setup.chunks,
            awake: match machine.places[place].device {
                None => true,
                Some(device) => machine.is_on(device, choice.setting.on),
            },
        };
        Self {
            number,
            routes: (0..machine.functions.len()).map(route).collect(),
            places: (0..places).map(limits).collect(),
            roles: roles(machine, choice),
            workers_max: choice.setting.workers.max(burst.setting.workers),
        }
    }
}

/// Assigns a role to each worker. Feeders are divided between the places by D'Hondt's quotients of
/// the packets' core time, so that each place that is used has at least one feeder if there are
/// enough.
fn roles(machine: &Machine, choice: &Choice) -> Vec<Role> {
    let (setting, places) = (choice.setting, machine.places.len());
    let awake = usize::from(setting.workers);
    let mut roles = vec![Role::Any; awake];
    roles.resize(usize::from(machine.workers), Role::Asleep);
    if setting.feeders == 0 {
        return roles;
    }
    let weight = |place: usize| -> f64 {
        let shares = (0..machine.functions.len()).map(|function| choice.shares[function * places + place]);
        if machine.places[place].device.is_some() { shares.sum() } else { 0.0 }
    };
    let weights: Vec<f64> = (0..places).map(weight).collect();
    let mut counts = vec![0_u32; places];
    for role in &mut roles[..usize::from(setting.feeders)] {
        let quotient = |place: &usize| weights[*place] / f64::from(counts[*place] + 1);
        let next = (0..places).max_by(|one, two| quotient(one).total_cmp(&quotient(two)));
        if let Some(place) = next.filter(|place| weights[*place] > 0.0) {
            counts[place] += 1;
            *role = Role::Feed(place);
        }
    }
    roles[usize::from(setting.feeders)..awake].fill(Role::Compute);
    roles
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_behave_like_sets() {
        let (one, two) = (PlaceSet::of([0, 3, 31]), PlaceSet::of([3, 4]));
        assert_eq!(one.with(two), PlaceSet::of([0, 3, 4, 31]));
        assert_eq!(one.without(two), PlaceSet::of([0, 31]));
        assert_eq!(one.common(two).iter().collect::<Vec<_>>(), [3]);
        assert_eq!((one.len(), PlaceSet::default().is_empty()), (3, true));
    }

    #[test]
    fn choice_names_its_places() {
        let setting = Setting { on: PlaceSet::of([0, 1]), workers: 2, feeders: 0, level: 0 };
        let choice = Choice { setting, shares: vec![1.0, 0.0, 0.25, 0.75] };
        assert_eq!(choice.used_by(0, 2), PlaceSet::of([0]));
        assert_eq!(choice.used_by(1, 2), PlaceSet::of([0, 1]));
        let other = Choice { shares: vec![0.5, 0.5, 0.25, 0.75], ..choice.clone() };
        assert_eq!(choice.shares_moved(&other), 0.5);
    }
}
