//! Networks for tests: network namespaces that veth pairs connect. Tests run other programs and the
//! built `godwit` in them.
//!
//! The namespaces are private to the test and are removed at its end, also after a failure.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::common;

/// Longest time that a test waits for an event.
const LIMIT: Duration = Duration::from_secs(30);

/// A network: hosts, links between them, and a folder for files.
pub(crate) struct Net {
    prefix: String,
    namespaces: Vec<String>,
    folder: tempfile::TempDir,
}

/// A host of the network.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    namespace: String,
}

/// Counters of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) received: u64,
    pub(crate) sent: u64,
    /// Packets that were lost on transmit because the other end of the cable was full.
    pub(crate) dropped: u64,
}

impl Net {
    /// Creates an empty network. Reports a skip and returns `None` if the user may not create
    /// namespaces or if a program of `tools` is missing.
    pub(crate) fn new(tools: &[&str]) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("gw-t{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let made = Command::new("ip").args(["netns", "add", &format!("{prefix}-try")]).output();
        if !made.is_ok_and(|made| made.status.success()) {
            let sentence = "skipped: topologies need the right to make network namespaces: run them as root";
            writeln!(std::io::stderr(), "{sentence}").expect("stderr can be written");
            return None;
        }
        let namespaces = vec![format!("{prefix}-try")];
        let net = Self { prefix, namespaces, folder: tempfile::tempdir().expect("a folder") };
        // The unprivileged user of a program writes its report here.
        let all = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(net.folder.path(), all).expect("the folder is ours");
        let is_there = |tool: &&str| {
            let found = Command::new("sh").args(["-c", &format!("command -v {tool}")]).stdout(Stdio::null()).status();
            found.is_ok_and(|found| found.success())
        };
        match tools.iter().find(|tool| !is_there(tool)) {
            Some(tool) => {
                godwit_test_support::absent(tool);
                None
            }
            None => Some(net),
        }
    }

    /// Adds a host without interfaces. Interfaces get only configured IPv6 addresses, so they send
    /// nothing by themselves.
    pub(crate) fn host(&mut self, name: &str) -> Host {
        let namespace = format!("{}-{name}", self.prefix);
        ip(&["netns", "add", &namespace]);
        self.namespaces.push(namespace.clone());
        let host = Host { namespace };
        host.sh("ip link set lo up");
        host.sh("for f in all default; do echo 0 > /proc/sys/net/ipv6/conf/$f/accept_dad; echo 1 > /proc/sys/net/ipv6/conf/$f/addr_gen_mode; done");
        host.sh("echo 0 > /proc/sys/net/ipv6/conf/default/router_solicitations; echo 0 > /proc/sys/net/ipv6/conf/all/router_solicitations");
        host
    }

    /// Connects two hosts by a cable. Each end has a name and addresses. Both ends compute
    /// checksums in software, because a veth leaves them to absent hardware and XDP forwards them
    /// uncompleted.
    pub(crate) fn cable(&self, ends: [(&Host, &str, &[&str]); 2]) {
        let [(one, one_name, _), (other, other_name, _)] = ends;
        ip(&[
            "link",
            "add",
            one_name,
            "netns",
            &one.namespace,
            "type",
            "veth",
            "peer",
            "name",
            other_name,
            "netns",
            &other.namespace,
        ]);
        for (host, name, addresses) in ends {
            host.sh(&format!("ethtool -K {name} tx off"));
            for address in addresses {
                host.sh(&format!("ip addr add {address} dev {name}"));
            }
            host.sh(&format!("ip link set {name} up"));
        }
    }

    /// Returns a path in the network's folder.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content).expect("a file is written");
        path
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for namespace in &self.namespaces {
            // Processes in a namespace keep it alive, so they end first.
            let _ = Command::new("sh").args(["-c", &format!("ip netns pids {namespace} | xargs -r kill -9")]).status();
            let _ = Command::new("ip").args(["netns", "del", namespace]).status();
        }
    }
}

impl Host {
    /// Returns a command that runs on the host.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace, program]);
        command
    }

    /// Runs a shell command that must succeed. Returns its output.
    #[track_caller]
    pub(crate) fn sh(&self, line: &str) -> String {
        let output = self.try_sh(line);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "`{line}`: {}\n{stdout}{stderr}", output.status);
        stdout
    }

    pub(crate) fn try_sh(&self, line: &str) -> Output {
        self.command("sh").args(["-c", line]).output().expect("sh starts")
    }

    /// Starts a shell command in the background. The network kills it at its end.
    pub(crate) fn start(&self, line: &str) -> Running {
        let mut command = self.command("sh");
        command.args(["-c", &format!("exec {line}")]);
        Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("sh starts"))
    }

    /// Returns the output of `ip` for an interface.
    pub(crate) fn interface(&self, name: &str) -> Value {
        let printed: Value = serde_json::from_str(&self.sh(&format!("ip -s -j link show dev {name}"))).expect("JSON");
        printed[0].clone()
    }

    pub(crate) fn mac(&self, name: &str) -> String {
        self.interface(name)["address"].as_str().expect("an address").to_owned()
    }

    pub(crate) fn counted(&self, name: &str) -> Counted {
        let interface = self.interface(name);
        let of = |direction: &str, counter: &str| interface["stats64"][direction][counter].as_u64().expect("a counter");
        Counted { received: of("rx", "packets"), sent: of("tx", "packets"), dropped: of("tx", "dropped") }
    }

    /// Returns whether the interface has an XDP program.
    pub(crate) fn has_xdp(&self, name: &str) -> bool {
        self.interface(name).get("xdp").is_some()
    }

    /// Adds permanent neighbour entries.
    pub(crate) fn knows(&self, interface: &str, address: &str, mac: &str) {
        self.sh(&format!("ip neigh replace {address} lladdr {mac} dev {interface} nud permanent"));
    }

    /// Starts the built `godwit`, and waits until it has opened the interfaces.
    pub(crate) fn godwit(&self, net: &Net, config: &str, interfaces: &[&str]) -> Godwit {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let config = net.file(&format!("godwit-{number}.toml"), config);
        let json = net.folder().join(format!("godwit-{number}.json"));
        let printed = net.folder().join(format!("godwit-{number}.log"));
        let log = std::fs::File::create(&printed).expect("a file");
        let mut command = self.command(env!("CARGO_BIN_EXE_godwit"));
        command.arg("run").arg(&config).arg("--json").arg(&json).stdout(Stdio::null()).stderr(log);
        let mut child = command.spawn().expect("the program starts");
        wait_for("the program to attach", || {
            if let Some(status) = child.try_wait().expect("it can be asked") {
                panic!("{status}: {}", std::fs::read_to_string(&printed).unwrap_or_default());
            }
            interfaces.iter().all(|name| self.has_xdp(name))
        });
        Godwit { child: Running(child), json, printed }
    }
}

/// A process that is killed on drop.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id() as i32), signal).expect("it runs");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running Godwit.
pub(crate) struct Godwit {
    pub(crate) child: Running,
    json: PathBuf,
    printed: PathBuf,
}

impl Godwit {
    /// Returns whether a line reports this event.
    pub(crate) fn reports(&self, event: &str) -> bool {
        let printed = std::fs::read_to_string(&self.printed).unwrap_or_default();
        printed.lines().any(|line| line.starts_with("time=") && line.contains(&format!(" {event} message=")))
    }

    /// Stops Godwit, checks that packets are conserved, and returns the report.
    #[track_caller]
    pub(crate) fn stop(mut self) -> Value {
        self.child.signal(Signal::SIGTERM);
        let status = self.child.0.wait().expect("it ends");
        let printed = std::fs::read_to_string(&self.printed).unwrap_or_default();
        assert!(status.success(), "{status}: {printed}");
        common::conserved(&std::fs::read_to_string(&self.json).expect("a report"))
    }
}

/// Returns the sum of a counter over all functions of a report.
pub(crate) fn counter(report: &Value, name: &str) -> u64 {
    let counters = report["counters"].as_object().expect("counters");
    let labelled = format!("{name}{{");
    let of_name = counters.iter().filter(|(key, _)| *key == name || key.starts_with(&labelled));
    of_name.filter_map(|(_, value)| value.as_u64()).sum()
}

/// Returns a counter of a port from a report.
pub(crate) fn port(report: &Value, name: &str, counter: &str) -> u64 {
    report["counters"][format!("port_{counter}{{port=\"{name}\"}}")].as_u64().unwrap_or(0)
}

/// Waits until the condition holds.
#[track_caller]
pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LIMIT, "waited {} s for {what}", LIMIT.as_secs());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[track_caller]
fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().expect("ip starts");
    assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}
