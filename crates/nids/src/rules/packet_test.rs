//! Parses rule options that test packet headers or flow counters.

use super::number::{NumberTest, parse_number};

/// Test of one packet.
#[derive(Debug, Clone, PartialEq)]
pub enum PacketTest {
    /// Payload length of the packet, in bytes.
    PayloadBytes(NumberTest),
    /// IPv4 TTL or IPv6 hop limit.
    Ttl(NumberTest),
    /// IPv4 type of service.
    Tos(NumberTest),
    /// IPv4 identification.
    IpId(NumberTest),
    /// IP protocol number.
    IpProtocol(NumberTest),
    /// Source and destination address are equal.
    SameAddress,
    /// The packet has an IPv4 option of this kind, or any option for `None`.
    IpOption(Option<u8>),
    /// Fragment bits of the IPv4 header: 4 for reserved, 2 for don't fragment, and 1 for more
    /// fragments.
    FragmentBits(Bits),
    /// IPv4 fragment offset, in units of eight bytes.
    FragmentOffset(NumberTest),
    /// TCP flags.
    TcpFlags(Bits),
    /// TCP sequence number.
    TcpSequence(u32),
    /// TCP acknowledgment number.
    TcpAcknowledgment(u32),
    /// TCP window field, without the scale factor.
    TcpWindow(NumberTest),
    /// TCP maximum segment size option.
    TcpMss(NumberTest),
    /// ICMP type.
    IcmpType(NumberTest),
    /// ICMP code.
    IcmpCode(NumberTest),
    /// ICMP identifier.
    IcmpId(u16),
    /// ICMP sequence number.
    IcmpSequence(u16),
    /// VLAN identifier of the given layer, or of any layer.
    VlanId(NumberTest, Option<u8>),
    /// Number of bytes in one direction of a TCP stream.
    StreamBytes(StreamSide, NumberTest),
    /// Age of the flow, in seconds.
    FlowAge(NumberTest),
    /// Number of packets in one or both directions of the flow.
    FlowPackets(Option<crate::Direction>, NumberTest),
    /// Number of bytes in one or both directions of the flow.
    FlowBytes(Option<crate::Direction>, NumberTest),
    /// Number of SCTP chunks.
    SctpChunkCount(NumberTest),
    /// SCTP chunk type.
    SctpChunkType(NumberTest),
    /// SCTP verification tag.
    SctpTag(NumberTest),
    /// Event of the TCP stream or the decoder, by name.
    Event(&'static str),
    /// Application protocol of the flow. The names `failed` and `unknown` match unidentified
    /// protocols.
    AppProtocol {
        /// Protocol name as it is written in rules.
        name: String,
        /// Whether the result of the test is inverted.
        negated: bool,
    },
}

/// Direction of `stream_size`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamSide {
    /// Client.
    Client,
    /// Server.
    Server,
    /// Both sides.
    Both,
    /// Either side.
    Either,
}

/// Comparison of several bits of a header field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bits {
    /// Bits that are compared.
    pub mask: u8,
    /// Expected bits.
    pub bits: u8,
    /// Kind of comparison.
    pub how: BitsHow,
}

/// Comparison of bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BitsHow {
    /// All of these bits are set, and no others.
    Exact,
    /// All of these bits are set, and possibly others.
    All,
    /// At least one of these bits is set.
    AnyOf,
    /// None of these bits is set.
    NoneOf,
}

impl Bits {
    /// Returns whether `value` passes the comparison.
    pub fn matches(self, value: u8) -> bool {
        let value = value & self.mask;
        match self.how {
            BitsHow::Exact => value == self.bits,
            BitsHow::All => value & self.bits == self.bits,
            BitsHow::AnyOf => value & self.bits != 0,
            BitsHow::NoneOf => value & self.bits == 0,
        }
    }
}

const BAD: &str = "the value is not valid";

/// Parses a rule option that tests a packet. Returns `None` for any other option.
pub fn parse(name: &str, value: Option<&str>) -> Option<Result<PacketTest, &'static str>> {
    let text = value.unwrap_or("").trim();
    let number = |make: fn(NumberTest) -> PacketTest| NumberTest::parse(text).map(make).ok_or(BAD);
    Some(match name {
        "dsize" => number(PacketTest::PayloadBytes),
        "ttl" => number(PacketTest::Ttl),
        "tos" => number(PacketTest::Tos),
        "id" => number(PacketTest::IpId),
        "ip_proto" => NumberTest::parse_with(text, protocol_number).map(PacketTest::IpProtocol).ok_or(BAD),
        "sameip" => Ok(PacketTest::SameAddress),
        "ipopts" => ip_option(text).ok_or(BAD),
        "fragbits" => fragment_bits(text).ok_or(BAD),
        "fragoffset" => number(PacketTest::FragmentOffset),
        "flags" | "tcp.flags" => tcp_flags(text).ok_or(BAD),
        "seq" | "tcp.seq" => text.parse().map(PacketTest::TcpSequence).map_err(|_| BAD),
        "ack" | "tcp.ack" => text.parse().map(PacketTest::TcpAcknowledgment).map_err(|_| BAD),
        "window" | "tcp.window" | "tcp.wscale" => number(PacketTest::TcpWindow),
        "tcp.mss" => number(PacketTest::TcpMss),
        "itype" => number(PacketTest::IcmpType),
        "icode" => number(PacketTest::IcmpCode),
        "icmp_id" => text.parse().map(PacketTest::IcmpId).map_err(|_| BAD),
        "icmp_seq" => text.parse().map(PacketTest::IcmpSequence).map_err(|_| BAD),
        "vlan.id" => vlan_id(text).ok_or(BAD),
        "stream_size" => stream_size(text).ok_or(BAD),
        "flow.age" => number(PacketTest::FlowAge),
        "flow.pkts_toserver" => number(|n| PacketTest::FlowPackets(Some(crate::Direction::ToServer), n)),
        "flow.pkts_toclient" => number(|n| PacketTest::FlowPackets(Some(crate::Direction::ToClient), n)),
        "flow.bytes_toserver" => number(|n| PacketTest::FlowBytes(Some(crate::Direction::ToServer), n)),
        "flow.bytes_toclient" => number(|n| PacketTest::FlowBytes(Some(crate::Direction::ToClient), n)),
        "flow.pkts" | "flow.bytes" => per_direction(name, text).ok_or(BAD),
        "sctp.chunk_cnt" => number(PacketTest::SctpChunkCount),
        "sctp.chunk_type" => NumberTest::parse_with(text, sctp_chunk_type).map(PacketTest::SctpChunkType).ok_or(BAD),
        "sctp.vtag" => number(PacketTest::SctpTag),
        "app-layer-protocol" => app_protocol(text).ok_or(BAD),
        _ => return None,
    })
}

fn app_protocol(text: &str) -> Option<PacketTest> {
    let (negated, name) = match text.strip_prefix('!') {
        Some(rest) => (true, rest.trim()),
        None => (false, text),
    };
    let known = matches!(name, "failed" | "unknown") || !crate::App::from_name(name).is_empty();
    known.then(|| PacketTest::AppProtocol { name: name.to_owned(), negated })
}

fn per_direction(name: &str, text: &str) -> Option<PacketTest> {
    let (side, test) = text.split_once(',')?;
    let direction = match side.trim() {
        "toserver" => Some(crate::Direction::ToServer),
        "toclient" => Some(crate::Direction::ToClient),
        "either" | "both" => None,
        _ => return None,
    };
    let test = NumberTest::parse(test)?;
    Some(match name {
        "flow.pkts" => PacketTest::FlowPackets(direction, test),
        _ => PacketTest::FlowBytes(direction, test),
    })
}

fn vlan_id(text: &str) -> Option<PacketTest> {
    let (test, layer) = match text.split_once(',') {
        Some((test, layer)) => (test, Some(layer.trim())),
        None => (text, None),
    };
    let layer = match layer {
        None | Some("any") => None,
        Some(layer) => Some(layer.parse().ok()?),
    };
    Some(PacketTest::VlanId(NumberTest::parse(test)?, layer))
}

fn stream_size(text: &str) -> Option<PacketTest> {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let [side, operator, count] = parts[..] else { return None };
    let side = match side {
        "client" => StreamSide::Client,
        "server" => StreamSide::Server,
        "both" => StreamSide::Both,
        "either" => StreamSide::Either,
        _ => return None,
    };
    Some(PacketTest::StreamBytes(side, NumberTest::parse(&format!("{operator}{count}"))?))
}

fn ip_option(text: &str) -> Option<PacketTest> {
    let kind = match text {
        "any" => None,
        "eol" => Some(0),
        "nop" => Some(1),
        "rr" => Some(7),
        "ts" => Some(68),
        "sec" => Some(130),
        "lsrr" => Some(131),
        "esec" => Some(133),
        "cipso" => Some(134),
        "satid" => Some(136),
        "ssrr" => Some(137),
        "rtralt" => Some(148),
        "qs" => Some(25),
        _ => return None,
    };
    Some(PacketTest::IpOption(kind))
}

/// Parses flags written as letters. A `+`, `*` or `!` next to the letters selects the comparison.
fn letters(text: &str, bit: impl Fn(char) -> Option<u8>) -> Option<(u8, BitsHow)> {
    let (mut bits, mut how) = (0, BitsHow::Exact);
    for letter in text.trim().chars() {
        match letter {
            '+' => how = BitsHow::All,
            '*' => how = BitsHow::AnyOf,
            '!' => how = BitsHow::NoneOf,
            ' ' => {}
            _ => bits |= bit(letter)?,
        }
    }
    Some((bits, how))
}

fn fragment_bits(text: &str) -> Option<PacketTest> {
    let (bits, how) = letters(text, |letter| match letter.to_ascii_uppercase() {
        'R' => Some(4),
        'D' => Some(2),
        'M' => Some(1),
        _ => None,
    })?;
    (bits != 0).then_some(PacketTest::FragmentBits(Bits { mask: 7, bits, how }))
}

fn tcp_flags(text: &str) -> Option<PacketTest> {
    let bit = |letter: char| {
        Some(match letter.to_ascii_uppercase() {
            'F' => 0x01,
            'S' => 0x02,
            'R' => 0x04,
            'P' => 0x08,
            'A' => 0x10,
            'U' => 0x20,
            'E' | '2' => 0x40,
            'C' | '1' => 0x80,
            '0' => 0,
            _ => return None,
        })
    };
    let (flags, ignored) = match text.split_once(',') {
        Some((flags, ignored)) => (flags, letters(ignored, bit)?.0),
        None => (text, 0),
    };
    let (bits, how) = letters(flags, bit)?;
    let mask = !ignored;
    Some(PacketTest::TcpFlags(Bits { mask, bits: bits & mask, how }))
}

fn protocol_number(text: &str) -> Option<u64> {
    if let Some(number) = parse_number(text) {
        return (number < 256).then_some(number);
    }
    Some(match text.to_ascii_lowercase().as_str() {
        "icmp" => 1,
        "igmp" => 2,
        "ipip" | "ipencap" => 4,
        "tcp" => 6,
        "egp" => 8,
        "udp" => 17,
        "ipv6" => 41,
        "gre" => 47,
        "esp" => 50,
        "ah" => 51,
        "icmpv6" | "ipv6-icmp" => 58,
        "eigrp" => 88,
        "ospf" => 89,
        "pim" => 103,
        "sctp" => 132,
        _ => return None,
    })
}

fn sctp_chunk_type(text: &str) -> Option<u64> {
    if let Some(number) = parse_number(text) {
        return Some(number);
    }
    Some(match text {
        "data" => 0,
        "init" => 1,
        "init_ack" => 2,
        "sack" => 3,
        "heartbeat" | "hb_req" => 4,
        "heartbeat_ack" | "hb_ack" => 5,
        "abort" => 6,
        "shutdown" => 7,
        "shutdown_ack" => 8,
        "error" => 9,
        "cookie_echo" => 10,
        "cookie_ack" => 11,
        "shutdown_complete" => 14,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(text: &str) -> Bits {
        match parse("flags", Some(text)).unwrap().unwrap() {
            PacketTest::TcpFlags(bits) => bits,
            _ => unreachable!("flags parse to TcpFlags"),
        }
    }

    #[test]
    fn tcp_flags_follow_their_modifiers() {
        assert!(flags("S").matches(0x02) && !flags("S").matches(0x12));
        assert!(flags("S+").matches(0x12) && flags("+S").matches(0x12));
        assert!(flags("*SA").matches(0x10) && !flags("!R").matches(0x04));
        assert!(flags("S,12").matches(0xc2) && flags("S,CE").matches(0x42));
        assert!(flags("0").matches(0) && !flags("0").matches(1));
    }

    #[test]
    fn parses_each_keyword() {
        let ok = |name, value| parse(name, Some(value)).unwrap().is_ok();
        assert!(ok("dsize", "100<>300") && ok("ttl", "<5") && ok("ip_proto", "!tcp") && ok("ipopts", "lsrr"));
        assert!(
            ok("stream_size", "server,<,10") && ok("fragbits", "M+") && ok("itype", "134") && ok("vlan.id", "300,1")
        );
        assert!(ok("sctp.chunk_type", "init_ack") && ok("app-layer-protocol", "!http") && ok("sameip", ""));
        assert!(!ok("flags", "Q") && !ok("ttl", "x") && !ok("app-layer-protocol", "nonsense"));
        assert!(parse("content", None).is_none());
    }
}
