//! The measurements that a profile consists of.

use std::collections::BTreeSet;

use godwit_device::is_synchronous;
use godwit_engine::config::{Config, DeviceConfig};
use godwit_sched::place::Profile;

/// Lengths of frames, in bytes.
const BYTES: [u16; 4] = [60, 252, 508, 1404];
/// Loads at which latency and power are measured, as fractions of the largest rate.
const LOADS: [f64; 4] = [0.05, 0.25, 0.6, 0.95];
/// Number of chunk sizes for a device other than the CPU. Each is a quarter of the one before.
const CHUNKS: u32 = 4;

/// A device in its configured mode, with the functions that it may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) device: String,
    /// `launch` or `persistent`.
    pub(super) mode: &'static str,
    /// Packet limits of a chunk, beginning with the configured limit.
    pub(super) chunks: Vec<u32>,
    /// Indices of the functions that may run on the device.
    pub(super) functions: Vec<usize>,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Job {
    /// Power of a device that sleeps, and of one that waits for packets.
    Power { place: usize },
    /// Core time of packets that no function processes.
    Receive { bytes: u16 },
    /// A point of a cost curve.
    Curve { function: usize, place: usize, chunk: u32, bytes: u16, load: f64 },
    /// Functions that run at the same time on one device.
    Group { place: usize, functions: Vec<usize>, bytes: u16 },
}

/// All measurements of a configuration, in their order. A point at a partial load follows the point
/// at full load, and functions that run together follow each of them alone.
pub(super) struct Plan {
    pub(super) names: Vec<String>,
    pub(super) places: Vec<Place>,
    pub(super) jobs: Vec<Job>,
    /// Names of functions that no packet reaches.
    pub(super) unreached: Vec<String>,
}

impl Plan {
    /// Plans the measurements of a configuration. A quick plan has fewer points.
    pub(super) fn new(config: &Config, is_quick: bool) -> Self {
        let names: Vec<String> = config.functions.iter().map(|function| function.name.clone()).collect();
        let reached = |index: &usize| config.chain.is_reached(*index);
        let unreached = (0..names.len()).filter(|index| !reached(index)).map(|index| names[index].clone()).collect();
        let place = |device: &DeviceConfig| {
            let runs = |index: &usize| reached(index) && config.functions[*index].devices.contains(&device.id);
            let functions: Vec<usize> = (0..names.len()).filter(runs).collect();
            let place = Place {
                device: device.id.clone(),
                mode: device.mode.name(),
                chunks: chunks(device, is_quick),
                functions,
            };
            (!place.functions.is_empty()).then_some(place)
        };
        let places: Vec<Place> = config.devices.iter().filter_map(place).collect();
        let longest = config.arena.frame_bytes_max.min(usize::from(u16::MAX)) as u16;
        let bytes: BTreeSet<u16> = BYTES.iter().map(|&bytes| bytes.min(longest)).collect();
        let bytes: Vec<u16> = bytes.into_iter().collect();
        let ends = [bytes[0], bytes[bytes.len() - 1]];
        let all = if is_quick { &ends[..] } else { &bytes[..] };
        let jobs = jobs(&places, all, ends, is_quick);
        Self { names, places, jobs, unreached }
    }

    /// Returns whether a profile contains the result of a measurement.
    pub(super) fn is_measured(&self, job: &Job, profile: &Profile) -> bool {
        match job {
            Job::Power { place } => profile.power(&self.places[*place].device).is_some(),
            Job::Receive { bytes } => profile.receives.iter().any(|point| point.bytes == *bytes),
            Job::Curve { function, place, chunk, bytes, load } => {
                let place = &self.places[*place];
                let curve = profile.curve(&self.names[*function], &place.device, place.mode);
                let is_it = |point: &godwit_sched::place::CurvePoint| {
                    (point.chunk, point.bytes, point.load) == (*chunk, *bytes, *load)
                };
                curve.is_some_and(|curve| curve.points.iter().any(is_it))
            }
            Job::Group { place, functions, bytes } => {
                let place = &self.places[*place];
                let names = || functions.iter().map(|&function| &self.names[function]);
                profile.pairs.iter().any(|pair| {
                    let is_alike = pair.functions.iter().eq(names());
                    is_alike && (&pair.device, pair.chunk, pair.bytes) == (&place.device, place.chunks[0], *bytes)
                })
            }
        }
    }

    /// Returns what a measurement measures, for the progress line.
    pub(super) fn describe(&self, job: &Job) -> String {
        let device = |place: &usize| &self.places[*place].device;
        match job {
            Job::Power { place } => format!("power of {}", device(place)),
            Job::Receive { bytes } => format!("receiving, {bytes} bytes"),
            Job::Curve { function, place, chunk, bytes, load } => {
                let load = if *load < 1.0 { format!(", load {:.0} %", load * 100.0) } else { String::new() };
                format!("{} on {}, chunks of {chunk}, {bytes} bytes{load}", self.names[*function], device(place))
            }
            Job::Group { place, functions, bytes } => {
                let names: Vec<&str> = functions.iter().map(|&function| self.names[function].as_str()).collect();
                format!("{} on {}, {bytes} bytes", names.join(" with "), device(place))
            }
        }
    }
}

/// Returns the packet limits of a chunk that are measured. The CPU needs only the configured limit,
/// because a chunk costs it nothing beyond its bins.
fn chunks(device: &DeviceConfig, is_quick: bool) -> Vec<u32> {
    let configured = device.packing.chunk_packets;
    if is_synchronous(&device.id) {
        return vec![configured];
    }
    let levels = (0..CHUNKS).step_by(if is_quick { 2 } else { 1 });
    let mut chunks: Vec<u32> = levels
        .map(|level| (configured >> (2 * level)).max(device.packing.bin_packets).max(1).min(configured))
        .collect();
    chunks.dedup();
    chunks
}

/// Lists all measurements. `bytes` contains all frame lengths, and `ends` the shortest and the
/// longest one.
fn jobs(places: &[Place], bytes: &[u16], ends: [u16; 2], is_quick: bool) -> Vec<Job> {
    let mut ends = ends.to_vec();
    ends.dedup();
    // The power of sleeping devices comes first, because no driver is loaded yet.
    let mut jobs: Vec<Job> = (0..places.len()).map(|place| Job::Power { place }).collect();
    jobs.extend(bytes.iter().map(|&bytes| Job::Receive { bytes }));
    let loads: &[f64] = if is_quick { &[LOADS[0], LOADS[2]] } else { &LOADS };
    for (number, place) in places.iter().enumerate() {
        for &function in &place.functions {
            for &chunk in &place.chunks {
                jobs.extend(bytes.iter().map(|&bytes| Job::Curve { function, place: number, chunk, bytes, load: 1.0 }));
            }
            // Two chunk sizes are enough for latencies, because the model uses the nearest one.
            let latency_chunks = place.chunks.iter().step_by(2).take(if is_quick { 1 } else { 2 });
            for &chunk in latency_chunks {
                for &bytes in if is_quick { &ends[..1] } else { &ends[..] } {
                    let at = |&load: &f64| Job::Curve { function, place: number, chunk, bytes, load };
                    jobs.extend(loads.iter().map(at));
                }
            }
        }
    }
    for (number, place) in places.iter().enumerate() {
        let functions = &place.functions;
        for (index, &one) in functions.iter().enumerate() {
            for &two in &functions[index + 1..] {
                jobs.extend(ends.iter().map(|&bytes| Job::Group { place: number, functions: vec![one, two], bytes }));
            }
        }
    }
    for (number, place) in places.iter().enumerate() {
        let functions = &place.functions;
        for (index, &one) in functions.iter().enumerate() {
            for (other, &two) in functions.iter().enumerate().skip(index + 1) {
                let triples = functions[other + 1..].iter().map(|&three| vec![one, two, three]);
                jobs.extend(triples.map(|functions| Job::Group {
                    place: number,
                    functions,
                    bytes: ends[ends.len() - 1],
                }));
            }
        }
    }
    jobs
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn plan(is_quick: bool) -> Plan {
        let text = r#"
            [[port]]
            name = "lan"
            kind = "synthetic"
            [[device]]
            name = "model:0"
            times = { a = { packet_ns = 10 }, b = { packet_ns = 20 } }
            [[function]]
            name = "a"
            kind = "echo"
            device = ["model:0", "cpu"]
            [[function]]
            name = "b"
            kind = "echo"
            device = ["cpu", "model:0"]
            [[function]]
            name = "c"
            kind = "echo"
            [[function]]
            name = "unused"
            kind = "echo"
            [[chain]]
            from = "lan"
            to = "a"
            [[chain]]
            from = "a"
            to = "b"
            [[chain]]
            from = "b"
            to = "c"
            [[chain]]
            from = "c"
            to = "lan"
        "#;
        Plan::new(&Config::parse(text, "test", Path::new(".")).expect("valid"), is_quick)
    }

    fn count(plan: &Plan, is_counted: impl Fn(&Job) -> bool) -> usize {
        plan.jobs.iter().filter(|job| is_counted(job)).count()
    }

    #[test]
    fn plan_covers_every_function_on_each_of_its_devices() {
        let plan = plan(false);
        assert_eq!((plan.places.len(), &plan.unreached), (2, &vec!["unused".to_owned()]));
        let [cpu, model] = &plan.places[..] else { panic!("two devices") };
        assert_eq!((cpu.functions.as_slice(), model.functions.as_slice()), (&[0, 1, 2][..], &[0, 1][..]));
        assert_eq!((cpu.chunks.len(), &model.chunks), (1, &vec![2048, 512, 128, 64]));
        let full = |job: &Job| matches!(job, Job::Curve { load: 1.0, .. });
        assert_eq!(count(&plan, full), 3 * 4 + 2 * 4 * 4);
        let partial = |job: &Job| matches!(job, Job::Curve { load, .. } if *load < 1.0);
        assert_eq!(count(&plan, partial), 3 * 2 * 4 + 2 * 2 * 2 * 4);
        let groups =
            |size: usize| move |job: &Job| matches!(job, Job::Group { functions, .. } if functions.len() == size);
        assert_eq!((count(&plan, groups(2)), count(&plan, groups(3))), ((3 + 1) * 2, 1));
    }

    #[test]
    fn quick_plan_is_a_part_of_the_full_plan() {
        let (quick, full) = (plan(true), plan(false));
        assert!(quick.jobs.len() * 2 < full.jobs.len());
        assert!(quick.jobs.iter().all(|job| full.jobs.contains(job)));
    }
}
