//! Tests of the load programs of synthetic ports. Rates, frame lengths and traffic classes must
//! change over time as configured, for any number of workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use godwit_io::synthetic::{Config, receiver_with_clock};
use godwit_io::{Clock, QueueContext, Receive};
use godwit_packet::{Batch, Region};
use godwit_test_support::{Folder, Random};

use super::common::{Arrived, regions, steering};

const PROGRAM: &str = r#"
[[class]]
name = "voice"
destination = "10.1.0.0/16"

[[class]]
name = "bulk"
destination = "10.2.0.0/16"
destination_port = 443

[[step]]
seconds = 0.1
rate = "100kpps"
size = 60
shares = { voice = 9, bulk = 1 }

[[step]]
seconds = 0.1
rate = "100kpps"
to = "300kpps"
size = 512

[[step]]
seconds = 0.01
rate = "10kpps"
shares = { bulk = 1 }
"#;
/// Numbers of packets in the three steps of the program.
const STEPS: [u64; 3] = [10_000, 20_000, 100];
const MILLISECOND_NS: u64 = 1_000_000;

fn config(folder: &Folder, program: &str, keys: &str) -> Config {
    folder.write("load.toml", program);
    let mut config: Config = toml::from_str(&format!("load = \"load.toml\"\n{keys}")).expect("valid");
    config.resolve(folder.path());
    config
}

/// Receive queues of all workers. They use the same virtual clock.
struct Queues {
    now_ns: Arc<AtomicU64>,
    queues: Vec<(Box<dyn Receive>, Region)>,
}

impl Queues {
    fn new(config: &Config, workers: usize) -> Self {
        let now_ns = Arc::new(AtomicU64::new(0));
        let queue = |(worker, region)| {
            let context = QueueContext { port: 0, worker, steering: steering(workers) };
            let clock = Clock::Virtual(Arc::clone(&now_ns));
            (receiver_with_clock(config, context, clock).expect("valid"), region)
        };
        let queues = regions(workers).into_iter().enumerate().map(queue).collect();
        let mut queues = Self { now_ns, queues };
        // The first call starts the clock of each queue.
        queues.receive(0, &mut Random::new(0));
        queues
    }

    /// Returns the packets that are due at a given time, in the order of their sequence numbers.
    fn receive(&mut self, now_ns: u64, random: &mut Random) -> Vec<Arrived> {
        self.now_ns.store(now_ns, Ordering::Relaxed);
        let mut all = Vec::new();
        for (receiver, region) in &mut self.queues {
            let mut batch = Batch::default();
            loop {
                receiver.receive(region, &mut batch, 1 + random.below(100)).expect("synthetic ports do not fail");
                if batch.is_empty() {
                    break;
                }
                for (descriptor, stamp) in batch.descriptors.iter().zip(&batch.stamps) {
                    let (frame, flow_hash) = (region.frame(descriptor).to_vec(), descriptor.flow_hash);
                    all.push(Arrived { sequence: stamp.sequence, port: 0, time_ns: stamp.time_ns, flow_hash, frame });
                    region.release(descriptor);
                }
                batch.clear();
            }
        }
        all.sort();
        all
    }
}

fn destination(packet: &Arrived) -> [u8; 2] {
    [packet.frame[30], packet.frame[31]]
}

#[test]
fn packets_follow_the_program_for_any_number_of_workers() {
    let folder = Folder::new();
    let config = config(&folder, PROGRAM, "time = \"schedule\"");
    let mut random = Random::new(1);
    let mut expected: Option<Vec<Arrived>> = None;
    for workers in [1, 2, 4] {
        let mut queues = Queues::new(&config, workers);
        let mut all = Vec::new();
        for now_ms in (0..230).step_by(3) {
            all.extend(queues.receive(now_ms * MILLISECOND_NS, &mut random));
            if now_ms == 99 {
                assert!((9_890..=9_900).contains(&all.len()), "{}", all.len());
            }
        }
        all.sort();
        let first = Queues::new(&config, workers).receive(0, &mut random).len();
        assert!(first <= 1 && all.len() as u64 + 1 >= STEPS.iter().sum());
        assert!(queues.queues.iter().all(|(receiver, _)| receiver.sequence_next() == u64::MAX));
        assert!(expected.get_or_insert_with(|| all.clone()) == &all, "{workers} workers");
    }
    let packets = expected.expect("three runs");
    let share = |range: std::ops::Range<u64>, class: [u8; 2]| {
        let within: Vec<&Arrived> = packets.iter().filter(|packet| range.contains(&packet.sequence)).collect();
        within.iter().filter(|packet| destination(packet) == class).count() as f64 / within.len() as f64
    };
    let (second, third) = (STEPS[0], STEPS[0] + STEPS[1]);
    assert!((share(0..second, [10, 1]) - 0.9).abs() < 0.01, "{}", share(0..second, [10, 1]));
    // The second step keeps the class proportions of the first step.
    assert!((share(second..third, [10, 2]) - 0.1).abs() < 0.01);
    assert_eq!(share(third..u64::MAX, [10, 2]), 1.0);
    for packet in &packets {
        let bytes = if packet.sequence < second { 60 } else { 512 };
        assert_eq!(packet.frame.len(), bytes, "packet {}", packet.sequence);
        let parsed = godwit_wire::parse(&packet.frame).five_tuple.expect("UDP");
        assert_eq!(parsed.destination_port == 443, destination(packet) == [10, 2], "packet {}", packet.sequence);
        let expected_ns = match packet.sequence {
            sequence if sequence < second => 10_000 * sequence,
            sequence if sequence >= third => 200 * MILLISECOND_NS + 100_000 * (sequence - third),
            _ => continue,
        };
        assert!(packet.time_ns.abs_diff(expected_ns) <= 1, "packet {}: {}", packet.sequence, packet.time_ns);
    }
    assert!(packets.windows(2).all(|pair| pair[0].time_ns <= pair[1].time_ns + 1));
}

#[test]
fn lengths_and_checksums_are_those_of_each_step() {
    let folder = Folder::new();
    let program = "[[step]]\nseconds = 0.01\nrate = \"50kpps\"\nsize = 90\n[[step]]\nseconds = 0.01\nrate = \"50kpps\"\nsize = \"imix\"";
    for keys in ["", "payload = \"zero\"", "ip = \"v6\"\nsize = 62", "flows = 0", "protocol = \"tcp\""] {
        let config = config(&folder, program, keys);
        let packets = Queues::new(&config, 1).receive(20 * MILLISECOND_NS, &mut Random::new(2));
        assert!(packets.len() >= 999, "{keys}: {}", packets.len());
        for packet in &packets {
            assert!(packet.sequence >= 500 || packet.frame.len() == 90, "{keys}");
            let parsed = godwit_wire::parse(&packet.frame);
            assert!(parsed.five_tuple.is_some(), "{keys}");
            if !keys.contains("v6") {
                assert_eq!(
                    usize::from(u16::from_be_bytes([packet.frame[16], packet.frame[17]])),
                    packet.frame.len() - 14
                );
                assert_eq!(ones_complement(&packet.frame[14..34]), 0xffff, "{keys}: header checksum");
            }
        }
        let mut lengths: Vec<usize> = packets[500..].iter().map(|packet| packet.frame.len()).collect();
        lengths.sort_unstable();
        lengths.dedup();
        assert!(lengths.len() == 3, "{keys}: {lengths:?}");
    }
}

/// Returns the ones' complement sum of 16-bit words.
fn ones_complement(bytes: &[u8]) -> u32 {
    let sum: u32 = bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    (sum & 0xffff) + (sum >> 16)
}

#[test]
fn programs_repeat_and_count_missed_packets() {
    let folder = Folder::new();
    let program =
        "repeat = true\n[[step]]\nseconds = 0.001\nrate = \"1Mpps\"\n[[step]]\nseconds = 0.009\nrate = \"1kpps\"\n";
    let mut queues = Queues::new(&config(&folder, program, ""), 1);
    let packets = queues.receive(100 * MILLISECOND_NS, &mut Random::new(3));
    // Receive ten cycles of 1009 packets each, and the first packet of the next cycle. The call of
    // `new` has already received packet 0.
    assert_eq!(packets.len(), 10 * 1009);
    let mut queues = Queues::new(&config(&folder, program, "queue_packets = 50"), 1);
    let packets = queues.receive(MILLISECOND_NS, &mut Random::new(3));
    let counters = queues.queues[0].0.counters();
    assert_eq!((packets.len() as u64, counters.missed + counters.received_packets), (51, 1001));
}

#[test]
fn bad_files_and_contradictory_keys_are_refused() {
    let folder = Folder::new();
    let refused = |program: &str, keys: &str, part: &str| {
        let config = config(&folder, program, keys);
        let context = QueueContext { port: 0, worker: 0, steering: steering(1) };
        let error = receiver_with_clock(&config, context, Clock::Machine).map(|_| ()).expect_err(part).to_string();
        assert!(error.contains(part), "{error}");
    };
    let step = "[[step]]\nseconds = 1.0\nrate = \"1kpps\"\n";
    refused("[[step", "", "load.toml: line 1");
    refused(step, "rate = \"5Mpps\"", "omit `rate`");
    refused(&format!("{step}size = 20"), "", "the headers alone need 42 bytes");
    refused(&format!("{step}size = 20000"), "", "at most 16128");
    refused(&format!("{step}[[class]]\nname = \"a\""), "flows = 0", "need flows");
    refused(&format!("{step}size = 50"), "probe = true", "packets with probe = true");
    let mut config = config(&folder, step, "");
    config.load = Some(folder.join("absent.toml"));
    let context = QueueContext { port: 0, worker: 0, steering: steering(1) };
    let error = receiver_with_clock(&config, context, Clock::Machine).map(|_| ()).expect_err("absent").to_string();
    assert!(error.contains("absent.toml"), "{error}");
}
