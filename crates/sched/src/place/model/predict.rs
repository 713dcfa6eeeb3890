//! Predicts the effect of a placement from the resource use of all functions.

use super::super::placement::{PlaceSet, Setting};
use super::table::{COMPUTE, DEVICES, FEED, Table};
use super::{Machine, PowerModel};

/// Maximum number of resources of a machine.
pub(in super::super) const RESOURCES_MAX: usize = 32;

/// A resource that packets use and whose capacity is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Cores of all awake workers.
    Workers,
    /// Cores of the workers that only submit packets to devices.
    Feeders,
    /// Cores of the workers that run kernels.
    Compute,
    /// The device with this index.
    Device(usize),
    /// The bus with this index, for transfers to the devices.
    BusIn(usize),
    /// The bus with this index, for transfers back to the memory.
    BusOut(usize),
}

/// Predicted effect of a placement under a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Factor by which the load can grow until a resource is full. It is infinite without load.
    pub headroom: f64,
    /// Used fraction of the fullest resource. The value 1 means that the resource is full.
    pub load: f64,
    /// Resource that is full first if the load grows.
    pub limit: Resource,
    /// Median latency, in nanoseconds. It is 0 if the caller did not request it.
    pub p50_ns: f64,
    /// 99th percentile of the latency, in nanoseconds. It is 0 if the caller did not request it.
    pub p99_ns: f64,
    /// Total power of all devices with a power meter, in watts, or `None` if there is none.
    pub watts: Option<f64>,
    /// Number of cores that packets keep busy.
    pub cores: f64,
    /// Number of cores whose workers are awake.
    pub awake: f64,
    /// Largest relative error of the model among all functions on the devices in use.
    pub error: f64,
}

impl Prediction {
    /// Returns a prediction for a placement without load.
    pub(in super::super) fn unknown() -> Self {
        Self {
            headroom: f64::INFINITY,
            load: 0.0,
            limit: Resource::Workers,
            p50_ns: 0.0,
            p99_ns: 0.0,
            watts: None,
            cores: 0.0,
            awake: 0.0,
            error: 0.0,
        }
    }

    /// Returns the fraction of the load that the placement can process.
    pub fn carried(&self) -> f64 {
        self.headroom.min(1.0)
    }
}

/// Fraction of each resource that all functions together use.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Totals {
    /// Fraction of each resource that functions use without slowing each other down. It grows in
    /// proportion to the load.
    values: [f64; RESOURCES_MAX],
    /// Additional fraction of each resource that functions use because they slow each other down on
    /// the same device. It grows with the square of the load.
    extra: [f64; RESOURCES_MAX],
    resources: usize,
}

impl Totals {
    pub(in super::super) fn new(resources: usize) -> Self {
        Self { values: [0.0; RESOURCES_MAX], extra: [0.0; RESOURCES_MAX], resources }
    }

    /// Adds the resource use of one function.
    #[inline]
    pub(in super::super) fn add(&mut self, row: &[f64]) {
        self.values.iter_mut().zip(row).for_each(|(value, add)| *value += add);
    }

    /// Sets the sums to `before` plus `row`, which contains the resource use of one function.
    #[inline]
    pub(in super::super) fn set_sum(&mut self, before: &Self, row: &[f64]) {
        let count = self.resources;
        for ((value, before), add) in self.values[..count].iter_mut().zip(&before.values[..count]).zip(row) {
            *value = before + add;
        }
    }

    /// Adds the resource use that functions on the same device cause by slowing each other down.
    /// `row` returns the resource use of one function.
    #[inline]
    pub(in super::super) fn interfere<'a>(
        &mut self,
        machine: &Machine,
        setting: Setting,
        row: impl Fn(usize) -> &'a [f64],
    ) {
        if machine.gamma.is_empty() {
            return;
        }
        let functions = machine.functions.len();
        self.extra[..self.resources].fill(0.0);
        for device in 0..=machine.devices.len() {
            let resource = match device {
                0 if setting.feeders > 0 => COMPUTE,
                0 => FEED,
                _ => DEVICES + device - 1,
            };
            for victim in 0..functions {
                let gamma = &machine.gamma[(device * functions + victim) * functions..][..functions];
                let others: f64 = (0..functions).map(|other| gamma[other] * row(other)[resource]).sum();
                self.extra[resource] += row(victim)[resource] * others;
            }
        }
    }

    /// Predicts everything except latencies.
    #[inline]
    pub(in super::super) fn assess(&self, machine: &Machine, table: &Table) -> Prediction {
        let (mut headroom, mut load, mut limit) = (f64::INFINITY, 0.0, FEED);
        for resource in 0..self.resources {
            let (linear, square) = (self.values[resource], self.extra[resource]);
            load = (linear + square).max(load);
            let own = headroom_of(linear, square);
            if own < headroom {
                (headroom, limit) = (own, resource);
            }
        }
        let setting = table.setting;
        let carried = headroom.min(1.0);
        let used =
            |resource: usize| (carried * self.values[resource] + carried * carried * self.extra[resource]).min(1.0);
        let (awake, feeders) = (f64::from(setting.workers), f64::from(setting.feeders));
        let cores = match setting.feeders {
            0 => used(FEED) * awake,
            _ => used(FEED) * feeders + used(COMPUTE) * (awake - feeders),
        };
        let mut watts = machine.cpu_power.map(|power| cpu_watts(&power, machine.workers, awake, cores));
        for (index, device) in machine.devices.iter().enumerate() {
            let Some(power) = device.power else { continue };
            let is_on = machine.is_on(index, setting.on);
            let own = if is_on { power.awake + power.busy * used(DEVICES + index) } else { power.asleep };
            watts = Some(watts.unwrap_or(0.0) + own);
        }
        let limit = resource(machine, setting, limit);
        Prediction { headroom, load, limit, p50_ns: 0.0, p99_ns: 0.0, watts, cores, awake, error: 0.0 }
    }

    /// Returns the used fraction of the fullest resource in the bit mask `mask`.
    #[inline]
    fn use_of(&self, mask: u32) -> f64 {
        let (mut bits, mut load) = (mask, 0.0_f64);
        while bits != 0 {
            let resource = bits.trailing_zeros() as usize;
            load = load.max(self.values[resource] + self.extra[resource]);
            bits &= bits - 1;
        }
        load
    }
}

impl Prediction {
    /// Sets the latency and the error to the maximum over the devices in use. Packets leave a
    /// worker in order, so they wait for the slowest device.
    #[inline]
    pub(in super::super) fn set_latency(
        &mut self,
        table: &Table,
        totals: &Totals,
        used: impl Iterator<Item = (usize, PlaceSet)>,
    ) {
        (self.p50_ns, self.p99_ns, self.error) = (0.0, 0.0, 0.0);
        for (function, places) in used {
            let mut bits = places.0;
            while bits != 0 {
                let place = bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let way = function * table.places + place;
                let (p50_ns, p99_ns) = table.knots[way].at(totals.use_of(table.masks[place]));
                self.p50_ns = self.p50_ns.max(p50_ns);
                self.p99_ns = self.p99_ns.max(p99_ns);
                self.error = self.error.max(table.errors[way]);
            }
        }
    }
}

impl Machine {
    /// Returns whether a device is awake.
    #[inline]
    pub(in super::super) fn is_on(&self, device: usize, on: PlaceSet) -> bool {
        on.iter().any(|place| self.places[place].device == Some(device))
    }

    /// Returns the name of a resource for use in sentences.
    pub fn resource_name(&self, resource: Resource) -> String {
        match resource {
            Resource::Workers => "the cores".to_owned(),
            Resource::Feeders => "the cores that feed devices".to_owned(),
            Resource::Compute => "the cores that compute".to_owned(),
            Resource::Device(index) => self.devices[index].id.clone(),
            Resource::BusIn(index) => format!("the {} bus to devices", self.buses[index].name),
            Resource::BusOut(index) => format!("the {} bus from devices", self.buses[index].name),
        }
    }
}

/// Returns the factor s by which the load can grow until a resource is full. It solves the equation
/// `linear * s + square * s * s = 1`.
#[inline]
fn headroom_of(linear: f64, square: f64) -> f64 {
    if linear <= 0.0 {
        return f64::INFINITY;
    }
    if square == 0.0 {
        return 1.0 / linear;
    }
    let root = linear * linear + 4.0 * square;
    // Functions that speed each other up can make `root` negative. The load can then grow without
    // limit.
    if root <= 0.0 { f64::INFINITY } else { 2.0 / (linear + root.sqrt()) }
}

fn cpu_watts(power: &PowerModel, workers: u16, awake: f64, cores: f64) -> f64 {
    let each = |watts: f64| watts / f64::from(workers);
    power.asleep + awake * each(power.awake - power.asleep) + cores * each(power.busy)
}

fn resource(machine: &Machine, setting: Setting, index: usize) -> Resource {
    match index {
        FEED if setting.feeders == 0 => Resource::Workers,
        FEED => Resource::Feeders,
        COMPUTE => Resource::Compute,
        _ if index < DEVICES + machine.devices.len() => Resource::Device(index - DEVICES),
        _ => {
            let bus = index - DEVICES - machine.devices.len();
            if bus.is_multiple_of(2) { Resource::BusIn(bus / 2) } else { Resource::BusOut(bus / 2) }
        }
    }
}
