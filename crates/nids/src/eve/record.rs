//! Writes the log records of alerts, transactions and flows.

use super::payload::{BYTES_MAX, base64, printable};
use super::{Json, Kind, Kinds};
use crate::app::{App, Direction};
use crate::detect::{Alert, Engine, Verdict};
use crate::flow::{Flow, FlowAction, FlowState};
use crate::packet::{Micros, Packet, Transport, tcp};
use crate::rules::rule::{Action, Rule};
use std::net::IpAddr;

/// Data that the record of an alert describes.
pub(crate) struct AlertContext<'a> {
    /// Packet.
    pub packet: &'a Packet<'a>,
    /// Flow.
    pub flow: Option<&'a Flow>,
    /// Direction of the packet.
    pub direction: Option<Direction>,
    /// Rules.
    pub engine: &'a Engine,
    /// Alert.
    pub alert: &'a Alert,
    /// Verdict for the packet.
    pub verdict: Verdict,
    /// Whether packets wait for their verdict (inline mode).
    pub inline: bool,
    /// Whether the record includes the payload and the packet.
    pub payload: bool,
}

/// Writes the record of an alert.
pub(crate) fn alert(context: &AlertContext<'_>, lines: &mut Vec<u8>) {
    let AlertContext { packet, alert, .. } = *context;
    let rule = &context.engine.rules[alert.rule as usize].rule;
    let mut json = begin(packet.time, context.flow, "alert");
    packet_members(packet, &mut json);
    if let Some(id) = alert.transaction {
        json.number("tx_id", id);
    }
    json.nested("alert", |json| {
        let blocked = context.inline && matches!(rule.action, Action::Drop | Action::Reject);
        json.string("action", if blocked { "blocked" } else { "allowed" });
        json.number("gid", rule.meta.gid.into());
        json.number("signature_id", rule.meta.sid.into());
        json.number("rev", rule.meta.rev.into());
        json.string("signature", &rule.meta.message);
        let class = rule.meta.class.as_deref();
        json.string("category", class.and_then(|class| context.engine.classes.description(class)).unwrap_or(""));
        json.number("severity", rule.meta.priority.into());
        rule_metadata(rule, json);
    });
    if let Some(flow) = context.flow {
        flow_members(flow, context.direction, alert.transaction, &mut json);
    }
    json.nested("verdict", |json| {
        let dropped = context.verdict != Verdict::Accept;
        json.string(
            "action",
            if dropped {
                "drop"
            } else if rule.action == Action::Pass {
                "pass"
            } else {
                "alert"
            },
        );
    });
    if let Some(flow) = context.flow {
        names(flow, context.engine, &mut json);
    }
    json.number("stream", u64::from(alert.stream));
    if context.payload {
        payload(context, &mut json);
    }
    json.finish(lines);
}

/// Writes the metadata of a rule as a list of values per key.
fn rule_metadata(rule: &Rule, json: &mut Json) {
    if rule.meta.metadata.is_empty() {
        return;
    }
    json.nested("metadata", |json| {
        let mut done: Vec<&str> = Vec::new();
        for (key, _) in &rule.meta.metadata {
            if done.contains(&key.as_str()) {
                continue;
            }
            done.push(key);
            let values = rule.meta.metadata.iter().filter(|pair| pair.0 == *key);
            json.array(key, |json| values.for_each(|pair| json.text_element(pair.1.as_bytes())));
        }
    });
}

/// Writes the named bits and variables of a flow. Bits with the prefix `traffic/id/` or
/// `traffic/label/` classify traffic, and are also written to a separate object.
fn names(flow: &Flow, engine: &Engine, json: &mut Json) {
    let bits: Vec<&str> = flow.bits.iter().filter_map(|bit| engine.names.name(*bit)).collect();
    if !bits.is_empty() || !flow.captures.is_empty() || !flow.ints.is_empty() {
        json.nested("metadata", |json| {
            if !bits.is_empty() {
                json.array("flowbits", |json| bits.iter().for_each(|bit| json.text_element(bit.as_bytes())));
            }
            if !flow.ints.is_empty() {
                json.nested("flowints", |json| {
                    for (name, value) in &flow.ints {
                        json.number(engine.names.name(*name).unwrap_or(""), (*value).into());
                    }
                });
            }
            if !flow.captures.is_empty() {
                json.array("flowvars", |json| {
                    for (name, value) in &flow.captures {
                        json.element(|json| json.bytes(name, value));
                    }
                });
            }
        });
    }
    let with = |prefix: &str| -> Vec<&str> { bits.iter().filter_map(|bit| bit.strip_prefix(prefix)).collect() };
    let (ids, labels) = (with("traffic/id/"), with("traffic/label/"));
    if !ids.is_empty() || !labels.is_empty() {
        json.nested("traffic", |json| {
            for (name, values) in [("id", ids), ("label", labels)] {
                if !values.is_empty() {
                    json.array(name, |json| values.iter().for_each(|value| json.text_element(value.as_bytes())));
                }
            }
        });
    }
}

/// Writes the payload that matched, and the packet.
fn payload(context: &AlertContext<'_>, json: &mut Json) {
    let packet = context.packet;
    let session = context.flow.and_then(|flow| flow.session.as_ref());
    let stream;
    let bytes = match (context.alert.stream, session, context.direction) {
        (true, Some(session), Some(direction)) => {
            stream = session.side(direction).data.with_gaps(BYTES_MAX);
            &stream
        }
        _ => packet.payload(),
    };
    let bytes = &bytes[..bytes.len().min(BYTES_MAX)];
    json.string("payload", &base64(bytes));
    json.string("payload_printable", &printable(bytes));
    if !packet.data.is_empty() {
        json.string("packet", &base64(packet.data));
    }
}

/// Writes the record of a packet that is dropped.
pub(crate) fn drop(packet: &Packet<'_>, flow: Option<&Flow>, reason: &str, rule: Option<&Rule>, lines: &mut Vec<u8>) {
    let mut json = begin(packet.time, flow, "drop");
    packet_members(packet, &mut json);
    json.nested("drop", |json| {
        json.number("len", packet.network.len() as u64 + packet.payload.len() as u64);
        json.number("ttl", packet.ttl.into());
        json.string("reason", reason);
    });
    if let Some(rule) = rule {
        json.nested("alert", |json| {
            json.string("action", "blocked");
            json.number("gid", rule.meta.gid.into());
            json.number("signature_id", rule.meta.sid.into());
            json.string("signature", &rule.meta.message);
        });
    }
    json.finish(lines);
}

/// Writes a record for each complete file. If `end` is true, also writes records for incomplete
/// files.
pub(crate) fn files(packet: &Packet<'_>, flow: &mut Flow, end: bool, kinds: Kinds, lines: &mut Vec<u8>) {
    let Some(files) = flow.app.parser.as_mut().map(|parser| parser.take_files(end)) else { return };
    if !kinds.contains(Kind::FileInfo) {
        return;
    }
    for file in files {
        let Some(app) = flow.app.app else { return };
        let mut json = begin(packet.time, Some(flow), "fileinfo");
        origin(packet, &mut json);
        let direction = file.direction;
        side_endpoints(flow, direction, &mut json);
        if let Some(parser) = flow.app.parser.as_ref() {
            json.nested(object_name(app), |json| parser.describe(file.transaction, json));
        }
        json.string("app_proto", app.event_name());
        json.nested("fileinfo", |json| {
            json.bytes("filename", &file.name);
            json.boolean("gaps", file.gaps);
            json.string("state", if file.closed { "CLOSED" } else { "TRUNCATED" });
            if let Some([md5, sha1, sha256]) = &file.digests {
                json.string("md5", md5);
                json.string("sha1", sha1);
                json.string("sha256", sha256);
            }
            json.boolean("stored", false);
            json.number("size", file.size);
            json.number("tx_id", file.transaction);
        });
        json.finish(lines);
    }
}

fn flow_members(flow: &Flow, direction: Option<Direction>, transaction: Option<u64>, json: &mut Json) {
    if let Some(app) = flow.app.app {
        json.string("app_proto", app.event_name());
    } else if flow.app.failed {
        json.string("app_proto", "failed");
    }
    if let Some(direction) = direction {
        json.string("direction", if direction == Direction::ToServer { "to_server" } else { "to_client" });
    }
    if let (Some(app), Some(parser), Some(id)) = (flow.app.app, flow.app.parser.as_ref(), transaction) {
        json.nested(object_name(app), |json| parser.describe(id, json));
    }
    json.nested("flow", |json| {
        json.number("pkts_toserver", flow.packets[0]);
        json.number("pkts_toclient", flow.packets[1]);
        json.number("bytes_toserver", flow.bytes[0]);
        json.number("bytes_toclient", flow.bytes[1]);
        json.string("start", &timestamp(flow.first));
        json.string("src_ip", &address(flow.key.client));
        json.string("dest_ip", &address(flow.key.server));
        json.number("src_port", flow.key.client_port.into());
        json.number("dest_port", flow.key.server_port.into());
    });
}

fn object_name(app: App) -> &'static str {
    match app {
        App::Http | App::Http2 => "http",
        App::FtpData => "ftp_data",
        other => other.name(),
    }
}

/// Writes records of transactions that are complete.
pub(crate) fn transactions(packet: &Packet<'_>, flow: &mut Flow, kinds: Kinds, lines: &mut Vec<u8>) {
    let Some(range) = flow.app.parser.as_ref().map(|parser| parser.transactions()) else { return };
    for id in range.start.max(flow.app.recorded)..range.end {
        let Some(parser) = flow.app.parser.as_ref() else { return };
        if !Direction::BOTH.into_iter().all(|direction| parser.progress(id, direction) >= parser.complete()) {
            return;
        }
        transaction(packet, flow, id, kinds, lines);
        flow.app.recorded = id + 1;
    }
}

/// Writes records of all transactions that have no record yet.
pub(crate) fn transactions_at_end(packet: &Packet<'_>, flow: &mut Flow, kinds: Kinds, lines: &mut Vec<u8>) {
    let Some(range) = flow.app.parser.as_ref().map(|parser| parser.transactions()) else { return };
    for id in range.start.max(flow.app.recorded)..range.end {
        transaction(packet, flow, id, kinds, lines);
        flow.app.recorded = id + 1;
    }
}

fn transaction(packet: &Packet<'_>, flow: &Flow, id: u64, kinds: Kinds, lines: &mut Vec<u8>) {
    let (Some(app), Some(parser)) = (flow.app.app, flow.app.parser.as_ref()) else { return };
    let name = object_name(app);
    if !parser.is_recorded(id) || !kinds.contains_name(name) {
        return;
    }
    let mut json = begin(packet.time, Some(flow), name);
    origin(packet, &mut json);
    side_endpoints(flow, parser.record_direction(id), &mut json);
    json.number("tx_id", id);
    json.nested(name, |json| parser.describe(id, json));
    json.finish(lines);
}

/// Writes the record of a flow that ended.
pub(crate) fn flow(flow: &Flow, reason: &str, engine: &Engine, lines: &mut Vec<u8>) {
    let mut json = begin(flow.last, Some(flow), "flow");
    endpoints(flow, &mut json);
    if let Some(app) = flow.app.app {
        json.string("app_proto", app.event_name());
    } else if flow.app.failed {
        json.string("app_proto", "failed");
    }
    json.nested("flow", |json| {
        json.number("pkts_toserver", flow.packets[0]);
        json.number("pkts_toclient", flow.packets[1]);
        json.number("bytes_toserver", flow.bytes[0]);
        json.number("bytes_toclient", flow.bytes[1]);
        json.string("start", &timestamp(flow.first));
        json.string("end", &timestamp(flow.last));
        json.number("age", (flow.last / 1_000_000).saturating_sub(flow.first / 1_000_000));
        json.string(
            "state",
            match flow.state {
                FlowState::New => "new",
                FlowState::Established => "established",
                FlowState::Closed => "closed",
            },
        );
        json.string("reason", reason);
        json.boolean("alerted", flow.alerted);
        if flow.app.parser.is_some() {
            json.number("tx_cnt", flow.app.parser.as_ref().map_or(0, |parser| parser.transactions().end));
        }
        match flow.action {
            FlowAction::None => {}
            FlowAction::Pass => json.string("action", "pass"),
            FlowAction::Drop => json.string("action", "drop"),
        }
    });
    names(flow, engine, &mut json);
    if let Some(session) = &flow.session {
        json.nested("tcp", |json| {
            let [client, server] = [&session.sides[0], &session.sides[1]];
            let all = client.flags_seen | server.flags_seen;
            json.display("tcp_flags", format_args!("{all:02x}"));
            json.display("tcp_flags_ts", format_args!("{:02x}", client.flags_seen));
            json.display("tcp_flags_tc", format_args!("{:02x}", server.flags_seen));
            for (name, flag) in [
                ("syn", tcp::SYN),
                ("fin", tcp::FIN),
                ("rst", tcp::RST),
                ("psh", tcp::PSH),
                ("ack", tcp::ACK),
                ("urg", tcp::URG),
            ] {
                if all & flag != 0 {
                    json.boolean(name, true);
                }
            }
            json.string("state", session.state.name());
            json.number("ts_max_regions", client.ranges_max.max(1).into());
            json.number("tc_max_regions", server.ranges_max.max(1).into());
        });
    }
    json.finish(lines);
}

fn begin(time: Micros, flow: Option<&Flow>, event: &str) -> Json {
    let mut json = Json::object();
    json.string("timestamp", &timestamp(time));
    if let Some(flow) = flow {
        json.number("flow_id", flow.number);
    }
    json.string("event_type", event);
    json
}

fn packet_members(packet: &Packet<'_>, json: &mut Json) {
    if packet.number > 0 {
        json.number("pcap_cnt", packet.number);
    }
    vlans(&packet.vlans[..usize::from(packet.vlan_count)], json);
    if packet.version != 0 {
        json.string("src_ip", &address(packet.source));
        if has_ports(packet) {
            json.number("src_port", packet.source_port.into());
        }
        json.string("dest_ip", &address(packet.destination));
        if has_ports(packet) {
            json.number("dest_port", packet.destination_port.into());
        }
        json.string("proto", &protocol_name(packet.protocol));
        json.number("ip_v", packet.version.into());
    }
    if let Transport::Icmp(icmp) = packet.transport {
        json.number("icmp_type", icmp.kind.into());
        json.number("icmp_code", icmp.code.into());
    }
    if let Some(outer) = packet.outer {
        json.nested("tunnel", |json| {
            json.string("src_ip", &address(outer.source));
            json.string("dest_ip", &address(outer.destination));
            json.string("proto", outer.protocol);
            json.number("depth", outer.depth.into());
        });
    }
    json.string("pkt_src", packet.origin.name());
}

/// Writes the frame number and the origin of the packet that caused a record.
fn origin(packet: &Packet<'_>, json: &mut Json) {
    if packet.number > 0 {
        json.number("pcap_cnt", packet.number);
    }
    json.string("pkt_src", packet.origin.name());
}

fn has_ports(packet: &Packet<'_>) -> bool {
    matches!(packet.protocol, 6 | 17 | 132)
}

fn endpoints(flow: &Flow, json: &mut Json) {
    side_endpoints(flow, Direction::ToServer, json);
}

/// Writes the addresses and ports of a flow. The sender in `direction` is the source.
fn side_endpoints(flow: &Flow, direction: Direction, json: &mut Json) {
    vlans(&flow.key.vlans[..flow.key.vlans.iter().take_while(|vlan| **vlan != 0).count()], json);
    let mut key = flow.key;
    if direction == Direction::ToClient {
        key.swap();
    }
    let ports = matches!(key.protocol, 6 | 17 | 132);
    json.string("src_ip", &address(key.client));
    if ports {
        json.number("src_port", key.client_port.into());
    }
    json.string("dest_ip", &address(key.server));
    if ports {
        json.number("dest_port", key.server_port.into());
    }
    json.string("proto", &protocol_name(flow.key.protocol));
    json.number("ip_v", if flow.key.client.is_ipv4() { 4 } else { 6 });
}

fn vlans(vlans: &[u16], json: &mut Json) {
    if !vlans.is_empty() {
        json.array("vlan", |json| vlans.iter().for_each(|vlan| json.number_element((*vlan).into())));
    }
}

/// Returns the name of an IP protocol in records.
pub(crate) fn protocol_name(number: u8) -> String {
    match number {
        1 => "ICMP".to_owned(),
        4 => "IP-in-IP".to_owned(),
        6 => "TCP".to_owned(),
        17 => "UDP".to_owned(),
        41 => "IPv6".to_owned(),
        47 => "GRE".to_owned(),
        50 => "ESP".to_owned(),
        51 => "AH".to_owned(),
        58 => "IPv6-ICMP".to_owned(),
        132 => "SCTP".to_owned(),
        other => format!("{other:03}"),
    }
}

/// Returns an address in Suricata's notation, which never shortens IPv6 addresses.
pub(crate) fn address(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => v6.segments().map(|part| format!("{part:04x}")).join(":"),
    }
}

/// Formats a UTC time, such as `2009-10-16T16:44:16.083524+0000`.
pub(crate) fn timestamp(time: Micros) -> String {
    let (seconds, micros) = (time / 1_000_000, time % 1_000_000);
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // The algorithm counts days from 1 March of year 0, in periods of 400 years (Howard Hinnant,
    // "chrono-Compatible Low-Level Date Algorithms").
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}+0000")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_times_and_addresses() {
        assert_eq!(timestamp(1_255_711_456_083_524), "2009-10-16T16:44:16.083524+0000");
        assert_eq!(timestamp(951_782_400_000_000), "2000-02-29T00:00:00.000000+0000");
        assert_eq!(address("2001:db8::1".parse().unwrap()), "2001:0db8:0000:0000:0000:0000:0000:0001");
    }
}
