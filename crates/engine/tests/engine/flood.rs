//! Packets that are sent by several ports: copies, their order, and conservation.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use godwit_abi::{Descriptor, Outcome, PORT_FLOOD, VERDICT_DROP};
use godwit_engine::{Engine, Options, Report};
use godwit_function::{Arrange, Arrangement, Complete, Contract, Flood, Function, HostHalf, Step, Work, echo};
use godwit_packet::{ImageRef, Region};
use godwit_test_support::{ConfigText, Folder, FrameBuilder, capture};
use proptest::prelude::*;

use crate::common::{FAULTY, config, count};
use crate::faults::{Faults, Loss, opener};

const PACKETS: u32 = 2000;
/// Offset of the number in a frame. The bytes after it depend on the number.
const NUMBER: usize = 42;
/// Sets of ports: 0 is the input, 1 to 3 are captures. The last port of a set gets the original
/// packet.
const SETS: [&[u8]; 5] = [&[0, 1, 2, 3], &[3, 2, 1], &[2], &[0], &[]];
/// First byte of the header of a flooded packet. The port, the set and a zero follow.
const MARK: u8 = 0xfe;
const HEADER_BYTES: usize = 4;

static CONTRACT: Contract = Contract { headroom_bytes: HEADER_BYTES as u16, ..echo::CONTRACT };
static SPLITS: Contract = Contract { in_order: true, ..echo::CONTRACT };

/// Returns the set of a packet, or `None` if it is sent by port 1 only.
fn set(number: u32) -> Option<usize> {
    let kind = number as usize % (SETS.len() + 1);
    (kind < SETS.len()).then_some(kind)
}

/// Returns whether the first function splits a packet into two.
fn is_split(number: u32) -> bool {
    number % 5 == 1
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[NUMBER..NUMBER + 4].try_into().unwrap())
}

/// Returns a UDP packet of one of 50 flows, with 60 to 1514 bytes.
fn frame(number: u32) -> Vec<u8> {
    let length = 60 + (number as usize * 797) % 1455;
    let mut data = number.to_be_bytes().to_vec();
    data.extend((NUMBER + 4..length).map(|at| (at as u32 * 7 + number) as u8));
    FrameBuilder::new().udp([0x4000 + (number % 50) as u16, 7], &data)
}

/// Writes a capture of all frames.
fn write_frames(path: &Path) {
    capture::write(path, &(0..PACKETS).map(frame).collect::<Vec<_>>());
}

/// Function that sends packets by the ports of their sets, or splits some packets.
struct Spreader {
    echo: Arc<dyn Function>,
    splits: bool,
}

impl Function for Spreader {
    fn contract(&self) -> &'static Contract {
        if self.splits { &SPLITS } else { &CONTRACT }
    }

    fn image(&self) -> ImageRef<'_> {
        self.echo.image()
    }

    fn host_half(&self, _worker: usize, _workers: usize) -> Option<HostHalf> {
        Some(if self.splits { HostHalf::Arrange(Box::new(Splits)) } else { HostHalf::Complete(Box::new(Spreads)) })
    }

    fn flood(&self) -> Option<&dyn Flood> {
        Some(self)
    }

    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, variant: u8, parameter: u64) -> Outcome {
        self.echo.run_ref(buffer, descriptor, variant, parameter)
    }
}

impl Flood for Spreader {
    fn ports(&self, set: u32) -> &[u8] {
        SETS[set as usize]
    }

    fn prepare_copy(&self, buffer: &mut [u8], descriptor: &mut Descriptor, port: u8, set: u32) {
        descriptor.head -= HEADER_BYTES as u16;
        descriptor.length += HEADER_BYTES as u16;
        let head = usize::from(descriptor.head);
        buffer[head..head + HEADER_BYTES].copy_from_slice(&[MARK, port, set as u8, 0]);
    }
}

struct Spreads;

impl Complete for Spreads {
    fn finish(&mut self, region: &mut Region, descriptors: &mut [Descriptor], outcomes: &mut [Outcome]) {
        for (descriptor, outcome) in descriptors.iter().zip(outcomes) {
            if outcome.verdict == VERDICT_DROP {
                continue;
            }
            (outcome.port, outcome.value) = match set(number(region.frame(descriptor))) {
                Some(set) => (PORT_FLOOD, set as u32),
                None => (1, 0),
            };
        }
    }
}

struct Splits;

impl Complete for Splits {}

impl Arrange for Splits {
    fn arrange(&mut self, packets: &mut Arrangement<'_>) -> u64 {
        let work = Work::Run { variant: 0, parameter: 0 };
        for &packet in packets.arrived {
            packets.steps.push(Step::Keep { packet, work });
            if is_split(number(packets.region.frame(&packet)))
                && let Some(packet) = packets.region.duplicate(&packet)
            {
                packets.steps.push(Step::Split { packet, work });
            }
        }
        u64::MAX
    }
}

/// Packets that a port sent: number, and set of a flooded packet.
type Sent = Vec<(u32, Option<usize>)>;

#[derive(Clone, Debug)]
struct Case {
    workers: usize,
    io: &'static str,
    layout: &'static str,
    buffers: usize,
    splits: bool,
    device: &'static str,
}

const PLAIN: Case = Case { workers: 1, io: "single", layout: "slots", buffers: 8192, splits: false, device: "cpu" };

fn text(case: &Case, folder: &Path) -> String {
    let Case { workers, io, layout, buffers, splits, device } = case;
    let engine = format!("workers = {workers}\nio = \"{io}\"\nburst_packets = 32\nin_flight_packets = 256");
    let mut text = ConfigText::new()
        .engine(&engine)
        .table("arena", &format!("layout = \"{layout}\"\npackets = {buffers}"))
        .table("packing", "deadline_ns = 20000")
        .device(FAULTY, "watchdog_ms = 20\nchunks = 3\nchunk_packets = 32\nbins = 5\nbin_packets = 16")
        .port("p0", "pcap", &format!("file = {:?}", folder.join("in.pcap")));
    for port in 1..4 {
        text = text.port(&format!("p{port}"), "pcap", &format!("write = {:?}", folder.join(format!("{port}.pcap"))));
    }
    text = text.function("spreads", "echo", &format!("device = \"{device}\""));
    if *splits {
        text = text.function("splits", "echo", "").path(&["p0", "splits", "spreads", "egress"]);
    } else {
        text = text.path(&["p0", "spreads", "egress"]);
    }
    text.to_string()
}

/// Runs an engine. Returns the report, and the packets that ports 1 to 3 sent.
fn run(case: &Case, faults: Option<Faults>) -> (Report, Vec<Sent>) {
    let folder = Folder::new();
    write_frames(&folder.join("in.pcap"));
    let mut config = config(&text(case, folder.path()));
    for function in &mut config.functions {
        let (echo, splits) = (Arc::clone(&function.function), function.name == "splits");
        function.function = Arc::new(Spreader { echo, splits });
    }
    let options = Options { opener: faults.map(|faults| opener(FAULTY, faults)), ..Options::default() };
    let engine = Engine::new(config, &options).unwrap();
    let report = engine.run(&Arc::default(), Some(Duration::from_secs(60)), &mut |_| {}).unwrap();
    let ports = (1..4).map(|port| {
        let packet = |frame: &Vec<u8>| {
            let is_flooded = frame[0] == MARK;
            let set = is_flooded.then(|| {
                assert_eq!(usize::from(frame[1]), port, "the copy was prepared for another port");
                usize::from(frame[2])
            });
            let frame = &frame[if is_flooded { HEADER_BYTES } else { 0 }..];
            let number = number(frame);
            // `echo` swaps the MAC addresses.
            assert_eq!(frame[12..], self::frame(number)[12..]);
            (number, set)
        };
        capture::read(&folder.join(format!("{port}.pcap"))).iter().map(packet).collect()
    });
    (report, ports.collect())
}

/// Returns the packets that a port sends if none is lost.
fn expected(port: u8, splits: bool) -> Sent {
    let all = (0..PACKETS).flat_map(|number| {
        let times = if splits && is_split(number) { 2 } else { 1 };
        std::iter::repeat_n(number, times)
    });
    let to_port = |number: &u32| set(*number).map_or(port == 1, |set| SETS[set].contains(&port));
    all.filter(to_port).map(|number| (number, set(number))).collect()
}

/// Asserts conservation: every received and created packet is counted.
fn check(case: &Case, report: &Report, ports: &[Sent]) {
    let flow = &report.conservation;
    assert!(flow.holds() && flow.in_flight == 0, "{case:?}: {flow}");
    assert_eq!(flow.received, u64::from(PACKETS));
    assert_eq!(flow.sent, ports.iter().map(|port| port.len() as u64).sum::<u64>());
}

#[test]
fn a_packet_is_sent_by_every_port_of_its_set_except_its_ingress_port() {
    for workers in [1, 2] {
        for (io, layout) in [("single", "slots"), ("dual", "slots"), ("single", "dense"), ("dual", "dense")] {
            for splits in [false, true] {
                let case = Case { workers, io, layout, splits, ..PLAIN };
                let (report, ports) = run(&case, None);
                check(&case, &report, &ports);
                for (port, packets) in (1..).zip(&ports) {
                    assert!(*packets == expected(port, splits), "{case:?}, port {port}");
                }
                let all: Vec<u32> =
                    (0..PACKETS).flat_map(|n| vec![n; 1 + usize::from(splits && is_split(n))]).collect();
                let packets_of = |sets: &[usize]| {
                    all.iter().filter(|number| set(**number).is_some_and(|set| sets.contains(&set))).count() as u64
                };
                let copies = 2 * packets_of(&[0, 1]) + all.len() as u64 - u64::from(PACKETS);
                assert_eq!(report.conservation.created, copies, "{case:?}");
                assert_eq!(count(&report, "engine_dropped_flood"), packets_of(&[3, 4]), "{case:?}");
            }
        }
    }
}

#[test]
fn files_wait_until_there_are_buffers_for_copies() {
    for (workers, io, layout) in [(1, "single", "slots"), (2, "single", "slots"), (1, "dual", "slots")] {
        for (splits, device) in [(false, "cpu"), (true, "cpu"), (false, FAULTY)] {
            // The reserve must suffice for the fragments of one packet, so that packets wait.
            let buffers = if splits { 300 } else { 70 };
            let case = Case { workers, io, layout, buffers, splits, device };
            let faults = (device == FAULTY).then_some(Faults { delay_polls: 15, fails_each: 0, loss: None });
            let (report, ports) = run(&case, faults);
            check(&case, &report, &ports);
            for (port, packets) in (1..).zip(&ports) {
                assert!(*packets == expected(port, splits), "{case:?}, port {port}");
            }
        }
    }
}

#[test]
fn a_copy_without_a_buffer_is_a_counted_drop() {
    for (layout, io) in [("slots", "single"), ("slots", "dual")] {
        let case = Case { layout, io, buffers: 6, ..PLAIN };
        let (report, ports) = run(&case, None);
        check(&case, &report, &ports);
        let lost = count(&report, "engine_dropped_flood");
        let without_port = (0..PACKETS).filter(|number| matches!(set(*number), Some(3 | 4))).count() as u64;
        assert!(lost > without_port, "{case:?}: {lost}");
        assert_eq!(report.conservation.dropped, lost);
        // The original packet is always sent, in order.
        let originals: Vec<u32> = ports[2].iter().filter(|(_, set)| *set == Some(0)).map(|(n, _)| *n).collect();
        assert_eq!(originals, (0..PACKETS).filter(|number| set(*number) == Some(0)).collect::<Vec<_>>());
        assert!(ports.iter().all(|port| port.is_sorted_by_key(|(number, _)| *number)));
    }
}

#[test]
fn a_port_that_does_not_transmit_gets_no_copy() {
    let folder = Folder::new();
    let text = text(&PLAIN, folder.path());
    let transmits = format!("kind = \"pcap\"\nwrite = {:?}", folder.join("2.pcap"));
    let input = folder.join("in.pcap");
    write_frames(&input);
    let text = text.replace(&transmits, &format!("kind = \"pcap\"\nfile = {input:?}"));
    let mut config = config(&text);
    for function in &mut config.functions {
        function.function = Arc::new(Spreader { echo: Arc::clone(&function.function), splits: false });
    }
    let report = Engine::new(config, &Options::default());
    let report = report.unwrap().run(&Arc::default(), Some(Duration::from_secs(60)), &mut |_| {}).unwrap();
    assert!(report.conservation.holds());
    let packets = (0..PACKETS).filter(|number| matches!(set(*number), Some(0..=2))).count() as u64;
    assert_eq!(count(&report, "engine_dropped_port"), packets);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn order_and_conservation_hold_on_any_device(
        workers in 1usize..3,
        delay_polls in 0u32..20,
        fails_each in prop::sample::select(vec![0u64, 0, 3, 7]),
        loss in prop::option::of((prop::sample::select(vec![Loss::Hangs, Loss::Dies, Loss::Refuses]), 0u64..40)),
        splits: bool,
        dual: bool,
        dense: bool,
        buffers in prop::sample::select(vec![150usize, 300, 8192]),
    ) {
        let faults = Faults { delay_polls, fails_each, loss };
        let (io, layout) = (if dual { "dual" } else { "single" }, if dense { "dense" } else { "slots" });
        let case = Case { workers, io, layout, buffers, splits, device: FAULTY };
        let (report, ports) = run(&case, Some(faults));
        check(&case, &report, &ports);
        for (port, packets) in (1..).zip(&ports) {
            prop_assert!(packets.is_sorted_by_key(|(number, _)| *number));
            let mut expected = expected(port, splits).into_iter();
            prop_assert!(packets.iter().all(|packet| expected.any(|expected| expected == *packet)));
        }
    }
}
