//! Runs `godwit generate` with two devices under test: Godwit itself and the bridge of the kernel.
//! The namespaces are private to this process.

mod common;

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

const GODWIT: &str = env!("CARGO_BIN_EXE_godwit");

/// Runs `body` in a network namespace with two veth pairs. The namespace ends with its thread.
fn in_namespace(body: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let inside = || {
            if unshare(CloneFlags::CLONE_NEWNET).is_err() {
                std::io::stderr().write_all(b"skipped: no right to make a network namespace\n").unwrap();
                return;
            }
            for (one, other) in [("gw-g0", "gw-g1"), ("gw-g2", "gw-g3")] {
                ip(&format!("link add {one} type veth peer name {other}"));
                for interface in [one, other] {
                    // IPv6 is off, so the kernel sends no neighbour discovery.
                    std::fs::write(format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6"), "1").ok();
                    ip(&format!("link set {interface} up"));
                }
            }
            body();
        };
        scope.spawn(inside).join().unwrap();
    });
}

fn ip(arguments: &str) {
    let done = Command::new("ip").args(arguments.split(' ')).status();
    assert!(done.is_ok_and(|status| status.success()), "ip {arguments}");
}

fn port(name: &str, interface: &str) -> String {
    format!("[[port]]\nname = \"{name}\"\nkind = \"af_xdp\"\ninterface = \"{interface}\"\ntake = \"all\"\n")
}

fn edge(from: &str, to: &str) -> String {
    format!("[[chain]]\nfrom = \"{from}\"\nto = \"{to}\"\n")
}

/// Arguments that send on one end and receive on the other.
fn generator(folder: &Path, flows: usize) -> std::path::PathBuf {
    let path = folder.join("generate.toml");
    let traffic =
        format!("[[port]]\nname = \"traffic\"\nkind = \"synthetic\"\nsize = 60\nflows = {flows}\nrate = \"20kpps\"\n");
    let ports = port("to", "gw-g0") + &port("from", "gw-g3");
    let text = format!("[engine]\npin = false\n{traffic}{ports}{}{}", edge("traffic", "to"), edge("from", "traffic"));
    std::fs::write(&path, text).unwrap();
    path
}

/// Returns the rows of the report of `godwit generate`.
fn generate(config: &Path, arguments: &[&str]) -> Vec<Value> {
    let output =
        Command::new(GODWIT).arg("generate").arg(config).args(arguments).args(["--json", "-"]).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document["rows"].as_array().unwrap().clone()
}

/// A running `godwit run`. Drop stops it.
struct Device(Child);

impl Device {
    fn start(folder: &Path) -> Self {
        let config = folder.join("device.toml");
        let echo = "[[function]]\nname = \"echo\"\nkind = \"echo\"\n";
        let ports = port("left", "gw-g1") + &port("right", "gw-g2");
        let text = format!("[engine]\npin = false\n{ports}{echo}{}{}", edge("left", "echo"), edge("echo", "right"));
        std::fs::write(&config, text).unwrap();
        let json = folder.join("device.json");
        let child = Command::new(GODWIT)
            .args(["run", config.to_str().unwrap(), "--seconds", "60", "--json", json.to_str().unwrap()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// Returns the counters of the device under test.
    fn stop(mut self, folder: &Path) -> Value {
        kill(Pid::from_raw(self.0.id() as i32), Signal::SIGINT).unwrap();
        let status = self.0.wait().unwrap();
        assert!(status.success(), "packets were conserved");
        serde_json::from_slice(&std::fs::read(folder.join("device.json")).unwrap()).unwrap()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Sends a few packets until they arrive: then XDP programs are attached and the bridge forwards.
fn until_it_forwards(config: &Path) {
    let started = Instant::now();
    loop {
        let rows = generate(config, &["--seconds", "0.05", "--rate", "2kpps"]);
        if rows[0]["received"] == rows[0]["sent"] && rows[0]["sent"] != 0 {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(30), "nothing comes through: {rows:?}");
    }
}

#[test]
fn generator_and_device_count_the_same_packets() {
    in_namespace(|| {
        let folder = tempfile::tempdir().unwrap();
        let device = Device::start(folder.path());
        let config = generator(folder.path(), 64);
        until_it_forwards(&config);
        for size in ["60", "imix"] {
            let rows = generate(&config, &["--seconds", "0.5", "--size", size]);
            let row = &rows[0];
            assert_eq!(row["sent"], 10_000, "{row}");
            for none in ["lost", "duplicates", "reordered", "foreign"] {
                assert_eq!(row[none], 0, "{row}");
            }
            assert!(row["p50_us"].as_f64() > Some(0.0) && row["p50_us"].as_f64() <= row["max_us"].as_f64(), "{row}");
        }
        let report = device.stop(folder.path());
        let conservation = &report["report"]["conservation"];
        let conservation = if conservation.is_null() { &report["conservation"] } else { conservation };
        assert_eq!(conservation["received"], conservation["sent"], "{report}");
    });
}

/// Returns the packets that an interface's counters report as received and sent.
fn interface(name: &str) -> [u64; 2] {
    let printed = Command::new("ip").args(["-s", "-j", "link", "show", "dev", name]).output().unwrap();
    let printed: Value = serde_json::from_slice(&printed.stdout).unwrap();
    ["rx", "tx"].map(|direction| printed[0]["stats64"][direction]["packets"].as_u64().unwrap())
}

fn has_xdp(name: &str) -> bool {
    let printed = Command::new("ip").args(["-j", "link", "show", "dev", name]).output().unwrap();
    let printed: Value = serde_json::from_slice(&printed.stdout).unwrap();
    printed[0].get("xdp").is_some()
}

/// Searches a rate, then holds a far lower one. All counters agree exactly.
#[test]
fn all_counters_of_a_held_rate_agree() {
    in_namespace(|| {
        let folder = tempfile::tempdir().unwrap();
        let device = Device::start(folder.path());
        // The device does not count packets from before the attachment of its program. The other
        // port only sends.
        let started = Instant::now();
        while !has_xdp("gw-g1") {
            assert!(started.elapsed() < Duration::from_secs(30), "it does not attach");
            std::thread::sleep(Duration::from_millis(20));
        }
        let config = generator(folder.path(), 64);
        until_it_forwards(&config);
        // Waits until no packet is in flight. The device counts from its start, the generator
        // counts per run.
        let interfaces = ["gw-g0", "gw-g1", "gw-g2", "gw-g3"];
        let before = interfaces.map(interface);
        // The rate depends on the machine. Counters contain all losses.
        let mut rows = generate(
            &config,
            &[
                "--search",
                "--rate",
                "40kpps",
                "--seconds",
                "0.3",
                "--loss",
                "0.5",
                "--resolution",
                "0.2",
                "--latency-at",
                "0",
            ],
        );
        let found = rows.pop().unwrap();
        assert_eq!(found["impl"], "throughput");
        let held = format!("{}pps", (found["offered_pps"].as_f64().unwrap() / 20.0).round());
        rows.extend(generate(
            &config,
            &["--search", "--rate", &held, "--seconds", "0.2", "--hold", "2", "--latency-at", "0"],
        ));
        assert_eq!(rows.pop().unwrap()["impl"], "throughput");
        let hold = rows.last().unwrap();
        assert_eq!(
            (&hold["impl"], &hold["lost"], &hold["duplicates"]),
            (&"hold".into(), &0.into(), &0.into()),
            "{hold}"
        );
        assert_eq!((&hold["seconds"], &hold["received"]), (&2.0.into(), &hold["sent"]), "{hold}");

        let after = interfaces.map(interface);
        let [to, left, right, from] =
            [0, 1, 2, 3].map(|at| [0, 1].map(|direction| after[at][direction] - before[at][direction]));
        let report = device.stop(folder.path());
        let counters = &report["counters"];
        let of = |port: &str, name: &str| counters[format!("port_{name}{{port=\"{port}\"}}")].as_u64().unwrap_or(0);
        let total = |key: &str| rows.iter().map(|row| row[key].as_u64().unwrap()).sum::<u64>();
        assert_eq!(total("sent"), to[1], "the generator and its interface");
        assert_eq!(to[1], left[0], "the two ends of a cable");
        // The device counts from its start.
        assert_eq!(
            of("left", "received_packets") + of("left", "missed") + of("left", "left_to_kernel"),
            after[1][0],
            "the device and its interface"
        );
        assert_eq!(of("left", "received_packets"), of("right", "sent_packets") + of("right", "refused"), "the device");
        assert_eq!(of("right", "sent_packets"), after[2][1], "the device and its other interface");
        assert_eq!(right[1], from[0], "the two ends of the other cable");
        assert!(total("received") <= from[0], "the generator found no more than came");
        assert_eq!(total("received") + total("lost"), total("sent"));
    });
}

#[test]
fn the_search_finds_the_rate_of_the_bridge() {
    in_namespace(|| {
        let folder = tempfile::tempdir().unwrap();
        ip("link add gw-gb type bridge");
        ip("link set gw-gb up");
        ip("link set gw-g1 master gw-gb");
        ip("link set gw-g2 master gw-gb");
        let config = generator(folder.path(), 16);
        until_it_forwards(&config);
        // Every machine reaches this rate, so the search ends quickly. The latency follows.
        let rows =
            generate(&config, &["--search", "--rate", "5kpps", "--seconds", "0.3", "--hold", "0.5", "--loss", "0.2"]);
        let purposes: Vec<&str> = rows.iter().map(|row| row["impl"].as_str().unwrap()).collect();
        assert_eq!(purposes, ["search", "hold", "throughput", "latency"], "{rows:?}");
        assert_eq!(rows[2]["offered_pps"], 5000.0);
        assert_eq!(rows[3]["offered_pps"], 4500.0);
        assert_eq!(rows[1]["sent"], 2500);
        // A bridge that is down returns no packet, so no rate is found.
        ip("link set gw-gb down");
        let down = Command::new(GODWIT)
            .args([
                "generate",
                config.to_str().unwrap(),
                "--search",
                "--rate",
                "100pps",
                "--seconds",
                "0.1",
                "--resolution",
                "0.5",
            ])
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&down.stderr);
        assert_eq!(down.status.code(), Some(2), "{printed}");
        assert!(printed.contains("found no rate with a loss of at most"), "{printed}");
    });
}

#[test]
fn invalid_arguments_are_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |text: &str, arguments: &[&str]| {
        let config = folder.path().join("wrong.toml");
        std::fs::write(&config, text).unwrap();
        let output = Command::new(GODWIT).arg("generate").arg(&config).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let synthetic = |name: &str| format!("[[port]]\nname = \"{name}\"\nkind = \"synthetic\"\n");
    let one = synthetic("one") + &edge("one", "one");
    let two = synthetic("one") + &synthetic("two") + &edge("one", "two");
    assert!(refused(&two, &[]).contains("are both synthetic"));
    assert!(refused(&one, &["--search"]).contains("--search needs --rate"));
    assert!(refused(&one, &["--size", "50"]).contains("packets with probe = true need at least 59 bytes"));
    assert!(refused(&one, &["--loss", "2"]).contains("--loss 2: must be 0 to 1"));
    assert!(refused(&one, &["--rate", "fast"]).contains("is not a rate"));
}
