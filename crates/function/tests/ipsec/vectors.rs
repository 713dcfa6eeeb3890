//! Processes packets of other implementations with every form of the kernel. They are from
//! OpenDataPlane (which includes RFC 3602, draft-mcgrew-gcm-test-01 and RFC 7634), strongSwan and
//! tcpdump.

use godwit_packet::ArenaConfig;
use godwit_test_cases::ipsec::batch::{Batch, build, forms, name};
use godwit_test_cases::ipsec::vectors::{Expected, all};

#[test]
fn every_form_processes_packets_of_other_implementations() {
    let mut decapsulated = 0;
    for vector in all() {
        let stanza = vector.association.inbound();
        for form in forms() {
            // A new CPU part for each form starts with an empty replay window.
            let function = build(&stanza);
            let mut host_half = function.host_half(0, 1).unwrap();
            for (number, packet) in vector.packets.iter().enumerate() {
                let at = format!("{form}: {}: packet {number}", vector.name);
                let batch = Batch::with(std::slice::from_ref(&packet.frame), ArenaConfig::default());
                let (outcome, frame) = batch.through(&*function, &mut host_half, form);
                let verdict = name(&*function, outcome);
                match &packet.expected {
                    // No policy covers packets that belong to no SA.
                    Expected::Dropped("no_sa") => {
                        assert!(matches!(verdict, "no_sa" | "policy_discard"), "{at}: {verdict}");
                    }
                    Expected::Dropped(reason) => assert_eq!(verdict, *reason, "{at}"),
                    Expected::Plain(plain) => {
                        assert_eq!(verdict, "decrypted", "{at}");
                        assert_eq!(frame[14..], *plain, "{at}");
                        decapsulated += 1;
                    }
                    Expected::Ping { source, destination } => {
                        assert_eq!(verdict, "decrypted", "{at}");
                        let ip = &frame[14..];
                        assert_eq!(ip[0], 0x45, "{at}");
                        assert_eq!(godwit_wire::checksum::checksum(&ip[..20]), 0, "{at}");
                        assert_eq!((&ip[12..16], &ip[16..20]), (&source[..], &destination[..]), "{at}");
                        // The packet is an ICMP echo or echo reply. Its checksum covers the whole
                        // payload.
                        assert_eq!(ip[9], 1, "{at}");
                        assert!(matches!(ip[20], 0 | 8), "{at}");
                        assert_eq!(godwit_wire::checksum::checksum(&ip[20..]), 0, "{at}");
                        decapsulated += 1;
                    }
                }
            }
        }
    }
    assert_eq!(decapsulated, forms().len() * (45 + 60 + 8));
}
