//! Configurations: what good ones mean, and that every bad one is refused in the sentence it expects.

use std::path::{Path, PathBuf};

use godwit_chain::Next;
use godwit_device::{Mode, Transfer};
use godwit_engine::config::{Config, ConfigError, PortKind, fuzz};
use godwit_packet::Layout;
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
    let mut frame = vec![0; 60];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&46u16.to_be_bytes());
    frame[23] = 6;
    frame[26..30].copy_from_slice(&[10, 0, 0, 1]);
    frame[30..34].copy_from_slice(&[10, 0, 0, 2]);
    frame[34..36].copy_from_slice(&2000u16.to_be_bytes());
    frame[36..38].copy_from_slice(&destination_port.to_be_bytes());
    frame
}

#[test]
fn a_good_configuration_means_what_it_says() {
    let config = parse(GOOD).unwrap();
    assert_eq!(config.engine.workers, 2);
    assert!(!config.engine.pin);
    assert_eq!(config.engine.burst_packets, 64);
    assert_eq!(config.engine.in_flight_packets, 1024);
    assert_eq!(config.arena.layout, Layout::Dense);
    assert_eq!(config.arena.packets, 1024 + 64, "in_flight_packets and a burst");
    assert_eq!(config.arena.frame_bytes_max, 9000);
    assert_eq!(config.packing.bins, 8);
    assert_eq!(config.packing.bin_packets, 256, "a default");

    let [lan, wan] = config.ports.as_slice() else { panic!("{:?}", config.ports) };
    assert!(lan.ordered && !wan.ordered);
    assert!(matches!(&lan.kind, PortKind::Synthetic(synthetic) if synthetic.flows == 16));
    let PortKind::Pcap(pcap) = &wan.kind else { panic!("{:?}", wan.kind) };
    assert_eq!(pcap.write.as_deref(), Some(Path::new("/nowhere/out.pcap")), "beside the configuration");

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
    assert!(config.check_captures().is_ok(), "nothing is read from a capture");
}

#[test]
fn defaults_are_enough_to_run() {
    let config =
        parse("port = [{ name = \"a\", kind = \"synthetic\" }]\nchain = [{ from = \"a\", to = \"a\" }]").unwrap();
    assert_eq!(config.engine, Default::default());
    assert_eq!(config.arena.packets, 8192 + 256);
    assert!(config.classifier.is_trivial());
    assert_eq!(config.warnings, Vec::<String>::new());
}

#[test]
fn a_device_is_used_as_its_stanza_says() {
    let device = |text: &str, id: &str| {
        let config = parse(text).unwrap();
        config.devices.into_iter().find(|device| device.id == id).unwrap_or_else(|| panic!("no {id}"))
    };
    // Without a stanza: what [packing] says, else what suits the kind of device.
    let text = GOOD.replace("device = \"cpu\"", "device = \"cuda:0\"");
    let (cpu, cuda) = (device(&text, "cpu"), device(&text, "cuda:0"));
    assert_eq!((cpu.packing.bins, cpu.packing.bin_packets, cpu.packing.chunk_packets), (8, 256, 256));
    assert_eq!((cuda.packing.bins, cuda.packing.bin_packets, cuda.packing.chunk_packets), (8, 64, 1024 / 4));
    assert_eq!((cuda.mode, cuda.watchdog_ms, cuda.chunks), (Mode::Launch, 2000, 4));
    // A stanza counts before [packing], for its device only.
    let stanza = "\n[[device]]\nname = \"cuda:0\"\nmode = \"persistent\"\nchunks = 2\nwatchdog_ms = 50\nbins = 9\n\
                  sort = false\nleftover_packets = 7\n[[device]]\nname = \"cpu\"\nbin_packets = 31\n";
    let text = text + stanza;
    let (cpu, cuda) = (device(&text, "cpu"), device(&text, "cuda:0"));
    assert_eq!((cpu.packing.bins, cpu.packing.bin_packets, cpu.packing.sort), (8, 31, true));
    assert_eq!((cuda.mode, cuda.watchdog_ms, cuda.chunks), (Mode::Persistent, 50, 2));
    assert_eq!((cuda.packing.bins, cuda.packing.chunk_packets, cuda.packing.leftover_packets), (9, 1024 / 2, 7));
    assert!(!cuda.packing.sort);
    // With many packets in flight a chunk is as large as pays, and there are bins for it.
    let text = text.replace("in_flight_packets = 1024", "in_flight_packets = 65536").replace("bins = 8\n", "");
    let cuda = device(&text.replace("bins = 9\n", ""), "cuda:0");
    assert_eq!((cuda.packing.chunk_packets, cuda.packing.bins), (16_384, 512));
    // Launched, workers share what a discrete GPU has in flight, in copies that suit its bus.
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
fn how_buffers_travel_is_said_of_cuda_devices_that_launch() {
    let text = |id: &str, keys: &str| format!("{GOOD}\n[[device]]\nname = \"{id}\"\n{keys}\n");
    let config = parse(&text("cuda:0", "transfer = \"zero_copy\"")).unwrap();
    assert_eq!(config.devices.last().unwrap().transfer, Transfer::ZeroCopy);
    assert_eq!(parse(&text("cuda:0", "")).unwrap().devices.last().unwrap().transfer, Transfer::Auto);
    for (id, keys, why) in [
        (
            "cuda:0",
            "transfer = \"zero_copy\"\nmode = \"persistent\"",
            "`transfer` applies only to CUDA devices in launch mode",
        ),
        ("opencl:0", "transfer = \"zero_copy\"", "`transfer` applies only to CUDA devices in launch mode"),
        ("cpu", "transfer = \"copy\"", "`transfer` does not apply to the CPU"),
        ("cuda:0", "transfer = \"open\"", "`auto`, `copy` or `zero_copy`"),
    ] {
        let error = parse(&text(id, keys)).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_device_that_nothing_runs_on_is_a_warning() {
    let config = parse(&format!("{GOOD}\n[[device]]\nname = \"opencl:3\"\n")).unwrap();
    let line = GOOD.lines().count() + 3;
    let warning = format!("test.toml:{line}: no function runs on device `opencl:3`");
    assert!(config.warnings.iter().any(|found| found.starts_with(&warning)), "{:?}", config.warnings);
}

#[test]
fn workers_can_be_all_cores() {
    let config = parse(&GOOD.replace("workers = 2", "workers = \"auto\"")).unwrap();
    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!(config.engine.workers, cores.min(128));
    let config = parse(&GOOD.replace("workers = 2", "workers = \"auto\"\nio = \"dual\"")).unwrap();
    assert_eq!(config.engine.workers, (cores / 2).clamp(1, 128));
}

#[test]
fn the_arena_has_room_for_what_the_chain_prepends() {
    let needs = |text: &str| {
        let config = parse(text).unwrap();
        let (mut headroom, mut tailroom) = (0, 0);
        for function in &config.functions {
            headroom += usize::from(function.function.headroom_bytes());
            tailroom += usize::from(function.function.tailroom_bytes());
        }
        assert!(headroom > 0 && tailroom > 0);
        assert!(config.arena.headroom_bytes >= headroom && config.arena.tailroom_bytes >= tailroom);
        config
    };
    needs(GOOD);
    let config = needs(&GOOD.replace("headroom_bytes = 64", "headroom_bytes = 1"));
    assert_eq!(config.arena.headroom_bytes, 64);
    let raised = config.warnings.iter().find(|warning| warning.contains("is raised to 64")).unwrap();
    assert!(raised.starts_with("test.toml:11: headroom_bytes = 1 "), "{raised}");
}

/// A frame that another function made longer or shorter does without other bytes than one that comes so, and a function that no
/// edge reaches takes no part in it.
#[test]
fn tailroom_is_saved_where_only_one_function_changes_lengths() {
    let saved = |text: &str| {
        let config = parse(&text.replace("workers = 2", "workers = 1")).unwrap();
        godwit_packet::Arena::bytes_for(&config.arena, 1).unwrap();
        config.arena.tailroom_saved
    };
    let tunnel = parse(GOOD).unwrap().functions.into_iter().find(|function| function.name == "tunnel").unwrap();
    let of_ipsec = tunnel.function.tailroom_saved();
    assert_ne!(of_ipsec, [0; 16]);
    assert_eq!(saved(GOOD), of_ipsec);
    let head = GOOD.split("[[chain]]").next().unwrap();
    let tunnel = &head[head.find("name = \"tunnel\"").unwrap()..];
    let tunnel = tunnel.split("[[function]]").next().unwrap().split("[[class]]").next().unwrap();
    let second = format!("[[function]]\n{}", tunnel.replace("name = \"tunnel\"", "name = \"second\""));
    assert_eq!(saved(&format!("{GOOD}\n{second}")), of_ipsec);
    let twice = format!("{GOOD}\n{second}\n[[chain]]\nfrom = \"tunnel\"\nverdict = \"encrypted\"\nto = \"second\"\n");
    assert_eq!(saved(&twice), [0; 16]);
    let without = format!("{head}[[chain]]\nfrom = \"lan\"\nto = \"wan\"\n");
    assert_eq!(saved(&without.replace("headroom_bytes = 64", "tailroom_bytes = 4")), [0; 16]);
}

#[test]
fn what_is_probably_not_meant_is_a_warning() {
    let config = parse(GOOD).unwrap();
    assert!(config.warnings.iter().any(|warning| warning.contains("with verdict `local` from `route`")));
    let covered = "\n[[chain]]\nfrom = \"route\"\nclass = \"dns\"\nto = \"wan\"";
    let all = ["forward", "local", "ttl_exceeded", "not_ipv4", "no_route", "unresolved", "too_big", "fragment"];
    let every = all.map(|verdict| {
        format!("\n[[chain]]\nfrom = \"route\"\nverdict = \"{verdict}\"\nclass = \"dns\"\nto = \"wan\"")
    });
    let text = format!("{GOOD}{}{covered}", every.concat());
    let config = parse(&text).unwrap();
    let line = text.lines().count() - 3;
    let warning = format!("test.toml:{line}: the edge from `route` to `wan` is never taken");
    assert!(config.warnings.iter().any(|found| found.starts_with(&warning)), "{:?}", config.warnings);
}

#[test]
fn frames_that_no_buffer_takes_are_a_warning() {
    let text = GOOD.replace("flows = 16", "flows = 16\nsize = 9001");
    let config = parse(&text).unwrap();
    let warning = "test.toml:17: port `lan` generates frames of up to 9001 bytes";
    assert!(config.warnings.iter().any(|found| found.starts_with(warning)), "{:?}", config.warnings);
}

/// The documentation shows one whole configuration, and shows it right.
#[test]
fn the_documented_example_is_a_configuration() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, rest) = text.split_once("```toml\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let config = parse(example).unwrap();
    assert_eq!(config.warnings, Vec::<String>::new());
    assert!(config.functions.len() >= 2 && config.chain.classes().len() >= 2);
    // The drawing that stands below it is the one that `godwit check` prints.
    for line in config.chain.text().lines() {
        assert!(text.contains(line), "{line} is not in the drawing");
    }
}

#[test]
fn a_missing_capture_is_found_on_request() {
    let text = GOOD.replace("write = \"out.pcap\"", "write = \"out.pcap\"\nfile = \"no-such.pcap\"");
    let error = parse(&text).unwrap().check_captures().unwrap_err().to_string();
    assert!(error.starts_with("test.toml:22: port `wan`: cannot read /nowhere/no-such.pcap: No such file"), "{error}");
}

#[test]
fn stale_payload_stays_inside() {
    let text = GOOD.replacen("kind = \"synthetic\"", "kind = \"synthetic\"\npayload = \"stale\"", 1);
    let error = parse(&text).unwrap_err().to_string();
    assert!(error.contains("would expose bytes of other packets to port `wan`"), "{error}");
}

#[test]
fn a_missing_file_is_said() {
    let error = Config::load(Path::new("/nowhere/x.toml")).unwrap_err().to_string();
    assert!(error.starts_with("/nowhere/x.toml: No such file"), "{error}");
}

#[test]
fn a_key_is_never_shown() {
    let secret = "31415926535897";
    let text = GOOD.replace("\"000102030405060708090a0b0c0d0e0f\"", secret);
    let error = parse(&text).unwrap_err().to_string();
    assert!(!error.contains(secret), "{error}");
    assert!(error.starts_with("test.toml:49: encryption_key of SA \"out\" must be "), "{error}");
}

/// Every file of `tests/bad-config`: its first line says which error it must give: `LINE: text` with a line of its own and a
/// piece of the sentence, else a piece of the whole error.
#[test]
fn every_bad_configuration_is_refused_with_its_sentence() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/bad-config");
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
        let expected = expected.unwrap_or_else(|| panic!("{} expects nothing", path.display()));
        let own_line = expected.split_once(": ").filter(|(line, _)| line.parse::<usize>().is_ok());
        let (start, piece) = match own_line {
            Some((line, piece)) => (format!("{}:{line}: ", path.display()), piece),
            None => (String::new(), expected),
        };
        match Config::load(&path) {
            Ok(_) => wrong.push(format!("{} was accepted", path.display())),
            Err(error) => {
                let sentence = error.to_string();
                if !sentence.starts_with(&start) || !sentence.contains(piece) || sentence.contains('\n') {
                    wrong.push(format!("expected {start}{piece}\n     got {sentence}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// A piece of a configuration to put somewhere in a good one.
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

    /// Cut, insert and replace anywhere: it is accepted or refused in one sentence, never a panic.
    #[test]
    fn damaged_configurations_do_no_harm(
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
    fn other_values_of_keys_do_no_harm(line in 0usize..90, value in 0usize..12) {
        let values = ["-1", "0", "1", "65536", "99999999999999999999", "1.5", "true", "[]", "{}", "\"\"", "\"lan\"", "[1, \"x\"]"];
        let lines = GOOD.lines().enumerate().map(|(number, text)| match text.split_once(" = ") {
            Some((key, _)) if number == line => format!("{key} = {}\n", values[value]),
            _ => format!("{text}\n"),
        });
        fuzz::config_parse(lines.collect::<String>().as_bytes());
    }

    #[test]
    fn any_text_does_no_harm(text in "\\PC{0,200}") {
        fuzz::config_parse(text.as_bytes());
    }
}

#[test]
fn configurations_to_deploy_are_configurations() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/deploy");
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
fn topologies_are_configurations() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/topologies");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut read = 0;
    for path in files.filter(|path| path.extension().is_some_and(|extension| extension == "toml")) {
        let config = Config::load(&path).unwrap_or_else(|error| panic!("{error}"));
        assert!(config.warnings.is_empty(), "{path:?}: {:?}", config.warnings);
        read += 1;
    }
    assert!(read >= 2);
}

/// Without the feature, a port of that kind says what is missing.
#[cfg(not(feature = "dpdk"))]
#[test]
fn a_build_without_dpdk_says_so() {
    let text = "[[port]]\nname = \"a\"\nkind = \"dpdk\"\ndevice = \"net_null0\"\n[[chain]]\nfrom = \"a\"\nto = \"a\"\n";
    let error = Config::parse(text, "test.toml", Path::new("")).unwrap_err().to_string();
    assert_eq!(
        error,
        "test.toml:3: this Godwit was built without DPDK: build it with `--features dpdk` (Debian: libdpdk-dev), or use kind = \"af_xdp\""
    );
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
fn a_chain_in_three_columns_is_that_in_stanzas() {
    let folder = tempfile::tempdir().unwrap();
    let columns = "# packet type, current function, next function\n\n*, in, one\nweb, in, two\n:forward, one, two # on\nweb:forward,one,out\n,two,out\n";
    std::fs::write(folder.path().join("chain.csv"), columns).unwrap();
    let edge = |from: &str, class: &str, verdict: &str, to: &str| {
        let keyed =
            |key: &str, value: &str| if value.is_empty() { String::new() } else { format!("{key} = \"{value}\"\n") };
        format!("[[chain]]\nfrom = \"{from}\"\nto = \"{to}\"\n") + &keyed("class", class) + &keyed("verdict", verdict)
    };
    let stanzas = [
        edge("in", "", "", "one"),
        edge("in", "web", "", "two"),
        edge("one", "", "forward", "two"),
        edge("one", "web", "forward", "out"),
        edge("two", "", "", "out"),
    ];
    let parse = |chain: &str| Config::parse(&format!("{STAGES}{chain}"), "test.toml", folder.path());
    let (of_file, of_stanzas) =
        (parse("[[chain]]\nfile = \"chain.csv\"\n").unwrap(), parse(&stanzas.concat()).unwrap());
    assert_eq!(of_file.chain.decider(), of_stanzas.chain.decider());
    assert_eq!(of_file.chain.ranks(), of_stanzas.chain.ranks());

    for (columns, line, says) in [
        ("*,in,one\nweb,in\n", 2, "2 columns"),
        ("*,in,nowhere\n", 1, "nowhere"),
        ("\nmail,in,one\n", 2, "mail"),
        ("*,in,one\n:swapped,one,out\n", 2, "swapped"),
        ("*,in,one\n*,one,two\n*,two,one\n", 0, "two"),
        ("*,,one\n", 1, "second"),
    ] {
        std::fs::write(folder.path().join("chain.csv"), columns).unwrap();
        let said = parse("[[chain]]\nfile = \"chain.csv\"\n").unwrap_err().to_string();
        let place = if line == 0 { "chain.csv:".to_owned() } else { format!("chain.csv:{line}:") };
        assert!(said.contains(&place) && said.contains(says), "{columns:?}: {said}");
    }
    let said = parse("[[chain]]\nfile = \"absent.csv\"\n").unwrap_err().to_string();
    assert!(said.contains("absent.csv") && said.contains("test.toml:"), "{said}");
}
