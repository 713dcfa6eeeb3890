//! Compares packet headers with rule headers, and evaluates rule options for single packets.

use super::compile::Compiled;
use super::input::Input;
use crate::app::Direction;
use crate::packet::{Packet, Transport};
use crate::rules::packet_test::{PacketTest, StreamSide};
use crate::rules::rule::{Arrow, Endpoint, Link};

/// Returns whether the packet's protocol, addresses and ports match the rule header.
pub(super) fn matches(compiled: &Compiled, packet: &Packet<'_>) -> bool {
    let rule = &compiled.rule;
    let protocol = &rule.protocol;
    match protocol.link {
        Some(Link::Arp) => return packet.ethertype == 0x0806,
        Some(Link::Ether) => return !packet.ethernet.is_empty(),
        None if packet.version == 0 => return false,
        None => {}
    }
    if !protocol.numbers.is_empty() && !protocol.numbers.contains(&packet.protocol) {
        return false;
    }
    if protocol.version.is_some_and(|version| version != packet.version) {
        return false;
    }
    let forward = (&rule.source, &rule.destination);
    let backward = (&rule.destination, &rule.source);
    match rule.arrow {
        Arrow::Forward => endpoints(forward, packet),
        Arrow::Both | Arrow::Transaction => endpoints(forward, packet) || endpoints(backward, packet),
    }
}

fn endpoints((source, destination): (&Endpoint, &Endpoint), packet: &Packet<'_>) -> bool {
    let has_ports = matches!(packet.transport, Transport::Tcp(_) | Transport::Udp | Transport::Sctp(_));
    let port = |endpoint: &Endpoint, port| endpoint.ports.is_any() || has_ports && endpoint.ports.contains(port);
    port(destination, packet.destination_port)
        && port(source, packet.source_port)
        && destination.addresses.contains(packet.destination)
        && source.addresses.contains(packet.source)
}

/// Returns whether the rule's `flow` option matches the flow state.
pub(super) fn flow_matches(compiled: &Compiled, input: &Input<'_, '_>) -> bool {
    let test = &compiled.rule.flow;
    if test.direction.is_some() && test.direction != input.direction {
        return false;
    }
    if test.established.is_some_and(|established| established != input.established) {
        return false;
    }
    match test.fragments {
        Some(true) => input.packet.origin == crate::packet::Origin::Fragments,
        Some(false) => input.packet.origin != crate::packet::Origin::Fragments,
        None => true,
    }
}

/// Returns whether one packet test of a rule matches.
pub(super) fn test(test: &PacketTest, input: &Input<'_, '_>) -> bool {
    let packet = input.packet;
    let header = packet.network_header();
    let v4 = packet.version == 4 && header.len() >= 20;
    match test {
        PacketTest::PayloadBytes(test) => !input.is_end && test.matches(packet.payload.len() as u64),
        PacketTest::Ttl(test) => packet.version != 0 && test.matches(u64::from(packet.ttl)),
        PacketTest::Tos(test) => v4 && test.matches(u64::from(header[1])),
        PacketTest::IpId(test) => v4 && test.matches(u64::from(u16::from_be_bytes([header[4], header[5]]))),
        PacketTest::IpProtocol(test) => packet.version != 0 && test.matches(u64::from(packet.protocol)),
        PacketTest::SameAddress => packet.version != 0 && packet.source == packet.destination,
        PacketTest::IpOption(kind) => v4 && has_option(&header[20..], *kind),
        PacketTest::FragmentBits(bits) => v4 && bits.matches(header[6] >> 5),
        PacketTest::FragmentOffset(test) => {
            v4 && test.matches(u64::from(u16::from_be_bytes([header[6], header[7]]) & 0x1fff))
        }
        PacketTest::TcpFlags(bits) => packet.tcp().is_some_and(|tcp| !input.is_end && bits.matches(tcp.flags)),
        PacketTest::TcpSequence(number) => packet.tcp().is_some_and(|tcp| tcp.seq == *number),
        PacketTest::TcpAcknowledgment(number) => packet.tcp().is_some_and(|tcp| tcp.ack == *number),
        PacketTest::TcpWindow(test) => packet.tcp().is_some_and(|tcp| test.matches(u64::from(tcp.window))),
        PacketTest::TcpMss(test) => {
            packet.tcp().and_then(|tcp| tcp.mss).is_some_and(|mss| test.matches(u64::from(mss)))
        }
        PacketTest::IcmpType(_) | PacketTest::IcmpCode(_) | PacketTest::IcmpId(_) | PacketTest::IcmpSequence(_) => {
            icmp(test, packet)
        }
        PacketTest::VlanId(test, layer) => {
            let vlans = &packet.vlans[..usize::from(packet.vlan_count)];
            match layer {
                Some(layer) => vlans.get(usize::from(*layer)).is_some_and(|vlan| test.matches(u64::from(*vlan))),
                None => vlans.iter().any(|vlan| test.matches(u64::from(*vlan))),
            }
        }
        PacketTest::Event(name) => input.events.contains(name) || packet.events.contains(name),
        PacketTest::SctpChunkCount(_) | PacketTest::SctpChunkType(_) | PacketTest::SctpTag(_) => sctp(test, packet),
        _ => flow_test(test, input),
    }
}

fn flow_test(test: &PacketTest, input: &Input<'_, '_>) -> bool {
    let Some(flow) = input.flow.as_ref() else { return false };
    let sum = |values: [u64; 2], direction: &Option<Direction>| match direction {
        Some(direction) => values[*direction as usize],
        None => values[0] + values[1],
    };
    match test {
        PacketTest::FlowAge(test) => test.matches((input.packet.time.saturating_sub(flow.first)) / 1_000_000),
        PacketTest::FlowPackets(direction, test) => test.matches(sum(flow.packets, direction)),
        PacketTest::FlowBytes(direction, test) => test.matches(sum(flow.bytes, direction)),
        PacketTest::StreamBytes(side, test) => {
            let Some(session) = flow.session.as_ref() else { return false };
            let sizes = Direction::BOTH.map(|direction| {
                let side = session.side(direction);
                u64::from(side.next_seq.wrapping_sub(side.isn.wrapping_add(1)))
            });
            match side {
                StreamSide::Client => test.matches(sizes[0]),
                StreamSide::Server => test.matches(sizes[1]),
                StreamSide::Both => sizes.iter().all(|size| test.matches(*size)),
                StreamSide::Either => sizes.iter().any(|size| test.matches(*size)),
            }
        }
        PacketTest::AppProtocol { name, negated } => {
            let matches = match name.as_str() {
                "failed" => flow.app.failed,
                "unknown" => flow.app.app.is_none() && !flow.app.failed,
                name => flow.app.app.is_some_and(|app| crate::App::from_name(name).contains(app)),
            };
            matches != *negated
        }
        _ => false,
    }
}

fn icmp(test: &PacketTest, packet: &Packet<'_>) -> bool {
    let Transport::Icmp(icmp) = packet.transport else { return false };
    match test {
        PacketTest::IcmpType(test) => test.matches(u64::from(icmp.kind)),
        PacketTest::IcmpCode(test) => test.matches(u64::from(icmp.code)),
        PacketTest::IcmpId(id) => icmp.echo.is_some_and(|echo| echo.0 == *id),
        PacketTest::IcmpSequence(number) => icmp.echo.is_some_and(|echo| echo.1 == *number),
        _ => false,
    }
}

/// Returns the type and byte range of each SCTP chunk in a packet (RFC 9260, section 3.2).
pub(super) fn sctp_chunks(payload: &[u8]) -> Vec<(u8, std::ops::Range<usize>)> {
    let mut chunks = Vec::new();
    let mut at = 0;
    while let Some(header) = payload.get(at..at + 4) {
        let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if length < 4 || chunks.len() >= 64 {
            break;
        }
        chunks.push((header[0], at..(at + length).min(payload.len())));
        at += length.next_multiple_of(4);
    }
    chunks
}

fn sctp(test: &PacketTest, packet: &Packet<'_>) -> bool {
    let Transport::Sctp(tag) = packet.transport else { return false };
    let chunks = sctp_chunks(packet.payload());
    match test {
        PacketTest::SctpChunkCount(test) => test.matches(chunks.len() as u64),
        PacketTest::SctpChunkType(test) => chunks.iter().any(|chunk| test.matches(u64::from(chunk.0))),
        PacketTest::SctpTag(test) => test.matches(u64::from(tag)),
        _ => false,
    }
}

fn has_option(mut options: &[u8], kind: Option<u8>) -> bool {
    while let [own, rest @ ..] = options {
        if kind.is_none_or(|kind| kind == *own) && (*own != 0 || kind == Some(0)) {
            return true;
        }
        match own {
            0 => return false,
            1 => options = rest,
            _ => match rest.first() {
                Some(length) if usize::from(*length) >= 2 => {
                    options = options.get(usize::from(*length)..).unwrap_or(&[])
                }
                _ => return false,
            },
        }
    }
    false
}
