//! Routes between two hosts. The router's kernel keeps its own packets (ARP and ping to its
//! addresses), and Godwit forwards the rest.

use crate::net::{Host, Net, counter, port, wait_for};

/// Hosts `a` and `b` behind a router that has an address on each link.
pub(crate) struct Routed {
    pub(crate) a: Host,
    pub(crate) router: Host,
    pub(crate) b: Host,
}

impl Routed {
    pub(crate) fn new(net: &mut Net) -> Self {
        let [a, router, b] = ["a", "r", "b"].map(|name| net.host(name));
        net.cable([(&a, "eth0", &["10.1.0.2/24"]), (&router, "left", &["10.1.0.1/24"])]);
        net.cable([(&b, "eth0", &["10.2.0.2/24"]), (&router, "right", &["10.2.0.1/24"])]);
        a.sh("ip route add default via 10.1.0.1");
        b.sh("ip route add default via 10.2.0.1");
        Self { a, router, b }
    }

    pub(crate) fn config(&self) -> String {
        let hop = |name: &str, host: &Host, port: &str| {
            format!(
                "[[function.next_hop]]\nname = \"{name}\"\nport = \"{port}\"\ndestination_mac = \"{}\"\nsource_mac = \"{}\"\n",
                host.mac("eth0"),
                self.router.mac(port)
            )
        };
        let port = |name: &str| format!("[[port]]\nname = \"{name}\"\nkind = \"af_xdp\"\ninterface = \"{name}\"\n");
        [
            "[engine]\npin = false\nidle = \"sleep\"\n".to_owned(),
            port("left"),
            port("right"),
            "[[function]]\nname = \"route\"\nkind = \"ipv4\"\n".to_owned(),
            hop("a", &self.a, "left"),
            hop("b", &self.b, "right"),
            "[[function.route]]\nprefix = \"10.1.0.0/24\"\nnext_hop = \"a\"\n".to_owned(),
            "[[function.route]]\nprefix = \"10.2.0.0/24\"\nnext_hop = \"b\"\n".to_owned(),
            "[[chain]]\nfrom = \"left\"\nto = \"route\"\n[[chain]]\nfrom = \"right\"\nto = \"route\"\n".to_owned(),
            "[[chain]]\nfrom = \"route\"\nverdict = \"forward\"\nto = \"egress\"\n[[chain]]\nfrom = \"route\"\nto = \"drop\"\n".to_owned(),
        ]
        .concat()
    }

    /// Adds neighbour entries to all hosts. Then only packets of the test are on the cables.
    pub(crate) fn introduce(&self) {
        self.a.knows("eth0", "10.1.0.1", &self.router.mac("left"));
        self.b.knows("eth0", "10.2.0.1", &self.router.mac("right"));
        self.router.knows("left", "10.1.0.2", &self.a.mac("eth0"));
        self.router.knows("right", "10.2.0.2", &self.b.mac("eth0"));
    }
}

#[test]
fn ping_iperf_and_curl_cross_a_router() {
    let Some(mut net) = Net::new(&["ping", "iperf3", "curl", "ethtool"]) else { return };
    let routed = Routed::new(&mut net);
    let Routed { a, router, b } = &routed;
    let godwit = router.godwit(&net, &routed.config(), &["left", "right"]);
    // The kernel handles ARP, because the hosts have no neighbour entries. One hop decrements the
    // TTL by one.
    let printed = a.sh("ping -c 5 -i 0.05 -W 2 10.2.0.2");
    assert!(printed.contains("5 received") && printed.contains("ttl=63"), "{printed}");
    let printed = a.sh("ping -c 3 -i 0.05 -W 2 10.1.0.1");
    assert!(printed.contains("3 received") && printed.contains("ttl=64"), "the router's own address: {printed}");

    let server = b.start("iperf3 -s");
    wait_for("iperf3", || b.try_sh("ss -Hltn 'sport = 5201' | grep -q .").status.success());
    let bits = |line: &str, what: &str| {
        let printed: serde_json::Value = serde_json::from_str(&a.sh(line)).expect("JSON");
        printed["end"][what]["bits_per_second"].as_f64().unwrap_or_else(|| panic!("{printed:#}"))
    };
    let tcp = bits("iperf3 -c 10.2.0.2 -t 1 -J", "sum_received");
    let back = bits("iperf3 -c 10.2.0.2 -t 1 -R -J", "sum_received");
    let udp = bits("iperf3 -c 10.2.0.2 -u -b 20M -l 1000 -t 1 -J", "sum");
    assert!(tcp > 1e6 && back > 1e6 && udp > 1e6, "{tcp} {back} {udp} bit/s");
    drop(server);

    // The transfer of 100 MB arrives unchanged.
    let block: Vec<u8> = (0..1_000_003u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    net.file("large", block.repeat(100));
    let folder = net.folder().display();
    let server = b.start(&format!("/usr/bin/python3 -m http.server 8000 --bind 10.2.0.2 --directory {folder}"));
    wait_for("the server", || b.try_sh("ss -Hltn 'sport = 8000' | grep -q .").status.success());
    let sum = |printed: String| printed.split_whitespace().next().map(str::to_owned);
    let fetched = sum(a.sh("curl -s --max-time 60 http://10.2.0.2:8000/large | sha256sum"));
    assert_eq!(fetched, sum(a.sh(&format!("sha256sum {folder}/large"))));
    drop(server);

    // Each frame from a host was forwarded, passed to the kernel, or sent by the kernel itself.
    let sent = [a.counted("eth0").sent, b.counted("eth0").sent];
    let report = godwit.stop();
    for (name, sent) in ["left", "right"].into_iter().zip(sent) {
        let of = |counter| port(&report, name, counter);
        assert!(of("left_to_kernel") > 0, "ARP");
        // The kernel of a host may send a packet between the two readings.
        let seen = of("received_packets") + of("left_to_kernel") + of("missed");
        assert!((sent..=sent + 2).contains(&seen), "{name}: {sent} sent, {seen} seen: {report:#}");
    }
    for name in ["left", "right"] {
        assert!(!router.has_xdp(name), "{name}");
    }
}

#[test]
fn every_mode_of_af_xdp_forwards() {
    let Some(mut net) = Net::new(&["ping", "ethtool"]) else { return };
    let routed = Routed::new(&mut net);
    let Routed { a, router, b } = &routed;
    routed.introduce();
    let plain = routed.config();
    let with = |key: &str| plain.replace("kind = \"af_xdp\"\n", &format!("kind = \"af_xdp\"\n{key}\n"));
    let engine = |keys: &str| plain.replacen("[engine]\n", &format!("[engine]\n{keys}\n"), 1);
    let refused = |config: &str| {
        let config = net.file("refused.toml", config);
        let printed = router.command(env!("CARGO_BIN_EXE_godwit")).arg("run").arg(config).output().expect("it starts");
        assert_eq!(printed.status.code(), Some(2), "{printed:?}");
        String::from_utf8_lossy(&printed.stderr).into_owned()
    };
    let forwards = |what: &str, config: &str| {
        let godwit = router.godwit(&net, config, &["left", "right"]);
        let printed = a.sh("ping -q -c 200 -i 0.002 -W 2 10.2.0.2");
        assert!(printed.contains("200 received"), "{what}: {printed}");
        let report = godwit.stop();
        assert_eq!(counter(&report, "ipv4_verdict_forward"), 400, "{what}");
        report
    };
    forwards("generic", &with("attach = \"generic\""));
    forwards("copies", &with("copy = \"always\"\nattach = \"native\""));
    forwards("busy polling", &with("busy_poll = true"));
    forwards("small rings", &with("rx_packets = 64\ntx_packets = 64"));
    forwards("a sender", &engine("io = \"dual\""));
    // A veth needs copies. Godwit reports that.
    let printed = refused(&with("copy = \"never\""));
    assert!(printed.contains("copy = never: the driver of left"), "{printed}");

    // Two workers need two queues per interface.
    let printed = refused(&engine("workers = 2"));
    assert!(printed.contains("1 receive queue") && printed.contains("ethtool -L left"), "{printed}");
    for (host, name) in [(router, "left"), (router, "right"), (a, "eth0"), (b, "eth0")] {
        let set = host.try_sh(&format!("ethtool -L {name} rx 2 tx 2"));
        if !set.status.success() {
            // On a machine with one core, a veth has one queue.
            return;
        }
    }
    forwards("two queues", &engine("workers = 2"));
    // Packets that need no SA stay on the worker that receives them.
    let keyed = engine("workers = 2").replace("to = \"route\"", "to = \"tunnel\"")
        + "[[function]]\nname = \"tunnel\"\nkind = \"ipsec\"\n[[function.policy]]\naction = \"bypass\"\n[[chain]]\nfrom = \"tunnel\"\n\
           to = \"route\"\n";
    assert_eq!(counter(&forwards("two queues with ipsec", &keyed), "engine_exchanged"), 0);
}

#[test]
fn every_packet_of_replayed_captures_is_counted() {
    let Some(mut net) = Net::new(&["tcpreplay", "tcprewrite", "ethtool"]) else { return };
    let routed = Routed::new(&mut net);
    let Routed { a, router, b } = &routed;
    routed.introduce();
    let godwit = router.godwit(&net, &routed.config(), &["left", "right"]);
    let [a_before, b_before] = [a, b].map(|host| host.counted("eth0"));
    // Packets from both sides go to unused addresses, so no station answers.
    let capture = |name: &str, source: &str, destination: &str, to: &str| {
        let path = net.folder().join(name);
        let from = godwit_test_support::repository().join("tests/captures/delay_10_sip_video_call_full.pcap");
        let printed = std::process::Command::new("tcprewrite")
            .args([&format!("--infile={}", from.display()), &format!("--outfile={}", path.display())])
            .args([&format!("--dstipmap=0.0.0.0/0:{destination}"), &format!("--srcipmap=0.0.0.0/0:{source}")])
            .args([&format!("--enet-dmac={to}"), "--fixcsum"])
            .output()
            .expect("tcprewrite starts");
        assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
        path
    };
    let there = capture("there.pcap", "10.1.0.99/32", "10.2.0.99/32", &router.mac("left"));
    let back = capture("back.pcap", "10.2.0.99/32", "10.1.0.99/32", &router.mac("right"));
    let nowhere = capture("nowhere.pcap", "10.1.0.99/32", "192.0.2.1/32", &router.mac("left"));
    a.sh(&format!("tcpreplay -q -i eth0 -K --loop=3 --pps=5000 {}", there.display()));
    b.sh(&format!("tcpreplay -q -i eth0 -K --loop=2 --pps=5000 {}", back.display()));
    a.sh(&format!("tcpreplay -q -i eth0 -K --pps=5000 {}", nowhere.display()));
    let packets = godwit_test_support::capture::frames(&there).expect("a capture").len() as u64;
    wait_for("the last packet", || b.counted("eth0").received >= b_before.received + 3 * packets);
    wait_for("the last packet back", || a.counted("eth0").received >= a_before.received + 2 * packets);
    let [a_after, b_after] = [a, b].map(|host| host.counted("eth0"));
    let report = godwit.stop();
    assert_eq!(a_after.sent - a_before.sent, 4 * packets);
    assert_eq!(port(&report, "left", "received_packets"), 4 * packets);
    assert_eq!(port(&report, "right", "received_packets"), 2 * packets);
    assert_eq!(port(&report, "right", "sent_packets"), b_after.received - b_before.received);
    assert_eq!(port(&report, "left", "sent_packets"), a_after.received - a_before.received);
    assert_eq!(report["conservation"]["sent"], 5 * packets);
    assert_eq!(report["conservation"]["dropped"], packets, "{report:#}");
    for counter in ["missed", "left_to_kernel", "oversized", "refused"] {
        assert_eq!((port(&report, "left", counter), port(&report, "right", counter)), (0, 0), "{counter}");
    }
}
