//! Compares the kernel at every CPU level with the reference implementation. Compares both with the
//! requirements of the standards for bad packets.

use godwit_abi::Outcome;
use godwit_function::Work;
use godwit_packet::{ArenaConfig, Layout};
use godwit_test_cases::ipsec::batch::{Batch, Form, Sa, assert_same, build, forms, name, packet, process, protect_all};
use godwit_test_support::Random;
use godwit_test_support::frame::set_ipv4_checksum;

use super::esp::ethernet;
use super::esp::{Esp, authenticate, outer, wrap};

const OURS: u32 = 0x1001;

/// Returns the stanzas for the outbound and the inbound end of a tunnel.
fn tunnel() -> (String, String) {
    let out = Sa::new("west", OURS, "out", 1);
    let inbound = Sa { direction: "in", ..out.clone() };
    (out.stanza() + &protect_all("west"), inbound.stanza())
}

/// Returns frames with inner packets of the given lengths. Some frames have a VLAN tag or Ethernet
/// padding.
fn frames(random: &mut Random, lengths: impl Iterator<Item = usize>) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for length in lengths {
        let mut frame = ethernet(&packet(random, length), random.below(3) == 0);
        let padding = random.below(2) * 60usize.saturating_sub(frame.len());
        frame.extend(random.bytes(padding));
        frames.push(frame);
    }
    frames
}

fn without_padding(frame: &[u8]) -> Vec<u8> {
    let l2 = if frame[12] == 0x81 { 18 } else { 14 };
    let total = usize::from(u16::from_be_bytes([frame[l2 + 2], frame[l2 + 3]]));
    frame[..l2 + total].to_vec()
}

#[test]
fn every_form_equals_ref_in_both_directions() {
    let (west, east) = tunnel();
    let mut random = Random::new(1);
    let plain = frames(&mut random, 20..=1500);
    for bin_packets in [1, 2, 31, 32, 33, 512] {
        let west = build(&west);
        let work = Batch::new(&plain).prepare(&*west);
        let expected = Batch::new(&plain).run(&*west, Form::Ref, &work, bin_packets);
        let sent: Vec<Vec<u8>> = expected.iter().map(|packet| packet.frame.clone()).collect();
        let east = build(&east);
        let inbound_work = Batch::new(&sent).prepare(&*east);
        let received = Batch::new(&sent).run(&*east, Form::Ref, &inbound_work, bin_packets);
        for (plain, received) in plain.iter().zip(&received) {
            // The outer header has the same congestion mark, so the inner packet keeps its mark.
            assert_eq!(received.outcome, Outcome { verdict: 1, reason: 0, port: 0, value: OURS });
            assert_eq!(received.frame, without_padding(plain));
        }
        for form in forms() {
            assert_same(form, &expected, &Batch::new(&plain).run(&*west, form, &work, bin_packets));
            assert_same(form, &received, &Batch::new(&sent).run(&*east, form, &inbound_work, bin_packets));
        }
    }
}

#[test]
fn an_encapsulated_packet_has_the_standard_format() {
    let (west, _) = tunnel();
    let mut random = Random::new(2);
    let mut inner = packet(&mut random, 45);
    inner[1] = 0xb9; // DSCP 46, ECT(1)
    inner[6] = 0x40; // do not fragment
    set_ipv4_checksum(&mut inner);
    let frame = ethernet(&inner, true);
    for form in forms() {
        let function = build(&west);
        for sequence in 1u32..=3 {
            let sent = process(&*function, form, std::slice::from_ref(&frame)).remove(0);
            assert_eq!(sent.outcome, Outcome { verdict: 0, reason: 0, port: 0, value: OURS });
            let (l2, packet) = sent.frame.split_at(18);
            assert_eq!(l2, &frame[..18]);
            // The payload has 45 bytes, the padding 1 byte and the ESP trailer 2 bytes, which fill
            // three blocks.
            assert_eq!(packet.len(), 20 + 8 + 16 + 48 + 12);
            assert_eq!(packet[..10], [0x45, 0xb9, 0, packet.len() as u8, 0, sequence as u8, 0x40, 0, 64, 50]);
            assert_eq!(packet[12..20], [192, 0, 2, 1, 192, 0, 2, 2]);
            assert_eq!(godwit_wire::checksum::checksum(&packet[..20]), 0);
            assert_eq!(packet[20..28], (u64::from(OURS) << 32 | u64::from(sequence)).to_be_bytes());
        }
    }
}

#[test]
fn ivs_never_repeat() {
    let (west, _) = tunnel();
    let function = build(&west);
    let frame = ethernet(&packet(&mut Random::new(3), 64), false);
    let form = *forms().last().unwrap();
    let sent = process(&*function, form, &vec![frame; 3000]);
    let mut ivs: Vec<&[u8]> = sent.iter().map(|packet| &packet.frame[14 + 28..][..16]).collect();
    ivs.sort_unstable();
    ivs.dedup();
    assert_eq!(ivs.len(), 3000);
}

#[test]
fn any_flipped_bit_is_detected() {
    let (west, east) = tunnel();
    let frame = ethernet(&packet(&mut Random::new(4), 60), false);
    let sent = process(&*build(&west), Form::Ref, &[frame]).remove(0).frame;
    let mut frames = Vec::new();
    let mut expected = Vec::new();
    for bit in 0..8 * (sent.len() - 14) {
        let mut frame = sent.clone();
        frame[14 + bit / 8] ^= 0x80 >> (bit % 8);
        frames.push(frame);
        expected.push(match bit / 8 {
            // The checksum of the changed outer header is wrong, unless an earlier check fails.
            0..20 => &["malformed", "truncated", "fragment", "policy_discard", "no_sa"][..],
            20..24 => &["no_sa"],
            // A flipped bit may give the sequence number 0, which is never valid.
            24..28 => &["authentication", "replayed"],
            _ => &["authentication"],
        });
    }
    for form in forms() {
        let function = build(&east);
        for (bit, (packet, expected)) in process(&*function, form, &frames).iter().zip(&expected).enumerate() {
            let verdict = name(&*function, packet.outcome);
            assert!(expected.contains(&verdict), "{form}: bit {bit}: {verdict}");
        }
    }
}

#[test]
fn truncated_packets_are_dropped() {
    let (west, east) = tunnel();
    let sa = Sa::new("west", OURS, "out", 1);
    let frame = ethernet(&packet(&mut Random::new(5), 100), false);
    let sent = process(&*build(&west), Form::Ref, &[frame]).remove(0).frame;
    let cut: Vec<Vec<u8>> = (0..sent.len()).map(|length| sent[..length].to_vec()).collect();
    // The packet is truncated, and its outer header matches the new length.
    let agreed: Vec<Vec<u8>> =
        (34..sent.len()).map(|length| ethernet(&outer(&sa, &sent[34..length], 0), false)).collect();
    for form in forms() {
        let function = build(&east);
        for packet in process(&*function, form, &cut) {
            assert_eq!(name(&*function, packet.outcome), "truncated", "{form}");
        }
        for (esp_bytes, packet) in process(&*function, form, &agreed).iter().enumerate() {
            let whole_blocks = esp_bytes >= 24 + 16 + 12 && (esp_bytes - 24 - 12) % 16 == 0;
            let expected = if whole_blocks { "authentication" } else { "malformed" };
            assert_eq!(name(&*function, packet.outcome), expected, "{form}: {esp_bytes} bytes of ESP");
        }
    }
}

#[test]
fn the_inner_packet_is_checked() {
    let inbound = Sa {
        more: "selectors = [{ source = \"10.0.0.0/8\", protocol = \"udp\", destination_ports = \"53-54\" }, \
               { destination = \"10.9.9.9\", protocol = 1 }]"
            .to_owned(),
        ..Sa::new("east", 0x2001, "in", 2)
    };
    let stanza = inbound.stanza();
    let udp = |source: [u8; 4], port: u16, fragment: u16| {
        let mut packet = vec![0x45, 0, 0, 32, 0, 0];
        packet.extend(fragment.to_be_bytes());
        packet.extend([64, 17, 0, 0]);
        packet.extend(source);
        packet.extend([10, 9, 9, 8, 0, 99]);
        packet.extend(port.to_be_bytes());
        packet.extend([0, 12, 0, 0, 1, 2, 3, 4]);
        set_ipv4_checksum(&mut packet);
        packet
    };
    let changed = |at: usize, byte: u8| {
        let mut packet = udp([10, 0, 0, 1], 53, 0);
        packet[at] = byte;
        packet
    };
    let good = Esp::new(&udp([10, 0, 0, 1], 53, 0));
    let padded = |padding: &[u8]| Esp { padding: Some(padding.to_vec()), ..good.clone() };
    // A packet of 32 bytes needs 14 bytes of padding. The pad length and the next header follow.
    let correct: Vec<u8> = (1..=14).chain([14]).collect();
    let with = |at: usize, byte: u8| {
        let mut padding = correct.clone();
        padding[at] = byte;
        padded(&padding)
    };
    let long: Vec<u8> = (1..=14 + 16 * 12).chain([14 + 16 * 12]).collect();
    let mut hidden = udp([10, 0, 0, 1], 54, 0);
    hidden.extend([0xee; 333]);
    let cases: Vec<(Esp, &str)> = vec![
        (good.clone(), "decrypted"),
        (padded(&correct), "decrypted"),
        (padded(&long), "decrypted"),
        (Esp::new(&hidden), "decrypted"),
        (with(0, 0), "padding"),
        (with(13, 13), "padding"),
        (with(14, 13), "padding"),
        (with(14, 15), "padding"),
        (with(14, 46), "padding"),
        (with(14, 47), "padding"),
        (with(14, 255), "padding"),
        // The pad length is 0. The other zeros are traffic flow padding after the packet.
        (padded(&[0; 15]), "decrypted"),
        (Esp { next_header: 59, ..good.clone() }, "dummy"),
        (Esp { payload: vec![], next_header: 59, ..good.clone() }, "dummy"),
        (Esp { next_header: 6, ..good.clone() }, "policy_mismatch"),
        (Esp::new(&udp([11, 0, 0, 1], 53, 0)), "policy_mismatch"),
        (Esp::new(&udp([10, 0, 0, 1], 52, 0)), "policy_mismatch"),
        (Esp::new(&udp([10, 0, 0, 1], 55, 0)), "policy_mismatch"),
        (Esp::new(&udp([10, 0, 0, 1], 53, 0x2000)), "decrypted"),
        (Esp::new(&udp([10, 0, 0, 1], 53, 0x2001)), "policy_mismatch"),
        (Esp::new(&changed(9, 1)), "policy_mismatch"),
        (Esp::new(&changed(9, 6)), "policy_mismatch"),
        (Esp::new(&changed(0, 0x65)), "malformed"),
        (Esp::new(&changed(0, 0x44)), "malformed"),
        (Esp::new(&changed(0, 0x49)), "malformed"),
        (Esp::new(&changed(3, 19)), "malformed"),
        (Esp::new(&changed(3, 33)), "malformed"),
        (Esp::new(&changed(2, 1)), "malformed"),
        (Esp::new(&[0x45; 14]), "malformed"),
        (Esp::new(&[]), "malformed"),
    ];
    let frames: Vec<Vec<u8>> = cases.iter().map(|(esp, _)| ethernet(&esp.encapsulate(&inbound), false)).collect();
    let function = build(&stanza);
    let expected = process(&*function, Form::Ref, &frames);
    for form in forms() {
        let found = process(&*function, form, &frames);
        assert_same(form, &expected, &found);
        for (index, (packet, (esp, verdict))) in found.iter().zip(&cases).enumerate() {
            assert_eq!(name(&*function, packet.outcome), *verdict, "{form}: case {index}");
            if *verdict == "decrypted" {
                assert_eq!(packet.frame[14..], esp.payload[..32], "{form}: case {index}");
            }
        }
    }
}

/// The rows are the inner mark, and the columns are the outer mark (RFC 6040, figure 4). Both have
/// the order not-ECT, ECT(0), ECT(1), CE.
#[test]
fn congestion_marks_are_combined_at_the_tunnel_exit() {
    const DROP: Option<u8> = None;
    let (not_ect, ect_1, ect_0, ce) = (0, 1, 2, 3);
    let order = [not_ect, ect_0, ect_1, ce];
    let figure = [
        [Some(not_ect), Some(not_ect), Some(not_ect), DROP],
        [Some(ect_0), Some(ect_0), Some(ect_1), Some(ce)],
        [Some(ect_1), Some(ect_1), Some(ect_1), Some(ce)],
        [Some(ce), Some(ce), Some(ce), Some(ce)],
    ];
    let inbound = Sa::new("east", 0x2001, "in", 3);
    let function = build(&inbound.stanza());
    let mut random = Random::new(6);
    for (row, inside) in order.into_iter().enumerate() {
        for (column, outside) in order.into_iter().enumerate() {
            let mut inner = packet(&mut random, 77);
            inner[1] = 0xb8 | inside;
            set_ipv4_checksum(&mut inner);
            let esp = Esp { tos: 0x28 | outside, ..Esp::new(&inner) }.encapsulate(&inbound);
            for form in forms() {
                let found = process(&*function, form, &[ethernet(&esp, false)]).remove(0);
                match figure[row][column] {
                    None => assert_eq!(name(&*function, found.outcome), "congestion"),
                    Some(ecn) => {
                        assert_eq!(name(&*function, found.outcome), "decrypted");
                        let mut expected = inner.clone();
                        expected[1] = 0xb8 | ecn;
                        set_ipv4_checksum(&mut expected);
                        assert_eq!(found.frame[14..], expected, "{form}: {inside} in {outside}");
                    }
                }
            }
        }
    }
}

#[test]
fn packets_without_room_are_dropped_unchanged() {
    let (west, _) = tunnel();
    let mut random = Random::new(7);
    let plain = frames(&mut random, (20..400).chain([1500]));
    let mut seen = [0; 2];
    let saved = build(&west).properties().tailroom_saved;
    let rooms = [(0, 64), (43, 64), (44, 64), (44, 29), (44, 0), (128, 0), (64, 8)].map(|room| (room, [0; 16]));
    for ((headroom_bytes, tailroom_bytes), tailroom_saved) in rooms.into_iter().chain([((44, 29), saved)]) {
        let config = ArenaConfig {
            layout: Layout::Dense,
            headroom_bytes,
            tailroom_bytes,
            tailroom_saved,
            align_bytes: 64,
            ..Default::default()
        };
        let function = build(&west);
        let work = Batch::with(&plain, config.clone()).prepare(&*function);
        let expected = Batch::with(&plain, config.clone()).run(&*function, Form::Ref, &work, 32);
        for form in forms() {
            let found = Batch::with(&plain, config.clone()).run(&*function, form, &work, 32);
            assert_same(form, &expected, &found);
            for (plain, packet) in plain.iter().zip(&found) {
                let enough = headroom_bytes >= 44 && tailroom_bytes >= 29;
                match name(&*function, packet.outcome) {
                    "encrypted" => seen[0] += 1,
                    "no_room" => {
                        seen[1] += 1;
                        assert!(!enough, "{form}: the room of the contract is not enough");
                        assert_eq!(packet.frame, *plain, "{form}: the frame was changed");
                    }
                    other => panic!("{form}: {other}"),
                }
            }
        }
    }
    assert!(seen.iter().all(|&count| count > 100), "{seen:?}");
}

#[test]
fn every_form_treats_random_frames_alike() {
    let inbound = Sa::new("east", 0x2001, "in", 4);
    let outbound = Sa::new("west", 0x1001, "out", 5);
    let stanza = inbound.stanza() + &outbound.stanza() + &protect_all("west");
    let mut random = Random::new(8);
    let mut frames = Vec::new();
    let mut work = Vec::new();
    for _ in 0..6000 {
        let length = random.below(160);
        let mut frame = match random.below(4) {
            0 => random.bytes(length),
            1 => ethernet(&random.bytes(length), random.below(2) == 0),
            2 => ethernet(&packet(&mut random, length.max(20)), random.below(2) == 0),
            _ => {
                let ciphertext = random.bytes(length & !15);
                let mut esp = wrap(&inbound, &[7; 16], &ciphertext, random.next_u8());
                if random.below(2) == 0 {
                    esp.truncate(20);
                    esp.extend([&inbound.spi.to_be_bytes()[..], &random.bytes(length)].concat());
                    let mut body = esp.split_off(20);
                    authenticate(&inbound, &mut body);
                    esp = outer(&inbound, &body, 0);
                }
                ethernet(&esp, false)
            }
        };
        for _ in 0..random.below(3).min(frame.len()) {
            let at = random.below(frame.len().min(60));
            frame[at] = random.next_u8();
        }
        frames.push(frame);
        // The CPU part of the function returns some of these parameters, and never returns the
        // others.
        let sa = [0, 0, 0, 1, 1, 2, u64::from(u32::MAX)][random.below(7)];
        work.push(Work::Run { variant: random.below(2) as u8, parameter: sa << 44 | random.next_u64() >> 32 });
    }
    let function = build(&stanza);
    let expected = Batch::new(&frames).run(&*function, Form::Ref, &work, 64);
    let mut verdicts: Vec<&str> = expected.iter().map(|packet| name(&*function, packet.outcome)).collect();
    verdicts.sort_unstable();
    verdicts.dedup();
    for known in ["authentication", "encrypted", "malformed", "no_sa", "not_ip", "padding", "truncated"] {
        assert!(verdicts.contains(&known), "no packet had the result {known}: {verdicts:?}");
    }
    for form in forms() {
        assert_same(form, &expected, &Batch::new(&frames).run(&*function, form, &work, 64));
    }
}
