//! Whole packets of others through every form: OpenDataPlane with those of RFC 3602, draft-mcgrew-gcm-test-01 and
//! RFC 7634, strongSwan, tcpdump.

mod ipsec_common;

use godwit_packet::ArenaConfig;
use ipsec_common::vectors::{Expected, all};
use ipsec_common::{Batch, build, forms, name};

#[test]
fn packets_of_others_become_what_others_say() {
    let mut opened = 0;
    for vector in all() {
        let stanza = vector.association.inbound();
        for form in forms() {
            // A buffer per form, and per packet: what was before is known.
            let function = build(&stanza);
            let mut host_half = function.host_half(0, 1).unwrap();
            for (number, packet) in vector.packets.iter().enumerate() {
                let at = format!("{form}: {}: packet {number}", vector.name);
                let batch = Batch::with(std::slice::from_ref(&packet.frame), ArenaConfig::default());
                let (outcome, frame) = batch.through(&*function, &mut *host_half, form);
                let said = name(&*function, outcome);
                match &packet.expected {
                    // No policy is there for what is no packet of the SA's.
                    Expected::Dropped("no_sa") => assert!(matches!(said, "no_sa" | "policy_discard"), "{at}: {said}"),
                    Expected::Dropped(reason) => assert_eq!(said, *reason, "{at}"),
                    Expected::Plain(plain) => {
                        assert_eq!(said, "decrypted", "{at}");
                        assert_eq!(frame[14..], *plain, "{at}");
                        opened += 1;
                    }
                    Expected::Ping { source, destination } => {
                        assert_eq!(said, "decrypted", "{at}");
                        let ip = &frame[14..];
                        assert_eq!(ip[0], 0x45, "{at}");
                        assert_eq!(godwit_wire::checksum::checksum(&ip[..20]), 0, "{at}");
                        assert_eq!((&ip[12..16], &ip[16..20]), (&source[..], &destination[..]), "{at}");
                        // ICMP echo or its reply, with its own checksum over all of the payload.
                        assert_eq!(ip[9], 1, "{at}");
                        assert!(matches!(ip[20], 0 | 8), "{at}");
                        assert_eq!(godwit_wire::checksum::checksum(&ip[20..]), 0, "{at}");
                        opened += 1;
                    }
                }
            }
        }
    }
    assert_eq!(opened, forms().len() * (42 + 60 + 8));
}
