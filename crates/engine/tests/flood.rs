//! Packets that leave by several ports: what leaves where, in which order, and that all are accounted for.

mod faults;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use faults::{Faults, Loss, opener};
use godwit_abi::{Descriptor, Outcome, PORT_FLOOD, VERDICT_DROP};
use godwit_engine::config::Config;
use godwit_engine::{Engine, Options, Report};
use godwit_function::{Arrangement, Contract, Function, HostHalf, Step, Work, echo};
use godwit_packet::{ImageRef, Region};
use proptest::prelude::*;

const FAULTY: &str = "opencl:9";
const PACKETS: u32 = 2000;
/// Where frames have their number; bytes that follow from it stand behind.
const NUMBER: usize = 42;
/// Ports by number: what comes in, and three captures. The last one of a set gets the original.
const SETS: [&[u8]; 5] = [&[0, 1, 2, 3], &[3, 2, 1], &[2], &[0], &[]];
/// In front of what leaves by a flood: this, the port, the set.
const MARK: u8 = 0xfe;
const DRESSED_BYTES: usize = 4;

static CONTRACT: Contract = Contract { headroom_bytes: DRESSED_BYTES as u16, ..echo::CONTRACT };
static SPLITS: Contract = Contract { in_order: true, ..echo::CONTRACT };

/// What becomes of a packet by its number: sets in turn, and one port in between.
fn set(number: u32) -> Option<usize> {
    let kind = number as usize % (SETS.len() + 1);
    (kind < SETS.len()).then_some(kind)
}

/// Whether the first function makes two of a packet.
fn is_split(number: u32) -> bool {
    number % 5 == 1
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[NUMBER..NUMBER + 4].try_into().unwrap())
}

/// UDP of some flow, 60 to 1514 bytes; `echo` has swapped the addresses of what comes out.
fn frame(number: u32) -> Vec<u8> {
    let length = 60 + (number as usize * 797) % 1455;
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    frame.extend(((length - 14) as u16).to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0x40, (number % 50) as u8, 0, 7]);
    frame.extend(((length - 34) as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(number.to_be_bytes());
    frame.extend((frame.len()..length).map(|at| (at as u32 * 7 + number) as u8));
    frame
}

/// A capture of all frames.
fn write_frames(path: &Path) {
    let mut bytes = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0];
    for number in 0..PACKETS {
        let frame = frame(number);
        let length = frame.len() as u32;
        [0, number, length, length].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes.extend(frame);
    }
    std::fs::write(path, bytes).unwrap();
}

/// Spreads packets by their numbers; or, in front of that, makes two of some.
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

    fn host_half(&self, _worker: usize, _workers: usize) -> Option<Box<dyn HostHalf>> {
        Some(if self.splits { Box::new(Splits) } else { Box::new(Spreads) })
    }

    fn flood_ports(&self, set: u32) -> &[u8] {
        SETS[set as usize]
    }

    fn prepare_copy(&self, buffer: &mut [u8], descriptor: &mut Descriptor, port: u8, set: u32) {
        descriptor.head -= DRESSED_BYTES as u16;
        descriptor.length += DRESSED_BYTES as u16;
        let head = usize::from(descriptor.head);
        buffer[head..head + DRESSED_BYTES].copy_from_slice(&[MARK, port, set as u8, 0]);
    }

    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, variant: u8, parameter: u64) -> Outcome {
        self.echo.run_ref(buffer, descriptor, variant, parameter)
    }
}

struct Spreads;

impl HostHalf for Spreads {
    fn prepare(&mut self, _: &Region, _: &[Descriptor], _: &mut Vec<Work>) {
        unreachable!("it does not prepare");
    }

    fn prepares(&self) -> bool {
        false
    }

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

impl HostHalf for Splits {
    fn prepare(&mut self, _: &Region, _: &[Descriptor], _: &mut Vec<Work>) {
        unreachable!("it arranges");
    }

    fn arranges(&self) -> bool {
        true
    }

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

/// What left by a port: numbers, and the set where it was flooded.
type Left = Vec<(u32, Option<usize>)>;

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
    let input = folder.join("in.pcap");
    let to = if *splits { "splits" } else { "spreads" };
    let captures: String = (1..4)
        .map(|port| {
            let write = folder.join(format!("{port}.pcap"));
            format!("[[port]]\nname = \"p{port}\"\nkind = \"pcap\"\nwrite = {write:?}\n")
        })
        .collect();
    let split = if *splits {
        "[[function]]\nname = \"splits\"\nkind = \"echo\"\n[[chain]]\nfrom = \"splits\"\nto = \"spreads\"\n"
    } else {
        ""
    };
    format!(
        r#"
        [engine]
        workers = {workers}
        pin = false
        io = "{io}"
        burst_packets = 32
        in_flight_packets = 256
        [arena]
        layout = "{layout}"
        packets = {buffers}
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
        name = "p0"
        kind = "pcap"
        file = {input:?}
        {captures}
        [[function]]
        name = "spreads"
        kind = "echo"
        device = "{device}"
        {split}
        [[chain]]
        from = "p0"
        to = "{to}"
        [[chain]]
        from = "spreads"
        to = "egress"
        "#
    )
}

/// A run, and what left by each port: number, and set where it was flooded.
fn run(case: &Case, faults: Option<Faults>) -> (Report, Vec<Left>) {
    let folder = tempfile::tempdir().unwrap();
    write_frames(&folder.path().join("in.pcap"));
    let mut config = Config::parse(&text(case, folder.path()), "test.toml", Path::new(".")).unwrap();
    for function in &mut config.functions {
        let (echo, splits) = (Arc::clone(&function.function), function.name == "splits");
        function.function = Arc::new(Spreader { echo, splits });
    }
    let options = Options { opener: faults.map(|faults| opener(FAULTY, faults)), ..Options::default() };
    let engine = Engine::new(config, &options).unwrap();
    let report = engine.run(&Arc::default(), Some(Duration::from_secs(60)), &mut |_| {}).unwrap();
    let ports = (1..4).map(|port| {
        let bytes = std::fs::read(folder.path().join(format!("{port}.pcap"))).unwrap();
        let (mut rest, mut packets) = (&bytes[24..], Vec::new());
        while !rest.is_empty() {
            let length = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
            let (frame, behind) = rest[16..].split_at(length);
            let flooded = frame[0] == MARK;
            let set = flooded.then(|| {
                assert_eq!(usize::from(frame[1]), port, "dressed for another port");
                usize::from(frame[2])
            });
            let frame = &frame[if flooded { DRESSED_BYTES } else { 0 }..];
            let number = number(frame);
            assert_eq!(frame[12..], self::frame(number)[12..]);
            packets.push((number, set));
            rest = behind;
        }
        packets
    });
    (report, ports.collect())
}

fn count(report: &Report, counter: &str) -> u64 {
    report.counters.iter().find(|(name, _)| name == counter).map_or(0, |(_, value)| *value)
}

/// What leaves by a port where nothing is lost.
fn expected(port: u8, splits: bool) -> Left {
    let all = (0..PACKETS).flat_map(|number| {
        let times = if splits && is_split(number) { 2 } else { 1 };
        std::iter::repeat_n(number, times)
    });
    let to_port = |number: &u32| set(*number).map_or(port == 1, |set| SETS[set].contains(&port));
    all.filter(to_port).map(|number| (number, set(number))).collect()
}

/// All that came in, and all that was made of it, is accounted for.
fn check(case: &Case, report: &Report, ports: &[Left]) {
    let flow = &report.conservation;
    assert!(flow.holds() && flow.in_flight == 0, "{case:?}: {flow}");
    assert_eq!(flow.received, u64::from(PACKETS));
    assert_eq!(flow.sent, ports.iter().map(|port| port.len() as u64).sum::<u64>());
}

#[test]
fn a_packet_leaves_by_every_port_but_that_it_came_by() {
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
                let of = |wanted: &[usize]| {
                    all.iter().filter(|number| set(**number).is_some_and(|set| wanted.contains(&set))).count() as u64
                };
                let copies = 2 * of(&[0, 1]) + all.len() as u64 - u64::from(PACKETS);
                assert_eq!(report.conservation.created, copies, "{case:?}");
                assert_eq!(count(&report, "engine_dropped_flood"), of(&[3, 4]), "{case:?}");
            }
        }
    }
}

#[test]
fn copies_without_a_buffer_are_counted() {
    for (layout, io) in [("slots", "single"), ("slots", "dual"), ("dense", "single")] {
        let case = Case { layout, io, buffers: 33, ..PLAIN };
        let (report, ports) = run(&case, None);
        check(&case, &report, &ports);
        let lost = count(&report, "engine_dropped_flood");
        let nowhere = (0..PACKETS).filter(|number| matches!(set(*number), Some(3 | 4))).count() as u64;
        assert!(lost > nowhere, "{case:?}: {lost}");
        assert_eq!(report.conservation.dropped, lost);
        // The original leaves in any case, in its place.
        let originals: Vec<u32> = ports[2].iter().filter(|(_, set)| *set == Some(0)).map(|(n, _)| *n).collect();
        assert_eq!(originals, (0..PACKETS).filter(|number| set(*number) == Some(0)).collect::<Vec<_>>());
        assert!(ports.iter().all(|port| port.is_sorted_by_key(|(number, _)| *number)));
    }
}

#[test]
fn ports_that_do_not_send_get_no_copy() {
    let folder = tempfile::tempdir().unwrap();
    let text = text(&PLAIN, folder.path());
    let sends = format!("kind = \"pcap\"\nwrite = {:?}", folder.path().join("2.pcap"));
    let input = folder.path().join("in.pcap");
    write_frames(&input);
    let text = text.replace(&sends, &format!("kind = \"pcap\"\nfile = {input:?}"));
    let mut config = Config::parse(&text, "test.toml", Path::new(".")).unwrap();
    for function in &mut config.functions {
        function.function = Arc::new(Spreader { echo: Arc::clone(&function.function), splits: false });
    }
    let report = Engine::new(config, &Options::default());
    let report = report.unwrap().run(&Arc::default(), Some(Duration::from_secs(60)), &mut |_| {}).unwrap();
    assert!(report.conservation.holds());
    let with_two = (0..PACKETS).filter(|number| matches!(set(*number), Some(0..=2))).count() as u64;
    assert_eq!(count(&report, "engine_dropped_port"), with_two);
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
            let mut wanted = expected(port, splits).into_iter();
            prop_assert!(packets.iter().all(|packet| wanted.any(|wanted| wanted == *packet)));
        }
    }
}
