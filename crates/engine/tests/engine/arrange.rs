//! Two functions whose host halves split, hold, join, create and drop packets, on slow and failing
//! devices: order and conservation hold.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use godwit_abi::{Descriptor, Outcome};
use godwit_engine::{Engine, Options, Report};
use godwit_function::{Arrange, Arrangement, Complete, Contract, Function, HostHalf, Step, Work, template};
use godwit_packet::{ImageRef, Region};
use godwit_test_support::{ConfigText, Folder, Random, capture};
use proptest::prelude::*;

use crate::common::{FAULTY, config, count};
use crate::faults::{Faults, Loss, opener};

const PACKETS: u64 = 3000;
/// Offset of the number that the first function writes. The number of the second function follows.
const TAG_OFFSET: usize = 46;
/// Number of a packet that a function created.
const CREATED: u32 = u32::MAX;
/// Number of steps after which a held packet expires.
const PATIENCE: u32 = 50;

static CONTRACT: Contract = Contract { in_order: true, ..template::CONTRACT };

/// Numbers of packets.
#[derive(Default)]
struct Counts {
    split: AtomicU64,
    joined: AtomicU64,
    created: AtomicU64,
    dropped: AtomicU64,
    /// Packets that arrived out of order.
    wrong: AtomicU64,
}

fn add(counter: &AtomicU64, count: u32) {
    counter.fetch_add(count.into(), Ordering::SeqCst);
}

struct Mangler {
    template: Arc<dyn Function>,
    /// Position in the chain, from 0.
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

    fn host_half(&self, _worker: usize, _workers: usize) -> Option<HostHalf> {
        let (stage, random, counts) = (self.stage, Random::new(self.seed), Arc::clone(&self.counts));
        let host = ManglerHost { stage, random, counts, number: 0, last_seen: 0, held: Vec::new(), steps: 0 };
        Some(HostHalf::Arrange(Box::new(host)))
    }

    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, variant: u8, parameter: u64) -> Outcome {
        self.template.run_ref(buffer, descriptor, variant, parameter)
    }
}

struct ManglerHost {
    stage: usize,
    random: Random,
    counts: Arc<Counts>,
    /// Last number that this function wrote.
    number: u32,
    /// Number of the previous function in the last packet.
    last_seen: u32,
    /// Step at which each held packet arrived.
    held: Vec<u32>,
    steps: u32,
}

const WORK: Work = Work::Run { variant: 0, parameter: 0 };

impl ManglerHost {
    /// Writes the next number, or [`CREATED`], to a packet.
    fn tag(&mut self, frame: &mut [u8], created: bool) {
        self.number += u32::from(!created);
        let number = if created { CREATED } else { self.number };
        frame[TAG_OFFSET + 4 * self.stage..][..4].copy_from_slice(&number.to_be_bytes());
    }

    /// Checks that packets arrive in the order of the previous function's numbers.
    fn check_order(&mut self, frame: &[u8]) {
        if self.stage == 0 {
            return;
        }
        let number = u32::from_be_bytes(frame[TAG_OFFSET..TAG_OFFSET + 4].try_into().unwrap());
        if number != CREATED {
            // Parts of one packet have different numbers.
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

impl Complete for ManglerHost {}

impl Arrange for ManglerHost {
    fn arrange(&mut self, packets: &mut Arrangement<'_>) -> u64 {
        self.steps += 1;
        for packet in packets.arrived {
            self.check_order(packets.region.frame(packet));
            match self.random.below(10) {
                0 | 1 => {
                    self.held.push(self.steps);
                    packets.steps.push(Step::Hold { packet: *packet });
                }
                2 | 3 if !self.held.is_empty() => {
                    let held = 1 + self.random.below(self.held.len()) as u32;
                    self.held.truncate(self.held.len() - held as usize);
                    let copied = if self.random.one_in(2) { None } else { Self::copy(packets.region, packet) };
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
                    for _ in 0..=self.random.below(3) {
                        let Some(part) = Self::copy(packets.region, packet) else { break };
                        self.tag(packets.region.frame_mut(&part), false);
                        add(&self.counts.split, 1);
                        // Some parts need no kernel.
                        let work = if self.random.one_in(2) { WORK } else { Work::Done(Outcome::verdict(0)) };
                        packets.steps.push(Step::Split { packet: part, work });
                    }
                }
                kind => {
                    self.tag(packets.region.frame_mut(packet), false);
                    packets.steps.push(Step::Keep { packet: *packet, work: WORK });
                    if kind == 7
                        && let Some(created) = Self::copy(packets.region, packet)
                    {
                        self.tag(packets.region.frame_mut(&created), true);
                        add(&self.counts.created, 1);
                        packets.steps.push(Step::Create { packet: created, work: WORK });
                    }
                }
            }
        }
        let expired = self.held.iter().filter(|since| packets.ending || **since + PATIENCE < self.steps).count();
        if expired > 0 {
            self.held.drain(..expired);
            add(&self.counts.dropped, expired as u32);
            packets.steps.push(Step::Expire { held: expired as u32, reason: 0 });
        }
        // The next call comes even if no packet arrives.
        packets.now_ns + 1000
    }
}

fn text(workers: usize, device: &str, capture: &Path) -> String {
    ConfigText::new()
        .engine(&format!("workers = {workers}\nburst_packets = 32\nin_flight_packets = 256"))
        .table("arena", "packets = 1024")
        .table("packing", "deadline_ns = 20000")
        .device(FAULTY, "watchdog_ms = 20\nchunks = 3\nchunk_packets = 32\nbins = 5\nbin_packets = 16")
        .port("in", "synthetic", &format!("packets = {PACKETS}\nflows = 50\nsize = \"imix\"\nseed = 5"))
        .port("out", "pcap", &format!("write = {capture:?}"))
        .function("first", "template", &format!("device = \"{device}\""))
        .function("second", "template", "")
        .class("some", "source_ports = \"0-30000\"")
        .path(&["in", "first", "second", "out"])
        .to_string()
}

/// Runs an engine. Returns the report, the counts, and the number that the second function wrote to
/// each packet that was sent.
fn run(workers: usize, device: &str, faults: Option<Faults>, seed: u64) -> (Report, Arc<Counts>, Vec<u32>) {
    let folder = Folder::new();
    let path = folder.join("out.pcap");
    let mut config = config(&text(workers, device, &path));
    let counts = Arc::new(Counts::default());
    for (stage, function) in config.functions.iter_mut().enumerate() {
        let template = Arc::clone(&function.function);
        function.function =
            Arc::new(Mangler { template, stage, seed: seed + stage as u64, counts: Arc::clone(&counts) });
    }
    let options = Options { opener: faults.map(|faults| opener(FAULTY, faults)), ..Options::default() };
    let engine = Engine::new(config, &options).unwrap();
    let report = engine.run(&Arc::new(AtomicBool::new(false)), Some(Duration::from_secs(60)), &mut |_| {}).unwrap();
    let number = |frame: &Vec<u8>| u32::from_be_bytes(frame[TAG_OFFSET + 4..][..4].try_into().unwrap());
    let numbers = capture::read(&path).iter().map(number).collect();
    (report, counts, numbers)
}

fn check(report: &Report, counts: &Counts, numbers: &[u32], workers: usize) -> Result<(), TestCaseError> {
    let value = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
    let flow = &report.conservation;
    prop_assert!(flow.holds() && flow.in_flight == 0, "{}", flow);
    prop_assert_eq!(flow.received, PACKETS);
    prop_assert_eq!(flow.merged, value(&counts.joined));
    // The engine may lack room for a created packet.
    prop_assert!(flow.created >= value(&counts.split) && flow.created <= value(&counts.split) + value(&counts.created));
    let lost = count(report, "engine_dropped_device") + count(report, "engine_dropped_device_lost");
    prop_assert_eq!(flow.dropped, value(&counts.dropped) + lost);
    prop_assert_eq!(value(&counts.wrong), 0);
    prop_assert_eq!(numbers.len() as u64, flow.sent);
    if workers == 1 {
        let numbers: Vec<u32> = numbers.iter().copied().filter(|number| *number != CREATED).collect();
        prop_assert!(numbers.is_sorted_by(|one, next| one < next), "{:?}", numbers);
    }
    Ok(())
}

#[test]
fn every_step_occurs_and_is_counted() {
    let (report, counts, numbers) = run(1, "cpu", None, 1);
    check(&report, &counts, &numbers, 1).unwrap();
    for counter in [&counts.split, &counts.joined, &counts.created, &counts.dropped] {
        assert!(counter.load(Ordering::SeqCst) > 100);
    }
    assert!(report.conservation.to_string().contains(" + created "), "{}", report.conservation);
    assert!(numbers.contains(&CREATED));
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
