//! Fuzz targets: functions that accept arbitrary bytes and must not panic. libFuzzer calls them
//! through `fuzz/fuzz_targets/`. The test `tests/corpus.rs` calls them with the fuzz corpus.

use crate::ipv6_extension::emit_extension;
use crate::*;

/// Parses `data` with every parser of this crate. Checks that both five-tuple parsers return the
/// same result.
pub fn wire_parse(data: &[u8]) {
    let parsed = parse(data);
    assert_eq!(parsed.five_tuple, slow_five_tuple(data), "parse and the views disagree");
    assert!(parsed.five_tuple.is_none() || parsed.error.is_none());
    if parsed.five_tuple.is_some() {
        assert!(parsed.l3_offset < parsed.l4_offset && parsed.l4_offset <= parsed.l3_end);
        assert!(parsed.l3_end <= data.len());
    }
    read_all(data);
    // Every parser must accept any bytes, not only those of a valid lower layer.
    for offset in [parsed.l3_offset, parsed.l4_offset] {
        if let Some(rest) = data.get(offset..) {
            read_all(rest);
        }
    }
}

/// Emits headers with fields from `data` and parses them. Then parses `data` as headers, emits the
/// headers, and compares the bytes.
pub fn wire_emit(data: &[u8]) {
    let mut buffer = [0; 2048];
    emit_fields_from(data, &mut buffer);
    emit_parsed(data, &mut buffer);
    set_all(data, &mut buffer);
}

/// Returns the five-tuple that the header views give. [`parse`] must return the same five-tuple.
fn slow_five_tuple(frame: &[u8]) -> Option<FiveTuple> {
    let ethernet = Ethernet::new_checked(frame).ok()?;
    let (mut kind, mut packet) = (ethernet.ethertype(), ethernet.payload());
    let (outer, inner);
    if ethertype::is_vlan(kind) {
        outer = Vlan::new_checked(packet).ok()?;
        (kind, packet) = (outer.ethertype(), outer.payload());
    }
    if ethertype::is_vlan(kind) {
        inner = Vlan::new_checked(packet).ok()?;
        (kind, packet) = (inner.ethertype(), inner.payload());
    }
    let (source, destination, protocol, upper) = match kind {
        ethertype::IPV4 => {
            let ipv4 = Ipv4::new_checked(packet).ok()?;
            let upper = if ipv4.is_fragment() { None } else { Some(ipv4.payload().to_vec()) };
            (IpAddress::V4(ipv4.source()), IpAddress::V4(ipv4.destination()), ipv4.protocol(), upper)
        }
        ethertype::IPV6 => {
            let ipv6 = Ipv6::new_checked(packet).ok()?;
            let mut walk = ipv6.extensions();
            let mut fragment = false;
            while !fragment && walk.protocol() != protocol::AH {
                let Some(step) = walk.next() else { break };
                fragment = step.ok()?.fragment().is_some_and(|header| header.is_fragment());
            }
            let upper = if fragment { None } else { Some(walk.rest().to_vec()) };
            (IpAddress::V6(ipv6.source()), IpAddress::V6(ipv6.destination()), walk.protocol(), upper)
        }
        _ => return None,
    };
    let (source_port, destination_port) = match upper {
        Some(upper) if protocol::has_ports(protocol) => {
            let &[a, b, c, d, ..] = &upper[..] else { return None };
            (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
        }
        _ => (0, 0),
    };
    Some(FiveTuple { source, destination, protocol, source_port, destination_port })
}

/// Calls every getter of every view on the same bytes.
fn read_all(data: &[u8]) {
    let inside = |part: &[u8]| assert!(part.len() <= data.len());
    if let Ok(view) = Ethernet::new_checked(data) {
        EthernetHeader::parse(&view);
        inside(view.payload());
    }
    if let Ok(view) = Vlan::new_checked(data) {
        VlanHeader::parse(&view);
        inside(view.payload());
    }
    if let Ok(view) = Arp::new_checked(data) {
        let _ = ArpHeader::parse(&view);
        inside(view.sender_hardware());
        inside(view.sender_protocol());
        inside(view.target_hardware());
        inside(view.target_protocol());
    }
    if let Ok(view) = Ipv4::new_checked(data) {
        Ipv4Header::parse(&view);
        inside(view.payload());
        assert!(view.options().count() <= 40);
        let _ = view.verify_checksum();
        read_upper(view.payload(), view.pseudo_header());
    }
    if let Ok(view) = Ipv6::new_checked(data) {
        Ipv6Header::parse(&view);
        inside(view.payload());
        for step in view.extensions().flatten() {
            assert!(step.offset + step.bytes.len() <= view.payload().len());
            step.options().for_each(drop);
            step.routing();
        }
        if let Ok((protocol, offset)) = view.extensions().upper_layer() {
            let upper = &view.payload()[offset..];
            read_upper(upper, view.pseudo_header(protocol, upper.len() as u32));
        }
    }
    for first in [protocol::HOP_BY_HOP, protocol::ROUTING, protocol::FRAGMENT, protocol::DESTINATION_OPTIONS] {
        assert!(Extensions::new(first, data).count() <= ipv6_extension::HEADERS_MAX + 1);
    }
    read_upper(data, Checksum::new());
}

fn read_upper(data: &[u8], pseudo_header: Checksum) {
    let inside = |part: &[u8]| assert!(part.len() <= data.len());
    if let Ok(view) = Tcp::new_checked(data) {
        TcpHeader::parse(&view);
        inside(view.payload());
        assert!(view.options().count() <= 40);
        let _ = view.verify_checksum(pseudo_header);
    }
    if let Ok(view) = Udp::new_checked(data) {
        UdpHeader::parse(&view);
        inside(view.payload());
        let _ = view.verify_checksum(pseudo_header);
    }
    if let Ok(view) = Icmpv4::new_checked(data) {
        Icmpv4Header::parse(&view);
        inside(view.payload());
        let _ = (view.verify_checksum(), view.is_error());
    }
    if let Ok(view) = Icmpv6::new_checked(data) {
        Icmpv6Header::parse(&view);
        inside(view.payload());
        let _ = (view.verify_checksum(pseudo_header), view.is_error());
    }
    if let Ok(view) = Esp::new_checked(data) {
        EspHeader::parse(&view);
        inside(view.payload());
    }
    if let Ok(view) = Ah::new_checked(data) {
        AhHeader::parse(&view);
        inside(view.icv());
        inside(view.payload());
    }
    if let Ok(trailer) = EspTrailer::parse(data) {
        assert!(trailer.length_bytes() <= data.len());
    }
}

/// Emits headers with fields from `data`. The parsers must return these headers again.
fn emit_fields_from(data: &[u8], buffer: &mut [u8; 2048]) {
    let mut rest = data;
    let ethernet = EthernetHeader {
        destination: MacAddress(take(&mut rest)),
        source: MacAddress(take(&mut rest)),
        ethertype: u16::from_be_bytes(take(&mut rest)),
    };
    ethernet.emit(buffer).expect("2048 bytes are enough");
    assert_eq!(EthernetHeader::parse(&Ethernet::new_checked(&buffer[..]).unwrap()), ethernet);

    let [flags, traffic_class, ttl, protocol, a, b] = take(&mut rest);
    let vlan = VlanHeader {
        priority: a >> 4,
        drop_eligible: flags & 1 != 0,
        id: u16::from_be_bytes([b >> 3, a]),
        ethertype: ethernet.ethertype,
    };
    if vlan.emit(buffer).is_ok() {
        assert_eq!(VlanHeader::parse(&Vlan::new_checked(&buffer[..]).unwrap()), vlan);
    }

    let (options, _) = rest.split_at(rest.len().min(usize::from(a % 44)) / 4 * 4);
    let ipv4 = Ipv4Header {
        traffic_class,
        identification: u16::from_be_bytes([a, b]),
        dont_fragment: flags & 2 != 0,
        more_fragments: flags & 4 != 0,
        fragment_offset_bytes: u16::from_be_bytes([b, a]) & 0xfff9,
        ttl,
        protocol,
        source: take(&mut rest),
        destination: take(&mut rest),
        options,
        payload_bytes: usize::from(b) << (flags >> 4),
    };
    if let Ok(written) = ipv4.emit(buffer) {
        let packet = vec![0; written + ipv4.payload_bytes];
        let packet = [&buffer[..written], &packet[written..]].concat();
        let view = Ipv4::new_checked(packet).expect("an emitted packet is valid");
        assert_eq!(Ipv4Header::parse(&view), ipv4);
        assert_eq!(view.verify_checksum(), Ok(()));
    }

    let tcp = TcpHeader {
        source_port: u16::from_be_bytes(take(&mut rest)),
        destination_port: u16::from_be_bytes(take(&mut rest)),
        sequence: u32::from_be_bytes(take(&mut rest)),
        acknowledgment: u32::from_be_bytes(take(&mut rest)),
        flags,
        window: u16::from_be_bytes([ttl, a]),
        urgent: u16::from_be_bytes([b, ttl]),
        options,
    };
    if let Ok(written) = tcp.emit(buffer) {
        let mut view = Tcp::new_checked(&mut buffer[..]).expect("an emitted segment is valid");
        view.fill_checksum(Checksum::new());
        assert_eq!(view.verify_checksum(Checksum::new()), Ok(()));
        assert_eq!((TcpHeader::parse(&view), view.header_bytes()), (tcp, written));
    }

    if let Ok(written) = emit_extension(protocol, rest, buffer) {
        let mut walk = Extensions::new(protocol::DESTINATION_OPTIONS, &buffer[..written]);
        let step = walk.next().expect("one header").expect("an emitted header is valid");
        assert_eq!(&step.bytes[2..2 + rest.len()], rest);
        assert_eq!((walk.protocol(), walk.offset()), (protocol, written));
    }
    let ah = AhHeader { next_header: protocol, spi: tcp.sequence, sequence: tcp.acknowledgment, icv: rest };
    if ah.emit(buffer).is_ok() {
        assert_eq!(AhHeader::parse(&Ah::new_checked(&buffer[..]).expect("an emitted header is valid")), ah);
    }
    let trailer = EspTrailer { pad_bytes: a, next_header: protocol };
    let written = trailer.emit(buffer).expect("2048 bytes are enough");
    assert_eq!(EspTrailer::parse(&buffer[..written]), Ok(trailer));
}

/// Parses headers at the start of `data` and emits them. The result must equal `data`, except for
/// reserved fields.
fn emit_parsed(data: &[u8], buffer: &mut [u8; 2048]) {
    if let Ok(view) = Ethernet::new_checked(data) {
        let written = EthernetHeader::parse(&view).emit(buffer).expect("a parsed header fits the buffer");
        assert_eq!(buffer[..written], data[..written]);
    }
    if let Ok(view) = Vlan::new_checked(data) {
        let written = VlanHeader::parse(&view).emit(buffer).expect("a parsed header fits the buffer");
        assert_eq!(buffer[..written], data[..written]);
    }
    if let Ok(view) = Arp::new_checked(data)
        && let Ok(header) = ArpHeader::parse(&view)
    {
        let written = header.emit(buffer).expect("a parsed header fits the buffer");
        assert_eq!(buffer[..written], data[..written]);
    }
    if let Ok(view) = Ipv4::new_checked(data) {
        let written = Ipv4Header::parse(&view).emit(buffer).expect("a parsed header fits the buffer");
        let reserved_flag = view.flags_offset() & 0x8000 != 0;
        if view.verify_checksum().is_ok() && !reserved_flag {
            // One's complement has two zeros. The input may contain 0xffff where `emit` writes 0.
            assert!(buffer[..10] == data[..10] && buffer[12..written] == data[12..written]);
            assert!(buffer[10..12] == data[10..12] || data[10..12] == [0xff; 2]);
        }
    }
    if let Ok(view) = Ipv6::new_checked(data) {
        let written = Ipv6Header::parse(&view).emit(buffer).expect("a parsed header fits the buffer");
        assert_eq!(buffer[..written], data[..written]);
    }
    if let Ok(header) = FragmentHeader::parse(data) {
        let written = header.emit(buffer).expect("a parsed header fits the buffer");
        assert_eq!(FragmentHeader::parse(&buffer[..written]), Ok(header));
    }
    if let Ok(view) = Tcp::new_checked(data) {
        let written = TcpHeader::parse(&view).emit(buffer).expect("a parsed header fits the buffer");
        assert!(buffer[..12] == data[..12] && buffer[13..16] == data[13..16]);
        assert_eq!(buffer[18..written], data[18..written]);
        for option in view.options().flatten() {
            let written = option.emit(buffer).expect("a parsed header fits the buffer");
            assert!(written <= 40);
        }
    }
    if let Ok(view) = Udp::new_checked(data) {
        let written = UdpHeader::parse(&view).emit(buffer).expect("a parsed header fits the buffer");
        assert_eq!(buffer[..written - 2], data[..written - 2]);
    }
    if let Ok(view) = Icmpv4::new_checked(data) {
        Icmpv4Header::parse(&view).emit(buffer).expect("a parsed header fits the buffer");
        assert!(buffer[..2] == data[..2] && buffer[4..8] == data[4..8]);
    }
    if let Ok(view) = Esp::new_checked(data) {
        let written = EspHeader::parse(&view).emit(buffer).expect("a parsed header fits the buffer");
        assert_eq!(buffer[..written], data[..written]);
    }
    if let Ok(view) = Ah::new_checked(data) {
        let written = AhHeader::parse(&view).emit(buffer).expect("a parsed header fits the buffer");
        assert!(buffer[..2] == data[..2] && buffer[4..written] == data[4..written]);
    }
}

/// Checks that views stay within their buffer when length fields change after the check. Also
/// checks that the checksum stays correct when the TTL or an address changes.
fn set_all(data: &[u8], buffer: &mut [u8; 2048]) {
    let copy = &mut buffer[..data.len().min(2048)];
    copy.copy_from_slice(&data[..copy.len()]);
    if let Ok(mut view) = Ipv4::new_checked(&mut *copy) {
        let (source, destination) = (view.source(), view.destination());
        view.fill_checksum();
        view.decrement_ttl();
        view.replace_source(destination);
        view.replace_destination(source);
        let incremental = view.checksum();
        view.fill_checksum();
        assert_eq!(view.checksum(), incremental, "incremental and full checksum differ");
        view.set_version_ihl(0x4f);
        view.set_total_bytes(u16::MAX);
        view.options().for_each(drop);
        view.payload_mut().fill(0x5a);
        view.set_total_bytes(0);
        let _ = (view.payload().len(), view.pseudo_header().finish(), view.verify_checksum());
    }
    if let Ok(mut view) = Tcp::new_checked(&mut *copy) {
        view.fill_checksum(Checksum::new());
        view.set_flags(0xff);
        view.payload_mut().fill(0xa5);
        let _ = view.options().count();
    }
    if let Ok(mut view) = Udp::new_checked(&mut *copy) {
        view.fill_checksum(Checksum::new());
        assert_eq!(view.verify_checksum(Checksum::new()), Ok(()));
        view.set_length_bytes(u16::MAX);
        view.payload_mut().fill(1);
        view.set_length_bytes(0);
        view.fill_checksum(Checksum::new());
        let _ = view.payload().len();
    }
    if let Ok(mut view) = Arp::new_checked(&mut *copy) {
        view.set_hardware_bytes(255);
        view.set_protocol_bytes(255);
        let _ = (view.sender_protocol().len(), view.target_hardware().len(), view.target_protocol().len());
    }
    if let Ok(mut view) = Ah::new_checked(&mut *copy) {
        view.set_length(255);
        view.icv_mut().fill(0);
        view.set_length(0);
        let _ = (view.icv().len(), view.payload().len());
    }
    if let Ok(mut view) = Ipv6::new_checked(&mut *copy) {
        view.decrement_hop_limit();
        view.set_payload_bytes(u16::MAX);
        view.payload_mut().fill(0);
        let _ = view.extensions().upper_layer();
    }
}

/// Returns the next bytes of the input, or zeros at its end.
fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    match rest.split_first_chunk() {
        Some((field, tail)) => {
            *rest = tail;
            *field
        }
        None => [0; N],
    }
}
