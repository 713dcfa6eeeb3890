//! Tests of the port `dpdk` without the packet engine. Buffers are passed to a device and return,
//! and the device and the port must count the same packets.
#![cfg(feature = "dpdk")]

use std::sync::Arc;

use godwit_io::dpdk::{self, Config};
use godwit_io::live::{Live, LiveContext, LivePort};
use godwit_io::{Departure, QueueContext, Receive, Received, Transmit};
use godwit_packet::{Arena, ArenaConfig, Batch, Descriptor, Region, Stamp, Steering};

/// Creates an arena for one worker that meets the needs of the ports.
fn arena(ports: &[&Config]) -> (ArenaConfig, godwit_packet::ArenaHandle, Vec<Region>) {
    let mut config = ArenaConfig { packets: 512, headroom_bytes: 192, ..ArenaConfig::default() };
    for port in ports {
        let needs = port.needs();
        config.prefix_bytes = config.prefix_bytes.max(needs.prefix_bytes);
        config.headroom_bytes = config.headroom_bytes.max(needs.headroom_bytes);
        config.packets += needs.buffers;
    }
    let arena = Arena::new(config.clone(), 1).unwrap();
    (config, arena.handle(), arena.split())
}

fn open(
    port: &Config,
    config: &ArenaConfig,
    handle: &godwit_packet::ArenaHandle,
    region: &mut Region,
) -> (Arc<dyn LivePort>, Box<dyn Receive>, Box<dyn Transmit>) {
    let (start, bytes) = region.extent();
    let whole = start..start + bytes;
    let context = LiveContext {
        name: "port",
        port: 3,
        workers: 1,
        receives: true,
        arena: handle,
        regions: std::slice::from_ref(&whole),
        slot_bytes: handle.slot_pitch_bytes(),
        buffer_bytes: config.buffer_bytes(),
        headroom_bytes: config.headroom_bytes,
        frame_bytes_max: config.frame_bytes_max,
    };
    let port = port.open(&context).unwrap();
    port.attach(0, region).unwrap();
    let steering = Arc::new(Steering::new(1, None));
    let receiver = port.receiver(QueueContext { port: 3, worker: 0, steering }, region).unwrap();
    let transmitter = port.transmitter(0).unwrap();
    (port, receiver, transmitter)
}

fn config(device: &str) -> Config {
    toml::from_str(&format!("device = \"{device}\"")).unwrap()
}

/// Allocates a packet of `length` bytes of value `mark`. The frame starts `shift` bytes before the
/// offset at which frames are received.
fn packet(region: &mut Region, length: usize, mark: u8, shift: u16) -> Descriptor {
    let mut descriptor = region.allocate(length).unwrap();
    descriptor.head -= shift;
    region.frame_mut(&descriptor).fill(mark);
    descriptor
}

#[test]
fn a_ring_returns_each_packet_in_its_own_buffer() {
    let port = config("net_ring0");
    let (arena_config, handle, mut regions) = arena(&[&port]);
    let mut region = regions.remove(0);
    let (live, mut receiver, mut transmitter) = open(&port, &arena_config, &handle, &mut region);
    let in_ports = region.in_ports();
    let (mut sent, mut received) = (0u64, 0u64);
    for round in 0..500usize {
        transmitter.service(&mut (&mut region).into()).unwrap();
        let departures: Vec<Departure> = (0..round % 33)
            .map(|index| {
                // Headers that a function prepends are written into the headroom of the driver.
                let shift = [0, 50, 192][index % 3];
                let descriptor = packet(&mut region, 60 + (round * 7 + index) % 1400, index as u8, shift);
                Departure { descriptor, stamp: Stamp::default() }
            })
            .collect();
        let accepted = transmitter.transmit(&mut (&mut region).into(), &departures).unwrap();
        assert_eq!(accepted, departures.len());
        sent += accepted as u64;
        let mut batch = Batch::default();
        assert_eq!(receiver.receive(&mut region, &mut batch, 64).unwrap(), Received::Open);
        assert_eq!(batch.len(), accepted);
        for (departure, descriptor) in departures.iter().zip(&batch.descriptors) {
            // The descriptor names the same buffer as before, so the packet was not copied.
            assert_eq!(descriptor.buffer, departure.descriptor.buffer);
            assert_eq!((descriptor.length, descriptor.port), (departure.descriptor.length, 3));
            let frame = region.frame(descriptor);
            assert!(frame.iter().all(|&byte| byte == frame[0]), "round {round}");
            received += 1;
        }
        batch.descriptors.iter().for_each(|descriptor| region.release(descriptor));
        assert_eq!(region.allocated(), 0);
    }
    assert_eq!(received, sent);
    assert_eq!(dpdk::packet_counts("net_ring0"), Some([received, sent]));
    let counters = live.counters();
    assert_eq!((counters.received_packets, counters.sent_packets, counters.missed), (received, sent, 0));
    assert!(region.in_ports() <= in_ports);
    live.stop();
    let mut batch = Batch::default();
    while receiver.receive(&mut region, &mut batch, 64).unwrap() == Received::Open {}
    assert_eq!((batch.len(), receiver.sequence_next()), (0, u64::MAX));
    drop((receiver, transmitter, live));
    assert_eq!(dpdk::packet_counts("net_ring0"), None, "the device must be removed");
}

#[test]
fn a_full_ring_refuses_packets_and_releases_their_buffers() {
    let port = config("net_ring1");
    let (arena_config, handle, mut regions) = arena(&[&port]);
    let mut region = regions.remove(0);
    let (live, mut receiver, mut transmitter) = open(&port, &arena_config, &handle, &mut region);
    transmitter.service(&mut (&mut region).into()).unwrap();
    let mut accepted = 0;
    for _ in 0..12 {
        let departures: Vec<Departure> = (0..200)
            .map(|_| Departure { descriptor: packet(&mut region, 60, 7, 0), stamp: Stamp::default() })
            .collect();
        accepted += transmitter.transmit(&mut (&mut region).into(), &departures).unwrap();
        assert_eq!(region.allocated(), 0);
    }
    let counters = live.counters();
    assert_eq!(counters.sent_packets, accepted as u64);
    assert_eq!(counters.refused, 2400 - accepted as u64);
    assert!(counters.refused > 0, "net_ring has a ring of 1024 packets");
    let mut batch = Batch::default();
    let mut received = 0;
    loop {
        batch.clear();
        receiver.receive(&mut region, &mut batch, 64).unwrap();
        if batch.is_empty() {
            break;
        }
        received += batch.len();
        batch.descriptors.iter().for_each(|descriptor| region.release(descriptor));
    }
    assert_eq!(received, accepted);
}

#[test]
fn a_device_that_cannot_be_opened_is_an_error() {
    let port = config("net_nonsense0");
    let (arena_config, handle, regions) = arena(&[&port]);
    let (start, bytes) = regions[0].extent();
    let whole = start..start + bytes;
    let context = LiveContext {
        name: "port",
        port: 0,
        workers: 1,
        receives: true,
        arena: &handle,
        regions: std::slice::from_ref(&whole),
        slot_bytes: handle.slot_pitch_bytes(),
        buffer_bytes: arena_config.buffer_bytes(),
        headroom_bytes: arena_config.headroom_bytes,
        frame_bytes_max: arena_config.frame_bytes_max,
    };
    let error_of = |port: &Config, context: &LiveContext<'_>| port.open(context).map(|_| ()).unwrap_err().to_string();
    let error = error_of(&port, &context);
    assert!(error.starts_with("net_nonsense0: "), "{error}");
    // A device of the DPDK driver net_pcap, which reads a capture file, has one queue.
    let capture = concat!("net_pcap2,rx_pcap=", env!("CARGO_MANIFEST_DIR"), "/tests/captures/bootp_asan.pcap");
    let error = error_of(&config(capture), &LiveContext { workers: 9, ..context });
    assert!(error.contains("net_pcap2") && error.contains(" 1 "), "{error}");
    let other = Config { eal: Some(vec!["--no-huge".into()]), ..port };
    let error = error_of(&other, &LiveContext { workers: 1, ..context });
    assert!(error.contains("--no-huge"), "{error}");
}
