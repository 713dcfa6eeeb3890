//! Mutated packets of IPsec through a whole engine: nothing is passed on that nobody sent, every packet is in a counter, and neither
//! buffers of the arena nor memory of the process are lost.
//!
//! `GODWIT_HOSTILE_PACKETS` says how many, for each of two gateways (without and with reassembly); 150 000 without it.

#[path = "../../function/tests/ipsec_common"]
mod ipsec_common {
    #![allow(dead_code, reason = "the function's own tests use more of it")]
    pub(crate) mod association;
    pub(crate) mod batch;
    pub(crate) mod bytes;
    pub(crate) mod hostile;

    pub(crate) use batch::*;
    pub(crate) use bytes::*;
}

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
use ipsec_common::association::{Association, every};
use ipsec_common::hostile::{Link, encapsulate, is_acceptable, links, mutate, sender};
use ipsec_common::{Random, forms, hex};
use nix::fcntl::OFlag;

/// Packets between two looks at the memory. All SAs go on to new sequence numbers then, or buffers that have seen
/// everything would say "replayed" and no more.
const ROUND: usize = 15_000;
/// Longest frame of the gateway.
const FRAME_BYTES_MAX: usize = 2048;
/// Memory of the process may move by so much: what an allocator keeps differs from round to round.
const SLACK_BYTES: usize = 4 << 20;
const LIMIT: Duration = Duration::from_secs(3600);

#[test]
fn mutated_packets_leave_nothing_behind() {
    let packets = match std::env::var("GODWIT_HOSTILE_PACKETS") {
        Ok(count) => count.parse().expect("GODWIT_HOSTILE_PACKETS is a number"),
        Err(_) => 150_000,
    };
    for reassembly in [false, true] {
        let mut associations = every();
        // Of SAs that do not authenticate, anything may come out.
        associations.retain(|association| association.suite.authentication != Authentication::None);
        for association in associations.iter_mut().step_by(2).filter(|association| !association.esn) {
            // Takes packets again, so that what is not changed where it matters opens every time.
            association.replay_window = 0;
        }
        let mut random = Random(if reassembly { 21 } else { 20 });
        let links = links(associations, &mut random, &[0, 1, 40, 64, 90, 130, 200, 300]);
        gateway(links, packets, reassembly, &mut random);
    }
}

/// The receiving end of all SAs, with captures that are pipes as its ports.
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
    let folder = tempfile::tempdir().unwrap();
    let [wan, lan] = ["wan.pcap", "lan.pcap"].map(|name| folder.path().join(name));
    for pipe in [&wan, &lan] {
        nix::unistd::mkfifo(pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    }
    // The engine looks whether it can read the capture before it reads it: meanwhile somebody must hold the pipe's end, or
    // what was written is lost. Opened so, it does not wait for a writer.
    let held = File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(&wan).unwrap();
    let config = config(&links, reassembly, folder.path());
    // What may come out does not change while packets are sealed again.
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
    // In the first round everything gets its memory; there may be but few.
    let (early, late) = (resident[resident.len().min(3) - 1], *resident.last().unwrap());
    let kib = |bytes: usize| bytes >> 10;
    println!(
        "{packets} mutated packets, reassembly {reassembly}: {passed} opened; {} and {} KiB resident; {:?}",
        kib(early),
        kib(late),
        report.functions[0].drops,
    );
    assert!(late < early + SLACK_BYTES, "{} KiB became {}: {resident:?}", kib(early), kib(late));
}

/// Every packet is where a counter says, and none is left.
fn check_report(report: &Report, packets: u64, passed: u64, reassembly: bool) {
    let conservation = &report.conservation;
    assert!(conservation.holds(), "{conservation}");
    // The number of buffers that are not free.
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
    assert!(passed > packets / 100, "only {passed} of {packets} were opened");
}

/// Writes so many mutated packets as a capture; returns the memory of the process, bytes, after each round.
fn send(to: &Path, links: &mut [Link], packets: usize, random: &mut Random) -> Vec<usize> {
    let associations: Vec<Association> = links.iter().map(|link| link.association.clone()).collect();
    let sender = sender(&associations);
    let form = *forms().last().unwrap();
    let mut capture = BufWriter::new(File::create(to).unwrap());
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65535, 1] {
        capture.write_all(&word.to_le_bytes()).unwrap();
    }
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
        // A microsecond apart.
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

/// What this process has in memory (proc_pid_status(5)).
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: usize = line.trim().strip_suffix(" kB").unwrap().parse().unwrap();
    kib << 10
}

/// What went into SAs.
struct Known {
    links: Vec<Link>,
    /// By the addresses that packets show.
    by_addresses: HashMap<Vec<u8>, usize>,
}

impl Known {
    fn new(links: &[Link]) -> Self {
        let by_addresses = links.iter().enumerate().map(|(at, link)| (addresses(&link.plain[0]).to_vec(), at));
        Self { by_addresses: by_addresses.collect(), links: links.to_vec() }
    }

    /// Whether somebody sent what this frame carries.
    fn has(&self, frame: &[u8]) -> bool {
        let is_of = |link: &Link| (0..link.plain.len()).any(|index| is_acceptable(link, index, frame));
        let likely = frame.get(14..).and_then(|packet| self.by_addresses.get(addresses(packet)));
        // ESP in transport mode does not authenticate the addresses.
        likely.is_some_and(|&at| is_of(&self.links[at])) || self.links.iter().any(is_of)
    }
}

/// Both addresses, where the packet is long enough for them.
fn addresses(packet: &[u8]) -> &[u8] {
    let range = if packet.first().is_some_and(|byte| byte >> 4 == 6) { 8..40 } else { 12..20 };
    packet.get(range).unwrap_or_default()
}

/// Looks at every packet that comes out; returns how many there were.
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
        assert!(known.has(&frame), "nobody sent {}", hex(&frame));
        count += 1;
    }
    count
}
