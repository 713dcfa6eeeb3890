//! Chains that a device follows: whatever the chain, the traffic and the device, what comes out is what the functions make
//! of it one after the other, by `ref`.

#[path = "../../device/tests/emulated/mod.rs"]
mod emulated;

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use godwit_engine::config::Config;
use godwit_engine::{Engine, Options, Report};
use proptest::prelude::*;
use serde_json::{Value, json};

const PATTERNS: [&str; 2] = ["attack\nevil\n", "e\nabc\n"];

fn run(text: &str, folder: &Path) -> Report {
    run_while(text, folder, |_| {})
}

/// Runs an engine to its end while `talk` speaks to it at this socket.
fn run_while(text: &str, folder: &Path, talk: impl FnOnce(&Path) + Send) -> Report {
    // A CUDA device takes no second engine of a process beside persistent groups.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let config = Config::parse(text, "test.toml", folder).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let control = folder.join("control");
    let engine = Engine::new(config, &Options { control: Some(control.clone()), ..Options::default() }).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let report = std::thread::scope(|scope| {
        scope.spawn(|| talk(&control));
        engine.run(&stop, Some(Duration::from_secs(120)), &mut |_| {}).unwrap()
    });
    assert!(report.conservation.holds(), "{}", report.conservation);
    assert_eq!(report.conservation.in_flight, 0);
    assert!(report.lost_devices.is_empty(), "{:?}", report.lost_devices);
    report
}

/// The OpenCL and CUDA devices here; says so where there are none.
fn devices() -> Vec<String> {
    static DEVICES: OnceLock<Vec<String>> = OnceLock::new();
    DEVICES.get_or_init(find_devices).clone()
}

fn find_devices() -> Vec<String> {
    emulated::unless_there_is_a_driver();
    let probes = [("OpenCL", godwit_device::opencl::probe()), ("CUDA", godwit_device::cuda::probe())];
    let usable = probes.into_iter().flat_map(|(kind, probe)| {
        let usable = probe.found.into_iter().filter(|found| found.usable.is_ok()).map(|found| found.capabilities.id);
        let usable: Vec<String> = usable.collect();
        if usable.is_empty() {
            // Past the test harness, which shows nothing of a test that passes.
            let said = format!("skipped: chains on devices: no {kind} device here can be used\n");
            std::io::stderr().write_all(said.as_bytes()).unwrap();
        }
        usable
    });
    usable.collect()
}

/// Functions in the order of their ranks: kind and keys.
const FUNCTIONS: [(&str, &str, &[&str]); 6] = [
    ("open", OPEN, &["decrypted", "bypass"]),
    ("words", "kind = \"dpi\"\npatterns = \"0.txt\"", &["clean", "match"]),
    ("letters", "kind = \"dpi\"\npatterns = \"1.txt\"", &["clean", "match"]),
    ("swap", "kind = \"template\"", &["forward"]),
    ("route", ROUTE, &["forward", "local", "ttl_exceeded", "not_ipv4"]),
    ("again", "kind = \"dpi\"\npatterns = \"0.txt\"", &["clean", "match"]),
];

const SEAL: &str = r#"
    [[function]]
    name = "seal"
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

const OPEN: &str = r#"kind = "ipsec"
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

/// A chain: for each function, class and verdict a number that says where it leads; whether packets come encrypted; and
/// which functions are not on the device.
#[derive(Clone, Debug)]
struct Drawn {
    seed: u64,
    sealed: bool,
    leads: Vec<u8>,
    on_cpu: u8,
    classes: bool,
    workers: usize,
    bin_packets: u32,
    layout: &'static str,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let leads = prop::collection::vec(any::<u8>(), 64);
    let on_cpu = prop_oneof![Just(0_u8), Just(0), any::<u8>()];
    let machine =
        (1_usize..3, prop::sample::select(vec![16_u32, 33, 64]), prop::sample::select(vec!["slots", "dense"]));
    (any::<u64>(), any::<bool>(), leads, on_cpu, any::<bool>(), machine).prop_map(
        |(seed, sealed, leads, on_cpu, classes, (workers, bin_packets, layout))| Drawn {
            seed: seed >> 2,
            sealed,
            leads,
            on_cpu,
            classes,
            workers,
            bin_packets,
            layout,
        },
    )
}

impl Drawn {
    /// Where a number leads from the function with this place: mostly on.
    fn target(&self, from: usize, number: u8) -> String {
        let behind = FUNCTIONS.len() - from - 1;
        match usize::from(number % 8) {
            0 => "left".to_owned(),
            1 => "right".to_owned(),
            2 if number > 128 => "drop".to_owned(),
            _ if behind == 0 => "right".to_owned(),
            other => FUNCTIONS[from + 1 + other % behind].0.to_owned(),
        }
    }

    fn chain(&self) -> String {
        let mut text = String::new();
        let mut edge = |from: &str, class: Option<&str>, verdict: Option<&str>, to: &str| {
            text += &format!("[[chain]]\nfrom = \"{from}\"\nto = \"{to}\"\n");
            class.into_iter().for_each(|class| text += &format!("class = \"{class}\"\n"));
            verdict.into_iter().for_each(|verdict| text += &format!("verdict = \"{verdict}\"\n"));
        };
        edge("in", None, None, if self.sealed { "seal" } else { "open" });
        if self.sealed {
            edge("seal", None, None, "open");
        }
        let mut numbers = self.leads.iter().copied();
        for (at, (name, _, verdicts)) in FUNCTIONS.iter().enumerate() {
            for verdict in *verdicts {
                let number = numbers.next().unwrap_or(0);
                edge(name, None, Some(verdict), &self.target(at, number));
                if self.classes {
                    let number = numbers.next().unwrap_or(0);
                    edge(name, Some("some"), Some(verdict), &self.target(at, number));
                }
            }
        }
        text
    }

    /// Persistent groups, some of them for the first two functions on the device alone.
    fn share(&self) -> String {
        let here = (0..FUNCTIONS.len()).filter(|at| self.on_cpu >> at & 1 == 0);
        let shares: Vec<String> =
            here.take(2).zip([2, 1]).map(|(at, share)| format!("{} = {share}", FUNCTIONS[at].0)).collect();
        format!("mode = \"persistent\"\nshare = {{ {} }}", shares.join(", "))
    }

    /// `device`: as the configuration has it.
    fn text(&self, device: &str, device_keys: &str, implementation: &str) -> String {
        let Self { seed, workers, bin_packets, layout, .. } = self;
        let workers = if self.sealed { 1 } else { *workers };
        let mut text = format!(
            r#"
            [engine]
            workers = {workers}
            pin = false
            in_flight_packets = 2048
            [arena]
            layout = "{layout}"
            frame_bytes_max = 1600
            {device_keys}
            [packing]
            chunk_packets = 300
            bins = 40
            bin_packets = {bin_packets}
            [[port]]
            name = "in"
            kind = "synthetic"
            packets = 3000
            flows = 200
            size = {{ min = 60, max = 700 }}
            seed = {seed}
            payload = "pattern"
            patterns = "0.txt"
            [[port]]
            name = "left"
            kind = "synthetic"
            digest = true
            [[port]]
            name = "right"
            kind = "synthetic"
            digest = true
            [[class]]
            name = "some"
            source_ports = "0-30000"
            "#
        );
        if self.sealed {
            text += SEAL;
        }
        for (at, (name, keys, _)) in FUNCTIONS.iter().enumerate() {
            let device = if self.on_cpu >> at & 1 == 1 { "\"cpu\"" } else { device };
            let implementation =
                if device == "\"cpu\"" { format!("impl = \"{implementation}\"") } else { String::new() };
            let (kind, rest) = keys.split_once('\n').unwrap_or((keys, ""));
            text += &format!("[[function]]\nname = \"{name}\"\n{kind}\ndevice = {device}\n{implementation}\n{rest}\n");
        }
        text + &self.chain()
    }
}

/// What must be the same.
type Seen = (Vec<(u64, Option<u64>)>, Vec<(String, u64, u64, Vec<(String, u64)>, Vec<(String, u64)>)>);

fn seen(report: &Report) -> Seen {
    let ports = report.ports.iter().map(|port| (port.sent_packets, port.digest));
    let functions = report.functions.iter().map(|function| {
        let (verdicts, drops) = (function.verdicts.clone(), function.drops.clone());
        (function.name.clone(), function.packets, function.bytes, verdicts, drops)
    });
    (ports.collect(), functions.collect())
}

/// Why a device does not lead packets on, as probing says.
fn why_not(id: &str) -> Option<String> {
    let probes = [godwit_device::opencl::probe(), godwit_device::cuda::probe()];
    let mut found = probes.into_iter().flat_map(|probe| probe.found);
    found.find(|found| found.capabilities.id == id).and_then(|found| found.chain_lacks)
}

/// Whether a device leads packets on; where it does not, that is said.
fn leads_on(device: &str) -> bool {
    let Some(reason) = why_not(device) else { return true };
    // Past the test harness, which shows nothing of a test that passes.
    let said = format!("skipped: chains that a device follows: {device}: {reason}\n");
    std::io::stderr().write_all(said.as_bytes()).unwrap();
    false
}

/// Each packet goes to the device once, however many functions it has there; without following, once for each.
#[test]
fn a_packet_that_a_device_leads_on_goes_there_once() {
    let folder = tempfile::tempdir().unwrap();
    for (number, patterns) in PATTERNS.iter().enumerate() {
        std::fs::write(folder.path().join(format!("{number}.txt")), patterns).unwrap();
    }
    let drawn = Drawn {
        seed: 1,
        sealed: false,
        // Every verdict leads on to the next function.
        leads: vec![6; 64],
        on_cpu: 0,
        classes: true,
        workers: 2,
        bin_packets: 64,
        layout: "dense",
    };
    for (device, follows) in devices().into_iter().flat_map(|device| [(device.clone(), true), (device, false)]) {
        if follows && !leads_on(&device) {
            continue;
        }
        let keys = format!("[[device]]\nname = \"{device}\"\nwatchdog_ms = 30000\ndevice_chain = {follows}\n");
        let report = run(&drawn.text(&format!("{device:?}"), &keys, "native"), folder.path());
        let at_functions: u64 = report.functions.iter().map(|function| function.packets).sum();
        assert!(at_functions > 2 * report.conservation.received, "{:?}", report.functions);
        let counted = |name: &str| report.counters.iter().find(|(known, _)| known == name).map(|(_, count)| *count);
        let submitted = counted(&format!("device_packets{{device=\"{device}\"}}"));
        let expected = if follows { report.conservation.received } else { at_functions };
        assert_eq!(submitted, Some(expected), "{device}, device_chain = {follows}: {:?}", report.counters);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn a_chain_on_a_device_is_its_functions_one_after_the_other(drawn in drawn()) {
        let folder = tempfile::tempdir().unwrap();
        for (number, patterns) in PATTERNS.iter().enumerate() {
            std::fs::write(folder.path().join(format!("{number}.txt")), patterns).unwrap();
        }
        let expected = seen(&run(&drawn.text("\"cpu\"", "", "ref"), folder.path()));
        let shared = drawn.share();
        let ways = ["", "device_chain = false", "mode = \"persistent\"", shared.as_str()];
        for (device, keys) in devices().into_iter().flat_map(|device| ways.map(|keys| (device.clone(), keys))) {
            let stanza = |keys: &str| format!("[[device]]\nname = \"{device}\"\nwatchdog_ms = 30000\n{keys}\n");
            for placed in [format!("{device:?}"), format!("[{device:?}, \"cpu\"]")] {
                let report = run(&drawn.text(&placed, &stanza(keys), "native"), folder.path());
                prop_assert_eq!(seen(&report), expected.clone(), "{} {}", placed, keys);
            }
        }
    }
}

/// The class of all drawn chains, and traffic that leaves time for some changes.
const CLASS: &str = "[[class]]\nname = \"some\"\nsource_ports = \"0-30000\"\n";
const SLOWLY: &str = "packets = 3000\nrate = \"60kpps\"";

/// Takes these chains in turns until nobody answers any more. Returns how many it took.
fn take_in_turns(control: &Path, chains: [&str; 2]) -> usize {
    let Ok(stream) = UnixStream::connect(control) else { return 0 };
    let mut stream = BufReader::new(stream);
    let mut taken = 0;
    // The other one is what the engine starts with.
    for chain in chains.iter().cycle().skip(1) {
        let mut reply = String::new();
        let said = writeln!(stream.get_mut(), "{}", json!({ "command": "chain", "text": chain }));
        if said.and_then(|()| stream.read_line(&mut reply)).unwrap_or(0) == 0 {
            return taken;
        }
        let reply: Value = serde_json::from_str(&reply).unwrap();
        // A device that copies may have left packets where they were, and says so.
        let is_right = reply["ok"] == true || reply["error"].as_str().unwrap().contains("copy packets of");
        assert!(is_right, "{reply}\n{chain}");
        taken += usize::from(reply["ok"] == true);
    }
    unreachable!("chains are taken in turns for ever")
}

/// A device follows the new chain as it did the old one: each packet still goes there once.
#[test]
fn a_packet_goes_to_a_device_once_by_every_chain() {
    let folder = tempfile::tempdir().unwrap();
    for (number, patterns) in PATTERNS.iter().enumerate() {
        std::fs::write(folder.path().join(format!("{number}.txt")), patterns).unwrap();
    }
    // Every verdict leads on to another function.
    let drawn = |number| Drawn {
        seed: 1,
        sealed: false,
        leads: vec![number; 64],
        on_cpu: 0,
        classes: true,
        workers: 2,
        bin_packets: 64,
        layout: "dense",
    };
    let chains = [6, 7].map(|number| CLASS.to_owned() + &drawn(number).chain());
    let devices = devices().into_iter().filter(|device| leads_on(device));
    for (device, keys) in devices.flat_map(|device| ["", "mode = \"persistent\""].map(|keys| (device.clone(), keys))) {
        let stanza = format!("[[device]]\nname = \"{device}\"\nwatchdog_ms = 30000\n{keys}\n");
        let text = drawn(6).text(&format!("{device:?}"), &stanza, "native").replace("packets = 3000", SLOWLY);
        let mut taken = 0;
        let report =
            run_while(&text, folder.path(), |control| taken = take_in_turns(control, [&chains[0], &chains[1]]));
        let name = format!("device_packets{{device=\"{device}\"}}");
        let submitted = report.counters.iter().find(|(known, _)| *known == name).map(|(_, count)| *count);
        assert!(taken > 0, "the chain never changed");
        assert_eq!(submitted, Some(report.conservation.received), "{keys}, {taken} changes");
    }
}

/// The packets of a capture of both ports: where each left, and its frame, by what no function changes, which is all behind the
/// TTL and the checksum of IPv4.
fn captured(folder: &Path) -> HashMap<Vec<u8>, Vec<(&'static str, Vec<u8>)>> {
    let mut packets: HashMap<_, Vec<_>> = HashMap::new();
    for port in ["left", "right"] {
        let path = folder.join(format!("{port}.pcap"));
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut rest = &bytes[24..];
        while !rest.is_empty() {
            let length = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
            let frame = &rest[16..16 + length];
            packets.entry(frame[26..].to_vec()).or_default().push((port, frame.to_vec()));
            rest = &rest[16 + length..];
        }
    }
    packets
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, ..ProptestConfig::default() })]

    /// What comes out of a device whose chain changes under way is what one chain or the other makes of each packet.
    #[test]
    fn a_device_follows_chains_that_change(drawn in drawn(), leads in prop::collection::vec(any::<u8>(), 64), classes in any::<bool>()) {
        let folder = tempfile::tempdir().unwrap();
        for (number, patterns) in PATTERNS.iter().enumerate() {
            std::fs::write(folder.path().join(format!("{number}.txt")), patterns).unwrap();
        }
        let other = Drawn { leads, classes, ..drawn.clone() };
        let chains = [&drawn, &other].map(|drawn| CLASS.to_owned() + &drawn.chain());
        // Into captures, and slowly enough for some changes.
        let with_captures = |text: String| {
            ["left", "right"].iter().fold(text.replace("packets = 3000", SLOWLY), |text, port| {
                let sink = format!("name = \"{port}\"\n            kind = \"synthetic\"\n            digest = true");
                assert!(text.contains(&sink));
                text.replace(&sink, &format!("name = \"{port}\"\nkind = \"pcap\"\nwrite = \"{port}.pcap\""))
            })
        };
        let [one, two] = [&drawn, &other].map(|drawn| {
            run(&with_captures(drawn.text("\"cpu\"", "", "ref")), folder.path());
            captured(folder.path())
        });
        for (device, keys) in devices().into_iter().flat_map(|device| ["", "mode = \"persistent\""].map(|keys| (device.clone(), keys))) {
            let stanza = format!("[[device]]\nname = \"{device}\"\nwatchdog_ms = 30000\n{keys}\n");
            let text = with_captures(drawn.text(&format!("{device:?}"), &stanza, "native"));
            let mut taken = 0;
            let report = run_while(&text, folder.path(), |control| taken = take_in_turns(control, [&chains[0], &chains[1]]));
            prop_assert!(taken > 0, "the chain never changed");
            let came = captured(folder.path());
            prop_assert_eq!(came.values().map(Vec::len).sum::<usize>() as u64, report.conservation.sent);
            for key in came.keys().chain(one.keys()).chain(two.keys()) {
                let [came, one, two] = [&came, &one, &two].map(|packets| packets.get(key).map_or(&[][..], Vec::as_slice));
                // Packets that are alike, should there be any, may have gone different ways.
                if one.len() > 1 || two.len() > 1 {
                    continue;
                }
                prop_assert!(came == one || came == two, "{} {}: {:x?}\nis neither {:x?}\nnor {:x?}", device, keys, came, one, two);
            }
        }
    }
}
