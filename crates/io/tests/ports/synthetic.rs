//! Tests of synthetic ports. Their packets must be valid, have the configured distribution, and be
//! the same for any number of workers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use godwit_io::synthetic::{Config, Digest, Generator, receiver, receiver_with_clock, transmitter};
use godwit_io::{Clock, QueueContext, Receive, Received};
use godwit_packet::{Batch, Descriptor, Outgoing, SteerKey, Steering};
use godwit_test_support::{Folder, Random};
use proptest::prelude::*;

use super::common::{Arrived, departure, drain, region, regions, steering, tool};

fn config(text: &str) -> Config {
    toml::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn context(worker: usize, workers: usize) -> QueueContext {
    QueueContext { port: 5, worker, steering: steering(workers) }
}

/// Returns the packets of all workers in the order of their sequence numbers.
fn make(config: &Config, workers: usize, random: &mut Random) -> Vec<Arrived> {
    let mut all = Vec::new();
    for (worker, mut region) in regions(workers).into_iter().enumerate() {
        let mut receiver = receiver(config, context(worker, workers)).unwrap();
        let (packets, error) = drain(receiver.as_mut(), &mut region, 1 + random.below(100));
        assert!(error.is_none());
        assert_eq!(receiver.counters().received_packets, packets.len() as u64);
        all.extend(packets);
    }
    all.sort();
    all
}

/// Returns the fraction of the packets for which `condition` holds.
fn share(packets: &[Arrived], condition: impl Fn(&Arrived) -> bool) -> f64 {
    packets.iter().filter(|packet| condition(packet)).count() as f64 / packets.len() as f64
}

const KINDS: [&str; 8] = [
    "",
    "size = \"imix\"\nflows = 0",
    "size = { min = 42, max = 200 }\npayload = \"zero\"",
    "ip = \"v6\"\nsize = { min = 62, max = 1500 }",
    "protocol = \"tcp\"\nsize = \"imix-pipsea\"\nflows = 7",
    "ip = \"v6\"\nprotocol = \"tcp\"\nsize = 74\nflows = 0",
    "size = { min = 42, max = 51 }",
    "ip = \"v6\"\nsize = \"imix-pipsea\"",
];

#[test]
fn the_packets_do_not_depend_on_the_number_of_workers() {
    let mut random = Random::new(3);
    for kind in KINDS {
        let config = config(&format!("packets = 2000\ntime = \"schedule\"\n{kind}"));
        let expected = make(&config, 1, &mut random);
        assert_eq!(expected.iter().map(|packet| packet.sequence).collect::<Vec<_>>(), (0..2000).collect::<Vec<_>>());
        for workers in 2..=4 {
            assert!(make(&config, workers, &mut random) == expected, "{kind:?} with {workers} workers");
        }
        let other = make(&Config { seed: 2, ..config.clone() }, 1, &mut random);
        assert!(other != expected, "another seed gives the same packets");
    }
}

/// Selects the worker by the last byte of the destination address. Some workers get no packets.
struct ByDestination;

impl SteerKey for ByDestination {
    fn steer_key(&self, _frame: &[u8], parsed: &godwit_wire::Parsed, flow_hash: u32) -> u32 {
        match &parsed.five_tuple {
            Some(tuple) => u32::from(tuple.destination.as_bytes().last().unwrap() & 7),
            None => flow_hash,
        }
    }
}

/// Checks that each packet arrives at the worker that steering selects, with and without a steering
/// key. The packets of all workers together must be the same for any number of workers.
#[test]
fn each_worker_receives_the_packets_that_steering_assigns_to_it() {
    for kind in ["size = \"imix\"", "flows = 3", "flows = 20000", "flows = 0"] {
        let config = config(&format!("packets = 3000\ntime = \"schedule\"\nrate = \"1Gbps\"\n{kind}"));
        for key in [None, Some(Arc::new(ByDestination) as Arc<dyn SteerKey>)] {
            let mut expected: Option<Vec<Arrived>> = None;
            for workers in [1, 2, 16] {
                let steering = Arc::new(Steering::new(workers, key.clone()));
                let mut all = Vec::new();
                for worker in 0..workers {
                    let context = QueueContext { port: 5, worker, steering: Arc::clone(&steering) };
                    let now_ns = Arc::new(AtomicU64::new(0));
                    let clock = Clock::Virtual(Arc::clone(&now_ns));
                    let mut receiver = receiver_with_clock(&config, context, clock).unwrap();
                    // The first call starts the clock.
                    let (mut region, mut batch) = (region(), Batch::default());
                    receiver.receive(&mut region, &mut batch, 0).unwrap();
                    now_ns.store(u64::MAX / 2, Ordering::Relaxed);
                    let (packets, error) = drain(receiver.as_mut(), &mut region, 64);
                    assert!(error.is_none());
                    for packet in &packets {
                        let parsed = godwit_wire::parse(&packet.frame);
                        assert_eq!(steering.worker(&packet.frame, &parsed, packet.flow_hash), worker);
                    }
                    all.extend(packets);
                }
                all.sort();
                assert!(all.iter().map(|packet| packet.sequence).eq(0..3000), "{kind}, {workers} workers");
                assert!(expected.get_or_insert_with(|| all.clone()) == &all, "{kind}, {workers} workers");
            }
        }
    }
}

/// Checks that all flows are equally likely, even if the numbers of flows in the hash buckets
/// differ much.
#[test]
fn flows_are_equally_likely() {
    for flows in [5usize, 1000] {
        let packets =
            make(&config(&format!("packets = 200000\npayload = \"zero\"\nflows = {flows}")), 1, &mut Random::new(9));
        let mut counts = HashMap::new();
        for packet in &packets {
            *counts.entry(packet.frame[26..38].to_vec()).or_insert(0usize) += 1;
        }
        let expected = 200_000.0 / flows as f64;
        let chi: f64 = counts.values().map(|&count| (count as f64 - expected).powi(2) / expected).sum();
        // With 999 degrees of freedom, chi-square exceeds 1172 with a probability of 1 in 10,000.
        // The shares of the hash buckets are exact, which only makes the value smaller.
        assert!(counts.len() == flows && chi < 1172.0, "{flows} flows: chi-square {chi}");
    }
}

/// Checks that the parser of `godwit-wire` and tshark accept all lengths, checksums and ports.
#[test]
fn packets_are_valid() {
    let folder = Folder::new();
    for (number, kind) in KINDS.iter().enumerate() {
        let config = config(&format!("packets = 500\ntime = \"schedule\"\n{kind}"));
        let packets = make(&config, 1, &mut Random::new(4));
        let steering = steering(1);
        for packet in &packets {
            let parsed = godwit_wire::parse(&packet.frame);
            assert_eq!(parsed.error, None);
            assert_eq!(parsed.l3_end, packet.frame.len());
            let tuple = parsed.five_tuple.unwrap();
            assert!(tuple.source_port >= 1024 && tuple.destination_port >= 1024);
            let first = if parsed.ip_version == 4 { 10 } else { 0xfd };
            assert!(tuple.source.as_bytes()[0] == first && tuple.destination.as_bytes()[0] == first);
            assert_eq!(packet.flow_hash, steering.flow_hash(&parsed));
            assert_eq!(packet.port, 5);
            let segment = &packet.frame[parsed.l4_offset..parsed.l3_end];
            let length_bytes = segment.len() as u32;
            let mut checksum =
                godwit_wire::Checksum::pseudo_header(tuple.source, tuple.destination, tuple.protocol, length_bytes);
            checksum.add(segment);
            assert_eq!(checksum.finish(), 0, "{kind:?}");
            if parsed.ip_version == 4 {
                assert_eq!(godwit_wire::checksum::checksum(&packet.frame[14..34]), 0);
            }
        }
        let path = folder.join(format!("{number}.pcap"));
        let sink = godwit_io::pcap::Sink::create(&path, godwit_io::pcap::Format::Pcap, &["x".into()], 1).unwrap();
        let mut queue = sink.transmitter(0, 0);
        let mut region = region();
        for packet in &packets {
            let departure = departure(&mut region, packet);
            queue.transmit(&mut Outgoing::from(&mut region), &[departure]).unwrap();
        }
        sink.finish().unwrap();
        let path = path.to_str().unwrap();
        let bad =
            "ip.checksum.status == Bad || udp.checksum.status == Bad || tcp.checksum.status == Bad || _ws.malformed";
        // Tshark must verify checksums. It must not interpret payloads, and it must not assemble
        // segments with equal sequence numbers into a stream.
        let options = [
            "ip.check_checksum:TRUE",
            "udp.check_checksum:TRUE",
            "tcp.check_checksum:TRUE",
            "tcp.analyze_sequence_numbers:FALSE",
            "tcp.desegment_tcp_streams:FALSE",
        ];
        let options = options.iter().flat_map(|option| ["-o", option]);
        let decode = ["-d", "udp.port==0-65535,data", "-d", "tcp.port==0-65535,data"];
        let arguments: Vec<&str> = ["-r", path, "-Y", bad].into_iter().chain(options).chain(decode).collect();
        let Some(rows) = tool("tshark", &arguments) else { return };
        assert_eq!(rows, "", "{kind:?}");
    }
}

/// Checks the headers with `payload = "stale"`. They must equal the headers with
/// `payload = "zero"`, except that the UDP checksum is 0. The bytes after the headers must be the
/// previous bytes of the buffer.
#[test]
fn a_stale_payload_is_not_written() {
    const HEADERS_BYTES: usize = 42;
    for size in ["60", "{ min = 60, max = 300 }"] {
        let text = |payload: &str| {
            config(&format!("packets = 300\ntime = \"schedule\"\nsize = {size}\npayload = \"{payload}\""))
        };
        let mut region = region();
        for offset in 0..region.extent().1 / 64 {
            let buffer = Descriptor { buffer: offset as u32, room: 1, ..Descriptor::default() };
            region.buffer_mut(&buffer).fill(0xa5);
        }
        let mut receiver = receiver(&text("stale"), context(0, 1)).unwrap();
        let (stale, error) = drain(receiver.as_mut(), &mut region, 7);
        assert!(error.is_none());
        let zero = make(&text("zero"), 1, &mut Random::new(5));
        assert_eq!(stale.len(), zero.len());
        for (stale, zero) in stale.iter().zip(&zero) {
            let mut headers = zero.frame[..HEADERS_BYTES].to_vec();
            headers[40..].fill(0);
            assert_eq!(stale.frame[..HEADERS_BYTES], headers);
            assert_eq!(stale.frame.len(), zero.frame.len());
            // The generator may write up to 6 bytes more than the headers.
            assert!(stale.frame[HEADERS_BYTES + 6..].iter().all(|&byte| byte == 0xa5), "{:?}", stale.frame);
            assert_eq!(stale.flow_hash, zero.flow_hash);
        }
    }
}

#[test]
fn sizes_are_distributed_as_configured() {
    let sizes = |text: &str| {
        let config = config(&format!("packets = 40000\npayload = \"zero\"\n{text}"));
        let mut counts = HashMap::new();
        for packet in make(&config, 1, &mut Random::new(5)) {
            *counts.entry(packet.frame.len()).or_insert(0usize) += 1;
        }
        counts
    };
    for (text, expected) in [
        ("size = 60", vec![(60, 1.0)]),
        ("size = \"imix\"", vec![(60, 7.0 / 12.0), (566, 4.0 / 12.0), (1514, 1.0 / 12.0)]),
        ("size = \"imix-pipsea\"", vec![(56, 0.6122), (532, 0.2347), (1356, 0.1531)]),
        ("size = { min = 60, max = 79 }", (60..80).map(|bytes| (bytes, 0.05)).collect()),
    ] {
        let counts = sizes(text);
        assert_eq!(counts.len(), expected.len(), "{text}: {counts:?}");
        // With 19 degrees of freedom, chi-square exceeds 50.8 with a probability of 1 in 10,000.
        // The seed is fixed.
        let chi: f64 = expected
            .iter()
            .map(|&(bytes, share)| (counts[&bytes] as f64 - 40000.0 * share).powi(2) / (40000.0 * share))
            .sum();
        assert!(chi < 50.0, "{text}: chi-square {chi}: {counts:?}");
    }
}

#[test]
fn flows_addresses_and_ports_are_as_configured() {
    let tuples = |text: &str| -> Vec<_> {
        let packets = make(&config(&format!("packets = 20000\n{text}")), 1, &mut Random::new(6));
        packets.iter().map(|packet| godwit_wire::parse(&packet.frame).five_tuple.unwrap()).collect()
    };
    let distinct = |text: &str| tuples(text).into_iter().collect::<HashSet<_>>().len();
    assert_eq!(distinct("flows = 1"), 1);
    assert_eq!(distinct("flows = 1000"), 1000);
    assert!(distinct("flows = 0") > 19_990);
    // All 16 flows that are possible must occur.
    assert_eq!(
        distinct(
            "flows = 16\nsource = \"192.0.2.0/30\"\ndestination = \"198.51.100.0/30\"\nsource_port = 1\ndestination_port = 2"
        ),
        16
    );
    let any_address =
        tuples("flows = 0\ndestination = \"0.0.0.0/0\"\nsource_port = { min = 5, max = 6 }\ndestination_port = 53");
    let firsts: HashSet<_> = any_address.iter().map(|tuple| tuple.destination.as_bytes()[0]).collect();
    assert_eq!(firsts.len(), 256);
    assert!(any_address.iter().all(|tuple| matches!(tuple.source_port, 5 | 6) && tuple.destination_port == 53));
    let listed = tuples("flows = 0\nip = \"v6\"\nsize = 62\ndestinations = [\"2001:db8::1\", \"2001:db8::2\"]");
    assert_eq!(listed.iter().map(|tuple| tuple.destination).collect::<HashSet<_>>().len(), 2);
}

#[test]
fn the_first_four_payload_bytes_vary() {
    for kind in ["", "flows = 1", "payload = \"random\"\nsize = 46"] {
        let packets = make(&config(&format!("packets = 5000\n{kind}")), 1, &mut Random::new(6));
        let numbers: HashSet<_> = packets.iter().map(|packet| packet.frame[42..46].to_vec()).collect();
        assert!(numbers.len() > 4990, "{}", numbers.len());
        for remainder in 0..4 {
            let equal = share(&packets, |packet| packet.frame[42] % 4 == remainder);
            assert!((equal - 0.25).abs() < 0.03, "{equal}");
        }
    }
}

#[test]
fn patterns_occur_in_the_configured_share() {
    let folder = Folder::new();
    let path = folder.write("patterns.txt", b"# comment\nattack-one\n|00 ff 00 ff|tail\nsix-by\n");
    let needles: [&[u8]; 3] = [b"attack-one", b"\x00\xff\x00\xfftail", b"six-by"];
    let holds = |packet: &Arrived, needle: &[u8]| packet.frame[42..].windows(needle.len()).any(|part| part == needle);
    for ratio in [0.0, 0.3, 1.0] {
        let text =
            format!("packets = 20000\nsize = 200\npayload = \"pattern\"\npatterns = {path:?}\nmatch_ratio = {ratio:?}");
        let packets = make(&config(&text), 1, &mut Random::new(8));
        let found = share(&packets, |packet| needles.iter().any(|needle| holds(packet, needle)));
        assert!((found - ratio).abs() < 0.015, "{found} instead of {ratio}");
        for needle in needles {
            let found = share(&packets, |packet| holds(packet, needle));
            assert!((found - ratio / 3.0).abs() < 0.015, "{found} instead of a third of {ratio}");
        }
        // Patterns must occur at any offset, including the first and the last offset.
        let first = packets.iter().any(|packet| packet.frame[42..].starts_with(needles[0]));
        let last = packets.iter().any(|packet| packet.frame.ends_with(needles[0]));
        assert_eq!((first, last), (ratio > 0.0, ratio > 0.0));
    }
    // Only one of the patterns fits into the payload.
    let text = format!("packets = 1000\nsize = 48\npayload = \"pattern\"\npatterns = {path:?}\nmatch_ratio = 1.0");
    assert_eq!(share(&make(&config(&text), 1, &mut Random::new(8)), |packet| packet.frame.ends_with(b"six-by")), 1.0);
}

/// A receive queue whose clock is set by the test.
struct Paced {
    receiver: Box<dyn Receive>,
    now_ns: Arc<AtomicU64>,
    region: godwit_packet::Region,
}

impl Paced {
    const START_NS: u64 = 1_000_000;

    fn new(text: &str, worker: usize, workers: usize) -> Self {
        let now_ns = Arc::new(AtomicU64::new(Self::START_NS));
        let clock = Clock::Virtual(Arc::clone(&now_ns));
        let receiver = receiver_with_clock(&config(text), context(worker, workers), clock).unwrap();
        Self { receiver, now_ns, region: regions(workers).remove(worker) }
    }

    /// Receives all packets that are due until `ns` nanoseconds after the start. Returns their
    /// arrival times.
    fn receive_until(&mut self, ns: u64) -> Vec<u64> {
        self.now_ns.store(Self::START_NS + ns, Ordering::Relaxed);
        let (mut times, mut batch) = (Vec::new(), Batch::default());
        loop {
            let before = self.receiver.sequence_next();
            assert_eq!(self.receiver.receive(&mut self.region, &mut batch, 64).unwrap(), Received::Open);
            times.extend(batch.stamps.iter().map(|stamp| stamp.time_ns - Self::START_NS));
            batch.descriptors.iter().for_each(|descriptor| self.region.release(descriptor));
            batch.clear();
            if self.receiver.sequence_next() == before {
                return times;
            }
        }
    }
}

#[test]
fn packets_arrive_at_the_configured_rate() {
    let mut paced = Paced::new("rate = \"1Mpps\"", 0, 1);
    assert_eq!(paced.receive_until(0), [0]);
    assert!(paced.receive_until(999).is_empty());
    assert_eq!(paced.receive_until(5_000), [1000, 2000, 3000, 4000, 5000]);
    assert_eq!(paced.receive_until(1_000_000).len(), 995);
    // Each packet has 480 bits, and the rate is 480 Mbit/s.
    let mut paced = Paced::new("rate = \"480Mbps\"\nsize = 60", 0, 1);
    assert_eq!(paced.receive_until(0), [0]);
    assert_eq!(paced.receive_until(3_000), [1000, 2000, 3000]);
    let mut paced = Paced::new("rate = \"1Gbps\"\nsize = \"imix\"", 0, 1);
    paced.receive_until(0);
    paced.receive_until(100_000_000);
    let bits = 8 * paced.receiver.counters().received_bytes;
    assert!((99_980_000..=100_020_000).contains(&bits), "{bits} bits in 0.1 s");
    // If no rate is set, all packets of a batch have the time at which the batch was created.
    let mut paced = Paced::new("", 0, 1);
    paced.now_ns.store(Paced::START_NS + 77, Ordering::Relaxed);
    let mut batch = Batch::default();
    paced.receiver.receive(&mut paced.region, &mut batch, 9).unwrap();
    assert!(batch.len() == 9 && batch.stamps.iter().all(|stamp| stamp.time_ns == Paced::START_NS + 77));
}

#[test]
fn workers_share_the_rate() {
    let count = |worker| {
        let mut paced = Paced::new("rate = \"1Mpps\"", worker, 3);
        paced.receive_until(0).len() + paced.receive_until(10_000_000).len()
    };
    let counts: Vec<_> = (0..3).map(count).collect();
    assert_eq!(counts.iter().sum::<usize>(), 10_001, "{counts:?}");
    assert!(counts.iter().all(|&count| count > 2500), "{counts:?}");
}

#[test]
fn a_full_queue_drops_the_oldest_packets() {
    let mut paced = Paced::new("rate = \"1Mpps\"\nqueue_packets = 100", 0, 1);
    paced.receive_until(0);
    let times = paced.receive_until(1_000_000);
    assert_eq!((times.len(), times[0]), (101, 900_000));
    let counters = paced.receiver.counters();
    assert_eq!((counters.missed, counters.received_packets), (899, 102));
    assert_eq!(counters.missed + counters.received_packets, paced.receiver.sequence_next());
}

#[test]
fn a_full_region_delays_the_generator() {
    let mut region = region();
    let mut generator = Generator::new(&Config::default(), steering(1), 0, 0).unwrap();
    let mut batch = Batch::default();
    assert_eq!(generator.fill(&mut region, &mut batch, 1000), 512);
    assert_eq!(generator.fill(&mut region, &mut batch, 1000), 0);
    batch.descriptors.iter().for_each(|descriptor| region.release(descriptor));
    assert_eq!(generator.fill(&mut region, &mut batch, 10), 10);
    assert!(batch.stamps.iter().map(|stamp| stamp.sequence).eq(0..522));
}

#[test]
fn a_frame_that_exceeds_the_buffer_is_counted() {
    let config = config("size = { min = 1510, max = 1525 }\npackets = 1600\npayload = \"zero\"");
    let mut receiver = receiver(&config, context(0, 1)).unwrap();
    let (packets, _) = drain(receiver.as_mut(), &mut region(), 32);
    let counters = receiver.counters();
    assert_eq!(counters.oversized + packets.len() as u64, 1600);
    assert!((600..800).contains(&counters.oversized), "{}", counters.oversized);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    /// The digest must depend only on the packets that were sent.
    #[test]
    fn the_digest_does_not_depend_on_order_or_workers(workers in 1usize..5, seed in 1u64..) {
        let config = config("packets = 500\ndigest = true\nsize = \"imix\"\ntime = \"schedule\"");
        let mut random = Random::new(seed);
        let packets = make(&config, 1, &mut random);
        let digest = |packets: &[Arrived], workers: usize, random: &mut Random| {
            let digest = Digest::new();
            let mut queues: Vec<_> = (0..workers).map(|_| transmitter(&config, &digest)).collect();
            let mut regions = regions(workers);
            for packet in packets {
                let worker = random.below(workers);
                let departure = departure(&mut regions[worker], packet);
                assert_eq!(queues[worker].transmit(&mut Outgoing::from(&mut regions[worker]), &[departure]).unwrap(), 1);
            }
            assert!(regions.iter().all(|region| region.allocated() == 0));
            assert_eq!(queues.iter().map(|queue| queue.counters().sent_packets).sum::<u64>(), packets.len() as u64);
            digest.value()
        };
        let expected = digest(&packets, 1, &mut random);
        let mut mixed = packets.clone();
        mixed.reverse();
        prop_assert_eq!(digest(&mixed, workers, &mut random), expected);
        mixed[7].frame[20] ^= 1;
        prop_assert_ne!(digest(&mixed, workers, &mut random), expected);
        prop_assert_ne!(digest(&packets[1..], 1, &mut random), expected);
    }
}

#[test]
fn an_invalid_configuration_is_refused_with_its_key() {
    for (text, part) in [
        ("size = 41", "size = 41: "),
        ("size = 61\nip = \"v6\"", "62 bytes"),
        ("size = 16129", "16128"),
        ("flows = 100000000", "flows = 100000000"),
        (
            "flows = 5\nsource = \"10.0.0.1/32\"\ndestination = \"10.0.0.2\"\nsource_port = 1\ndestination_port = 2",
            "flows = 5: ",
        ),
        ("match_ratio = 1.5", "match_ratio = 1.5"),
        ("payload = \"pattern\"", "patterns = nothing"),
        ("patterns = \"x\"", "patterns = x"),
        ("payload = \"pattern\"\npatterns = \"/no/such\"", "/no/such"),
        ("payload = \"stale\"\nprotocol = \"tcp\"", "UDP over IPv4"),
        ("payload = \"stale\"\nip = \"v6\"\nsize = 70", "UDP over IPv4"),
        ("payload = \"stale\"\ndigest = true", "digest = true"),
        ("payload = \"stale\"\nprobe = true", "probe = true"),
        ("source = \"::/0\"", "source = ::"),
        ("destinations = [\"::1\"]", "destinations = ::1"),
    ] {
        let error = Generator::new(&config(text), steering(1), 0, 0).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    for (text, part) in [
        ("sise = 60", "sise"),
        ("rate = \"fast\"", "10Mpps"),
        ("source = \"10.0.0.0/40\"", "10.0.0.0/40"),
        ("source_mac = \"2:0\"", "2:0"),
        ("ip = \"v5\"", "v5"),
    ] {
        let error = toml::from_str::<Config>(text).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let folder = Folder::new();
    let path = folder.write("patterns.txt", b"good\nbad|4\n");
    let error = Generator::new(&config(&format!("payload = \"pattern\"\npatterns = {path:?}")), steering(1), 0, 0);
    assert!(error.unwrap_err().to_string().contains("patterns.txt:2: "));
}
