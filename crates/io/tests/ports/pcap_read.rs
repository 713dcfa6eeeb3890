//! Tests of the reader of capture files, with every format and with every kind of malformed file.

use std::path::Path;

use godwit_io::Error;
use godwit_io::pcap::{Replay, ReplayInput};
use godwit_test_support::{Folder, FrameBuilder, Random};
use proptest::prelude::*;

use super::common::{Arrived, drain, region, regions, steering};

/// Writes capture files for the tests. It is independent of the writer of this crate.
#[derive(Clone, Copy, Debug)]
struct Maker {
    big_endian: bool,
}

impl Maker {
    fn u16(self, value: u16) -> Vec<u8> {
        if self.big_endian { value.to_be_bytes().into() } else { value.to_le_bytes().into() }
    }

    fn u32(self, value: u32) -> Vec<u8> {
        if self.big_endian { value.to_be_bytes().into() } else { value.to_le_bytes().into() }
    }

    fn pcap_header(self, nanoseconds: bool, network: u32) -> Vec<u8> {
        let magic = self.u32(if nanoseconds { 0xa1b2_3c4d } else { 0xa1b2_c3d4 });
        [magic, self.u16(2), self.u16(4), vec![0; 8], self.u32(65535), self.u32(network)].concat()
    }

    fn pcap_record(self, seconds: u32, fraction: u32, frame: &[u8], original_bytes: usize) -> Vec<u8> {
        let head = [seconds, fraction, frame.len() as u32, original_bytes as u32].map(|word| self.u32(word)).concat();
        [head, frame.to_vec()].concat()
    }

    fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let padding = vec![0; body.len().next_multiple_of(4) - body.len()];
        let bytes = self.u32((12 + body.len() + padding.len()) as u32);
        [self.u32(kind), bytes.clone(), body.to_vec(), padding, bytes].concat()
    }

    fn section(self) -> Vec<u8> {
        let body = [self.u32(0x1a2b_3c4d), self.u16(1), self.u16(0), vec![0xff; 8]].concat();
        self.block(0x0a0d_0d0a, &body)
    }

    fn interface(self, link_type: u16, snap_bytes: u32, options: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let mut body = [self.u16(link_type), self.u16(0), self.u32(snap_bytes)].concat();
        for (code, value) in options {
            body.extend([self.u16(*code), self.u16(value.len() as u16), value.clone()].concat());
            body.resize(body.len().next_multiple_of(4), 0);
        }
        self.block(1, &body)
    }

    fn enhanced(self, interface: u32, time: u64, frame: &[u8], original_bytes: usize) -> Vec<u8> {
        let words = [interface, (time >> 32) as u32, time as u32, frame.len() as u32, original_bytes as u32];
        self.block(6, &[words.map(|word| self.u32(word)).concat(), frame.to_vec()].concat())
    }
}

const BOTH: [Maker; 2] = [Maker { big_endian: false }, Maker { big_endian: true }];
const SECOND: u64 = 1_000_000_000;

fn frame(bytes: usize, mark: u8) -> Vec<u8> {
    (0..bytes).map(|at| at as u8 ^ mark).collect()
}

fn open(bytes: &[u8]) -> Result<Replay, Error> {
    let folder = Folder::new();
    let path = folder.write("in.capture", bytes);
    // The file is open, so it can be read even after the folder was removed.
    Replay::open(&[ReplayInput { path, port: 3 }], 0, 0, steering(1))
}

type TimeAndFrame = (u64, Vec<u8>);

/// Reads a capture file. Returns the times and frames of its packets, the counters, and the error
/// that ended the file.
fn read(bytes: &[u8]) -> (Vec<TimeAndFrame>, godwit_io::PortCounters, Option<Error>) {
    use godwit_io::Receive;
    let mut replay = match open(bytes) {
        Ok(replay) => replay,
        Err(error) => return (Vec::new(), Default::default(), Some(error)),
    };
    let (packets, error) = drain(&mut replay, &mut region(), 7);
    let counters = replay.counters();
    assert_eq!(counters.received_packets, packets.len() as u64);
    assert!(packets.iter().all(|packet| packet.port == 3));
    (packets.into_iter().map(|packet| (packet.time_ns, packet.frame)).collect(), counters, error)
}

#[test]
fn pcap_in_both_byte_orders_and_resolutions() {
    for maker in BOTH {
        for (nanoseconds, unit_ns) in [(false, 1000), (true, 1)] {
            let mut bytes = maker.pcap_header(nanoseconds, 1);
            bytes.extend(maker.pcap_record(7, 999_999, &frame(60, 1), 60));
            bytes.extend(maker.pcap_record(u32::MAX, 0, &frame(1518, 2), 1518));
            let (packets, counters, error) = read(&bytes);
            assert!(error.is_none());
            let expected = [(7 * SECOND + 999_999 * unit_ns, frame(60, 1)), (0xffff_ffff * SECOND, frame(1518, 2))];
            assert_eq!(packets, expected);
            assert_eq!(counters.received_bytes, 1578);
        }
    }
}

#[test]
fn pcapng_time_resolutions_offsets_and_block_kinds() {
    for maker in BOTH {
        let offset: Vec<u8> = [maker.u32(0), maker.u32(10)].concat();
        let offset = if maker.big_endian { offset } else { [maker.u32(10), maker.u32(0)].concat() };
        let mut bytes = maker.section();
        bytes.extend(maker.interface(1, 0, &[]));
        bytes.extend(maker.interface(1, 0, &[(9, vec![9])]));
        bytes.extend(maker.interface(1, 0, &[(9, vec![0x80 | 10]), (14, offset)]));
        bytes.extend(maker.interface(1, 0, &[(9, vec![12])]));
        // This block has an unknown type and is longer than the read buffer.
        bytes.extend(maker.block(0x7654, &vec![1; 1 << 20]));
        bytes.extend(maker.enhanced(0, 5_000_001, &frame(61, 0), 61));
        bytes.extend(maker.enhanced(1, 5_000_001, &frame(62, 0), 62));
        bytes.extend(maker.enhanced(2, 1024 * 5 + 512, &frame(63, 0), 63));
        bytes.extend(maker.enhanced(3, 5_999, &frame(64, 0), 64));
        // A Simple Packet Block contains no time, so its packet has the time of the previous block.
        bytes.extend(maker.block(3, &[maker.u32(65), frame(65, 0)].concat()));
        // This block is an obsolete Packet Block.
        let words = [0, 6_000_000, 66, 66].map(|word| maker.u32(word)).concat();
        bytes.extend(maker.block(2, &[maker.u16(0), maker.u16(0), words, frame(66, 0)].concat()));
        // This section has the other byte order. Its interfaces are numbered from 0 again.
        let other = Maker { big_endian: !maker.big_endian };
        bytes.extend([other.section(), other.interface(1, 0, &[]), other.enhanced(0, 7, &frame(67, 0), 67)].concat());
        let (packets, _, error) = read(&bytes);
        assert!(error.is_none(), "{error:?}");
        let times = [5_000_001_000, 5_000_001, 15_500_000_000, 5, 5, 6_000_000_000, 7000];
        let expected: Vec<_> = times.into_iter().zip(61..).map(|(time, bytes)| (time, frame(bytes, 0))).collect();
        assert_eq!(packets, expected);
    }
}

#[test]
fn a_skipped_packet_is_counted_and_keeps_its_sequence_number() {
    let maker = BOTH[0];
    let mut bytes = [maker.section(), maker.interface(1, 64, &[]), maker.interface(113, 0, &[])].concat();
    bytes.extend(maker.enhanced(0, 0, &frame(64, 0), 1000));
    bytes.extend(maker.enhanced(0, 0, &[], 0));
    bytes.extend(maker.enhanced(0, 0, &frame(1519, 0), 1519));
    bytes.extend(maker.enhanced(0, 0, &vec![0; 300 << 10], 300 << 10));
    bytes.extend(maker.enhanced(1, 0, &frame(60, 0), 60));
    // This Simple Packet Block is truncated to the snap length of 64 bytes.
    bytes.extend(maker.block(3, &[maker.u32(100), frame(64, 0)].concat()));
    bytes.extend(maker.enhanced(0, 0, &frame(1, 0), 1));
    let mut replay = open(&bytes).unwrap();
    let (packets, error) = drain(&mut replay, &mut region(), 4);
    assert!(error.is_none(), "{error:?}");
    use godwit_io::Receive;
    let counters = replay.counters();
    assert_eq!((counters.truncated, counters.empty, counters.oversized, counters.skipped_link_type), (2, 1, 2, 1));
    assert_eq!(packets.iter().map(|packet| packet.sequence).collect::<Vec<_>>(), [6]);
}

#[test]
fn the_frame_check_sequence_is_removed() {
    let maker = BOTH[0];
    // The file header states that each frame ends with a frame check sequence (FCS) of two 16-bit
    // units.
    let mut bytes = maker.pcap_header(false, 1 | 0x0400_0000 | 2 << 28);
    bytes.extend(maker.pcap_record(0, 0, &frame(64, 0), 64));
    bytes.extend(maker.pcap_record(0, 0, &frame(60, 0), 64));
    let (packets, counters, error) = read(&bytes);
    assert!(error.is_none());
    // The captured bytes of the second frame do not include its frame check sequence (FCS).
    assert_eq!(packets.iter().map(|(_, frame)| frame.len()).collect::<Vec<_>>(), [60, 60]);
    assert_eq!(counters.truncated, 0);
}

#[test]
fn a_truncated_file_yields_its_whole_packets_and_the_offset() {
    let maker = BOTH[0];
    let ng = [maker.section(), maker.interface(1, 0, &[])].concat();
    for (header, record) in [
        (maker.pcap_header(true, 1), maker.pcap_record(1, 2, &frame(61, 0), 61)),
        (ng, maker.enhanced(0, 9, &frame(61, 0), 61)),
    ] {
        let bytes = [header.clone(), record.clone(), record.clone(), record.clone()].concat();
        for cut in header.len()..=bytes.len() {
            let (packets, _, error) = read(&bytes[..cut]);
            let whole = (cut - header.len()) / record.len();
            assert_eq!(packets.len(), whole, "cut at {cut}");
            let at = header.len() + whole * record.len();
            match error {
                None => assert_eq!(at, cut),
                Some(Error::CutOff { packets, offset, .. }) => {
                    assert_eq!((packets, offset), (whole as u64, at as u64), "cut at {cut}");
                }
                Some(other) => panic!("cut at {cut}: {other}"),
            }
        }
        for cut in 0..header.len() {
            let (packets, _, _) = read(&bytes[..cut]);
            assert!(packets.is_empty());
        }
    }
}

#[test]
fn errors_name_file_and_reason() {
    let maker = BOTH[1];
    let ng = [maker.section(), maker.interface(1, 0, &[])].concat();
    let cases: [(&str, Vec<u8>); 9] = [
        ("empty", vec![]),
        ("short", b"ab".to_vec()),
        ("23 20 61 20", b"# a text, of some length".to_vec()),
        ("101", maker.pcap_header(false, 101)),
        ("113", [maker.section(), maker.interface(113, 0, &[]), maker.enhanced(0, 0, &[0; 20], 20)].concat()),
        ("interface", [ng.clone(), maker.enhanced(1, 0, &[0; 20], 20)].concat()),
        ("6 bytes", [ng.clone(), maker.u32(6), maker.u32(6), vec![0; 20]].concat()),
        ("lengths", [ng.clone(), maker.u32(6), maker.u32(32), vec![0; 24]].concat()),
        (
            "captured length",
            [ng, {
                let mut block = maker.enhanced(0, 0, &[0; 20], 20);
                block[20..24].copy_from_slice(&maker.u32(21 + 4));
                block
            }]
            .concat(),
        ),
    ];
    for (part, bytes) in cases {
        let error = read(&bytes).2.unwrap_or_else(|| panic!("no error for: {part}")).to_string();
        let is_block = part == "captured length";
        assert!(error.contains(part) || is_block && error.contains("packet block"), "{error}");
        assert!(error.contains("/in.capture"), "{error}");
    }
    let error = Replay::open(&[ReplayInput { path: "/no/such.pcap".into(), port: 0 }], 0, 0, steering(1));
    assert!(error.err().unwrap().to_string().contains("/no/such.pcap"));
}

#[test]
fn files_are_merged_by_time_and_shared_by_workers() {
    let maker = BOTH[0];
    let folder = Folder::new();
    let mut random = Random::new(7);
    let inputs: Vec<_> = (0..3u8)
        .map(|port| {
            let mut bytes = maker.pcap_header(true, 1);
            let mut time = 0;
            for _ in 0..200 {
                time += random.below(3_u32);
                bytes.extend(maker.pcap_record(0, time, &udp(&mut random), 60));
            }
            ReplayInput { path: folder.write(&format!("{port}.pcap"), &bytes), port }
        })
        .collect();
    let read = |workers: usize, batch: usize| -> Vec<Arrived> {
        let mut all = Vec::new();
        for (worker, mut region) in regions(workers).into_iter().enumerate() {
            let mut replay = Replay::open(&inputs, 0, worker, steering(workers)).unwrap();
            let (packets, error) = drain(&mut replay, &mut region, batch);
            assert!(error.is_none());
            assert!(packets.len() < 600 || workers == 1);
            assert!(!packets.is_empty());
            all.extend(packets);
        }
        all.sort();
        all
    };
    let expected = read(1, 32);
    assert_eq!(expected.iter().map(|packet| packet.sequence).collect::<Vec<_>>(), (0..600).collect::<Vec<_>>());
    assert!(expected.is_sorted_by_key(|packet| (packet.time_ns, packet.port)));
    for workers in 2..=4 {
        assert_eq!(read(workers, 1 + random.below(64)), expected, "{workers} workers");
    }
}

/// Returns a UDP packet of 60 bytes with random addresses and ports.
fn udp(random: &mut Random) -> Vec<u8> {
    let ports = [random.next_u16(), random.next_u16()];
    FrameBuilder::new().ipv4(random.array(), random.array()).udp(ports, &[0; 18])
}

#[test]
fn a_full_region_delays_the_reader() {
    use godwit_io::Receive;
    let maker = BOTH[0];
    let mut bytes = maker.pcap_header(true, 1);
    (0..600).for_each(|mark| bytes.extend(maker.pcap_record(0, mark, &frame(60, mark as u8), 60)));
    let mut replay = open(&bytes).unwrap();
    let (mut region, mut batch) = (region(), godwit_packet::Batch::default());
    while region.allocated() < 512 {
        replay.receive(&mut region, &mut batch, 100).unwrap();
    }
    replay.receive(&mut region, &mut batch, 100).unwrap();
    assert_eq!((batch.len(), replay.sequence_next()), (512, 512));
    batch.descriptors.iter().for_each(|descriptor| region.release(descriptor));
    let (rest, error) = drain(&mut replay, &mut region, 32);
    assert!(error.is_none());
    assert_eq!((rest.len(), rest[0].sequence, replay.counters().missed), (88, 512, 0));
}

#[test]
fn the_key_packets_limits_the_number_of_records() {
    let maker = BOTH[0];
    let folder = Folder::new();
    let mut bytes = maker.pcap_header(true, 1);
    (0..10).for_each(|mark| bytes.extend(maker.pcap_record(0, mark, &frame(60, mark as u8), 60)));
    let inputs = [ReplayInput { path: folder.write("in.pcap", &bytes), port: 0 }];
    let mut replay = Replay::open(&inputs, 4, 0, steering(1)).unwrap();
    assert_eq!(drain(&mut replay, &mut region(), 32).0.len(), 4);
}

/// The capture files are from the tests of tcpdump (`tests/captures/README.md`).
#[test]
fn real_captures_have_the_number_of_packets_that_capinfos_counts() {
    for (path, bytes) in super::common::captures() {
        let name = path.file_name().unwrap().to_str().unwrap();
        let (packets, counters, error) = read(&bytes);
        let seen = packets.len() as u64 + counters.skipped();
        println!("{name}: {} packets, {} skipped, {error:?}", packets.len(), counters.skipped());
        match super::common::tool("capinfos", &["-T", "-r", "-c", path.to_str().unwrap()]) {
            Some(row) if error.is_none() => {
                let expected = row.trim().rsplit('\t').next().unwrap();
                assert_eq!(seen.to_string(), expected, "{name}");
            }
            _ => {}
        }
    }
}

/// Reads all capture files in the folder `GODWIT_CAPTURES` and its subfolders. The folder may
/// contain the unpacked tests of tcpdump.
#[test]
fn a_folder_of_captures_is_read_without_a_panic() {
    let Some(folder) = std::env::var_os("GODWIT_CAPTURES") else {
        println!("skipped: GODWIT_CAPTURES is not set to a folder of captures");
        return;
    };
    let mut folders = vec![Path::new(&folder).to_owned()];
    let (mut files, mut refused, mut packets) = (0, 0, 0);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            files += 1;
            let opened = Replay::open(&[ReplayInput { path: path.clone(), port: 0 }], 0, 0, steering(1));
            let error = match opened {
                Ok(mut replay) => {
                    let (arrived, error) = drain(&mut replay, &mut region(), 32);
                    packets += arrived.len();
                    error
                }
                Err(error) => Some(error),
            };
            if let Some(error) = error {
                refused += 1;
                println!("{error}");
            }
        }
    }
    println!("{files} files, {packets} packets, {refused} files ended with an error");
    assert!(files > 0);
}

proptest! {
    /// The function `fuzz::pcap_read` asserts that all buffers are freed.
    #[test]
    fn a_damaged_capture_is_read_without_a_panic(
        which in any::<prop::sample::Index>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut captures = super::common::captures();
        let (_, mut bytes) = captures.swap_remove(which.index(captures.len()));
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        godwit_io::fuzz::pcap_read(&bytes);
        bytes.truncate(cut.index(bytes.len()));
        godwit_io::fuzz::pcap_read(&bytes);
    }

    #[test]
    fn random_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), magic in 0usize..4) {
        let magic: &[u8] = [&[][..], &[0xd4, 0xc3, 0xb2, 0xa1], &[0x0a, 0x0d, 0x0d, 0x0a], &[0xa1, 0xb2, 0x3c, 0x4d]][magic];
        godwit_io::fuzz::pcap_read(&[magic, &bytes].concat());
    }
}
