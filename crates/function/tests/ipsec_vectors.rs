//! Whole packets from others: RFC 3602 and OpenDataPlane, and what strongSwan sent.

mod ipsec_common;

use std::collections::HashMap;

use ipsec_common::esp::{authenticate, outer};
use ipsec_common::{Sa, build, ethernet, forms, name, process, repository, unhex};

fn lines(path: &str) -> Vec<String> {
    let path = repository("tests/vectors/ipsec").join(path);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).map(str::to_owned).collect()
}

fn odp() -> HashMap<String, Vec<u8>> {
    let packet = |line: String| {
        let (name, frame) = line.split_once(' ').unwrap();
        (name.to_owned(), unhex(frame))
    };
    lines("odp/packets.txt").into_iter().map(packet).collect()
}

/// The tunnel of an ESP packet, by its outer addresses.
fn inbound(frame: &[u8], spi: u32, encryption_key: &str, authentication_key: &str) -> Sa {
    Sa {
        source: *frame[26..].first_chunk().unwrap(),
        destination: *frame[30..].first_chunk().unwrap(),
        encryption_key: unhex(encryption_key).try_into().unwrap(),
        authentication_key: unhex(authentication_key).try_into().unwrap(),
        // Keys of published packets are no keys to use.
        more: "insecure = true\n".to_owned(),
        ..Sa::new("peer", spi, "in", 0)
    }
}

/// RFC 3602, section 4, cases 7 and 8. They carry no ICV; one is appended here.
#[test]
fn rfc_3602_tunnel_mode() {
    let packets = odp();
    for case in ["pkt_rfc3602_7", "pkt_rfc3602_8"] {
        let (plain, sealed) = (&packets[case], &packets[&format!("{case}_esp")]);
        let sa = inbound(sealed, 0x8765, "0123456789abcdef0123456789abcdef", &"5a".repeat(20));
        let mut esp = sealed[34..].to_vec();
        authenticate(&sa, &mut esp);
        let frame = ethernet(&outer(&sa, &esp, 0), false);
        let function = build(&sa.stanza());
        for form in forms() {
            let opened = process(&*function, form, std::slice::from_ref(&frame)).remove(0);
            assert_eq!(name(&*function, opened.outcome), "decrypted", "{form}: {case}");
            assert_eq!(opened.frame[14..], plain[14..], "{form}: {case}");
        }
    }
}

/// Two strongSwan peers pinging each other, the UDP header taken off.
#[test]
fn strongswan_tunnel_mode() {
    let frames: Vec<Vec<u8>> = lines("strongswan/aes128-sha1.txt").iter().map(|line| unhex(line)).collect();
    assert_eq!(frames.len(), 20);
    let peers = [
        (0xb174_c15a, "3ad9d1ff98ca0704388de35dbbc67574", "7a162369448e0196a831b4a4051e455e405da1ad"),
        (0x0320_9b4e, "33f5ba312cc09205b33a4dbce1784aaf", "924242605ca3c8df12cbc8c52dbce57af213df2c"),
    ];
    let mut opened_frames = 0;
    for (spi, encryption_key, authentication_key) in peers {
        let mine: Vec<&Vec<u8>> = frames.iter().filter(|frame| frame[42..46] == u32::to_be_bytes(spi)).collect();
        let sa = inbound(mine[0], spi, encryption_key, authentication_key);
        let esp: Vec<Vec<u8>> = mine.iter().map(|frame| ethernet(&outer(&sa, &frame[42..], 0), false)).collect();
        let function = build(&sa.stanza());
        for form in forms() {
            let opened = process(&*function, form, &esp);
            for (sequence, packet) in opened.iter().enumerate() {
                assert_eq!(name(&*function, packet.outcome), "decrypted", "{form}: {spi:#x} {sequence}");
                let ip = &packet.frame[14..];
                assert_eq!(ip[0], 0x45);
                assert_eq!(godwit_wire::checksum::checksum(&ip[..20]), 0);
                // ICMP echo or its reply, with its own checksum over all of the payload, numbered by the sender.
                assert_eq!(ip[9], 1);
                assert!(matches!(ip[20], 0 | 8));
                assert_eq!(godwit_wire::checksum::checksum(&ip[20..]), 0);
                assert_eq!(usize::from(ip[27]), sequence % 5 + 1, "{form}: {spi:#x}");
            }
        }
        opened_frames += esp.len();
    }
    assert_eq!(opened_frames, 20);
}
