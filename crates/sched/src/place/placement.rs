//! Defines placements, which assign functions to devices.

use super::model::Machine;

/// Set of places, as a bit mask. A place is a device in one mode: the device either launches
/// kernels or runs persistent work-groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PlaceSet(pub u32);

impl PlaceSet {
    /// Maximum number of places. A place is a device in one mode.
    pub const PLACES_MAX: usize = 32;

    /// Creates a set from indices of places.
    pub fn of(places: impl IntoIterator<Item = usize>) -> Self {
        Self(places.into_iter().fold(0, |bits, place| bits | 1 << place))
    }

    /// Returns whether the set contains `place`.
    #[inline]
    pub fn contains(self, place: usize) -> bool {
        self.0 >> place & 1 == 1
    }

    /// Returns the union of the two sets.
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the places of this set that are not in `other`.
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the intersection of the two sets.
    pub fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns whether the set has no places.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the number of places in the set.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns the places in ascending order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..Self::PLACES_MAX).filter(move |&place| self.contains(place))
    }
}

/// Machine setting: the devices in use, the submission size, the number of awake workers and their
/// roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Setting {
    /// Devices that process packets, each in one mode. All other devices sleep.
    pub on: PlaceSet,
    /// Number of awake workers.
    pub workers: u16,
    /// Number of awake workers that only submit packets to devices. The value 0 means that every
    /// worker submits packets to devices and also runs kernels.
    pub feeders: u16,
    /// Reduces the submission size. Every device except the CPU uses the configured size, divided
    /// by 4 to the power of `level`.
    pub level: u8,
}

/// A placement in the form that the search uses. It consists of a machine setting and the fraction
/// of each function's packets on each device.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The devices in use, the submission size, and the number and roles of the workers.
    pub setting: Setting,
    /// Fraction of each function's packets that each place receives. A place is a device in one
    /// mode. The index is `function * places + place`. The fractions of a function add up to 1.
    pub shares: Vec<f64>,
}

impl Choice {
    /// Returns the places that receive packets of the function `function`. A place is a device in
    /// one mode, and `places` is the number of all places.
    pub fn used_by(&self, function: usize, places: usize) -> PlaceSet {
        let shares = &self.shares[function * places..][..places];
        PlaceSet::of((0..places).filter(|&place| shares[place] > 0.0))
    }

    /// Returns the largest difference between the packet fractions of two placements.
    pub fn shares_moved(&self, other: &Self) -> f64 {
        self.shares.iter().zip(&other.shares).map(|(one, two)| (one - two).abs()).fold(0.0, f64::max)
    }
}

/// Work of one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The worker submits packets to devices, and also runs kernels on its core.
    Any,
    /// The worker only submits packets to the place with this index. A place is a device in one
    /// mode.
    Feed(usize),
    /// The worker only runs kernels on its core.
    Compute,
    /// The worker sleeps, and other workers receive its packets.
    Asleep,
}

/// Placement of one function.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Fraction of the function's packets that each place receives. A place is a device in one
    /// mode. The sum of the fractions is 1.
    pub shares: Vec<f32>,
    /// Additional devices that a worker may use while it is overloaded.
    pub overflow: PlaceSet,
}

/// Limits and state of a device in one mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceLimits {
    /// Packet limit of a submission.
    pub chunk_packets: u32,
    /// Longest time that a packet waits for its submission to fill, in nanoseconds.
    pub deadline_ns: u64,
    /// Maximum number of submissions in flight per worker.
    pub chunks: u8,
    /// Whether the device is awake.
    pub awake: bool,
}

/// Output of the planner: everything that the workers apply.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// Sequence number of the placement.
    pub number: u64,
    /// Placement of each function.
    pub routes: Vec<Route>,
    /// Limits of each device in each mode.
    pub places: Vec<PlaceLimits>,
    /// Role of each worker.
    pub roles: Vec<Role>,
    /// Maximum number of awake workers during an overload.
    pub workers_max: u16,
}

impl Placement {
    /// Creates the placement that `choice` describes. Overloaded workers may also use devices and
    /// workers from `burst`, a choice for a larger load. These additional devices must be in
    /// `fast`.
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

/// Assigns a role to each worker. D'Hondt's method divides the workers that only feed devices
/// between the devices, in proportion to their packets. Each device in use gets at least one such
/// worker if there are enough.
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
