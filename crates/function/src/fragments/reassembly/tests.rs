use proptest::prelude::*;

use super::super::Split;
use super::*;

const SECOND: u64 = 1_000_000_000;
const LIMITS: Limits = Limits { packets: 8, bytes: 64 << 10, frame_bytes: 9000, timeout_ns: SECOND };

fn ipv4(identification: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol::ESP, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
    packet[2..4].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
    packet[4..6].copy_from_slice(&identification.to_be_bytes());
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(payload);
    packet
}

fn framed(packet: &[u8], tagged: bool) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    if tagged {
        frame.extend([0x81, 0, 0, 7]);
    }
    frame.extend(if packet[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] });
    frame.extend(packet);
    frame
}

fn fragments(packet: &[u8], mtu: usize, tagged: bool) -> Vec<Vec<u8>> {
    let split = Split::new(packet, mtu).unwrap();
    let part = |index| {
        let mut part = vec![0; split.bytes(index)];
        split.emit(index, &mut part);
        framed(&part, tagged)
    };
    (0..split.count()).map(part).collect()
}

fn ipv6_fragments(identification: u32, payload: &[u8], each: usize) -> (Vec<u8>, Vec<Vec<u8>>) {
    let header = |next: u8, bytes: usize| {
        let mut header = vec![0x60, 0, 0, 0, 0, 0, protocol::DESTINATION_OPTIONS, 64];
        header[4..6].copy_from_slice(&(8 + bytes as u16).to_be_bytes());
        header.extend([0x20; 16]);
        header.extend([0x21; 16]);
        header.extend([next, 0, 1, 4, 0, 0, 0, 0]);
        header
    };
    let mut whole = header(protocol::ESP, payload.len());
    whole.extend(payload);
    let count = payload.len().div_ceil(each);
    let parts = payload.chunks(each).enumerate().map(|(index, part)| {
        let mut packet = header(protocol::FRAGMENT, 8 + part.len());
        let word = (index * each) as u16 | u16::from(index + 1 < count);
        packet.extend([protocol::ESP, 0]);
        packet.extend(word.to_be_bytes());
        packet.extend(identification.to_be_bytes());
        packet.extend(part);
        framed(&packet, false)
    });
    let parts = parts.collect();
    (framed(&whole, false), parts)
}

fn add(reassembler: &mut Reassembler, frame: &[u8], now_ns: u64) -> Result<Added, Refusal> {
    reassembler.add(frame, ip_at(frame).unwrap(), now_ns)
}

proptest! {
    #[test]
    fn reassembles_interleaved_packets_in_any_order(
        payloads in prop::collection::vec((prop::collection::vec(any::<u8>(), 600..4000), any::<bool>()), 1..4),
        units in 16usize..70,
        order in any::<prop::sample::Index>(),
        seed: u64,
        tagged: bool,
    ) {
        let mut frames = Vec::new();
        let mut expected = Vec::new();
        for (number, (payload, six)) in payloads.iter().enumerate() {
            let (whole, parts) = match six {
                true => ipv6_fragments(number as u32, payload, units / 4 * 8),
                false => {
                    let packet = ipv4(number as u16, payload);
                    (framed(&packet, tagged), fragments(&packet, 20 + 8 * units, tagged))
                }
            };
            prop_assume!(parts.len() <= 64);
            expected.push(whole);
            frames.extend(parts);
        }
        // The fragments arrive in random order.
        let mut random = seed | 1;
        for index in (1..frames.len()).rev() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            frames.swap(index, (random >> 33) as usize % (index + 1));
        }
        let first = order.index(frames.len());
        frames.rotate_left(first);
        let mut reassembler = Reassembler::new(LIMITS);
        let (mut found, mut held_before) = (Vec::new(), 0);
        for frame in &frames {
            match add(&mut reassembler, frame, 0).unwrap() {
                Added::Held => held_before += 1,
                Added::Whole { held } => {
                    found.push(reassembler.whole().to_vec());
                    held_before -= held;
                }
            }
        }
        found.sort();
        expected.sort();
        prop_assert_eq!(found, expected);
        prop_assert_eq!((held_before, reassembler.held_bytes()), (0, 0));
        prop_assert_eq!(reassembler.wake_ns(), u64::MAX);
    }

    #[test]
    fn bounds_memory_and_accounts_for_every_hostile_fragment(
        steps in prop::collection::vec((0u16..40, 0u16..200, 0usize..300, any::<bool>(), 0u64..SECOND / 4), 1..400),
    ) {
        let limits = Limits { packets: 4, bytes: 4096, frame_bytes: 2000, ..LIMITS };
        let mut reassembler = Reassembler::new(limits);
        let (mut now_ns, mut held) = (0, 0_i64);
        for (identification, offset, bytes, more, pause_ns) in steps {
            now_ns += pause_ns;
            let mut packet = ipv4(identification % 7, &vec![identification as u8; bytes]);
            packet[6..8].copy_from_slice(&(offset | u16::from(more) << 13).to_be_bytes());
            packet[10..12].fill(0);
            let sum = checksum(&packet[..20]);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            match add(&mut reassembler, &framed(&packet, false), now_ns) {
                Ok(Added::Held) => held += 1,
                Ok(Added::Whole { held: joined }) => held -= i64::from(joined),
                Err(_) => {}
            }
            held -= reassembler.take_expired().map(|(held, _)| i64::from(held)).sum::<i64>();
            prop_assert!(held >= 0 && reassembler.held_bytes() <= limits.bytes, "{held}");
            prop_assert!(reassembler.packets.len() <= limits.packets);
            prop_assert!(reassembler.ages.len() <= 2 * limits.packets + 17);
        }
        reassembler.expire(now_ns + 2 * SECOND);
        held -= reassembler.take_expired().map(|(held, _)| i64::from(held)).sum::<i64>();
        prop_assert_eq!((held, reassembler.held_bytes(), reassembler.packets.len()), (0, 0, 0));
    }

    #[test]
    fn accepts_arbitrary_bytes(frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..120), 0..20), six: bool) {
        let mut reassembler = Reassembler::new(LIMITS);
        for mut frame in frames {
            if frame.len() > 14 {
                frame[14] = if six { 0x60 } else { 0x45 };
            }
            let _ = reassembler.add(&frame, 14, 0);
            let _ = reassembler.add(&frame, 1000, 0);
        }
    }
}

#[test]
fn drops_the_packet_and_its_later_fragments_after_an_overlap() {
    let packet = ipv4(7, &(0..=255).cycle().take(2400).collect::<Vec<u8>>());
    let parts = fragments(&packet, 820, false);
    assert_eq!(parts.len(), 3);
    // This fragment imitates a teardrop attack. Its checksum is correct, but its offset is one unit
    // too small. The fragment therefore overlaps the first fragment.
    let mut inside = parts[1].clone();
    let word = u16::from_be_bytes([inside[20], inside[21]]) - 1;
    inside[20..22].copy_from_slice(&word.to_be_bytes());
    inside[24..26].fill(0);
    let sum = checksum(&inside[14..34]);
    inside[24..26].copy_from_slice(&sum.to_be_bytes());
    for other in [&inside, &parts[0]] {
        let mut reassembler = Reassembler::new(LIMITS);
        assert_eq!(add(&mut reassembler, &parts[0], 0), Ok(Added::Held));
        assert_eq!(add(&mut reassembler, other, 0), Err(Refusal::Overlap));
        assert_eq!(reassembler.take_expired().collect::<Vec<_>>(), [(1, Refusal::Overlap)]);
        for part in &parts {
            assert_eq!(add(&mut reassembler, part, 0), Err(Refusal::Overlap));
        }
        // After the timeout of the dropped packet, another packet with the same identification can
        // be reassembled.
        for (part, expected) in parts.iter().zip([Added::Held, Added::Held, Added::Whole { held: 2 }]) {
            assert_eq!(add(&mut reassembler, part, SECOND), Ok(expected));
        }
        assert_eq!(reassembler.whole(), framed(&packet, false));
    }
}

#[test]
fn enforces_each_limit() {
    let packet = ipv4(7, &[7; 2400]);
    let parts = fragments(&packet, 820, false);
    // The oldest packet times out.
    let mut reassembler = Reassembler::new(LIMITS);
    add(&mut reassembler, &parts[0], 0).unwrap();
    assert_eq!(reassembler.wake_ns(), SECOND);
    add(&mut reassembler, &parts[1], SECOND - 1).unwrap();
    assert_eq!(add(&mut reassembler, &parts[2], SECOND), Ok(Added::Held));
    assert_eq!(reassembler.take_expired().collect::<Vec<_>>(), [(2, Refusal::Timeout)]);
    // The reassembled frame would be too long.
    let mut reassembler = Reassembler::new(Limits { frame_bytes: 2433, ..LIMITS });
    add(&mut reassembler, &parts[0], 0).unwrap();
    assert_eq!(add(&mut reassembler, &parts[2], 0), Err(Refusal::Limit));
    assert_eq!(reassembler.take_expired().collect::<Vec<_>>(), [(1, Refusal::Limit)]);
    // The oldest packet is dropped if there are too many packets.
    let mut reassembler = Reassembler::new(Limits { packets: 2, ..LIMITS });
    for identification in 0..3 {
        let part = &fragments(&ipv4(identification, &[7; 2400]), 820, false)[0];
        assert_eq!(add(&mut reassembler, part, 0), Ok(Added::Held));
    }
    assert_eq!(reassembler.take_expired().collect::<Vec<_>>(), [(1, Refusal::Limit)]);
    // The fragments have too many bytes for the memory limit.
    let mut reassembler = Reassembler::new(Limits { bytes: 1000, ..LIMITS });
    add(&mut reassembler, &parts[0], 0).unwrap();
    assert_eq!(add(&mut reassembler, &parts[1], 0), Ok(Added::Held));
    assert_eq!(reassembler.take_expired().collect::<Vec<_>>(), [(2, Refusal::Limit)]);
    assert_eq!(reassembler.held_bytes(), 0);
    reassembler.expire_all();
    assert_eq!(reassembler.take_expired().count(), 0);
}

/// The test follows the table of RFC 3168, section 5.3.
#[test]
fn combines_congestion_marks() {
    let marked = |part: &[u8], mark: u8| {
        let mut part = part.to_vec();
        part[15] |= mark;
        part[24..26].fill(0);
        let sum = checksum(&part[14..34]);
        part[24..26].copy_from_slice(&sum.to_be_bytes());
        part
    };
    let packet = ipv4(7, &[7; 1000]);
    let parts = fragments(&packet, 820, false);
    for (marks, expected) in
        [([2, 3], Some(3)), ([3, 2], Some(3)), ([0, 3], None), ([1, 1], Some(1)), ([0, 0], Some(0))]
    {
        let mut reassembler = Reassembler::new(LIMITS);
        add(&mut reassembler, &marked(&parts[0], marks[0]), 0).unwrap();
        let added = add(&mut reassembler, &marked(&parts[1], marks[1]), 0);
        match expected {
            Some(mark) => {
                assert_eq!(added, Ok(Added::Whole { held: 1 }));
                assert_eq!((reassembler.whole()[15], checksum(&reassembler.whole()[14..34])), (mark, 0));
            }
            None => assert_eq!(added, Err(Refusal::Overlap)),
        }
    }
}

#[test]
fn counts_headers_against_the_memory_limit() {
    let limits = Limits { bytes: 4096, ..LIMITS };
    let mut reassembler = Reassembler::new(limits);
    for identification in 0..8_u32 {
        let mut packet = vec![0x60, 0, 0, 0, 0, 0, protocol::DESTINATION_OPTIONS, 64];
        packet.extend([0x20; 32]);
        packet.extend([protocol::FRAGMENT, 162]);
        packet.extend([0; 1302]);
        packet.extend([protocol::ESP, 0, 0, 1]);
        packet.extend(identification.to_be_bytes());
        packet.extend([7; 16]);
        packet[4..6].copy_from_slice(&1328_u16.to_be_bytes());
        assert_eq!(add(&mut reassembler, &framed(&packet, false), 0), Ok(Added::Held));
        assert!(reassembler.held_bytes() <= limits.bytes);
    }
    assert!(reassembler.packets.len() <= 3, "{}", reassembler.packets.len());
    reassembler.expire_all();
    assert_eq!(reassembler.held_bytes(), 0);
}
