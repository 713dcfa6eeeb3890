//! Tests of the writer of capture files. This crate and other programs must be able to read the
//! files. The files must not depend on the number of workers.

use std::path::Path;

use godwit_io::Error;
use godwit_io::pcap::{Annotated, Annotation, Config, Format, Replay, ReplayInput, Sink};
use godwit_packet::Outgoing;
use godwit_test_support::hex::hex;
use godwit_test_support::{Folder, Random, skip};
use proptest::prelude::*;

use super::common::{Arrived, departure, drain, region, regions, steering, tool};

fn packets(count: usize, seed: u64) -> Vec<Arrived> {
    let mut random = Random::new(seed);
    let mut time_ns = 1_700_000_000_000_000_000;
    (0..count)
        .map(|sequence| {
            time_ns += random.below(1_000_000);
            let bytes = 14 + random.below(400);
            let frame = (0..bytes).map(|_| random.next_u8()).collect();
            Arrived { sequence: sequence as u64, port: random.below(2) as u8, time_ns, flow_hash: 0, frame }
        })
        .collect()
}

fn names(count: usize) -> Vec<String> {
    ["left", "right", "a name of another length"][..count].iter().map(|name| name.to_string()).collect()
}

/// Writes packets with one worker. Each packet is recorded under the interface of its receive port.
fn write(path: &Path, format: Format, packets: &[Arrived]) {
    let sink = Sink::create(path, format, &names(2), 1).unwrap();
    let mut queues = [sink.transmitter(0, 0), sink.transmitter(0, 1)];
    let mut region = region();
    for packet in packets {
        let departure = departure(&mut region, packet);
        assert_eq!(
            queues[usize::from(packet.port)].transmit(&mut Outgoing::from(&mut region), &[departure]).unwrap(),
            1
        );
        queues.iter_mut().for_each(|queue| queue.settled(packet.sequence + 1).unwrap());
    }
    assert_eq!(region.allocated(), 0);
    let sent: u64 = queues.iter().map(|queue| queue.counters().sent_packets).sum();
    let report = sink.finish().unwrap();
    assert_eq!((sent, report.packets), (packets.len() as u64, packets.len() as u64));
    assert_eq!(report.file_bytes, std::fs::metadata(path).unwrap().len());
    assert_eq!(report.frame_bytes, packets.iter().map(|packet| packet.frame.len() as u64).sum::<u64>());
}

fn read(path: &Path) -> Vec<(u64, Vec<u8>)> {
    let mut replay = Replay::open(&[ReplayInput { path: path.to_owned(), port: 0 }], 0, 0, steering(1)).unwrap();
    let (packets, error) = drain(&mut replay, &mut region(), 32);
    assert!(error.is_none(), "{error:?}");
    packets.into_iter().map(|packet| (packet.time_ns, packet.frame)).collect()
}

#[test]
fn a_written_capture_is_read_back() {
    let folder = Folder::new();
    for (name, format) in [("out.pcap", Format::Pcap), ("out.pcapng", Format::PcapNg)] {
        let path = folder.join(name);
        let packets = packets(700, 11);
        write(&path, format, &packets);
        let expected: Vec<_> = packets.into_iter().map(|packet| (packet.time_ns, packet.frame)).collect();
        assert_eq!(read(&path), expected, "{name}");
    }
    assert_eq!(folder.names(), ["out.pcap", "out.pcapng"]);
}

#[test]
fn tshark_and_scapy_read_the_same_frames() {
    let folder = Folder::new();
    let packets = packets(50, 12);
    for (name, format) in [("out.pcap", Format::Pcap), ("out.pcapng", Format::PcapNg)] {
        let path = folder.join(name);
        write(&path, format, &packets);
        let path = path.to_str().unwrap();
        let fields = ["-T", "fields", "-e", "frame.time_epoch", "-e", "frame.len", "-e", "frame.interface_name"];
        if let Some(rows) = tool("tshark", &[&["-r", path], &fields[..]].concat()) {
            let expected: Vec<String> = packets
                .iter()
                .map(|packet| {
                    let name = if format == Format::PcapNg { &names(2)[usize::from(packet.port)] } else { "" };
                    let (seconds, ns) = (packet.time_ns / 1_000_000_000, packet.time_ns % 1_000_000_000);
                    format!("{seconds}.{ns:09}\t{}\t{name}", packet.frame.len())
                })
                .collect();
            let rows: Vec<_> = rows.lines().map(normal_time).collect();
            assert_eq!(rows, expected, "{name}");
        }
        let script =
            "import sys, scapy.utils\nfor frame, _ in scapy.utils.RawPcapReader(sys.argv[1]): print(frame.hex())";
        // Linux distributions install scapy for the Python version of the system.
        if let Some(rows) = tool("/usr/bin/python3", &["-c", script, path]) {
            let expected: Vec<String> = packets.iter().map(|packet| hex(&packet.frame)).collect();
            assert_eq!(rows.lines().collect::<Vec<_>>(), expected, "{name}");
        }
    }
}

#[test]
fn packets_may_have_comments_and_directions() {
    let folder = Folder::new();
    let path = folder.join("out.pcapng");
    let packets = packets(3, 13);
    // The last character of the long comment extends past the maximum length.
    let comments = ["one line".to_owned(), String::new(), "x".repeat(65534) + "\u{e4}"];
    let mut annotated = Annotated::create(&path).unwrap();
    for ((number, packet), comment) in packets.iter().enumerate().zip(&comments) {
        let interface = ["lan", "wan"][number % 2];
        let (inbound, time_ns) = (number % 2 == 0, packet.time_ns);
        annotated.packet(&Annotation { interface, inbound, time_ns, frame: &packet.frame, comment }).unwrap();
    }
    assert!(!path.exists(), "the file must not exist before it is complete");
    annotated.finish().unwrap();
    let expected: Vec<_> = packets.iter().map(|packet| (packet.time_ns, packet.frame.clone())).collect();
    assert_eq!(read(&path), expected);
    let fields = ["-T", "fields", "-e", "frame.interface_name", "-e", "frame.packet_flags", "-e", "frame.comment"];
    if let Some(rows) = tool("tshark", &[&["-r", path.to_str().unwrap()], &fields[..]].concat()) {
        let rows: Vec<Vec<&str>> = rows.lines().map(|line| line.split('\t').collect()).collect();
        assert_eq!(
            rows.iter().map(|row| row[..2].join(" ")).collect::<Vec<_>>(),
            ["lan 0x00000001", "wan 0x00000002", "lan 0x00000001"]
        );
        assert_eq!(rows[0][2], "one line");
        assert!(rows[2][2].starts_with(&"x".repeat(100)), "{}", rows[2][2]);
    }
}

/// Changes the time in an output line of tshark to 9 digits after the decimal point. The number of
/// digits depends on the version of tshark.
fn normal_time(row: &str) -> String {
    let (time, rest) = row.split_once('\t').unwrap();
    let (seconds, fraction) = time.split_once('.').unwrap();
    format!("{seconds}.{fraction:0<9}\t{rest}")
}

/// Distributes packets over the workers, as a flow hash would do, and sends them in random bursts.
fn write_with_workers(path: &Path, packets: &[Arrived], workers: usize, random: &mut Random) {
    let sink = Sink::create(path, Format::PcapNg, &names(2), workers).unwrap();
    let mut regions = regions(workers);
    let mut queues: Vec<_> =
        (0..workers).map(|worker| [sink.transmitter(worker, 0), sink.transmitter(worker, 1)]).collect();
    let worker_of = |packet: &Arrived| packet.frame[0] as usize % workers;
    let mut next = vec![0; workers];
    while next.iter().any(|&at| at < packets.len()) {
        let worker = random.below(workers);
        let end = packets.len().min(next[worker] + random.below(40));
        let steered = packets[next[worker]..end].iter().filter(|packet| worker_of(packet) == worker);
        for (interface, queue) in queues[worker].iter_mut().enumerate() {
            let burst = steered.clone().filter(|packet| usize::from(packet.port) == interface);
            let burst: Vec<_> = burst.map(|packet| departure(&mut regions[worker], packet)).collect();
            assert_eq!(queue.transmit(&mut Outgoing::from(&mut regions[worker]), &burst).unwrap(), burst.len());
        }
        for queue in &mut queues[worker] {
            // A worker may report late that packets were sent or dropped, but it must not report
            // this early.
            if random.below(3) > 0 {
                queue.settled(packets.get(end).map_or(u64::MAX, |packet| packet.sequence)).unwrap();
            }
        }
        next[worker] = end;
    }
    drop(queues);
    assert_eq!(sink.finish().unwrap().packets, packets.len() as u64);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn the_file_does_not_depend_on_workers_or_bursts(seed in 1u64.., workers in 1usize..5) {
        let folder = Folder::new();
        let mut packets = packets(300, seed);
        // The packets that arrive on two ports have the same sequence numbers.
        packets.iter_mut().for_each(|packet| packet.sequence /= 2);
        for pair in packets.chunks_mut(2) {
            pair[0].port = 0;
            pair[1].port = 1;
        }
        let (expected, path) = (folder.join("expected"), folder.join("out"));
        write_with_workers(&expected, &packets, 1, &mut Random::new(1));
        write_with_workers(&path, &packets, workers, &mut Random::new(seed));
        prop_assert!(std::fs::read(path).unwrap() == std::fs::read(expected).unwrap());
    }
}

#[test]
fn a_dropped_queue_does_not_delay_other_workers() {
    let folder = Folder::new();
    let path = folder.join("out.pcapng");
    let sink = Sink::create(&path, Format::PcapNg, &names(1), 2).unwrap();
    let unused = sink.transmitter(0, 0);
    let mut queue = sink.transmitter(1, 0);
    drop(unused);
    let mut region = region();
    let packets = packets(10, 3);
    for packet in &packets {
        let departure = departure(&mut region, packet);
        queue.transmit(&mut Outgoing::from(&mut region), &[departure]).unwrap();
    }
    queue.settled(u64::MAX).unwrap();
    assert_eq!(sink.finish().unwrap().packets, 10);
    assert_eq!(read(&path).len(), 10);
}

#[test]
fn an_unfinished_file_is_removed() {
    let folder = Folder::new();
    let path = folder.write("out.pcap", b"previous content");
    let sink = Sink::create(&path, Format::Pcap, &names(1), 1).unwrap();
    let mut queue = sink.transmitter(0, 0);
    assert_eq!(std::fs::read(&path).unwrap(), b"previous content");
    drop(sink);
    assert_eq!(folder.names(), ["out.pcap"]);
    assert_eq!(std::fs::read(&path).unwrap(), b"previous content");
    // Packets that are sent later are refused, and their buffers are freed.
    let mut region = region();
    let departure = departure(&mut region, &packets(1, 1)[0]);
    let error = queue.transmit(&mut Outgoing::from(&mut region), &[departure]).unwrap_err();
    assert!(error.to_string().contains("out.pcap"), "{error}");
    assert_eq!((queue.counters().refused, region.allocated()), (1, 0));
}

/// Sends packets until the file is full. Returns the first error.
fn fill_up(path: &Path) -> Error {
    let sink = Sink::create(path, Format::PcapNg, &names(1), 1).unwrap();
    let mut queue = sink.transmitter(0, 0);
    let mut region = region();
    let mut first = None;
    for packet in packets(4000, 5) {
        let departure = departure(&mut region, &packet);
        let sent = queue.transmit(&mut Outgoing::from(&mut region), &[departure]);
        let settled = queue.settled(packet.sequence + 1);
        assert_eq!(region.allocated(), 0, "buffers must be released after an error");
        if let Some(error) = sent.err().or(settled.err()) {
            first.get_or_insert(error);
        }
    }
    let finished = sink.finish();
    assert!(first.is_none() || queue.counters().refused > 0);
    let error = finished.unwrap_err();
    first.unwrap_or(error)
}

#[test]
fn a_full_disk_is_an_error_with_the_path() {
    let error = fill_up(Path::new("/dev/full")).to_string();
    assert!(error.contains("/dev/full") && error.contains("No space left"), "{error}");

    let folder = Folder::new();
    let folder_text = folder.path().to_str().unwrap();
    let mount =
        std::process::Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "none", folder_text]).output();
    if !mount.is_ok_and(|output| output.status.success()) {
        skip("a full file system: this user cannot mount a tmpfs");
        return;
    }
    let error = fill_up(&folder.join("out.pcapng"));
    let names = folder.names();
    tool("umount", &[folder_text]);
    assert!(error.to_string().contains("out.pcapng: No space left"), "{error}");
    assert!(names.is_empty(), "{names:?}");
}

/// A router must not stop because the disk for its capture file is full.
#[test]
fn a_tolerant_sink_counts_what_a_full_disk_refuses() {
    let folder = Folder::new();
    let folder_text = folder.path().to_str().unwrap();
    let mount =
        std::process::Command::new("mount").args(["-t", "tmpfs", "-o", "size=640k", "none", folder_text]).output();
    if !mount.is_ok_and(|output| output.status.success()) {
        skip("a full file system: this user cannot mount a tmpfs");
        return;
    }
    let path = folder.join("out.pcapng");
    let sink = Sink::create(&path, Format::PcapNg, &names(1), 1).unwrap().tolerant();
    let mut queue = sink.transmitter(0, 0);
    let mut region = region();
    let packets = packets(8000, 5);
    let mut accepted = 0;
    for packet in &packets {
        let departure = departure(&mut region, packet);
        accepted += queue.transmit(&mut Outgoing::from(&mut region), &[departure]).unwrap();
        queue.settled(packet.sequence + 1).unwrap();
        assert_eq!(region.allocated(), 0);
    }
    let notice = sink.notice().unwrap();
    assert!(notice.contains("out.pcapng: No space left") && sink.notice().is_none(), "{notice}");
    let counters = queue.counters();
    assert_eq!((counters.sent_packets, counters.refused), (accepted as u64, (packets.len() - accepted) as u64));
    let report = sink.finish().unwrap();
    assert!(counters.refused > 0 && counters.unsent > 0);
    assert_eq!(counters.sent_packets, report.packets + counters.unsent, "every accepted packet is written or counted");
    // The capture file contains all packets before the first packet that did not fit.
    let expected: Vec<_> =
        packets.iter().take(report.packets as usize).map(|packet| (packet.time_ns, packet.frame.clone())).collect();
    let (names, written) = (folder.names(), read(&path));
    tool("umount", &[folder_text]);
    assert_eq!(names, ["out.pcapng"]);
    assert!(written == expected && !written.is_empty());
}

#[test]
fn the_configuration_selects_file_and_format() {
    let read = |text: &str| toml::from_str::<Config>(text).map_err(|error| error.to_string());
    let config = read("write = \"out.PCAP\"").unwrap();
    assert_eq!(config.format_of(config.write.as_ref().unwrap()), Format::Pcap);
    assert_eq!(read("write = \"out\"\nformat = \"pcap\"").unwrap().format_of(Path::new("out")), Format::Pcap);
    assert_eq!(Format::from_path(Path::new("out.pcapng")), Format::PcapNg);
    assert!(read("fil = \"x\"").unwrap_err().contains("fil"));
    assert!(read("format = \"pcap\"").unwrap().validate().is_err());
    assert!(read("file = \"a\"\nwrite = \"a\"").unwrap().validate().unwrap_err().to_string().contains("write = a"));
    let mut config = read("file = \"a\"\nwrite = \"/b\"").unwrap();
    config.resolve(Path::new("/folder"));
    assert_eq!((config.file.unwrap().to_str(), config.write.unwrap().to_str()), (Some("/folder/a"), Some("/b")));
    let error = Sink::create(Path::new("/no/such/out.pcap"), Format::Pcap, &names(1), 1).unwrap_err().to_string();
    assert!(error.contains("/no/such/out.pcap"), "{error}");
}
