//! Model of one machine: predicts how much of each resource a placement uses.
//!
//! A packet that a function processes on a device occupies several resources for some time. A
//! resource is one of:
//!
//! - the cores of all workers, of the workers that feed devices (`feeders`), or of the workers that
//!   run kernels
//! - a device
//! - one direction of a bus
//!
//! With `n` packets per submission, `m` packets per batch and frames of `l` bytes, a packet needs
//! `chunk_ns / n + packet_ns + bin_ns / m + byte_ns * l` on its device. The core that feeds the
//! device needs `receive_ns + stream_ns + mixed_ns + host_ns + submit_ns / n` per packet. On the
//! CPU, the same core also runs the kernel. The use of a resource is the sum over all packets.
//! Another function on the same device makes a packet more expensive. The relative increase is that
//! function's device use times `gamma`.
//!
//! The module `table` computes these times for one load, and `predict` adds them up.

mod latency;
mod predict;
mod table;

use super::load::Load;
use super::placement::{Choice, PlaceSet};
use super::profile::{Fit, Host, Power, Profile};
use latency::LatencyCurve;

pub use predict::{Prediction, Resource};
pub(super) use predict::{RESOURCES_MAX, Totals};
pub(super) use table::Table;

/// Smallest device load whose measurements are used to compute the power, as a fraction of the
/// device's capacity.
const POWER_LOAD_MIN: f64 = 0.01;

/// Reason why no cost model can be made from measured costs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// A function has no measured costs on any of its devices.
    #[error(
        "the profile has no curve of function `{function}` on any of its devices; measure it with `godwit profile`"
    )]
    NoCurve {
        /// Name of the function.
        function: String,
    },
    /// There are more devices or buses than the model supports.
    #[error("the model supports at most {max} {what}, the configuration has {count}")]
    TooMany {
        /// Kind of the objects that exceed the limit: `places` or `resources`.
        what: &'static str,
        /// Number in the configuration.
        count: usize,
        /// Limit of the model.
        max: usize,
    },
    /// The CPU is not the first device, or there are no workers or no functions. The engine causes
    /// this error, not the operator.
    #[error("a model needs the CPU as its first place, a worker and a function")]
    Empty,
}

/// A place: a configured device in one mode. The device either launches kernels or runs persistent
/// work-groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceSetup {
    /// Name of the device and its mode in placements and messages, such as `cuda:0` or
    /// `cuda:0/mailbox`.
    pub id: String,
    /// Name of the device without the mode.
    pub device: String,
    /// Whether the device runs persistent work-groups, which wait for packets instead of being
    /// launched.
    pub persistent: bool,
    /// Configured packet limit of a submission.
    pub chunk_packets: u32,
    /// Packet limit of a batch.
    pub bin_packets: u32,
    /// Longest time that a submission waits for more packets, in nanoseconds.
    pub deadline_ns: u64,
    /// Maximum number of submissions in flight per worker.
    pub chunks: u8,
}

/// A configured function, and the devices on which it may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionSetup {
    /// Name of the function.
    pub name: String,
    /// Devices that may run the function, each in one mode.
    pub places: PlaceSet,
}

/// The part of the configuration that a model needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineSetup {
    /// Number of workers.
    pub workers: u16,
    /// Functions.
    pub functions: Vec<FunctionSetup>,
    /// Places, which are devices in each of their modes. The first place is the CPU.
    pub places: Vec<PlaceSetup>,
}

/// A place: a device in one mode.
#[derive(Clone, Debug)]
pub struct Place {
    /// Configuration of the device in this mode.
    pub setup: PlaceSetup,
    /// Index in the list of devices without the CPU, or `None` for the CPU.
    pub(super) device: Option<usize>,
}

/// A device other than the CPU.
#[derive(Clone, Debug)]
pub(super) struct ModelDevice {
    pub(super) id: String,
    pub(super) power: Option<PowerModel>,
    pub(super) buses: Vec<usize>,
}

/// Power of a device in watts, and its wake-up time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PowerModel {
    pub(super) asleep: f64,
    pub(super) awake: f64,
    /// Additional power of the fully used device.
    pub(super) busy: f64,
    /// Time to wake the device, in nanoseconds.
    pub(super) wake_ns: f64,
}

/// Costs of one function on one device in one mode.
#[derive(Clone, Debug, Default)]
pub(super) struct Cost {
    pub(super) fit: Fit,
    pub(super) latency: Vec<LatencyCurve>,
}

#[derive(Clone, Debug)]
pub(super) struct ModelBus {
    pub(super) name: String,
    /// Transfer times per byte to and from the devices, in nanoseconds.
    pub(super) byte_ns: [f64; 2],
    pub(super) packet_bytes: f64,
}

/// Model of one machine with one configuration.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Number of workers.
    pub workers: u16,
    /// Names of the functions.
    pub functions: Vec<String>,
    /// For each function, the permitted devices and modes with measured costs.
    pub allowed: Vec<PlaceSet>,
    /// Places, which are devices in each of their modes. The first place is the CPU.
    pub places: Vec<Place>,
    pub(super) devices: Vec<ModelDevice>,
    pub(super) buses: Vec<ModelBus>,
    pub(super) cpu_power: Option<PowerModel>,
    pub(super) host: Host,
    /// Costs of each function at each place. A place is a device in one mode. The index is
    /// `function * places + place`.
    pub(super) costs: Vec<Cost>,
    /// Relative slowdown that the function `other` causes for `victim` on the same device. The
    /// index is `(device * functions + victim) * functions + other`. Device 0 is the CPU. The list
    /// is empty if no function slows down another.
    pub(super) gamma: Vec<f64>,
    /// Coefficient of variation of repeated measurements.
    pub(super) noise_cv: f64,
}

/// Correction factors for predictions, derived from measurements. Each list has an entry for each
/// function at each place. A place is a device in one mode. The index is
/// `function * places + place`.
#[derive(Clone, Debug, PartialEq)]
pub struct Corrections {
    /// Ratio of the measured device time to the predicted device time. On the CPU, it is the ratio
    /// of kernel times.
    pub cost: Vec<f64>,
    /// Ratio of the measured latency to the predicted latency.
    pub latency: Vec<f64>,
    /// Amount to add to the relative error of the model. It is negative if measurements confirm the
    /// prediction, and positive if the device is slower than predicted.
    pub error: Vec<f64>,
}

impl Corrections {
    /// Creates correction factors that change nothing.
    pub fn none(machine: &Machine) -> Self {
        let count = machine.costs.len();
        Self { cost: vec![1.0; count], latency: vec![1.0; count], error: vec![0.0; count] }
    }
}

impl Machine {
    /// Creates the cost model of a configuration from measured costs.
    ///
    /// # Errors
    /// Returns an error if a function has no measured costs on any of its devices, or if a limit is
    /// exceeded.
    pub fn new(profile: &Profile, setup: &MachineSetup) -> Result<Self, ModelError> {
        let too_many = |what, count, max| Err(ModelError::TooMany { what, count, max });
        if setup.workers == 0
            || setup.functions.is_empty()
            || setup.places.first().is_none_or(|cpu| cpu.device != "cpu")
        {
            return Err(ModelError::Empty);
        }
        if setup.places.len() > PlaceSet::PLACES_MAX {
            return too_many("places", setup.places.len(), PlaceSet::PLACES_MAX);
        }
        let mut devices: Vec<ModelDevice> = Vec::new();
        let mut places = Vec::new();
        for place in &setup.places {
            let known = devices.iter().position(|device| device.id == place.device);
            let device = (place.device != "cpu").then(|| {
                known.unwrap_or_else(|| {
                    let on_bus = |(_, bus): &(usize, &super::profile::Bus)| bus.devices.contains(&place.device);
                    let buses = profile.buses.iter().enumerate().filter(on_bus).map(|(index, _)| index).collect();
                    let power = profile.power(&place.device).map(PowerModel::new);
                    devices.push(ModelDevice { id: place.device.clone(), power, buses });
                    devices.len() - 1
                })
            });
            places.push(Place { setup: place.clone(), device });
        }
        let resources = 2 + devices.len() + 2 * profile.buses.len();
        if resources > RESOURCES_MAX {
            return too_many("resources", resources, RESOURCES_MAX);
        }
        let bus = |bus: &super::profile::Bus| ModelBus {
            name: bus.name.clone(),
            byte_ns: [8.0 / bus.in_gbps, 8.0 / bus.out_gbps],
            packet_bytes: bus.packet_bytes,
        };
        let mut machine = Self {
            workers: setup.workers,
            functions: setup.functions.iter().map(|function| function.name.clone()).collect(),
            allowed: Vec::new(),
            gamma: gamma(profile, setup, &devices),
            places,
            devices,
            buses: profile.buses.iter().map(bus).collect(),
            cpu_power: profile.power("cpu").map(PowerModel::new),
            host: profile.host,
            costs: Vec::new(),
            noise_cv: profile.noise_cv,
        };
        for function in &setup.functions {
            let mut allowed = PlaceSet::default();
            for (index, place) in setup.places.iter().enumerate() {
                let mode = if place.persistent { "persistent" } else { "launch" };
                let curve = profile.curve(&function.name, &place.device, mode);
                let cost = curve.and_then(|curve| {
                    let latency = LatencyCurve::group(&curve.points);
                    Some(Cost { fit: curve.fit?, latency })
                });
                if cost.is_some() && function.places.contains(index) {
                    allowed = allowed.with(PlaceSet::of([index]));
                }
                machine.costs.push(cost.unwrap_or_default());
            }
            if allowed.is_empty() {
                return Err(ModelError::NoCurve { function: function.name.clone() });
            }
            machine.allowed.push(allowed);
        }
        Ok(machine)
    }

    /// Returns the number of resources. The resources are two kinds of cores, all devices, and both
    /// directions of each bus.
    pub(super) fn resources(&self) -> usize {
        2 + self.devices.len() + 2 * self.buses.len()
    }

    /// Returns whether the power of at least one device was measured.
    pub fn measures_power(&self) -> bool {
        self.cpu_power.is_some() || self.devices.iter().any(|device| device.power.is_some())
    }

    /// Predicts the effect of a placement under a load.
    pub fn predict(&self, load: &Load, choice: &Choice, corrections: &Corrections) -> Prediction {
        let mut table = Table::default();
        table.fill(self, load, corrections, choice.setting);
        table.predict(self, choice)
    }

    /// Returns the packet limit of a submission on a device. On all devices except the CPU, it is
    /// the configured limit divided by 4 to the power of `level`.
    pub(super) fn chunk_packets(&self, place: usize, level: u8) -> u32 {
        let setup = &self.places[place].setup;
        match self.places[place].device {
            None => setup.chunk_packets,
            Some(_) => (setup.chunk_packets >> (2 * u32::from(level)).min(31)).max(setup.bin_packets).max(1),
        }
    }

    /// Returns the time that a sleeping device needs to wake up and process packets, in
    /// nanoseconds.
    pub(super) fn wake_ns(&self, place: usize) -> f64 {
        let power = match self.places[place].device {
            None => self.cpu_power,
            Some(device) => self.devices[device].power,
        };
        power.map_or(0.0, |power| power.wake_ns)
    }
}

impl PowerModel {
    fn new(power: &Power) -> Self {
        let points = || power.points.iter().filter(|point| point.load >= POWER_LOAD_MIN);
        let products: f64 = points().map(|point| point.load * (point.watts - power.awake)).sum();
        let squares: f64 = points().map(|point| point.load * point.load).sum();
        let busy = if squares > 0.0 { (products / squares).max(0.0) } else { 0.0 };
        Self { asleep: power.asleep, awake: power.awake, busy, wake_ns: power.wake_us * 1e3 }
    }
}

/// Returns how much the functions in each measured pair slow each other down. Values within the
/// measurement noise count as 0. Several measurements of a pair are averaged.
fn gamma(profile: &Profile, setup: &MachineSetup, devices: &[ModelDevice]) -> Vec<f64> {
    let count = setup.functions.len();
    let mut sums = vec![(0.0, 0.0); (1 + devices.len()) * count * count];
    for pair in profile.pairs.iter().filter(|pair| pair.functions.len() == 2) {
        let accelerator = devices.iter().position(|device| device.id == pair.device).map(|index| index + 1);
        let device = if pair.device == "cpu" { Some(0) } else { accelerator };
        let indices =
            [0, 1].map(|side| setup.functions.iter().position(|function| function.name == pair.functions[side]));
        let (Some(device), [Some(one), Some(two)]) = (device, indices) else { continue };
        for (victim, other, gamma) in [(one, two, pair.gamma[0]), (two, one, pair.gamma[1])] {
            if victim != other {
                let sum = &mut sums[(device * count + victim) * count + other];
                *sum = (sum.0 + gamma, sum.1 + 1.0);
            }
        }
    }
    let mean = |(sum, number): &(f64, f64)| if *number > 0.0 { sum / number } else { 0.0 };
    let means: Vec<f64> =
        sums.iter().map(mean).map(|mean| if mean.abs() <= profile.noise_cv { 0.0 } else { mean }).collect();
    if means.iter().all(|mean| *mean == 0.0) { Vec::new() } else { means }
}
