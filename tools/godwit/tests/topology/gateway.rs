//! Tunnels host – gateway ═ESP═ gateway – host, also with scapy as the second gateway.

use std::time::Duration;

use serde_json::Value;

use crate::net::{Godwit, Host, Net, counter, port, wait_for};

/// One end of the tunnel: the outside addresses and the inner networks of both gateways.
pub(crate) struct End<'a> {
    pub(crate) gateway: &'a Host,
    pub(crate) host: &'a Host,
    /// MAC address of the next gateway on the outer network.
    pub(crate) next_mac: String,
    pub(crate) outside: [&'a str; 2],
    pub(crate) inside: [&'a str; 2],
}

/// Keys of the two directions, with their SPIs.
fn key(spi: u32) -> String {
    (0..20u32).map(|byte| format!("{:02x}", (spi % 251 * 7 + byte * 13) % 256)).collect()
}

/// Configuration of one SA. `ends` holds the outer source and destination addresses.
pub(crate) fn security_association(name: &str, spi: u32, direction: &str, ends: [&str; 2], transforms: &str) -> String {
    let [source, destination] = ends;
    let new = if direction == "out" { "key_is_new = true\n" } else { "" };
    format!(
        "[[function.sa]]\nname = \"{name}\"\nspi = {spi}\ndirection = \"{direction}\"\nsource = \"{source}\"\ndestination = \
         \"{destination}\"\n{transforms}{new}"
    )
}

impl End<'_> {
    /// Configuration of a gateway with AES-GCM. `spis` holds the outbound and the inbound SPI.
    fn config_gcm(&self, spis: [u32; 2]) -> String {
        let [own, other] = self.outside;
        let sa = |name: &str, spi: u32, ends: [&str; 2]| {
            let transforms = format!("encryption = \"aes-128-gcm\"\nencryption_key = \"{}\"\n", key(spi));
            security_association(name, spi, name, ends, &transforms)
        };
        let sas = sa("out", spis[0], [own, other]) + &sa("in", spis[1], [other, own]);
        self.config(&sas, "protocol = \"esp\"")
    }

    /// Configuration of a gateway. `sas` holds the stanzas of the SAs `in` and `out`. `tunnel`
    /// holds the keys of the rule that selects the tunnel's packets from the other end.
    pub(crate) fn config(&self, sas: &str, tunnel: &str) -> String {
        let [own, other] = self.outside;
        let hop = |name: &str, port: &str, mac: &str| {
            format!(
                "[[function.next_hop]]\nname = \"{name}\"\nport = \"{port}\"\ndestination_mac = \"{mac}\"\nsource_mac = \"{}\"\n",
                self.gateway.mac(port)
            )
        };
        let [ours, theirs] = self.inside;
        [
            "[engine]\npin = false\nidle = \"sleep\"\n".to_owned(),
            "[[port]]\nname = \"lan\"\nkind = \"af_xdp\"\ninterface = \"lan\"\n".to_owned(),
            // The rule selects only the tunnel. The kernel receives all other packets from outside.
            "[[port]]\nname = \"wan\"\nkind = \"af_xdp\"\ninterface = \"wan\"\ntake = \"none\"\n".to_owned(),
            format!("rules = [{{ action = \"take\", {tunnel}, source = \"{other}\", destination = \"{own}\" }}]\n"),
            "[[function]]\nname = \"tunnel\"\nkind = \"ipsec\"\n".to_owned(),
            sas.to_owned(),
            format!("[[function.policy]]\naction = \"protect\"\nsource = \"{ours}\"\ndestination = \"{theirs}\"\nsa = \"out\"\n"),
            "[[function]]\nname = \"route\"\nkind = \"ipv4\"\n".to_owned(),
            hop("inside", "lan", &self.host.mac("eth0")),
            hop("outside", "wan", &self.next_mac),
            format!("[[function.route]]\nprefix = \"{ours}\"\nnext_hop = \"inside\"\n"),
            "[[function.route]]\nprefix = \"0.0.0.0/0\"\nnext_hop = \"outside\"\n".to_owned(),
            "[[chain]]\nfrom = \"lan\"\nto = \"tunnel\"\n[[chain]]\nfrom = \"wan\"\nto = \"tunnel\"\n".to_owned(),
            "[[chain]]\nfrom = \"tunnel\"\nto = \"route\"\n".to_owned(),
            "[[chain]]\nfrom = \"route\"\nverdict = \"forward\"\nto = \"egress\"\n[[chain]]\nfrom = \"route\"\nto = \"drop\"\n".to_owned(),
        ]
        .concat()
    }
}

#[test]
fn hosts_reach_each_other_through_a_tunnel() {
    let Some(mut net) = Net::new(&["ping", "iperf3", "ethtool"]) else { return };
    let [a, left, right, b] = ["a", "gl", "gr", "b"].map(|name| net.host(name));
    net.cable([(&a, "eth0", &["10.1.0.2/24"]), (&left, "lan", &["10.1.0.1/24"])]);
    net.cable([(&left, "wan", &["192.0.2.1/24"]), (&right, "wan", &["192.0.2.2/24"])]);
    net.cable([(&right, "lan", &["10.2.0.1/24"]), (&b, "eth0", &["10.2.0.2/24"])]);
    a.sh("ip route add default via 10.1.0.1");
    b.sh("ip route add default via 10.2.0.1");
    // The inner MTU leaves space for ESP.
    a.sh("ip link set eth0 mtu 1400");
    b.sh("ip link set eth0 mtu 1400");
    let one = End {
        gateway: &left,
        host: &a,
        next_mac: right.mac("wan"),
        outside: ["192.0.2.1", "192.0.2.2"],
        inside: ["10.1.0.0/24", "10.2.0.0/24"],
    };
    let other = End {
        gateway: &right,
        host: &b,
        next_mac: left.mac("wan"),
        outside: ["192.0.2.2", "192.0.2.1"],
        inside: ["10.2.0.0/24", "10.1.0.0/24"],
    };
    let at_left = left.godwit(&net, &one.config_gcm([0x1001, 0x2001]), &["lan", "wan"]);
    let at_right = right.godwit(&net, &other.config_gcm([0x2001, 0x1001]), &["lan", "wan"]);
    let printed = a.sh("ping -c 10 -i 0.05 -W 2 10.2.0.2");
    assert!(printed.contains("10 received"), "{printed}");
    // The kernels of the gateways reach each other outside the tunnel.
    let printed = left.sh("ping -c 3 -i 0.05 -W 2 192.0.2.2");
    assert!(printed.contains("3 received"), "{printed}");
    let server = b.start("iperf3 -s");
    wait_for("iperf3", || b.try_sh("ss -Hltn 'sport = 5201' | grep -q .").status.success());
    let printed: Value = serde_json::from_str(&a.sh("iperf3 -c 10.2.0.2 -t 1 -J")).expect("JSON");
    assert!(printed["end"]["sum_received"]["bits_per_second"].as_f64().is_some_and(|bits| bits > 1e6), "{printed:#}");
    drop(server);
    let reports = silent([&left, &right], [at_left, at_right]);
    opened_what_was_sent([&left, &right], &reports);
}

/// Stops both gateways when no packet is in flight between them. Returns their reports.
fn silent(gateways: [&Host; 2], programs: [Godwit; 2]) -> [Value; 2] {
    let total = || gateways.map(|gateway| gateway.counted("wan"));
    let mut before = total();
    wait_for("silence", || {
        std::thread::sleep(Duration::from_millis(300));
        std::mem::replace(&mut before, total()) == before
    });
    programs.map(Godwit::stop)
}

/// The numbers of encapsulated and decapsulated packets agree, except for counted drops at full
/// rings and full cables.
#[track_caller]
fn opened_what_was_sent(gateways: [&Host; 2], [one, other]: &[Value; 2]) {
    for (sender, from, to) in [(gateways[0], one, other), (gateways[1], other, one)] {
        let lost = port(to, "wan", "missed") + sender.counted("wan").dropped;
        let (sent, encrypted) = (port(from, "wan", "sent_packets"), counter(from, "ipsec_verdict_encrypted"));
        assert_eq!(sent, port(to, "wan", "received_packets") + lost, "{lost} lost: {from:#} {to:#}");
        assert_eq!(encrypted, counter(to, "ipsec_verdict_decrypted") + lost, "{lost} lost: {from:#} {to:#}");
        assert!(encrypted > 10, "{from:#}");
    }
}

#[test]
fn scapy_acts_as_the_other_gateway() {
    let Some(mut net) = Net::new(&["ping", "ethtool"]) else { return };
    let Some(_) = godwit_test_support::python("scapy.layers.ipsec") else { return };
    let [a, left, right] = ["a", "gl", "scapy"].map(|name| net.host(name));
    net.cable([(&a, "eth0", &["10.1.0.2/24"]), (&left, "lan", &["10.1.0.1/24"])]);
    net.cable([(&left, "wan", &["192.0.2.1/24"]), (&right, "wan", &["192.0.2.2/24"])]);
    a.sh("ip route add default via 10.1.0.1");
    let end = End {
        gateway: &left,
        host: &a,
        next_mac: right.mac("wan"),
        outside: ["192.0.2.1", "192.0.2.2"],
        inside: ["10.1.0.0/24", "10.2.0.0/24"],
    };
    let ready = net.folder().join("ready");
    let script = godwit_test_support::repository().join("tests/peers/gateway_scapy.py");
    let arguments = format!("{} wan {} 4099 {} 8195 {}", script.display(), left.mac("wan"), key(0x1003), key(0x2003));
    let python = if std::path::Path::new("/usr/bin/python3").exists() { "/usr/bin/python3" } else { "python3" };
    let _scapy = right.start(&format!("{python} {arguments} {}", ready.display()));
    wait_for("scapy", || ready.exists());
    let godwit = left.godwit(&net, &end.config_gcm([0x1003, 0x2003]), &["lan", "wan"]);
    // scapy decrypts, answers as 10.2.0.2, and encrypts the answer.
    let printed = a.sh("ping -c 5 -i 0.2 -W 5 10.2.0.2");
    assert!(printed.contains("5 received"), "{printed}");
    let printed = a.sh("ping -c 2 -i 0.2 -s 1200 -W 5 10.2.0.2");
    assert!(printed.contains("2 received"), "{printed}");
    let report = godwit.stop();
    assert_eq!(counter(&report, "ipsec_verdict_encrypted"), 7, "{report:#}");
    assert_eq!(counter(&report, "ipsec_verdict_decrypted"), 7, "{report:#}");
}

/// Gateways that do not route keep the Ethernet header of each packet. Therefore each host has the
/// MAC address that the other host sends to.
#[test]
fn hosts_reach_each_other_through_an_ipv6_tunnel() {
    let Some(mut net) = Net::new(&["ping", "iperf3", "ethtool"]) else { return };
    let [a, left, right, b] = ["a", "gl", "gr", "b"].map(|name| net.host(name));
    net.cable([(&a, "eth0", &["fd00:1::2/64"]), (&left, "lan", &["fd00:1::1/64"])]);
    net.cable([(&left, "wan", &["2001:db8::1/64"]), (&right, "wan", &["2001:db8::2/64"])]);
    net.cable([(&right, "lan", &["fd00:2::1/64"]), (&b, "eth0", &["fd00:2::2/64"])]);
    let ends = [(&a, &left, &right, "fd00:1::1"), (&b, &right, &left, "fd00:2::1")];
    for (host, gateway, other, address) in ends {
        host.sh(&format!("ip link set eth0 mtu 1400 address {}", other.mac("lan")));
        host.sh(&format!("ip -6 route replace default via {address}"));
        host.knows("eth0", address, &gateway.mac("lan"));
    }
    let sa = |name: &str, spi: u32, direction: &str, source: &str, destination: &str| {
        let new = if direction == "out" { "key_is_new = true\n" } else { "" };
        format!(
            "[[function.sa]]\nname = \"{name}\"\nspi = {spi}\ndirection = \"{direction}\"\nsource = \"{source}\"\ndestination = \"{destination}\"\n\
             encryption = \"aes-128-gcm\"\nencryption_key = \"{}\"\n{new}",
            key(spi)
        )
    };
    let config = |[own, other]: [&str; 2], [ours, theirs]: [&str; 2], [out, back]: [u32; 2]| {
        [
            "[engine]\npin = false\nidle = \"sleep\"\n".to_owned(),
            "[[port]]\nname = \"lan\"\nkind = \"af_xdp\"\ninterface = \"lan\"\n".to_owned(),
            "[[port]]\nname = \"wan\"\nkind = \"af_xdp\"\ninterface = \"wan\"\ntake = \"none\"\n".to_owned(),
            format!("rules = [{{ action = \"take\", protocol = \"esp\", source = \"{other}\", destination = \"{own}\" }}]\n"),
            "[[function]]\nname = \"tunnel\"\nkind = \"ipsec\"\n".to_owned(),
            sa("out", out, "out", own, other),
            sa("in", back, "in", other, own),
            format!("[[function.policy]]\naction = \"protect\"\nsource = \"{ours}\"\ndestination = \"{theirs}\"\nsa = \"out\"\n"),
            "[[chain]]\nfrom = \"lan\"\nto = \"tunnel\"\n[[chain]]\nfrom = \"wan\"\nto = \"tunnel\"\n".to_owned(),
            "[[chain]]\nfrom = \"tunnel\"\nverdict = \"encrypted\"\nto = \"wan\"\n".to_owned(),
            "[[chain]]\nfrom = \"tunnel\"\nverdict = \"decrypted\"\nto = \"lan\"\n[[chain]]\nfrom = \"tunnel\"\nto = \"drop\"\n".to_owned(),
        ]
        .concat()
    };
    let (outside, inside) = (["2001:db8::1", "2001:db8::2"], ["fd00:1::/64", "fd00:2::/64"]);
    let at_left = left.godwit(&net, &config(outside, inside, [0x1005, 0x2005]), &["lan", "wan"]);
    let turned = |[one, other]: [&'static str; 2]| [other, one];
    let at_right = right.godwit(&net, &config(turned(outside), turned(inside), [0x2005, 0x1005]), &["lan", "wan"]);
    let printed = a.sh("ping -6 -c 10 -i 0.05 -W 2 fd00:2::2");
    assert!(printed.contains("10 received"), "{printed}");
    // The kernels handle neighbour discovery and all packets outside the tunnel.
    let printed = left.sh("ping -6 -c 3 -i 0.05 -W 2 2001:db8::2");
    assert!(printed.contains("3 received"), "{printed}");
    let server = b.start("iperf3 -s");
    wait_for("iperf3", || b.try_sh("ss -Hltn 'sport = 5201' | grep -q .").status.success());
    let printed: Value = serde_json::from_str(&a.sh("iperf3 -6 -c fd00:2::2 -t 1 -J")).expect("JSON");
    assert!(printed["end"]["sum_received"]["bits_per_second"].as_f64().is_some_and(|bits| bits > 1e6), "{printed:#}");
    drop(server);
    let reports = silent([&left, &right], [at_left, at_right]);
    opened_what_was_sent([&left, &right], &reports);
}

/// Number of SAs in each direction, and of hosts behind the right gateway.
const SAS: u32 = 6;

/// Configuration of a gateway with two workers and one SA for each host behind the right gateway.
/// `is_left` states which gateway it is.
fn config_of_workers(end: &End<'_>, is_left: bool) -> String {
    let [own, other] = end.outside;
    let sa = |name: &str, spi: u32, direction: &str, ends: [&str; 2]| {
        let transforms = format!("encryption = \"aes-128-gcm\"\nencryption_key = \"{}\"\n", key(spi));
        security_association(name, spi, direction, ends, &transforms)
    };
    let mut sas = String::new();
    for number in 0..SAS {
        let spis = [0x3000 + number, 0x4000 + number];
        let [out, back] = if is_left { spis } else { [spis[1], spis[0]] };
        let name = if number == 0 { "out".to_owned() } else { format!("out-{number}") };
        sas += &sa(&name, out, "out", [own, other]);
        sas += &sa(&format!("in-{number}"), back, "in", [other, own]);
        let selector = if is_left { "destination" } else { "source" };
        sas += &format!(
            "[[function.policy]]\naction = \"protect\"\n{selector} = \"10.2.0.{}\"\nsa = \"{name}\"\n",
            2 + number
        );
    }
    end.config(&sas, "protocol = \"esp\"").replacen("[engine]\n", "[engine]\nworkers = 2\n", 1)
}

/// The NICs spread packets over two workers, and each worker owns half of the SAs.
#[test]
fn two_workers_share_the_sas_of_a_tunnel() {
    let Some(mut net) = Net::new(&["ping", "iperf3", "ethtool"]) else { return };
    let [a, left, right, b] = ["a", "gl", "gr", "b"].map(|name| net.host(name));
    let hosts: Vec<String> = (0..SAS).map(|number| format!("10.2.0.{}/24", 2 + number)).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    net.cable([(&a, "eth0", &["10.1.0.2/24"]), (&left, "lan", &["10.1.0.1/24"])]);
    net.cable([(&left, "wan", &["192.0.2.1/24"]), (&right, "wan", &["192.0.2.2/24"])]);
    net.cable([(&right, "lan", &["10.2.0.1/24"]), (&b, "eth0", &hosts)]);
    let ends = [(&a, "eth0"), (&left, "lan"), (&left, "wan"), (&right, "wan"), (&right, "lan"), (&b, "eth0")];
    for (host, name) in ends {
        if !host.try_sh(&format!("ethtool -L {name} rx 2 tx 2")).status.success() {
            // On a machine with one core, a veth has one queue.
            return;
        }
    }
    a.sh("ip route add default via 10.1.0.1");
    b.sh("ip route add default via 10.2.0.1");
    a.sh("ip link set eth0 mtu 1400");
    b.sh("ip link set eth0 mtu 1400");
    let one = End {
        gateway: &left,
        host: &a,
        next_mac: right.mac("wan"),
        outside: ["192.0.2.1", "192.0.2.2"],
        inside: ["10.1.0.0/24", "10.2.0.0/24"],
    };
    let other = End {
        gateway: &right,
        host: &b,
        next_mac: left.mac("wan"),
        outside: ["192.0.2.2", "192.0.2.1"],
        inside: ["10.2.0.0/24", "10.1.0.0/24"],
    };
    let at_left = left.godwit(&net, &config_of_workers(&one, true), &["lan", "wan"]);
    let at_right = right.godwit(&net, &config_of_workers(&other, false), &["lan", "wan"]);
    let pings: Vec<_> = (0..SAS)
        .map(|number| {
            let mut ping = a.command("ping");
            ping.args(["-c", "100", "-i", "0.004", "-W", "4", &format!("10.2.0.{}", 2 + number)]);
            ping.stdout(std::process::Stdio::piped()).spawn().expect("ping starts")
        })
        .collect();
    for ping in pings {
        let printed = String::from_utf8(ping.wait_with_output().expect("ping ends").stdout).expect("text");
        assert!(printed.contains("100 received") && !printed.contains("DUP"), "{printed}");
        // The answers come in the order of the requests.
        let number = |line: &str| line.split("icmp_seq=").nth(1)?.split(' ').next()?.parse::<u32>().ok();
        assert!(printed.lines().filter_map(number).eq(1..=100), "{printed}");
    }
    let server = b.start("iperf3 -s");
    wait_for("iperf3", || b.try_sh("ss -Hltn 'sport = 5201' | grep -q .").status.success());
    for number in 0..2 {
        let printed: Value =
            serde_json::from_str(&a.sh(&format!("iperf3 -c 10.2.0.{} -t 1 -P 4 -J", 2 + number))).expect("JSON");
        assert!(
            printed["end"]["sum_received"]["bits_per_second"].as_f64().is_some_and(|bits| bits > 1e6),
            "{printed:#}"
        );
    }
    drop(server);
    let reports = silent([&left, &right], [at_left, at_right]);
    for report in &reports {
        assert!(counter(report, "engine_exchanged") > 100, "{report:#}");
        for reason in ["ipsec_dropped_wrong_worker", "ipsec_dropped_replayed", "ipsec_dropped_authentication"] {
            assert_eq!(counter(report, reason), 0, "{reason}: {report:#}");
        }
    }
    let [one, other] = &reports;
    for (sender, from, to) in [(&left, one, other), (&right, other, one)] {
        let lost = port(to, "wan", "missed") + sender.counted("wan").dropped + counter(to, "engine_dropped_exchange");
        let (encrypted, opened) = (counter(from, "ipsec_verdict_encrypted"), counter(to, "ipsec_verdict_decrypted"));
        // A full ring of the receiver drops tunnelled packets or packets of the inner network.
        let least = opened + port(to, "wan", "missed") + sender.counted("wan").dropped;
        assert!((least..=opened + lost).contains(&encrypted), "{encrypted} sent, {opened} opened: {from:#} {to:#}");
    }
}
