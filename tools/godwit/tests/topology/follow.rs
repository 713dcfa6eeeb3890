//! A router that uses the routes, neighbours and MTUs of its kernel, and sends ICMP errors to
//! senders.

use crate::common;
use crate::net::{Host, Net, counter, wait_for};
use crate::router::Routed;

/// The function `kind` forwards. `left` and `right` are the addresses of the router.
fn config(router: &Host, kind: &str, [left, right]: [&str; 2]) -> String {
    let port = |name: &str| format!("[[port]]\nname = \"{name}\"\nkind = \"af_xdp\"\ninterface = \"{name}\"\n");
    let interface = |name: &str, address: &str| {
        let mac = router.mac(name);
        format!("[[function.interface]]\nport = \"{name}\"\nmac = \"{mac}\"\naddresses = [\"{address}\"]\n")
    };
    [
        "[engine]\npin = false\nidle = \"sleep\"\n".to_owned(),
        port("left"),
        port("right"),
        format!("[[function]]\nname = \"route\"\nkind = \"{kind}\"\n"),
        "[function.follow]\nroutes = \"kernel\"\ninterfaces = { left = \"left\", right = \"right\" }\n".to_owned(),
        "[[function]]\nname = \"self\"\nkind = \"responder\"\n".to_owned(),
        interface("left", left),
        interface("right", right),
        "[[chain]]\nfrom = \"left\"\nto = \"route\"\n[[chain]]\nfrom = \"right\"\nto = \"route\"\n".to_owned(),
        "[[chain]]\nfrom = \"route\"\nverdict = \"forward\"\nto = \"egress\"\n".to_owned(),
        "[[chain]]\nfrom = \"route\"\nto = \"self\"\n".to_owned(),
        "[[chain]]\nfrom = \"self\"\nverdict = \"other\"\nto = \"drop\"\n".to_owned(),
        "[[chain]]\nfrom = \"self\"\nto = \"egress\"\n".to_owned(),
    ]
    .concat()
}

/// The kernel treats a neighbour as reachable for one second instead of thirty.
fn doubt_soon(router: &Host, family: &str) {
    for (name, value) in [("base_reachable_time_ms", 1000), ("delay_first_probe_time", 1)] {
        router.sh(&format!("echo {value} > /proc/sys/net/{family}/neigh/right/{name}"));
    }
}

#[test]
fn an_ipv4_router_uses_tables_of_its_kernel() {
    let Some(mut net) = Net::new(&["ping", "ethtool"]) else { return };
    let routed = Routed::new(&mut net);
    let Routed { a, router, b } = &routed;
    doubt_soon(router, "ipv4");
    let control = net.folder().join("control");
    let config = config(router, "ipv4", ["10.1.0.1/24", "10.2.0.1/24"]);
    let config = config.replacen("[engine]\n", &format!("[engine]\ncontrol = \"{}\"\n", control.display()), 1);
    let godwit = router.godwit(&net, &config, &["left", "right"]);
    let printed = |line: &str| String::from_utf8_lossy(&a.try_sh(line).stdout).into_owned();
    let answered = |line: &str| printed(line).contains("1 received");

    // No station has a neighbour entry. The kernel resolves the neighbours on demand. The first
    // packets wait, and none is lost.
    wait_for("the routes", || printed("ping -c 1 -W 1 -t 1 10.2.0.2").contains("Time to live exceeded"));
    let through = a.sh("ping -c 5 -i 0.05 -W 5 10.2.0.2");
    assert!(through.contains("5 received") && through.contains("ttl=63"), "{through}");

    // Packets that cannot be forwarded cause ICMP errors.
    let expired = printed("ping -c 1 -W 2 -t 1 10.2.0.2");
    assert!(expired.contains("From 10.1.0.1") && expired.contains("Time to live exceeded"), "{expired}");
    let nowhere = printed("ping -c 1 -W 2 192.0.2.1");
    assert!(nowhere.contains("Destination Net Unreachable"), "{nowhere}");
    // No station has this address, and more packets wait than the limit allows.
    let unanswered = printed("ping -c 40 -i 0.002 -W 5 10.2.0.99");
    assert!(unanswered.contains("Destination Host Unreachable"), "{unanswered}");

    // After the MTU shrinks, senders learn it, or their packets are fragmented.
    router.sh("ip link set right mtu 1400");
    b.sh("ip link set eth0 mtu 1400");
    wait_for("the path's MTU", || printed("ping -c 1 -W 2 -M do -s 1450 10.2.0.2").contains("mtu = 1400"));
    a.sh("ip route flush cache");
    wait_for("fragments", || answered("ping -c 1 -W 2 -M dont -s 1450 10.2.0.2"));

    // Routes are added and deleted.
    b.sh("ip address add 10.7.0.1/32 dev lo");
    router.sh("ip route add 10.7.0.0/16 via 10.2.0.2");
    wait_for("a new route", || answered("ping -c 1 -W 1 10.7.0.1"));
    router.sh("ip route delete 10.7.0.0/16");
    wait_for("no route", || printed("ping -c 1 -W 1 10.7.0.1").contains("Destination Net Unreachable"));

    // An operator adds and deletes a route over a gateway, which the kernel resolves.
    b.sh("ip neigh flush all; ip address add 10.8.0.1/32 dev lo");
    let route = |words: &str| {
        let mut command = common::godwit();
        common::run(command.arg("route").args(words.split(' ')).arg("--control").arg(&control))
    };
    let refused = route("add 10.8.0.0/16 via 192.0.2.7");
    assert!(refused.refused().contains("192.0.2.7 is in no subnet of a followed interface"), "{refused:?}");
    let refused = route("add 10.8.0.0/16 via 10.2.0.2 port rihgt");
    assert!(refused.refused().contains("the ports are left, right"), "{refused:?}");
    route("add 10.8.0.0/16 via 10.2.0.2").succeeded();
    wait_for("a route of an operator", || answered("ping -c 1 -W 1 10.8.0.1"));
    let listed = route("list --address 10.8.0.1").succeeded().stdout;
    assert!(listed.contains("10.8.0.0/16") && listed.contains("to a station  right"), "{listed}");
    router.sh("ip route add 10.8.0.0/16 via 10.2.0.99");
    route("add 10.8.0.0/16 via 10.2.0.2 port right").succeeded();
    assert!(answered("ping -c 1 -W 1 10.8.0.1"), "the route of the operator precedes that of the kernel");
    route("delete 10.8.0.0/16").succeeded();
    wait_for("the route of the kernel", || !answered("ping -c 1 -W 1 10.8.0.1"));
    router.sh("ip route delete 10.8.0.0/16");
    wait_for("no route", || printed("ping -c 1 -W 1 10.8.0.1").contains("Destination Net Unreachable"));
    assert_eq!(route("list --address 10.8.0.1").refused(), "no route covers 10.8.0.1");

    // The neighbour gets another MAC address, and Godwit uses it.
    b.sh("ip link set eth0 down && ip link set eth0 address 02:00:00:00:77:01 && ip link set eth0 up");
    b.sh("ip route replace default via 10.2.0.1");
    wait_for("its new address", || answered("ping -c 1 -W 1 10.2.0.2"));
    b.sh("ip link set eth0 address 02:00:00:00:77:02");
    wait_for("an unannounced address", || answered("ping -c 1 -W 1 10.2.0.2"));

    let report = godwit.stop();
    assert!(counter(&report, "responder_dropped_unresolved") >= 40 - 16, "{report:#}");
    for name in ["left", "right"] {
        assert!(!router.has_xdp(name), "{name}");
    }
}

#[test]
fn an_ipv6_router_uses_tables_of_its_kernel() {
    let Some(mut net) = Net::new(&["ping", "curl", "ethtool"]) else { return };
    let [a, router, b] = ["a", "r", "b"].map(|name| net.host(name));
    net.cable([(&a, "eth0", &["fd00:1::2/64"]), (&router, "left", &["fd00:1::1/64"])]);
    net.cable([(&b, "eth0", &["fd00:2::2/64"]), (&router, "right", &["fd00:2::1/64"])]);
    a.sh("ip route add default via fd00:1::1");
    b.sh("ip route add default via fd00:2::1");
    doubt_soon(&router, "ipv6");
    let config = config(&router, "ipv6", ["fd00:1::1/64", "fd00:2::1/64"]);
    let godwit = router.godwit(&net, &config, &["left", "right"]);
    let printed = |line: &str| String::from_utf8_lossy(&a.try_sh(line).stdout).into_owned();
    let answered = |line: &str| printed(line).contains("1 received");

    // The kernel handles neighbour discovery on both sides.
    // The first packets wait, and none is lost.
    wait_for("the routes", || printed("ping -c 1 -W 1 -t 1 fd00:2::2").contains("Hop limit"));
    let through = a.sh("ping -c 5 -i 0.05 -W 5 fd00:2::2");
    assert!(through.contains("5 received") && through.contains("ttl=63"), "{through}");
    let own = a.sh("ping -c 2 -i 0.05 -W 2 fd00:1::1");
    assert!(own.contains("2 received") && own.contains("ttl=64"), "the router's own address: {own}");

    // Packets that cannot be forwarded cause ICMP errors.
    let expired = printed("ping -c 1 -W 2 -t 1 fd00:2::2");
    assert!(expired.to_lowercase().contains("from fd00:1::1") && expired.contains("Hop limit"), "{expired}");
    let nowhere = printed("ping -c 1 -W 2 2001:db8::1");
    assert!(nowhere.contains("No route"), "{nowhere}");
    let unanswered = printed("ping -c 1 -W 5 fd00:2::99");
    assert!(unanswered.contains("Address unreachable"), "{unanswered}");

    // A TCP connection discovers the path MTU.
    router.sh("ip link set right mtu 1300");
    b.sh("ip link set eth0 mtu 1300");
    wait_for("the path's MTU", || printed("ping -c 1 -W 2 -M do -s 1400 fd00:2::2").contains("1300"));
    let block: Vec<u8> = (0..3_000_001u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    net.file("large", block);
    let folder = net.folder().display();
    let server = b.start(&format!("/usr/bin/python3 -m http.server 8000 --bind fd00:2::2 --directory {folder}"));
    wait_for("the server", || b.try_sh("ss -Hltn 'sport = 8000' | grep -q .").status.success());
    let sum = |printed: String| printed.split_whitespace().next().map(str::to_owned);
    let fetched = sum(a.sh("curl -gs --max-time 60 'http://[fd00:2::2]:8000/large' | sha256sum"));
    assert_eq!(fetched, sum(a.sh(&format!("sha256sum {folder}/large"))));
    drop(server);

    // Routes are added and deleted.
    b.sh("ip address add fd00:7::1/128 dev lo");
    router.sh("ip route add fd00:7::/32 via fd00:2::2");
    wait_for("a new route", || answered("ping -c 1 -W 1 fd00:7::1"));
    router.sh("ip route delete fd00:7::/32");
    wait_for("no route", || printed("ping -c 1 -W 1 fd00:7::1").contains("No route"));

    // The neighbour gets another MAC address, and Godwit uses it.
    b.sh("ip link set eth0 down && ip link set eth0 address 02:00:00:00:77:01");
    b.sh("ip link set eth0 up && ip address replace fd00:2::2/64 dev eth0 && ip route replace default via fd00:2::1");
    wait_for("its new address", || answered("ping -c 1 -W 1 fd00:2::2"));
    b.sh("ip link set eth0 address 02:00:00:00:77:02");
    wait_for("an unannounced address", || answered("ping -c 1 -W 1 fd00:2::2"));

    let report = godwit.stop();
    assert!(counter(&report, "ipv6_verdict_forward") > 0, "{report:#}");
    for name in ["left", "right"] {
        assert!(!router.has_xdp(name), "{name}");
    }
}
