//! Connects four hosts by two switches and a trunk. Two hosts are in one VLAN, two in another.

use std::path::Path;

use crate::net::{Host, Net, counter, wait_for};

/// `members` holds the ports, each with its VLANs.
fn config(control: &Path, members: &[(&str, &str)]) -> String {
    let port = |(name, vlans): &(&str, &str)| {
        let port = format!("[[port]]\nname = \"{name}\"\nkind = \"af_xdp\"\ninterface = \"{name}\"\ntake = \"all\"\n");
        let chain = format!("[[chain]]\nfrom = \"{name}\"\nto = \"switch\"\n");
        (port + &chain, format!("[[function.port]]\nport = \"{name}\"\n{vlans}\n"))
    };
    let (ports, members): (Vec<String>, Vec<String>) = members.iter().map(port).unzip();
    [
        format!("[engine]\npin = false\nidle = \"sleep\"\ncontrol = \"{}\"\n", control.display()),
        ports.concat(),
        "[[function]]\nname = \"switch\"\nkind = \"l2\"\ncapacity = 1000\n".to_owned(),
        members.concat(),
        "[[chain]]\nfrom = \"switch\"\nverdict = \"forward\"\nto = \"egress\"\n".to_owned(),
        "[[chain]]\nfrom = \"switch\"\nverdict = \"flood\"\nto = \"egress\"\n".to_owned(),
        "[[chain]]\nfrom = \"switch\"\nto = \"drop\"\n".to_owned(),
    ]
    .concat()
}

/// Returns VLAN, address and port of each learned entry, in order.
fn learned(switch: &Host, control: &Path) -> Vec<(u64, String, String)> {
    let mut command = switch.command(env!("CARGO_BIN_EXE_godwit"));
    command.args(["mac", "list", "--function", "switch", "--json", "-", "--control"]).arg(control);
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let list = printed["mac"].as_array().or(printed.as_array()).unwrap_or_else(|| panic!("{printed:#}"));
    let text = |entry: &serde_json::Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    list.iter()
        .map(|entry| (entry["vlan"].as_u64().unwrap_or_default(), text(entry, "mac"), text(entry, "port")))
        .collect()
}

#[test]
fn four_hosts_at_two_switches() {
    let Some(mut net) = Net::new(&["ping", "iperf3", "ethtool"]) else { return };
    let [a, b, c, d, one, other] = ["a", "b", "c", "d", "s1", "s2"].map(|name| net.host(name));
    net.cable([(&a, "eth0", &["10.10.0.1/24", "fd10::1/64"]), (&one, "pa", &[])]);
    net.cable([(&b, "eth0", &["10.10.0.2/24", "fd10::2/64"]), (&other, "pb", &[])]);
    // The same address exists in the other VLAN, which must not receive the packets.
    net.cable([(&c, "eth0", &["10.20.0.3/24", "10.10.0.3/24"]), (&one, "pc", &[])]);
    net.cable([(&d, "eth0", &["10.20.0.4/24"]), (&other, "pd", &[])]);
    net.cable([(&one, "trunk", &[]), (&other, "trunk", &[])]);
    // The MTU of the cable leaves space for tags.
    one.sh("ip link set trunk mtu 1504");
    other.sh("ip link set trunk mtu 1504");
    let controls = ["one.sock", "other.sock"].map(|name| net.folder().join(name));
    let trunk = ("trunk", "trunk = [10, 20]");
    let at_one = config(&controls[0], &[("pa", "access = 10"), ("pc", "access = 20"), trunk]);
    let at_other = config(&controls[1], &[("pb", "access = 10"), ("pd", "access = 20"), trunk]);
    let godwit =
        [one.godwit(&net, &at_one, &["pa", "pc", "trunk"]), other.godwit(&net, &at_other, &["pb", "pd", "trunk"])];

    for (from, to) in [(&a, "10.10.0.2"), (&b, "10.10.0.1"), (&c, "10.20.0.4"), (&d, "10.20.0.3")] {
        let printed = from.sh(&format!("ping -c 5 -i 0.02 -W 2 {to}"));
        assert!(printed.contains("5 received") && printed.contains("ttl=64"), "{to}: {printed}");
    }
    // Neighbour discovery uses multicast, which the switch floods like broadcast.
    let printed = a.sh("ping -c 3 -i 0.02 -W 2 fd10::2");
    assert!(printed.contains("3 received"), "{printed}");
    // Frames of full length carry a tag.
    let printed = a.sh("ping -c 3 -i 0.02 -W 2 -M do -s 1472 10.10.0.2");
    assert!(printed.contains("3 received"), "{printed}");
    // The other VLAN is a separate network.
    let printed = String::from_utf8_lossy(&a.try_sh("ping -c 2 -i 0.02 -W 1 10.10.0.3").stdout).into_owned();
    assert!(printed.contains(" 0 received"), "{printed}");

    let [of_a, of_b, of_c, of_d] = [&a, &b, &c, &d].map(|host| host.mac("eth0"));
    let entry = |vlan: u64, mac: &String, port: &str| (vlan, mac.clone(), port.to_owned());
    let mut expected =
        [entry(10, &of_a, "pa"), entry(10, &of_b, "trunk"), entry(20, &of_c, "pc"), entry(20, &of_d, "trunk")];
    expected.sort();
    wait_for("all addresses", || {
        let mut known = learned(&one, &controls[0]);
        known.sort();
        known == expected
    });

    // The switch has learned both addresses, so other hosts do not receive this traffic.
    let before = c.counted("eth0").received + d.counted("eth0").received;
    let server = b.start("iperf3 -s");
    wait_for("iperf3", || b.try_sh("ss -Hltn 'sport = 5201' | grep -q .").status.success());
    let printed: serde_json::Value = serde_json::from_str(&a.sh("iperf3 -c 10.10.0.2 -t 1 -J")).expect("JSON");
    assert!(printed["end"]["sum_received"]["bits_per_second"].as_f64().is_some_and(|bits| bits > 1e6), "{printed:#}");
    drop(server);
    let heard = c.counted("eth0").received + d.counted("eth0").received - before;
    assert!(heard < 20, "{heard} frames of another VLAN");

    // A host moves to the other switch, which learns the address.
    b.sh("ip link set eth0 down");
    a.sh(&format!("ip link set eth0 down && ip link set eth0 address {of_b} && ip link set eth0 up"));
    let _ = a.try_sh("ping -c 2 -i 0.02 -W 1 10.10.0.77");
    wait_for("the move", || learned(&one, &controls[0]).contains(&entry(10, &of_b, "pa")));

    let [at_one, at_other] = godwit.map(crate::net::Godwit::stop);
    for report in [&at_one, &at_other] {
        assert!(counter(report, "l2_verdict_flood") > 0 && counter(report, "l2_verdict_forward") > 0, "{report:#}");
        assert_eq!(counter(report, "l2_dropped_vlan"), 0, "{report:#}");
    }
    assert!(counter(&at_one, "l2_moved") >= 1, "{at_one:#}");
}
