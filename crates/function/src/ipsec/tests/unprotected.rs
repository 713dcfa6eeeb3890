//! Tests of unprotected ports, from which plaintext must not enter a tunnel.

use super::*;

const HERE: [u8; 4] = [10, 1, 0, 66];
const THERE: [u8; 4] = [10, 2, 0, 7];

fn function(more: &str) -> Ipsec {
    ipsec(&format!(
        "unprotected_ports = [\"wan\"]\n{more}{}{}\
         [[policy]]\naction = \"bypass\"\nprotocol = \"udp\"\ndestination_ports = 500\n\
         [[policy]]\naction = \"protect\"\nsource = \"10.1.0.0/16\"\ndestination = \"10.2.0.0/16\"\nsa = \"west\"\n\
         [[policy]]\naction = \"protect\"\nsource = \"::/0\"\ndestination = \"::/0\"\nsa = \"west\"\n",
        sa("west", 0x1001, "out", ""),
        sa("east", 0x2001, "in", "")
    ))
}

/// Prepares frames that arrived at the given port.
fn prepare_from(function: &Ipsec, port: u8, frames: &[Vec<u8>]) -> Vec<Work> {
    let (region, mut descriptors) = region(frames);
    descriptors.iter_mut().for_each(|descriptor| descriptor.port = port);
    let mut work = Vec::new();
    function.host_half(0, 1).unwrap().preparing().unwrap().prepare(&region, &descriptors, &mut work);
    work
}

fn frames() -> Vec<Vec<u8>> {
    let ports = |destination: u16| [4000u16.to_be_bytes(), destination.to_be_bytes(), [0, 8], [0, 0]].concat();
    let mut tagged = frame(HERE, THERE, 17, 0, &ports(80));
    tagged.splice(12..12, [0x81, 0, 0, 7]);
    let mut ipv6 = vec![2; 12];
    ipv6.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 17, 64]);
    ipv6.extend([0xfd; 32]);
    ipv6.extend(ports(80));
    let mut arp = vec![2; 12];
    arp.extend([8, 6]);
    arp.extend([0; 46]);
    vec![
        frame(HERE, THERE, 17, 0, &ports(80)),
        frame(HERE, THERE, 6, 0, &ports(80)),
        tagged,
        ipv6,
        frame(HERE, THERE, 17, 0, &ports(500)),
        frame([10, 9, 9, 9], THERE, 17, 0, &ports(80)),
        arp,
        frame([192, 0, 2, 2], [192, 0, 2, 1], 50, 0, &[[0, 0, 0x20, 1], [0, 0, 0, 9]].concat()),
        // This ESP packet is addressed to another host.
        frame(HERE, THERE, 50, 0, &[[0, 0, 0x20, 1], [0, 0, 0, 9]].concat()),
    ]
}

#[test]
fn only_bypassed_and_protected_packets_enter_from_unprotected_ports() {
    let function = function("");
    let bypass = Work::Done(Outcome::verdict(VERDICT_BYPASS));
    let not_ip = Work::Done(Outcome::verdict(VERDICT_NOT_IP));
    let outside = [
        drop(DROP_UNPROTECTED),
        drop(DROP_UNPROTECTED),
        drop(DROP_UNPROTECTED),
        drop(DROP_UNPROTECTED),
        bypass,
        drop(DROP_POLICY_DISCARD),
        not_ip,
        decrypt(1, 9),
        drop(DROP_UNPROTECTED),
    ];
    assert_eq!(prepare_from(&function, 1, &frames()), outside);
    let inside = [
        encrypt(0, 1),
        encrypt(0, 2),
        encrypt(0, 3),
        encrypt(0, 4),
        bypass,
        drop(DROP_POLICY_DISCARD),
        not_ip,
        decrypt(1, 9),
        encrypt(0, 5),
    ];
    assert_eq!(prepare_from(&function, 0, &frames()), inside, "no number was used for packets from outside");
}

/// A packet from outside that is too long for the tunnel causes no ICMP error and no fragments.
#[test]
fn long_packets_from_unprotected_ports_are_dropped() {
    let function = function("path_mtu = 1400\n");
    let long = frame(HERE, THERE, 17, 0, &[0; 1450]);
    let (mut region, mut descriptors) = region(&[long]);
    descriptors[0].port = 1;
    let mut host = function.host_half(0, 1).unwrap();
    let mut steps = Vec::new();
    let mut packets = crate::Arrangement {
        region: &mut region,
        arrived: &descriptors,
        previous: &[],
        stamps: &[],
        now_ns: 0,
        live: true,
        ending: false,
        steps: &mut steps,
    };
    host.arranging().unwrap().arrange(&mut packets);
    assert!(matches!(steps[..], [crate::Step::Keep { work, .. }] if work == drop(DROP_UNPROTECTED)), "{steps:?}");
}

#[test]
fn unprotected_ports_exist() {
    let stanza = DeTable::parse("unprotected_ports = [\"wam\"]").unwrap();
    let config = crate::config::read(stanza).unwrap();
    let Err(error) = Ipsec::new(config, &PORTS.map(str::to_owned)) else { panic!("accepted") };
    assert_eq!(error.to_string(), "unprotected_ports: there is no port named \"wam\"; the ports are: lan, wan");
}
