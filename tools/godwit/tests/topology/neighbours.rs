//! A router without a kernel next to it. It receives every frame, has addresses that the kernel
//! does not have, and resolves its neighbours. The same router also runs with its addresses on a
//! TAP interface, which passes the router's own packets to local programs.

use crate::net::{Host, Net, counter, port, wait_for};

/// Hosts `a` and `b`, each connected to a router whose kernel has no address on the link.
struct Alone {
    a: Host,
    router: Host,
    b: Host,
}

const FORWARD: &str = "[[chain]]\nfrom = \"route4\"\nverdict = \"not_ipv4\"\nto = \"route6\"\n[[chain]]\nfrom = \"route4\"\nverdict = \"forward\"\n\
    to = \"egress\"\n[[chain]]\nfrom = \"route4\"\nto = \"self\"\n[[chain]]\nfrom = \"route6\"\nverdict = \"forward\"\nto = \"egress\"\n\
    [[chain]]\nfrom = \"route6\"\nto = \"self\"\n[[chain]]\nfrom = \"self\"\nto = \"egress\"\n";

impl Alone {
    fn new(net: &mut Net) -> Self {
        let [a, router, b] = ["a", "r", "b"].map(|name| net.host(name));
        net.cable([(&a, "eth0", &["10.1.0.2/24", "fd00:1::2/64"]), (&router, "left", &[])]);
        net.cable([(&b, "eth0", &["10.2.0.2/24", "fd00:2::2/64"]), (&router, "right", &[])]);
        for (host, net) in [(&a, 1), (&b, 2)] {
            host.sh(&format!("ip route add default via 10.{net}.0.1 && ip -6 route add default via fd00:{net}::1"));
        }
        // These networks are behind `b`.
        b.sh("ip address add 10.7.0.1/32 dev lo && ip address add fd00:7::1/128 dev lo");
        Self { a, router, b }
    }

    /// `other` is the port for frames to the machine itself.
    fn config(&self, other: &str) -> String {
        let (mut ports, mut interfaces) = (String::new(), String::new());
        for (name, net) in [("left", 1), ("right", 2)] {
            let mac = self.router.mac(name);
            ports += &format!(
                "[[port]]\nname = \"{name}\"\nkind = \"af_xdp\"\ninterface = \"{name}\"\ntake = \"all\"\n[[chain]]\nfrom = \"{name}\"\nto = \"route4\"\n"
            );
            interfaces += &format!(
                "[[function.interface]]\nport = \"{name}\"\nmac = \"{mac}\"\naddresses = [\"10.{net}.0.1/24\", \"fd00:{net}::1/64\"]\n"
            );
        }
        let routes = |kind: &str, table: &str, [gateway, local]: [&str; 2], prefixes: [[&str; 2]; 6]| {
            let hop = |name: &str, port: &str, key: &str| {
                format!("[[function.next_hop]]\nname = \"{name}\"\nport = \"{port}\"\n{key}\n")
            };
            let routes = prefixes
                .map(|[prefix, hop]| format!("[[function.route]]\nprefix = \"{prefix}\"\nnext_hop = \"{hop}\"\n"));
            format!("[[function]]\nname = \"{table}\"\nkind = \"{kind}\"\n")
                + &hop("left", "left", "on_link = true")
                + &hop("right", "right", "on_link = true")
                + &hop("behind", "right", &format!("via = \"{gateway}\""))
                + &format!("[[function.next_hop]]\nname = \"{local}\"\nlocal = true\n")
                + &routes.concat()
        };
        let table4 = routes(
            "ipv4",
            "route4",
            ["10.2.0.2", "own"],
            [
                ["10.1.0.0/24", "left"],
                ["10.2.0.0/24", "right"],
                ["10.7.0.0/16", "behind"],
                ["10.1.0.1", "own"],
                ["10.2.0.1", "own"],
                ["10.99.0.1", "own"],
            ],
        );
        let table6 = routes(
            "ipv6",
            "route6",
            ["fd00:2::2", "own"],
            [
                ["fd00:1::/64", "left"],
                ["fd00:2::/64", "right"],
                ["fd00:7::/32", "behind"],
                ["fd00:1::1", "own"],
                ["fd00:2::1", "own"],
                ["fd00:99::1", "own"],
            ],
        );
        [
            "[engine]\npin = false\nidle = \"sleep\"\n".to_owned(),
            ports,
            table4,
            table6,
            "[[function]]\nname = \"self\"\nkind = \"responder\"\n".to_owned(),
            interfaces,
            FORWARD.to_owned(),
            format!("[[chain]]\nfrom = \"self\"\nverdict = \"other\"\nto = \"{other}\"\n"),
        ]
        .concat()
    }
}

#[test]
fn a_router_without_a_kernel_resolves_neighbours() {
    let Some(mut net) = Net::new(&["ping", "iperf3", "ethtool"]) else { return };
    let alone = Alone::new(&mut net);
    let Alone { a, router, b } = &alone;
    let godwit = router.godwit(&net, &alone.config("drop"), &["left", "right"]);
    let printed = |line: &str| String::from_utf8_lossy(&a.try_sh(line).stdout).into_owned();

    // No station has a neighbour entry yet. The first packets wait, and none is lost.
    for to in ["10.2.0.2", "fd00:2::2", "10.7.0.1", "fd00:7::1"] {
        let through = printed(&format!("ping -c 5 -i 0.05 -W 5 {to}"));
        assert!(through.contains("5 received") && through.contains("ttl=63"), "{to}: {through}");
    }
    for own in ["10.1.0.1", "10.2.0.1", "fd00:1::1", "fd00:2::1"] {
        let own = printed(&format!("ping -c 2 -i 0.05 -W 2 {own}"));
        assert!(own.contains("2 received") && own.contains("ttl=64"), "the router's own address: {own}");
    }
    for to in ["10.2.0.2", "fd00:2::2"] {
        let _server = b.start("iperf3 -s -1");
        wait_for("iperf3", || b.try_sh("ss -Hltn 'sport = 5201' | grep -q .").status.success());
        let sent: serde_json::Value = serde_json::from_str(&a.sh(&format!("iperf3 -c {to} -n 2M -J"))).expect("JSON");
        assert!(sent["end"]["sum_sent"]["bytes"].as_u64() >= Some(2_000_000), "{to}: {sent:#}");
    }

    // No station has this address, and more packets wait than the limit allows.
    let unanswered = printed("ping -c 40 -i 0.002 -W 5 10.2.0.99");
    assert!(unanswered.contains("Destination Host Unreachable"), "{unanswered}");
    let unanswered = printed("ping -c 2 -i 0.1 -W 5 fd00:2::99");
    assert!(unanswered.contains("Address unreachable"), "{unanswered}");

    // The neighbour changes its MAC address and announces it in a request.
    b.sh("ip link set eth0 down && ip link set eth0 address 02:00:00:00:77:01 && ip link set eth0 up");
    b.sh("ip address replace fd00:2::2/64 dev eth0 && ip route replace default via 10.2.0.1 && ip -6 route replace default via fd00:2::1");
    for to in ["10.2.0.1", "fd00:2::1"] {
        b.sh(&format!("ping -c 1 -W 5 {to}"));
    }
    for to in ["10.2.0.2", "fd00:2::2", "10.7.0.1", "fd00:7::1"] {
        wait_for(to, || printed(&format!("ping -c 1 -W 1 {to}")).contains("1 received"));
    }

    // The neighbour disappears and returns.
    b.sh("ip link set eth0 down");
    assert!(!printed("ping -c 1 -W 1 10.2.0.2").contains("1 received"));
    b.sh("ip link set eth0 up && ip route replace default via 10.2.0.1");
    wait_for("the peer", || printed("ping -c 1 -W 1 10.2.0.2").contains("1 received"));

    // The responder answers ten thousand requests per second, except those that a full ring drops.
    let before = (a.counted("eth0"), port_reply(a));
    let flood = net.file("flood.py", FLOOD);
    a.sh(&format!("/usr/bin/python3 {} eth0", flood.display()));
    let answers = || port_reply(a) - before.1;
    let mut last = (0, std::time::Instant::now());
    wait_for("answers", || {
        let now = answers();
        if now != last.0 {
            last = (now, std::time::Instant::now());
        }
        now >= 10_000 || last.1.elapsed() > std::time::Duration::from_secs(2)
    });
    let answered = answers();
    assert!(printed("ping -c 1 -W 5 10.2.0.2").contains("1 received"), "it goes on");

    let report = godwit.stop();
    let missed = port(&report, "left", "missed") + port(&report, "left", "refused");
    assert!(answered + missed >= 10_000, "{answered} answered, {missed} missed: {report:#}");
    assert!(counter(&report, "responder_dropped_unresolved") >= 40 - 16, "{report:#}");
    assert!(counter(&report, "responder_asked") >= 8 && counter(&report, "responder_learned") >= 6, "{report:#}");
    assert!(counter(&report, "responder_silent") >= 2, "{report:#}");
    for name in ["left", "right"] {
        assert!(!router.has_xdp(name), "{name}");
    }
}

/// Sends ten thousand ARP requests in one second from addresses that do not exist.
const FLOOD: &str = "import socket,struct,sys,time\n\
    s=socket.socket(socket.AF_PACKET,socket.SOCK_RAW); s.bind((sys.argv[1],0))\n\
    start=time.monotonic()\n\
    for i in range(10000):\n\
    \x20 while time.monotonic()-start < i/10000: pass\n\
    \x20 s.send(b'\\xff'*6+b'\\2\\0\\0\\0\\0\\7'+b'\\x08\\x06'+b'\\0\\1\\x08\\0\\6\\4\\0\\1'+b'\\2\\0\\0\\0\\0\\7'\
    +struct.pack('>I',0x0a010100+i)+bytes(6)+bytes([10,1,0,1])+bytes(18))\n";

/// Returns the number of frames that a host received.
fn port_reply(host: &Host) -> u64 {
    host.counted("eth0").received
}

#[test]
fn packets_for_the_machine_reach_local_programs() {
    let Some(mut net) = Net::new(&["ping", "iperf3", "curl", "ethtool"]) else { return };
    if !std::path::Path::new("/dev/net/tun").exists() {
        let sentence = "skipped: the way to the machine's own programs needs /dev/net/tun\n";
        std::io::Write::write_all(&mut std::io::stderr(), sentence.as_bytes()).expect("stderr can be written");
        return;
    }
    let alone = Alone::new(&mut net);
    let Alone { a, router, b } = &alone;
    // The machine's own address is on the TAP interface. Godwit routes to it as to any other
    // station.
    let tap = "[[port]]\nname = \"punt\"\nkind = \"tap\"\ninterface = \"punt\"\n[[chain]]\nfrom = \"punt\"\nto = \"route4\"\n";
    let own_net = |table: &str, prefix: &str| {
        let stanza = format!("[[function]]\nname = \"{table}\"\n");
        let hop = "[[function.next_hop]]\nname = \"punt\"\nport = \"punt\"\non_link = true\n";
        (stanza, format!("{hop}[[function.route]]\nprefix = \"{prefix}\"\nnext_hop = \"punt\"\n"))
    };
    let mut config = alone.config("drop");
    for (table, kind, prefix) in [("route4", "ipv4", "10.3.0.0/24"), ("route6", "ipv6", "fd00:3::/64")] {
        let (_, own) = own_net(table, prefix);
        let stanza = format!("[[function]]\nname = \"{table}\"\nkind = \"{kind}\"\n");
        config = config.replace(&stanza, &(stanza.clone() + &own));
    }
    config += tap;
    let interface = "[[function.interface]]\nport = \"punt\"\nmac = \"02:00:00:00:03:01\"\naddresses = [\"10.3.0.1/24\", \"fd00:3::1/64\"]\n";
    config = config.replacen("kind = \"responder\"\n", &format!("kind = \"responder\"\n{interface}"), 1);
    let godwit = router.godwit(&net, &config, &["left", "right"]);
    wait_for("the tap interface", || router.try_sh("ip link show dev punt").status.success());
    router.sh("ip address add 10.3.0.2/24 dev punt && ip address add fd00:3::2/64 dev punt && ip link set punt up");
    router.sh("ip route add default via 10.3.0.1 && ip -6 route add default via fd00:3::1");

    // Local programs reach other hosts through Godwit, and other hosts reach them, with ping and
    // TCP over IPv4 and IPv6.
    for to in ["10.3.0.2", "fd00:3::2"] {
        wait_for(to, || a.try_sh(&format!("ping -c 1 -W 1 {to}")).status.success());
        let printed = a.sh(&format!("ping -c 5 -i 0.05 -W 2 {to}"));
        assert!(printed.contains("5 received") && printed.contains("ttl=63"), "{to}: {printed}");
    }
    let printed = router.sh("ping -c 5 -i 0.05 -W 2 10.2.0.2");
    assert!(printed.contains("5 received"), "{printed}");
    let block: Vec<u8> = (0..3_000_001u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    net.file("large", block);
    let folder = net.folder().display();
    let sum = |printed: String| printed.split_whitespace().next().map(str::to_owned);
    let expected = sum(a.sh(&format!("sha256sum {folder}/large")));
    for (server, address, client) in [(router, "10.3.0.2", a), (router, "fd00:3::2", b), (b, "10.2.0.2", router)] {
        let program =
            server.start(&format!("/usr/bin/python3 -m http.server 8000 --bind {address} --directory {folder}"));
        wait_for("the server", || server.try_sh("ss -Hltn 'sport = 8000' | grep -q .").status.success());
        let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
        let fetched = sum(client.sh(&format!("curl -gs --max-time 60 http://{host}:8000/large | sha256sum")));
        assert_eq!(fetched, expected, "{address}");
        drop(program);
        wait_for("the server's end", || !server.try_sh("ss -Hltn 'sport = 8000' | grep -q .").status.success());
    }
    // Forwarded traffic continues during the exchange.
    let printed = a.sh("ping -c 3 -i 0.05 -W 5 10.2.0.2");
    assert!(printed.contains("3 received"), "{printed}");

    let sent = router.counted("punt");
    let report = godwit.stop();
    assert!(port(&report, "punt", "received_packets") >= sent.sent && sent.sent > 1000, "{sent:?} {report:#}");
    assert!(port(&report, "punt", "sent_packets") >= sent.received && sent.received > 1000, "{sent:?} {report:#}");
    // The TAP interface belongs to the process and disappears with it.
    assert!(!router.try_sh("ip link show dev punt").status.success());
}
