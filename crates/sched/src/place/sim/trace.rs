//! Creates sequences of loads for simulating the planner.

use super::super::load::{FunctionLoad, LENGTH_CLASSES, Load, length_class_of};
use super::super::model::{Corrections, Machine};
use super::super::placement::PlaceSet;
use super::super::policy::Goal;
use super::super::search::{Grid, Problem, Search};
use super::random::Random;

/// Duration of each constant load that approximates a smooth change, in nanoseconds.
const SMOOTH_NS: u64 = 50_000_000;
/// One second, in nanoseconds.
const SECOND_NS: f64 = 1e9;
/// Period of the planner, in nanoseconds.
const PERIOD_NS: f64 = 10e6;

/// Kind of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The load is constant.
    Constant,
    /// The load changes every 0.5 to 3 s, sometimes together with the packet mix.
    Steps,
    /// A low load is interrupted by bursts of 50 to 300 ms.
    Bursts,
    /// The load follows a sine wave.
    Diurnal,
    /// Two loads alternate. Each one lasts for 0.5 to 4 times the interval between two planner
    /// runs.
    Square,
    /// The fraction of packets for each function and the frame lengths change slowly.
    Drift,
    /// The load is constant, and the GPU is lost at some time.
    Loss,
}

impl Kind {
    /// All kinds of traces.
    pub const ALL: [Self; 7] =
        [Self::Constant, Self::Steps, Self::Bursts, Self::Diurnal, Self::Square, Self::Drift, Self::Loss];
}

/// A load that stays constant until the next segment starts.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// Start of the segment, in nanoseconds.
    pub start_ns: u64,
    /// Load during the segment.
    pub load: Load,
}

/// Sequence of loads for a simulation. Some sequences also contain the time at which the GPU is
/// lost.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// Periods of constant load, in chronological order. The first period starts at time 0.
    pub segments: Vec<Segment>,
    /// End of the trace, in nanoseconds.
    pub end_ns: u64,
    /// Time at which the devices in `lost` fail, in nanoseconds.
    pub loss_ns: Option<u64>,
    /// Devices that fail, each in all of its modes.
    pub lost: PlaceSet,
}

/// Packet mix of two functions: the first one's fraction, and both mean frame lengths.
#[derive(Clone, Copy)]
struct Mix {
    share: f64,
    bytes: [f64; 2],
}

impl Trace {
    /// Creates a random trace. Each load is a fraction of the highest rate that the machine can
    /// process with the same packet mix.
    pub fn random(machine: &Machine, kind: Kind, seconds: f64, random: &mut Random) -> Self {
        let end_ns = (seconds * SECOND_NS) as u64;
        let mut builder = Builder { machine, search: Search::new(Grid::default()), segments: Vec::new() };
        let mix = random_mix(random);
        match kind {
            Kind::Constant | Kind::Loss => {
                let high = if kind == Kind::Loss { 0.4 } else { 0.95 };
                builder.push(0, random.between(0.05, high), mix);
            }
            Kind::Steps => builder.steps(end_ns, random),
            Kind::Bursts => builder.bursts(end_ns, mix, random),
            Kind::Diurnal => {
                let (low, high) = (random.between(0.03, 0.15), random.between(0.6, 0.92));
                let (period, phase) = (random.between(8.0, 20.0), random.between(0.0, 1.0));
                builder.smooth(end_ns, |t| {
                    let wave = 0.5 - 0.5 * (std::f64::consts::TAU * (t / period + phase)).cos();
                    (low + (high - low) * wave, mix)
                });
            }
            Kind::Square => {
                let (low, high) = (random.between(0.03, 0.15), random.between(0.5, 0.92));
                let half_ns = (random.between(0.5, 4.0) * PERIOD_NS) as u64;
                for (index, start_ns) in (0..end_ns).step_by(half_ns as usize).enumerate() {
                    builder.push(start_ns, if index % 2 == 0 { low } else { high }, mix);
                }
            }
            Kind::Drift => {
                let (load, other) = (random.between(0.3, 0.8), random_mix(random));
                builder.smooth(end_ns, |t| {
                    let at = t / seconds;
                    let between = |one: f64, two: f64| one + (two - one) * at;
                    let bytes = [0, 1].map(|index| between(mix.bytes[index], other.bytes[index]));
                    (load, Mix { share: between(0.9, 0.1), bytes })
                });
            }
        }
        let gpu = PlaceSet::of((1..machine.places.len()).filter(|_| kind == Kind::Loss));
        let loss_ns = (kind == Kind::Loss).then(|| (random.between(0.3, 0.7) * end_ns as f64) as u64);
        Self { segments: builder.segments, end_ns, loss_ns, lost: gpu }
    }

    /// Creates a sequence from recorded loads of equal duration.
    pub fn replay(loads: impl IntoIterator<Item = Load>, step_ns: u64) -> Self {
        let segment = |(index, load)| Segment { start_ns: index as u64 * step_ns, load };
        let segments: Vec<Segment> = loads.into_iter().enumerate().map(segment).collect();
        let end_ns = segments.len() as u64 * step_ns;
        Self { segments, end_ns, loss_ns: None, lost: PlaceSet::default() }
    }
}

fn random_mix(random: &mut Random) -> Mix {
    let lengths = [60.0, 60.0, 250.0, 508.0, 1000.0, 1404.0];
    Mix { share: random.pick(&[0.1, 0.3, 0.5, 0.7, 0.9]), bytes: [0, 1].map(|_| random.pick(&lengths)) }
}

struct Builder<'a> {
    machine: &'a Machine,
    search: Search,
    segments: Vec<Segment>,
}

impl Builder<'_> {
    /// Adds a period of constant load, as a fraction of the highest rate that the machine can
    /// process with this packet mix.
    fn push(&mut self, start_ns: u64, fraction: f64, mix: Mix) {
        let load = self.load(fraction, mix);
        self.segments.push(Segment { start_ns, load });
    }

    fn steps(&mut self, end_ns: u64, random: &mut Random) {
        let (mut start_ns, mut mix) = (0, random_mix(random));
        while start_ns < end_ns {
            self.push(start_ns, random.between(0.03, 0.92), mix);
            start_ns += (random.between(0.5, 3.0) * SECOND_NS) as u64;
            if random.between(0.0, 1.0) < 0.3 {
                mix = random_mix(random);
            }
        }
    }

    fn bursts(&mut self, end_ns: u64, mix: Mix, random: &mut Random) {
        let (low, high) = (random.between(0.03, 0.2), random.between(0.5, 0.92));
        let mut start_ns = 0;
        while start_ns < end_ns {
            self.push(start_ns, low, mix);
            start_ns += (random.between(0.3, 1.5) * SECOND_NS) as u64;
            self.push(start_ns, high, mix);
            start_ns += (random.between(0.05, 0.3) * SECOND_NS) as u64;
        }
        self.segments.retain(|segment| segment.start_ns < end_ns);
    }

    fn smooth(&mut self, end_ns: u64, at: impl Fn(f64) -> (f64, Mix)) {
        for start_ns in (0..end_ns).step_by(SMOOTH_NS as usize) {
            let (fraction, mix) = at(start_ns as f64 / SECOND_NS);
            self.push(start_ns, fraction, mix);
        }
    }

    fn load(&mut self, fraction: f64, mix: Mix) -> Load {
        let function = |share: f64, bytes: f64| {
            let mut classes = [0.0; LENGTH_CLASSES];
            classes[length_class_of(bytes as u16)] = 1.0;
            FunctionLoad { pps: 1e6 * share, bytes, classes }
        };
        let unit = Load { functions: vec![function(mix.share, mix.bytes[0]), function(1.0 - mix.share, mix.bytes[1])] };
        let goal = Goal::capacity();
        let corrections = Corrections::none(self.machine);
        let problem = Problem {
            machine: self.machine,
            load: &unit,
            corrections: &corrections,
            goal: &goal,
            excluded: PlaceSet::default(),
        };
        let best = self.search.best_of_bucket(&problem, None);
        unit.scaled(fraction * best.map_or(1.0, |found| found.prediction.headroom))
    }
}
