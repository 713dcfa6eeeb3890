//! Rules of a port separate ESP in UDP from IKE and keepalives on the same UDP port.

use crate::net::{Net, port, wait_for};

#[test]
fn esp_in_udp_is_taken_and_ike_is_left_to_the_kernel() {
    let Some(mut net) = Net::new(&["bash", "ethtool"]) else { return };
    let [peer, gateway] = ["a", "g"].map(|name| net.host(name));
    let addresses: [&[&str]; 2] = [&["192.0.2.2/24", "2001:db8::2/64"], &["192.0.2.1/24", "2001:db8::1/64"]];
    net.cable([(&peer, "eth0", addresses[0]), (&gateway, "wan", addresses[1])]);
    for address in ["192.0.2.1", "2001:db8::1"] {
        peer.knows("eth0", address, &gateway.mac("wan"));
    }
    let config = "[engine]\npin = false\nidle = \"sleep\"\n\
        [[port]]\nname = \"wan\"\nkind = \"af_xdp\"\ninterface = \"wan\"\ntake = \"none\"\n\
        rules = [{ action = \"take\", protocol = \"esp-in-udp\" }]\n\
        [[port]]\nname = \"sink\"\nkind = \"synthetic\"\n[[chain]]\nfrom = \"wan\"\nto = \"drop\"\n";
    let godwit = gateway.godwit(&net, config, &["wan"]);
    let before = gateway.counted("wan").received;
    // Each packet goes to both addresses: IKE with its marker, ESP with an SPI of 1, a keepalive,
    // and ESP to another port.
    for (bytes, to) in [
        ("\\x00\\x00\\x00\\x00an IKE message", 4500),
        ("\\x00\\x00\\x00\\x01an ESP packet", 4500),
        ("\\xff", 4500),
        ("\\x00\\x00\\x00\\x01an ESP packet", 4501),
    ] {
        for address in ["192.0.2.1", "2001:db8::1"] {
            peer.sh(&format!("bash -c 'printf \"{bytes}\" > /dev/udp/{address}/{to}'"));
        }
    }
    wait_for("the packets", || gateway.counted("wan").received >= before + 8);
    let report = godwit.stop();
    assert_eq!(port(&report, "wan", "received_packets"), 2, "{report:#}");
    // The kernel of the peer also receives ICMP errors, and may send neighbour solicitations.
    assert!(port(&report, "wan", "left_to_kernel") >= 6, "{report:#}");
}
