//! DPDK ports on kernel interfaces. Tests cover links that go down, MTUs that shrink, and a program
//! that stalls or is killed. Godwit recovers, counts losses, and leaves no files.
#![cfg(feature = "dpdk")]

mod common;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

const DRIVERS: [&str; 2] = ["net_af_packet", "net_af_xdp"];
/// Longest time that a test waits for an event.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs the test once for each driver, in a separate network. Frames go from gw-p0 to gw-k0, are
/// echoed by gw-k1, and return to gw-p1.
fn with_each_driver(test: fn(&str, &Path)) {
    for driver in DRIVERS {
        let body = || {
            if unshare(CloneFlags::CLONE_NEWNET).is_err() {
                std::io::stderr().write_all(b"skipped: no right to make a network namespace\n").expect("stderr");
                return;
            }
            std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").ok();
            for number in 0..2 {
                ip(&format!("link add gw-k{number} type veth peer name gw-p{number}"));
                for interface in ["k", "p"] {
                    ip(&format!("link set gw-{interface}{number} up"));
                }
            }
            let folder = tempfile::tempdir().expect("a folder");
            test(driver, folder.path());
        };
        // A separate thread owns the namespace. The namespace ends with it.
        std::thread::scope(|scope| scope.spawn(body).join().expect("the test passes"));
    }
}

fn ip(arguments: &str) -> String {
    let printed = Command::new("ip").args(arguments.split(' ')).output().expect("ip starts");
    assert!(printed.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&printed.stderr));
    String::from_utf8_lossy(&printed.stdout).into_owned()
}

fn interface(name: &str) -> Value {
    let printed: Value = serde_json::from_str(&ip(&format!("-d -s -j link show dev {name}"))).expect("JSON");
    printed[0].clone()
}

/// Returns a counter of an interface. `direction` is `rx` or `tx`.
fn counted(name: &str, direction: &str, what: &str) -> u64 {
    interface(name)["stats64"][direction][what].as_u64().expect("a counter")
}

fn has_program(name: &str) -> bool {
    interface(name).get("xdp").is_some()
}

/// Returns whether an interface is in its initial state: it has no XDP program and receives only
/// its own frames.
fn is_free(name: &str) -> bool {
    let interface = interface(name);
    interface.get("xdp").is_none() && interface["promiscuity"] == 0
}

#[track_caller]
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LIMIT, "waited {} s for {what}", LIMIT.as_secs());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sends 100 frames of 60 to 1347 bytes. Returns how many of them return unchanged.
fn echoed() -> u64 {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/peers/veth_frames.py");
    let printed = Command::new("/usr/bin/python3").args([script, "gw-p0", "gw-p1", "100"]).output().expect("python");
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    printed.trim().rsplit(' ').next().and_then(|right| right.parse().ok()).expect("the script says how many were right")
}

/// The program with the function `echo` between two ports of a driver. Drop kills it.
struct Echo {
    child: Child,
    report: PathBuf,
    printed: PathBuf,
}

impl Echo {
    /// Starts the program, and waits until it has opened its ports.
    fn start(driver: &str, folder: &Path) -> Self {
        let port = |name: &str, number: u8| {
            format!("[[port]]\nname = \"{name}\"\nkind = \"dpdk\"\ndevice = \"{driver}{number},iface=gw-k{number}\"\n")
        };
        let text = format!(
            "[engine]\npin = false\n{}{}[[function]]\nname = \"echo\"\nkind = \"echo\"\n[[chain]]\nfrom = \"left\"\nto = \"echo\"\n\
             [[chain]]\nfrom = \"echo\"\nto = \"right\"\n",
            port("left", 0),
            port("right", 1)
        );
        let [config, report, printed, control] =
            ["echo.toml", "report.json", "printed", "control"].map(|name| folder.join(name));
        std::fs::write(&config, text).expect("a file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_godwit"));
        command.arg("run").arg(&config).arg("--json").arg(&report).arg("--control").arg(&control);
        let log = std::fs::File::create(&printed).expect("a file");
        let child = command.stdout(Stdio::null()).stderr(log).spawn().expect("it starts");
        let mut echo = Self { child, report, printed };
        wait_for("the start", || {
            assert!(echo.child.try_wait().expect("it can be asked").is_none(), "{driver}: {}", echo.printed());
            common::godwit()
                .arg("status")
                .arg("--control")
                .arg(&control)
                .output()
                .is_ok_and(|printed| printed.status.success())
        });
        assert_eq!(echoed(), 100, "{driver}: {}", echo.printed());
        echo
    }

    /// Returns the messages of the program on standard error.
    fn printed(&self) -> String {
        std::fs::read_to_string(&self.printed).expect("its messages")
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("it runs");
    }

    /// Stops the program, checks that packets are conserved, and returns the report.
    fn stop(mut self) -> Value {
        self.signal(Signal::SIGTERM);
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}: {}", self.printed());
        common::conserved(&std::fs::read_to_string(&self.report).expect("a report"))
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a counter of a port.
fn of(report: &Value, port: &str, counter: &str) -> u64 {
    report["counters"][format!("port_{counter}{{port=\"{port}\"}}")].as_u64().unwrap_or(0)
}

/// The counters of the kernel interface and of the program agree: each frame was received, missed,
/// sent or dropped.
#[track_caller]
fn agrees_with_the_kernel(report: &Value) {
    let got = of(report, "left", "received_packets") + of(report, "left", "missed");
    assert_eq!(got, counted("gw-k0", "rx", "packets"), "{report:#}");
    let left = counted("gw-k1", "tx", "packets") + counted("gw-k1", "tx", "dropped");
    assert_eq!(of(report, "right", "sent_packets"), left, "{report:#}");
}

#[test]
fn links_that_go_down_come_back() {
    with_each_driver(|driver, folder| {
        let echo = Echo::start(driver, folder);
        // The link goes down at the program's end of each cable. Then it goes down at the far end,
        // which removes the carrier.
        for (port, interface) in [(0, "gw-k0"), (1, "gw-k1"), (1, "gw-p1")] {
            let before = echo.printed().matches(&format!("{driver}{port}: link is up")).count();
            ip(&format!("link set {interface} down"));
            wait_for("its link to be down", || {
                echo.printed().matches(&format!("{driver}{port}: link is down")).count() > before
            });
            ip(&format!("link set {interface} up"));
            wait_for("its link to be up", || {
                echo.printed().matches(&format!("{driver}{port}: link is up")).count() > before
            });
            wait_for("packets", || echoed() == 100);
        }
        agrees_with_the_kernel(&echo.stop());
    });
}

/// Frames that exceed the MTU are refused and counted. The others pass.
#[test]
fn ports_use_a_changed_mtu() {
    with_each_driver(|driver, folder| {
        let echo = Echo::start(driver, folder);
        ip("link set gw-k1 mtu 1000");
        wait_for("the MTU", || echo.printed().contains(&format!("{driver}1: the MTU of its interface is 1000")));
        // Frame i has 60 + 13 i bytes.
        assert_eq!(echoed(), 74);
        ip("link set gw-k1 mtu 1500");
        wait_for("the MTU", || echo.printed().contains(&format!("{driver}1: the MTU of its interface is 1500")));
        assert_eq!(echoed(), 100);
        let report = echo.stop();
        assert_eq!((of(&report, "right", "over_mtu"), of(&report, "right", "refused")), (26, 26), "{report:#}");
        agrees_with_the_kernel(&report);
    });
}

/// After a stop, the program finds full queues. Frames that did not fit are counted. Traffic
/// continues.
#[test]
fn a_stalled_queue_counts_losses_and_recovers() {
    with_each_driver(|driver, folder| {
        let echo = Echo::start(driver, folder);
        let before = counted("gw-k0", "rx", "packets");
        echo.signal(Signal::SIGSTOP);
        // The test sends more frames than all rings hold.
        let flood = "import socket\n\
            s=socket.socket(socket.AF_PACKET,socket.SOCK_RAW); s.bind(('gw-p0',0))\n\
            for i in range(10000): s.send(b'\\2\\0\\0\\0\\0\\1'+b'\\2\\0\\0\\0\\0\\2'+b'\\x88\\xb5'+bytes(46))\n";
        let printed = Command::new("/usr/bin/python3").args(["-c", flood]).output().expect("python");
        assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
        assert!(counted("gw-k0", "rx", "packets") > before + 5000, "the flood has arrived");
        echo.signal(Signal::SIGCONT);
        wait_for("the queue", || echoed() == 100);
        let report = echo.stop();
        agrees_with_the_kernel(&report);
        assert!(of(&report, "left", "missed") > 1000, "{driver}: {report:#}");
        assert!(of(&report, "left", "received_packets") > 1000, "{driver}: {report:#}");
    });
}

/// Returns the files that DPDK creates, and the hugepage file systems.
fn files() -> BTreeSet<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/mounts").expect("this is Linux");
    let hugepages = mounts.lines().filter_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        (*words.get(2)? == "hugetlbfs").then(|| words[1].to_owned())
    });
    let folders = ["/var/run/dpdk", "/dev/shm"].map(str::to_owned).into_iter().chain(hugepages);
    folders.filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten().map(|entry| entry.path()).collect()
}

#[test]
fn a_killed_process_leaves_no_files_or_programs() {
    with_each_driver(|driver, folder| {
        let before = files();
        for _ in 0..3 {
            let mut echo = Echo::start(driver, folder);
            assert_eq!(has_program("gw-k0") && has_program("gw-k1"), driver == "net_af_xdp");
            assert!(!is_free("gw-k0") && !is_free("gw-k1"));
            assert!(!echo.printed().contains("has no owner"), "{}", echo.printed());
            echo.signal(Signal::SIGKILL);
            echo.child.wait().expect("it ends");
            wait_for("the interfaces", || is_free("gw-k0") && is_free("gw-k1"));
            let left: Vec<_> = files().difference(&before).cloned().collect();
            let of_process = format!("{}", echo.child.id());
            assert!(!left.iter().any(|path| path.to_string_lossy().contains(&of_process)), "{left:?}");
            assert!(!left.iter().any(|path| path.to_string_lossy().contains("godwit")), "{left:?}");
        }
        // A program that ends by itself leaves no file either.
        Echo::start(driver, folder).stop();
        wait_for("the interfaces", || is_free("gw-k0") && is_free("gw-k1"));
    });
}
