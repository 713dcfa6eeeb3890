//! Simulates a machine, with its queues, wake-up times and power. Overloaded workers may use
//! additional devices.

use super::super::load::Load;
use super::super::model::{Corrections, Machine, Prediction};
use super::super::placement::{Choice, PlaceSet};

/// Maximum number of packets in flight per worker.
const IN_FLIGHT: f64 = 65_536.0;
/// Number of packets in the ring of a port, per worker.
const PORT_RING: f64 = 4096.0;
/// Number of packets in flight at which a worker begins to use additional devices, as a fraction of
/// its limit.
const REFLEX_AT: f64 = 0.5;
/// Time until additional devices process packets of an overloaded worker, in nanoseconds.
const REFLEX_NS: f64 = 200e3;
/// Time until all workers apply a new placement, in nanoseconds.
const APPLY_NS: f64 = 100e3;

/// Sums over the duration of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sums {
    pub(super) offered: f64,
    pub(super) carried: f64,
    pub(super) lost: f64,
    pub(super) joules: f64,
    /// Integral over time of the natural logarithm of the latency's 99th percentile. The latency is
    /// in nanoseconds, and the time in seconds.
    pub(super) ln_p99: f64,
    /// Time in which overloaded workers used additional devices, in nanoseconds.
    pub(super) reflex_ns: f64,
}

/// The current placement, and its effect under the current load according to the true costs.
#[derive(Clone, Debug)]
struct Active {
    choice: Choice,
    burst: Choice,
    own: Prediction,
    own_burst: Prediction,
    load: Load,
}

/// State of the simulated machine.
#[derive(Debug)]
pub(super) struct World<'a> {
    machine: &'a Machine,
    truth: &'a Corrections,
    active: Option<Active>,
    /// The next placement, the next placement for overloaded workers, and the time at which both
    /// become active, in nanoseconds.
    next: Option<(Choice, Choice, f64)>,
    queue: f64,
    reflex: bool,
    /// Largest number of packets in flight since the last planner run, as a fraction of the limit.
    backlog: f64,
    pub(super) sums: Sums,
}

impl<'a> World<'a> {
    pub(super) fn new(machine: &'a Machine, truth: &'a Corrections) -> Self {
        Self {
            machine,
            truth,
            active: None,
            next: None,
            queue: 0.0,
            reflex: false,
            backlog: 0.0,
            sums: Sums::default(),
        }
    }

    /// Applies a new placement after a delay. The delay includes the wake-up time of sleeping
    /// devices.
    pub(super) fn place(&mut self, now_ns: f64, choice: &Choice, burst: &Choice) {
        let sleeping = self.active.as_ref().map(|active| choice.setting.on.without(active.choice.setting.on));
        let wake_ns = sleeping.map_or(0.0, |places| {
            let is_awake = |place: &usize| {
                let device = self.machine.places[*place].device;
                let on = self.active.as_ref().map_or(PlaceSet::default(), |active| active.choice.setting.on);
                device.is_none_or(|device| self.machine.is_on(device, on))
            };
            let asleep = places.iter().filter(|place| !is_awake(place));
            asleep.map(|place| self.machine.wake_ns(place)).fold(0.0, f64::max)
        });
        self.next = Some((choice.clone(), burst.clone(), now_ns + APPLY_NS + wake_ns));
    }

    /// Removes lost devices from the placement. Functions on a lost device move to the CPU.
    pub(super) fn lose(&mut self, lost: PlaceSet) {
        let Some(active) = &mut self.active else { return };
        let places = self.machine.places.len();
        for choice in [&mut active.choice, &mut active.burst] {
            for shares in choice.shares.chunks_exact_mut(places) {
                let gone: f64 = lost.iter().map(|place| std::mem::take(&mut shares[place])).sum();
                shares[0] += gone;
            }
            choice.setting.on = choice.setting.on.without(lost).with(PlaceSet::of([0]));
            choice.setting.feeders = 0;
        }
        active.load.functions.clear();
        self.next = None;
    }

    /// Returns the largest number of packets in flight since the last call, as a fraction of the
    /// limit.
    pub(super) fn take_backlog(&mut self) -> f64 {
        std::mem::take(&mut self.backlog)
    }

    /// Returns the number of packets that wait in queues.
    pub(super) fn queue(&self) -> f64 {
        self.queue
    }

    /// Returns the current placement.
    pub(super) fn choice(&self) -> Option<&Choice> {
        self.active.as_ref().map(|active| &active.choice)
    }

    /// Returns the effect of the current placement under the current load, computed from the true
    /// costs.
    pub(super) fn prediction(&self) -> Option<&Prediction> {
        self.active.as_ref().map(|active| &active.own)
    }

    /// Advances the time while the load stays the same.
    pub(super) fn advance(&mut self, from_ns: f64, to_ns: f64, load: &Load) {
        let mut now_ns = from_ns;
        while now_ns < to_ns {
            let due_ns = self.next.as_ref().map_or(f64::INFINITY, |(_, _, due_ns)| *due_ns);
            if due_ns <= now_ns || self.active.is_none() {
                self.switch(load);
                continue;
            }
            let until_ns = due_ns.min(to_ns);
            self.serve((until_ns - now_ns) * 1e-9, load);
            now_ns = until_ns;
        }
    }

    fn switch(&mut self, load: &Load) {
        let Some((choice, burst, _)) = self.next.take() else { return };
        let own = self.machine.predict(load, &choice, self.truth);
        let own_burst = self.machine.predict(load, &burst, self.truth);
        self.active = Some(Active { choice, burst, own, own_burst, load: load.clone() });
        self.reflex = false;
    }

    /// Simulates the processing of packets for `seconds` seconds.
    fn serve(&mut self, seconds: f64, load: &Load) {
        let Some(active) = &mut self.active else { return };
        if active.load != *load {
            active.own = self.machine.predict(load, &active.choice, self.truth);
            active.own_burst = self.machine.predict(load, &active.burst, self.truth);
            active.load = load.clone();
        }
        let offered = load.pps();
        let rate = |prediction: &Prediction| if offered > 0.0 { offered * prediction.headroom } else { f64::INFINITY };
        let (own, burst) = (rate(&active.own), rate(&active.own_burst).max(rate(&active.own)));
        let workers = f64::from(active.choice.setting.workers);
        let (half, full) = (REFLEX_AT * IN_FLIGHT * workers, (IN_FLIGHT + PORT_RING) * workers);
        let watts = |prediction: &Prediction| prediction.watts.unwrap_or(0.0);
        let (watts, watts_burst) = (watts(&active.own), watts(&active.own_burst).max(watts(&active.own)));
        self.sums.offered += offered * seconds;

        let mut left = seconds;
        if own < offered && !self.reflex {
            // The queue grows until the additional devices process packets.
            let until = ((half - self.queue).max(0.0) / (offered - own) + REFLEX_NS * 1e-9).min(left);
            self.queue += (offered - own) * until;
            self.sums.carried += own * until;
            self.sums.joules += watts * until;
            self.reflex = until < left;
            left -= until;
        }
        if own >= offered {
            // The queue drains.
            let served = (self.queue + offered * left).min(own * left);
            self.queue = (self.queue + offered * left - served).max(0.0);
            self.sums.carried += served;
            self.sums.joules += watts * left;
            self.reflex = false;
        } else if left > 0.0 {
            // Additional devices process the packets that exceed the capacity of the placement.
            let share = if burst > own { ((offered - own) / (burst - own)).min(1.0) } else { 0.0 };
            let served = offered.min(burst) * left;
            self.queue += offered * left - served;
            self.sums.carried += served;
            self.sums.joules += (watts + share * (watts_burst - watts)) * left;
            self.sums.reflex_ns += left * 1e9;
        }
        self.backlog = self.backlog.max((self.queue / (IN_FLIGHT * workers)).min(1.0));
        let lost = (self.queue - full).max(0.0);
        self.sums.lost += lost;
        self.queue -= lost;
        let p99_ns = if self.reflex { active.own_burst.p99_ns } else { active.own.p99_ns };
        self.sums.ln_p99 += p99_ns.max(1.0).ln() * seconds;
    }
}
