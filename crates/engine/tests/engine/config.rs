//! Configurations: the meaning of valid ones, and the errors of invalid ones.

use std::path::Path;

use godwit_chain::Next;
use godwit_device::{Mode, Transfer};
use godwit_engine::config::{Config, ConfigError, PortKind, fuzz};
use godwit_packet::Layout;
use godwit_test_support::{ConfigText, Folder, FrameBuilder, repository};
use proptest::prelude::*;

const GOOD: &str = r#"
[engine]
workers = 2
pin = false
burst_packets = 64
in_flight_packets = 1024

[arena]
layout = "dense"
frame_bytes_max = 9000
headroom_bytes = 64

[packing]
bins = 8
grouping = "variant+length"

[[port]]
name = "lan"
kind = "synthetic"
flows = 16

[[port]]
name = "wan"
kind = "pcap"
order = "none"
write = "out.pcap"

[[function]]
name = "route"
kind = "ipv4"
impl = "ref"

[[function.next_hop]]
name = "up"
port = "wan"
destination_mac = "02:00:00:00:00:01"
source_mac = "02:00:00:00:00:02"

[[function.route]]
prefix = "10.0.0.0/16"
next_hop = "up"

[[function]]
name = "tunnel"
kind = "ipsec"
device = "cpu"

[[function.sa]]
name = "out"
spi = 4096
direction = "out"
source = "192.0.2.1"
destination = "192.0.2.2"
encryption = "aes-128-cbc"
encryption_key = "000102030405060708090a0b0c0d0e0f"
authentication = "hmac-sha1-96"
authentication_key = "000102030405060708090a0b0c0d0e0f10111213"

[[function.policy]]
action = "protect"
sa = "out"

[[class]]
name = "web"
protocol = "tcp"
source = "10.0.0.0/8"
source_ports = "1024-65535"
destination_ports = [80, 443, "8000-8099"]

[[class]]
name = "dns"
destination_ports = 53

[[chain]]
from = "lan"
class = "web"
to = "route"

[[chain]]
from = "lan"
to = "drop"

[[chain]]
from = "route"
verdict = "forward"
to = "tunnel"

[[chain]]
from = "tunnel"
to = "wan"
"#;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, "test.toml", Path::new("/nowhere"))
}

fn frame(destination_port: u16) -> Vec<u8> {
    FrameBuilder::new().tcp([2000, destination_port], &[])
}

#[test]
fn a_valid_configuration_sets_every_value() {
    let config = parse(GOOD).unwrap();
    assert_eq!(config.engine.workers, 2);
    assert!(!config.engine.pin);
    assert_eq!(config.engine.burst_packets, 64);
    assert_eq!(config.engine.in_flight_packets, 1024);
    assert_eq!(config.arena.layout, Layout::Dense);
    assert_eq!(config.arena.packets, 1024 + 64, "in_flight_packets and a burst");
    assert_eq!(config.arena.frame_bytes_max, 9000);
    assert_eq!(config.packing.bins, 8);
    assert_eq!(config.packing.bin_packets, 256, "the default");

    let [lan, wan] = config.ports.as_slice() else { panic!("{:?}", config.ports) };
    assert!(lan.ordered && !wan.ordered);
    assert!(matches!(&lan.kind, PortKind::Synthetic(synthetic) if synthetic.flows == 16));
    let PortKind::Pcap(pcap) = &wan.kind else { panic!("{:?}", wan.kind) };
    assert_eq!(pcap.write.as_deref(), Some(Path::new("/nowhere/out.pcap")), "relative to the configuration");

    let functions: Vec<_> = config
        .functions
        .iter()
        .map(|f| (f.name.as_str(), f.function.contract().kind, f.implementation.name()))
        .collect();
    assert_eq!(functions, [("route", "ipv4", "ref"), ("tunnel", "ipsec", "native")]);

    let class = |port| config.classifier.classify(&godwit_wire::parse(&frame(port)));
    assert_eq!([80, 443, 8000, 8099, 8100, 53, 81].map(class), [1, 1, 1, 1, 0, 2, 0]);
    let decider = config.chain.decider();
    assert_eq!(decider.entry(0, 1), Next::Function(0));
    assert_eq!(decider.entry(0, 2), Next::Drop);
    assert_eq!(decider.next(0, 1, 0), Next::Function(1));
    assert_eq!(decider.next(1, 1, 0), Next::Port(1));
    assert!(config.check_captures().is_ok(), "no port reads a capture");
}

#[test]
fn a_port_and_an_edge_are_a_valid_configuration() {
    let config =
        parse("port = [{ name = \"a\", kind = \"synthetic\" }]\nchain = [{ from = \"a\", to = \"a\" }]").unwrap();
    assert_eq!(config.engine, Default::default());
    assert_eq!(config.arena.packets, 8192 + 256);
    assert!(config.classifier.is_trivial());
    assert_eq!(config.warnings, Vec::<String>::new());
}

#[test]
fn a_device_uses_its_stanza_before_the_packing_table_and_the_defaults() {
    let device = |text: &str, id: &str| {
        let config = parse(text).unwrap();
        config.devices.into_iter().find(|device| device.id == id).unwrap_or_else(|| panic!("no {id}"))
    };
    // Without a stanza, [packing] applies before the defaults of the kind of device.
    let text = GOOD.replace("device = \"cpu\"", "device = \"cuda:0\"");
    let (cpu, cuda) = (device(&text, "cpu"), device(&text, "cuda:0"));
    assert_eq!((cpu.packing.bins, cpu.packing.bin_packets, cpu.packing.chunk_packets), (8, 256, 256));
    assert_eq!((cuda.packing.bins, cuda.packing.bin_packets, cuda.packing.chunk_packets), (8, 64, 1024 / 4));
    assert_eq!((cuda.mode, cuda.watchdog_ms, cuda.chunks), (Mode::Launch, 2000, 4));
    // A stanza applies before [packing], to its device only.
    let stanza = "\n[[device]]\nname = \"cuda:0\"\nmode = \"persistent\"\nchunks = 2\nwatchdog_ms = 50\nbins = 9\n\
                  sort = false\nleftover_packets = 7\n[[device]]\nname = \"cpu\"\nbin_packets = 31\n";
    let text = text + stanza;
    let (cpu, cuda) = (device(&text, "cpu"), device(&text, "cuda:0"));
    assert_eq!((cpu.packing.bins, cpu.packing.bin_packets, cpu.packing.sort), (8, 31, true));
    assert_eq!((cuda.mode, cuda.watchdog_ms, cuda.chunks), (Mode::Persistent, 50, 2));
    assert_eq!((cuda.packing.bins, cuda.packing.chunk_packets, cuda.packing.leftover_packets), (9, 1024 / 2, 7));
    assert!(!cuda.packing.sort);
    // With many packets in flight, chunks have the largest useful size, and enough bins.
    let text = text.replace("in_flight_packets = 1024", "in_flight_packets = 65536").replace("bins = 8\n", "");
    let cuda = device(&text.replace("bins = 9\n", ""), "cuda:0");
    assert_eq!((cuda.packing.chunk_packets, cuda.packing.bins), (16_384, 512));
    // In launch mode, workers share the chunks in flight of a discrete GPU. Its bus limits their
    // bytes.
    let launched = text.replace("mode = \"persistent\"\nchunks = 2\n", "").replace("bins = 9\n", "");
    for (workers, chunks, chunk_packets) in
        [(2, 4, 16_384), (5, 4, 16_384), (8, 3, 65_536 / 3), (16, 2, 32_768), (64, 2, 32_768)]
    {
        let cuda = device(&launched.replace("workers = 2", &format!("workers = {workers}")), "cuda:0");
        let packing = &cuda.packing;
        assert_eq!((cuda.chunks, packing.chunk_packets, packing.chunk_bytes), (chunks, chunk_packets, Some(6 << 20)));
    }
}

#[test]
fn the_key_transfer_applies_to_cuda_devices_in_launch_mode_only() {
    let text = |id: &str, keys: &str| format!("{GOOD}\n[[device]]\nname = \"{id}\"\n{keys}\n");
    let config = parse(&text("cuda:0", "transfer = \"zero_copy\"")).unwrap();
    assert_eq!(config.devices.last().unwrap().transfer, Transfer::ZeroCopy);
    assert_eq!(parse(&text("cuda:0", "")).unwrap().devices.last().unwrap().transfer, Transfer::Auto);
    for (id, keys, part) in [
        ("cuda:0", "transfer = \"zero_copy\"\nmode = \"persistent\"", "`transfer`"),
        ("opencl:0", "transfer = \"zero_copy\"", "`transfer`"),
        ("cpu", "transfer = \"copy\"", "`transfer`"),
        ("cuda:0", "transfer = \"open\"", "`zero_copy`"),
    ] {
        let error = parse(&text(id, keys)).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_device_without_a_function_causes_a_warning() {
    let config = parse(&format!("{GOOD}\n[[device]]\nname = \"opencl:3\"\n")).unwrap();
    let line = GOOD.lines().count() + 3;
    assert_warning(&config, line, "`opencl:3`");
}

/// Asserts that a warning is for a line and contains `part`.
#[track_caller]
fn assert_warning(config: &Config, line: usize, part: &str) {
    let start = format!("test.toml:{line}: ");
    let is_expected = |warning: &String| warning.starts_with(&start) && warning.contains(part);
    assert!(config.warnings.iter().any(is_expected), "{start}{part}: {:?}", config.warnings);
}

#[test]
fn the_number_of_workers_can_follow_the_number_of_cores() {
    let config = parse(&GOOD.replace("workers = 2", "workers = \"auto\"")).unwrap();
    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!(config.engine.workers, cores.min(128));
    let config = parse(&GOOD.replace("workers = 2", "workers = \"auto\"\nio = \"dual\"")).unwrap();
    assert_eq!(config.engine.workers, (cores / 2).clamp(1, 128));
}

#[test]
fn the_arena_has_room_for_the_headers_of_all_functions() {
    let parse_and_check = |text: &str| {
        let config = parse(text).unwrap();
        let (mut headroom, mut tailroom) = (0, 0);
        for function in &config.functions {
            headroom += usize::from(function.function.properties().headroom_bytes);
            tailroom += usize::from(function.function.properties().tailroom_bytes);
        }
        assert!(headroom > 0 && tailroom > 0);
        assert!(config.arena.headroom_bytes >= headroom && config.arena.tailroom_bytes >= tailroom);
        config
    };
    parse_and_check(GOOD);
    let config = parse_and_check(&GOOD.replace("headroom_bytes = 64", "headroom_bytes = 1"));
    assert_eq!(config.arena.headroom_bytes, 64);
    assert_warning(&config, 11, "headroom_bytes = 1 ");
    assert_warning(&config, 11, "64");
}

/// Tailroom can be saved only if no other function changes the lengths of frames before. Functions
/// outside the chain do not count.
#[test]
fn tailroom_is_saved_if_only_one_function_changes_lengths() {
    let saved = |text: &str| {
        let config = parse(&text.replace("workers = 2", "workers = 1")).unwrap();
        godwit_packet::Arena::bytes_for(&config.arena, 1).unwrap();
        config.arena.tailroom_saved
    };
    let tunnel = parse(GOOD).unwrap().functions.into_iter().find(|function| function.name == "tunnel").unwrap();
    let ipsec_saved = tunnel.function.properties().tailroom_saved;
    assert_ne!(ipsec_saved, [0; 16]);
    assert_eq!(saved(GOOD), ipsec_saved);
    let head = GOOD.split("[[chain]]").next().unwrap();
    let tunnel = &head[head.find("name = \"tunnel\"").unwrap()..];
    let tunnel = tunnel.split("[[function]]").next().unwrap().split("[[class]]").next().unwrap();
    let second = format!(
        "[[function]]\n{}",
        tunnel.replace("name = \"tunnel\"", "name = \"second\"").replace("\"0001", "\"f001")
    );
    assert_eq!(saved(&format!("{GOOD}\n{second}")), ipsec_saved);
    let twice = format!("{GOOD}\n{second}\n[[chain]]\nfrom = \"tunnel\"\nverdict = \"encrypted\"\nto = \"second\"\n");
    assert_eq!(saved(&twice), [0; 16]);
    let without = format!("{head}[[chain]]\nfrom = \"lan\"\nto = \"wan\"\n");
    assert_eq!(saved(&without.replace("headroom_bytes = 64", "tailroom_bytes = 4")), [0; 16]);
}

#[test]
fn an_unused_verdict_or_edge_causes_a_warning() {
    let config = parse(GOOD).unwrap();
    let names_verdict = |warning: &String| warning.contains("`local`") && warning.contains("`route`");
    assert!(config.warnings.iter().any(names_verdict), "{:?}", config.warnings);
    let covered = "\n[[chain]]\nfrom = \"route\"\nclass = \"dns\"\nto = \"wan\"";
    let all = ["forward", "local", "ttl_exceeded", "not_ipv4", "no_route", "unresolved", "too_big", "fragment"];
    let every = all.map(|verdict| {
        format!("\n[[chain]]\nfrom = \"route\"\nverdict = \"{verdict}\"\nclass = \"dns\"\nto = \"wan\"")
    });
    let text = format!("{GOOD}{}{covered}", every.concat());
    let config = parse(&text).unwrap();
    let line = text.lines().count() - 3;
    assert_warning(&config, line, "from `route` to `wan`");
}

#[test]
fn generated_frames_that_exceed_the_buffers_cause_a_warning() {
    let text = GOOD.replace("flows = 16", "flows = 16\nsize = 9001");
    let config = parse(&text).unwrap();
    assert_warning(&config, 17, "`lan`");
    assert_warning(&config, 17, "9001 bytes");
}

#[test]
fn the_documented_example_is_a_valid_configuration() {
    let text = std::fs::read_to_string(repository().join("docs/configuration.md")).unwrap();
    let (_, rest) = text.split_once("```toml\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let config = parse(example).unwrap();
    assert_eq!(config.warnings, Vec::<String>::new());
    assert!(config.functions.len() >= 2 && config.chain.classes().len() >= 2);
    // The drawing in the document is the output of `godwit check`.
    for line in config.chain.text().lines() {
        assert!(text.contains(line), "{line} is not in the drawing");
    }
}

#[test]
fn check_captures_reports_a_missing_capture() {
    let text = GOOD.replace("write = \"out.pcap\"", "write = \"out.pcap\"\nfile = \"no-such.pcap\"");
    let error = parse(&text).unwrap().check_captures().unwrap_err().to_string();
    let parts = ["test.toml:22: ", "`wan`", "/nowhere/no-such.pcap: No such file"];
    assert!(parts.iter().all(|part| error.contains(part)), "{error}");
}

#[test]
fn a_stale_payload_cannot_be_sent_by_a_real_port() {
    let text = GOOD.replacen("kind = \"synthetic\"", "kind = \"synthetic\"\npayload = \"stale\"", 1);
    let error = parse(&text).unwrap_err().to_string();
    assert!(error.contains("stale") && error.contains("`wan`"), "{error}");
}

#[test]
fn a_missing_configuration_is_an_error() {
    let error = Config::load(Path::new("/nowhere/x.toml")).unwrap_err().to_string();
    assert!(error.starts_with("/nowhere/x.toml: No such file"), "{error}");
}

#[test]
fn a_key_is_never_shown() {
    let secret = "31415926535897";
    let text = GOOD.replace("\"000102030405060708090a0b0c0d0e0f\"", secret);
    let error = parse(&text).unwrap_err().to_string();
    assert!(!error.contains(secret), "{error}");
    assert!(error.starts_with("test.toml:49: ") && error.contains("encryption_key of SA \"out\""), "{error}");
}

/// The first line of each file in `tests/bad-config` has the form `# expect: LINE: PART ... PART`.
/// The error must be for this line, and must contain all parts in this order. Without a line
/// number, the parts may occur anywhere in the error.
#[test]
fn every_bad_configuration_is_refused_with_the_expected_error() {
    let folder = repository().join("tests/bad-config");
    let entries = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).collect();
    files.sort();
    assert!(files.len() > 80, "only {} files in {}", files.len(), folder.display());
    let mut wrong = Vec::new();
    for path in files {
        let bytes = std::fs::read(&path).unwrap();
        fuzz::config_parse(&bytes);
        let text = String::from_utf8_lossy(&bytes);
        let expected = text.lines().next().and_then(|line| line.strip_prefix("# expect: "));
        let expected = expected.unwrap_or_else(|| panic!("{} has no expected error", path.display()));
        let with_line = expected.split_once(": ").filter(|(line, _)| line.parse::<usize>().is_ok());
        let (start, parts) = match with_line {
            Some((line, parts)) => (format!("{}:{line}: ", path.display()), parts),
            None => (String::new(), expected),
        };
        match Config::load(&path) {
            Ok(_) => wrong.push(format!("{} was accepted", path.display())),
            Err(error) => {
                let error = error.to_string();
                if !error.starts_with(&start) || !contains_in_order(&error, parts) || error.contains('\n') {
                    wrong.push(format!("expected {start}{parts}\n     got {error}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Returns whether `text` contains all parts, which are separated by ` ... `, in this order.
fn contains_in_order(mut text: &str, parts: &str) -> bool {
    parts.split(" ... ").all(|part| {
        let found = text.split_once(part);
        found.inspect(|(_, rest)| text = rest).is_some()
    })
}

/// Generates a piece of text that is inserted into a valid configuration.
fn piece() -> impl Strategy<Value = String> {
    let lines: Vec<String> = GOOD.lines().map(|line| format!("{line}\n")).collect();
    let values =
        ["-1", "0", "99999999999999999999", "1e9", "true", "[]", "{}", "\"\"", "\"drop\"", "\"\\n\"", "1979-05-27"];
    let values: Vec<String> = values.iter().map(|value| format!(" = {value}\n")).collect();
    let marks: Vec<String> = ["=", "[", "]", "\"", "[[", "'''", "\n", "#", "\u{0}", "é"].map(str::to_owned).to_vec();
    prop_oneof![prop::sample::select(lines), prop::sample::select(values), prop::sample::select(marks), ".{0,6}"]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// `fuzz::config_parse` asserts that a configuration is accepted, or refused with one line.
    #[test]
    fn a_damaged_configuration_causes_no_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0usize..30, piece()), 1..5),
    ) {
        let mut text: Vec<char> = GOOD.chars().collect();
        for (at, cut, piece) in edits {
            let at = at.index(text.len() + 1);
            let end = (at + cut).min(text.len());
            text.splice(at..end, piece.chars());
        }
        fuzz::config_parse(String::from_iter(text).as_bytes());
    }

    #[test]
    fn any_value_of_a_key_causes_no_panic(line in 0usize..90, value in 0usize..12) {
        let values = ["-1", "0", "1", "65536", "99999999999999999999", "1.5", "true", "[]", "{}", "\"\"", "\"lan\"", "[1, \"x\"]"];
        let lines = GOOD.lines().enumerate().map(|(number, text)| match text.split_once(" = ") {
            Some((key, _)) if number == line => format!("{key} = {}\n", values[value]),
            _ => format!("{text}\n"),
        });
        fuzz::config_parse(lines.collect::<String>().as_bytes());
    }

    #[test]
    fn any_text_causes_no_panic(text in "\\PC{0,200}") {
        fuzz::config_parse(text.as_bytes());
    }
}

#[test]
fn the_configurations_for_deployment_are_valid() {
    let folder = repository().join("examples/deploy");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut read = 0;
    for path in files.filter(|path| path.extension().is_some_and(|extension| extension == "toml")) {
        let config = Config::load(&path).unwrap_or_else(|error| panic!("{error}"));
        assert!(config.warnings.is_empty(), "{:?}", config.warnings);
        assert_eq!(config.engine.user.as_deref(), Some("godwit"));
        assert!(config.arena.slot_bytes.is_some_and(|bytes| bytes == 2048), "{:?}", config.arena);
        read += 1;
    }
    assert!(read >= 3);
}

#[test]
fn the_configurations_of_topologies_are_valid() {
    let folder = repository().join("examples/topologies");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut read = 0;
    for path in files.filter(|path| path.extension().is_some_and(|extension| extension == "toml")) {
        // The TLS proxy has its own configuration format.
        if path.file_name().is_some_and(|name| name == "tls-proxy.toml") {
            continue;
        }
        let config = Config::load(&path).unwrap_or_else(|error| panic!("{error}"));
        assert!(config.warnings.is_empty(), "{path:?}: {:?}", config.warnings);
        read += 1;
    }
    assert!(read >= 2);
}

#[cfg(not(feature = "dpdk"))]
#[test]
fn a_port_of_kind_dpdk_is_refused_without_the_feature() {
    let text = "[[port]]\nname = \"a\"\nkind = \"dpdk\"\ndevice = \"net_null0\"\n[[chain]]\nfrom = \"a\"\nto = \"a\"\n";
    let error = Config::parse(text, "test.toml", Path::new("")).unwrap_err().to_string();
    let parts = ["test.toml:3: ", "`--features dpdk`", "libdpdk-dev", "kind = \"af_xdp\""];
    assert!(parts.iter().all(|part| error.contains(part)), "{error}");
}

const STAGES: &str = r#"
[[port]]
name = "in"
kind = "synthetic"
[[port]]
name = "out"
kind = "synthetic"
[[function]]
name = "one"
kind = "template"
[[function]]
name = "two"
kind = "echo"
[[class]]
name = "web"
destination_ports = 80
"#;

#[test]
fn a_chain_in_a_csv_file_equals_the_same_chain_in_stanzas() {
    let folder = Folder::new();
    let columns = "# packet type, current function, next function\n\n*, in, one\nweb, in, two\n:forward, one, two # on\nweb:forward,one,out\n,two,out\n";
    folder.write("chain.csv", columns);
    let stanzas = ConfigText::new()
        .edge("in", "one")
        .class_edge("in", "web", "two")
        .verdict_edge("one", "forward", "two")
        .verdict_edge("one", "forward", "out")
        .raw("class = \"web\"")
        .edge("two", "out");
    let parse = |chain: &str| Config::parse(&format!("{STAGES}{chain}"), "test.toml", folder.path());
    let from_file = parse("[[chain]]\nfile = \"chain.csv\"\n").unwrap();
    let from_stanzas = parse(&stanzas.to_string()).unwrap();
    assert_eq!(from_file.chain.decider(), from_stanzas.chain.decider());
    assert_eq!(from_file.chain.ranks(), from_stanzas.chain.ranks());

    for (columns, line, part) in [
        ("*,in,one\nweb,in\n", 2, "2 columns"),
        ("*,in,nowhere\n", 1, "nowhere"),
        ("\nmail,in,one\n", 2, "mail"),
        ("*,in,one\n:swapped,one,out\n", 2, "swapped"),
        ("*,in,one\n*,one,two\n*,two,one\n", 0, "two"),
        ("*,,one\n", 1, "second"),
    ] {
        folder.write("chain.csv", columns);
        let error = parse("[[chain]]\nfile = \"chain.csv\"\n").unwrap_err().to_string();
        let position = if line == 0 { "chain.csv:".to_owned() } else { format!("chain.csv:{line}:") };
        assert!(error.contains(&position) && error.contains(part), "{columns:?}: {error}");
    }
    let error = parse("[[chain]]\nfile = \"absent.csv\"\n").unwrap_err().to_string();
    assert!(error.contains("absent.csv") && error.contains("test.toml:"), "{error}");
}
