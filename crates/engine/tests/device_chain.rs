//! Device chains: for random chains, traffic and devices, the sent packets equal those of the
//! functions one after the other, in their `ref` implementation.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use godwit_engine::config::Config;
use godwit_engine::{Engine, Options, Report};
use godwit_test_support::cuda::emulation_without_driver;
use godwit_test_support::{ConfigText, ControlClient, Folder, capture, skip};
use proptest::prelude::*;
use serde_json::json;

const PATTERNS: [&str; 2] = ["attack\nevil\n", "e\nabc\n"];

/// Creates a folder with the files of patterns.
fn folder() -> Folder {
    let folder = Folder::new();
    for (number, patterns) in PATTERNS.iter().enumerate() {
        folder.write(&format!("{number}.txt"), patterns);
    }
    folder
}

fn run(text: &str, folder: &Path) -> Report {
    run_while(text, folder, |_| {})
}

/// Runs an engine to its end while `body` uses its control socket.
fn run_while(text: &str, folder: &Path, body: impl FnOnce(&Path) + Send) -> Report {
    // With persistent groups, a CUDA device allows one engine per process.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let config = Config::parse(text, "test.toml", folder).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let control = folder.join("control");
    let engine = Engine::new(config, &Options { control: Some(control.clone()), ..Options::default() }).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let report = std::thread::scope(|scope| {
        scope.spawn(|| body(&control));
        engine.run(&stop, Some(Duration::from_secs(120)), &mut |_| {}).unwrap()
    });
    assert!(report.conservation.holds(), "{}", report.conservation);
    assert_eq!(report.conservation.in_flight, 0);
    assert!(report.lost_devices.is_empty(), "{:?}", report.lost_devices);
    report
}

/// Returns the usable OpenCL and CUDA devices. Reports a skipped test if a kind has no device.
fn devices() -> Vec<String> {
    static DEVICES: OnceLock<Vec<String>> = OnceLock::new();
    DEVICES.get_or_init(find_devices).clone()
}

fn find_devices() -> Vec<String> {
    emulation_without_driver(env!("CARGO_TARGET_TMPDIR"));
    let probes = [("OpenCL", godwit_device::opencl::probe()), ("CUDA", godwit_device::cuda::probe())];
    let usable = probes.into_iter().flat_map(|(kind, probe)| {
        let usable = probe.found.into_iter().filter(|found| found.usable.is_ok()).map(|found| found.capabilities.id);
        let usable: Vec<String> = usable.collect();
        if usable.is_empty() {
            skip(format_args!("device chains: no usable {kind} device"));
        }
        usable
    });
    usable.collect()
}

/// Functions in the order of their ranks: name, keys, and verdicts.
const FUNCTIONS: [(&str, &str, &[&str]); 6] = [
    ("inbound", INBOUND, &["decrypted", "bypass"]),
    ("words", "kind = \"dpi\"\npatterns = \"0.txt\"", &["clean", "match"]),
    ("letters", "kind = \"dpi\"\npatterns = \"1.txt\"", &["clean", "match"]),
    ("swap", "kind = \"template\"", &["forward"]),
    ("route", ROUTE, &["forward", "local", "ttl_exceeded", "not_ipv4"]),
    ("again", "kind = \"dpi\"\npatterns = \"0.txt\"", &["clean", "match"]),
];

const OUTBOUND: &str = r#"
    [[function]]
    name = "outbound"
    kind = "ipsec"
    [[function.sa]]
    name = "out"
    spi = 4097
    direction = "out"
    source = "198.51.100.1"
    destination = "203.0.113.1"
    encryption = "aes-128-cbc"
    encryption_key = "000102030405060708090a0b0c0d0e0f"
    authentication = "hmac-sha1-96"
    authentication_key = "101112131415161718191a1b1c1d1e1f20212223"
    [[function.policy]]
    action = "protect"
    sa = "out"
"#;

const INBOUND: &str = r#"kind = "ipsec"
    [[function.sa]]
    name = "in"
    spi = 4097
    direction = "in"
    source = "198.51.100.1"
    destination = "203.0.113.1"
    encryption = "aes-128-cbc"
    encryption_key = "000102030405060708090a0b0c0d0e0f"
    authentication = "hmac-sha1-96"
    authentication_key = "101112131415161718191a1b1c1d1e1f20212223"
    [[function.policy]]
    action = "bypass"
"#;

const ROUTE: &str = r#"kind = "ipv4"
    [[function.next_hop]]
    name = "there"
    port = "left"
    destination_mac = "02:00:00:00:00:07"
    source_mac = "02:00:00:00:00:08"
    [[function.route]]
    prefix = "10.0.0.0/9"
    next_hop = "there"
    [[function.next_hop]]
    name = "here"
    local = true
    [[function.route]]
    prefix = "10.128.0.0/10"
    next_hop = "here"
"#;

/// Random chain and machine.
#[derive(Clone, Debug)]
struct RandomChain {
    seed: u64,
    /// Whether packets are encrypted before the chain.
    encrypted: bool,
    /// For each function, verdict and class: a number that selects the next stage.
    numbers: Vec<u8>,
    /// Bit mask of the functions that run on the CPU.
    on_cpu: u8,
    classes: bool,
    workers: usize,
    bin_packets: u32,
    layout: &'static str,
}

fn random_chain() -> impl Strategy<Value = RandomChain> {
    let numbers = prop::collection::vec(any::<u8>(), 64);
    let on_cpu = prop_oneof![Just(0_u8), Just(0), any::<u8>()];
    let machine =
        (1_usize..3, prop::sample::select(vec![16_u32, 33, 64]), prop::sample::select(vec!["slots", "dense"]));
    (any::<u64>(), any::<bool>(), numbers, on_cpu, any::<bool>(), machine).prop_map(
        |(seed, encrypted, numbers, on_cpu, classes, (workers, bin_packets, layout))| RandomChain {
            seed: seed >> 2,
            encrypted,
            numbers,
            on_cpu,
            classes,
            workers,
            bin_packets,
            layout,
        },
    )
}

impl RandomChain {
    /// Returns the stage after function `from` that a number selects. Most select a later function.
    fn target(from: usize, number: u8) -> String {
        let later = FUNCTIONS.len() - from - 1;
        match usize::from(number % 8) {
            0 => "left".to_owned(),
            1 => "right".to_owned(),
            2 if number > 128 => "drop".to_owned(),
            _ if later == 0 => "right".to_owned(),
            other => FUNCTIONS[from + 1 + other % later].0.to_owned(),
        }
    }

    fn chain(&self) -> String {
        let first = if self.encrypted { "outbound" } else { "inbound" };
        let mut text = ConfigText::new().edge("in", first);
        if self.encrypted {
            text = text.edge("outbound", "inbound");
        }
        let mut numbers = self.numbers.iter().copied();
        for (index, (name, _, verdicts)) in FUNCTIONS.iter().enumerate() {
            for verdict in *verdicts {
                let number = numbers.next().unwrap_or(0);
                text = text.verdict_edge(name, verdict, &Self::target(index, number));
                if self.classes {
                    let number = numbers.next().unwrap_or(0);
                    text = text.verdict_edge(name, verdict, &Self::target(index, number)).raw("class = \"some\"");
                }
            }
        }
        text.to_string()
    }

    /// Returns the keys of a device with persistent groups. The first two functions on the device
    /// have shares of the groups.
    fn share(&self) -> String {
        let on_device = (0..FUNCTIONS.len()).filter(|index| self.on_cpu >> index & 1 == 0);
        let shares: Vec<String> =
            on_device.take(2).zip([2, 1]).map(|(index, share)| format!("{} = {share}", FUNCTIONS[index].0)).collect();
        format!("mode = \"persistent\"\nshare = {{ {} }}", shares.join(", "))
    }

    /// Returns the whole configuration. `device` is a TOML value.
    fn text(&self, device: &str, device_stanza: &str, implementation: &str) -> String {
        let Self { seed, workers, bin_packets, layout, .. } = self;
        let workers = if self.encrypted { 1 } else { *workers };
        let traffic = format!(
            "packets = 3000\nflows = 200\nsize = {{ min = 60, max = 700 }}\nseed = {seed}\npayload = \"pattern\"\n\
             patterns = \"0.txt\""
        );
        let mut text = ConfigText::new()
            .engine(&format!("workers = {workers}\nin_flight_packets = 2048"))
            .table("arena", &format!("layout = \"{layout}\"\nframe_bytes_max = 1600"))
            .raw(device_stanza)
            .table("packing", &format!("chunk_packets = 300\nbins = 40\nbin_packets = {bin_packets}"))
            .port("in", "synthetic", &traffic)
            .port("left", "synthetic", "digest = true")
            .port("right", "synthetic", "digest = true")
            .raw(CLASS);
        if self.encrypted {
            text = text.raw(OUTBOUND);
        }
        for (index, (name, keys, _)) in FUNCTIONS.iter().enumerate() {
            let device = if self.on_cpu >> index & 1 == 1 { "\"cpu\"" } else { device };
            let implementation =
                if device == "\"cpu\"" { format!("impl = \"{implementation}\"") } else { String::new() };
            let (kind, rest) = keys.split_once('\n').unwrap_or((keys, ""));
            let stanza =
                format!("[[function]]\nname = \"{name}\"\n{kind}\ndevice = {device}\n{implementation}\n{rest}");
            text = text.raw(&stanza);
        }
        text.raw(&self.chain()).to_string()
    }
}

/// Results that must be equal.
type Results = (Vec<(u64, Option<u64>)>, Vec<(String, u64, u64, Vec<(String, u64)>, Vec<(String, u64)>)>);

fn results(report: &Report) -> Results {
    let ports = report.ports.iter().map(|port| (port.sent_packets, port.digest));
    let functions = report.functions.iter().map(|function| {
        let (verdicts, drops) = (function.verdicts.clone(), function.drops.clone());
        (function.name.clone(), function.packets, function.bytes, verdicts, drops)
    });
    (ports.collect(), functions.collect())
}

/// Returns whether a device runs device chains. Otherwise reports a skipped test with the reason.
fn runs_device_chains(id: &str) -> bool {
    let probes = [godwit_device::opencl::probe(), godwit_device::cuda::probe()];
    let mut found = probes.into_iter().flat_map(|probe| probe.found);
    let Some(reason) = found.find(|found| found.capabilities.id == id).and_then(|found| found.chain_lacks) else {
        return true;
    };
    skip(format_args!("device chains: {id}: {reason}"));
    false
}

/// Returns the stanza of a device.
fn stanza(device: &str, keys: &str) -> String {
    ConfigText::new().device(device, &format!("watchdog_ms = 30000\n{keys}")).to_string()
}

/// Returns a chain in which every verdict leads to another function.
fn long_chain(number: u8) -> RandomChain {
    RandomChain {
        seed: 1,
        encrypted: false,
        numbers: vec![number; 64],
        on_cpu: 0,
        classes: true,
        workers: 2,
        bin_packets: 64,
        layout: "dense",
    }
}

/// Without a device chain, a packet is submitted once for each function.
#[test]
fn a_packet_in_a_device_chain_is_submitted_once() {
    let folder = folder();
    for (device, has_chain) in devices().into_iter().flat_map(|device| [(device.clone(), true), (device, false)]) {
        if has_chain && !runs_device_chains(&device) {
            continue;
        }
        let stanza = stanza(&device, &format!("device_chain = {has_chain}"));
        let report = run(&long_chain(6).text(&format!("{device:?}"), &stanza, "native"), folder.path());
        let at_functions: u64 = report.functions.iter().map(|function| function.packets).sum();
        assert!(at_functions > 2 * report.conservation.received, "{:?}", report.functions);
        let counted = |name: &str| report.counters.iter().find(|(known, _)| known == name).map(|(_, count)| *count);
        let submitted = counted(&format!("device_packets{{device=\"{device}\"}}"));
        let expected = if has_chain { report.conservation.received } else { at_functions };
        assert_eq!(submitted, Some(expected), "{device}, device_chain = {has_chain}: {:?}", report.counters);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn a_device_chain_gives_the_results_of_its_functions(chain in random_chain()) {
        let folder = folder();
        let expected = results(&run(&chain.text("\"cpu\"", "", "ref"), folder.path()));
        let shared = chain.share();
        let setups = ["", "device_chain = false", "mode = \"persistent\"", shared.as_str()];
        for (device, keys) in devices().into_iter().flat_map(|device| setups.map(|keys| (device.clone(), keys))) {
            for value in [format!("{device:?}"), format!("[{device:?}, \"cpu\"]")] {
                let report = run(&chain.text(&value, &stanza(&device, keys), "native"), folder.path());
                prop_assert_eq!(results(&report), expected.clone(), "{} {}", value, keys);
            }
        }
    }
}

/// Class of all random chains.
const CLASS: &str = "[[class]]\nname = \"some\"\nsource_ports = \"0-30000\"\n";
/// Traffic that is slow enough for some changes of the chain.
const SLOW_TRAFFIC: &str = "packets = 3000\nrate = \"60kpps\"";

/// Alternates between two chains until the engine ends. Returns the number of changes.
fn alternate(control: &Path, chains: [&str; 2]) -> usize {
    let Some(mut client) = ControlClient::try_connect(control) else { return 0 };
    let mut changes = 0;
    // The engine starts with the first chain.
    for chain in chains.iter().cycle().skip(1) {
        let request = format!("{}\n", json!({ "command": "chain", "text": chain }));
        let reply = if client.try_send(request.as_bytes()) { client.receive() } else { None };
        let Some(reply) = reply else { return changes };
        // A change is refused if the device has not copied back packets that the new chain needs.
        let is_expected = reply["ok"] == true || reply["error"].as_str().unwrap().contains("copy packets of");
        assert!(is_expected, "{reply}\n{chain}");
        changes += usize::from(reply["ok"] == true);
    }
    unreachable!("the iterator is infinite")
}

/// The chain changes while packets flow.
#[test]
fn a_packet_is_submitted_once_with_every_chain() {
    let folder = folder();
    let chains = [6, 7].map(|number| CLASS.to_owned() + &long_chain(number).chain());
    let devices = devices().into_iter().filter(|device| runs_device_chains(device));
    for (device, keys) in devices.flat_map(|device| ["", "mode = \"persistent\""].map(|keys| (device.clone(), keys))) {
        let text = long_chain(6).text(&format!("{device:?}"), &stanza(&device, keys), "native");
        let text = text.replace("packets = 3000", SLOW_TRAFFIC);
        let mut changes = 0;
        let report = run_while(&text, folder.path(), |control| changes = alternate(control, [&chains[0], &chains[1]]));
        let name = format!("device_packets{{device=\"{device}\"}}");
        let submitted = report.counters.iter().find(|(known, _)| *known == name).map(|(_, count)| *count);
        assert!(changes > 0, "the chain never changed");
        assert_eq!(submitted, Some(report.conservation.received), "{keys}, {changes} changes");
    }
}

/// Returns the packets in the captures of both ports: port and frame, by the bytes that no function
/// changes. These are all bytes after the TTL and the checksum of IPv4.
fn captured(folder: &Path) -> HashMap<Vec<u8>, Vec<(&'static str, Vec<u8>)>> {
    let mut packets: HashMap<_, Vec<_>> = HashMap::new();
    for port in ["left", "right"] {
        let path = folder.join(format!("{port}.pcap"));
        for frame in capture::read(&path) {
            packets.entry(frame[26..].to_vec()).or_default().push((port, frame));
        }
        std::fs::remove_file(&path).unwrap();
    }
    packets
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, ..ProptestConfig::default() })]

    /// Each packet equals the result of one of the two chains.
    #[test]
    fn a_device_chain_changes_while_packets_flow(
        chain in random_chain(),
        numbers in prop::collection::vec(any::<u8>(), 64),
        classes in any::<bool>(),
    ) {
        let folder = folder();
        let other = RandomChain { numbers, classes, ..chain.clone() };
        let chains = [&chain, &other].map(|chain| CLASS.to_owned() + &chain.chain());
        let with_captures = |text: String| {
            ["left", "right"].iter().fold(text.replace("packets = 3000", SLOW_TRAFFIC), |text, port| {
                let sink = format!("name = \"{port}\"\nkind = \"synthetic\"\ndigest = true");
                assert!(text.contains(&sink), "{text}");
                text.replace(&sink, &format!("name = \"{port}\"\nkind = \"pcap\"\nwrite = \"{port}.pcap\""))
            })
        };
        let [one, two] = [&chain, &other].map(|chain| {
            run(&with_captures(chain.text("\"cpu\"", "", "ref")), folder.path());
            captured(folder.path())
        });
        let modes = ["", "mode = \"persistent\""];
        for (device, keys) in devices().into_iter().flat_map(|device| modes.map(|keys| (device.clone(), keys))) {
            let text = with_captures(chain.text(&format!("{device:?}"), &stanza(&device, keys), "native"));
            let mut changes = 0;
            let report =
                run_while(&text, folder.path(), |control| changes = alternate(control, [&chains[0], &chains[1]]));
            prop_assert!(changes > 0, "the chain never changed");
            let sent = captured(folder.path());
            prop_assert_eq!(sent.values().map(Vec::len).sum::<usize>() as u64, report.conservation.sent);
            for key in sent.keys().chain(one.keys()).chain(two.keys()) {
                let [sent, one, two] =
                    [&sent, &one, &two].map(|packets| packets.get(key).map_or(&[][..], Vec::as_slice));
                // Equal packets, if any, may have used different chains.
                if one.len() > 1 || two.len() > 1 {
                    continue;
                }
                prop_assert!(
                    sent == one || sent == two,
                    "{} {}: {:x?}\nis neither {:x?}\nnor {:x?}", device, keys, sent, one, two
                );
            }
        }
    }
}
