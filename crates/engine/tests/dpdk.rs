//! The `dpdk` port in the engine: DPDK's own drivers on both sides, and the kernel's where there is a namespace to have.
#![cfg(feature = "dpdk")]

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use godwit_engine::config::Config;
use godwit_engine::{Engine, Options, Report};
use nix::sched::{CloneFlags, unshare};

const ECHO: &str = r#"
    [[function]]
    name = "echo"
    kind = "echo"
"#;

fn chain(edges: &[(&str, &str)]) -> String {
    edges.iter().map(|(from, to)| format!("[[chain]]\nfrom = \"{from}\"\nto = \"{to}\"\n")).collect()
}

fn port(name: &str, device: &str) -> String {
    format!("[[port]]\nname = \"{name}\"\nkind = \"dpdk\"\ndevice = \"{device}\"\n")
}

fn engine(text: &str) -> Engine {
    let config = Config::parse(text, "test.toml", Path::new(".")).unwrap();
    Engine::new(config, &Options::default()).unwrap()
}

fn run(text: &str, time: Duration) -> Report {
    let report = engine(text).run(&Arc::new(AtomicBool::new(false)), Some(time), &mut |_| {}).unwrap();
    assert!(report.conservation.holds() && report.conservation.in_flight == 0, "{}", report.conservation);
    report
}

/// A capture of frames of all lengths, as bytes of a pcap file.
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65535, 1] {
        bytes.extend(word.to_le_bytes());
    }
    for (number, frame) in frames.iter().enumerate() {
        for word in [1, number as u32, frame.len() as u32, frame.len() as u32] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(frame);
    }
    bytes
}

/// Frames of a capture with microseconds or nanoseconds, written on this machine.
fn frames(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).unwrap();
    let mut rest = &bytes[24..];
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let length = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        frames.push(rest[16..16 + length].to_vec());
        rest = &rest[16 + length..];
    }
    frames
}

/// A UDP packet over IPv4, numbered.
fn frame(number: usize, payload: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    let length = (28 + payload) as u16;
    frame.extend([0x45, 0]);
    frame.extend(length.to_be_bytes());
    frame.extend((number as u16).to_be_bytes());
    frame.extend([0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 1, 0, 1]);
    let words = frame[14..34].chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum = words.sum::<u32>();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame.extend((1000 + (number % 7) as u16).to_be_bytes());
    frame.extend(9u16.to_be_bytes());
    frame.extend((8 + payload as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend((0..payload).map(|byte| (byte + number) as u8));
    frame
}

#[test]
fn pcap_by_dpdk_is_pcap_by_godwit() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let sent: Vec<Vec<u8>> = (0..3000).map(|number| frame(number, (number * 13) % 1472)).collect();
    std::fs::write(path("in.pcap"), capture(&sent)).unwrap();
    let (input, by_dpdk, by_godwit) = (path("in.pcap"), path("dpdk.pcap"), path("godwit.pcap"));
    let edges = chain(&[("pcap", "echo"), ("echo", "pcap")]);
    let ours =
        format!("[[port]]\nname = \"pcap\"\nkind = \"pcap\"\nfile = {input:?}\nwrite = {by_godwit:?}\n{ECHO}{edges}");
    let expected = run(&ours, Duration::from_secs(30));
    let device = format!("net_pcap7,rx_pcap={},tx_pcap={}", input.display(), by_dpdk.display());
    for engine in ["", "[engine]\nio = \"dual\"\n"] {
        let report = run(&format!("{engine}{}{ECHO}{edges}", port("pcap", &device)), Duration::from_millis(700));
        assert_eq!(report.conservation, expected.conservation);
        assert_eq!(report.ports[0].received_bytes, expected.ports[0].received_bytes);
        let [by_dpdk, by_godwit] = [&by_dpdk, &by_godwit].map(|path| frames(path));
        assert!(!by_godwit.is_empty() && by_dpdk == by_godwit);
    }
}

#[test]
fn workers_have_queues_of_their_own() {
    for (workers, io) in [(1, "single"), (3, "single"), (2, "dual")] {
        let edges = chain(&[("left", "echo"), ("echo", "right")]);
        let engine = format!("[engine]\nworkers = {workers}\nio = \"{io}\"\npin = false\n");
        let ports = port("left", "net_null5,size=64") + &port("right", "net_null6,size=64");
        let report = run(&format!("{engine}{ports}{ECHO}{edges}"), Duration::from_millis(200));
        assert!(report.conservation.sent > 10_000, "{}", report.conservation);
        assert_eq!(report.conservation.sent, report.conservation.received);
        assert_eq!(report.ports[1].sent_packets, report.conservation.sent);
        assert_eq!(report.ports[0].received_bytes, 64 * report.conservation.received);
    }
}

#[test]
fn what_a_ring_takes_comes_back() {
    let generator = "[[port]]\nname = \"source\"\nkind = \"synthetic\"\npackets = 50000\nsize = \"imix\"\nrate = \"500kpps\"\ndigest = true\n";
    let edges = chain(&[("source", "ring"), ("ring", "source")]);
    let looped = run(&format!("{generator}{}{edges}", port("ring", "net_ring9")), Duration::from_millis(600));
    let straight = run(&format!("{generator}{}", chain(&[("source", "source")])), Duration::from_secs(5));
    let [source, ring] = [0, 1].map(|port| &looped.ports[port]);
    assert_eq!(ring.received_packets, ring.sent_packets);
    assert_eq!(source.sent_packets, ring.received_packets);
    assert_eq!(source.received_packets, 50_000);
    // Only what found the ring full is missing.
    if ring.sent_packets == 50_000 {
        assert_eq!(source.digest, straight.ports[0].digest);
    }
}

/// Whether this machine's DPDK has a driver; said where it has not.
fn has_driver(name: &str) -> bool {
    let folder = Command::new("pkg-config").args(["--variable=libdir", "libdpdk"]).output();
    let folder = folder.map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned()).unwrap_or_default();
    let file = format!("librte_{name}.so");
    let plugins = std::fs::read_dir(Path::new(&folder).join("dpdk")).into_iter().flatten().flatten();
    let mut folders = plugins.map(|entry| entry.path()).chain([folder.clone().into()]);
    let is_there = folders.any(|folder| folder.join(&file).exists());
    if !is_there {
        writeln!(std::io::stderr(), "skipped: DPDK has no driver {name} here").expect("stderr can be written");
    }
    is_there
}

/// Shared memory: one end is what another program would have.
#[test]
fn what_goes_into_shared_memory_comes_out_at_its_other_end() {
    if !has_driver("net_memif") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("memif.sock");
    let end = |number: u8, role: &str| {
        format!("net_memif{number},role={role},id=7,bsize=2048,socket={},socket-abstract=no", socket.display())
    };
    let generator = "[[port]]\nname = \"source\"\nkind = \"synthetic\"\nsize = \"imix\"\nrate = \"50kpps\"\n";
    let ports = port("one", &end(0, "server")) + &port("other", &end(1, "client"));
    let edges = chain(&[("source", "one"), ("other", "echo"), ("echo", "other"), ("one", "source")]);
    let report = run(&format!("{generator}{ports}{ECHO}{edges}"), Duration::from_secs(2));
    let [source, one, other] = [0, 1, 2].map(|port| &report.ports[port]);
    // What was sent before both ends were connected is refused, and counted.
    assert!(one.sent_packets > 1000, "{report:?}");
    // What is still in a ring at the end nobody has.
    for (from, to) in [(one, other), (other, one)] {
        let way = to.received_packets..=to.received_packets + 1024;
        assert!(way.contains(&from.sent_packets), "{} sent, {way:?} came", from.sent_packets);
    }
    assert!(other.received_packets > 1000 && one.received_packets > 1000, "{report:?}");
    assert_eq!(source.sent_packets, one.received_packets, "{source:?}");
}

/// Interfaces of the kernel that DPDK makes: frames of the kernel's side come back by the other one.
#[test]
fn tap_interfaces_carry_frames_of_the_kernel() {
    if !has_driver("net_tap") {
        return;
    }
    if !Path::new("/dev/net/tun").exists() {
        writeln!(std::io::stderr(), "skipped: net_tap needs /dev/net/tun").expect("stderr can be written");
        return;
    }
    let edges = chain(&[("left", "echo"), ("echo", "right")]);
    let ports = port("left", "net_tap0,iface=gw-d0") + &port("right", "net_tap1,iface=gw-d3");
    let Some((report, said)) = between_with(&format!("{ports}{ECHO}{edges}"), 2000, quiet) else { return };
    assert_eq!(said.trim(), "sent 2000 received 2000 correct 2000");
    assert_eq!(report.conservation.sent, report.conservation.received);
    assert_eq!(report.ports[1].sent_packets, 2000);
}

/// A namespace without interfaces, in which those that come say nothing unasked.
fn quiet() -> bool {
    if unshare(CloneFlags::CLONE_NEWNET).is_err() {
        writeln!(std::io::stderr(), "skipped: no right to make a network namespace").expect("stderr can be written");
        return false;
    }
    std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").ok();
    true
}

/// Both ends of a pair of virtual interfaces in a namespace of the calling thread's own, which is gone with it.
fn namespace() -> bool {
    if unshare(CloneFlags::CLONE_NEWNET).is_err() {
        writeln!(std::io::stderr(), "skipped: no right to make a network namespace").expect("stderr can be written");
        return false;
    }
    let ip = |arguments: &str| {
        let done = Command::new("ip").args(arguments.split(' ')).status();
        assert!(done.is_ok_and(|status| status.success()), "ip {arguments}");
    };
    for (one, other) in [("gw-d0", "gw-d1"), ("gw-d2", "gw-d3")] {
        // No neighbour discovery of the kernel's among the frames.
        ip(&format!("link add {one} type veth peer name {other}"));
        for interface in [one, other] {
            std::fs::write(format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6"), "1").ok();
            ip(&format!("link set {interface} up"));
        }
    }
    true
}

/// Runs `text` in a namespace while a peer sends `count` frames by one interface and takes them from another. Returns the report, and what the
/// peer said.
fn between(text: &str, count: usize) -> Option<(Report, String)> {
    between_with(text, count, namespace)
}

/// As [`between`], in another kind of namespace.
fn between_with(text: &str, count: usize, namespace: impl FnOnce() -> bool + Send) -> Option<(Report, String)> {
    // On a thread of its own, which takes its namespace with it.
    thread::scope(|scope| {
        let body = || {
            if !namespace() {
                return None;
            }
            let engine = engine(text);
            let stop = Arc::new(AtomicBool::new(false));
            let stopper = Arc::clone(&stop);
            let peer = thread::scope(|scope| {
                let peer = scope.spawn(move || {
                    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/peers/veth_frames.py");
                    let said = Command::new("python3").args([script, "gw-d0", "gw-d3", &count.to_string()]).output();
                    stopper.store(true, Ordering::Relaxed);
                    said.map(|said| {
                        String::from_utf8_lossy(&said.stdout).into_owned() + &String::from_utf8_lossy(&said.stderr)
                    })
                });
                let report = engine.run(&stop, Some(Duration::from_secs(30)), &mut |_| {}).unwrap();
                (report, peer.join().unwrap().unwrap())
            });
            Some(peer)
        };
        scope.spawn(body).join().unwrap()
    })
}

/// Every frame goes through, as it should be, and both sides agree on how many there were.
fn goes_through(driver: &str, engine: &str) {
    let edges = chain(&[("left", "echo"), ("echo", "right")]);
    let ports = port("left", &format!("{driver}0,iface=gw-d1")) + &port("right", &format!("{driver}1,iface=gw-d2"));
    let Some((report, said)) = between(&format!("{engine}{ports}{ECHO}{edges}"), 2000) else { return };
    assert_eq!(said.trim(), "sent 2000 received 2000 correct 2000");
    assert!(report.conservation.holds(), "{}", report.conservation);
    assert_eq!(report.conservation.sent, report.conservation.received);
    assert_eq!(report.ports[1].sent_packets, 2000);
}

#[test]
fn af_packet_carries_frames_of_the_kernel() {
    goes_through("net_af_packet", "");
}

#[test]
fn af_packet_with_a_sender() {
    goes_through("net_af_packet_dual", "[engine]\nio = \"dual\"\n");
}

#[test]
fn af_xdp_carries_frames_of_the_kernel() {
    goes_through("net_af_xdp", "");
}

/// A machine of the network: a process that sleeps in a namespace of its own, killed when dropped.
struct Host(Child);

impl Host {
    fn new() -> Self {
        let host = Self(Command::new("unshare").args(["--net", "sleep", "1000"]).spawn().unwrap());
        let of = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).ok();
        // Until it has left ours, interfaces would stay here.
        while of(&host.0.id().to_string()) == of("thread-self") {
            thread::yield_now();
        }
        host.sh("ip link set lo up");
        host
    }

    /// What a line of the shell says on it, that has to succeed.
    #[track_caller]
    fn sh(&self, line: &str) -> String {
        let process = self.0.id().to_string();
        let said = Command::new("nsenter").args(["--net", "--target", &process, "sh", "-c", line]).output().unwrap();
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.status.success(), "`{line}`: {text}{}", String::from_utf8_lossy(&said.stderr));
        text
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// host - router - host, with ping and TCP.
fn routes_between_hosts(driver: &'static str) {
    let body = || {
        if unshare(CloneFlags::CLONE_NEWNET).is_err() {
            writeln!(std::io::stderr(), "skipped: no right to make a network namespace")
                .expect("stderr can be written");
            return;
        }
        let sh = |line: &str| {
            let said = Command::new("sh").args(["-c", line]).output().unwrap();
            assert!(said.status.success(), "`{line}`: {}", String::from_utf8_lossy(&said.stderr));
        };
        let hosts = [(1, "left", Host::new()), (2, "right", Host::new())];
        let (mut text, mut edges) = ("[engine]\npin = false\n".to_owned(), Vec::new());
        let mut route = "[[function]]\nname = \"route\"\nkind = \"ipv4\"\n".to_owned();
        for (net, side, host) in &hosts {
            let (own, theirs) = (format!("02:00:00:00:0{net}:01"), format!("02:00:00:00:0{net}:02"));
            sh(&format!("ip link add {side} address {own} type veth peer name eth0 address {theirs}"));
            sh(&format!("ip link set eth0 netns {}", host.0.id()));
            // Frames are whole: neither checksums nor segments are left to hardware. Nobody speaks unasked.
            sh(&format!(
                "ethtool -K {side} tx off && echo 1 > /proc/sys/net/ipv6/conf/{side}/disable_ipv6 && ip link set {side} up"
            ));
            host.sh(
                "ethtool -K eth0 tx off && echo 1 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6 && ip link set eth0 up",
            );
            host.sh(&format!("ip address add 10.{net}.0.2/24 dev eth0 && ip route add default via 10.{net}.0.1"));
            host.sh(&format!("ip neigh replace 10.{net}.0.1 lladdr {own} dev eth0 nud permanent"));
            text += &port(side, &format!("{driver}_r{net},iface={side}"));
            route += &format!(
                "[[function.next_hop]]\nname = \"{side}\"\nport = \"{side}\"\ndestination_mac = \"{theirs}\"\nsource_mac = \"{own}\"\n\
                 [[function.route]]\nprefix = \"10.{net}.0.0/24\"\nnext_hop = \"{side}\"\n"
            );
            edges.push((*side, "route"));
        }
        let forward = "[[chain]]\nfrom = \"route\"\nverdict = \"forward\"\nto = \"egress\"\n[[chain]]\nfrom = \"route\"\nto = \"drop\"\n";
        let engine = engine(&format!("{text}{route}{}{forward}", chain(&edges)));
        let stop = Arc::new(AtomicBool::new(false));
        let (report, bytes) = thread::scope(|scope| {
            let peer = scope.spawn(|| {
                let [(_, _, a), (_, _, b)] = &hosts;
                let said = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    let pinged = a.sh("ping -c 20 -i 0.01 -W 5 10.2.0.2");
                    b.sh("iperf3 -s -D -1");
                    (pinged, a.sh("for try in 1 2 3 4 5 6 7 8 9; do iperf3 -c 10.2.0.2 -n 5M -J && exit 0; sleep 0.2; done; exit 1"))
                }));
                stop.store(true, Ordering::Relaxed);
                said
            });
            let report = engine.run(&stop, Some(Duration::from_secs(60)), &mut |_| {}).unwrap();
            let (pinged, transferred) = peer.join().unwrap().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            assert!(pinged.contains("20 received") && pinged.contains("ttl=63"), "{pinged}");
            // What it says of each try, and of the last that all went well.
            let said = serde_json::Deserializer::from_str(&transferred).into_iter::<serde_json::Value>();
            let last = said.last().expect("it says something").unwrap();
            (report, last["end"]["sum_received"]["bytes"].as_u64().unwrap_or_else(|| panic!("{transferred}")))
        });
        assert!(report.conservation.holds(), "{}", report.conservation);
        let forwarded = report.functions[0].verdicts.iter().find(|(name, _)| name == "forward").unwrap().1;
        // The sender ends once it has sent 5 MiB to its own kernel, and what is there then may stay there.
        assert!(bytes > 500_000, "only {bytes} bytes came there");
        assert!(forwarded > bytes / 1448, "{forwarded} packets of {bytes} bytes and of pings");
    };
    // On a thread of its own, which takes its namespace with it.
    thread::scope(|scope| scope.spawn(body).join().unwrap());
}

#[test]
fn af_packet_routes_between_hosts() {
    routes_between_hosts("net_af_packet");
}

#[test]
fn af_xdp_routes_between_hosts() {
    routes_between_hosts("net_af_xdp");
}

#[test]
fn what_cannot_be_met_is_one_sentence() {
    let edges = chain(&[("null", "echo"), ("echo", "null")]);
    let refusal = |text: &str| {
        let config = Config::parse(text, "test.toml", Path::new("."));
        let engine = config
            .map_err(|error| error.to_string())
            .and_then(|config| Engine::new(config, &Options::default()).map(|_| ()).map_err(|error| error.to_string()));
        engine.unwrap_err()
    };
    let null = |more: &str| format!("{}{more}{ECHO}{edges}", port("null", "net_null8"));
    let dense = format!("[arena]\nlayout = \"dense\"\n{}", null(""));
    assert!(refusal(&dense).contains("use layout = \"slots\""), "{}", refusal(&dense));
    assert!(refusal(&null("mtu = 20\n")).contains("mtu = 20: must be 68 to 16110"));
    assert!(refusal(&null("mtu = 9000\n")).contains("frames are longer than frame_bytes_max"));
    assert!(refusal(&null("rings = 1\n")).contains("unknown key `rings`"));
    assert!(
        refusal(&format!("[dpdk]\neal = 3\n{}", null(""))).contains("`eal` must be"),
        "{}",
        refusal("[dpdk]\neal = 3")
    );
}
