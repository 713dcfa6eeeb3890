//! Tests the policy in virtual time, with one core, modelled devices and random arrivals. The seed
//! of the random numbers determines a run completely.

use std::collections::{BTreeMap, VecDeque};

use godwit_sign::{
    Class, Costs, DeviceCost, DeviceSpec, Effect, JobId, LANES, Policy, PolicyConfig, Processor, Refusal,
};
use godwit_test_support::Random;

const MS: u64 = 1_000_000;
const US: u64 = 1_000;

/// Costs of a device as measured on an NVIDIA H200 GPU. The latency is 2 ms, and the rate is one
/// million RSA-2048 signatures per second.
fn gpu() -> DeviceSpec {
    let mut costs = [None; Class::ALL.len()];
    costs[Class::Rsa2048.index()] = Some(DeviceCost { latency_ns: 2 * MS, job_ns: 1_000 });
    costs[Class::Rsa3072.index()] = Some(DeviceCost { latency_ns: 4 * MS, job_ns: 3_500 });
    costs[Class::Rsa4096.index()] = Some(DeviceCost { latency_ns: 8 * MS, job_ns: 8_000 });
    DeviceSpec { costs, batch_max: 1024, batches_max: 4 }
}

/// Behaviour of a modelled device.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mood {
    Good,
    /// Every result of the device is wrong.
    Wrong,
    /// The device never answers.
    Silent,
    /// The device needs this factor more time for its answers.
    Slow(u64),
}

/// Results that a device will deliver.
struct Model {
    mood: Mood,
    spec: DeviceSpec,
    busy_until_ns: u64,
    results: VecDeque<(u64, JobId)>,
}

impl Model {
    fn submit(&mut self, now_ns: u64, class: Class, jobs: &[JobId]) {
        let cost = self.spec.costs[class.index()].expect("the policy respects capabilities");
        assert!(!jobs.is_empty() && jobs.len() <= self.spec.batch_max);
        let factor = if let Mood::Slow(factor) = self.mood { factor } else { 1 };
        self.busy_until_ns = self.busy_until_ns.max(now_ns) + jobs.len() as u64 * cost.job_ns;
        if self.mood != Mood::Silent {
            let end_ns = self.busy_until_ns + factor * cost.latency_ns;
            self.results.extend(jobs.iter().map(|&id| (end_ns, id)));
        }
    }
}

/// One core and its devices, in virtual time.
struct World {
    seed: u64,
    now_ns: u64,
    costs: Costs,
    policy: Policy,
    devices: Vec<Model>,
    /// Submission time of each unanswered job.
    open: BTreeMap<JobId, (u64, Class)>,
    latencies_ns: Vec<u64>,
    by: BTreeMap<&'static str, u64>,
    refused: u64,
}

impl World {
    fn new(seed: u64, config: PolicyConfig, devices: Vec<(DeviceSpec, Mood)>) -> Self {
        let specs = devices.iter().map(|(spec, _)| spec.clone()).collect();
        let model = |(spec, mood)| Model { mood, spec, busy_until_ns: 0, results: VecDeque::new() };
        Self {
            seed,
            now_ns: 0,
            costs: config.costs.clone(),
            policy: Policy::new(config, specs),
            devices: devices.into_iter().map(model).collect(),
            open: BTreeMap::new(),
            latencies_ns: Vec::new(),
            by: BTreeMap::new(),
            refused: 0,
        }
    }

    fn submit(&mut self, class: Class) {
        match self.policy.submit(class) {
            Ok(id) => assert!(self.open.insert(id, (self.now_ns, class)).is_none(), "seed {}", self.seed),
            Err(refusal) => {
                assert_eq!(refusal, Refusal::Backlog);
                self.refused += 1;
            }
        }
        self.check();
    }

    fn check(&self) {
        let counters = self.policy.counters();
        assert!(counters.is_conserved(), "seed {}: {counters:?}", self.seed);
        assert_eq!(counters.in_flight, self.open.len() as u64, "seed {}", self.seed);
    }

    fn finish(&mut self, id: JobId, processor: Processor, correct: bool) {
        match self.policy.finish(id, processor, correct) {
            Effect::Answered => {
                let (submitted_ns, _) = self.open.remove(&id).expect("one answer for each job");
                self.latencies_ns.push(self.now_ns - submitted_ns);
                let name = match processor {
                    Processor::Single => "single",
                    Processor::Lanes => "lanes",
                    Processor::Device(_) => "device",
                };
                *self.by.entry(name).or_default() += 1;
            }
            Effect::Refused => drop(self.open.remove(&id).expect("one answer for each job")),
            Effect::Retried => assert!(self.open.contains_key(&id) && !correct),
            Effect::Ignored => assert!(!self.open.contains_key(&id)),
        }
        self.check();
    }

    /// Delivers results of devices up to now.
    fn deliver(&mut self) {
        for index in 0..self.devices.len() {
            while let Some(&(end_ns, id)) = self.devices[index].results.front() {
                if end_ns > self.now_ns || self.policy.is_lost(index) {
                    break;
                }
                self.devices[index].results.pop_front();
                let correct = self.devices[index].mood != Mood::Wrong;
                self.finish(id, Processor::Device(index), correct);
            }
        }
    }

    /// Runs the core until it has nothing to do or `end_ns` is reached. `faulty` is the percentage
    /// of wrong results of the SIMD lanes.
    fn run(&mut self, end_ns: u64, faulty: u64, random: &mut Random) {
        let mut jobs = Vec::new();
        loop {
            self.deliver();
            let Some(work) = self.policy.next(self.now_ns, &mut jobs) else {
                let results = self.devices.iter().filter_map(|device| Some(device.results.front()?.0));
                let next = results.chain(self.policy.deadline_ns()).filter(|&at_ns| at_ns > self.now_ns).min();
                match next.filter(|&at_ns| at_ns < end_ns) {
                    Some(at_ns) => self.now_ns = at_ns,
                    None => break self.now_ns = self.now_ns.max(end_ns),
                }
                continue;
            };
            assert!(jobs.iter().all(|id| self.open[id].1 == work.class), "seed {}", self.seed);
            let cost = self.costs.of(work.class);
            match work.processor {
                Processor::Device(index) => {
                    assert!(!self.policy.is_lost(index));
                    self.devices[index].submit(self.now_ns, work.class, &jobs);
                }
                Processor::Single => {
                    assert_eq!(jobs.len(), 1);
                    self.now_ns += cost.single_ns;
                    self.deliver();
                    self.finish(jobs[0], Processor::Single, true);
                }
                Processor::Lanes => {
                    assert!((1..=LANES).contains(&jobs.len()));
                    self.now_ns += cost.lanes_ns.expect("the policy knows the lanes");
                    self.deliver();
                    for &id in &jobs {
                        let correct = random.below(100) >= faulty;
                        self.finish(id, Processor::Lanes, correct);
                    }
                }
            }
            if self.now_ns >= end_ns {
                break;
            }
        }
    }

    /// Returns random arrivals of jobs of `class` for `duration_ns` nanoseconds. They follow a
    /// Poisson process with `per_second` jobs per second.
    fn arrivals(&mut self, class: Class, per_second: f64, duration_ns: u64, random: &mut Random) {
        let end_ns = self.now_ns + duration_ns;
        let mut at_ns = self.now_ns as f64;
        loop {
            let uniform = (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
            at_ns -= (1.0 - uniform).ln() * 1e9 / per_second;
            if at_ns as u64 >= end_ns {
                break;
            }
            if at_ns as u64 > self.now_ns {
                self.run(at_ns as u64, 0, random);
            }
            self.submit(class);
        }
        self.run(end_ns, 0, random);
        self.run(end_ns + 5_000 * MS, 0, random);
        assert!(self.open.is_empty(), "seed {}: {} jobs are left", self.seed, self.open.len());
    }

    fn quantile_ns(&mut self, share: f64) -> u64 {
        self.latencies_ns.sort_unstable();
        self.latencies_ns[((self.latencies_ns.len() - 1) as f64 * share) as usize]
    }

    fn by(&self, name: &str) -> u64 {
        self.by.get(name).copied().unwrap_or(0)
    }
}

/// With random classes, devices, faults and cancellations, each job is answered once. The counters
/// account for all jobs after every event.
#[test]
fn every_job_is_answered_once() {
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let config = PolicyConfig {
            jobs_max: [1, 7, 8, 100, 4096][random.below(5) as usize],
            fill_ns: random.below(3) * 200 * US,
            deadline_ns: (1 + random.below(20)) * MS,
            lost_ns: 50 * MS,
            ..PolicyConfig::default()
        };
        let moods = [Mood::Good, Mood::Good, Mood::Wrong, Mood::Silent, Mood::Slow(8)];
        let devices = (0..random.below(3)).map(|_| {
            let spec = DeviceSpec {
                batch_max: 1 + random.below(64) as usize,
                batches_max: 1 + random.below(4) as usize,
                ..gpu()
            };
            (spec, moods[random.below(5) as usize])
        });
        let mut world = World::new(seed, config, devices.collect());
        let mut submitted = 0;
        for _ in 0..60 {
            for _ in 0..random.below(40) {
                submitted += 1;
                world.submit(Class::ALL[random.below(6) as usize]);
            }
            let open: Vec<JobId> = world.open.keys().copied().collect();
            if !open.is_empty() && random.below(3) == 0 {
                let id = open[random.below(open.len() as u64) as usize];
                assert!(world.policy.cancel(id));
                world.open.remove(&id);
                world.check();
            }
            let end_ns = world.now_ns + random.below(10_000) * US;
            world.run(end_ns, random.below(5), &mut random);
        }
        world.run(world.now_ns + 10_000 * MS, 0, &mut random);
        let counters = world.policy.counters();
        assert_eq!((counters.received, counters.in_flight), (submitted, 0), "seed {seed}: {counters:?}");
        assert_eq!(counters.refused_backlog, world.refused);
    }
}

fn submit_all(policy: &mut Policy, class: Class, count: usize) {
    for _ in 0..count {
        policy.submit(class).expect("room for the job");
    }
}

#[test]
fn one_or_two_jobs_are_signed_singly_and_more_in_lanes() {
    for (class, singles) in [(Class::Rsa2048, 2), (Class::Rsa4096, 3), (Class::EcdsaP256, 2), (Class::Ed25519, 1)] {
        for count in 1..=20 {
            let mut policy = Policy::new(PolicyConfig::default(), Vec::new());
            submit_all(&mut policy, class, count);
            let mut jobs = Vec::new();
            let work = policy.next(0, &mut jobs).unwrap();
            let expected = if count <= singles { (Processor::Single, 1) } else { (Processor::Lanes, count.min(LANES)) };
            assert_eq!((work.processor, jobs.len()), expected, "{class:?} {count}");
        }
    }
    let without = PolicyConfig { costs: Costs::default().without_lanes(), ..PolicyConfig::default() };
    let mut policy = Policy::new(without, Vec::new());
    submit_all(&mut policy, Class::Rsa2048, 100);
    assert_eq!(policy.next(0, &mut Vec::new()).unwrap().processor, Processor::Single);
}

/// Older classes go first, so no class starves.
#[test]
fn classes_are_served_by_their_oldest_job() {
    let mut policy = Policy::new(PolicyConfig::default(), Vec::new());
    let first = policy.submit(Class::Ed25519).unwrap();
    submit_all(&mut policy, Class::Rsa2048, 50);
    let last = policy.submit(Class::Ed25519).unwrap();
    let mut jobs = Vec::new();
    assert_eq!(policy.next(0, &mut jobs).unwrap().class, Class::Ed25519);
    assert_eq!(jobs, [first, last]);
}

/// At a load of 100 jobs per second, the device is not used, and latencies are those of the CPU
/// alone.
#[test]
fn light_load_stays_on_the_cpu() {
    let mut worlds = [Vec::new(), vec![(gpu(), Mood::Good)]].map(|devices| {
        let mut world = World::new(1, PolicyConfig::default(), devices);
        world.arrivals(Class::Rsa2048, 100.0, 20_000 * MS, &mut Random::new(1));
        world
    });
    assert_eq!(worlds[1].by("device"), 0);
    let [alone, with] = worlds.each_mut().map(|world| (world.quantile_ns(0.5), world.quantile_ns(0.99)));
    assert_eq!(alone, with);
    assert_eq!(alone.0, Costs::default().of(Class::Rsa2048).single_ns);
}

/// The load is twice what the CPU can sign. Without a device, jobs are refused. With a device, no
/// job is refused, and the latency stays near that of the device.
#[test]
fn overload_goes_to_the_device() {
    let mut alone = World::new(2, PolicyConfig::default(), Vec::new());
    alone.arrivals(Class::Rsa2048, 21_600.0, 2_000 * MS, &mut Random::new(2));
    assert!(alone.refused > 10_000, "{}", alone.refused);
    let mut with = World::new(2, PolicyConfig::default(), vec![(gpu(), Mood::Good)]);
    with.arrivals(Class::Rsa2048, 21_600.0, 2_000 * MS, &mut Random::new(2));
    assert_eq!(with.refused, 0);
    assert!(with.by("device") > 10_000, "{:?}", with.by);
    let p99_ns = with.quantile_ns(0.99);
    assert!(p99_ns < 5 * MS, "{p99_ns}");
}

/// For larger keys, a device is worthwhile with fewer waiting jobs.
#[test]
fn long_operations_go_to_the_device_earlier() {
    let threshold = |class: Class| {
        let found = (1..100).find(|&count| {
            let mut policy = Policy::new(PolicyConfig { fill_ns: 0, ..PolicyConfig::default() }, vec![gpu()]);
            submit_all(&mut policy, class, count);
            matches!(policy.next(0, &mut Vec::new()).unwrap().processor, Processor::Device(_))
        });
        found.expect("a threshold")
    };
    assert_eq!([Class::Rsa2048, Class::Rsa3072, Class::Rsa4096].map(threshold), [18, 9, 9]);
}

/// A device fails under load. No job fails, and no job waits longer than the deadline plus the time
/// that the CPU then needs.
#[test]
fn jobs_of_a_silent_device_are_signed_by_the_cpu() {
    let config = PolicyConfig { deadline_ns: 20 * MS, lost_ns: 100 * MS, ..PolicyConfig::default() };
    let mut world = World::new(3, config, vec![(gpu(), Mood::Good)]);
    let mut random = Random::new(3);
    world.arrivals(Class::Rsa2048, 10_000.0, 100 * MS, &mut random);
    for _ in 0..200 {
        world.submit(Class::Rsa2048);
    }
    world.run(world.now_ns + MS, 0, &mut random);
    world.devices[0].mood = Mood::Silent;
    world.devices[0].results.clear();
    world.arrivals(Class::Rsa2048, 8_000.0, 1_000 * MS, &mut random);
    let counters = world.policy.counters();
    assert_eq!((world.refused, counters.refused, counters.devices_lost), (0, 0, 1));
    assert!(counters.late > 0, "{counters:?}");
    let longest_ns = world.quantile_ns(1.0);
    assert!(longest_ns < 50 * MS, "{longest_ns}");
}

/// A device is no longer used after `faults_max` wrong results, and the CPU answers the jobs.
#[test]
fn wrong_results_never_answer_a_job() {
    let mut world = World::new(4, PolicyConfig::default(), vec![(gpu(), Mood::Wrong)]);
    world.arrivals(Class::Rsa4096, 1_000.0, 500 * MS, &mut Random::new(4));
    let counters = world.policy.counters();
    assert_eq!((world.by("device"), counters.faults_device, counters.devices_lost), (0, 3, 1), "{counters:?}");
    assert_eq!(counters.received, counters.signed);
}

#[test]
fn lanes_with_faults_are_disabled() {
    let mut world = World::new(5, PolicyConfig::default(), Vec::new());
    (0..80).for_each(|_| world.submit(Class::Rsa2048));
    world.run(10_000 * MS, 100, &mut Random::new(5));
    let counters = world.policy.counters();
    assert_eq!((counters.lanes_lost, counters.signed_lanes, counters.signed_single), (1, 0, 80), "{counters:?}");
}
