//! Port `dpdk` in the engine: with drivers of DPDK on both sides, and with interfaces of the kernel
//! in a network namespace.
#![cfg(feature = "dpdk")]

use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use godwit_engine::config::Config;
use godwit_engine::{Engine, Options, Report};
use godwit_test_support::frame::ipv4_header;
use godwit_test_support::network::{self, disable_ipv6, sh, veth_pair};
use godwit_test_support::{ConfigText, Folder, FrameBuilder, SetOnDrop, capture, output_of, repository, skip};
use godwit_wire::{Ipv4Header, protocol};

/// Returns the keys of a port of kind `dpdk`.
fn device(name: &str) -> String {
    format!("device = \"{name}\"")
}

/// Returns a configuration with the function `echo`.
fn with_echo(engine: &str) -> ConfigText {
    ConfigText::new().engine(engine).function("echo", "echo", "")
}

fn engine(text: &ConfigText) -> Engine {
    let config = Config::parse(&text.to_string(), "test.toml", Path::new(".")).unwrap();
    Engine::new(config, &Options::default()).unwrap()
}

fn run(text: &ConfigText, time: Duration) -> Report {
    let report = engine(text).run(&Arc::new(AtomicBool::new(false)), Some(time), &mut |_| {}).unwrap();
    assert!(report.conservation.holds() && report.conservation.in_flight == 0, "{}", report.conservation);
    report
}

/// Returns a UDP packet. Its identification and contents depend on `number`.
fn frame(number: usize, payload_bytes: usize) -> Vec<u8> {
    let data: Vec<u8> = (0..payload_bytes).map(|byte| (byte + number) as u8).collect();
    let header = ipv4_header([10, 0, 0, 1], [10, 1, 0, 1], protocol::UDP);
    let header = Ipv4Header { identification: number as u16, ..header };
    FrameBuilder::new().ipv4_header(header).udp([1000 + (number % 7) as u16, 9], &data)
}

#[test]
fn dpdk_and_godwit_write_the_same_capture() {
    let folder = Folder::new();
    let sent: Vec<Vec<u8>> = (0..3000).map(|number| frame(number, (number * 13) % 1472)).collect();
    let (input, by_dpdk, by_godwit) = (folder.join("in.pcap"), folder.join("dpdk.pcap"), folder.join("godwit.pcap"));
    capture::write(&input, &sent);
    let chain = |text: ConfigText| text.path(&["pcap", "echo", "pcap"]);
    let keys = format!("file = {input:?}\nwrite = {by_godwit:?}");
    let expected = run(&chain(with_echo("").port("pcap", "pcap", &keys)), Duration::from_secs(30));
    let driver = format!("net_pcap7,rx_pcap={},tx_pcap={}", input.display(), by_dpdk.display());
    for engine in ["", "io = \"dual\""] {
        let text = chain(with_echo(engine).port("pcap", "dpdk", &device(&driver)));
        let report = run(&text, Duration::from_millis(700));
        assert_eq!(report.conservation, expected.conservation);
        assert_eq!(report.ports[0].received_bytes, expected.ports[0].received_bytes);
        let [by_dpdk, by_godwit] = [&by_dpdk, &by_godwit].map(|path| capture::read(path));
        assert!(!by_godwit.is_empty() && by_dpdk == by_godwit);
    }
}

#[test]
fn each_worker_has_its_own_queues() {
    for (workers, io) in [(1, "single"), (3, "single"), (2, "dual")] {
        let text = with_echo(&format!("workers = {workers}\nio = \"{io}\""))
            .port("left", "dpdk", &device("net_null5,size=64"))
            .port("right", "dpdk", &device("net_null6,size=64"))
            .path(&["left", "echo", "right"]);
        let report = run(&text, Duration::from_millis(200));
        assert!(report.conservation.sent > 10_000, "{}", report.conservation);
        assert_eq!(report.conservation.sent, report.conservation.received);
        assert_eq!(report.ports[1].sent_packets, report.conservation.sent);
        assert_eq!(report.ports[0].received_bytes, 64 * report.conservation.received);
    }
}

#[test]
fn a_ring_returns_every_packet_that_it_accepts() {
    let generator = ConfigText::new().engine("").port(
        "source",
        "synthetic",
        "packets = 50000\nsize = \"imix\"\nrate = \"500kpps\"\ndigest = true",
    );
    let through_ring = generator.clone().port("ring", "dpdk", &device("net_ring9"));
    let through_ring = run(&through_ring.path(&["source", "ring"]).edge("ring", "source"), Duration::from_millis(600));
    let direct = run(&generator.edge("source", "source"), Duration::from_secs(5));
    let [source, ring] = [0, 1].map(|port| &through_ring.ports[port]);
    assert_eq!(ring.received_packets, ring.sent_packets);
    assert_eq!(source.sent_packets, ring.received_packets);
    assert_eq!(source.received_packets, 50_000);
    // A full ring refuses packets.
    if ring.sent_packets == 50_000 {
        assert_eq!(source.digest, direct.ports[0].digest);
    }
}

/// Returns whether DPDK has a driver. Otherwise reports a skipped test.
fn has_driver(name: &str) -> bool {
    let folder = Command::new("pkg-config").args(["--variable=libdir", "libdpdk"]).output();
    let folder = folder.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    let file = format!("librte_{name}.so");
    let plugins = std::fs::read_dir(Path::new(&folder).join("dpdk")).into_iter().flatten().flatten();
    let mut folders = plugins.map(|entry| entry.path()).chain([folder.clone().into()]);
    let has_driver = folders.any(|folder| folder.join(&file).exists());
    if !has_driver {
        skip(format_args!("DPDK has no driver {name}"));
    }
    has_driver
}

/// One end of the shared memory replaces another program.
#[test]
fn packets_pass_through_shared_memory() {
    if !has_driver("net_memif") {
        return;
    }
    let folder = Folder::new();
    let socket = folder.join("memif.sock");
    let end = |number: u8, role: &str| {
        device(&format!("net_memif{number},role={role},id=7,bsize=2048,socket={},socket-abstract=no", socket.display()))
    };
    let text = with_echo("")
        .port("source", "synthetic", "size = \"imix\"\nrate = \"50kpps\"")
        .port("one", "dpdk", &end(0, "server"))
        .port("other", "dpdk", &end(1, "client"))
        .path(&["source", "one", "source"])
        .path(&["other", "echo", "other"]);
    let report = run(&text, Duration::from_secs(2));
    let [source, one, other] = [0, 1, 2].map(|port| &report.ports[port]);
    // Packets are refused, and counted, until both ends are connected.
    assert!(one.sent_packets > 1000, "{report:?}");
    // Packets may remain in a ring at the end.
    for (from, to) in [(one, other), (other, one)] {
        let range = to.received_packets..=to.received_packets + 1024;
        assert!(range.contains(&from.sent_packets), "{} sent, {range:?} received", from.sent_packets);
    }
    assert!(other.received_packets > 1000 && one.received_packets > 1000, "{report:?}");
    assert_eq!(source.sent_packets, one.received_packets, "{source:?}");
}

/// DPDK creates both interfaces. Frames that the kernel sends by one arrive at the other.
#[test]
fn frames_of_the_kernel_pass_through_tap_interfaces() {
    if !has_driver("net_tap") {
        return;
    }
    if !Path::new("/dev/net/tun").exists() {
        skip("net_tap needs /dev/net/tun");
        return;
    }
    let text = with_echo("")
        .port("left", "dpdk", &device("net_tap0,iface=gw-d0"))
        .port("right", "dpdk", &device("net_tap1,iface=gw-d3"))
        .path(&["left", "echo", "right"]);
    let Some((report, output)) = run_with_frames(&text, 2000, || disable_ipv6("default")) else { return };
    assert_eq!(output.trim(), "sent 2000 received 2000 correct 2000");
    assert_eq!(report.conservation.sent, report.conservation.received);
    assert_eq!(report.ports[1].sent_packets, 2000);
}

/// Runs an engine in a new namespace while a peer sends `count` frames by `gw-d0` and receives them
/// from `gw-d3`. `prepare` runs in the namespace before. Returns the report and the output of the
/// peer.
fn run_with_frames(text: &ConfigText, count: usize, prepare: impl FnOnce() + Send) -> Option<(Report, String)> {
    network::in_namespace(|| {
        prepare();
        let engine = engine(text);
        let stop = Arc::new(AtomicBool::new(false));
        thread::scope(|scope| {
            let peer = scope.spawn(|| {
                let _stop = SetOnDrop(&stop);
                let script = repository().join("tests/peers/veth_frames.py");
                let mut command = Command::new("python3");
                let output = command.arg(script).args(["gw-d0", "gw-d3", &count.to_string()]).output().unwrap();
                [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat()
            });
            let report = engine.run(&stop, Some(Duration::from_secs(30)), &mut |_| {}).unwrap();
            (report, peer.join().unwrap())
        })
    })
}

/// Checks that a driver forwards every frame of the kernel, and that both sides count them.
fn check_driver(driver: &str, engine: &str) {
    let text = with_echo(engine)
        .port("left", "dpdk", &device(&format!("{driver}0,iface=gw-d1")))
        .port("right", "dpdk", &device(&format!("{driver}1,iface=gw-d2")))
        .path(&["left", "echo", "right"]);
    let prepare = || {
        veth_pair(["gw-d0", "gw-d1"]);
        veth_pair(["gw-d2", "gw-d3"]);
    };
    let Some((report, output)) = run_with_frames(&text, 2000, prepare) else { return };
    assert_eq!(output.trim(), "sent 2000 received 2000 correct 2000");
    assert!(report.conservation.holds(), "{}", report.conservation);
    assert_eq!(report.conservation.sent, report.conservation.received);
    assert_eq!(report.ports[1].sent_packets, 2000);
}

#[test]
fn af_packet_forwards_frames_of_the_kernel() {
    check_driver("net_af_packet", "");
}

#[test]
fn af_packet_forwards_frames_with_a_sender_thread() {
    check_driver("net_af_packet_dual", "io = \"dual\"");
}

#[test]
fn af_xdp_forwards_frames_of_the_kernel() {
    check_driver("net_af_xdp", "");
}

/// Host of the network: a process that sleeps in its own namespace. It is killed when dropped.
struct Host(Child);

impl Host {
    fn new() -> Self {
        let host = Self(Command::new("unshare").args(["--net", "sleep", "1000"]).spawn().unwrap());
        let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).ok();
        // Wait until the process has left this namespace. An interface that is moved earlier would
        // stay here.
        while namespace(&host.0.id().to_string()) == namespace("thread-self") {
            thread::yield_now();
        }
        host.sh("ip link set lo up");
        host
    }

    /// Runs a line of shell on the host and returns its output. The line must succeed.
    #[track_caller]
    fn sh(&self, line: &str) -> String {
        let process = self.0.id().to_string();
        output_of(Command::new("nsenter").args(["--net", "--target", &process, "sh", "-c", line]))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Checks that a driver routes ping and TCP between two hosts.
fn check_routing(driver: &'static str) {
    network::in_namespace(|| {
        let hosts = [(1, "left", Host::new()), (2, "right", Host::new())];
        let mut text = ConfigText::new().engine("");
        for (net, side, host) in &hosts {
            let (router_mac, host_mac) = (format!("02:00:00:00:0{net}:01"), format!("02:00:00:00:0{net}:02"));
            sh(&format!("ip link add {side} address {router_mac} type veth peer name eth0 address {host_mac}"));
            sh(&format!("ip link set eth0 netns {}", host.0.id()));
            // The kernel computes checksums and segments itself, and sends no IPv6 packets.
            let up = |name: &str| {
                format!(
                    "ethtool -K {name} tx off && echo 1 > /proc/sys/net/ipv6/conf/{name}/disable_ipv6 && ip link set {name} up"
                )
            };
            sh(&up(side));
            host.sh(&up("eth0"));
            host.sh(&format!("ip address add 10.{net}.0.2/24 dev eth0 && ip route add default via 10.{net}.0.1"));
            host.sh(&format!("ip neigh replace 10.{net}.0.1 lladdr {router_mac} dev eth0 nud permanent"));
            text = text.port(side, "dpdk", &device(&format!("{driver}_r{net},iface={side}")));
        }
        text = text.function("route", "ipv4", "");
        for (net, side, _) in &hosts {
            let macs = format!("destination_mac = \"02:00:00:00:0{net}:02\"\nsource_mac = \"02:00:00:00:0{net}:01\"");
            text = text
                .nested("next_hop", &format!("name = \"{side}\"\nport = \"{side}\"\n{macs}"))
                .nested("route", &format!("prefix = \"10.{net}.0.0/24\"\nnext_hop = \"{side}\""));
        }
        text = text.edge("left", "route").edge("right", "route").verdict_edge("route", "forward", "egress");
        let engine = engine(&text.edge("route", "drop"));
        let stop = Arc::new(AtomicBool::new(false));
        let (report, bytes) = thread::scope(|scope| {
            let peer = scope.spawn(|| {
                let _stop = SetOnDrop(&stop);
                let [(_, _, client), (_, _, server)] = &hosts;
                let ping = client.sh("ping -c 20 -i 0.01 -W 5 10.2.0.2");
                server.sh("iperf3 -s -D -1");
                let attempts =
                    "for try in 1 2 3 4 5 6 7 8 9; do iperf3 -c 10.2.0.2 -n 5M -J && exit 0; sleep 0.2; done; exit 1";
                (ping, client.sh(attempts))
            });
            let report = engine.run(&stop, Some(Duration::from_secs(60)), &mut |_| {}).unwrap();
            let (ping, iperf) = peer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            assert!(ping.contains("20 received") && ping.contains("ttl=63"), "{ping}");
            // iperf3 prints one JSON document per attempt. The last attempt succeeded.
            let documents = serde_json::Deserializer::from_str(&iperf).into_iter::<serde_json::Value>();
            let last = documents.last().expect("a document").unwrap();
            (report, last["end"]["sum_received"]["bytes"].as_u64().unwrap_or_else(|| panic!("{iperf}")))
        });
        assert!(report.conservation.holds(), "{}", report.conservation);
        let forwarded = report.functions[0].verdicts.iter().find(|(name, _)| name == "forward").unwrap().1;
        // iperf3 ends when its kernel has accepted 5 MiB. The rest may remain in the kernel.
        assert!(bytes > 500_000, "only {bytes} bytes were received");
        assert!(forwarded > bytes / 1448, "{forwarded} packets for {bytes} bytes and the pings");
    });
}

#[test]
fn af_packet_routes_between_hosts() {
    check_routing("net_af_packet");
}

#[test]
fn af_xdp_routes_between_hosts() {
    check_routing("net_af_xdp");
}

#[test]
fn an_unsupported_configuration_is_refused() {
    let error_of = |text: &ConfigText| {
        let config = Config::parse(&text.to_string(), "test.toml", Path::new("."));
        let engine = config
            .map_err(|error| error.to_string())
            .and_then(|config| Engine::new(config, &Options::default()).map(|_| ()).map_err(|error| error.to_string()));
        engine.unwrap_err()
    };
    let null = |tables: &str, keys: &str| {
        with_echo("")
            .raw(tables)
            .port("null", "dpdk", &format!("{}\n{keys}", device("net_null8")))
            .path(&["null", "echo", "null"])
    };
    for (tables, keys, part) in [
        ("[arena]\nlayout = \"dense\"", "", "layout = \"slots\""),
        ("", "mtu = 20", "mtu = 20: "),
        ("", "mtu = 9000", "frame_bytes_max"),
        ("", "rings = 1", "`rings`"),
        ("[dpdk]\neal = 3", "", "`eal`"),
    ] {
        let error = error_of(&null(tables, keys));
        assert!(error.contains(part), "{error}");
    }
}
