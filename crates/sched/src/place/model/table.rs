//! Computes the times and latencies of all functions on all devices, for one load and one machine
//! setting. A setting consists of the devices in use, the submission size and the worker roles.

use super::super::load::Load;
use super::super::placement::{Choice, Setting};
use super::latency::{Knots, Way};
use super::predict::{Prediction, RESOURCES_MAX, Totals};
use super::{Corrections, Machine};

/// Resource index of all worker cores. If some workers only feed devices, it covers only their
/// cores.
pub(super) const FEED: usize = 0;
/// Resource index of the cores of workers that only run kernels.
pub(super) const COMPUTE: usize = 1;
/// Resource index of the first device other than the CPU.
pub(super) const DEVICES: usize = 2;

/// Resource use of each function at each place, if the place processes all packets of the function.
/// A place is a device in one mode.
#[derive(Clone, Debug)]
pub(in super::super) struct Table {
    pub(super) setting: Setting,
    pub(super) places: usize,
    pub(super) resources: usize,
    /// Used fraction of each resource by each function at each place. A place is a device in one
    /// mode. The index is `(function * places + place) * resources + resource`.
    rows: Vec<f64>,
    /// Resources that each place uses, as bit masks. A place is a device in one mode.
    pub(super) masks: Vec<u32>,
    /// Latency of each function at each place. A place is a device in one mode. The index is
    /// `function * places + place`.
    pub(super) knots: Vec<Knots>,
    /// Relative error of the model for each function at each place. A place is a device in one
    /// mode. The index is `function * places + place`.
    pub(super) errors: Vec<f64>,
    /// Whether each function has packets.
    active: Vec<bool>,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            setting: Setting { on: Default::default(), workers: 1, feeders: 0, level: 0 },
            places: 0,
            resources: 0,
            rows: Vec::new(),
            masks: Vec::new(),
            knots: Vec::new(),
            errors: Vec::new(),
            active: Vec::new(),
        }
    }
}

impl Table {
    /// Computes the times and latencies of all functions on all devices for `load`. Reuses the
    /// memory of an earlier call.
    pub(in super::super) fn fill(
        &mut self,
        machine: &Machine,
        load: &Load,
        corrections: &Corrections,
        setting: Setting,
    ) {
        let (places, resources) = (machine.places.len(), machine.resources());
        let ways = machine.functions.len() * places;
        (self.setting, self.places, self.resources) = (setting, places, resources);
        self.rows.clear();
        self.rows.resize(ways * resources, 0.0);
        self.knots.clear();
        self.knots.resize(ways, Knots::default());
        self.errors.clear();
        self.errors.resize(ways, 0.0);
        self.masks.clear();
        self.masks.extend((0..places).map(|place| mask(machine, setting, place)));
        let total_pps = load.pps();
        self.active.clear();
        self.active.extend((0..machine.functions.len()).map(|function| !load.is_idle(function, total_pps)));
        for function in 0..machine.functions.len() {
            for place in setting.on.common(machine.allowed[function]).iter() {
                self.fill_way(machine, load, corrections, function, place, total_pps);
            }
        }
    }

    fn fill_way(
        &mut self,
        machine: &Machine,
        load: &Load,
        corrections: &Corrections,
        function: usize,
        place: usize,
        total_pps: f64,
    ) {
        let (way, setting) = (function * self.places + place, self.setting);
        let (of, fit, host) = (&load.functions[function], &machine.costs[way].fit, &machine.host);
        let chunk = f64::from(machine.chunk_packets(place, setting.level));
        let kernel_ns = machine.kernel_ns(load, function, place, setting.level, total_pps) * corrections.cost[way];
        let streams = self.active.iter().filter(|active| **active).count();
        let host_ns = host.receive_ns + if streams > 1 { host.stream_ns } else { 0.0 };

        let (workers, feeders) = (f64::from(setting.workers), f64::from(setting.feeders));
        let has_roles = setting.feeders > 0;
        let mixes = !has_roles && setting.on.contains(0) && setting.on.len() > 1;
        let mixed_ns = if mixes { host.mixed_ns } else { 0.0 };
        let row = &mut self.rows[way * self.resources..][..self.resources];
        // Time per packet on the resource that limits the packet rate. All units of a resource,
        // such as cores, work in parallel.
        let scarcest_ns;
        let lanes;
        let Some(device) = machine.places[place].device else {
            let (resource, cores) = if has_roles { (COMPUTE, workers - feeders) } else { (FEED, workers) };
            let core_ns = (host_ns + mixed_ns + fit.host_ns + kernel_ns) / cores;
            row[resource] = of.pps * core_ns * 1e-9;
            (scarcest_ns, lanes) = (core_ns, cores);
            self.finish_way(machine, corrections, way, scarcest_ns, lanes, chunk, of.bytes);
            return;
        };
        lanes = if has_roles { feeders } else { workers };
        let core_ns = (host_ns + mixed_ns + fit.host_ns + fit.submit_ns / chunk) / lanes;
        row[FEED] = of.pps * core_ns * 1e-9;
        row[DEVICES + device] = of.pps * kernel_ns * 1e-9;
        let mut longest_ns = core_ns.max(kernel_ns);
        for &bus in &machine.devices[device].buses {
            let ModelBusTimes { inward_ns, outward_ns } = bus_times(machine, bus, of.bytes);
            let first = DEVICES + machine.devices.len() + 2 * bus;
            row[first] = of.pps * inward_ns * 1e-9;
            row[first + 1] = of.pps * outward_ns * 1e-9;
            longest_ns = longest_ns.max(inward_ns).max(outward_ns);
        }
        scarcest_ns = longest_ns;
        self.finish_way(machine, corrections, way, scarcest_ns, lanes, chunk, of.bytes);
    }

    #[expect(clippy::too_many_arguments, reason = "intermediate results of `fill_way`")]
    fn finish_way(
        &mut self,
        machine: &Machine,
        corrections: &Corrections,
        way: usize,
        packet_ns: f64,
        lanes: f64,
        chunk: f64,
        bytes: f64,
    ) {
        let (cost, setup) = (&machine.costs[way], &machine.places[way % self.places].setup);
        let mut knots = Knots::measured(&cost.latency, chunk, bytes).unwrap_or_else(|| {
            let (deadline_ns, chunks) = (setup.deadline_ns as f64, f64::from(setup.chunks.max(1)));
            Knots::estimated(&Way { fit: &cost.fit, bytes, chunk, deadline_ns, chunks, packet_ns, lanes })
        });
        knots.scale(corrections.latency[way]);
        self.knots[way] = knots;
        let error = cost.fit.error_median.max(machine.noise_cv);
        self.errors[way] = (error + corrections.error[way]).max(machine.noise_cv);
    }

    /// Returns the resource use of a function if one device processes all its packets.
    #[inline]
    pub(in super::super) fn row(&self, function: usize, place: usize) -> &[f64] {
        &self.rows[(function * self.places + place) * self.resources..][..self.resources]
    }

    pub(in super::super) fn setting(&self) -> Setting {
        self.setting
    }

    /// Returns the resource for which the functions on a device compete. It is the device itself
    /// or, for the CPU, the cores that run kernels.
    pub(in super::super) fn own_resource(&self, machine: &Machine, place: usize) -> usize {
        match machine.places[place].device {
            Some(device) => DEVICES + device,
            None if self.setting.feeders > 0 => COMPUTE,
            None => FEED,
        }
    }

    /// Returns the power in watts that a function needs if one device processes all its packets.
    /// Without a power meter, returns the number of cores that the function keeps busy.
    pub(in super::super) fn power_of(&self, machine: &Machine, function: usize, place: usize) -> f64 {
        let row = self.row(function, place);
        let (workers, feeders) = (f64::from(self.setting.workers), f64::from(self.setting.feeders));
        let cores = match self.setting.feeders {
            0 => row[FEED] * workers,
            _ => row[FEED] * feeders + row[COMPUTE] * (workers - feeders),
        };
        if !machine.measures_power() {
            return cores;
        }
        let of_cpu = machine.cpu_power.map_or(0.0, |power| power.busy * cores / f64::from(machine.workers));
        let device = machine.places[place].device.and_then(|device| Some((device, machine.devices[device].power?)));
        of_cpu + device.map_or(0.0, |(device, power)| power.busy * row[DEVICES + device])
    }

    /// Computes the factors by which other functions raise the cost of each function at each place.
    /// A place is a device in one mode. The index in `factors` is `function * places + place`.
    pub(in super::super) fn interference(&self, machine: &Machine, choice: &Choice, factors: &mut [f64]) {
        let functions = machine.functions.len();
        factors.fill(1.0);
        if machine.gamma.is_empty() {
            return;
        }
        for place in self.setting.on.iter() {
            let resource = self.own_resource(machine, place);
            let device = machine.places[place].device.map_or(0, |device| device + 1);
            let use_by = |function: usize| -> f64 {
                let on_device = self.setting.on.iter().filter(|&p| self.own_resource(machine, p) == resource);
                on_device.map(|p| choice.shares[function * self.places + p] * self.row(function, p)[resource]).sum()
            };
            for victim in 0..functions {
                let gamma = &machine.gamma[(device * functions + victim) * functions..][..functions];
                let others: f64 = (0..functions).map(|other| gamma[other] * use_by(other)).sum();
                factors[victim * self.places + place] = 1.0 + others;
            }
        }
    }

    /// Returns the predicted 99th percentile of a function's latency, in nanoseconds.
    pub(in super::super) fn p99_of(&self, machine: &Machine, choice: &Choice, function: usize) -> f64 {
        let mut prediction = self.predict(machine, choice);
        let totals = self.totals(machine, choice);
        prediction.set_latency(self, &totals, std::iter::once((function, choice.used_by(function, self.places))));
        prediction.p99_ns
    }

    /// Returns whether a function has packets.
    pub(in super::super) fn is_active(&self, function: usize) -> bool {
        self.active[function]
    }

    /// Predicts the effect of the placement `choice`. [`Table::fill`] must have received the
    /// machine setting of this placement.
    pub(in super::super) fn predict(&self, machine: &Machine, choice: &Choice) -> Prediction {
        let totals = self.totals(machine, choice);
        let used = |function: usize| choice.used_by(function, self.places);
        let active = (0..machine.functions.len()).filter(|&function| self.is_active(function));
        let mut prediction = totals.assess(machine, self);
        prediction.set_latency(self, &totals, active.map(|function| (function, used(function))));
        prediction
    }

    /// Returns the use of each resource in the placement `choice`.
    fn totals(&self, machine: &Machine, choice: &Choice) -> Totals {
        let functions = machine.functions.len();
        let mut totals = Totals::new(self.resources);
        let mut rows = vec![0.0; functions * self.resources];
        for function in 0..functions {
            let sums = &mut rows[function * self.resources..][..self.resources];
            for place in self.setting.on.iter() {
                let share = choice.shares[function * self.places + place];
                sums.iter_mut().zip(self.row(function, place)).for_each(|(sum, value)| *sum += share * value);
            }
            totals.add(sums);
        }
        totals.interfere(machine, self.setting, |function| &rows[function * self.resources..][..self.resources]);
        totals
    }
}

impl Machine {
    /// Returns the predicted kernel time per packet of a function on a device, in nanoseconds.
    pub(in super::super) fn kernel_ns(
        &self,
        load: &Load,
        function: usize,
        place: usize,
        level: u8,
        total_pps: f64,
    ) -> f64 {
        let (of, fit) = (&load.functions[function], &self.costs[function * self.places.len() + place].fit);
        let chunk = f64::from(self.chunk_packets(place, level));
        let share = if total_pps > 0.0 { of.pps / total_pps } else { 1.0 };
        let bin_packets = f64::from(self.places[place].setup.bin_packets.max(1));
        let bin = (chunk * share / of.labels()).clamp(1.0, bin_packets);
        fit.chunk_ns / chunk + (fit.packet_ns + fit.byte_ns * of.bytes).max(fit.floor_ns) + fit.bin_ns / bin
    }
}

struct ModelBusTimes {
    inward_ns: f64,
    outward_ns: f64,
}

fn bus_times(machine: &Machine, bus: usize, bytes: f64) -> ModelBusTimes {
    let bus = &machine.buses[bus];
    let [inward_ns, outward_ns] = bus.byte_ns.map(|byte_ns| (bytes + bus.packet_bytes) * byte_ns);
    ModelBusTimes { inward_ns, outward_ns }
}

/// Returns the resources that a device uses, as a bit mask.
fn mask(machine: &Machine, setting: Setting, place: usize) -> u32 {
    const { assert!(RESOURCES_MAX <= 32) };
    let Some(device) = machine.places[place].device else {
        return if setting.feeders > 0 { 1 << COMPUTE } else { 1 << FEED };
    };
    let buses = machine.devices[device].buses.iter();
    let buses = buses.fold(0, |bits, bus| bits | 3 << (DEVICES + machine.devices.len() + 2 * bus));
    1 << FEED | 1 << (DEVICES + device) | buses
}
