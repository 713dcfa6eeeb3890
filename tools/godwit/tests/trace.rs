//! Tests `godwit trace` with a running Godwit, and `godwit replay --trace`.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use common::running::Running;
use common::{Finished, godwit, listing, run};
use godwit_test_support::{ConfigText, Peer};
use serde_json::{Value, json};

/// Router on two workers. Half of the packets go to a blackhole.
fn gateway() -> String {
    let hole = "[[function.next_hop]]\nname = \"hole\"\nblackhole = true\n\
                [[function.route]]\nprefix = \"10.8.0.0/13\"\nnext_hop = \"hole\"";
    let packets = "rate = \"100kpps\"\nflows = 200\ndestination = \"10.0.0.0/12\"";
    let config = ConfigText::new().engine("workers = 2").router("lan", "wan", packets, hole);
    config.class("branch", "destination = \"10.2.0.0/15\"").to_string()
}

/// A client that implements the protocol of the control socket.
struct Client(BufReader<UnixStream>);

impl Client {
    fn connect(control: &Path) -> Self {
        Self(BufReader::new(UnixStream::connect(control).unwrap()))
    }

    fn ask(&mut self, request: &Value) -> Value {
        self.0.get_mut().write_all(format!("{request}\n").as_bytes()).unwrap();
        let mut reply = String::new();
        self.0.read_line(&mut reply).unwrap();
        serde_json::from_str(&reply).unwrap()
    }
}

fn trace(control: &Path) -> Command {
    let mut command = godwit();
    command.arg("trace").arg("--control").arg(control);
    command
}

fn counter(report: &Value, name: &str) -> u64 {
    report["counters"][name].as_u64().unwrap_or(0)
}

#[test]
fn packets_of_a_running_godwit() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("gateway.toml"), gateway()).unwrap();
    let control = path("control");
    let printed = run(&mut trace(&control));
    assert!(printed.refused().contains("no godwit answers at"), "{printed:?}");
    let running = Running::start(&path("gateway.toml"), &control);

    let printed = run(trace(&control).args(["--count", "3"])).succeeded();
    let steps = |of: &str| printed.stdout.lines().filter(|line| line.contains(of)).count();
    assert_eq!(
        (steps("received by lan, class "), steps("to cpu: chunk "), steps("back from cpu")),
        (3, 3, 3),
        "{printed:?}"
    );
    assert_eq!(steps("sent by wan, 60 bytes") + steps("dropped: "), 3, "{printed:?}");
    assert!(printed.stdout.starts_with("packet ") && printed.stdout.ends_with("\n3 packets traced\n"), "{printed:?}");

    let printed = run(trace(&control).args(["--class", "branch", "--protocol", "udp,6", "--json", "-"])).succeeded();
    let found: Value = serde_json::from_str(&printed.stdout).unwrap();
    let packets = found["packets"].as_array().unwrap();
    assert_eq!((packets.len(), &found["chosen"], &found["missed"]), (10, &json!(10), &json!(0)));
    for packet in packets {
        let destination = packet["destination"].as_str().unwrap();
        assert!(destination.starts_with("10.2.") || destination.starts_with("10.3."), "{packet}");
        assert_eq!((&packet["fate"], &packet["steps"][0]["class"]), (&json!("sent"), &json!("branch")));
        let last = packet["steps"].as_array().unwrap().last().unwrap();
        assert_eq!((&last["step"], &last["port"]), (&json!("sent"), &json!("wan")));
    }
    // Text goes to standard error, which holds no packets.
    assert!(printed.stderr.contains("10 packets traced"), "{printed:?}");

    let arguments =
        ["--dropped", "--count", "5", "--source-ports", "0-65535", "--destination", "10.8.0.0/14,10.12.0.0/14"];
    let printed = run(trace(&control).args(arguments)).succeeded();
    let suffix = "(ipv4_dropped_blackhole{function=\"route\"})";
    let is_dropped = |line: &&str| line.contains("dropped: ") && line.ends_with(suffix);
    assert_eq!(printed.stdout.lines().filter(is_dropped).count(), 5, "{printed:?}");
    let printed =
        run(trace(&control).args(["--dropped", "--destination", "10.0.0.0/13", "--timeout", "0.2"])).succeeded();
    assert_eq!(printed.stdout, "0 packets traced\n");

    for (arguments, expected) in [
        (&["--class", "brunch"][..], "did you mean `branch`?"),
        (&["--port", "lan,wam"], "did you mean `wan`?"),
        (&["--protocol", "upd"], "did you mean `udp`?"),
        (&["--source", "10.0.0.0/33"], "`source`: "),
        (&["--destination-ports", "1-x"], "`destination_ports`: "),
        (&["--count", "0"], "`count` must be a number from 1 to 4096"),
        (&["--timeout", "0"], "expected seconds above 0"),
        (&["--pcap", "/nowhere/trace.pcapng"], "/nowhere/trace.pcapng"),
    ] {
        let printed = run(trace(&control).args(arguments));
        assert!(printed.refused().contains(expected), "{arguments:?}: {printed:?}");
    }

    // Only one trace runs at a time. It ends when its client disconnects.
    let mut client = Client::connect(&control);
    let none = client.ask(&json!({ "command": "trace", "action": "read" }));
    assert_eq!(none["ok"], false, "{none}");
    let wrong = client.ask(&json!({ "command": "trace" }));
    assert!(wrong["error"].as_str().unwrap().contains("`start`, `read` or `stop`"), "{wrong}");
    let start = json!({ "command": "trace", "action": "start", "filter": { "destination": "192.0.2.1" } });
    assert_eq!(client.ask(&start), json!({ "ok": true, "result": null }));
    assert_eq!(client.ask(&start)["ok"], false);
    let printed = run(&mut trace(&control));
    assert!(printed.refused().contains("another client is tracing"), "{printed:?}");
    let stopped = client.ask(&json!({ "command": "trace", "action": "stop" }));
    assert_eq!(stopped["result"], json!({ "packets": [], "over": true, "chosen": 0, "missed": 0 }));
    assert_eq!(client.ask(&start)["ok"], true);
    drop(client);
    while run(trace(&control).args(["--count", "1"])).code != Some(0) {}

    // A waiting trace ends with the run, and returns its packets.
    let mut other = Client::connect(&control);
    let start_waiting = || {
        let mut command = trace(&control);
        command.args(["--destination", "192.0.2.1", "--json"]).arg(path("none.json"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut waiting = start_waiting();
    // A refused start shows that the waiting trace has started. The waiting trace is itself refused
    // if it starts between a start and a stop below. It is then started again.
    while other.ask(&json!({ "command": "trace", "action": "start" }))["ok"] == true {
        assert_eq!(other.ask(&json!({ "command": "trace", "action": "stop" }))["ok"], true);
        if waiting.try_wait().unwrap().is_some() {
            waiting = start_waiting();
        }
    }
    assert_eq!(other.ask(&json!({ "command": "stop" }))["ok"], true);
    let printed = Finished::from_output(waiting.wait_with_output().unwrap()).succeeded();
    assert_eq!(printed.stdout, "0 packets traced\n");
    let none: Value = serde_json::from_str(&fs::read_to_string(path("none.json")).unwrap()).unwrap();
    assert_eq!(none, json!({ "packets": [], "chosen": 0, "missed": 0 }));
    let report = running.finish();
    assert!(counter(&report, "ipv4_dropped_blackhole{function=\"route\"}") >= 5);
}

/// Returns the fields that `tshark` reads from a capture, one line per packet.
fn fields(tshark: &Peer, capture: &Path, fields: &[&str]) -> Vec<Vec<String>> {
    let mut command = tshark.command();
    command.arg("-r").arg(capture).args(["-T", "fields"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let printed = run(&mut command).succeeded();
    printed.stdout.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

#[test]
fn a_replay_is_traced_into_a_capture() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("gateway.toml"), gateway()).unwrap();
    let limited = gateway().replace("rate = \"100kpps\"", "packets = 300");
    let made = limited.replace(
        "[[port]]\nname = \"wan\"\nkind = \"synthetic\"",
        "[[port]]\nname = \"wan\"\nkind = \"pcap\"\nwrite = \"in.pcap\"",
    );
    // Frames that enter by `lan` in the replay.
    let straight = made.split("[[function]]").next().unwrap().to_owned() + "[[chain]]\nfrom = \"lan\"\nto = \"wan\"\n";
    fs::write(path("made.toml"), straight.replace("write = \"in.pcap\"", &format!("write = {:?}", path("in.pcap"))))
        .unwrap();
    run(godwit().arg("run").arg(path("made.toml"))).succeeded();

    let replay = |arguments: &[&str]| {
        let mut command = godwit();
        command
            .arg("replay")
            .arg(path("gateway.toml"))
            .arg("--in")
            .arg(path("in.pcap"))
            .arg("--out")
            .arg(path("out.pcap"));
        run(command.args(arguments).current_dir(folder.path()))
    };
    for arguments in [&["--class", "branch"][..], &["--trace-pcap", "trace.pcapng"]] {
        let printed = replay(arguments);
        assert!(printed.refused().contains("--trace"), "{printed:?}");
    }
    let printed = replay(&["--trace", "--class", "brunch"]);
    assert!(printed.refused().contains("did you mean `branch`?"), "{printed:?}");
    let printed = replay(&[
        "--trace",
        "--count",
        "4096",
        "--trace-pcap",
        "trace.pcapng",
        "--trace-json",
        "trace.json",
        "--json",
        "report.json",
    ]);
    let printed = printed.succeeded();
    assert!(printed.stdout.contains("\n300 packets traced\n"), "{printed:?}");
    let read = |name: &str| serde_json::from_str::<Value>(&fs::read_to_string(path(name)).unwrap()).unwrap();
    let (report, found) = (read("report.json"), read("trace.json"));
    let packets = found["packets"].as_array().unwrap();
    let dropped = counter(&report, "ipv4_dropped_blackhole{function=\"route\"}") as usize;
    let fates = |fate: &str| packets.iter().filter(|packet| packet["fate"] == fate).count();
    assert!(dropped > 0 && dropped < 300);
    assert_eq!((fates("dropped"), fates("sent")), (dropped, 300 - dropped));
    assert_eq!(listing(folder.path()).iter().filter(|name| name.ends_with(".part")).count(), 0);

    let Some(tshark) = Peer::find("tshark") else { return };
    let rows = fields(
        &tshark,
        &path("trace.pcapng"),
        &["frame.interface_name", "frame.packet_flags_direction", "ip.dst", "ip.ttl"],
    );
    assert_eq!(rows.len(), 300 + fates("sent"));
    let mut rows = rows.iter();
    for packet in packets {
        let row = rows.next().unwrap();
        assert_eq!([&*row[0], &row[2], &row[3]], ["lan", packet["destination"].as_str().unwrap(), "64"], "{packet}");
        if packet["fate"] == "sent" {
            let left = rows.next().unwrap();
            assert_eq!([&*left[0], &left[2], &left[3]], ["wan", &row[2], "63"]);
            assert_ne!(row[1], left[1], "in and out");
        }
    }
    let mut command = tshark.command();
    command.arg("-r").arg(path("trace.pcapng")).args(["-c", "1", "-V"]);
    let printed = run(&mut command).succeeded();
    assert!(
        printed.stdout.contains("packet 1  ") && printed.stdout.contains("received by lan, class "),
        "{}",
        printed.stdout
    );
}
