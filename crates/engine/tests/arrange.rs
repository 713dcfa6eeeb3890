//! Host halves that take packets apart, hold, join, make and drop them, one behind the other, on devices that take their
//! time or fail: order and conservation hold.

mod faults;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use faults::{Faults, Loss, opener};
use godwit_abi::{Descriptor, Outcome};
use godwit_engine::config::Config;
use godwit_engine::{Engine, Options, Report};
use godwit_function::{Arrangement, Contract, Function, HostHalf, Step, Work, template};
use godwit_packet::{ImageRef, Region};
use proptest::prelude::*;

const FAULTY: &str = "opencl:9";
const PACKETS: u64 = 3000;
/// Where the first function writes its numbers; the second writes behind.
const TAG_OFFSET: usize = 46;
/// In the place of a number: the packet came from nowhere.
const MADE: u32 = u32::MAX;
/// A held packet is given up after so many steps.
const PATIENCE: u32 = 50;

static CONTRACT: Contract = Contract { in_order: true, ..template::CONTRACT };

/// How many of each.
#[derive(Default)]
struct Counts {
    split: AtomicU64,
    joined: AtomicU64,
    made: AtomicU64,
    dropped: AtomicU64,
    wrong: AtomicU64,
}

fn add(counter: &AtomicU64, count: u32) {
    counter.fetch_add(count.into(), Ordering::SeqCst);
}

struct Mangler {
    template: Arc<dyn Function>,
    /// 0: the first of the chain.
    stage: usize,
    seed: u64,
    counts: Arc<Counts>,
}

impl Function for Mangler {
    fn contract(&self) -> &'static Contract {
        &CONTRACT
    }

    fn image(&self) -> ImageRef<'_> {
        self.template.image()
    }

    fn host_half(&self, _worker: usize, _workers: usize) -> Option<Box<dyn HostHalf>> {
        let (stage, random, counts) = (self.stage, self.seed, Arc::clone(&self.counts));
        Some(Box::new(ManglerHost { stage, random, counts, number: 0, last_seen: 0, held: Vec::new(), steps: 0 }))
    }

    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, variant: u8, parameter: u64) -> Outcome {
        self.template.run_ref(buffer, descriptor, variant, parameter)
    }
}

struct ManglerHost {
    stage: usize,
    random: u64,
    counts: Arc<Counts>,
    /// The last number that a packet got here.
    number: u32,
    /// The number of the function before, of the last packet that came.
    last_seen: u32,
    /// When each was held.
    held: Vec<u32>,
    steps: u32,
}

const WORK: Work = Work::Run { variant: 0, parameter: 0 };

impl ManglerHost {
    /// Below `limit`.
    fn draw(&mut self, limit: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % limit
    }

    fn tag(&mut self, frame: &mut [u8], made: bool) {
        self.number += u32::from(!made);
        let number = if made { MADE } else { self.number };
        frame[TAG_OFFSET + 4 * self.stage..][..4].copy_from_slice(&number.to_be_bytes());
    }

    /// The numbers of the function before come in order.
    fn look(&mut self, frame: &[u8]) {
        if self.stage == 0 {
            return;
        }
        let number = u32::from_be_bytes(frame[TAG_OFFSET..TAG_OFFSET + 4].try_into().unwrap());
        if number != MADE {
            // Parts of one packet have numbers of their own.
            add(&self.counts.wrong, (number <= self.last_seen).into());
            self.last_seen = number;
        }
    }

    fn copy(region: &mut Region, packet: &Descriptor) -> Option<Descriptor> {
        let frame = region.frame(packet).to_vec();
        let copy = region.allocate(frame.len())?;
        region.frame_mut(&copy).copy_from_slice(&frame);
        Some(copy)
    }
}

impl HostHalf for ManglerHost {
    fn prepare(&mut self, _: &Region, _: &[Descriptor], _: &mut Vec<Work>) {
        unreachable!("it arranges");
    }

    fn arranges(&self) -> bool {
        true
    }

    fn arrange(&mut self, packets: &mut Arrangement<'_>) -> u64 {
        self.steps += 1;
        for packet in packets.arrived {
            self.look(packets.region.frame(packet));
            match self.draw(10) {
                0 | 1 => {
                    self.held.push(self.steps);
                    packets.steps.push(Step::Hold { packet: *packet });
                }
                2 | 3 if !self.held.is_empty() => {
                    let held = 1 + self.draw(self.held.len() as u64) as u32;
                    self.held.truncate(self.held.len() - held as usize);
                    let copied = if self.draw(2) == 0 { None } else { Self::copy(packets.region, packet) };
                    let whole = copied.unwrap_or(*packet);
                    self.tag(packets.region.frame_mut(&whole), false);
                    add(&self.counts.joined, held);
                    packets.steps.push(Step::Join { packet: *packet, whole, held, work: WORK });
                }
                4 => {
                    add(&self.counts.dropped, 1);
                    packets.steps.push(Step::Drop { packet: *packet, reason: 0 });
                }
                5 | 6 => {
                    self.tag(packets.region.frame_mut(packet), false);
                    packets.steps.push(Step::Keep { packet: *packet, work: WORK });
                    for _ in 0..=self.draw(3) {
                        let Some(part) = Self::copy(packets.region, packet) else { break };
                        self.tag(packets.region.frame_mut(&part), false);
                        add(&self.counts.split, 1);
                        // Some need no kernel.
                        let work = if self.draw(2) == 0 { WORK } else { Work::Done(Outcome::verdict(0)) };
                        packets.steps.push(Step::Split { packet: part, work });
                    }
                }
                kind => {
                    self.tag(packets.region.frame_mut(packet), false);
                    packets.steps.push(Step::Keep { packet: *packet, work: WORK });
                    if kind == 7
                        && let Some(made) = Self::copy(packets.region, packet)
                    {
                        self.tag(packets.region.frame_mut(&made), true);
                        add(&self.counts.made, 1);
                        packets.steps.push(Step::Create { packet: made, work: WORK });
                    }
                }
            }
        }
        let old = self.held.iter().filter(|since| packets.ending || **since + PATIENCE < self.steps).count();
        if old > 0 {
            self.held.drain(..old);
            add(&self.counts.dropped, old as u32);
            packets.steps.push(Step::Expire { held: old as u32, reason: 0 });
        }
        // Without packets too.
        packets.now_ns + 1000
    }
}

fn text(workers: usize, device: &str, capture: &Path) -> String {
    format!(
        r#"
        [engine]
        workers = {workers}
        pin = false
        burst_packets = 32
        in_flight_packets = 256
        [arena]
        packets = 1024
        [packing]
        deadline_ns = 20000
        [[device]]
        name = "{FAULTY}"
        watchdog_ms = 20
        chunks = 3
        chunk_packets = 32
        bins = 5
        bin_packets = 16
        [[port]]
        name = "in"
        kind = "synthetic"
        packets = {PACKETS}
        flows = 50
        size = "imix"
        seed = 5
        [[port]]
        name = "out"
        kind = "pcap"
        write = {capture:?}
        [[function]]
        name = "first"
        kind = "template"
        device = "{device}"
        [[function]]
        name = "second"
        kind = "template"
        [[class]]
        name = "some"
        source_ports = "0-30000"
        [[chain]]
        from = "in"
        to = "first"
        [[chain]]
        from = "first"
        to = "second"
        [[chain]]
        from = "second"
        to = "out"
        "#
    )
}

/// A run, and the second function's numbers of the packets that came out.
fn run(workers: usize, device: &str, faults: Option<Faults>, seed: u64) -> (Report, Arc<Counts>, Vec<u32>) {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("out.pcap");
    let mut config = Config::parse(&text(workers, device, &capture), "test.toml", Path::new(".")).unwrap();
    let counts = Arc::new(Counts::default());
    for (stage, function) in config.functions.iter_mut().enumerate() {
        let template = Arc::clone(&function.function);
        function.function =
            Arc::new(Mangler { template, stage, seed: seed + stage as u64, counts: Arc::clone(&counts) });
    }
    let options = Options { opener: faults.map(|faults| opener(FAULTY, faults)), ..Options::default() };
    let engine = Engine::new(config, &options).unwrap();
    let report = engine.run(&Arc::new(AtomicBool::new(false)), Some(Duration::from_secs(60)), &mut |_| {}).unwrap();
    let bytes = std::fs::read(&capture).unwrap();
    let (mut rest, mut numbers) = (&bytes[24..], Vec::new());
    while !rest.is_empty() {
        let length = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        numbers.push(u32::from_be_bytes(rest[16 + TAG_OFFSET + 4..][..4].try_into().unwrap()));
        rest = &rest[16 + length..];
    }
    (report, counts, numbers)
}

fn count(report: &Report, counter: &str) -> u64 {
    report.counters.iter().find(|(name, _)| name == counter).map_or(0, |(_, value)| *value)
}

fn check(report: &Report, counts: &Counts, numbers: &[u32], workers: usize) -> Result<(), TestCaseError> {
    let of = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
    let flow = &report.conservation;
    prop_assert!(flow.holds() && flow.in_flight == 0, "{}", flow);
    prop_assert_eq!(flow.received, PACKETS);
    prop_assert_eq!(flow.merged, of(&counts.joined));
    // There is not always room for one that came from nowhere.
    prop_assert!(flow.created >= of(&counts.split) && flow.created <= of(&counts.split) + of(&counts.made));
    let lost = count(report, "engine_dropped_device") + count(report, "engine_dropped_device_lost");
    prop_assert_eq!(flow.dropped, of(&counts.dropped) + lost);
    prop_assert_eq!(of(&counts.wrong), 0);
    prop_assert_eq!(numbers.len() as u64, flow.sent);
    if workers == 1 {
        let own: Vec<u32> = numbers.iter().copied().filter(|number| *number != MADE).collect();
        prop_assert!(own.is_sorted_by(|one, next| one < next), "{:?}", own);
    }
    Ok(())
}

#[test]
fn everything_happens_and_is_counted() {
    let (report, counts, numbers) = run(1, "cpu", None, 1);
    check(&report, &counts, &numbers, 1).unwrap();
    for counter in [&counts.split, &counts.joined, &counts.made, &counts.dropped] {
        assert!(counter.load(Ordering::SeqCst) > 100);
    }
    assert!(report.conservation.to_string().contains(" + created "), "{}", report.conservation);
    assert!(numbers.contains(&MADE));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn order_and_conservation_hold_on_any_device(
        workers in 1usize..3,
        delay_polls in 0u32..20,
        fails_each in prop::sample::select(vec![0u64, 0, 3, 7]),
        loss in prop::option::of((prop::sample::select(vec![Loss::Hangs, Loss::Dies, Loss::Refuses]), 0u64..40)),
        seed: u64,
    ) {
        let faults = Faults { delay_polls, fails_each, loss };
        let (report, counts, numbers) = run(workers, FAULTY, Some(faults), seed >> 1);
        check(&report, &counts, &numbers, workers)?;
    }
}

/// `arrange` by default is `prepare`.
#[test]
fn the_default_keeps_everything() {
    struct Plain(Mutex<usize>);
    impl HostHalf for Plain {
        fn prepare(&mut self, _: &Region, descriptors: &[Descriptor], work: &mut Vec<Work>) {
            *self.0.lock().unwrap() += descriptors.len();
            work.extend(descriptors.iter().map(|packet| Work::Run { variant: 1, parameter: packet.flow_hash.into() }));
        }
    }
    let mut region = godwit_packet::Arena::new(godwit_packet::ArenaConfig::default(), 1).unwrap().split().remove(0);
    let arrived: Vec<Descriptor> =
        (0..5).map(|number| Descriptor { flow_hash: number, ..region.allocate(60).unwrap() }).collect();
    let mut steps = Vec::new();
    let mut plain = Plain(Mutex::new(0));
    let mut arrangement = Arrangement {
        region: &mut region,
        now_ns: 7,
        live: true,
        ending: false,
        arrived: &arrived,
        previous: &[],
        steps: &mut steps,
    };
    assert_eq!(plain.arrange(&mut arrangement), u64::MAX);
    let expected: Vec<Step> = arrived
        .iter()
        .map(|&packet| Step::Keep { packet, work: Work::Run { variant: 1, parameter: packet.flow_hash.into() } })
        .collect();
    assert_eq!(steps, expected);
}
