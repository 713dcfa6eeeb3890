//! A switch in the engine: what it learns from packets that flow, on every device there is.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use godwit_device::opencl;
use godwit_engine::config::Config;
use godwit_engine::{Engine, Options, Replay, Report};
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(60);

fn mac(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, number]
}

fn frame(destination: [u8; 6], source: [u8; 6]) -> Vec<u8> {
    [&destination[..], &source, &[0x88, 0xb5], &[7; 46]].concat()
}

fn write_capture(path: &Path, frames: &[Vec<u8>]) {
    let mut bytes = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0];
    for frame in frames {
        let length = frame.len() as u32;
        [0, 0, length, length].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes.extend(frame);
    }
    std::fs::write(path, bytes).unwrap();
}

fn read_capture(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).unwrap();
    let (mut rest, mut frames) = (&bytes[24..], Vec::new());
    while !rest.is_empty() {
        let length = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        frames.push(rest[16..16 + length].to_vec());
        rest = &rest[16 + length..];
    }
    frames
}

fn count(report: &Report, counter: &str) -> u64 {
    report.counters.iter().find(|(name, _)| name == counter).map_or(0, |(_, value)| *value)
}

const CHAIN: &str = r#"
[[function]]
name = "switch"
kind = "l2"
[[chain]]
from = "switch"
verdict = "forward"
to = "egress"
[[chain]]
from = "switch"
verdict = "flood"
to = "egress"
"#;

/// Two stations that talk to each other, and a port where nobody is: whatever leaves by it was flooded.
fn talk(device: &str, mode: &str, workers: usize) -> Report {
    let station = |name: &str, own: u8, other: u8| {
        format!(
            "[[port]]\nname = \"{name}\"\nkind = \"synthetic\"\nrate = \"20kpps\"\nflows = 20\n\
             source_mac = \"02:00:00:00:00:{own:02x}\"\ndestination_mac = \"02:00:00:00:00:{other:02x}\"\n\
             [[chain]]\nfrom = \"{name}\"\nto = \"switch\"\n"
        )
    };
    let stanza = match device {
        "cpu" => String::new(),
        _ => format!(
            "[[device]]\nname = \"{device}\"\nmode = \"{mode}\"\nchunk_packets = 64\nbins = 5\nbin_packets = 32\n"
        ),
    };
    let text = format!(
        "[engine]\nworkers = {workers}\npin = false\n{stanza}{}{}[[port]]\nname = \"nobody\"\nkind = \"synthetic\"\n{}",
        station("one", 1, 2),
        station("other", 2, 1),
        CHAIN.replace("kind = \"l2\"", &format!("kind = \"l2\"\ndevice = \"{device}\"")),
    );
    let config = Config::parse(&text, "test.toml", Path::new(".")).unwrap();
    let switch = Arc::clone(&config.functions[0].function);
    let engine = Engine::new(config, &Options::default()).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let report = std::thread::scope(|scope| {
        scope.spawn(|| {
            let started = Instant::now();
            while switch.counts()[0] < 2 && started.elapsed() < LIMIT {
                std::thread::sleep(Duration::from_millis(1));
            }
            // Long enough for frames that nobody floods any more.
            std::thread::sleep(Duration::from_millis(300));
            stop.store(true, Ordering::SeqCst);
        });
        engine.run(&stop, Some(LIMIT), &mut |_| {}).unwrap()
    });
    let flow = &report.conservation;
    assert!(flow.holds() && flow.in_flight == 0 && flow.dropped == 0, "{device}: {flow}");
    let [flooded, forwarded] = ["verdict_flood", "verdict_forward"]
        .map(|counter| count(&report, &format!("l2_{counter}{{function=\"switch\"}}")));
    assert!(flooded > 0 && forwarded > 100, "{device}, {mode}: {flooded} flooded, {forwarded} forwarded");
    assert_eq!((flow.created, flow.sent), (flooded, flow.received + flooded));
    assert_eq!(report.ports[2].sent_packets, flooded, "{device}: by the port where nobody is");
    assert_eq!(count(&report, "l2_addresses{function=\"switch\"}"), 2);
    report
}

#[test]
fn what_was_learned_is_not_flooded() {
    talk("cpu", "launch", 1);
    talk("cpu", "launch", 2);
}

#[test]
fn what_was_learned_is_not_flooded_on_opencl() {
    let probe = opencl::probe();
    let Some(found) = probe.found.iter().find(|found| found.usable.is_ok()) else {
        println!("skipped: no OpenCL device can be used");
        return;
    };
    let report = talk(&found.capabilities.id, "launch", 1);
    assert_eq!(report.functions[0].device, found.capabilities.id);
}

/// Captures as ports: each frame of the second run goes where the first one has shown its station to be.
#[test]
fn captures_are_switched_by_static_addresses_and_copied_to_all_ports() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| -> PathBuf { folder.path().join(name) };
    let known = frame(mac(2), mac(1));
    let unknown = frame(mac(9), mac(1));
    let everybody = frame([0xff; 6], mac(1));
    write_capture(&path("a.pcap"), &[known.clone(), unknown.clone(), everybody.clone(), known.clone()]);
    let ports: String = ["a", "b", "c", "d"]
        .map(|name| {
            let file = if name == "a" { format!("file = {:?}\n", path("a.pcap")) } else { String::new() };
            format!(
                "[[port]]\nname = \"{name}\"\nkind = \"pcap\"\n{file}write = {:?}\n",
                path(&format!("{name}.out.pcap"))
            )
        })
        .concat();
    let stanza = CHAIN.replace(
        "kind = \"l2\"",
        "kind = \"l2\"\n[[function.mac]]\nmac = \"02:00:00:00:00:02\"\nport = \"b\"\n[[function.mac]]\nmac = \"02:00:00:00:00:01\"\nport = \"a\"",
    );
    let text = format!("[engine]\npin = false\n{ports}{stanza}[[chain]]\nfrom = \"a\"\nto = \"switch\"\n");
    let config = || Config::parse(&text, "test.toml", Path::new(".")).unwrap();
    let report =
        Engine::new(config(), &Options::default()).unwrap().run(&Arc::default(), Some(LIMIT), &mut |_| {}).unwrap();
    assert!(report.conservation.holds());
    assert!(read_capture(&path("a.out.pcap")).is_empty());
    assert_eq!(read_capture(&path("b.out.pcap")), [known.clone(), unknown.clone(), everybody.clone(), known.clone()]);
    for name in ["c.out.pcap", "d.out.pcap"] {
        assert_eq!(read_capture(&path(name)), [unknown.clone(), everybody.clone()]);
    }
    assert_eq!(report.conservation.created, 4);

    // A replay learns nothing, so it gives the same each time.
    write_capture(&path("replayed.pcap"), &[frame(mac(5), mac(4)), known, frame(mac(4), mac(5))]);
    let outputs = ["b", "c", "d"].map(|name| (Some(name.to_owned()), path(&format!("{name}.again.pcap"))));
    let replay = Replay { inputs: vec![(Some("a".to_owned()), path("replayed.pcap"))], outputs: outputs.into() };
    let config = Config::parse(&text, "test.toml", Path::new(".")).unwrap();
    let switch = Arc::clone(&config.functions[0].function);
    let engine = Engine::new(config, &Options { replay: Some(replay), ..Options::default() }).unwrap();
    let report = engine.run(&Arc::default(), None, &mut |_| {}).unwrap();
    assert!(report.conservation.holds());
    let sent = ["b", "c", "d"].map(|name| read_capture(&path(&format!("{name}.again.pcap"))).len());
    assert_eq!((sent, switch.counts()[0]), ([3, 2, 2], 2));
}

/// An operator flushes and adds while frames flow: nothing is lost, and what is said holds for the next frames.
#[test]
fn operators_change_the_table_while_packets_flow() {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixStream;

    let folder = tempfile::tempdir().unwrap();
    let control = folder.path().join("control");
    let text = format!(
        "[engine]\nworkers = 2\npin = false\n[[port]]\nname = \"in\"\nkind = \"synthetic\"\nrate = \"50kpps\"\nflows = 40\n\
         [[port]]\nname = \"out\"\nkind = \"synthetic\"\n[[port]]\nname = \"third\"\nkind = \"synthetic\"\n\
         {CHAIN}[[chain]]\nfrom = \"in\"\nto = \"switch\"\n"
    );
    let config = Config::parse(&text, "test.toml", Path::new(".")).unwrap();
    let switch = Arc::clone(&config.functions[0].function);
    let options = Options { control: Some(control.clone()), ..Options::default() };
    let engine = Engine::new(config, &options).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let report = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = BufReader::new(UnixStream::connect(&control).unwrap());
            let mut ask = |request: serde_json::Value| {
                client.get_mut().write_all(format!("{request}\n").as_bytes()).unwrap();
                let mut line = String::new();
                client.read_line(&mut line).unwrap();
                serde_json::from_str::<serde_json::Value>(&line).unwrap()
            };
            for round in 0..20 {
                let added =
                    json!([{ "mac": "02:00:00:00:00:02", "port": if round % 2 == 0 { "out" } else { "third" } }]);
                let reply = ask(json!({ "function": "switch", "command": "add", "mac": added }));
                assert_eq!(reply["result"]["added"], 1, "{reply}");
                let others = 100 * round..100 * (round + 1);
                let others: Vec<_> = others
                    .map(|n| json!({ "mac": format!("02:00:01:00:{:02x}:{:02x}", n / 256, n % 256), "port": "third" }))
                    .collect();
                assert_eq!(ask(json!({ "function": "switch", "command": "add", "mac": others }))["ok"], true);
                std::thread::sleep(Duration::from_millis(5));
                assert_eq!(ask(json!({ "function": "switch", "command": "delete", "mac": added }))["ok"], true);
            }
            assert_eq!(ask(json!({ "function": "switch", "command": "list", "port": "third" }))["result"]["left"], 0);
            stop.store(true, Ordering::SeqCst);
        });
        engine.run(&stop, Some(LIMIT), &mut |_| {}).unwrap()
    });
    assert!(report.conservation.holds() && report.conservation.in_flight == 0, "{}", report.conservation);
    assert!(switch.counts()[0] >= 2000);
    let [flooded, forwarded] = ["verdict_flood", "verdict_forward"]
        .map(|counter| count(&report, &format!("l2_{counter}{{function=\"switch\"}}")));
    assert!(forwarded > 0 && report.conservation.received == flooded + forwarded);
}
