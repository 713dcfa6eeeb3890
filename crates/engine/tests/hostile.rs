//! Damaged IPsec packets through a whole engine. Only packets that were sent are decapsulated. Each
//! packet is in a counter. No buffer of the arena and no memory of the process is lost.
//!
//! `GODWIT_HOSTILE_PACKETS` is the number of packets for each of two gateways, without and with
//! reassembly. The default is 150,000.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use godwit_engine::config::Config;
use godwit_engine::{Engine, Options, Report};
use godwit_function::ipsec::suite::Authentication;
use godwit_test_cases::ipsec::association::{Association, every};
use godwit_test_cases::ipsec::batch::forms;
use godwit_test_cases::ipsec::hostile::{Link, encapsulate, is_acceptable, links, mutate, sender};
use godwit_test_support::hex::hex;
use godwit_test_support::{Folder, Random, capture};
use nix::fcntl::OFlag;

/// Number of packets between two measurements of the memory. After each round, all packets get new
/// sequence numbers, because the replay windows would drop the old ones.
const ROUND: usize = 15_000;
/// Maximum frame length of the gateway, in bytes.
const FRAME_BYTES_MAX: usize = 2048;
/// Allowed growth of the process, in bytes. The memory that the allocator keeps varies between
/// rounds.
const SLACK_BYTES: usize = 4 << 20;
const LIMIT: Duration = Duration::from_secs(3600);

#[test]
fn damaged_packets_leak_neither_buffers_nor_memory() {
    let packets = match std::env::var("GODWIT_HOSTILE_PACKETS") {
        Ok(count) => count.parse().expect("GODWIT_HOSTILE_PACKETS is a number"),
        Err(_) => 150_000,
    };
    for reassembly in [false, true] {
        let mut associations = every();
        // An SA without authentication decapsulates damaged packets.
        associations.retain(|association| association.suite.authentication != Authentication::None);
        for association in associations.iter_mut().step_by(2).filter(|association| !association.esn) {
            // Without a replay window, a packet with unimportant damage is decapsulated each time.
            association.replay_window = 0;
        }
        let mut random = Random::new(if reassembly { 21 } else { 20 });
        let links = links(associations, &mut random, &[0, 1, 40, 64, 90, 130, 200, 300]);
        gateway(links, packets, reassembly, &mut random);
    }
}

/// Returns a gateway with all inbound SAs. Its ports are captures in named pipes.
fn config(links: &[Link], reassembly: bool, folder: &Path) -> Config {
    let sas: String = links.iter().map(|link| link.association.inbound()).collect();
    let text = format!(
        r#"
        [engine]
        pin = false
        [arena]
        frame_bytes_max = {FRAME_BYTES_MAX}
        [[port]]
        name = "wan"
        kind = "pcap"
        file = "wan.pcap"
        [[port]]
        name = "lan"
        kind = "pcap"
        write = "lan.pcap"
        [[chain]]
        from = "wan"
        to = "gateway"
        [[chain]]
        from = "gateway"
        verdict = "decrypted"
        to = "lan"
        [[chain]]
        from = "gateway"
        to = "drop"
        [[function]]
        name = "gateway"
        kind = "ipsec"
        {}
        {}
        "#,
        if reassembly { "[function.reassembly]\ntimeout_ms = 50\n" } else { "" },
        sas.replace("[[sa]]", "[[function.sa]]"),
    );
    Config::parse(&text, "hostile.toml", folder).unwrap()
}

fn gateway(mut links: Vec<Link>, packets: usize, reassembly: bool, random: &mut Random) {
    let folder = Folder::new();
    let [wan, lan] = ["wan.pcap", "lan.pcap"].map(|name| folder.join(name));
    for pipe in [&wan, &lan] {
        nix::unistd::mkfifo(pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    }
    // The engine first opens the capture to check that it is readable. In between, another reader
    // must hold the pipe open, or its contents are lost. With O_NONBLOCK, the reader does not wait
    // for a writer.
    let held = File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(&wan).unwrap();
    let config = config(&links, reassembly, folder.path());
    // The expected packets stay the same when they are encapsulated again.
    let known = Known::new(&links);
    let (report, passed, resident) = std::thread::scope(|scope| {
        let sending = scope.spawn(|| send(&wan, &mut links, packets, random));
        let checking = scope.spawn(|| check(&lan, &known));
        let engine = Engine::new(config, &Options::default()).unwrap();
        let report = engine.run(&Arc::new(AtomicBool::new(false)), Some(LIMIT), &mut |_| {}).unwrap();
        (report, checking.join().unwrap(), sending.join().unwrap())
    });
    drop(held);
    check_report(&report, packets as u64, passed, reassembly);
    // The process allocates most memory in the first rounds. There may be fewer than three rounds.
    let (early, late) = (resident[resident.len().min(3) - 1], *resident.last().unwrap());
    let kib = |bytes: usize| bytes >> 10;
    println!(
        "{packets} damaged packets, reassembly {reassembly}: {passed} decapsulated; {} and {} KiB resident; {:?}",
        kib(early),
        kib(late),
        report.functions[0].drops,
    );
    assert!(late < early + SLACK_BYTES, "{} KiB grew to {}: {resident:?}", kib(early), kib(late));
}

/// Asserts that each packet is counted, and that all buffers are free.
fn check_report(report: &Report, packets: u64, passed: u64, reassembly: bool) {
    let conservation = &report.conservation;
    assert!(conservation.holds(), "{conservation}");
    // Number of buffers that are not free.
    assert_eq!(conservation.in_flight, 0, "{conservation}");
    assert_eq!((conservation.received, conservation.sent), (packets, passed), "{conservation}");
    let gateway = &report.functions[0];
    let count = |counts: &[(String, u64)], name: &str| {
        counts.iter().find(|(known, _)| known == name).map_or(0, |(_, count)| *count)
    };
    let sum = |counts: &[(String, u64)]| counts.iter().map(|(_, count)| count).sum::<u64>();
    assert_eq!(count(&gateway.verdicts, "decrypted"), passed);
    assert_eq!(sum(&gateway.verdicts) + sum(&gateway.drops) + conservation.merged, packets, "{gateway:#?}");
    for (reason, dropped) in &gateway.drops {
        let name = format!("ipsec_dropped_{reason}{{function=\"gateway\"}}");
        assert_eq!(count(&report.counters, &name), *dropped, "{name}");
    }
    let fragments = if reassembly { "fragment_timeout" } else { "fragment" };
    for reason in ["authentication", "malformed", "truncated", "replayed", "policy_discard", "no_sa", fragments] {
        assert!(count(&gateway.drops, reason) > 0, "no packet was {reason}: {:?}", gateway.drops);
    }
    assert!(passed > packets / 100, "only {passed} of {packets} were decapsulated");
}

/// Writes `packets` damaged packets to a capture. Returns the memory of the process after each
/// round, in bytes.
fn send(to: &Path, links: &mut [Link], packets: usize, random: &mut Random) -> Vec<usize> {
    let associations: Vec<Association> = links.iter().map(|link| link.association.clone()).collect();
    let sender = sender(&associations);
    let form = *forms().last().unwrap();
    let mut capture = BufWriter::new(File::create(to).unwrap());
    capture.write_all(&capture::bytes(&[])).unwrap();
    let (mut resident, mut frame) = (Vec::with_capacity(1 << 16), Vec::with_capacity(2 * FRAME_BYTES_MAX));
    for number in 0..packets {
        if number % ROUND == 0 && number > 0 {
            resident.push(resident_bytes());
            encapsulate(&*sender, form, links);
        }
        let link = &links[random.below(links.len())];
        let index = random.below(link.encapsulated.len());
        frame.clear();
        frame.extend_from_slice(&link.encapsulated[index]);
        let other = &links[random.below(links.len())].encapsulated[index];
        mutate(random, &link.association, &mut frame, other);
        frame.truncate(FRAME_BYTES_MAX);
        let bytes = frame.len() as u32;
        // Packets are one microsecond apart.
        let time = number as u32;
        for word in [time / 1_000_000, time % 1_000_000, bytes, bytes] {
            capture.write_all(&word.to_le_bytes()).unwrap();
        }
        capture.write_all(&frame).unwrap();
    }
    capture.flush().unwrap();
    resident.push(resident_bytes());
    resident
}

/// Returns the resident memory of this process, in bytes (proc_pid_status(5)).
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: usize = line.trim().strip_suffix(" kB").unwrap().parse().unwrap();
    kib << 10
}

/// Inner packets of all SAs.
struct Known {
    links: Vec<Link>,
    /// Index of a link by the addresses of its packets.
    by_addresses: HashMap<Vec<u8>, usize>,
}

impl Known {
    fn new(links: &[Link]) -> Self {
        let by_addresses = links.iter().enumerate().map(|(at, link)| (addresses(&link.plain[0]).to_vec(), at));
        Self { by_addresses: by_addresses.collect(), links: links.to_vec() }
    }

    /// Returns whether a frame contains a packet that was sent.
    fn has(&self, frame: &[u8]) -> bool {
        let contains = |link: &Link| (0..link.plain.len()).any(|index| is_acceptable(link, index, frame));
        let likely = frame.get(14..).and_then(|packet| self.by_addresses.get(addresses(packet)));
        // ESP in transport mode does not authenticate the addresses, so any link is possible.
        likely.is_some_and(|&at| contains(&self.links[at])) || self.links.iter().any(contains)
    }
}

/// Returns both addresses of a packet, or nothing if it is too short.
fn addresses(packet: &[u8]) -> &[u8] {
    let range = if packet.first().is_some_and(|byte| byte >> 4 == 6) { 8..40 } else { 12..20 };
    packet.get(range).unwrap_or_default()
}

/// Checks every packet in a capture, and returns their number.
fn check(from: &Path, known: &Known) -> u64 {
    let mut capture = BufReader::new(File::open(from).unwrap());
    let mut header = [0; 24];
    capture.read_exact(&mut header).unwrap();
    let (mut count, mut frame) = (0, Vec::with_capacity(2 * FRAME_BYTES_MAX));
    let mut record = [0; 16];
    while let Ok(()) = capture.read_exact(&mut record) {
        let bytes = u32::from_le_bytes(*record[8..].first_chunk().unwrap());
        frame.resize(bytes as usize, 0);
        capture.read_exact(&mut frame).unwrap();
        assert!(known.has(&frame), "was never sent: {}", hex(&frame));
        count += 1;
    }
    count
}
